"""The NumPy forms of kernels give the same results as the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.kernels import gather, numpy_forms, stamping
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.scan import check
from streamjoin.kernels.scan.bands import (
    CURSOR_BUDGET,
    MAX_CHUNK,
    MIN_SCAN_ROOM,
    BandShape,
    Clauses,
    _chunk,
    _numpy_scan,
    band_scan,
)
from streamjoin.kernels.scan.vector import lanes
from streamjoin.kernels.sorted import intervals, runs
from streamjoin.kernels.values import tiles

INT64 = np.iinfo(np.int64)
times = st.lists(st.integers(INT64.min, INT64.max) | st.integers(-5, 5), min_size=1, max_size=9).map(
    lambda values: np.array(values, np.int64)
)
sizes = st.sampled_from([0, 1, -1, 7, INT64.max, INT64.min]) | st.integers(INT64.min, INT64.max)


@given(times)
def test_questions_about_times(ts: np.ndarray) -> None:
    assert numpy_forms.any_fall(ts) == stamping.falls(ts)
    assert numpy_forms.least_of(ts) == stamping.least(ts)


@given(times, sizes)
def test_shifted_times(ts: np.ndarray, size: int) -> None:
    out, expected = np.empty_like(ts), np.empty_like(ts)
    numpy_forms.saturated(ts, size, out)
    stamping.shifted(ts, size, expected)
    assert out.tolist() == expected.tolist()


@given(times, st.integers(0, INT64.max), st.integers(0, INT64.max))
def test_ends_of_a_reach(ts: np.ndarray, back: int, ahead: int) -> None:
    found, expected = np.empty((2, len(ts)), np.int64), np.empty((2, len(ts)), np.int64)
    numpy_forms.saturated_ends(ts, back, ahead, *found)
    stamping.reach_ends(ts, back, ahead, *expected)
    assert found.tolist() == expected.tolist()


@given(times, times, st.integers(0, INT64.max), st.integers(0, INT64.max))
def test_places_around_times(ts: np.ndarray, sought: np.ndarray, back: int, ahead: int) -> None:
    ts, sought = np.sort(ts), np.sort(sought)
    found, expected = np.empty((2, len(sought)), np.int64), np.empty((2, len(sought)), np.int64)
    numpy_forms.places_around(ts, sought, back, ahead, *found)
    stamping.reach_places(ts, sought, back, ahead, *expected)
    assert found.tolist() == expected.tolist()
    assert numpy_forms.sum_of_lengths(*found) == stamping.total_length(*expected)


@given(times, times, st.booleans(), st.integers(0, 3))
def test_places_in_a_sorted_array(values: np.ndarray, sought: np.ndarray, after: bool, at: int) -> None:
    values, sought = np.sort(values), np.sort(sought)
    at = min(at, len(values))
    out, expected = np.empty_like(sought), np.empty_like(sought)
    numpy_forms.places_sought(values, sought, after, at, out)
    runs.rising_places(values, sought, after, at, expected)
    assert out.tolist() == expected.tolist()


@given(st.lists(st.integers(3, 6), max_size=4), st.lists(st.integers(0, 1), min_size=4, max_size=4))
def test_whether_ids_continue(ids: list[int], sources: list[int]) -> None:
    given_ids, given_sources = np.array(ids, np.int64), np.array(sources[: len(ids)], np.int32)
    assert numpy_forms.continues(given_ids, given_sources, 3, 0) == check.goes_on(
        given_ids, given_sources, 3, 0
    )


@given(st.data())
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_gathered_values(dtype: Any, data: st.DataObject) -> None:
    held = [np.arange(start, start + 5).astype(dtype) for start in (0, 50)]
    addresses = np.array([each.ctypes.data for each in held])
    count = data.draw(st.integers(0, 6))
    buffers, places = (
        np.array(data.draw(st.lists(st.integers(0, most), min_size=count, max_size=count)), np.int64)
        for most in (1, 4)
    )
    out = np.empty(count, dtype)
    numpy_forms.gathered_items(addresses, buffers, places, out)
    assert out.tolist() == [50 * buffer + place for buffer, place in zip(buffers, places, strict=True)]
    origin, numbers = addresses[0] - 3 * out.itemsize, 3 + places
    numpy_forms.gathered_numbered(origin, numbers, out)
    assert out.tolist() == places.tolist()
    gather.gather_numbered(origin, numbers, out)
    assert out.tolist() == places.tolist()
    widths, offsets = np.array([out.itemsize] * 2), np.array([0, 64])
    found, expected = np.zeros((2, 128), np.uint8)
    args = np.array([addresses, addresses]), buffers, places, widths, offsets
    numpy_forms.gathered_columns(*args, found)
    gather.gather_columns(*args, expected)
    assert found.tolist() == expected.tolist()
    rows = (addresses, places, addresses, places[::-1].copy(), np.array([0, 1]), 1, widths, offsets, 1)
    numpy_forms.gathered_rows(*rows, found)
    gather.gather_rows(*rows, expected)
    assert found.tolist() == expected.tolist()


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
    st.lists(st.integers(2, 8), max_size=6, unique=True),
    st.booleans(),
)
def test_states_of_rows(held: list[int], numbers: list[int], zeros_only: bool) -> None:
    rows = np.array([number for number in numbers if number < 3 + len(held)], np.int64)
    states = np.array([held, held], np.uint8)
    if 2 in rows:  # it is before the first
        assert numpy_forms.marked(states[0], rows, 3, 1) == stamping.mark_states(states[1], rows, 3, 1) == -1
        return
    found, expected = np.zeros((2, len(rows)), np.int64)
    counts = (
        numpy_forms.ended(states[0], rows, 3, 2, zeros_only, found),
        stamping.end_states(states[1], rows, 3, 2, zeros_only, expected),
    )
    assert counts == (len([row for row in rows if held[row - 3] == 0]),) * 2
    assert found.tolist() == expected.tolist() and states[0].tolist() == states[1].tolist()
    greatest = [
        form(each, rows, 3, 1)
        for form, each in zip((numpy_forms.marked, stamping.mark_states), states, strict=True)
    ]
    assert greatest[0] == greatest[1] and states[0].tolist() == states[1].tolist()


@given(st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=5)), max_size=6))
def test_texts(pairs: list[tuple[bytes, bytes]]) -> None:
    texts = [text for pair in pairs for text in pair]
    data = np.frombuffer(b"x" + b"".join(texts), np.uint8)
    length = np.array([len(text) for text in texts], np.int64)
    start = 1 + np.cumsum(length) - length
    found, expected = np.empty((2, len(texts)), np.int64)
    numpy_forms.hashed_texts(data, start, length, found)
    tiles.text_hash(data, start, length, expected)
    assert found.tolist() == expected.tolist()
    args = data, start[::2].copy(), length[::2].copy(), start[1::2].copy(), length[1::2].copy()
    numpy_forms.equal_texts(*args, found[: len(pairs)])
    tiles.text_equal(*args, expected[: len(pairs)])
    assert found[: len(pairs)].tolist() == expected[: len(pairs)].tolist() == [a == b for a, b in pairs]


bounds = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=3)


@given(st.lists(bounds, min_size=1, max_size=4))
def test_disjoint_intervals(drawn: list[list[tuple[int, int]]]) -> None:
    ends = np.array(drawn, np.int64)
    found, expected = (ends[..., 0].copy(), ends[..., 1].copy()), (ends[..., 0].copy(), ends[..., 1].copy())
    intervals._make_disjoint(*found, np.int64(1), np.int64(0))
    intervals.make_disjoint(*expected, np.int64(1), np.int64(0))
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]


SHAPES: list[Clauses] = [
    (),
    ((BandShape(0, "i4"),),),
    ((BandShape(0, "i4"),), (BandShape(1, "f4", hi=False),)),
    ((BandShape(0, "i4"), BandShape(0, "i4")), (BandShape(1, "f4"),)),
]


@pytest.mark.parametrize("clauses", SHAPES, ids=len)
@given(st.integers(0, 2**32 - 1), st.lists(st.booleans(), min_size=1, max_size=6))
def test_a_scan_changes_between_both_forms_at_any_return(
    clauses: Clauses, seed: int, turns: list[bool]
) -> None:
    rng = np.random.default_rng(seed)
    n, probes = 3 * MAX_CHUNK, 9
    keys = rng.integers(0, 9, n, dtype=np.int32), rng.random(n, np.float32)
    keys[1][rng.random(n) < 0.1] = np.nan
    bands = [band for clause in clauses for band in clause]
    low = [rng.integers(0, 9, probes).astype(band.dtype) / np.array(9 if band.key else 1).astype(band.dtype)
           for band in bands]  # fmt: skip
    lows = tuple(each.astype(band.dtype) for each, band in zip(low, bands, strict=True))
    highs = tuple(
        (each + (0.3 if band.key else 1)).astype(band.dtype) for each, band in zip(lows, bands, strict=True)
    )
    start = np.sort(rng.integers(0, n, probes))
    stop = np.maximum(np.sort(rng.integers(0, n + 1, probes)), start)
    forms = band_scan(clauses), _numpy_scan(clauses, _chunk(clauses, lanes()))

    def found(turns: list[bool]) -> list[tuple[int, int]]:
        cursor, pairs, number = np.zeros(CURSOR_SIZE, np.int64), [], 0
        while cursor[0] != DONE:
            out = np.empty((2, MIN_SCAN_ROOM), np.int32)
            cursor[CURSOR_BUDGET] = 2  # one unit a call
            scan = forms[turns[number % len(turns)]]
            count = scan(start, stop, keys, lows, highs, cursor, out[0], out[1], 0)
            pairs += [tuple(pair) for pair in out[:, :count].T.tolist()]
            number += 1
        return sorted(pairs)

    assert found(turns) == found([False])
