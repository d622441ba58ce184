"""Backward as-of joins by the last right row of each key: by eye, at the ends of what fits, and what is kept.

tests/topologies/outcomes/test_outcomes.py compares them with the oracle."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.kernels.hash.last_rows import FREE
from streamjoin.topologies.outcomes import as_of
from streamjoin.topologies.outcomes.as_of import AsOfJoin, LastRows

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)


def spec_of(window: Any, keep: Any = None, how: Any = "left", key: pa.DataType | None = None) -> sj.JoinSpec:
    schema = pa.schema({"ts": pa.int64(), "k": key or pa.int32()})
    return sj.JoinSpec(
        schema, schema, "left.k = right.k", window, "ts", "ts", how=how, keep=keep or sj.AsOf()
    )


def table(spec: sj.JoinSpec, rows: list[tuple[int, Any]]) -> pa.Table:
    return pa.table({"ts": [ts for ts, _ in rows], "k": [k for _, k in rows]}, schema=spec.left)


def picked(
    spec: sj.JoinSpec, left: list[tuple[int, Any]], right: list[tuple[int, Any]], **options: Any
) -> list[Any]:
    """The time of the right row that each left row gets."""
    sides = table(spec, left), table(spec, right)
    found = sj.join_tables(*sides, spec, order="timestamp", **options)
    assert repr(found.to_pylist()) == repr(
        sj.oracle.join(*sides, spec).to_pylist()
    )  # by text: NaN differs from NaN
    return list(found["ts_right"].to_pylist())


def test_the_last_row_of_a_key_that_is_not_after_the_left_row():
    spec = spec_of(sj.TimeWindow(0, right=10))
    right = [(1, 7), (3, 8), (4, 7), (6, 7)]
    assert picked(spec, [(0, 7), (4, 7), (5, 7), (5, 8), (17, 7)], right) == [None, 4, 4, 3, None]


def test_strict_leaves_out_rows_of_the_same_time():
    assert picked(spec_of(sj.TimeWindow(9), sj.AsOf(strict=True)), [(4, 7), (5, 7)], [(3, 7), (4, 7)]) == [
        3,
        4,
    ]


def test_a_window_that_ends_before_the_left_row():
    assert picked(spec_of(sj.Interval(-5, -2)), [(6, 7)], [(0, 7), (1, 7), (4, 7), (5, 7)]) == [4]
    assert picked(spec_of(sj.Interval(1, 5)), [(6, 7)], [(6, 7), (7, 7)]) == [None]


@pytest.mark.parametrize("index", ["auto", "scan"])
def test_times_at_the_ends_of_64_bits(index):
    ends = [(INT64_MIN, 7), (INT64_MIN + 1, 7), (0, 7), (INT64_MAX, 7)]
    for window in (sj.TimeWindow(INT64_MAX), sj.Interval(-INT64_MAX, -2), sj.TimeWindow(0)):
        picked(spec_of(window), ends, ends, index=index)  # compares with the oracle


def test_a_full_table_where_the_window_begins_after_the_end_of_time():
    """No right row can be picked; more keys than the table has places for are looked through all the same."""
    rows = [(INT64_MAX - 1, key) for key in range(9)] + [(INT64_MAX, 0)]
    with patch.object(as_of, "SMALLEST_TABLE", 4):
        assert picked(spec_of(sj.Interval(3, 9)), rows, rows) == [None] * len(rows)


def test_a_left_row_at_the_beginning_of_time_takes_no_right_row():
    """A right row before it in the total order can still come from the other source."""
    spec = spec_of(sj.TimeWindow(0, right=3), sj.AsOf(strict=True))
    with sj.open_join(spec) as join:
        first, second = join.source("right", "a"), join.source("right", "b")
        second.push(table(spec, [(INT64_MIN, 7)]))
        join.push("left", table(spec, [(INT64_MIN, 7)]))
        assert [batch.num_rows for batch in join.poll()] == [1]
        made: Any = join._topology
        assert (len(made._rows["right"]), len(made._last)) == (1, 0)
        first.push(table(spec, [(INT64_MIN, 7)]))
        second.push(table(spec, [(INT64_MIN + 3, 7)]))
        first.close()
        join.push("left", table(spec, [(INT64_MIN + 1, 7), (INT64_MIN + 2, 7)]))
        assert made._last.rows.max() == 0  # the row of "b"


def test_nan_and_null_are_no_keys_and_zeros_are_one():
    spec = spec_of(sj.TimeWindow(9), key=pa.float64())
    left = [(5, math.nan), (6, None), (7, -0.0)]
    assert picked(spec, left, [(1, math.nan), (2, None), (3, 0.0)]) == [None, None, 3]


def test_explain_says_what_runs():
    text = sj.explain(spec_of(sj.TimeWindow(9)))
    assert "the calling thread keeps the last right row of each key" in text
    assert "index" not in text


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(sj.TimeWindow(9), sj.AsOf("nearest")),
        spec_of(sj.RowWindow(9)),
    ],
    ids=["nearest", "rows"],
)
def test_other_joins_look_for_all_matches(spec):
    assert "last right row" not in sj.explain(spec)


def test_of_many_keys_only_those_that_can_be_picked_are_kept():
    """Every key comes once; the table holds what the window spans, and payload goes with it."""
    spec = spec_of(sj.TimeWindow(0, right=1_000))
    with sj.open_join(spec) as join, patch("streamjoin.engine.driver.SLACK_ROWS", 1):
        made: Any = join._topology
        assert isinstance(made, AsOfJoin)
        for at in range(0, 60_000, 500):
            rows = [(ts, ts) for ts in range(at, at + 500)]
            join.push("right", table(spec, rows))
            join.push("left", table(spec, rows))
            assert sum(batch.num_rows for batch in join.poll()) <= 500
            if at > 20_000:
                assert len(made._last.rows) <= 16_384
                assert join.stats().payload_rows < 40_000


def test_a_table_grows_and_drops_what_is_old():
    last = LastRows()
    last.rows[:4], last.times[:4], last.words[:4] = [10, 11, 12, 13], [1, 2, 3, 4], [5, 6, 7, 8]
    last.make_room(3)
    live = last.rows != FREE
    assert sorted(zip(last.words[live].tolist(), last.rows[live].tolist(), strict=True)) == [(7, 12), (8, 13)]
    assert last.used == 2
    assert last.oldest_row(4) == 13


def test_rows_wait_for_an_earlier_left_row_where_left_is_out_of_order():
    """A left row at 3 may still come: the right row at 4 must not hide the one at 2 from it."""
    spec = spec_of(sj.TimeWindow(0, right=10))
    schema = spec.left
    late = sj.JoinSpec(
        schema, schema, "left.k = right.k", spec.window, "ts", "ts", how="left", lateness=2, keep=sj.AsOf()
    )
    with sj.open_join(late) as join:
        join.push("right", table(spec, [(2, 7), (4, 7), (9, 7)]))
        join.push("left", table(spec, [(5, 7)]))
        join.push("left", table(spec, [(3, 7)]))
        rest = join.finish()
        assert dict(zip(rest["ts"].to_pylist(), rest["ts_right"].to_pylist(), strict=True)) == {5: 4, 3: 2}


def test_steps_are_bounded():
    spec = spec_of(sj.TimeWindow(0, right=10))
    rows = [(ts, 0) for ts in range(100)]
    with patch.object(as_of, "LARGEST_STEP", 7), sj.open_join(spec, max_results=5) as join:
        join.push("right", table(spec, rows))
        join.push("left", table(spec, rows))
        sizes = []
        while batches := join.poll():
            sizes.append(sum(batch.num_rows for batch in batches))
        assert max(sizes) <= 5
        assert sum(sizes) + join.finish().num_rows == 100


def test_random_keys_in_a_small_table():
    """Keys that share places are kept apart."""
    random, spec = np.random.default_rng(1), spec_of(sj.TimeWindow(0, right=50), key=pa.int64())
    with patch.object(as_of, "SMALLEST_TABLE", 4):
        for _ in range(5):
            sides = [
                [(ts, int(k) << 40) for ts, k in enumerate(random.integers(0, 12, 80))] for _ in range(2)
            ]
            picked(spec, *sides)
