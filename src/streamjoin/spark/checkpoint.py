"""Which job a checkpoint belongs to: a record beside Spark's own files, compared when the job starts again.

A checkpoint holds windows and positions in sources. They mean nothing to a job with another predicate, other
columns or another sink, and Spark alone would fail somewhere in the middle, or go on with a result that is
neither the old job's nor the new one's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from pyspark.sql import SparkSession

from streamjoin.semantics.errors import StreamJoinError
from streamjoin.semantics.windows import RowWindow, TimeWindow
from streamjoin.spark.job import Job
from streamjoin.spark.sources import Input
from streamjoin.spark.tables import flattened

RECORD = "streamjoin-job.json"
SPARK_METADATA = "metadata"  # which Spark writes when a query has started
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
    """Make the job's checkpoint its own, or check that it is. Whether there is something to go on from.

    The folder may be anywhere Spark can write, so it is reached through Hadoop's file systems.
    """
    if job.run.checkpoint is None:
        return False
    jvm, context = spark._jvm, spark.sparkContext._jsc
    assert jvm is not None
    folder = jvm.org.apache.hadoop.fs.Path(job.run.checkpoint)
    files = folder.getFileSystem(context.hadoopConfiguration())
    record = jvm.org.apache.hadoop.fs.Path(folder, RECORD)
    started = files.exists(jvm.org.apache.hadoop.fs.Path(folder, SPARK_METADATA))
    now = identity(job)
    if started:
        if not files.exists(record):
            raise CheckpointError(
                f"run.checkpoint of {job.path} is {job.run.checkpoint!r}, which holds the state of a query that "
                "`streamjoin run` did not start: give another folder"
            )
        refuse_changes(job, json.loads(read_text(jvm, files, record)), now)
    else:
        stream = files.create(record, True)
        stream.write(bytearray(json.dumps(now, indent=1).encode()))
        stream.close()
    return bool(started)


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
                "Change it back to go on, or give another run.checkpoint (or remove this one) to start anew: "
                f"{job.run.checkpoint}",
            ]
        )
    )


def read_text(jvm: Any, files: Any, path: Any) -> str:
    stream = files.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
