"""Columns that slide: what is live, what memory they keep, and when they are full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.codegen.prepared import Stored
from streamjoin.index.sliding import (
    BORROWED,
    KEPT_ROWS,
    SMALLEST,
    ArrivedTuples,
    RowColumns,
    SlidingColumns,
    SortedTuples,
)
from streamjoin.index.tuples import FIRST_KEY, ID, SOURCE, TS, Tuples

RANK = np.zeros(1, np.int32)


def tuples(ts: list[int], key: int = 0) -> Tuples:
    count = len(ts)
    stored = Stored((np.full(count, key),), np.ones(count, np.bool_))
    return Tuples(np.array(ts), np.arange(count), np.zeros(count, np.int32), stored, nulls=False)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 20_000)), max_size=15))
def test_rows_come_at_the_end_and_leave_at_the_front(steps):
    columns, expected, next_row = SlidingColumns(), list[int](), 0
    columns.append([np.empty(0, np.int64), np.empty((0, 2))])
    for added, dropped in steps:
        rows = np.arange(next_row, next_row + added)
        columns.append([rows, np.stack([rows, -rows], axis=1)])
        expected, next_row = [*expected, *rows.tolist()], next_row + added
        dropped = min(dropped, len(expected))
        columns.drop(dropped)
        expected = expected[dropped:]
        assert columns[0].tolist() == expected
        assert columns[1][:, 1].tolist() == [-row for row in expected]
        assert columns.nbytes <= 24 * max(KEPT_ROWS, 8 * (len(expected) + added + dropped))


def test_dropped_rows_of_large_columns_give_their_pages_back():
    """What is live stays as it is, and memory is that of the live rows and a page or two."""
    # Moves have several pieces, of which the last is smaller.
    columns = SlidingColumns(large=1 << 12, moved_at_once=3_000)
    for begin in range(0, 200_000, 1_000):
        rows = np.arange(begin, begin + 1_000)
        columns.append([rows, rows.astype(np.float32)])
        if len(columns) > 20_000:
            columns.drop(1_000)
            columns.forget_dropped()
        live = np.arange(begin + 1_000 - len(columns), begin + 1_000)
        assert (columns[0] == live).all() and (columns[1] == live).all()
        assert columns.nbytes <= 12 * (max(SMALLEST, len(columns)) + 1_000)


def test_sorted_tuples_keep_the_total_order():
    held = SortedTuples()
    held.insert(tuples([3, 5, 9], 1), RANK)
    held.insert(tuples([4, 5, 6], 2), RANK)
    assert held.ts.tolist() == [3, 4, 5, 5, 6, 9]
    assert held.stored().columns[0].tolist() == [1, 2, 1, 2, 2, 1]
    assert held.between(1, 3).stored.columns[0].tolist() == [2, 1]


def test_a_window_that_would_be_too_large_for_its_positions_says_so_and_keeps_what_it_has():
    held = SortedTuples(most=5)
    held.insert(tuples([1, 2, 3]), RANK)
    with pytest.raises(MemoryError, match="a window can hold 5 tuples; narrow it"):
        held.insert(tuples([4, 5, 6]), RANK)
    assert held.ts.tolist() == [1, 2, 3]
    held.insert(tuples([0, 5]), RANK)
    assert held.ts.tolist() == [0, 1, 2, 3, 5]


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
        held.add(Tuples(ids, ids, sources, Stored((ids * 2,), ok), nulls=null))
        expected += zip(ids.tolist(), sources.tolist(), ok.tolist(), strict=True)
        dropped = min(dropped, len(expected))
        held.drop(dropped)
        expected = expected[dropped:]
        columns = [held[position].tolist() for position in (ID, SOURCE, FIRST_KEY + 1)]
        assert list(zip(*columns, strict=True)) == expected
        assert held.ids(np.arange(len(expected), dtype=np.int32)).tolist() == columns[0]
        assert held.ts.tolist() == columns[0]
        assert [a.tolist() for a in held.stored().arrays()] == [[2 * each for each in columns[0]], columns[2]]
        assert not expected or held.oldest_id() == min(columns[0])


def test_what_follows_from_the_position_takes_no_memory():
    held = ArrivedTuples()
    many = tuples(list(range(2_000_000)))
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
    rows = RowColumns((TS, FIRST_KEY))
    held, expected, next_id, lost = ArrivedTuples(rows), list[int](), 0, False
    for count, dropped, kind, released in steps:
        ids = np.arange(next_id, next_id + count)
        lost |= kind == "l"
        if not lost:
            rows.append([ids, ids * 2])
        next_id += count
        ids = ids[1:] if kind == "g" else ids[::-1].copy() if kind == "s" else ids
        if not len(ids):
            continue
        known = np.ones(len(ids), np.bool_)
        held.add(Tuples(ids, ids, np.zeros(len(ids), np.int32), Stored((ids * 2,), known), False))
        expected += ids.tolist()
        dropped = min(dropped, len(expected))
        held.drop(dropped)
        expected = expected[dropped:]
        if released and not lost:
            rows.drop(min(expected, default=next_id) - rows.first)
        assert held.ts.tolist() == held[ID].tolist() == expected
        keys, known = held.stored().arrays()
        assert keys.tolist() == [2 * each for each in expected] and known.all()


def test_what_rows_hold_takes_no_memory_in_a_window():
    many = tuples(list(range(2_000_000)))
    rows = RowColumns((TS, FIRST_KEY))
    held = ArrivedTuples(rows)
    rows.append([many.ts, many.stored.columns[0]])
    held.add(many)
    assert held.nbytes == 0 and len(held) == 2_000_000
    held.add(many)  # ids begin again: from here on times and keys are the window's own
    assert held.nbytes == 2 * 2_000_000 * (16 + 8)
    assert held.ts.tolist() == 2 * many.ts.tolist()


def test_rows_stay_where_somebody_reads_them():
    """However the columns shrink, grow and free memory meanwhile."""
    rows = RowColumns((TS,), large=1 << 12)
    rows.append([np.arange(20_000)])
    rows.readers += 1
    seen = rows[0][19_000:]
    rows.drop(19_000)
    for first in range(20_000, 100_000, 1_000):
        rows.append([np.arange(first, first + 1_000)])
        assert (seen == np.arange(19_000, 20_000)).all()
    rows.readers -= 1
    rows.drop(61_000)
    rows.append([np.arange(100_000, 200_000)])
    assert rows[0].tolist() == list(range(80_000, 200_000))


def test_borrowed_tuples_are_never_written_to():
    """They come in arrays of their own, leave in part, and then others come, before and after them, or their order
    changes."""
    count = 4 * BORROWED
    for change in ("later", "earlier", "order"):
        given = tuples(list(range(10, 10 + count)), 1)
        arrays = [given.ts, given.id, given.source, *given.stored.columns]
        before = [array.copy() for array in arrays]
        held = SortedTuples(borrows=True)
        held.insert(given, RANK)
        assert np.shares_memory(held.ts, given.ts)
        held.drop(count - 100)
        expected = given.ts[count - 100 :].tolist()
        if change == "order":
            held.rearrange(np.arange(100)[::-1])
            expected.reverse()
        else:
            more = [count + 50, count + 60] if change == "later" else [5, 6]
            held.insert(tuples(more, 2), RANK)
            expected = sorted([*expected, *more])
        assert held.ts.tolist() == expected
        assert not np.shares_memory(held.ts, given.ts)
        for array, copy in zip(arrays, before, strict=True):
            assert array.tolist() == copy.tolist()
