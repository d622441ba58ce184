"""The stateful processor, driven without Spark: any cut into micro-batches gives the oracle's rows, each once."""

from __future__ import annotations

from dataclasses import replace
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
from streamjoin.plan.options import INDEXES, STREAM_ORDERS
from streamjoin.plan.spark_tuning import SparkTuning
from streamjoin.semantics.keep import HOW
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.task import END_OF_TIME
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state.manifest import MemoryStore, State
from streamjoin.spark.window_join import with_late

PREDICATES = (EQUAL, NEAR, "left.name <> right.name", f"{EQUAL} AND left.name < right.name")
ANY_INDEX, NO_KEY = ("auto", *INDEXES), ("auto", "scan")
INDEXED = (
    *((on, index) for on in PREDICATES if EQUAL in on for index in ANY_INDEX),
    *((NEAR, index) for index in ANY_INDEX if index != "hash"),
    *(("left.name <> right.name", index) for index in NO_KEY),
)
# Literal cases


def test_a_pair_comes_with_its_later_arrival(start):
    query = start(make_task())
    assert query.batch(left=[(10, 1, "l")]) == []
    assert query.batch(right=[(12, 1, "r"), (14, 1, "too far")]) == [(10, 1, "l", 12, 1, "r")]
    assert query.batch(left=[(15, 1, "k")]) == [(15, 1, "k", 12, 1, "r"), (15, 1, "k", 14, 1, "too far")]


def test_rows_that_come_together_meet_once(start):
    query = start(make_task())
    assert query.batch(left=[(10, 1, "l")], right=[(10, 1, "r")]) == [(10, 1, "l", 10, 1, "r")]
    assert query.finish() == []


def test_a_row_at_or_before_the_watermark_is_late_and_counted(start):
    query = start(make_task(workers=1))
    query.batch(left=[(10, 1, "l")])
    assert query.batch(right=[(9, 1, "late"), (10, 1, "late too"), (11, 1, "r")], watermark=10) == [
        (10, 1, "l", 11, 1, "r")
    ]
    assert query.counts["late"] == 2


@pytest.mark.parametrize(
    ("on", "window", "partitioning"),
    [
        (EQUAL, sj.TimeWindow(3), "hash"),
        (NEAR, sj.TimeWindow(3), "range"),
        (NEAR, sj.TimeWindow(3), "matrix"),
        (NEAR, sj.RowWindow(3), "auto"),
    ],
)
@pytest.mark.parametrize("workers", [3, 4])
def test_a_late_row_that_goes_to_several_workers_counts_once(start, on, window, partitioning, workers):
    query = start(make_task(on, window, workers=workers, partitioning=partitioning))
    query.batch(left=[(10, 1, "l")], right=[(10, 1, "r")])
    late = [(ts, x, "late") for ts in (1, 5) for x in range(20)]
    query.batch(left=late, right=[*late, (30, 1, "r")], watermark=20)
    assert query.counts["late"] == 2 * len(late)


@pytest.mark.parametrize(
    ("on", "window", "partitioning"),
    [
        (EQUAL, sj.TimeWindow(3), "hash"),
        (NEAR, sj.TimeWindow(3), "range"),
        (NEAR, sj.TimeWindow(3), "matrix"),
        (NEAR, sj.RowWindow(3), "auto"),
    ],
)
@pytest.mark.parametrize("how", ["inner", "right", "semi"])
def test_a_late_row_comes_out_once_and_marked_if_asked_for(start, on, window, partitioning, how):
    query = start(with_late(make_task(on, window, how, workers=3, partitioning=partitioning), "too late"))
    query.batch(left=[(21, 1, "l")], right=[(21, 1, "r")])
    late = [(ts, x, "late") for ts in (1, 5) for x in (*range(10), None)]
    query.batch(left=late, right=[*late, (30, 1, "r")], watermark=20)
    query.finish()
    nothing = (None, None, None)
    expected = {(*row, *nothing, True) for row in late} | {(*nothing, *row, True) for row in late}
    marked = [row for row in query.rows if row[-1]]
    assert len(marked) == len(expected) == query.counts["late"]
    assert set(marked) == expected
    first = (21, 1, "l", *nothing, False) if how == "semi" else (21, 1, "l", 21, 1, "r", False)
    assert [row for row in query.rows if not row[-1]][:1] == [first]


def test_the_result_has_a_column_more_for_late_rows():
    task = with_late(make_task(how="anti"), "late")
    assert task.schema.names == ["ts", "x", "name", "ts_right", "x_right", "name_right", "late"]
    assert [field.nullable for field in task.schema] == [True] * 6 + [False]
    assert with_late(task, None).schema.names == SCHEMA.names
    for name in ("x", "x_right"):
        with pytest.raises(sj.SpecError, match=f"late is '{name}', which the result has already"):
            with_late(make_task(), name)
    with pytest.raises(sj.SpecError, match="late is 5; allowed: the name of a new column"):
        with_late(make_task(), 5)  # type: ignore[arg-type]


def test_time_goes_to_one_part_at_a_time(monkeypatch):
    moments = iter([0, 5_000, 7_000, 107_000, 1_107_000])
    monkeypatch.setattr("streamjoin.spark.join.metrics.time.perf_counter_ns", lambda: next(moments))
    counts = Counts()
    for part in ("state", "kernel", "state", None, "conversion"):
        counts.turn(part)
    assert (counts.state_us, counts.kernel_us, counts.conversion_us) == (5 + 100, 2, 0)


def test_time_goes_on_after_a_result_has_gone_out(monkeypatch, own_cache):
    """Of a full join the unmatched rows of both sides are looked for, here for a millisecond each."""
    now = [0]
    monkeypatch.setattr("streamjoin.spark.join.metrics.time.perf_counter_ns", lambda: now[0])
    decided = SparkWorker._decided

    def slowly(worker: SparkWorker, side: str, watermark: int) -> Any:
        now[0] += 1_000_000
        return decided(worker, side, watermark)

    monkeypatch.setattr(SparkWorker, "_decided", slowly)
    task, counts = replace(make_task(how="full", workers=1), tuning=SparkTuning(result_rows=1)), Counts()
    worker = SparkWorker(task, 0, State(task, MemoryStore(), counts), counts)
    alone = pa.record_batch([[1], [None], ["a"]], schema=SCHEMA)
    for _ in worker.step({"left": [alone], "right": [alone]}, END_OF_TIME):
        counts.turn(None)  # as Spark takes each result
    assert counts.unmatched == 2
    assert (counts.kernel_us, counts.conversion_us) == (0, 2_000)


def test_counts_leave_with_the_last_of_several_frames(start):
    """Of a full join, the unmatched rows of one side and of the other."""
    query = start(replace(make_task(how="full", workers=1), tuning=SparkTuning(result_rows=1)))
    query.batch(left=[(1, 1, "l")], right=[(1, 2, "r")], watermark=0)
    assert query.finish() == [(1, 1, "l", None, None, None), (None, None, None, 1, 2, "r")]
    assert (query.counts["rows_in"], query.counts["unmatched"]) == (2, 2)


def test_an_unmatched_row_comes_once_when_no_partner_can_come(start):
    query = start(make_task(how="left"))
    query.batch(left=[(10, 1, "l"), (11, 2, "m")], right=[(12, 1, "r")])
    assert query.batch(watermark=13) == []
    assert query.batch(watermark=14) == [(11, 2, "m", None, None, None)]
    assert query.batch(watermark=15) == query.finish() == []


def test_a_late_match_is_never_contradicted_by_an_earlier_null(start):
    query = start(make_task(how="full"))
    query.batch(left=[(10, 1, "l")])
    query.batch(watermark=12)
    assert query.batch(right=[(13, 1, "r")]) == [(10, 1, "l", 13, 1, "r")]
    assert query.finish() == []


def test_a_left_row_is_given_once_by_a_semi_join_however_many_partners_come(start):
    query = start(make_task(how="semi"))
    query.batch(left=[(10, 1, "l")])
    assert query.batch(right=[(11, 1, "r"), (12, 1, "s")]) == [(10, 1, "l")]
    assert query.batch(right=[(13, 1, "t")]) == query.finish() == []


def test_rows_of_a_row_window_wait_until_nothing_before_them_can_come(start):
    query = start(make_task(window=sj.RowWindow(1), workers=1))
    assert query.batch(left=[(10, 1, "l")], right=[(20, 1, "r")]) == []
    assert query.batch(left=[(15, 1, "m")], watermark=12) == []
    assert query.batch(watermark=20) == [(15, 1, "m", 20, 1, "r")]


def test_an_idle_side_keeps_what_the_other_one_may_still_meet(start):
    query = start(make_task(workers=1))
    for ts in range(10, 60, 5):
        query.batch(left=[(ts, 1, f"l{ts}")])  # no watermark: it is the least of both sides'
    assert query.batch(right=[(12, 1, "r")]) == [(10, 1, "l10", 12, 1, "r"), (15, 1, "l15", 12, 1, "r")]


def test_state_is_forgotten_without_new_rows_when_the_watermark_passes(start):
    query = start(make_task(workers=1))
    query.batch(left=[(10, 1, "l")], right=[(11, 1, "r")])
    assert query.runs() == 2
    query.batch(watermark=13)
    assert query.runs() == 1
    query.batch(watermark=14)
    assert query.runs() == 0


def test_a_timer_that_is_due_after_rows_of_its_worker_has_nothing_left_to_do(start):
    query = start(make_task(how="left", workers=1))
    query.batch(left=[(10, 1, "l")])
    alone = [(10, 1, "l", None, None, None)]
    before = query.counts["unmatched"]
    assert query.batch(right=[(21, 2, "r")], watermark=20) == alone
    assert query.counts["unmatched"] == before + 1
    assert list(query.tester.handle._timers._key_to_timers.values()) == [
        {24}
    ]  # when r is forgotten, and no other
    assert query.batch(watermark=24) == []
    assert query.runs() == 0


# Against the oracle


@settings(max_examples=120)
@given(
    histories(),
    st.sampled_from(INDEXED),
    st.sampled_from(WINDOWS),
    st.sampled_from(HOW),
    st.sampled_from(STREAM_ORDERS),
    st.integers(1, 4),
    st.sampled_from(["auto", "matrix"]),
)
def test_oracle_any_cut_disorder_and_idle_side(
    start, oracle, history, indexed, window, how, order, workers, partitioning
):
    (sides, batches), (on, index) = history, indexed
    task = make_task(on, window, how, order, workers, index, partitioning)
    assert run(start(task), batches) == oracle(task, *sides)


@settings(max_examples=30)
@given(
    histories(),
    st.sampled_from([EQUAL, NEAR]),
    st.sampled_from(WINDOWS),
    st.sampled_from(HOW),
    st.integers(1, 3),
)
def test_oracle_late_rows_leave_and_take_no_part(start, oracle, history, on, window, how, workers):
    """Every row with a time up to 10 comes once more, too late."""
    sides, batches = history
    task = make_task(on, window, how, workers=workers)
    query = start(with_late(task, "late"))
    run(query, batches)
    late = [(ts, x, "late") for side in sides for ts, x, _ in side if ts <= 10]
    query.batch(left=late, right=late, watermark=10**9)
    columns = len(task.schema)
    assert sorted((row[:columns] for row in query.rows if not row[-1]), key=repr) == oracle(task, *sides)
    expected = [(*row, None, None, None) for row in late] + [(None, None, None, *row) for row in late]
    assert sorted((row[:-1] for row in query.rows if row[-1]), key=repr) == sorted(expected, key=repr)


@settings(max_examples=25)
@given(histories(), st.sampled_from(WINDOWS), st.sampled_from(HOW), st.data())
def test_oracle_with_restarts_and_failed_attempts(start, oracle, history, window, how, data):
    """A failed attempt leaves files and memory behind, and its state is gone; a restart has nothing but the state."""
    sides, batches = history
    task = make_task(NEAR, window, how)
    query = start(task)
    for left, right, watermark in batches:
        committed, before = query.snapshot(), list(query.rows)
        query.batch(left, right)
        first = sorted(query.rows, key=repr)
        if data.draw(st.booleans(), label="fails"):
            query.restore(committed)
            query.rows = before
            query.restart()
            query.batch(left, right)
            assert sorted(query.rows, key=repr) == first
        if watermark:
            query.batch(watermark=watermark)
        if data.draw(st.booleans(), label="restarts"):
            query.restart()
    query.finish()
    assert sorted(query.rows, key=repr) == oracle(task, *sides)


@pytest.mark.parametrize("index", ["scan", "hash", "bisort"])
def test_oracle_on_every_index_over_many_micro_batches(start, oracle, index):
    """Enough rows for runs to be merged several times."""
    left = [(ts, ts * 7 % 11, f"l{ts}") for ts in range(1, 200)]
    right = [(ts, ts * 5 % 11, f"r{ts}") for ts in range(1, 200)]
    task = make_task(EQUAL, sj.TimeWindow(40, 25), "full", workers=2, index=index)
    query = start(task)
    for at in range(0, 199, 4):
        query.batch(left[at : at + 4], right[at : at + 4])
        query.batch(watermark=at + 1)
    query.finish()
    assert sorted(query.rows, key=repr) == oracle(task, left, right)


@pytest.mark.parametrize("how", ["inner", "full"])
def test_differential_many_micro_batches_with_faults(start, oracle, own_cache, how):
    random = Random(how)
    task = make_task(NEAR, sj.TimeWindow(60, 25), how, workers=2, partitioning="auto")
    sides, batches = long_history(random, 250)
    assert run_with_faults(start(task), batches, random) == oracle(task, *sides)


SPREADS = {
    "hash": (EQUAL, sj.TimeWindow(40, 15), "hash"),
    "range": (NEAR, sj.TimeWindow(40, 15), "auto"),
    "matrix": (NEAR, sj.TimeWindow(15, 40), "matrix"),
    "rows": (EQUAL, sj.RowWindow(7, 3), "auto"),
    "mixed": (NEAR, (sj.TimeWindow(30), sj.RowWindow(4)), "auto"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", SPREADS)
def test_differential_every_how_spread_window_and_index(start, oracle, own_cache, name, how):
    on, window, partitioning = SPREADS[name]
    for index in (index for predicate, index in INDEXED if predicate == on):
        random = Random(f"{name} {how} {index}")
        task = make_task(on, window, how, random.choice(STREAM_ORDERS), 3, index, partitioning)
        sides, batches = long_history(random, 60)
        assert run_with_faults(start(task), batches, random) == oracle(task, *sides), index


@settings(max_examples=40)
@given(histories(), st.sampled_from(WINDOWS))
def test_results_of_a_timestamp_ordered_join_never_fall_from_batch_to_batch(start, oracle, history, window):
    task = make_task(NEAR, window, order="timestamp", workers=3)
    query, reached = start(task), 0
    for left, right, watermark in [*history[1], ((), (), 10**9)]:
        rows = query.batch(left, right) + (query.batch(watermark=watermark) if watermark else [])
        times = [max(row[0], row[3]) for row in rows]
        assert min(times, default=reached) >= reached
        reached = max([reached, *times])
    assert sorted(query.rows, key=repr) == oracle(task, *history[0])
