"""Times at and before 1970: the processor with shifted watermarks, checkpoints from before they were shifted, and what
is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj

pytest.importorskip("pyspark")

from streamjoin.spark import StateError
from streamjoin.spark.job.progress import EPOCH, moment
from streamjoin.spark.join.epoch import LEAST_SHIFTED, SHIFT_MS, check_epoch
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.state.manifest import MemoryStore, State
from streamjoin.spark.state.runs import StoredRun
from streamjoin.spark.window_join import make_task as plan_task

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32(), "name": pa.string()})
THREE = sj.TimeWindow(3)
FAR = SHIFT_MS + 10**9


def unshifted_task(how: Any = "full", window: Any = THREE, **options: Any) -> JoinTask:
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", window, "ts", "ts", how)
    return plan_task(spec, options.get("order", "any"), "auto", "auto", 2)


def make_task(**options: Any) -> JoinTask:
    return replace(unshifted_task(**options), shift_ms=SHIFT_MS)


def test_rows_before_1970_are_late_and_final_and_leave(start):
    query = start(make_task())
    found = query.batch(left=[(-20, 1, "l"), (-9, 2, "m")], right=[(-18, 1, "r")])
    assert found == [(-20, 1, "l", -18, 1, "r")]
    assert query.batch(left=[(-10, 1, "late")], right=[(0, 3, "r")], watermark=SHIFT_MS - 10) == []
    assert query.counts["late"] == 1
    assert query.batch(watermark=SHIFT_MS - 6) == [(-9, 2, "m", None, None, None)]
    assert query.finish(FAR) == [(None, None, None, 0, 3, "r")]
    assert query.runs() == 0, "nothing is kept"


ROW = st.tuples(st.integers(-30, 30), st.integers(0, 2), st.sampled_from("ab"))
MICRO_BATCH = st.tuples(st.lists(ROW, max_size=4), st.lists(ROW, max_size=4), st.integers(0, 8))


@settings(max_examples=40)
@given(
    batches=st.lists(MICRO_BATCH, max_size=6),
    how=st.sampled_from(["inner", "full", "anti"]),
    window=st.sampled_from([sj.TimeWindow(4, 1), sj.RowWindow(2)]),
    order=st.sampled_from(["any", "timestamp"]),
)
def test_times_around_1970_give_the_rows_of_the_oracle(start, oracle, batches, how, window, order):
    task = make_task(how=how, window=window, order=order)
    query, watermark = start(task), -40
    on_time: tuple[list[Any], list[Any]] = ([], [])
    for *sides, advance in batches:
        query.batch(*sides, watermark=SHIFT_MS + watermark)
        for kept, rows in zip(on_time, sides, strict=True):
            kept.extend(row for row in rows if row[0] > watermark)
        watermark += advance
    query.finish(FAR)
    assert sorted(query.rows, key=repr) == oracle(task, *on_time)


def test_a_checkpoint_from_before_times_were_shifted_continues(start, oracle):
    """Its watermark stays unshifted until both sides have new rows; its timers are then due at once."""
    before, now = unshifted_task(), make_task()
    left = [(100, 1, "a"), (104, 2, "b"), (109, 1, "c"), (120, 5, "d")]
    right = [(102, 1, "p"), (110, 1, "q"), (121, 5, "r")]
    query = start(before)
    query.batch(left[:2], right[:1])
    query.batch(left[2:3], watermark=103)
    query.task = now
    query.restart()
    assert query.batch(right=[(103, 2, "late"), right[1]]) == [(109, 1, "c", 110, 1, "q")]
    assert query.counts["late"] == 1
    query.batch(left[3:], right[2:], watermark=SHIFT_MS + 112)
    query.finish(FAR)
    assert sorted(query.rows, key=repr) == oracle(now, left, right)
    assert query.runs() == 0


def test_a_second_watermark_in_the_query_is_refused(start):
    query = start(make_task())
    query.batch([(10, 1, "l")], [(10, 1, "r")])
    with pytest.raises(StateError, match="second watermark beside that of the join's times"):
        query.batch([(11, 1, "l")], watermark=1_700_000_000_000)


def test_state_with_a_shift_has_a_version_that_earlier_releases_refuse(start):
    versions = []
    for task in (unshifted_task(), make_task()):
        store = MemoryStore()
        state = State(task, store, Counts())
        state.shift_ms = task.shift_ms
        state.save()
        assert State(task, store, Counts()).shift_ms == task.shift_ms
        assert store.manifest is not None
        versions.append(b'"version": 2' in store.manifest)
    assert versions == [False, True]


# TIMESTAMP


INSTANTS = pa.schema({"ts": pa.timestamp("us", "UTC"), "x": pa.int32()})


def state_of_instants(left: int, right: int | None) -> tuple[JoinTask, State]:
    """State with one row a side, at these microseconds since 1970."""
    spec = sj.JoinSpec(INSTANTS, INSTANTS, "left.x = right.x", sj.TimeWindow("3 s"), "ts", "ts")
    task = plan_task(spec, "any", "auto", "auto", 1)
    state = State(task, MemoryStore(), Counts())
    for side, ts in (("left", left), ("right", right)):
        if ts is not None:
            state.runs[side].append(StoredRun(0, "token", 0, 1, ts, ts))
    return task, state


def test_instants_before_1970_are_refused_once_both_sides_have_had_rows():
    task, state = state_of_instants(-2_000_000, 5_000_000)
    with pytest.raises(
        StateError, match=r"left's times are before 1970 .*1969-12-31 23:59:58.*TIMESTAMP_NTZ"
    ):
        check_epoch(task, state, {}, 0)


@pytest.mark.parametrize(
    ("left", "right", "spark_ms", "new"),
    [
        (-2_000_000, None, 0, []),
        (2_000_000, 5_000_000, 0, []),
        (-2_000_000, 5_000_000, 1_700_000_000_000, []),
        (-2_000_000, 5_000_000, 0, [1_700_000_000_000_000]),
    ],
    ids=["a silent side", "just after 1970", "an old row among new ones", "newer rows come"],
)
def test_other_instants_are_not_refused(left, right, spark_ms, new):
    task, state = state_of_instants(left, right)
    fresh = pa.record_batch({"ts": pa.array(new, INSTANTS.field("ts").type), "x": [1] * len(new)}, INSTANTS)
    check_epoch(task, state, {"left": [fresh]}, spark_ms)


# What is shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00.250Z", datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)),
        ("1969-12-31T23:59:59.000Z", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("1970-01-01T00:00:00.000Z", EPOCH),
        ("0001-01-01T00:00:00.000Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("+144683-05-23T16:29:30.496Z", EPOCH),  # SHIFT_MS milliseconds after 1970
        ("+60000-01-01T00:00:00.000Z", None),
    ],
)
def test_times_of_progress_are_shown_without_the_shift(text, expected):
    assert moment(text) == expected


def test_shifted_and_unshifted_watermarks_do_not_meet():
    """Unshifted ones are below year 9999, or below 2^51 for integers that count microseconds since 1970."""
    assert datetime(9999, 12, 31, tzinfo=UTC).timestamp() * 1000 < LEAST_SHIFTED < SHIFT_MS
    assert datetime(2040, 1, 1, tzinfo=UTC).timestamp() * 1_000_000 < LEAST_SHIFTED
