"""The LLAT under both structures: what a subwindow promises, and that 2P entries always suffice."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamjoin.index.structures.llat import SIGMA, PartitionedSubwindow
from streamjoin.index.structures.raptable import RaPTableSubwindow
from streamjoin.index.structures.wibtree import WiBTreeSubwindow
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.errors import ClosedError, InputError, SpecError

STRUCTURES = [RaPTableSubwindow, WiBTreeSubwindow]
DTYPES = ["int32", "int64", "float32", "float64"]


def found(
    window: PartitionedSubwindow, lows, highs, start=None, stop=None, room: int = 1
) -> list[tuple[int, int]]:
    """Every pair, through a buffer that starts with little room and is drained after each stretch."""
    lows, highs = np.asarray(lows, window.dtype), np.asarray(highs, window.dtype)
    start = np.zeros(len(lows), np.int64) if start is None else np.asarray(start, np.int64)
    stop = np.full(len(lows), window.capacity, np.int64) if stop is None else np.asarray(stop, np.int64)
    pairs = PairBuffer(room)
    result: list[tuple[int, int]] = []
    for before in window.probe(lows, highs, start, stop, pairs):
        assert before == 0
        probes, slots = pairs.take()
        result += zip(probes.tolist(), slots.tolist(), strict=True)
    return sorted(result)


def brute_force(keys, slots, lows, highs, start, stop) -> list[tuple[int, int]]:
    inside = (lows[:, None] <= keys) & (keys <= highs[:, None])
    inside &= (start[:, None] <= slots) & (slots < stop[:, None])
    probes, places = np.nonzero(inside)
    return sorted(zip(probes.tolist(), slots[places].tolist(), strict=True))


def filled(
    structure, keys: np.ndarray, partitions: int | None = None, batch: int = 7
) -> PartitionedSubwindow:
    window: PartitionedSubwindow = structure(max(1, len(keys)), keys.dtype, partitions=partitions)
    slots = np.arange(len(keys), dtype=np.int32)
    for at in range(0, len(keys), batch):
        window.insert(keys[at : at + batch], slots[at : at + batch])
        assert window.entries_used <= 2 * window.partitions
    return window


@pytest.fixture(scope="module", params=STRUCTURES, ids=["raptable", "wibtree"])
def structure(request):
    return request.param


@pytest.mark.parametrize("seal", [False, True])
def test_four_tuples_are_found_by_bands(structure, seal):
    window = structure(4, np.dtype("int32"), partitions=2)
    window.insert(np.array([10, 30], np.int32), np.array([0, 1], np.int32))
    window.insert(np.array([20, 30], np.int32), np.array([2, 3], np.int32))
    if seal:
        window.seal()
    assert len(window) == 4
    assert found(window, [10, 15, 31, 25], [10, 30, 99, 24]) == [(0, 0), (1, 1), (1, 2), (1, 3)]
    assert found(window, [0], [99], start=[1], stop=[3]) == [(0, 1), (0, 2)]
    assert found(window, [0], [99], start=[3], stop=[3]) == []
    assert found(window, [0, 0], [99, 99], start=[-(2**40), 2**40], stop=[2**40, 2**41]) == [
        (0, i) for i in range(4)
    ]
    assert found(window, [0], [99], start=[-5], stop=[-2]) == []


@pytest.mark.parametrize("seal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_matches_nothing_and_both_zeros_are_equal(structure, seal, dtype):
    keys = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 1.0], dtype)
    window = filled(structure, keys, partitions=3, batch=1)
    if seal:
        window.seal()
    assert len(window) == 6
    nan, inf = np.nan, np.inf
    lows, highs = [0.0, -0.0, nan, 0.0, -inf, inf, -inf], [0.0, -0.0, nan, nan, inf, inf, -inf]
    everything = [(4, slot) for slot in (1, 2, 3, 4, 5)]
    assert found(window, lows, highs) == [(0, 1), (0, 2), (1, 1), (1, 2), *everything, (5, 3), (6, 4)]


def test_only_nan_matches_nothing_before_and_after_sealing(structure):
    window = filled(structure, np.full(3000, np.nan, np.float64), batch=1500)
    assert found(window, [-np.inf], [np.inf]) == []
    window.seal()
    assert found(window, [-np.inf], [np.inf]) == []


@pytest.mark.parametrize("seal", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_extreme_integers_are_found(structure, seal, dtype):
    limits = np.iinfo(dtype)
    keys = np.tile(np.array([limits.min, limits.min + 1, -1, 0, limits.max - 1, limits.max], dtype), 20)
    window = filled(structure, keys, partitions=12)
    if seal:
        window.seal()
    for key in np.unique(keys):
        expected = [(0, slot) for slot in np.flatnonzero(keys == key).tolist()]
        assert found(window, [key], [key]) == expected
    assert len(found(window, [limits.min], [limits.max])) == len(keys)


def test_an_empty_subwindow_is_probed_and_sealed(structure):
    window = structure(10, np.dtype("int32"))
    assert found(window, [0], [9]) == []
    window.insert(np.empty(0, np.int32), np.empty(0, np.int32))
    window.seal()
    window.seal()
    assert len(window) == 0
    assert found(window, [0], [9]) == []


def test_what_a_subwindow_can_not_take_is_refused_and_changes_nothing(structure):
    window = structure(2, np.dtype("int32"))
    with pytest.raises(InputError, match="2 tuples that holds 0 cannot take 3"):
        window.insert(np.zeros(3, np.int32), np.arange(3, dtype=np.int32))
    assert len(window) == 0
    window.seal()
    with pytest.raises(ClosedError, match="sealed"):
        window.insert(np.zeros(1, np.int32), np.zeros(1, np.int32))
    for capacity, dtype, partitions in ((0, "int32", 1), (4, "uint8", 1), (4, "int32", 5), (4, "int32", -1)):
        with pytest.raises(SpecError):
            structure(capacity, np.dtype(dtype), partitions=partitions)


def test_sealing_gives_the_room_of_the_table_back(structure):
    keys = np.random.default_rng(3).integers(0, 1000, 20_000).astype(np.int32)
    window = filled(structure, keys, batch=5000)
    opened = window.nbytes
    before = found(window, np.arange(0, 1000, 50), np.arange(0, 1000, 50) + 3)
    window.seal()
    assert opened >= len(keys) * 8 * 2 * SIGMA
    assert window.nbytes < len(keys) * 8 * 1.25
    assert found(window, np.arange(0, 1000, 50), np.arange(0, 1000, 50) + 3) == before


def test_a_buffer_with_pairs_keeps_them_and_may_be_thinned_between_stretches(structure):
    window = filled(structure, np.zeros(5000, np.int32), partitions=4, batch=5000)
    pairs = PairBuffer(8)
    pairs.probe[0], pairs.pos[0], pairs.count = 7, 7, 1
    stretches, slots = 0, []
    zero, everything = np.zeros(1, np.int32), np.full(1, 5000, np.int64)
    for before in window.probe(zero, zero, np.zeros(1, np.int64), everything, pairs):
        assert before == 1 and pairs.probe[0] == 7
        slots += pairs.pos[1 : pairs.count].tolist()
        pairs.count, stretches = 1, stretches + 1
    assert stretches > 1
    assert sorted(slots) == list(range(5000))


WITHOUT_COMPRESS = """
import numpy as np
from streamjoin.index.structures.raptable import RaPTableSubwindow
from streamjoin.kernels.partitioned import llat
from streamjoin.kernels.pairs import PairBuffer

keys = np.random.default_rng(1).integers(0, 50, 2000).astype(np.int32)
table = RaPTableSubwindow(2000, keys.dtype, partitions=30)
table.insert(keys, np.arange(2000, dtype=np.int32))
table.seal()
lows, start, stop = np.arange(50, dtype=np.int32), np.full(50, 100), np.full(50, 1900)
pairs = PairBuffer()
for _ in table.probe(lows, lows + np.int32(1), start, stop, pairs):
    pass
probes, slots = pairs.take()
inside = (keys[slots] - probes >= 0) & (keys[slots] - probes <= 1) & (slots >= 100) & (slots < 1900)
expected = sum(int(((keys[100:1900] == k) | (keys[100:1900] == k + 1)).sum()) for k in range(50))
print(llat.HAS_COMPRESS, inside.all(), len(set(zip(probes, slots))) == len(probes) == expected)
"""


def test_a_cpu_that_can_not_pack_vectors_finds_the_same():
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPRESS], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", "True", "True"], done.stderr


@st.composite
def keys_and_probes(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    few: st.SearchStrategy[float]
    key: st.SearchStrategy[float]
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        few = st.sampled_from([limits.min, limits.min + 1, -1, 0, 1, 2, 5, limits.max - 1, limits.max])
        key = few | st.integers(-20, 20) | st.integers(int(limits.min), int(limits.max))
    else:
        width = dtype.itemsize * 8
        few = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 0.5, np.inf, np.nan])
        key = few | st.floats(width=width) | st.floats(-4, 4, width=width)
    keys = draw(hnp.arrays(dtype, st.integers(1, 300), elements=key, fill=few))
    lows, highs = (draw(hnp.arrays(dtype, 40, elements=key, fill=few)) for _ in range(2))
    lows[::3] = highs[::3]
    start, stop = (draw(hnp.arrays(np.int64, 40, elements=st.integers(0, len(keys)))) for _ in range(2))
    if draw(st.booleans()):
        start[:], stop[:] = 0, len(keys)
    return keys, lows, highs, start, stop


@given(case=keys_and_probes(), share=st.floats(0, 1), batch=st.integers(1, 64), seal=st.booleans())
def test_probes_find_what_brute_force_finds(structure, case, share, batch, seal):
    keys, lows, highs, start, stop = case
    window = filled(structure, keys, partitions=1 + int(share * (len(keys) - 1)), batch=batch)
    if seal:
        window.seal()
    expected = brute_force(keys, np.arange(len(keys)), lows, highs, start, stop)
    assert found(window, lows, highs, start, stop) == expected


def hostile_streams():
    """Patterns meant to take many entries for few tuples: each gives `count` keys for leaves of `width` tuples."""
    rng = np.random.default_rng(11)

    def heavy_runs(count, width, share):
        """Rising runs of equal keys, each with one different key just above and one just below."""
        run = max(1, int(share * width))
        blocks = [np.r_[100 * i + 1, np.full(run, 100 * i), 100 * i - 1] for i in range(count // run + 1)]
        return np.concatenate(blocks)[:count]

    yield "equal", lambda count, width: np.zeros(count)
    yield "rising", lambda count, width: np.arange(count)
    yield "falling", lambda count, width: -np.arange(count)
    yield "random", lambda count, width: rng.integers(0, 10 * count, count)
    yield "few keys", lambda count, width: rng.integers(0, 5, count)
    yield (
        "towards a heavy key",
        lambda count, width: np.r_[np.zeros(3 * width), np.arange(count, 0, -1)][:count],
    )
    yield (
        "around a heavy key",
        lambda count, width: np.where(np.arange(count) % 3, 0, rng.integers(-9, 9, count)),
    )
    for share in (0.2, 0.41, 0.5, 0.6, 0.8, 1.0, 1.2, 2.2, 3.0):
        yield f"runs of {share} widths", lambda count, width, share=share: heavy_runs(count, width, share)
        yield (
            f"runs of {share} widths, falling",
            lambda count, width, share=share: -heavy_runs(count, width, share),
        )


@pytest.mark.parametrize("partitions", [1, 3, 50, 500])
@pytest.mark.parametrize(
    "stream", [stream for _, stream in hostile_streams()], ids=[n for n, _ in hostile_streams()]
)
def test_twice_as_many_entries_as_partitions_suffice(structure, stream, partitions):
    count = 10_000
    keys = stream(count, int(np.ceil(SIGMA * count / partitions))).astype(np.int32)
    window = filled(structure, keys, partitions, batch=97)
    assert len(window) == count
    assert [slot for _, slot in found(window, [keys.min()], [keys.max()])] == list(range(count))


@given(
    runs=st.lists(st.tuples(st.integers(-8, 8), st.integers(1, 40)), min_size=1, max_size=60),
    partitions=st.integers(1, 40),
)
def test_twice_as_many_entries_suffice_for_any_runs(structure, runs, partitions):
    keys = np.concatenate([np.full(length, key, np.int32) for key, length in runs])
    filled(structure, keys, min(partitions, len(keys)), batch=5)
