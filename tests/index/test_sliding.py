"""Columns that slide: what is live, what memory they keep, and when they are full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.index import protocol, sliding
from streamjoin.index.protocol import Tuples
from streamjoin.index.sliding import (
    SMALLEST,
    ArrivedTuples,
    RowColumns,
    SlidingColumns,
    SortedTuples,
    TupleColumns,
)

RANK = np.zeros(1, np.int32)


def tuples(ts: list[int], key: int = 0) -> Tuples:
    count = len(ts)
    stored = {"key0": np.full(count, key)}
    return Tuples(np.array(ts), np.arange(count), np.zeros(count, np.int32), stored, {}, nulls=False)


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), max_size=30))
def test_rows_come_at_the_end_and_leave_at_the_front(steps):
    columns, expected, next_row = SlidingColumns(), list[int](), 0
    columns.append({"row": np.empty(0, np.int64), "pair": np.empty((0, 2))})
    for added, dropped in steps:
        rows = np.arange(next_row, next_row + added)
        columns.append({"row": rows, "pair": np.stack([rows, -rows], axis=1)})
        expected, next_row = [*expected, *rows.tolist()], next_row + added
        dropped = min(dropped, len(expected))
        columns.drop(dropped)
        expected = expected[dropped:]
        assert columns["row"].tolist() == expected
        assert columns["pair"][:, 1].tolist() == [-row for row in expected]
        assert columns.nbytes <= 24 * max(SMALLEST, 8 * (len(expected) + added + dropped))


def test_dropped_rows_of_large_columns_give_their_pages_back(monkeypatch):
    """What is live stays as it is, and memory is that of the live rows and a page or two."""
    monkeypatch.setattr(sliding, "LARGE", 1 << 12)
    monkeypatch.setattr(sliding, "PIECE", 3_000)  # so that moves have several, of which the last is smaller
    columns = SlidingColumns()
    for begin in range(0, 200_000, 1_000):
        rows = np.arange(begin, begin + 1_000)
        columns.append({"row": rows, "half": rows.astype(np.float32)})
        if len(columns) > 20_000:
            columns.drop(1_000)
            columns.forget_dropped()
        live = np.arange(begin + 1_000 - len(columns), begin + 1_000)
        assert (columns["row"] == live).all() and (columns["half"] == live).all()
        assert columns.nbytes <= 12 * (max(SMALLEST, len(columns)) + 1_000)


def test_sorted_tuples_keep_the_total_order():
    held = SortedTuples("stored")
    held.insert(tuples([3, 5, 9], 1), RANK)
    held.insert(tuples([4, 5, 6], 2), RANK)
    assert held["ts"].tolist() == [3, 4, 5, 5, 6, 9]
    assert held["key0"].tolist() == [1, 2, 1, 2, 2, 1]
    assert held.between(1, 3).stored["key0"].tolist() == [2, 1]


def test_a_window_that_would_be_too_large_for_its_positions_says_so_and_keeps_what_it_has(monkeypatch):
    monkeypatch.setattr(TupleColumns, "MOST", 5)
    held = SortedTuples("stored")
    held.insert(tuples([1, 2, 3]), RANK)
    with pytest.raises(MemoryError, match="a window can hold 5 tuples; narrow it"):
        held.insert(tuples([4, 5, 6]), RANK)
    assert held["ts"].tolist() == [1, 2, 3]
    held.insert(tuples([0, 5]), RANK)
    assert held["ts"].tolist() == [0, 1, 2, 3, 5]


# ---- what follows from the position


@given(
    st.lists(
        st.tuples(
            st.integers(1, 5), st.integers(0, 6), st.sampled_from("ccccgs"), st.booleans(), st.booleans()
        ),
        max_size=30,
    )
)
def test_arrived_tuples_are_those_of_a_list(steps):
    """Ids that count on, jump or are shuffled; one source or two; keys some of which are NULL."""
    held, expected, next_id = ArrivedTuples(), list[tuple[int, int, bool]](), 7
    for count, dropped, kind, second, null in steps:
        next_id += 3 * (kind == "g")
        ids = np.arange(next_id, next_id + count)
        next_id += count
        ids = ids[::-1].copy() if kind == "s" else ids
        sources = np.full(count, 4, np.int32)
        sources[-1] += second
        ok = np.ones(count, np.bool_)
        ok[0] = not null
        held.add(Tuples(ids, ids, sources, {"key0": ids * 2, "key_ok": ok}, {}, nulls=null))
        expected += zip(ids.tolist(), sources.tolist(), ok.tolist(), strict=True)
        dropped = min(dropped, len(expected))
        held.drop(dropped)
        expected = expected[dropped:]
        columns = [held[name].tolist() for name in ("id", "source", "key_ok")]
        assert list(zip(*columns, strict=True)) == expected
        assert held.ids(np.arange(len(expected), dtype=np.int32)).tolist() == columns[0]
        assert held["ts"].tolist() == columns[0] and held["key0"].tolist() == [
            2 * each for each in columns[0]
        ]
        assert held.stored()["key_ok"].tolist() == columns[2] and set(held.stored()) == {"key0", "key_ok"}
        assert not expected or held.oldest_id() == min(columns[0])


def test_what_follows_from_the_position_takes_no_memory():
    held = ArrivedTuples()
    many = tuples(list(range(2_000_000)))
    many.stored["key_ok"] = np.ones(2_000_000, np.bool_)
    held.add(many)
    assert held.nbytes == 2_000_000 * 16  # time and key
    held.drop(1_999_999)
    assert held.ids(np.array([0], np.int32)).tolist() == [1_999_999]
    held.add(many)  # ids begin again
    assert held.ids(np.array([0, 1], np.int32)).tolist() == [1_999_999, 0] and held.oldest_id() == 0
    held.drop(len(held))
    held.add(many)
    assert held.nbytes == 2_000_000 * 16


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 6), st.sampled_from("cccccgsl"), st.booleans()),
        max_size=30,
    )
)
def test_arrived_tuples_read_what_rows_hold(steps):
    """Rows come in order and tuples do, or they jump, are shuffled, or come after rows that are held no more."""
    rows = RowColumns(("ts", "key0"))
    held, expected, next_id, lost = ArrivedTuples(rows), list[int](), 0, False
    for count, dropped, kind, released in steps:
        ids = np.arange(next_id, next_id + count)
        lost |= kind == "l"
        if not lost:
            rows.append({"ts": ids, "key0": ids * 2})
        next_id += count
        ids = ids[1:] if kind == "g" else ids[::-1].copy() if kind == "s" else ids
        if not len(ids):
            continue
        known = np.ones(len(ids), np.bool_)
        held.add(
            Tuples(ids, ids, np.zeros(len(ids), np.int32), {"key0": ids * 2, "key_ok": known}, {}, False)
        )
        expected += ids.tolist()
        dropped = min(dropped, len(expected))
        held.drop(dropped)
        expected = expected[dropped:]
        if released and not lost:
            rows.drop(min(expected, default=next_id) - rows.first)
        assert held["ts"].tolist() == held["id"].tolist() == expected
        assert held["key0"].tolist() == held.stored()["key0"].tolist() == [2 * each for each in expected]
        assert set(held.stored()) == {"key0", "key_ok"}


def test_what_rows_hold_takes_no_memory_in_a_window():
    many = tuples(list(range(2_000_000)))
    many.stored["key_ok"] = np.ones(2_000_000, np.bool_)
    rows = RowColumns(("ts", "key0"))
    held = ArrivedTuples(rows)
    rows.append({"ts": many.ts, "key0": many.stored["key0"]})
    held.add(many)
    assert held.nbytes == 0 and len(held) == 2_000_000
    held.add(many)  # ids begin again: from here on times and keys are the window's own
    assert held.nbytes == 2 * 2_000_000 * (16 + 8)
    assert held["ts"].tolist() == 2 * many.ts.tolist()


def test_rows_stay_where_somebody_reads_them(monkeypatch):
    """However the columns shrink, grow, and give memory back meanwhile."""
    monkeypatch.setattr(sliding, "LARGE", 1 << 12)
    rows = RowColumns(("ts",))
    rows.append({"ts": np.arange(20_000)})
    rows.readers += 1
    seen = rows["ts"][19_000:]
    rows.drop(19_000)
    for first in range(20_000, 100_000, 1_000):
        rows.append({"ts": np.arange(first, first + 1_000)})
        assert (seen == np.arange(19_000, 20_000)).all()
    rows.readers -= 1
    rows.drop(61_000)
    rows.append({"ts": np.arange(100_000, 200_000)})
    assert rows["ts"].tolist() == list(range(80_000, 200_000))


@given(st.lists(st.integers(0, 50), max_size=60), st.lists(st.integers(-5, 55), min_size=1, max_size=20))
def test_times_that_rise_are_found_where_numpy_finds_them(held, times):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "MANY", 2)
        ts, asked = np.sort(np.array(held, np.int64)), np.sort(np.array(times, np.int64))
        for side in ("left", "right"):
            assert protocol.places(ts, asked, side).tolist() == ts.searchsorted(asked, side).tolist()
        for strict, rows in ((False, 0), (True, 0), (True, 7)):
            low = None if rows else asked - 3
            start, stop = protocol.Reach(low, asked, rows, strict).positions(ts)
            reached = [int((ts < time if strict else ts <= time).sum()) for time in asked]
            before = [max(0, n - rows) for n in reached] if rows else [int((ts < t - 3).sum()) for t in asked]
            assert (start.tolist(), stop.tolist()) == (before, reached)
