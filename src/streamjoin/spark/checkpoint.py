"""Which job a checkpoint belongs to: a record beside Spark's own files, compared when the job starts again.

A checkpoint holds windows and positions in sources. They mean nothing to a job with another predicate, other
columns or another sink, and Spark alone would fail somewhere in the middle, or go on with a result that is
neither the old job's nor the new one's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any, cast

from pyspark.sql import SparkSession

from streamjoin.semantics.errors import StreamJoinError
from streamjoin.semantics.windows import RowWindow, TimeWindow
from streamjoin.spark.job import Job
from streamjoin.spark.sinks import FilesSink
from streamjoin.spark.sources import Input
from streamjoin.spark.tables import flattened

RECORD = "streamjoin-job.json"
SPARK_METADATA = "metadata"  # which Spark writes when a query has started
SINK_LOG = "_spark_metadata"  # in which a files sink notes the files of every micro-batch
# How much is read at once, from which servers and with which options may change; these must not.
SOURCE_KEYS = (
    "path",
    "format",
    "topics",
    "pattern",
    "host",
    "port",
    "rows_per_second",
    "rows_per_batch",
    "seed",
)
SINK_KEYS = ("path", "format", "partition_by", "topic", "key")


class CheckpointError(StreamJoinError, RuntimeError):
    """A checkpoint that belongs to another job."""


def identity(job: Job) -> dict[str, str]:
    """What must stay the same while a checkpoint is used, by dotted key."""
    join: dict[str, Any] = {field.name: getattr(job.join, field.name) for field in fields(job.join)}
    del join["lateness"]  # how long to wait is a matter of the future
    windows = join["window"] if isinstance(join["window"], tuple) else (join["window"], join["window"])
    join["window"] = [described_window(window) for window in windows]
    found: dict[str, Any] = {"join": join, "sink": kept(job.sink, SINK_KEYS)}
    for side in ("left", "right"):
        inputs = getattr(job, side).inputs
        sources = {f"source[{at}]": of_input(each) for at, each in enumerate(inputs)}
        found[side] = {"time": getattr(job, side).time, **sources}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in flattened(found)}


def described_window(window: TimeWindow | RowWindow) -> str:
    kind = "rows" if isinstance(window, RowWindow) else "time"
    return f"{kind} {', '.join(str(value) for value in asdict(window).values())}"


def of_input(each: Input) -> dict[str, Any]:
    columns = each.source.columns
    return {
        **kept(each.source, SOURCE_KEYS),
        "schema": columns.simpleString() if columns is not None else "",
        "select": each.select,
    }


def kept(part: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return {"kind": part.kind, **{key: getattr(part, key) for key in keys if hasattr(part, key)}}


def claim(spark: SparkSession, job: Job) -> bool:
    """Make the job's checkpoint its own, or check that it is. Whether there is something to go on from."""
    if job.run.checkpoint is None:
        return False
    checkpoint, now = Folder(spark, job.run.checkpoint), identity(job)
    started = checkpoint.has(SPARK_METADATA)
    if not started:
        refuse_used_sink(spark, job)
        checkpoint.write(RECORD, json.dumps(now, indent=1))
    elif checkpoint.has(RECORD):
        refuse_changes(job, json.loads(checkpoint.read(RECORD)), now)
    else:
        raise CheckpointError(
            f"run.checkpoint of {job.path} is {job.run.checkpoint!r}, which holds the state of a query that "
            "`streamjoin run` did not start: give another folder"
        )
    return started


def refuse_used_sink(spark: SparkSession, job: Job) -> None:
    """Raise if a new query would write where another has written: Spark takes the sink's log for that of the query,
    and skips as many micro-batches as stand there."""
    if isinstance(job.sink, FilesSink) and Folder(spark, job.sink.path).has(SINK_LOG):
        raise CheckpointError(
            f"sink.path of {job.path} is {job.sink.path!r}, which holds the results of another run, and "
            f"{job.run.checkpoint!r} is a new checkpoint: give another sink.path, or remove the old results"
        )


def refuse_changes(job: Job, before: dict[str, str], now: dict[str, str]) -> None:
    """Raise if the job is not the one that wrote the checkpoint, naming what differs."""
    changed = [
        key for key in (*now, *(key for key in before if key not in now)) if before.get(key) != now.get(key)
    ]
    if not changed:
        return
    lines = [f"  {key}: was {before.get(key, 'missing')}, is {now.get(key, 'missing')}" for key in changed]
    raise CheckpointError(
        "\n".join(
            [
                f"{job.path} has changed since its checkpoint was written, which holds the windows of the old job:",
                *lines,
                f"Change it back to go on. To start anew give another run.checkpoint than {job.run.checkpoint}, "
                "and another place for the results.",
            ]
        )
    )


class Folder:
    """A folder anywhere Spark can write, reached through Hadoop's file systems."""

    def __init__(self, spark: SparkSession, path: str):
        self.jvm = cast(Any, spark._jvm)
        self.path = self.jvm.org.apache.hadoop.fs.Path(path)
        self.files = self.path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def of(self, name: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(self.path, name)

    def has(self, name: str) -> bool:
        return bool(self.files.exists(self.of(name)))

    def read(self, name: str) -> str:
        stream = self.files.open(self.of(name))
        try:
            return str(self.jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        stream = self.files.create(self.of(name), True)
        stream.write(bytearray(text.encode()))
        stream.close()
