"""Every kind of source, and files of every format, in a query of a job file: the rows are what the oracle makes of what
went in. (Kafka has a file of its own; most other tests read and write Parquet.)"""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamjoin.spark.job.file import Job
from streamjoin.spark.job.generated import benchmark_rows
from streamjoin.spark.job.loaded import load_job

pytestmark = pytest.mark.slow

TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema({"ts": TIME, "x": pa.int32(), "name": pa.string()})
RIGHT = pa.schema({"ts": TIME, "a": pa.int32()})
ON, ROWS = "abs(left.x - right.a) <= 1", 40
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
JOB = """
[join]
on = "{on}"
window = "10 seconds"
lateness = "1 hour"
workers = 2
[left]
schema = "ts TIMESTAMP, x INT, name STRING"
source = {{ {left} }}
[right]
schema = "ts TIMESTAMP, a INT"
source = {{ {right} }}
[sink]
{sink}
"""
MEMORY = "kind = 'memory'\ntable = '{}'"
LEFT_ROWS: list[dict[str, Any]] = [
    {"ts": BEGIN + timedelta(seconds=at), "x": 7 * at % 10, "name": f"row; {at}"} for at in range(ROWS)
]
RIGHT_ROWS: list[dict[str, Any]] = [
    {"ts": BEGIN + timedelta(seconds=at), "a": (7 * at + 1) % 10} for at in range(ROWS)
]


def as_json(rows: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(row, default=datetime.isoformat) for row in rows]


def as_csv(rows: list[dict[str, Any]], separator: str) -> list[str]:
    """Every value in quotes, so that one may hold the separator."""
    return [
        separator.join(f'"{v.isoformat() if isinstance(v, datetime) else v}"' for v in row.values())
        for row in rows
    ]


def oracle() -> Counter[tuple[Any, ...]]:
    spec = sj.JoinSpec(LEFT, RIGHT, ON, sj.TimeWindow("10 seconds"), "ts", "ts")
    left, right = pa.Table.from_pylist(LEFT_ROWS, LEFT), pa.Table.from_pylist(RIGHT_ROWS, RIGHT)
    return counted(sj.oracle.join(left, right, spec))


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def job(folder: Path, left: str, right: str, sink: str, on: str = ON) -> Job:
    path = folder / "job.toml"
    path.write_text(JOB.format(left=left, right=right, sink=sink, on=on))
    return Job.read(path)


def read_until(query: StreamingQuery, rows: int) -> None:
    """Stop the query when it has taken so many rows of its sources, all together."""
    try:
        while sum(progress.numInputRows for progress in query.recentProgress) < rows:
            assert query.isActive, query.exception()
            time.sleep(0.1)
    finally:
        query.stop()


@contextmanager
def serving(lines: list[str]) -> Iterator[int]:
    """A TCP server that sends these lines to every client; returns its port."""
    ended = threading.Event()

    class Tell(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write("".join(f"{line}\n" for line in lines).encode())
            self.wfile.flush()
            ended.wait()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tell) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            ended.set()
            server.shutdown()


def test_sockets_of_json_and_csv(spark: SparkSession, tmp_path: Path) -> None:
    with serving(as_json(LEFT_ROWS)) as left, serving(["no record", *as_csv(RIGHT_ROWS, ",")]) as right:
        read = job(
            tmp_path,
            f"kind = 'socket', host = '127.0.0.1', port = {left}",
            f"kind = 'socket', host = '127.0.0.1', port = {right}, format = 'csv', malformed = 'drop'",
            MEMORY.format("sockets"),
        )
        read_until(load_job(read, spark).start(), 2 * ROWS + 1)
    assert counted(spark.table("sockets").toArrow()) == oracle()


@pytest.mark.parametrize("form", ["csv", "json"])
def test_files_of_csv_and_json_become_files_of_either(spark: SparkSession, tmp_path: Path, form: str) -> None:
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
    lines = ['"the time";"x";"name"', *as_csv(LEFT_ROWS, ";")]
    (tmp_path / "left" / "0.csv").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "right" / "0.json").write_text("".join(f"{line}\n" for line in as_json(RIGHT_ROWS)))
    read = job(
        tmp_path,
        "kind = 'files', path = 'left/*.csv', format = 'csv', header = true, "
        "options = { sep = ';', enforceSchema = true }",
        "kind = 'files', path = 'right', format = 'json'",
        f"kind = 'files'\npath = 'out'\nformat = '{form}'\n"
        "[run]\ntrigger = 'available-now'\ncheckpoint = 'checkpoint'",
    )
    load_job(read, spark).start().awaitTermination()
    columns = "ts TIMESTAMP, x INT, name STRING, ts_right TIMESTAMP, a INT"
    written = spark.read.schema(columns).format(form).load(str(tmp_path / "out"))
    assert counted(written.toArrow()) == oracle()


def test_rates_count_together(spark: SparkSession, tmp_path: Path) -> None:
    rate = "kind = 'rate', rows_per_second = 20, select = ['timestamp AS ts', 'value AS {}']"
    on = "left.x = right.a"
    read = job(tmp_path, rate.format("x"), rate.format("a"), MEMORY.format("rates"), on)
    read_until(load_job(read, spark).start(), 40)
    values = [(row["x"], row["a"]) for row in spark.table("rates").collect()]
    assert len(values) > 10
    assert sorted(values) == [(value, value) for value in range(len(values))]


def generated(spark: SparkSession, side: str, rows: int) -> pa.Table:
    """The first rows of the generator, as one micro-batch has them."""
    frame: DataFrame = benchmark_rows(spark, side, 10, rows, seed=1)
    query = (
        frame.writeStream.format("memory").queryName(f"generated_{side}").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    return spark.table(f"generated_{side}").toArrow()


def test_the_generator_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    source = "kind = 'generator', rows_per_second = 10, rows_per_batch = 150"
    on = "left.x BETWEEN right.a - 500 AND right.a + 500"
    text = JOB.format(
        left=source,
        right=source,
        on=on,
        sink="kind = 'files'\npath = 'out'\n[run]\ntrigger = 'available-now'\ncheckpoint = 'checkpoint'",
    )
    path = tmp_path / "job.toml"
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith("schema")))
    for _ in range(2):
        load_job(Job.read(path), spark).start().awaitTermination()
    left, right = generated(spark, "left", 300), generated(spark, "right", 300)
    spec = sj.JoinSpec(left.schema, right.schema, on, sj.TimeWindow("10 seconds"), "ts", "ts")
    expected = counted(sj.oracle.join(left, right, spec))
    assert len(expected) > 100
    assert counted(spark.read.parquet(str(tmp_path / "out")).toArrow()) == expected
