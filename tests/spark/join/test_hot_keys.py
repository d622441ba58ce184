"""Hot keys: their rows are divided among workers, the results stay the same, and every run uses the same table."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from spark_runs import EQUAL, histories, long_history, make_task, run, run_with_faults
from streamjoin.plan.explain import explain_plan
from streamjoin.plan.hot_keys import KeyShare
from streamjoin.plan.options import STREAM_ORDERS
from streamjoin.semantics.spec import SIDES
from streamjoin.spark import HotKeySample, window_join
from streamjoin.spark.hot_keys import HOT_KEYS_FOLDER, choose_hot_keys
from streamjoin.spark.join.hot_keys import (
    KeyCounts,
    given_hot_keys,
    hot_keys_of,
    key_counter,
    key_names,
    with_hot_keys,
)
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.pack import divided, equality_hashes
from streamjoin.spark.join.task import END_OF_TIME, TIE, JoinTask
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state.manifest import MemoryStore, State
from streamjoin.spark.window_join import make_task as plan_task
from streamjoin.spark.window_join import with_late

DIVIDED = ["inner", "left", "right", "semi", "anti"]


def hot_task(*keys: Any, workers: int = 4, **given: Any) -> JoinTask:
    """A join on x with these hot keys."""
    task = make_task(EQUAL, workers=workers, **given)
    return with_hot_keys(task, given_hot_keys(task, keys))


# The oracle


@settings(max_examples=60)
@given(
    histories(),
    st.sampled_from([sj.TimeWindow(3), sj.TimeWindow(5, 0), sj.TimeWindow(0)]),
    st.sampled_from(DIVIDED),
    st.sampled_from(STREAM_ORDERS),
    st.integers(2, 6),
)
def test_oracle_with_hot_keys(start, oracle, history, window, how, order, workers):
    sides, batches = history
    task = hot_task(1, 3, window=window, how=how, order=order, workers=workers)
    assert task.routing.divides_keys
    assert run(start(task), batches) == oracle(task, *sides)


@settings(max_examples=20)
@given(
    histories(), st.sampled_from([sj.AsOf(), sj.AsOf("nearest"), sj.Nearest("abs(left.ts - right.ts)", k=2)])
)
def test_oracle_as_of_and_nearest_joins_with_hot_keys(start, oracle, history, keep):
    sides, batches = history
    task = hot_task(1, 2, window=sj.TimeWindow(6), how="left", keep=keep)
    assert run(start(task), batches) == oracle(task, *sides)


@settings(max_examples=20)
@given(histories(), st.sampled_from(DIVIDED))
def test_oracle_late_rows_of_hot_keys_leave_once(start, oracle, history, how):
    sides, batches = history
    task = hot_task(1, 2, how=how)
    query = start(with_late(task, "late"))
    run(query, batches)
    late = [(ts, x, "late") for side in sides for ts, x, _ in side if ts <= 10]
    query.batch(left=late, right=late, watermark=10**9)
    expected = [(*row, None, None, None) for row in late] + [(None, None, None, *row) for row in late]
    assert sorted((row[:-1] for row in query.rows if row[-1]), key=repr) == sorted(expected, key=repr)
    assert query.counts["late"] == 2 * len(late)


@pytest.mark.parametrize("how", DIVIDED)
def test_differential_many_micro_batches_with_faults(start, oracle, own_cache, how):
    random = Random(how)
    task = hot_task(1, 5, window=sj.TimeWindow(40, 15), how=how, workers=3)
    sides, batches = long_history(random, 100)
    assert run_with_faults(start(task), batches, random) == oracle(task, *sides)


# Even work


def worked(task: JoinTask, rows: int, hot: float) -> list[Counts]:
    """What each worker of a join of tables counts; a part of the rows has the key 7, the others differ."""
    random = np.random.default_rng(1)
    parts = {}
    for side in SIDES:
        keys = np.where(random.random(rows) < hot, 7, random.integers(100, 2**31 - 1, rows)).astype(np.int32)
        columns = [np.arange(rows), keys, np.full(rows, "a"), random.integers(-(2**63), 2**63 - 1, rows)]
        names = [*task.spec.side_schema(side).names, TIE]
        batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names)
        parts[side] = divided(task, side, batch if task.tied else batch.drop_columns([TIE]))
    found = []
    for number in range(task.routing.workers):
        counts = Counts()
        worker = SparkWorker(task, number, State(task, MemoryStore(), counts), counts)
        batches = {side: [parts[side][number]] for side in SIDES}
        for _ in worker.step(batches, END_OF_TIME):
            pass
        found.append(counts)
    return found


@pytest.mark.parametrize("how", ["inner", "left", "right"])
def test_a_key_with_99_percent_of_the_rows_gives_even_work(how):
    """Of four workers, none has more than 1.5 times the mean of rows and of matches."""
    given = {"window": sj.TimeWindow(50), "how": how}
    alone = worked(make_task(EQUAL, workers=4, **given), 20_000, 0.99)
    even = worked(hot_task(7, **given), 20_000, 0.99)
    for name in ("rows_in", "candidates", "matches"):
        before, now = ([getattr(counts, name) for counts in found] for found in (alone, even))
        assert max(now) <= 1.5 * np.mean(now) and max(before) >= 3 * np.mean(before), name
    assert sum(counts.matches for counts in alone) == sum(counts.matches for counts in even)


# Given keys


def keyed_task(on: str, how: Any = "inner", workers: int = 5) -> JoinTask:
    left = pa.schema(
        {
            "ts": pa.int64(),
            "s": pa.string(),
            "x": pa.int16(),
            "p": pa.decimal128(9, 2),
            "t": pa.timestamp("us"),
        }
    )
    right = pa.schema(
        {
            "ts": pa.int64(),
            "a": pa.string(),
            "y": pa.float64(),
            "q": pa.decimal128(9, 2),
            "u": pa.timestamp("us"),
        }
    )
    spec = sj.JoinSpec(left, right, on, sj.TimeWindow(9), "ts", "ts", how)
    return plan_task(spec, "any", "auto", "auto", workers)


MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("on", "key", "left", "right"),
    [
        ("left.s = right.a", "AAPL", {"s": "AAPL"}, {"a": "AAPL"}),
        ("LOWER(left.s) = LOWER(right.a)", "AaPL", {"s": "aapl"}, {"a": "AAPL"}),
        ("left.x + 1 = right.y AND left.ts > right.ts", 6, {"x": 6}, {"y": 7.0}),
        ("left.s = right.a AND left.x = right.y", ("é", 3), {"s": "é", "x": 3}, {"a": "é", "y": 3.0}),
        ("left.p = right.q", "1.50", {"p": "1.5"}, {"q": "1.50"}),
        ("left.t = right.u", MOMENT, {"t": MOMENT}, {"u": MOMENT}),
    ],
)
def test_a_given_key_has_the_hash_of_its_rows(on, key, left, right):
    task = keyed_task(on)
    (hot,) = given_hot_keys(task, [key])
    for side, row in (("left", left), ("right", right)):
        schema = task.spec.side_schema(side)
        values = row | {"ts": 2 if side == "left" else 1}
        columns = [pa.array([values.get(field.name)]).cast(field.type) for field in schema]
        hashes, ok = equality_hashes(task, side, pa.RecordBatch.from_arrays(columns, schema=schema))
        assert ok.all() and hashes.tolist() == [hot.hash]
    assert len(hot.workers) == 4 and hot.share.name == ", ".join(
        map(str, key if isinstance(key, tuple) else [key])
    )


@pytest.mark.parametrize(
    ("on", "how", "keys", "why"),
    [
        (
            "left.s = right.a",
            "full",
            ["A"],
            "hot_keys is .'A'., but a full join must have all rows of a key at one",
        ),
        (
            "left.x < right.y",
            "inner",
            [1],
            "rows are not spread by a hash of equality keys, but by matrix of 1 x 5",
        ),
        (
            "left.s = right.a",
            "inner",
            [None],
            "hot_keys has None; allowed: for each key a value of 's', without NULL",
        ),
        (
            "left.s = right.a AND left.x = right.y",
            "inner",
            ["A"],
            "allowed: for each key a tuple of values of s, x",
        ),
        (
            "left.x = right.y",
            "inner",
            ["many"],
            "the column 'x' of left is of type int16; allowed: values of that",
        ),
    ],
)
def test_keys_that_can_not_be_hot_are_refused(on, how, keys, why):
    with pytest.raises(sj.SpecError, match=why) as refused:
        given_hot_keys(keyed_task(on, how), keys)
    assert refused.value.field == "hot_keys"


@pytest.mark.parametrize("wanted", ["all", 5, {"a": 1}])
def test_other_things_than_keys_are_refused(wanted):
    with pytest.raises(
        sj.SpecError, match=r"hot_keys is .*; allowed: a list of keys, 'sample', a HotKeySample, or None"
    ):
        choose_hot_keys(make_task(EQUAL), {}, wanted)


@pytest.mark.parametrize(
    "given", [{"rows": 0}, {"rows": True}, {"seconds": 0}, {"seconds": "5"}, {"checkpoint": ""}]
)
def test_a_sample_checks_its_settings(given):
    with pytest.raises(sj.SpecError, match=f"{next(iter(given))} is .*; allowed: "):
        HotKeySample(**given)


def test_one_worker_divides_nothing():
    assert given_hot_keys(make_task(EQUAL, workers=1), [1, 2]) == ()
    assert given_hot_keys(make_task(EQUAL), []) == ()


def test_explain_names_hot_keys_and_their_copies():
    text = explain_plan(hot_task(7, 8).plan())
    assert "hash, 2 hot keys (" in text
    assert "hot key 7: 2 x 2 workers (100.0% of left, 100.0% of right)" in text
    assert "left 1, of hot keys up to 2, right 1, of hot keys up to 2" in text
    assert "and 2 more" in explain_plan(hot_task(*range(7)).plan())
    assert "hot" not in explain_plan(make_task(EQUAL).plan())


def test_tasks_without_divided_keys_carry_no_hash_of_rows():
    task = make_task(EQUAL, workers=4)
    pinned = with_hot_keys(task, hot_keys_of(task, [KeyShare(n, 0.06, 0.06) for n in range(16)]))
    assert not task.tied and len(pinned.routing.hot) == 16 and not pinned.tied
    assert hot_task(1).tied and not hot_task(1).ordered


# A checkpoint


def test_state_of_other_hot_keys_is_refused():
    plain, hot, other = make_task(EQUAL, workers=4), hot_task(1), hot_task(1, 2)
    for before, now in ((plain, hot), (hot, plain), (hot, other)):
        store = MemoryStore()
        State(before, store, Counts()).save()
        with pytest.raises(sj.StreamJoinError, match=r"partitioning was 'hash.*' and is now 'hash"):
            State(now, store, Counts())
        State(replace(before), store, Counts())


# Counting


def test_keys_are_counted_on_both_sides_by_their_hash():
    task = keyed_task("LOWER(left.s) = LOWER(right.a)", workers=4)
    assert (key_names(task, "left"), key_names(task, "right")) == (["s"], ["a"])
    counts = KeyCounts()
    left = pa.record_batch({"ts": [1, 2, 3, None, 5], "s": ["A", "a", "b", "a", None]})
    right = pa.record_batch({"ts": [1, 2], "a": ["a", "c"]})
    for side, batch in (("left", left), ("right", right)):
        kind = task.spec.side_schema(side).field("ts").type
        typed = batch.set_column(0, "ts", batch.column("ts").cast(kind))
        for lines in key_counter(task, side, rows=100)(iter([typed])):
            for number, *line in zip(*lines.to_pydict().values(), strict=True):
                counts.add(SIDES[number], *line)
    (hot,) = given_hot_keys(task, ["A"])
    assert counts.totals == {"left": 4, "right": 2}
    share = next(share for share in counts.shares() if share.hash == hot.hash)
    assert (share.left, share.right, share.name) == (0.5, 0.5, "A")
    assert sum(each.left for each in counts.shares()) == 0.75


def test_counting_stops_when_it_has_seen_enough():
    task = keyed_task("left.s = right.a")
    taken = []

    def batches() -> Any:
        for n in range(10):
            taken.append(n)
            yield pa.record_batch({"ts": pa.array([n], pa.int64()), "s": ["a"]})

    list(key_counter(task, "left", rows=3)(batches()))
    assert taken == [0, 1, 2]


# On Spark


def skewed(spark: Any, rows: int = 4000, key: str = "hot") -> dict[str, Any]:
    """Tables of which 99 % of the rows have one key."""
    return {
        side: spark.sql(
            f"SELECT timestamp_millis(1700000000000 + id * 20) AS ts, id, "
            f"if(id % 100 = {at}, concat('k', id % 7), '{key}') AS k FROM range(0, {rows}, 1, 3)"
        )
        for at, side in enumerate(SIDES)
    }


JOINED: dict[str, Any] = {
    "on": "left.k = right.k",
    "window": "100 milliseconds",
    "left_time": "ts",
    "right_time": "ts",
    "workers": 4,
}


def pairs(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(((row["id"], row["id_right"]) for row in frame.collect()), key=repr)


@pytest.mark.parametrize("how", [pytest.param("inner", marks=pytest.mark.slow), "left"])
def test_tables_with_a_sampled_hot_key_give_the_same_rows(spark, how):
    frames = skewed(spark, 1500)
    found = window_join(frames["left"], frames["right"], how=how, hot_keys="sample", **JOINED)
    assert pairs(found) == pairs(window_join(frames["left"], frames["right"], how=how, **JOINED))


def test_a_sample_finds_the_hot_keys_of_tables(spark):
    frames = skewed(spark, 1500)
    schema = pa.schema({"ts": pa.timestamp("us", "UTC"), "id": pa.int64(), "k": pa.string()})
    spec = sj.JoinSpec(schema, schema, "left.k = right.k", sj.TimeWindow("1 second"), "ts", "ts")
    task = plan_task(spec, "any", "auto", "auto", 4)
    (hot,) = choose_hot_keys(task, frames, "sample")
    assert (hot.rows, hot.columns, hot.share.name) == (2, 2, "hot")
    assert hot.share.left == pytest.approx(0.99) and hot.hash == given_hot_keys(task, ["hot"])[0].hash
    even = {
        side: frame.selectExpr("ts", "id", "concat('k', id % 700) AS k") for side, frame in frames.items()
    }
    assert choose_hot_keys(task, even, "sample") == ()


def streamed(spark: Any, folder: Path, hot_keys: Any) -> Any:
    """The same join of streams of files, run to its end."""
    schema = "ts TIMESTAMP, id BIGINT, k STRING"
    frames = [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(folder / side))
        for side in SIDES
    ]
    joined = window_join(*frames, lateness="5 seconds", hot_keys=hot_keys, **JOINED)
    writer = joined.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def workers_rows(query: Any) -> dict[int, int]:
    """How many rows each worker got."""
    found: dict[int, int] = {}
    for progress in query.recentProgress:
        for metrics in progress.observedMetrics.values():
            for each in metrics["workers"] or ():
                found[each["worker"]] = found.get(each["worker"], 0) + each["rows_in"]
    return found


@pytest.mark.slow
def test_streams_sample_once_and_keep_the_hot_keys_of_their_checkpoint(spark, tmp_path):
    frames = skewed(spark, 1500)
    for side, frame in frames.items():
        frame.write.parquet(str(tmp_path / side))
    sample = HotKeySample(str(tmp_path / "checkpoint"))
    counts = list(workers_rows(streamed(spark, tmp_path, sample)).values())
    assert len(counts) == 4 and max(counts) <= 1.5 * np.mean(counts)
    (record,) = (tmp_path / "checkpoint" / HOT_KEYS_FOLDER).glob("part-*.txt")
    table = record.read_text()
    for side, frame in skewed(spark, 300, key="another").items():  # another sample would find another key
        frame.selectExpr("ts + INTERVAL 200 SECONDS AS ts", "id + 10000 AS id", "k").write.mode(
            "append"
        ).parquet(str(tmp_path / side))
    streamed(spark, tmp_path, sample)
    assert record.read_text() == table
    whole = [spark.read.parquet(str(tmp_path / side)) for side in SIDES]
    assert pairs(spark.read.parquet(str(tmp_path / "out"))) == pairs(window_join(*whole, **JOINED))
    next_file(spark, tmp_path)
    with pytest.raises(
        StreamingQueryException, match=r"partitioning was 'hash, 1 hot key .* and is now 'hash'"
    ):
        streamed(spark, tmp_path, None)


def next_file(spark: Any, folder: Path) -> None:
    for side, frame in skewed(spark, 30).items():
        frame.selectExpr("ts + INTERVAL 400 SECONDS AS ts", "id + 20000 AS id", "k").write.mode(
            "append"
        ).parquet(str(folder / side))


@pytest.mark.slow
def test_a_checkpoint_without_hot_keys_continues_without(spark, tmp_path):
    for side, frame in skewed(spark, 300).items():
        frame.write.parquet(str(tmp_path / side))
    streamed(spark, tmp_path, None)
    next_file(spark, tmp_path)
    streamed(spark, tmp_path, HotKeySample(str(tmp_path / "checkpoint")))
    assert not (tmp_path / "checkpoint" / HOT_KEYS_FOLDER).exists()
    whole = [spark.read.parquet(str(tmp_path / side)) for side in SIDES]
    assert pairs(spark.read.parquet(str(tmp_path / "out"))) == pairs(window_join(*whole, **JOINED))


def test_streams_need_a_checkpoint_to_sample(spark):
    stream = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS id", "'a' AS k")
    with pytest.raises(sj.SpecError, match=r"give hot_keys=HotKeySample\(checkpoint\)"):
        window_join(stream, stream, lateness="1 second", hot_keys="sample", **JOINED)
