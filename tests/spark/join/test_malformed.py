"""Rows that cannot be joined, in tables, parcels and state: reported, or left out and counted."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamjoin.plan.options import Options
from streamjoin.plan.routing import Routing
from streamjoin.spark import window_join
from streamjoin.spark.job.failure import query_failure
from streamjoin.spark.join.metrics import Counts, join_metrics, malformed_rows
from streamjoin.spark.join.pack import COUNTED, decode, encode, packer
from streamjoin.spark.join.task import JoinTask, differences
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state.manifest import MemoryStore, State

TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema({"ts": TIME, "x": pa.int32()})
RIGHT = pa.schema({"ts": TIME, "a": pa.int32()})
BEGIN_OF_TIME = datetime(2026, 1, 1, tzinfo=UTC)
EQUAL, NEAR = "left.x = right.a", "abs(left.x - right.a) <= 1"


def truth(
    left: list[dict[str, Any]], right: list[dict[str, Any]], on: str, window: Any
) -> Counter[tuple[Any, ...]]:
    """What the oracle makes of the rows that have a time."""
    first, second = (
        pa.Table.from_pylist([row for row in rows if row.get("ts") is not None], schema)
        for rows, schema in ((left, LEFT), (right, RIGHT))
    )
    spec = sj.JoinSpec(LEFT, RIGHT, on, window, "ts", "ts")
    return counted(sj.oracle.join(first, second, spec).to_pylist())


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def rows_of(name: str, seconds: range) -> list[dict[str, Any]]:
    return [{"ts": BEGIN_OF_TIME + timedelta(seconds=at), name: 7 * at % 10} for at in seconds]


# DataFrames


def frames(
    spark: SparkSession, left: list[dict[str, Any]], right: list[dict[str, Any]]
) -> tuple[DataFrame, DataFrame]:
    first, second = (
        spark.createDataFrame([tuple(row.values()) for row in rows], schema)
        for schema, rows in (("ts TIMESTAMP, x INT", left), ("ts TIMESTAMP, a INT", right))
    )
    return first, second


@pytest.mark.parametrize(
    ("on", "window", "partitioning"),
    [
        (EQUAL, sj.TimeWindow("5 seconds"), "hash"),
        pytest.param(NEAR, sj.TimeWindow("5 seconds"), "range", marks=pytest.mark.slow),
        pytest.param(NEAR, sj.TimeWindow("5 seconds"), "matrix", marks=pytest.mark.slow),
        pytest.param(NEAR, sj.RowWindow(3), "auto", marks=pytest.mark.slow),
    ],
)
def test_tables_are_joined_without_rows_that_have_no_time(spark, on, window, partitioning):
    left, right = rows_of("x", range(20)), rows_of("a", range(20))
    left[3] |= {"ts": None}
    right[0] |= {"ts": None}
    right[7] |= {"ts": None}
    arguments = {
        "window": window,
        "left_time": "ts",
        "right_time": "ts",
        "workers": 2,
        "partitioning": partitioning,
    }
    joined = window_join(*frames(spark, left, right), on, malformed="drop", **arguments)
    assert counted(joined.toArrow().to_pylist()) == truth(left, right, on, window)
    with pytest.raises(PySparkException) as failed:
        window_join(*frames(spark, left, right), on, **arguments).collect()
    told = query_failure(str(failed.value))
    assert "has NULL in 'ts', which is the time: filter such rows out" in told and 'malformed="drop"' in told


def test_what_tables_dropped_is_observed(spark):
    left, right = rows_of("x", range(5)), rows_of("a", range(5))
    right[0] |= {"ts": None}
    left[1] |= {"ts": None}
    left[2] |= {"ts": None}
    joined = window_join(
        *frames(spark, left, right), EQUAL, window="5 s", left_time="ts", right_time="ts", malformed="drop"
    )
    joined.collect()
    observed = joined._jdf.queryExecution().observedMetrics()
    names = observed.keys().mkString(",").split(",")
    assert [(name.endswith("_malformed"), observed.apply(name).getLong(0)) for name in names] == [(True, 3)]


def test_an_unknown_choice_is_refused(spark):
    wrong: Any = "skip"
    left, right = frames(spark, rows_of("x", range(1)), rows_of("a", range(1)))
    with pytest.raises(sj.SpecError, match="malformed is 'skip'; allowed: fail, drop"):
        window_join(left, right, EQUAL, window="5 s", left_time="ts", right_time="ts", malformed=wrong)


# Packing


def task_of(left: pa.Schema = LEFT, malformed: str = "drop") -> JoinTask:
    spec = sj.JoinSpec(left, RIGHT, EQUAL, sj.TimeWindow("100 s"), "ts", "ts")
    return JoinTask(spec, Options(engine="spark"), Routing("hash", 1), malformed=malformed)


def packed(task: JoinTask, *rows: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The rows in the parcels that come of some, and how many are said to be dropped."""
    given = pa.RecordBatch.from_pylist(list(rows), pa.schema([f.with_nullable(True) for f in task.spec.left]))
    parcels = list(packer(task, "left")(iter([given])))
    assert all(parcel.schema == COUNTED for parcel in parcels)
    sent = [
        row
        for parcel in parcels
        for value in parcel.column("rows")
        for row in decode(value.as_buffer()).to_pylist()
    ]
    return sent, sum(sum(parcel.column("malformed").to_pylist()) for parcel in parcels)


def test_only_rows_with_a_time_and_required_values_are_packed():
    plain = LEFT.append(pa.field("n", pa.int32()))
    required = LEFT.append(pa.field("n", pa.int32(), nullable=False))
    good = {"ts": BEGIN_OF_TIME, "x": 1, "n": 5}
    timeless, lacking = good | {"ts": None}, good | {"n": None}
    assert packed(task_of(plain), good, lacking, timeless) == ([good, lacking], 1)
    assert packed(task_of(required), good, lacking, timeless, timeless | {"n": None}) == ([good], 3)
    assert packed(task_of(plain), timeless, timeless) == ([], 2), "worker 0 hears of it all the same"
    with pytest.raises(sj.InputError, match="a row of left has NULL in 'n', which is declared NOT NULL"):
        packed(task_of(required, malformed="fail"), good, lacking)


def test_counts_of_malformed_rows_are_those_of_their_join():
    worker = {name: 1 for name in vars(Counts()) if not name.startswith("_")} | {"worker": 0}
    observed = {
        "streamjoin_1": {"workers": [worker, worker]},
        "streamjoin_1_malformed": {"malformed": 3},
        "streamjoin_2": {"workers": [worker]},
        "streamjoin_left.source_malformed": {"malformed": 4},
        "streamjoin_right.source_malformed": {"malformed": None},
        "of others": {"malformed": 100},
    }
    metrics = join_metrics(observed)
    assert {name: (join["late"], join["malformed"]) for name, join in metrics.items()} == {
        "streamjoin_1": (2, 3),
        "streamjoin_2": (1, 0),
    }
    assert malformed_rows(observed) == 7


# State


def test_a_column_that_could_not_be_null_may_become_one_that_can(own_cache):
    exact = pa.schema([pa.field("ts", TIME, nullable=False), pa.field("x", pa.int32(), nullable=False)])
    store, found = MemoryStore(), []
    for schema, second in ((exact, 0), (LEFT, 1), (LEFT, 2)):
        task, counts = task_of(schema), Counts()
        state = State(task, store, counts)
        left = pa.RecordBatch.from_pylist([{"ts": BEGIN_OF_TIME + timedelta(seconds=second), "x": 1}], schema)
        right = pa.RecordBatch.from_pylist([{"ts": BEGIN_OF_TIME, "a": 1}] if second == 2 else [], RIGHT)
        batches = {"left": [decode(encode(left))], "right": [right]}
        found += [
            row for batch in SparkWorker(task, 0, state, counts).step(batches, 0) for row in batch.to_pylist()
        ]
        state.save()
    assert len(found) == 3
    changed = differences(task_of(LEFT).signature, task_of(exact).signature)
    assert len(changed) == 1 and changed[0].startswith("left was"), "rows with NULL may be in the state"
    wider = pa.schema([LEFT.field("ts"), pa.field("x", pa.int64())])
    assert differences(task_of(exact).signature, task_of(wider).signature)
