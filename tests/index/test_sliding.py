"""Columns that slide: what is live, what memory they keep, and when they are full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.index import sliding
from streamjoin.index.protocol import Tuples
from streamjoin.index.sliding import SMALLEST, SlidingColumns, SortedTuples, TupleColumns

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
