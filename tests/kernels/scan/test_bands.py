"""The band scan against the definition in NumPy, for every shape, lane count and range."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan import vector
from streamjoin.kernels.scan.bands import (
    CURSOR_BUDGET,
    MAX_CHUNK,
    MIN_SCAN_ROOM,
    BandShape,
    Clauses,
    band_scan,
)

Arrays = tuple[np.ndarray, ...]
Range = tuple[np.ndarray, np.ndarray]

BAND_2D: Clauses = ((BandShape(0, "i4"),), (BandShape(1, "f4"),))
SHARED_OR: Clauses = ((BandShape(0, "f8"), BandShape(1, "i8", hi=False)), (BandShape(1, "i8"),))
SHAPES: dict[str, Clauses] = {
    "two bands": BAND_2D,
    "OR, shared key": SHARED_OR,
    "64-bit bands": ((BandShape(0, "i8"),), (BandShape(1, "f8"),)),
    "one-sided": (
        (BandShape(0, "f4", hi=False),),
        (BandShape(0, "f4", lo=False),),
        (BandShape(1, "i4", lo=False),),
    ),
    "not equal, validity": (
        (BandShape(0, "f4", lo=False), BandShape(0, "f4", hi=False)),
        (BandShape(1, "i1"),),
        (BandShape(2, "i2", hi=False), BandShape(3, "f8"), BandShape(3, "f8")),
    ),
    "all pairs": (),
}
EXTREMES: dict[str, list[float]] = {
    "i1": [-128, -127, 0, 1, 126, 127],
    "i2": [-(2**15), -1, 0, 2**15 - 1],
    "i4": [-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1],
    "i8": [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1],
    "f4": [-np.inf, -3.4e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.5, 3.4e38, np.inf, np.nan, -np.nan],
    "f8": [-np.inf, -1.7e308, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, 1.7e308, np.inf, np.nan, -np.nan],
}


def bands_of(clauses: Clauses) -> list[BandShape]:
    return [band for clause in clauses for band in clause]


@dataclass(frozen=True)
class Work:
    """What a kernel is asked: a window of `size` positions, and probes with ranges and bounds."""

    size: int
    start: np.ndarray
    stop: np.ndarray
    keys: Arrays
    lows: Arrays
    highs: Arrays


def brute_force(clauses: Clauses, work: Work) -> list[tuple[int, int]]:
    """The definition: a matrix of all probes and positions."""
    positions = np.arange(work.size)
    matches = (work.start[:, None] <= positions) & (positions < work.stop[:, None])
    numbers = iter(range(len(bands_of(clauses))))
    for clause in clauses:
        any_band = np.zeros_like(matches)
        for band, b in [(band, next(numbers)) for band in clause]:
            low = work.keys[band.key] >= work.lows[b][:, None] if band.lo else True
            high = work.keys[band.key] <= work.highs[b][:, None] if band.hi else True
            any_band |= low & high
        matches &= any_band
    return [(int(probe), int(pos)) for probe, pos in np.argwhere(matches)]


def run(clauses: Clauses, work: Work, lanes: int | None = None) -> Iterator[list[tuple[int, int]]]:
    """The pairs of each call, with a buffer as small as is allowed."""
    scan, cursor = band_scan(clauses, lanes), np.zeros(CURSOR_SIZE, np.int64)
    out_probe, out_pos = np.empty(MIN_SCAN_ROOM, np.int32), np.empty(MIN_SCAN_ROOM, np.int32)
    while cursor[0] != DONE:
        count = scan(work.start, work.stop, work.keys, work.lows, work.highs, cursor, out_probe, out_pos, 0)
        yield list(zip(out_probe[:count].tolist(), out_pos[:count].tolist(), strict=True))


def check(clauses: Clauses, work: Work, lanes: int | None = None) -> int:
    """Compare with the definition; the number of pairs."""
    got = [pair for call in run(clauses, work, lanes) for pair in call]
    assert sorted(got) == brute_force(clauses, work)
    return len(got)


def random_work(
    clauses: Clauses, size: int, probes: int, kind: str, random: np.random.Generator, extreme: bool = False
) -> Work:
    """Keys and bounds of -50..50, or of extreme values; some bands are empty."""

    def numbers(dtype: str, count: int) -> np.ndarray:
        if extreme:
            return random.choice(np.array(EXTREMES[dtype], dtype), count)
        return random.integers(-50, 51, count).astype(dtype)

    dtypes = {band.key: band.dtype for band in bands_of(clauses)}
    keys = tuple(numbers(dtypes[key], size) for key in sorted(dtypes))
    lows = tuple(numbers(band.dtype, probes if band.lo else 0) for band in bands_of(clauses))
    highs = tuple(numbers(band.dtype, probes if band.hi else 0) for band in bands_of(clauses))
    return Work(size, *random_ranges(kind, size, probes, random), keys, lows, highs)


def random_ranges(kind: str, size: int, probes: int, random: np.random.Generator) -> Range:
    start = np.sort(random.integers(0, size + 1, probes))
    if kind == "whole":
        return whole_window(size, probes)
    if kind == "short":
        return start, np.minimum(start + 100, size)
    if kind == "staggered":
        return np.minimum(np.arange(probes), size), np.maximum(size - probes + np.arange(probes), 0)
    return start, np.sort(random.integers(0, size + 1, probes))


def whole_window(size: int, probes: int) -> Range:
    return np.zeros(probes, np.int64), np.full(probes, size)


def test_four_positions_by_eye():
    x, y = np.array([1, 5, 9, 5], np.int32), np.array([0.5, 1.5, 2.5, 9.5], np.float32)
    lows = np.array([4, 0], np.int32), np.array([1.0, 0.5], np.float32)
    highs = np.array([6, 9], np.int32), np.array([9.5, 2.5], np.float32)
    work = Work(4, np.array([0, 0]), np.array([4, 3]), (x, y), lows, highs)
    pairs = [pair for call in run(BAND_2D, work) for pair in call]
    assert sorted(pairs) == [(0, 1), (0, 3), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("clauses", [BAND_2D, SHARED_OR], ids=["two bands", "OR, shared key"])
def test_all_lane_counts_agree_with_the_definition(clauses, lanes):
    random = np.random.default_rng(lanes)
    found = 0
    for size, probes in [(0, 3), (1, 1), (15, 2), (17, 3), (64, 4), (1000, 7), (5000, 21)]:
        for kind in ["whole", "short", "staggered", "any"]:
            found += check(clauses, random_work(clauses, size, probes, kind, random), lanes)
    assert found > 1000


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 150), probes=st.integers(0, 11), extreme=st.booleans())
def test_every_shape_agrees_with_the_definition(shape, seed, size, probes, extreme):
    random = np.random.default_rng(seed)
    kind = random.choice(["whole", "short", "staggered", "any"])
    check(SHAPES[shape], random_work(SHAPES[shape], size, probes, kind, random, extreme))


@pytest.mark.parametrize("dtype", ["i4", "i8", "f4", "f8"])
def test_extreme_bounds_neither_wrap_nor_match_nan(dtype):
    clauses = BAND_2D if dtype in ("i4", "f4") else SHAPES["64-bit bands"]
    values = np.array(EXTREMES[dtype], dtype)
    key = 0 if dtype[0] == "i" else 1
    other = np.zeros(len(values), bands_of(clauses)[1 - key].dtype)
    low, high = (side.ravel() for side in np.meshgrid(values, values))
    zeros = np.zeros(len(low), other.dtype)

    def in_order(first: np.ndarray, second: np.ndarray) -> Arrays:
        return (first, second) if key == 0 else (second, first)

    ranges = whole_window(len(values), len(low))
    bounds = in_order(low, zeros), in_order(high, zeros)
    check(clauses, Work(len(values), *ranges, in_order(values, other), *bounds))


def test_code_for_cpus_without_unsigned_compare_or_compress_is_right(monkeypatch):
    monkeypatch.setattr(vector, "has_unsigned_compare", lambda: False)
    monkeypatch.setattr(vector, "has_compress", lambda: False)
    band_scan.cache_clear()
    random = np.random.default_rng(5)
    try:
        for extreme in (False, True):
            assert check(BAND_2D, random_work(BAND_2D, 3000, 14, "staggered", random, extreme)) > 100
    finally:
        band_scan.cache_clear()


@pytest.mark.parametrize("one_in", [1, 2, 10, 100])
def test_high_hit_rates_resume_without_loss(one_in):
    size, probes = 7000, 10
    x = (np.arange(size) % one_in).astype(np.int32)
    y = np.zeros(size, np.float32)
    zeros = np.zeros(probes, np.int32), np.zeros(probes, np.float32)
    work = Work(size, np.arange(probes), np.full(probes, size), (x, y), zeros, zeros)
    calls = list(run(BAND_2D, work))
    pairs = [pair for call in calls for pair in call]
    assert sorted(pairs) == brute_force(BAND_2D, work)
    assert len(calls) > len(pairs) // MIN_SCAN_ROOM
    chunks = [pos // MAX_CHUNK for _, pos in pairs]
    assert chunks == sorted(chunks)


@pytest.mark.parametrize("probes", [1, 4])
def test_ranges_that_begin_and_end_around_chunk_borders(probes):
    size = 2 * MAX_CHUNK + 2
    keys = np.zeros(size, np.int32), np.zeros(size, np.float32)
    zeros = np.zeros(probes, np.int32), np.zeros(probes, np.float32)
    borders = [border + step for border in (1, MAX_CHUNK, 2 * MAX_CHUNK) for step in (-1, 0, 1)]
    for start, stop in itertools.product(borders, borders):
        work = Work(size, np.full(probes, start), np.full(probes, stop), keys, zeros, zeros)
        pairs = [pair for call in run(BAND_2D, work) for pair in call]
        assert sorted(pairs) == list(itertools.product(range(probes), range(start, stop)))


def test_a_call_does_no_more_units_of_work_than_it_may():
    size, probes = 3 * MAX_CHUNK, 8
    random = np.random.default_rng(5)
    keys = random.integers(-50, 51, size, dtype=np.int32), random.integers(-50, 51, size).astype(np.float32)
    lows, highs = ((np.full(probes, bound, np.int32), np.full(probes, bound, np.float32)) for bound in (0, 1))
    work = Work(size, *whole_window(size, probes), keys, lows, highs)
    scan, cursor, pairs, calls = band_scan(BAND_2D), np.zeros(CURSOR_SIZE, np.int64), PairBuffer(), 0
    while cursor[0] != DONE:
        pairs.reserve(MIN_SCAN_ROOM)
        cursor[CURSOR_BUDGET] = 1 + 1
        pairs.count = scan(
            work.start,
            work.stop,
            work.keys,
            work.lows,
            work.highs,
            cursor,
            pairs.probe,
            pairs.pos,
            pairs.count,
        )
        calls += 1
    probe, pos = pairs.take()
    assert sorted(zip(probe.tolist(), pos.tolist(), strict=True)) == brute_force(BAND_2D, work)
    assert calls == 3 * 2  # chunks, and groups of four probes


def test_output_is_appended_and_nothing_beyond_the_room_is_touched():
    size, probes = 3000, 5
    whole = np.full((2, MIN_SCAN_ROOM + 100), -7, np.int32)
    whole[:, :50] = 42
    out_probe, out_pos = whole[0, : MIN_SCAN_ROOM + 50], whole[1, : MIN_SCAN_ROOM + 50]
    (start, stop), cursor = whole_window(size, probes), np.zeros(CURSOR_SIZE, np.int64)
    count = band_scan(())(start, stop, (), (), (), cursor, out_probe, out_pos, 50)
    assert 50 < count <= MIN_SCAN_ROOM + 50 and cursor[0] != DONE
    assert (whole[:, :50] == 42).all() and (whole[:, MIN_SCAN_ROOM + 50 :] == -7).all()
    before = cursor.copy()
    assert band_scan(())(start, stop, (), (), (), cursor, out_probe, out_pos, count) == count
    assert (cursor == before).all()


def test_a_pair_buffer_that_grows_takes_everything():
    size, probes, buffer = 5000, 6, PairBuffer(room=10)
    (start, stop), cursor = whole_window(size, probes), np.zeros(CURSOR_SIZE, np.int64)
    while cursor[0] != DONE:
        buffer.reserve(MIN_SCAN_ROOM)
        buffer.count = band_scan(())(start, stop, (), (), (), cursor, buffer.probe, buffer.pos, buffer.count)
    probe, pos = buffer.take()
    assert len(probe) == size * probes and buffer.count == 0
    assert len(np.unique(probe.astype(np.int64) * size + pos)) == size * probes


GUARDED = """
import ctypes, mmap
import numpy as np
from streamjoin.kernels.cursor import CURSOR_SIZE
from streamjoin.kernels.scan.bands import MIN_SCAN_ROOM, BandShape, band_scan

page = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
def guarded(size, dtype):
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert libc.mprotect(ctypes.c_void_p(address + page), page, 0) == 0
    return memory, np.frombuffer(memory, dtype, size, page - size * np.dtype(dtype).itemsize)

scan = band_scan(((BandShape(0, "i4"),), (BandShape(1, "f4"),)))
out = np.empty(MIN_SCAN_ROOM, np.int32), np.empty(MIN_SCAN_ROOM, np.int32)
for size in (1, 3, 5, 16, 17, 31, 63, 65, 100):
    (m0, x), (m1, y) = guarded(size, "i4"), guarded(size, "f4")
    for probes in (1, 4):
        bounds = np.zeros(probes, np.int32), np.zeros(probes, np.float32)
        start, stop, cursor = np.zeros(probes, np.int64), np.full(probes, size), np.zeros(CURSOR_SIZE, np.int64)
        assert scan(start, stop, (x, y), bounds, bounds, cursor, *out, 0) == size * probes
print("read nothing beyond")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
@pytest.mark.parametrize("cpu", ["host", "generic"])
def test_keys_at_the_end_of_a_page_are_not_overread(cpu):
    environment = {**os.environ, **({"NUMBA_CPU_NAME": cpu} if cpu != "host" else {})}
    done = subprocess.run([sys.executable, "-c", GUARDED], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "read nothing beyond", done.stderr


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BandShape(0, "u4"), "not 'u4'"),
        (lambda: BandShape(0, "i4", lo=False, hi=False), "lower or an upper"),
        (lambda: BandShape(-1, "i4"), "not -1"),
        (lambda: band_scan(BAND_2D, lanes=5), "not 5"),
        (lambda: band_scan(((BandShape(0, "i4"),), ())), "clause 1 has none"),
        (lambda: band_scan(((BandShape(0, "i4"), BandShape(0, "f4")),)), "i4 in one band and f4"),
    ],
)
def test_shapes_without_a_meaning_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
