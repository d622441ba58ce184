"""BI-Sort against the definition in NumPy, and what must hold inside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamjoin.index.structures.bisort as bisort
from streamjoin.index.structures.bisort import BISortSubwindow, IndexRecords, Merging, sort_batch
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.sorted import probe as sorted_probe
from streamjoin.kernels.sorted.runs import INDEX_FANOUT, SHORT_BATCH, index_size
from streamjoin.semantics.errors import InputError
from streamjoin.topologies.runtime.team import ThreadTeam

EXTREMES: dict[str, list[float]] = {
    "int32": [-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1],
    "int64": [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1],
    "float32": [-np.inf, -3.4e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.5, 3.4e38, np.inf, np.nan],
    "float64": [-np.inf, -1.7e308, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, 1.7e308, np.inf, np.nan],
}
Pairs = list[tuple[int, int]]


def numbers(random: np.random.Generator, dtype: str, count: int, spread: int) -> np.ndarray:
    """Keys or bounds: some of the type's extremes, others around zero with many duplicates if `spread` is small."""
    values = random.integers(-spread, spread + 1, count).astype(dtype)
    extreme = random.random(count) < 0.1
    values[extreme] = random.choice(np.array(EXTREMES[dtype], dtype), extreme.sum())
    return values


def filled(keys: np.ndarray, cuts: Sequence[int], capacity: int | None = None) -> BISortSubwindow:
    """A subwindow with `keys` at slots 0, 1, ..., inserted in batches that end at `cuts`."""
    window = BISortSubwindow(capacity or max(len(keys), 1), keys.dtype, None)
    slots = np.arange(len(keys), dtype=np.int32)
    for begin, end in zip([0, *cuts], [*cuts, len(keys)], strict=True):
        window.insert(keys[begin:end], slots[begin:end])
    return window


def found(
    window: BISortSubwindow,
    lows: np.ndarray,
    highs: np.ndarray,
    start: np.ndarray | None = None,
    stop: np.ndarray | None = None,
    room: int = 16384,
    drain: bool = False,
) -> Pairs:
    """What a probe gives, sorted; with `drain` the buffer is emptied after each stretch."""
    start = np.zeros(len(lows), np.int64) if start is None else start
    stop = np.full(len(lows), window.capacity, np.int64) if stop is None else stop
    pairs = PairBuffer(room)
    result: Pairs = []
    for before in window.probe(lows, highs, start, stop, pairs):
        fresh = slice(before, pairs.count)
        result += zip(pairs.probe[fresh].tolist(), pairs.pos[fresh].tolist(), strict=True)
        if drain:
            pairs.count = 0
    return sorted(result)


def defined(
    keys: np.ndarray, lows: np.ndarray, highs: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> Pairs:
    slots = np.arange(len(keys))
    matches = (lows[:, None] <= keys) & (keys <= highs[:, None])
    matches &= (start[:, None] <= slots) & (slots < stop[:, None])
    return [(int(probe), int(slot)) for probe, slot in np.argwhere(matches)]


def assert_sound(window: BISortSubwindow, keys: np.ndarray) -> None:
    """Runs sorted, their slots those of all keys but NaN, the buffer within its bound, the index right."""
    runs = window._main, window._buffer
    slots = np.concatenate([run.slots[: run.count] for run in runs])
    assert sorted(slots.tolist()) == np.flatnonzero(keys == keys).tolist()
    assert window._buffer.count <= window.most_buffered
    for run in runs:
        held = run.keys[: run.count]
        assert (held[:-1] <= held[1:]).all()
        assert (held == keys[run.slots[: run.count]]).all()
        if run.count > INDEX_FANOUT:
            level = -(-run.count // INDEX_FANOUT)
            assert (
                run.index[:level] == held[np.minimum(np.arange(1, level + 1) * INDEX_FANOUT, run.count) - 1]
            ).all()


def test_four_tuples_by_eye():
    window = filled(np.array([30, 10, 20, 10], np.int32), [])
    assert len(window) == 4
    assert found(window, np.array([10, 15, 31], np.int32), np.array([20, 30, 99], np.int32)) == [
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 0),
        (1, 2),
    ]


def test_start_and_stop_bound_the_slots():
    window = filled(np.zeros(5, np.int64), [2])
    zero = np.zeros(3, np.int64)
    start, stop = np.array([1, 0, 4]), np.array([3, 0, 9])
    assert found(window, zero, zero, start, stop) == [(0, 1), (0, 2), (2, 4)]


def test_an_empty_interval_matches_nothing():
    window = filled(np.array([1.0, np.inf, -np.inf]), [])
    nan, inf = np.nan, np.inf
    assert found(window, np.array([2.0, nan, 0.0, nan]), np.array([1.0, inf, nan, nan])) == []
    assert found(window, np.array([-inf]), np.array([inf])) == [(0, 0), (0, 1), (0, 2)]


def test_zeros_are_equal_and_nan_keys_match_nothing():
    window = filled(np.array([-0.0, 0.0, np.nan], np.float32), [1])
    assert len(window) == 3
    for zero in (-0.0, 0.0):
        bound = np.array([zero], np.float32)
        assert found(window, bound, bound) == [(0, 0), (0, 1)]


def expanded(records: IndexRecords) -> Pairs:
    probes, slots = records.expand()
    return sorted(zip(probes.tolist(), slots.tolist(), strict=True))


def test_records_are_places_of_the_main_array():
    window = filled(np.array([30, 10, 20, 10], np.int32), [3])
    records = window.probe_records(np.array([10, 25, 99], np.int32), np.array([20, 35, 9], np.int32))
    assert (records.firsts[:2].tolist(), records.lasts[:2].tolist()) == ([0, 3], [3, 4])
    assert window.sorted_keys.tolist() == [10, 10, 20, 30]
    assert window.sorted_slots.tolist() == [1, 3, 2, 0]
    assert expanded(records) == [(0, 1), (0, 2), (0, 3), (1, 0)]


def test_several_bands_of_a_probe_are_several_records():
    window = filled(np.array([30, 10, 20, 10], np.int32), [])
    asking = np.array([7, 7, 2])
    records = window.probe_records(
        np.array([10, 25, 20], np.int32), np.array([12, 35, 20], np.int32), asking=asking
    )
    assert len(records) == 3
    assert expanded(records) == [(2, 2), (7, 0), (7, 1), (7, 3)]


def test_unequal_is_one_labelled_record():
    window = filled(np.array([3.0, 1.0, np.nan, 2.0, 1.0, -np.inf]), [2])
    values = np.array([1.0, 9.0, np.nan])
    records = window.probe_records(values, values, outside=True)
    assert (len(records), records.outside) == (3, True)
    everything = [(1, slot) for slot in (0, 1, 3, 4, 5)]
    assert expanded(records) == [(0, 0), (0, 3), (0, 5), *everything]


def test_the_cost_of_records_does_not_grow_with_what_they_cover():
    """Four levels of nodes lead to 40,000 keys; each bound is searched through them once."""
    random = np.random.default_rng(6)
    window = filled(random.permutation(40_000).astype(np.int32), [])
    window.seal()
    lows = random.integers(0, 40_000, 160).astype(np.int32)
    covered, looked_at = [], []
    for width in (0, 15, 16, 1000, 40_000):
        for outside in (False, True):
            records = window.probe_records(lows, lows + np.int32(width), outside=outside)
            assert len(records) == len(lows)
            covered.append(len(records.expand()[0]))
            looked_at.append(records.nodes)
    assert max(covered) > 10_000 * min(covered)
    assert set(looked_at) == {2 * 4 * len(lows)}


def test_an_empty_subwindow_gives_nothing():
    window = BISortSubwindow(8, np.dtype(np.int32))
    low, high = np.array([-(2**31)], np.int32), np.array([2**31 - 1], np.int32)
    window.insert(low[:0], low[:0])
    assert found(window, low, high) == []
    assert expanded(window.probe_records(low, high)) == []
    assert expanded(window.probe_records(low, high, outside=True)) == []
    window.seal()
    assert found(window, low, high) == []


@pytest.mark.parametrize("dtype", EXTREMES)
@given(data=st.data())
def test_pairs_and_records_are_those_of_the_definition(dtype, data):
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    count, probes = data.draw(st.integers(0, 1500)), data.draw(st.integers(0, 40))
    spread = data.draw(st.sampled_from([1, 20, 1000, 100_000]))
    keys = numbers(random, dtype, count, spread)
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=12)))
    window = filled(keys, cuts, count + data.draw(st.integers(1, 5000)))
    lows = numbers(random, dtype, probes, spread)
    highs = np.where(
        random.random(probes) < 0.7,
        lows + np.array(spread // 5, dtype),
        numbers(random, dtype, probes, spread),
    )
    highs = highs.astype(dtype)
    everything = data.draw(st.booleans())
    start = np.zeros(probes, np.int64) if everything else random.integers(0, count + 1, probes)
    stop = np.full(probes, count) if everything else random.integers(0, count + 2, probes)
    expected = defined(keys, lows, highs, start, stop)
    room, drain = data.draw(st.sampled_from([1, 20, 100_000])), data.draw(st.booleans())
    assert found(window, lows, highs, start, stop, room, drain) == expected
    assert_sound(window, keys)
    if data.draw(st.booleans()):
        window.seal()
        assert found(window, lows, highs, start, stop, room, drain) == expected
    whole = np.zeros(probes), np.full(probes, count)
    assert expanded(window.probe_records(lows, highs)) == defined(keys, lows, highs, *whole)
    unequal = np.argwhere((keys < lows[:, None]) | (keys > lows[:, None]))
    assert expanded(window.probe_records(lows, lows, outside=True)) == [(i, s) for i, s in unequal.tolist()]
    assert_sound(window, keys)


@pytest.mark.parametrize("dtype", EXTREMES)
@pytest.mark.parametrize("pattern", ["random", "rising", "falling", "one value"])
@pytest.mark.parametrize("batch", [1, 7, SHORT_BATCH, SHORT_BATCH + 1, 1500, 20_000])
def test_every_batch_size_and_key_pattern_keeps_the_arrays_sorted(dtype, pattern, batch):
    random = np.random.default_rng(batch)
    keys = numbers(random, dtype, 600 if batch == 1 else 40_000, 30_000)
    if pattern == "one value":
        keys[:] = 7
    elif pattern != "random":
        keys = np.sort(keys)[:: 1 if pattern == "rising" else -1].copy()
    window = filled(keys, range(batch, len(keys), batch))
    assert_sound(window, keys)
    lows = numbers(random, dtype, 50, 30_000)
    highs = (lows + np.array(3, dtype)).astype(dtype)
    whole = np.zeros(50, np.int64), np.full(50, len(keys))
    assert found(window, lows, highs, *whole) == defined(keys, lows, highs, *whole)


@pytest.mark.parametrize("follow_share", [0, 10**9], ids=["index", "rebounding"])
@pytest.mark.parametrize("dtype", EXTREMES)
def test_sorted_probes_find_the_same(dtype, follow_share, monkeypatch):
    monkeypatch.setattr(bisort, "SORT_BYTES", 0)
    monkeypatch.setattr(bisort, "FOLLOW_SHARE", follow_share)
    random = np.random.default_rng(5)
    for count, probes, spread in ((5, 3, 3), (1500, 100, 50), (1500, 600, 10_000), (40, 900, 10)):
        keys = numbers(random, dtype, count, spread)
        window = filled(keys, [count // 2])
        lows, highs = numbers(random, dtype, probes, spread), numbers(random, dtype, probes, spread)
        whole = np.zeros(probes, np.int64), np.full(probes, count)
        partial = random.integers(0, count, probes), random.integers(0, count + 1, probes)
        for bounds in ((lows, highs), (np.sort(lows[lows == lows]), highs[lows == lows]), (highs + 1, highs)):
            for start, stop in (whole, partial):
                size = len(bounds[0])
                work = (bounds[0], bounds[1], start[:size], stop[:size])
                assert found(window, *work, 50) == defined(keys, *work)


def test_filtering_without_packed_stores_gives_the_same():
    """CPUs without AVX-512 take another way through partial ranges."""
    code = (
        "import numpy as np; from test_bisort import filled, found, defined, sorted_probe\n"
        "assert not sorted_probe.HAS_COMPRESS\n"
        "random = np.random.default_rng(3); keys = random.integers(0, 50, 500).astype(np.int32)\n"
        "lows = random.integers(0, 50, 40).astype(np.int32); highs = lows + np.int32(5)\n"
        "start, stop = random.integers(0, 500, 40), random.integers(0, 500, 40)\n"
        "expected = defined(keys, lows, highs, start, stop); assert expected\n"
        "assert found(filled(keys, [100]), lows, highs, start, stop, 30) == expected\n"
    )
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    path = os.pathsep.join([os.path.dirname(__file__), *(entry for entry in sys.path if entry)])
    environment = {**os.environ, **generic, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_thinned_stretches_are_not_repeated():
    window = filled(np.zeros(10_000, np.int32), [9_900])
    zero, pairs = np.zeros(3, np.int32), PairBuffer(1)
    seen: Pairs = []
    whole = np.zeros(3, np.int64), np.full(3, 10_000)
    for before in window.probe(zero, zero, *whole, pairs):
        fresh = slice(before, pairs.count)
        seen += zip(pairs.probe[fresh].tolist(), pairs.pos[fresh].tolist(), strict=True)
        pairs.keep(before, pairs.pos[fresh] == 5)
    assert len(pairs.probe) < 30_000
    assert sorted(pairs.pos[: pairs.count].tolist()) == [5, 5, 5]
    assert len(seen) == len(set(seen)) == 30_000


@pytest.mark.parametrize("dtype", EXTREMES)
def test_sorting_a_batch_is_stable(dtype):
    random = np.random.default_rng(8)
    keys = numbers(random, dtype, 5000, 40)
    keys = keys[keys == keys] + np.array(0, dtype)  # one zero
    slots = np.arange(len(keys), dtype=np.int32)
    sorted_keys, sorted_slots = sort_batch(keys, slots)
    order = np.argsort(keys, kind="stable")
    assert (sorted_keys == keys[order]).all() and (sorted_slots == order).all()


def test_the_buffer_grows_with_batch_and_main_array_within_its_bound():
    window = filled(np.arange(200_000, dtype=np.int32), [], 1 << 20)
    limits = [window.buffer_limit(batch) for batch in (1, 16, 1024, 1 << 19)]
    assert limits == sorted(limits)
    assert limits[0] == 1024 and limits[-1] == window.most_buffered
    for batch in (100, 1024, window.most_buffered, 3):
        begin = len(window)
        window.insert(np.zeros(batch, np.int32), np.arange(begin, begin + batch, dtype=np.int32))
        assert window._buffer.count <= window.most_buffered
    assert window._main.count + window._buffer.count == len(window)


def test_memory_is_that_of_the_capacity_and_sealing_gives_the_rest_back():
    capacity = 1 << 16
    window = BISortSubwindow(capacity, np.dtype(np.int32))
    tuples = capacity + window.most_buffered
    assert window.nbytes < 8 * tuples + 4 * (index_size(capacity) + index_size(window.most_buffered)) + 1024
    full = filled(np.arange(capacity, dtype=np.int32), [])
    before = full.nbytes
    full.seal()
    assert 8 * capacity <= full.nbytes < before
    window.insert(np.arange(100, dtype=np.int32), np.arange(100, dtype=np.int32))
    window.seal()
    assert window.nbytes < 8 * 100 + 1024
    assert_sound(window, np.arange(100, dtype=np.int32))


def test_what_does_not_fit_is_refused_and_changes_nothing():
    window = filled(np.arange(5, dtype=np.int32), [], 8)
    with pytest.raises(InputError, match="8 tuples that holds 5 cannot take 4 more"):
        window.insert(np.zeros(4, np.int32), np.arange(5, 9, dtype=np.int32))
    assert_sound(window, np.arange(5, dtype=np.int32))
    with pytest.raises(InputError, match="int16"):
        BISortSubwindow(8, np.dtype(np.int16))


def test_threads_may_probe_together():
    random = np.random.default_rng(12)
    keys, lows = (random.integers(0, 5000, size).astype(np.int32) for size in (20_000, 8_000))
    window, highs = filled(keys, [19_500]), lows + np.int32(2)
    parts = [slice(at, at + 1000) for at in range(0, len(lows), 1000)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda part: found(window, lows[part], highs[part], room=64), parts))
    assert together == [found(window, lows[part], highs[part]) for part in parts]


def test_stretches_are_as_long_as_the_room_allows():
    """A caller that drains must not be handed few pairs at a time."""
    window = filled(np.zeros(50_000, np.int32), [])
    zero, pairs = np.zeros(1, np.int32), PairBuffer(sorted_probe.MIN_RUN_ROOM)
    stretches = 0
    for _ in window.probe(zero, zero, np.zeros(1, np.int64), np.full(1, 50_000), pairs):
        stretches, pairs.count = stretches + 1, 0
    assert stretches == -(-50_000 // (sorted_probe.MIN_RUN_ROOM - INDEX_FANOUT))


@pytest.mark.parametrize("dtype", EXTREMES)
@pytest.mark.parametrize("sizes", [(0, 40), (40, 0), (1, 1), (100, 300), (1000, 17), (600, 600)])
@pytest.mark.parametrize("workers", [1, 3])
def test_merged_neighbours_are_as_one(dtype, sizes, workers):
    """Slots of the later one follow, whatever steps the merge takes and whichever thread takes them."""
    random = np.random.default_rng(sum(sizes))
    keys = numbers(random, dtype, sum(sizes), 50)
    parts = [filled(part, []) for part in (keys[: sizes[0]], keys[sizes[0] :])]
    for part in parts:
        part.seal()
    merging = Merging(parts[0], parts[1], sizes[0], shared_moves=7)
    team = ThreadTeam(workers)
    while merging.left:
        merging.advance(int(random.integers(1, 97)), team)
    team.close()
    whole = merging.finished()
    assert len(whole) == sum(sizes)
    assert_sound(whole, keys)
    lows = numbers(random, dtype, 50, 50)
    highs = (lows + lows.dtype.type(3)).astype(dtype)
    start, stop = random.integers(0, 200, 50), random.integers(100, 1400, 50)
    assert found(whole, lows, highs, start, stop) == defined(keys, lows, highs, start, stop)
