"""Which job a checkpoint belongs to: a record beside Spark's own files, compared when the job starts again.

A checkpoint holds windows and positions in sources. They mean nothing to a job with another predicate, other
columns or another sink, and Spark alone would fail somewhere in the middle, or go on with a result that is
neither the old job's nor the new one's.

How rows are spread belongs to the state as well, but a file may leave it open. The record keeps what was chosen then:
a job goes on with it on another machine, or with another version that would choose differently.

A machine that loses power can leave the last entry of a log half written. Spark then refuses the checkpoint; `mend`
takes the entry away, so that its micro-batch is done again.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields, replace
from typing import Any, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from streamjoin.semantics.errors import StreamJoinError
from streamjoin.semantics.windows import RowWindow, TimeWindow
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.shown import without_credentials
from streamjoin.spark.job.sinks import FilesSink
from streamjoin.spark.job.sources import Input
from streamjoin.spark.job.toml import flattened

RECORD = "streamjoin-job.json"
SPARK_METADATA = "metadata"  # which Spark writes when a query has started
TRIAL = "_streamjoin_trial"  # readers of the sink skip names with an underscore
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
SPREAD = {
    "join.workers": "null",
    "join.partitioning": "auto",
}  # and what stands for a choice that was not noted
COLUMNS = ("left.columns", "right.columns")  # not in older records; the state knows them too


class CheckpointError(StreamJoinError, RuntimeError):
    """A checkpoint of another job, or of a run that has not ended; or it, or the sink, can not be written."""


def refused(job: Job, why: str) -> CheckpointError:
    """An error that names the file and the key; `why` is the rest of the sentence."""
    return CheckpointError(
        job.without_secrets(f"run.checkpoint of {job.path} is {job.run.checkpoint!r}, {why}")
    )


def sink_refused(job: Job, sink: FilesSink, why: str) -> CheckpointError:
    """The same for the folder of the results."""
    return CheckpointError(job.without_secrets(f"sink.path of {job.path} is {sink.path!r}, {why}"))


def identity(job: Job) -> dict[str, str]:
    """What must stay the same while a checkpoint is used, by dotted key, as far as the file alone tells it. It is
    written to the checkpoint, so that it has no credentials; these may change."""
    join: dict[str, Any] = {field.name: getattr(job.join, field.name) for field in fields(job.join)}
    del join["lateness"], join["index"]  # how long to wait, and how to search, are matters of the future
    windows = join["window"] if isinstance(join["window"], tuple) else (join["window"], join["window"])
    join["window"] = [described_window(window) for window in windows]
    found: dict[str, Any] = {"join": join, "sink": kept(job.sink, SINK_KEYS)}
    for side in ("left", "right"):
        inputs = getattr(job, side).inputs
        sources = {f"source[{at}]": of_input(each) for at, each in enumerate(inputs)}
        found[side] = {"time": getattr(job, side).time, **sources}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in flattened(found)}
    return {key: without_credentials(text) for key, text in texts.items()}


def columns_of(job: Job, spark: SparkSession) -> dict[str, str]:
    """The names and types of both sides' columns, which must stay the same as well; `select` itself may change."""
    return {key: job.loaded(key.partition(".")[0], spark).schema.simpleString() for key in COLUMNS}


def described_window(window: TimeWindow | RowWindow) -> str:
    kind = "rows" if isinstance(window, RowWindow) else "time"
    return f"{kind} {', '.join(str(value) for value in asdict(window).values())}"


def of_input(each: Input) -> dict[str, Any]:
    return {**kept(each.source, SOURCE_KEYS), "schema": each.source.columns.simpleString()}


def kept(part: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return {"kind": part.kind, **{key: getattr(part, key) for key in keys if hasattr(part, key)}}


def claim(spark: SparkSession, job: Job) -> tuple[Job, bool]:
    """Make the job's checkpoint its own, or check that it is. The job with nothing left open that the checkpoint
    settles, and whether there is something to go on from."""
    if job.run.checkpoint is None:
        return job, False
    checkpoint = Folder(spark, job.run.checkpoint)
    started = checkpoint.has(SPARK_METADATA)
    if not started:
        refuse_used_sink(spark, job)
        job = job.settled(spark)
        try_sink(spark, job)
        record(checkpoint, job, identity(job) | columns_of(job, spark))
    elif checkpoint.has(RECORD):
        before = recorded(checkpoint, job)
        job = continued(job, before)
        refuse_changes(job, before, identity(job) | columns_of(job, spark))
        refuse_lost_sink(spark, job)
    else:
        told = "which holds the state of a query that `streamjoin run` did not start: give another folder"
        raise refused(job, told)
    return job, started


def record(checkpoint: Folder, job: Job, found: dict[str, str]) -> None:
    """Write whose checkpoint it is: the first thing that is written there."""
    try:
        checkpoint.write(RECORD, json.dumps(found, indent=1))
    except Py4JJavaError as error:
        told = f"where nothing can be written: {error.java_exception.getMessage()}"
        raise refused(job, told) from None


def recorded(checkpoint: Folder, job: Job) -> dict[str, str]:
    """What `record` wrote."""
    try:
        found: dict[str, str] = json.loads(checkpoint.read(RECORD))
    except (ValueError, Py4JJavaError) as error:
        why = str(getattr(error, "java_exception", error)).strip()
        raise refused(
            job,
            f"whose {RECORD} says what job it belongs to, and can not be read ({why}): put it back from a copy, or "
            "give another run.checkpoint, and another place for the results",
        ) from None
    return found


def continued(job: Job, before: dict[str, str]) -> Job:
    """The job with what it leaves open as the checkpoint has it."""
    join, noted = job.join, {key: before.get(key, unknown) for key, unknown in SPREAD.items()}
    workers = json.loads(noted["join.workers"]) if join.workers is None else join.workers
    left_open: Any = {"workers": workers}
    if join.partitioning == "auto":
        left_open["partitioning"] = noted["join.partitioning"]
    return replace(job, join=replace(join, **left_open))


def refuse_used_sink(spark: SparkSession, job: Job) -> None:
    """Raise if a new query would write where another has written: Spark takes the sink's log for that of the query,
    and skips as many micro-batches as stand there."""
    if isinstance(job.sink, FilesSink) and Folder(spark, job.sink.path).has(SINK_LOG):
        raise sink_refused(
            job,
            job.sink,
            f"which holds the results of another run, and {job.run.checkpoint!r} is a new checkpoint: give another "
            "sink.path, or remove the old results",
        )


def refuse_lost_sink(spark: SparkSession, job: Job) -> None:
    """Raise if the results of micro-batches that are done are gone: Spark would begin a log without them, which no
    reader can use."""
    if not isinstance(job.sink, FilesSink):
        return
    done, written = f"{job.run.checkpoint}/commits", f"{job.sink.path}/{SINK_LOG}"
    if log_entries(Folder(spark, done)) and not log_entries(Folder(spark, written)):
        raise sink_refused(
            job,
            job.sink,
            f"which lacks the results ({SINK_LOG}) that were written there according to {job.run.checkpoint!r}: put "
            "them back to go on, or start anew with another run.checkpoint",
        )


def try_sink(spark: SparkSession, job: Job) -> None:
    """Raise unless files can be written where the results go; otherwise the first micro-batch would find out."""
    if isinstance(job.sink, FilesSink):
        folder = Folder(spark, job.sink.path)
        try:
            folder.write(TRIAL, "")
            folder.remove(TRIAL)
        except Py4JJavaError as error:
            told = f"where nothing can be written: {error.java_exception.getMessage()}"
            raise sink_refused(job, job.sink, told) from None


def refuse_changes(job: Job, before: dict[str, str], now: dict[str, str]) -> None:
    """Raise if the job is not the one that wrote the checkpoint, naming what differs. What was not noted is left to the
    state, which knows it; what may change now, though older records note it, is not compared."""
    before = {
        key: without_credentials(text)  # which older records have
        for key, text in before.items()
        if SPREAD.get(key) != text and not may_change(key)
    }
    changed = [
        key
        for key in (*now, *(key for key in before if key not in now))
        if before.get(key) != now.get(key) and (key in before or key not in (*SPREAD, *COLUMNS))
    ]
    if not changed:
        return
    lines = [f"  {key}: was {before.get(key, 'missing')}, is {now.get(key, 'missing')}" for key in changed]
    raise refused(
        job,
        "which holds the windows of another job, or of this one before it was changed:\n"
        + "\n".join(lines)
        + "\nChange it back to go on. To start anew give another run.checkpoint, and another place for the results.",
    )


def may_change(key: str) -> bool:
    return key == "join.index" or key.endswith(".select")


def mend(spark: SparkSession, job: Job) -> int | None:
    """Take back the last micro-batch if one of its log entries is torn; its number, None if all are whole.

    Spark notes a micro-batch in `offsets` before it runs, in the log of a files sink when its rows are there, and in
    `commits` at the end. Without the last note it runs again, on the state before it. Without the first it is planned
    again, and what the sink holds of it may not count. Torn entries go last: whatever ends this, it can be done again.
    """
    if job.run.checkpoint is None:
        return None
    offsets, commits = (Folder(spark, f"{job.run.checkpoint}/{log}") for log in ("offsets", "commits"))
    sink = [Folder(spark, f"{job.sink.path}/{SINK_LOG}")] if isinstance(job.sink, FilesSink) else []
    torn = {log: number for log in (offsets, commits, *sink) if (number := torn_at_the_end(log)) is not None}
    if not torn:
        return None
    first = min(torn.values())
    for log in sorted((offsets, commits, *sink), key=torn.__contains__):
        again = log is commits or first in (torn.get(log), torn.get(offsets))
        for number, name in log_entries(log):
            if number > first or (number == first and again):
                log.remove(name)
    return first


def log_entries(log: Folder) -> list[tuple[int, str]]:
    """The numbers and names of a log's entries, by number; the sink's log has some that stand for all before them."""
    names = [name for name in log.names() if re.fullmatch(r"\d+(\.compact)?", name)]
    return sorted((int(name.partition(".")[0]), name) for name in names)


def torn_at_the_end(log: Folder) -> int | None:
    """The number of a log's last entry if that is torn."""
    entries = log_entries(log)
    return entries[-1][0] if entries and is_torn(log, entries[-1][1]) else None


def is_torn(log: Folder, name: str) -> bool:
    """Whether an entry breaks off: a version, then objects of JSON, numbers or dashes, a line each."""
    try:
        version, *lines = log.read(name).splitlines() or [""]
        for line in lines:
            if line != "-":
                json.loads(line)
    except ValueError:
        return True
    except Py4JJavaError as error:
        if "ChecksumException" in str(error.java_exception):
            return True
        raise
    return re.fullmatch(r"v\d+", version) is None or not (lines or SINK_LOG in str(log.path))


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

    def names(self) -> list[str]:
        """What lies in it; nothing if there is no such folder."""
        if not self.files.exists(self.path):
            return []
        return [each.getPath().getName() for each in self.files.listStatus(self.path)]

    def remove(self, name: str) -> None:
        self.files.delete(self.of(name), False)

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
