"""Rows that cannot be joined: reported with where they came from, or left out and counted, never fatal for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamjoin.plan.options import Options
from streamjoin.plan.routing import Routing
from streamjoin.spark import window_join
from streamjoin.spark.job.checkpoint import RECORD, CheckpointError, claim
from streamjoin.spark.job.failure import query_failure, why
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.loaded import load_job
from streamjoin.spark.job.progress import ProgressListener
from streamjoin.spark.job.sources import KafkaSource
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


def test_a_choice_that_is_none_is_told(spark):
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


# Jobs

JOB = """
[join]
on = "abs(left.x - right.a) <= 1"
window = "10 seconds"
lateness = 0
workers = 2
[left]
source = {{ kind = "files", path = "left", format = "json", schema = "{schema}", max_files = 1{more} }}
[right]
source = {{ kind = "files", path = "right", format = "json", schema = "ts TIMESTAMP, a INT", max_files = 1 }}
[sink]
kind = "files"
path = "out"
[run]
trigger = "available-now"
checkpoint = "checkpoint"
"""
WINDOW = sj.TimeWindow("10 seconds")


def write_job(folder: Path, more: str = "", schema: str = "ts TIMESTAMP, x INT") -> Path:
    path = folder / "job.toml"
    path.write_text(JOB.format(more=more, schema=schema))
    return path


def add_file(folder: Path, side: str, number: int, lines: list[str]) -> None:
    """One more file, younger than those before."""
    (folder / side).mkdir(exist_ok=True)
    file = folder / side / f"{number}.json"
    file.write_text("".join(f"{line}\n" for line in lines))
    os.utime(file, (1e9 + number, 1e9 + number))


def as_json(rows: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(row, default=datetime.isoformat) for row in rows]


def run(spark: SparkSession, path: Path) -> bool:
    loaded, resumed = claim(load_job(Job.read(path), spark))
    loaded.start().awaitTermination()
    return resumed


def malformed_of(spark: SparkSession, query: Callable[[], object]) -> int:
    """How many malformed rows a query reports."""
    listener = ProgressListener()
    spark.streams.addListener(listener)
    try:
        query()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    return listener.progress.malformed


def written(spark: SparkSession, folder: Path) -> Counter[tuple[Any, ...]]:
    return counted(spark.read.parquet(str(folder / "out")).toArrow().to_pylist())


def begun(spark: SparkSession, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A job after its first micro-batches, stopped by a row without a time in the file that came next; its rows."""
    left, right = rows_of("x", range(20)), rows_of("a", range(20))
    add_file(folder, "left", 0, as_json(left))
    add_file(folder, "right", 0, as_json(right))
    path = write_job(folder)
    run(spark, path)
    more = rows_of("x", range(20, 30))
    add_file(folder, "left", 1, [*as_json(more[:5]), '{"x": 2}', *as_json(more[5:])])
    add_file(folder, "right", 1, as_json(rows_of("a", range(20, 30))))
    with pytest.raises(StreamingQueryException) as failed:
        run(spark, path)
    told = why(failed.value)
    assert told.startswith(
        f"the query failed: left.source: file://{folder}/left/1.json has a row without a time (ts is NULL)"
    )
    assert 'set malformed = "drop"' in told
    return left + more, right + rows_of("a", range(20, 30))


def test_a_row_without_a_time_is_reported_with_its_file_and_then_dropped_and_counted(spark, tmp_path):
    left, right = begun(spark, tmp_path)
    path = write_job(tmp_path, ', malformed = "drop"')
    assert malformed_of(spark, lambda: run(spark, path)) == 1
    assert written(spark, tmp_path) == truth(left, right, NEAR, WINDOW)


def forget_columns(record: Path) -> str:
    """Write the record as 0.1.0 did, which noted `select` and not its columns; what it was."""
    noted = record.read_text()
    record.with_name(f".{record.name}.crc").unlink()
    older = {key: text for key, text in json.loads(noted).items() if not key.endswith(".columns")}
    record.write_text(json.dumps(older | {"left.source[0].select": "[]", "right.source[0].select": "[]"}))
    return noted


def test_select_may_be_repaired_on_the_checkpoint_that_it_stopped(spark, tmp_path):
    """The windows are kept: rows from before the repair meet rows from after it."""
    left, right = begun(spark, tmp_path)
    noted = forget_columns(tmp_path / "checkpoint" / RECORD)
    repaired = "coalesce(ts, TIMESTAMP '2026-01-01 00:00:25Z') AS ts"
    assert run(spark, write_job(tmp_path, f', select = ["{repaired}", "x"]')), "it resumes"
    left.append({"ts": BEGIN_OF_TIME + timedelta(seconds=25), "x": 2})
    assert written(spark, tmp_path) == truth(left, right, NEAR, WINDOW)
    (tmp_path / "checkpoint" / RECORD).write_text(noted)
    add_file(tmp_path, "left", 2, as_json(rows_of("x", range(30, 35))))
    with pytest.raises(CheckpointError, match=r"left.columns: was struct<ts:timestamp,x:int>, is .*x:bigint"):
        run(spark, write_job(tmp_path, ', select = ["ts", "bigint(x) AS x"]'))
    assert run(spark, write_job(tmp_path, ', select = ["ts", "x + 0 AS x"]'))
    assert written(spark, tmp_path) == truth(left + rows_of("x", range(30, 35)), right, NEAR, WINDOW)


def test_records_that_cannot_be_parsed_or_lack_a_required_value_are_dropped_and_counted(spark, tmp_path):
    """Whatever `select` makes of them; and it sees nothing that is not in the schema."""
    good = rows_of("x", range(10))
    bad = ['{"x": [}', '{"x": 1, "ts": "2026-01-01T00:00:01Z", "must": null}', "{}", '{"must": 1, "x": 5}']
    add_file(tmp_path, "left", 0, [*bad, *as_json([row | {"must": 1} for row in good])])
    add_file(tmp_path, "right", 0, as_json(rows_of("a", range(10))))
    schema = "ts TIMESTAMP, x INT, must INT NOT NULL"
    more = ', select = ["ts", "x", "to_json(struct(*)) AS everything"]'
    path = write_job(tmp_path, f'{more}, malformed = "drop"', schema)
    path.write_text(path.read_text().replace('"out"', '"out"\nformat = "json"'))
    assert malformed_of(spark, lambda: run(spark, path)) == 4
    results = [json.loads(row.value) for row in spark.read.text(str(tmp_path / "out")).collect()]
    assert results and all(json.loads(row["everything"]).keys() == {"ts", "x", "must"} for row in results)
    assert len(results) == truth(good, rows_of("a", range(10)), NEAR, WINDOW).total()


@pytest.mark.slow
def test_a_file_of_csv_is_read_without_what_can_not_be_parsed(spark, tmp_path):
    (tmp_path / "left").mkdir()
    lines = ["time;number", *(f"{row['ts'].isoformat()};{row['x']}" for row in rows_of("x", range(10)))]
    bad = ["2026-01-01T00:00:01Z;five", ";5", "2026-01-01T00:00:01Z"]
    (tmp_path / "left" / "0.csv").write_text("\n".join([*lines, *bad]))
    add_file(tmp_path, "right", 0, as_json(rows_of("a", range(10))))
    path = write_job(tmp_path, ', malformed = "drop", header = true, options = { sep = ";" }')
    path.write_text(path.read_text().replace('"left", format = "json"', '"left", format = "csv"'))
    assert malformed_of(spark, lambda: run(spark, path)) == len(bad)
    assert written(spark, tmp_path) == truth(rows_of("x", range(10)), rows_of("a", range(10)), NEAR, WINDOW)


@pytest.mark.slow
def test_the_command_reports_a_row_without_a_time_and_resumes_without_it(spark, tmp_path):
    """Exit code 1 at every start, until the job file says otherwise."""
    left = rows_of("x", range(20))
    add_file(tmp_path, "left", 0, as_json(left))
    add_file(tmp_path, "right", 0, as_json(rows_of("a", range(20))))
    add_file(tmp_path, "left", 1, ['{"x": 2}'])

    def command(more: str) -> subprocess.CompletedProcess[str]:
        words = [
            sys.executable,
            "-m",
            "streamjoin.cli",
            "run",
            str(write_job(tmp_path, more)),
            "--master",
            "local[2]",
        ]
        return subprocess.run(words, capture_output=True, text=True, timeout=900)

    for _ in range(2):
        failed = command("")
        assert failed.returncode == 1, failed.stderr
        assert f"left.source: file://{tmp_path}/left/1.json has a row without a time" in failed.stderr
    done = command(', malformed = "drop"')
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(", 1 malformed")
    assert written(spark, tmp_path) == truth(left, rows_of("a", range(20)), NEAR, WINDOW)


class Topic(KafkaSource):
    """Records of a topic as a table, without a broker."""

    rows: ClassVar[str] = "struct('t' AS topic, 3 AS partition, 17L AS offset) AS kafka"
    record: ClassVar[str] = ""

    def read_rows(self, spark: SparkSession) -> DataFrame:
        return spark.sql(f"SELECT {self.record}, {self.rows}")


@pytest.mark.parametrize(
    ("record", "select", "told"),
    [
        (
            "'[}' AS _streamjoin_corrupt, TIMESTAMP '2026-01-01' AS ts, 1 AS x",
            (),
            "a record that cannot be parsed",
        ),
        ("TIMESTAMP '2026-01-01' AS ts, int(NULL) AS x", (), "a record with NULL in 'x', which the schema"),
        ("timestamp(NULL) AS ts, 1 AS x", (), "a row without a time (ts is NULL)"),
        (
            "TIMESTAMP '2026-01-01' AS ts, 1 AS x",
            ("nullif(ts, ts) AS ts",),
            "a row without a time (ts is NULL)",
        ),
    ],
)
def test_a_malformed_record_of_kafka_is_reported_with_its_offset(spark, record, select, told):
    given = {"kind": "kafka", "servers": "a:1", "topics": "t", "schema": "ts TIMESTAMP, x INT NOT NULL"}
    source = Topic.model_validate(given | ({"select": select} if select else {}))
    source.__class__.record = record
    rows = source.load(spark, "left.source", "ts")
    with pytest.raises(PySparkException) as failed:
        rows.collect()
    assert f"left.source: topic t, partition 3, offset 17 has {told}" in str(failed.value)
