"""RaP-Table: the splitter adjustment, from subwindow to subwindow and inside the first one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamjoin.index.structures.raptable import FIRST_ADJUSTMENT, RaPTableSubwindow, balanced, even_splitters
from streamjoin.semantics.errors import SpecError


def partitioned(keys: np.ndarray, splitters: np.ndarray) -> list[list[int]]:
    """The keys of each partition: (splitters[i - 1], splitters[i]]."""
    place = np.searchsorted(splitters, keys, "left")
    return [keys[place == i].tolist() for i in range(len(splitters) + 1)]


def holding(keys: np.ndarray, splitters: np.ndarray) -> RaPTableSubwindow:
    table = RaPTableSubwindow(len(keys), keys.dtype, partitions=len(splitters) + 1, splitters=splitters)
    table.insert(keys, np.arange(len(keys), dtype=np.int32))
    return table


def imbalance(keys: np.ndarray, splitters: np.ndarray) -> float:
    """Mean absolute error of partition sizes over the mean size."""
    place = np.searchsorted(splitters, keys, "left")
    counts = np.bincount(place, minlength=len(splitters) + 1)
    return float(np.abs(counts - counts.mean()).mean() / counts.mean())


def test_the_adjustment_begins_at_a_partition_s_minimum():
    # 16 tuples in 4 partitions of the same density, to be divided by 5: the second splitter is where 6.4 tuples end,
    # 2.4/4 of the way through the second partition, whose keys begin at 100.
    counts = np.array([4, 4, 4, 4])
    lows, highs = np.array([0, 100, 200, 300]), np.array([90, 190, 290, 390])
    assert balanced(counts, lows, highs, 5).tolist() == [
        90 * 8 // 10,
        100 + 90 * 6 // 10,
        200 + 90 * 4 // 10,
        300 + 90 * 2 // 10,
    ]


def test_inside_a_partition_the_density_changes_as_it_does_around_it():
    # Figure 3's counts. The first splitter is halfway through the second partition, a valley, and so level. The others
    # are 3/5 and 2/6 through the last two, between which the density rises by a factor of 6/5 on 100: on the 90 that a
    # partition spans by 1.2 ** 0.9, so that their first tuples lie further apart than the last.
    counts = np.array([3, 2, 5, 6])
    lows, highs = np.array([0, 100, 200, 300]), np.array([90, 190, 290, 390])
    rise = 1.2**0.9
    ways = [np.log(1 + part * (rise - 1)) / np.log(rise) for part in (3 / 5, 2 / 6)]
    assert ways[0] > 3 / 5 + 0.01 and ways[1] > 2 / 6 + 0.01
    uniform = [145, 200 + 54, 300 + 30]
    # Of the 91 integers from the lowest to the greatest, the last one of those up to there.
    expected = [145, 200 + int(91 * ways[0]), 300 + int(91 * ways[1])]
    assert balanced(counts, lows, highs, 4).tolist() == expected != uniform
    # Of other numbers, the place itself; and the other way round, splitters mirror each other.
    places = [145, 200 + 90 * ways[0], 300 + 90 * ways[1]]
    np.testing.assert_allclose(balanced(counts, lows.astype(float), highs.astype(float), 4), places)
    mirrored = balanced(counts[::-1], -highs[::-1].astype(float), -lows[::-1].astype(float), 4)
    np.testing.assert_allclose(mirrored[::-1], [-place for place in places])


def test_each_of_two_integers_gets_its_splitters():
    """Rounded down all of them would be the lower one, and the greater one would share a partition with the next."""
    counts, lows, highs = np.array([40, 40]), np.array([5, 7]), np.array([6, 8])
    assert balanced(counts, lows, highs, 8).tolist() == [5, 5, 6, 6, 7, 7, 8]


def test_several_splitters_may_fall_into_one_partition_and_none_into_an_empty_one():
    counts, lows, highs = np.array([0, 80, 0]), np.array([7, 1000, 7]), np.array([7, 1800, 7])
    assert balanced(counts, lows, highs, 4).tolist() == [1200, 1400, 1600]
    assert balanced(counts, lows, highs, 1).tolist() == []
    assert balanced(counts, lows, highs, 2).tolist() == [1400]


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_even_splitters_cover_the_range_of_the_type(dtype):
    limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    splitters = even_splitters(np.dtype(dtype), 8).astype(float)
    assert np.isfinite(splitters).all()
    ideal = np.array([float(limits.min) * (1 - i / 8) + float(limits.max) * (i / 8) for i in range(1, 8)])
    np.testing.assert_allclose(splitters, ideal, atol=float(limits.max) * 1e-6)


def test_histograms_count_and_bound_each_partition():
    table = holding(np.array([5, 1, 12, 30, 11], np.int32), np.array([10, 20, 25], np.int32))
    counts, lows, highs = table.histograms()
    assert counts.tolist() == [2, 2, 0, 1]
    assert lows[counts > 0].tolist() == [1, 11, 30] and highs[counts > 0].tolist() == [5, 12, 30]
    table.seal()
    assert [a.tolist() for a in table.histograms()] == [a.tolist() for a in (counts, lows, highs)]


def test_infinite_keys_do_not_stop_the_adjustment():
    keys = np.r_[np.linspace(0, 1, 998), -np.inf, np.inf]
    table = holding(keys, even_splitters(keys.dtype, 10))
    for _ in range(2):
        table = holding(keys, table.adjusted_splitters(10))
    assert imbalance(keys, table.splitters) < 0.05


@pytest.mark.parametrize("seal", [False, True])
def test_a_successor_gets_balanced_splitters_for_as_many_partitions_as_it_has(seal):
    keys = np.random.default_rng(1).normal(0, 1000, 20_000).astype(np.int32)
    first = RaPTableSubwindow(20_000, keys.dtype, partitions=100)
    first.insert(keys, np.arange(20_000, dtype=np.int32))
    if seal:
        first.seal()
    for partitions in (1, 50, 100, 200):
        second = RaPTableSubwindow(20_000, keys.dtype, first, partitions=partitions)
        assert len(second.splitters) == partitions - 1
        assert imbalance(keys, second.splitters) < 0.1
        second.insert(keys, np.arange(20_000, dtype=np.int32))
        assert second.histograms()[0].sum() == 20_000


def test_a_predecessor_that_holds_nothing_or_other_keys_is_no_help():
    even = even_splitters(np.dtype("int32"), 4).tolist()
    empty = RaPTableSubwindow(100, np.dtype("int32"), partitions=4)
    floats = RaPTableSubwindow(100, np.dtype("float64"), partitions=4)
    floats.insert(np.arange(100.0), np.arange(100, dtype=np.int32))
    for predecessor in (None, empty, floats, object()):
        assert RaPTableSubwindow(100, np.dtype("int32"), predecessor, partitions=4).splitters.tolist() == even


def test_only_nan_keys_leave_the_even_splitters():
    table = RaPTableSubwindow(10, np.dtype("float64"), partitions=4)
    table.insert(np.full(10, np.nan), np.arange(10, dtype=np.int32))
    assert table.adjusted_splitters(4).tolist() == even_splitters(np.dtype("float64"), 4).tolist()


def test_the_first_subwindow_adjusts_itself_and_keeps_every_tuple():
    keys = np.random.default_rng(2).integers(10**15, 10**15 + 10**6, 50_000)
    table = RaPTableSubwindow(50_000, np.dtype("int64"), partitions=500)
    slots = np.arange(50_000, dtype=np.int32)
    for at in range(0, 50_000, 500):
        table.insert(keys[at : at + 500], slots[at : at + 500])
    assert imbalance(keys[:FIRST_ADJUSTMENT], even_splitters(keys.dtype, 500)) > 1.9
    assert imbalance(keys, table.splitters) < 0.2
    assert table.histograms()[0].sum() == 50_000
    table.seal()
    assert sorted(table._slots[:50_000].tolist()) == slots.tolist()
    assert (keys[table._slots[:50_000]] == table._keys[:50_000]).all()


def test_the_worst_case_converges_in_log_p_of_the_range():
    # Figure 4: every adjustment splits off the largest key only, until the range is used up.
    partitions = 1024
    keys = np.unique([2**31 // partitions**k for k in range(4)]).astype(np.int32)
    keys = np.repeat(keys, 256)
    splitters = even_splitters(keys.dtype, partitions)
    adjustments = 0
    while max(len(set(part)) for part in partitioned(keys, splitters)) > 1:
        splitters = holding(keys, splitters).adjusted_splitters(partitions)
        adjustments += 1
    assert 1 < adjustments <= 4


@pytest.mark.parametrize("partitions", [64, 512])
@pytest.mark.parametrize("keys", ["uniform", "normal", "multimodal", "rank-size"])
def test_partitions_are_balanced_after_three_adjustments(keys, partitions):
    """From splitters that cut the range of the type evenly, with new tuples each time."""
    random, count = np.random.default_rng(4), 1 << 16
    draw: dict[str, Callable[[], np.ndarray]] = {
        "uniform": lambda: random.uniform(-(2**31), 2**31, count),
        "normal": lambda: random.normal(0, 0.0005 * 2**32, count),
        "multimodal": lambda: random.normal(random.choice([-(2**30), 2**27, 2**30], count), 0.005 * 2**32),
        # 99 % lie in 1 % of the range that keys have, which is 1 % of the type's.
        "rank-size": lambda: np.minimum(0.0001 / 99 * 2**32 * random.pareto(1, count), 0.01 * 2**32),
    }
    splitters = even_splitters(np.dtype(np.int32), partitions)
    for _ in range(3):
        splitters = holding(draw[keys]().astype(np.int32), splitters).adjusted_splitters(partitions)
    chance = (2 * partitions / (np.pi * count)) ** 0.5
    assert imbalance(draw[keys]().astype(np.int32), splitters) < max(0.1, 1.25 * chance)


@pytest.mark.parametrize("splitters", [[3, 2, 1], [1, 2], [1, 2, 3, 4]])
def test_splitters_that_fall_or_are_too_many_or_few_are_refused(splitters):
    with pytest.raises(SpecError, match="3 splitters in ascending order"):
        RaPTableSubwindow(100, np.dtype("int32"), partitions=4, splitters=np.array(splitters))


@given(
    keys=st.sampled_from(["int32", "int64", "float32", "float64"]).flatmap(
        lambda dtype: hnp.arrays(dtype, st.integers(1, 200))
    ),
    old=st.integers(1, 30),
    new=st.integers(1, 30),
)
def test_splitters_are_sorted_whatever_the_keys(keys, old, new):
    old = min(old, len(keys))
    table = holding(keys, even_splitters(keys.dtype, old))
    splitters = table.adjusted_splitters(new)
    assert splitters.shape == (new - 1,)
    assert (splitters[1:] >= splitters[:-1]).all()
    if np.isfinite(keys).any() and new > 1:
        finite = keys[np.isfinite(keys)]
        inside = splitters[np.isfinite(splitters)]
        assert ((finite.min() <= inside) & (inside <= finite.max())).all()
