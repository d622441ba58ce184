"""The hash subwindow against the definition in NumPy, its table's invariants, and hashes of several columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.index.structures.hash import FULL_LOAD, GOOD_LOAD, HashSubwindow
from streamjoin.kernels.hash import tables as hashing
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.errors import IndexNotApplicableError, InputError

Pairs = list[tuple[int, int]]

DTYPES = ("int32", "int64", "float32", "float64")
EXTREMES: dict[str, list[float]] = {
    "int32": [-(2**31), -1, 0, 1, 2**31 - 1],
    "int64": [-(2**63), -(2**32), -1, 0, 1, 2**32, 2**63 - 1],
    "float32": [-np.inf, -3.4e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.5, np.inf, np.nan, -np.nan],
    "float64": [-np.inf, -1.7e308, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, np.inf, np.nan, -np.nan],
}


def filled(keys: np.ndarray, cuts: list[int] | None = None, capacity: int | None = None) -> HashSubwindow:
    """A subwindow with slots 0, 1, ..., inserted in batches that end at the cuts."""
    window = HashSubwindow(capacity or max(1, len(keys)), keys.dtype)
    bounds = [0, *sorted(cuts or []), len(keys)]
    for begin, end in itertools.pairwise(bounds):
        window.insert(keys[begin:end], np.arange(begin, end, dtype=np.int32))
    return window


def stretches(
    window: HashSubwindow,
    lows: np.ndarray,
    highs: np.ndarray | None = None,
    start: np.ndarray | None = None,
    stop: np.ndarray | None = None,
) -> Iterator[Pairs]:
    """The pairs of each stretch, through a buffer that is emptied every time and stays as small as is allowed."""
    pairs = PairBuffer(1)
    start = np.zeros(len(lows), np.int64) if start is None else start
    stop = np.full(len(lows), 2**31, np.int64) if stop is None else stop
    for before in window.probe(lows, lows if highs is None else highs, start, stop, pairs):
        assert before == 0 < pairs.count
        assert len(pairs.probe) == hashing.MIN_TABLE_ROOM
        probes, slots = pairs.take()
        yield list(zip(probes.tolist(), slots.tolist(), strict=True))


def found(window: HashSubwindow, *arguments: np.ndarray) -> Pairs:
    return [pair for stretch in stretches(window, *arguments) for pair in stretch]


def brute_force(
    keys: np.ndarray, lows: np.ndarray, highs: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> Pairs:
    slots = np.arange(len(keys))
    matches = (lows[:, None] <= keys) & (keys <= highs[:, None])
    matches &= (start[:, None] <= slots) & (slots < stop[:, None])
    return [(int(probe), int(slot)) for probe, slot in np.argwhere(matches)]


def check_invariants(window: HashSubwindow, keys: np.ndarray) -> None:
    """Every key is where a search finds it, its slots are those of its tuples, and no place of the pool is lost."""
    lines = window._table.reshape(-1, 2, hashing.WAYS)
    words, said = lines[:, 0], lines[:, 1]
    taken = (said != 0).sum(axis=1)
    assert all((said[line, : taken[line]] != 0).all() for line in range(len(lines)))
    assert taken[-1] == 0
    held: dict[int, list[int]] = {}
    used = np.zeros(len(window._pool), bool)
    for line, way in np.argwhere(said != 0).tolist():
        word, count, ref = (
            int(words[line, way]),
            int(said[line, way]) >> 32,
            int(said[line, way]) & 0xFFFFFFFF,
        )
        assert word not in held
        home = int(home_of(np.array([word]), window._lines)[0])
        assert home <= line
        assert (taken[home:line] == hashing.WAYS).all()
        held[word] = [ref] if count == 1 else window._pool[ref : ref + count].tolist()
        if count > 1:
            assert not used[ref : ref + count].any()
            used[ref : ref + count] = True
    expected: dict[int, list[int]] = {}
    for slot, word in enumerate(words_of(keys).tolist()):
        if keys[slot] == keys[slot]:
            expected.setdefault(word, []).append(slot)
    assert held == expected
    assert window.distinct == len(expected)
    assert len(window) == len(keys)


def words_of(keys: np.ndarray) -> np.ndarray:
    if keys.dtype.kind == "f":
        return (keys.astype(np.float64) + 0.0).view(np.int64)
    return keys.astype(np.int64)


def hash_of(words: np.ndarray) -> np.ndarray:
    state, factor = words.view(np.uint64), np.uint64(0xD6E8FEB86659FD93)
    for _ in range(2):
        state = (state ^ (state >> np.uint64(32))) * factor
    return state ^ (state >> np.uint64(32))


def home_of(words: np.ndarray, lines: int) -> np.ndarray:
    return ((hash_of(words) >> np.uint64(32)) * np.uint64(lines)) >> np.uint64(32)


def area_places(window: HashSubwindow, keys: np.ndarray) -> int:
    """Places of the pool in areas of keys and in areas left behind."""
    live = keys[keys == keys]
    counts = np.unique(words_of(live), return_counts=True)[1]
    several = np.maximum(counts[counts > 1], 1 << hashing.FIRST_CLASS)
    total = int((1 << np.ceil(np.log2(several)).astype(int)).sum())
    for size_class, place in enumerate(window._counters[hashing.LEFT_BEHIND :].tolist()):
        while place >= 0:
            total, place = total + (1 << size_class), int(window._pool[place])
    return total


def test_four_tuples_two_of_them_equal():
    window = filled(np.array([7, 5, 7, -1], np.int32))
    assert found(window, np.array([7, 6, -1], np.int32)) == [(0, 0), (0, 2), (2, 3)]
    assert len(window) == 4 and window.distinct == 3


def test_slots_are_those_given_and_ranges_cut_them():
    window = HashSubwindow(100, np.dtype("int64"))
    window.insert(np.array([1, 1, 2]), np.array([10, 20, 30], np.int32))
    window.insert(np.array([1, 1]), np.array([40, 50], np.int32))
    ones = np.ones(5, np.int64)
    start, stop = np.array([0, 20, 21, 60, 40]), np.array([99, 41, 50, 99, 20])
    assert found(window, ones, ones, start, stop) == [
        *((0, 10), (0, 20), (0, 40), (0, 50)),
        *((1, 20), (1, 40)),
        (2, 40),
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeros_are_equal_and_nan_matches_nothing(dtype):
    keys = np.array([0.0, -0.0, np.nan, 1.0], dtype)
    window = filled(keys)
    probes = np.array([-0.0, np.nan, 1.0, 0.0], dtype)
    assert found(window, probes) == [(0, 0), (0, 1), (2, 3), (3, 0), (3, 1)]
    assert found(window, -np.abs(probes[:1]), np.abs(probes[:1])) == [(0, 0), (0, 1)]
    assert len(window) == 4 and window.distinct == 2


def test_an_empty_interval_matches_nothing():
    window = filled(np.array([1, 2, 3]))
    assert found(window, np.array([2, 3]), np.array([1, 3])) == [(1, 2)]


def test_an_interval_of_several_numbers_is_refused():
    window = filled(np.array([1, 2, 3]))
    with pytest.raises(IndexNotApplicableError, match="probe 1 asks for 2 to 3"):
        window.probe(np.array([1, 2]), np.array([1, 3]), np.zeros(2, int), np.full(2, 3), PairBuffer())
    assert issubclass(IndexNotApplicableError, ValueError)


def test_bad_arguments_are_refused_and_change_nothing():
    window = filled(np.array([1, 2, 3]), capacity=10)
    for slots in ([2], [3, 3], [4, 3]):
        with pytest.raises(InputError, match="slots must ascend"):
            window.insert(np.zeros(len(slots), np.int64), np.array(slots, np.int32))
    with pytest.raises(InputError, match="keys of this subwindow are int64, not float64"):
        window.insert(np.zeros(1), np.array([3], np.int32))
    with pytest.raises(InputError, match="are int64, not int32"):
        found(window, np.zeros(1, np.int32))
    with pytest.raises(IndexNotApplicableError, match="not uint8"):
        HashSubwindow(10, np.dtype("uint8"))
    with pytest.raises(InputError, match="1 to 536,870,912 tuples, not 0"):
        HashSubwindow(0, np.dtype("int64"))
    window.seal()
    with pytest.raises(InputError, match="a sealed subwindow takes no tuples; given: 1"):
        window.insert(np.zeros(1, np.int64), np.array([3], np.int32))
    check_invariants(window, np.array([1, 2, 3]))


def test_empty_batches_and_an_empty_subwindow():
    window = HashSubwindow(5, np.dtype("int32"))
    window.insert(np.empty(0, np.int32), np.empty(0, np.int32))
    window.seal()
    assert len(window) == 0
    assert found(window, np.array([0, 1], np.int32)) == []
    assert found(window, np.empty(0, np.int32)) == []


def test_arrays_need_not_be_contiguous():
    keys = np.arange(40)
    window = HashSubwindow(40, keys.dtype)
    window.insert(keys[::2], np.arange(40, dtype=np.int32)[::2])
    whole = np.broadcast_to(np.int64(100), 10)
    assert found(window, keys[::4], keys[::4], np.zeros(20, int)[::2], whole) == [
        (i, 4 * i) for i in range(10)
    ]


@st.composite
def cases(draw):
    dtype = draw(st.sampled_from(DTYPES))
    values = st.one_of(st.sampled_from(EXTREMES[dtype]), st.integers(-draw(st.integers(0, 50)), 50))
    keys = np.array(draw(st.lists(values, max_size=200)), dtype)
    cuts = draw(st.lists(st.integers(0, len(keys)), max_size=5))
    lows = np.array(draw(st.lists(values, max_size=30)), dtype)
    empty = np.array(draw(st.lists(values, min_size=len(lows), max_size=len(lows))), dtype)
    highs = np.where((empty < lows) | np.isnan(empty), empty, lows)
    slot = st.lists(st.integers(0, len(keys)), min_size=len(lows), max_size=len(lows))
    start, stop = (np.array(draw(slot), np.int64) for _ in range(2))
    whole = draw(st.booleans())
    return keys, cuts, lows, highs, (start * 0 if whole else start), (stop * 0 + len(keys) if whole else stop)


@given(cases(), st.booleans())
def test_pairs_are_those_of_the_definition(case, sealed):
    keys, cuts, lows, highs, start, stop = case
    window = filled(keys, cuts)
    if sealed:
        window.seal()
    got = found(window, lows, highs, start, stop)
    assert got == brute_force(keys, lows, highs, start, stop)
    check_invariants(window, keys)
    if not sealed:
        assert area_places(window, keys) == window._counters[hashing.POOL_END]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [1, 7, 300, 5000, 10**6])
@pytest.mark.parametrize("batch", [1, 100, 6000])
def test_multiplicities_from_one_to_all(dtype, spread, batch):
    random = np.random.default_rng(spread)
    keys = random.integers(-spread, spread, 6000 if batch > 1 else 1500).astype(dtype)
    window = filled(keys, list(range(0, len(keys), batch)))
    check_invariants(window, keys)
    assert area_places(window, keys) == window._counters[hashing.POOL_END]
    lows = np.concatenate([random.choice(keys, 40), random.integers(-spread, spread, 40).astype(dtype)])
    start, stop = random.integers(0, len(keys) // 2, 80), random.integers(len(keys) // 2, len(keys), 80)
    start[::3], stop[::3] = 0, len(keys)
    for _ in range(2):
        assert found(window, lows, lows, start, stop) == brute_force(keys, lows, lows, start, stop)
        window.seal()
        check_invariants(window, keys)


def test_the_tuples_of_one_probe_may_come_in_many_stretches():
    keys = np.full(10_000, 5, np.int64)
    keys[::100] = 6
    window = filled(keys)
    probes = np.array([6, 5, 7, 5])
    got = list(stretches(window, probes))
    assert len(got) > 2 * 9_900 // hashing.MIN_TABLE_ROOM
    assert all(stretch for stretch in got)
    whole = np.full(4, len(keys))
    assert [p for s in got for p in s] == brute_force(keys, probes, probes, whole * 0, whole)


def test_a_stretch_may_be_thinned_out_or_left_in_the_buffer():
    keys = np.repeat(np.arange(50), 40)
    window, pairs = filled(keys), PairBuffer(1)
    probes, kept = np.arange(50), 0
    for before in window.probe(probes, probes, np.zeros(50, int), np.full(50, 2000), pairs):
        assert before == kept
        pairs.keep(before, pairs.pos[before : pairs.count] % 2 == 0)
        kept = pairs.count
    assert sorted(pairs.take()[1].tolist()) == list(range(0, 2000, 2))


def test_keys_that_share_a_home_overflow_behind_the_last_line():
    words = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 2_000_000)
    last = words[hash_of(words) >= np.uint64(2**64 - 2**54)]  # the last 1,024th of all hashes
    assert len(last) > 1500
    window = filled(last, [10, 500])
    assert window._tail * hashing.WAYS > 1500
    check_invariants(window, last)
    assert found(window, last) == [(i, i) for i in range(len(last))]
    window.seal()
    assert found(window, last) == [(i, i) for i in range(len(last))]


@pytest.mark.parametrize("keys", ["sequence", "multiples", "floats"])
def test_regular_keys_spread_over_the_lines(keys):
    sequence = np.arange(30_000)
    held = {"sequence": sequence, "multiples": sequence << 40, "floats": sequence / 8}[keys]
    window = filled(held)
    lines = window._table.reshape(-1, 2, hashing.WAYS)[:, 1]
    # The number of keys at home in a line is then a Poisson variable of mean 2.4: more than 7 are rare.
    homes = np.bincount(home_of(words_of(held), window._lines).astype(int))
    assert (homes > 7).mean() < 0.01
    assert ((lines != 0).sum(axis=1) == hashing.WAYS).mean() < 0.35
    assert window._tail == 4


def test_memory_follows_the_tuples_held():
    window = HashSubwindow(1 << 29, np.dtype("int64"))
    assert window.nbytes < 2048
    sizes = []
    for held in (1000, 10_000, 100_000):
        keys = np.arange(len(window), held)
        window.insert(keys, keys.astype(np.int32))
        sizes.append(window.nbytes / held)
    assert max(sizes) < 16 / FULL_LOAD * 2 + 2
    window.seal()
    assert window.nbytes / 100_000 < 16 / GOOD_LOAD + 1


def test_growth_arrives_at_the_size_that_suits_the_capacity():
    for capacity in (100, 1000, 77_777):
        window = filled(np.arange(capacity))
        before = window._table
        window.seal()
        assert window._table is before
        assert GOOD_LOAD - 0.05 < capacity / (window._lines * hashing.WAYS) <= GOOD_LOAD


def test_sealing_packs_the_pool():
    keys = np.arange(60_000) % 600
    window = filled(keys)
    before = window.nbytes
    window.seal()
    assert window.nbytes < 5 * len(keys) < before
    assert len(window) == len(keys)
    check_invariants(window, keys)


def test_combined_hashes_are_equal_where_rows_are():
    left = np.array([1, 1, 2, 2], np.int32), np.array([0.0, 1.5, 0.0, -0.0], np.float32)
    right = np.array([1, 2, 1, 2], np.int64), np.array([-0.0, 0.0, 1.5, 0.0], np.float64)
    left_hash, right_hash = np.empty(4, np.int64), np.empty(4, np.int64)
    hashing.combine(left, left_hash)
    hashing.combine(right, right_hash)
    equal = (left[0][:, None] == right[0]) & (left[1][:, None] == right[1])
    assert ((left_hash[:, None] == right_hash) == equal).all()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64", "float32"])
def test_combine_takes_columns_of_any_number(dtype):
    column, out = np.array([0, 1, 1], dtype), np.empty(3, np.int64)
    hashing.combine((column, np.array([5, 5, 6])), out)
    assert len(set(out.tolist())) == 3


def test_combined_hashes_of_different_rows_differ():
    x, y = (column.ravel() for column in np.meshgrid(np.arange(300), np.arange(300)))
    hashes, swapped = np.empty(len(x), np.int64), np.empty(len(x), np.int64)
    hashing.combine((x, y), hashes)
    hashing.combine((y, x), swapped)
    assert len(np.unique(hashes)) == len(x)
    assert ((hashes == swapped) == (x == y)).all()
    assert abs(np.mean(hashes < 0) - 0.5) < 0.02
