"""Rows of a job that cannot be joined: reported with where they came from, or left out and counted, never fatal for
good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.join.test_malformed import BEGIN_OF_TIME, NEAR, counted, rows_of, truth

from streamjoin.spark.job.checkpoint import RECORD, CheckpointError, claim
from streamjoin.spark.job.failure import why
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.kafka_source import KafkaSource
from streamjoin.spark.job.loaded import load_job
from streamjoin.spark.job.progress import ProgressListener

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
def test_a_file_of_csv_is_read_without_records_that_cannot_be_parsed(spark, tmp_path):
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
