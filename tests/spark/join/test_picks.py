"""As-of and nearest joins, ties, and intervals on Spark: the stateful processor, driven without Spark."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj

pytest.importorskip("pyspark")

from spark_runs import (
    EQUAL,
    NEAR,
    SCHEMA,
    WINDOWS,
    histories,
    long_history,
    make_task,
    run,
    run_with_faults,
)
from streamjoin.plan.options import STREAM_ORDERS
from streamjoin.semantics.keep import DIRECTIONS, HOW
from streamjoin.semantics.windows import Delta
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.picks import ranks, rings_of
from streamjoin.spark.join.task import END_OF_TIME, JoinTask, differences
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state.manifest import MemoryStore, State
from streamjoin.spark.window_join import make_task as plan_task

BACK = sj.TimeWindow(0, 5)
KEEPS: tuple[Any, ...] = (
    *(sj.AsOf(direction, strict) for direction in DIRECTIONS for strict in (False, True)),
    sj.Nearest("abs(left.x - right.x)"),
    sj.Nearest("right.ts - left.ts", k=2, largest=True),
    sj.Nearest("1.0 / (right.x - 2)", k=3),
)
INTERVALS = (
    sj.Interval(-5, -2),
    sj.Interval(1, 4),
    sj.Interval(-6, 3, closed="neither"),
    sj.Interval(0, 4, closed="right"),
    sj.Interval(-3, -3),
    sj.Interval(-4, 0),
)


# Literal cases


def test_a_backward_row_leaves_once_the_watermark_has_passed_its_time(start):
    query = start(make_task(window=sj.TimeWindow(50), how="left", keep=sj.AsOf(), workers=1))
    query.batch(left=[(10, 1, "l"), (11, 2, "m")], right=[(8, 1, "old"), (9, 1, "r"), (12, 1, "after")])
    assert query.batch(watermark=9) == []
    assert query.batch(watermark=10) == [(10, 1, "l", 9, 1, "r")]
    assert query.batch(watermark=11) == [(11, 2, "m", None, None, None)]
    assert query.finish() == []


def test_a_strict_backward_row_leaves_a_tick_earlier(start):
    query = start(make_task(window=BACK, keep=sj.AsOf(strict=True)))
    query.batch(left=[(10, 1, "l")], right=[(9, 1, "r"), (10, 1, "equal")])
    assert query.batch(watermark=8) == []
    assert query.batch(watermark=9) == [(10, 1, "l", 9, 1, "r")]


def test_a_row_that_comes_after_all_it_may_pick_leaves_with_its_own_micro_batch(start):
    query = start(make_task(window=sj.Interval(-9, -4), how="left", keep=sj.AsOf(), workers=1))
    query.batch(right=[(2, 1, "r")])
    query.batch(watermark=10)
    assert query.batch(left=[(11, 1, "l"), (14, 1, "too far"), (15, 1, "m")]) == [
        (11, 1, "l", 2, 1, "r"),
        (14, 1, "too far", None, None, None),
    ]
    assert query.batch(watermark=11) == [(15, 1, "m", None, None, None)]


def test_a_later_row_of_equal_distance_is_picked(start):
    query = start(make_task(window=sj.TimeWindow(5), keep=sj.AsOf("nearest"), workers=1))
    query.batch(left=[(10, 1, "l")], right=[(8, 1, "before"), (12, 1, "after")])
    assert query.finish() == [(10, 1, "l", 12, 1, "after")]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_times_at_opposite_ends_of_64_bits(start, direction):
    """Their difference has 65 bits. The join is asked at once, because nothing so early passes a watermark."""
    task = make_task(window=sj.RowWindow(3), how="left", keep=sj.AsOf(direction), workers=1)
    query = start(task)
    left, right = [(1 - 2**63, 1, "l")], [(5, 1, "r"), (2**63 - 4, 1, "s")]
    content = {"left": [query._packed("left", left)], "right": [query._packed("right", right)]}
    state = State(task, MemoryStore(), Counts())
    worker = SparkWorker(task, 0, state, Counts())
    rows = [tuple(row.values()) for batch in worker.step(content, END_OF_TIME) for row in batch.to_pylist()]
    picked = (None, None, None) if direction == "backward" else (5, 1, "r")
    assert rows == [(1 - 2**63, 1, "l", *picked)]


def test_the_tie_column_ranks_rows_of_equal_time(start):
    for names in (["a", "b"], ["b", "a"], [None, "a"]):
        task = make_task(window=BACK, keep=sj.AsOf(), right_tie="name", workers=1)
        query = start(task)
        query.batch(left=[(10, 1, "l")], right=[(9, 1, name) for name in names])
        assert query.finish() == [(10, 1, "l", 9, 1, max(n for n in names if n))]


def test_the_best_k_leave_when_the_window_has_ended(start):
    query = start(
        make_task(on="TRUE", window=sj.TimeWindow(5), keep=sj.Nearest("abs(left.x - right.x)", k=2))
    )
    query.batch(
        left=[(10, 5, "l")], right=[(8, 1, "far"), (9, 7, "near"), (15, 5, "best"), (15, None, "none")]
    )
    assert query.batch(watermark=14) == []
    assert sorted(query.batch(watermark=15)) == [(10, 5, "l", 9, 7, "near"), (10, 5, "l", 15, 5, "best")]


def test_right_rows_are_forgotten_when_no_left_row_can_pick_them(start):
    query = start(make_task(window=sj.TimeWindow(50, 10), keep=sj.AsOf(), workers=1))
    query.batch(left=[(10, 1, "l")], right=[(9, 1, "r")])
    query.batch(watermark=18)
    assert query.runs() == 1, "left 19 may pick right 9"
    query.batch(watermark=19)
    assert query.runs() == 0


def test_an_interval_of_later_rows_finds_left_rows_alone_in_time(start):
    query = start(make_task(window=sj.Interval(2, 4), how="full", workers=1))
    query.batch(left=[(10, 1, "l"), (11, 1, "m")], right=[(12, 1, "r"), (20, 1, "s")])
    assert query.rows == [(10, 1, "l", 12, 1, "r")]
    assert query.batch(watermark=14) == []
    assert query.batch(watermark=15) == [(11, 1, "m", None, None, None)]
    assert query.batch(watermark=18) == [(None, None, None, 20, 1, "s")]


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        (Delta(-10, 0), [[(0, 0)], [(-1, -1)], [(-10, -2)]]),
        (Delta(-3, 10), [[(0, 0)], [(-1, -1), (1, 1)], [(-3, -2), (2, 10)]]),
        (Delta(5, 12), [[(5, 12)]]),
        (Delta(0, 0), [[(0, 0)]]),
    ],
)
def test_rings_cut_a_window_from_the_inside_out(delta, expected):
    assert list(rings_of(delta)) == expected


@given(st.integers(-2000, 2000), st.integers(0, 3000))
def test_rings_have_every_difference_once(lo, length):
    delta = Delta(lo, lo + length)
    found = [d for ring in rings_of(delta) for lo, hi in ring for d in range(lo, hi + 1)]
    assert sorted(found) == list(range(delta.lo, delta.hi + 1))
    nearest = [max(max(abs(lo), abs(hi)) for lo, hi in ring) for ring in rings_of(delta)]
    assert nearest == sorted(nearest)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, None, 1, 3]),
        pa.array([2.5, None, float("-inf"), float("nan")]),
        pa.array(["b", None, "a", "é"]),
        pa.array([True, None, False, True]),
        pa.array([b"x", None, b"", b"\xff"]),
        pa.array([Decimal("2.50"), None, Decimal("-1.00"), Decimal("10.00")]),
        pa.array([date(2024, 2, 29), None, date(1969, 1, 1), date(2024, 3, 1)]),
    ],
    ids=lambda values: str(values.type),
)
def test_ranks_put_null_first_and_nan_last(values):
    found = ranks(values)
    assert found[1] < found[2] < found[0] <= found[3]


def test_a_checkpoint_of_before_belongs_to_a_join_that_keeps_all_matches():
    plain, picking = make_task().signature, make_task(keep=sj.AsOf()).signature
    assert "keep" not in plain and "right_tie" not in plain
    assert differences(plain, plain) == []
    assert differences(plain, picking) == [
        "keep was 'all' and is now \"AsOf(direction='backward', strict=False)\""
    ]
    assert differences(picking, plain) == [
        "keep was \"AsOf(direction='backward', strict=False)\" and is now 'all'"
    ]
    assert json.loads(json.dumps(picking)) == picking


@pytest.mark.parametrize(
    ("window", "options", "message"),
    [
        (
            sj.RowWindow(3),
            {"right_tie": "name"},
            "right_tie is 'name', and windows of rows are counted by time and",
        ),
        (
            sj.RowWindow(3),
            {"keep": sj.AsOf("nearest"), "order": "timestamp"},
            "order is 'timestamp', and keep is AsOf.* which Spark cannot sort: write order='any'",
        ),
    ],
)
def test_what_spark_cannot_run_is_refused(window, options, message):
    with pytest.raises(sj.SpecError, match=message):
        make_task(window=window, **options)


# Against the oracle


@settings(max_examples=120)
@given(
    histories(),
    st.sampled_from(
        [(EQUAL, "auto"), (EQUAL, "matrix"), (NEAR, "range"), (NEAR, "matrix"), ("TRUE", "auto")]
    ),
    st.sampled_from([*WINDOWS, *INTERVALS]),
    st.sampled_from(["inner", "left"]),
    st.sampled_from(KEEPS),
    st.sampled_from(STREAM_ORDERS),
    st.integers(1, 4),
    st.booleans(),
)
def test_oracle_picks_in_any_cut_and_disorder(
    start, oracle, history, spread, window, how, keep, order, workers, tie
):
    (sides, batches), (on, partitioning) = history, spread
    rows = sj.JoinSpec(SCHEMA, SCHEMA, "TRUE", window, "ts", "ts").delta is None
    if rows:
        order, partitioning = "any", "auto"
    ties = {} if rows or not tie else {"left_tie": "x", "right_tie": "x"}
    task = make_task(on, window, how, order, workers, partitioning=partitioning, keep=keep, **ties)
    assert run(start(task), batches) == oracle(task, *sides)


@settings(max_examples=60)
@given(
    histories(),
    st.sampled_from([EQUAL, NEAR]),
    st.sampled_from(INTERVALS),
    st.sampled_from(HOW),
    st.sampled_from(STREAM_ORDERS),
    st.integers(1, 3),
)
def test_oracle_intervals_of_any_signs(start, oracle, history, on, window, how, order, workers):
    sides, batches = history
    task = make_task(on, window, how, order, workers)
    assert run(start(task), batches) == oracle(task, *sides)


@settings(max_examples=40)
@given(
    histories(),
    st.sampled_from([*WINDOWS[:3], *INTERVALS]),
    st.sampled_from(KEEPS),
    st.sampled_from(["inner", "left"]),
)
def test_picks_in_order_never_fall_from_batch_to_batch(start, oracle, history, window, keep, how):
    task = make_task(NEAR, window, how, "timestamp", 3, keep=keep)
    query, reached = start(task), 0
    ahead = 0 if getattr(keep, "direction", "") == "backward" else max(task.spec.delta.hi, 0)
    for left, right, watermark in [*history[1], ((), (), 10**9)]:
        rows = query.batch(left, right) + (query.batch(watermark=watermark) if watermark else [])
        times = [row[0] + ahead if row[3] is None else max(row[0], row[3]) for row in rows]
        assert min(times, default=reached) >= reached
        reached = max([reached, *times])
    assert sorted(query.rows, key=repr) == oracle(task, *history[0])


SPREADS = {
    "hash": (EQUAL, sj.TimeWindow(40, 15), "hash"),
    "range": (NEAR, sj.TimeWindow(40, 15), "range"),
    "matrix": (NEAR, sj.TimeWindow(15, 40), "matrix"),
    "interval": (NEAR, sj.Interval(-40, -3), "range"),
    "later": (EQUAL, sj.Interval(3, 40), "hash"),
    "rows": (EQUAL, sj.RowWindow(7, 3), "auto"),
    "mixed": (NEAR, (sj.TimeWindow(30), sj.RowWindow(4)), "auto"),
    "mixed rows": (NEAR, (sj.RowWindow(4), sj.TimeWindow(30)), "auto"),
}


def check_long_history(start: Any, oracle: Any, task: JoinTask, seed: str, count: int) -> None:
    random = Random(seed)
    sides, batches = long_history(random, count)
    assert run_with_faults(start(task), batches, random) == oracle(task, *sides)


@pytest.mark.parametrize(
    ("name", "keep"), [("range", KEEPS[0]), ("matrix", KEEPS[6]), ("hash", KEEPS[2]), ("rows", KEEPS[4])]
)
def test_differential_picks_over_many_micro_batches_with_faults(start, oracle, own_cache, name, keep):
    on, window, partitioning = SPREADS[name]
    task = make_task(on, window, "left", "any", 3, partitioning=partitioning, keep=keep)
    check_long_history(start, oracle, task, f"{name} {keep}", 100)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("name", SPREADS)
def test_differential_every_keep_and_spread_with_faults(start, oracle, own_cache, name, how):
    on, window, partitioning = SPREADS[name]
    for keep in KEEPS:
        for index in ("auto", "scan", "bisort"):
            task = make_task(on, window, how, "any", 3, index, partitioning, keep=keep)
            check_long_history(start, oracle, task, f"{name} {how} {keep} {index}", 60)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["interval", "later"])
def test_differential_every_how_over_intervals_with_faults(start, oracle, own_cache, name, how):
    on, window, partitioning = SPREADS[name]
    if how == "full" and partitioning == "range":
        partitioning = "matrix"
    for order in STREAM_ORDERS:
        task = make_task(on, window, how, order, 3, "auto", partitioning)
        check_long_history(start, oracle, task, f"{name} {how} {order}", 60)


@pytest.mark.parametrize(
    ("how", "keep", "most"),
    [("left", "all", 2 * 330), ("left", sj.AsOf(), 300), ("inner", sj.Nearest("right.x - left.x"), 2 * 430)],
    ids=["left", "as of", "nearest"],
)
def test_the_state_of_a_long_stream_stays_as_small_as_its_window(start, own_cache, how, keep, most):
    """A hundred rows a side and micro-batch, one a tick: windows of 100 rows back and 100 ahead."""
    schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
    spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(100), "ts", "ts", how, keep=keep)
    query, held = start(plan_task(spec, "any", "auto", "auto", 1)), []
    for begin in range(100, 4_100, 100):
        rows = [(ts, ts % 7) for ts in range(begin, begin + 100)]
        query.counts["state_rows"] = 0
        query.batch(rows, rows, watermark=begin - 1)
        held.append(query.counts["state_rows"])
    assert max(held[:10]) == max(held[30:]) <= most
    query.counts["state_rows"] = 0
    query.finish()
    assert query.counts["state_rows"] == 0 and query.runs() == 0
