"""Notes in a checkpoint which job it belongs to, and compares when the job starts again.

A checkpoint holds windows and positions in sources. A job with another predicate, other columns or another sink cannot
use them: Spark would fail during the run, or continue with a result that belongs to neither job. The note is a file
beside Spark's own.

The state also depends on how rows are spread. If the job file leaves that open, the note keeps the choice, so that the
job keeps it on another machine, or with a version that would choose differently.

A power failure can leave the last entry of a log half written. Spark then refuses the checkpoint; `mend` removes the
entry, so that its micro-batch runs again.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from streamjoin.plan.hot_keys import from_json, to_json
from streamjoin.semantics.errors import StreamJoinError
from streamjoin.semantics.windows import Interval, RowWindow, TimeWindow, Window
from streamjoin.spark.checkpoint.exchange import settle
from streamjoin.spark.checkpoint.folder import Folder, log_entries
from streamjoin.spark.hot_keys import SAMPLE
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.join_table import JoinTable
from streamjoin.spark.job.loaded import LoadedJob
from streamjoin.spark.job.shown import without_credentials
from streamjoin.spark.job.sinks import FilesSink
from streamjoin.spark.job.source_table import SourceTable
from streamjoin.spark.job.tables import flattened
from streamjoin.spark.join.task import OPTIONAL

RECORD = "streamjoin-job.json"
SPARK_METADATA = "metadata"  # Spark writes this file when a query has started
TRIAL = "_streamjoin_trial"  # readers of the sink skip names with an underscore
SINK_LOG = "_spark_metadata"  # a files sink lists here the files of every micro-batch
# These keys must not change. Limits, servers and options may.
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
SINK_KEYS = ("path", "format", "partition_by", "topic", "table", "key")
# Keys of how rows are spread, and the value that stands for a choice that was not noted.
SPREAD = {
    "join.workers": "null",
    "join.partitioning": "auto",
}
HOT_KEYS = "join.hot_keys"  # the table of hot keys, if there are any
COLUMN_KEYS = ("left.columns", "right.columns")  # older notes lack them; the state has the columns, too


class CheckpointError(StreamJoinError, RuntimeError):
    """The checkpoint belongs to another job or to a run that has not ended, or it or the sink cannot be written."""


def refused(job: Job, why: str) -> CheckpointError:
    """An error about `run.checkpoint`; `why` completes the sentence."""
    return CheckpointError(
        job.without_secrets(f"run.checkpoint of {job.path} is {job.run.checkpoint!r}, {why}"),
        field="run.checkpoint",
        given=job.run.checkpoint and job.without_secrets(job.run.checkpoint),
        allowed="a folder with the state of this job, or an empty one",
    )


def sink_refused(job: Job, name: str, sink: FilesSink, why: str) -> CheckpointError:
    """An error about `sink.path` or `late.path`; `why` completes the sentence."""
    return CheckpointError(
        job.without_secrets(f"{name}.path of {job.path} is {sink.path!r}, {why}"),
        field=f"{name}.path",
        given=job.without_secrets(sink.path),
        allowed="a folder that this job alone writes",
    )


def identity(job: Job) -> dict[str, str]:
    """The parts of a job file that must not change while its checkpoint is used, by dotted key. Credentials are left
    out, because this is written to the checkpoint and they may change."""
    join: dict[str, Any] = {name: getattr(job.join, name) for name in JoinTable.model_fields}
    del join["lateness"], join["index"]  # the state does not depend on them
    del join["hot_keys"]  # the note has the workers of each hot key instead (HOT_KEYS)
    for name in OPTIONAL:  # older notes have none of them
        if join[name] == OPTIONAL[name]:
            del join[name]
        else:
            join[name] = str(join[name])
    windows = join["window"] if isinstance(join["window"], tuple) else (join["window"], join["window"])
    join["window"] = [described_window(window) for window in windows]
    found: dict[str, Any] = {
        "join": join,
        **{name: kept(sink, SINK_KEYS) for name, sink in job.sinks.items()},
    }
    for side in ("left", "right"):
        sources = {f"source[{at}]": of_source(each) for at, each in enumerate(job.side(side).sources)}
        found[side] = {"time": job.side(side).time, **sources}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in flattened(found)}
    return {key: without_credentials(text) for key, text in texts.items()}


def columns_of(loaded: LoadedJob) -> dict[str, str]:
    """The names and types of both sides' columns, which must not change either. `select` itself may change."""
    return {f"{side}.columns": frame.schema.simpleString() for side, frame in loaded.frames.items()}


def hot_keys_in(loaded: LoadedJob) -> dict[str, str]:
    """The hot keys and their workers, which must not change: they decide where rows are in the state."""
    return {HOT_KEYS: to_json(loaded.hot_keys)} if loaded.hot_keys else {}


def with_recorded_hot_keys(loaded: LoadedJob, before: dict[str, str]) -> LoadedJob:
    """The job with the hot keys that the checkpoint keeps. Raise if the file lists others."""
    hot, listed = from_json(before.get(HOT_KEYS, "[]")), loaded.job.join.hot_keys
    if listed is None or listed == SAMPLE or loaded.task.routing.hot == hot:
        return replace(loaded, hot_keys=hot)
    names = ", ".join(key.share.name for key in hot)
    raise refused(
        loaded.job,
        f"whose state has rows spread for {f'the hot keys {names}' if hot else 'no hot keys'}, and join.hot_keys lists "
        "others: leave the key out to keep them, or give another run.checkpoint and another place for the results",
    )


def described_window(window: Window) -> str:
    kind = {TimeWindow: "time", RowWindow: "rows", Interval: "interval"}[type(window)]
    return f"{kind} {', '.join(str(value) for value in asdict(window).values())}"


def of_source(source: SourceTable) -> dict[str, Any]:
    return {**kept(source, SOURCE_KEYS), "schema": source.columns.simpleString()}


def kept(part: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return {"kind": part.kind, **{key: getattr(part, key) for key in keys if hasattr(part, key)}}


def claim(loaded: LoadedJob) -> tuple[LoadedJob, bool]:
    """Note in a new checkpoint that it belongs to the job, or check that an old one does. Return the job with the
    choices that the checkpoint keeps filled in, and whether the query resumes."""
    job, spark = loaded.job, loaded.spark
    if job.run.checkpoint is None:
        return loaded.sampled(), False
    settle(spark, job.run.checkpoint)
    checkpoint = Folder(spark, job.run.checkpoint)
    started = checkpoint.has(SPARK_METADATA)
    if not started:
        refuse_used_sink(spark, job)
        loaded = loaded.settled()
        try_sink(spark, job)
        loaded = loaded.sampled()
        record(checkpoint, job, identity(loaded.job) | columns_of(loaded) | hot_keys_in(loaded))
    elif checkpoint.has(RECORD):
        before = recorded(checkpoint, job)
        loaded = loaded.with_join(continued(job.join, before))
        refuse_changes(job, before, identity(loaded.job) | columns_of(loaded))
        loaded = with_recorded_hot_keys(loaded, before)
        refuse_lost_sink(spark, job)
    else:
        told = "which holds the state of a query that `streamjoin run` did not start: give another folder"
        raise refused(job, told)
    return loaded, started


def record(checkpoint: Folder, job: Job, found: dict[str, str]) -> None:
    """Write the note, before anything else in the checkpoint."""
    try:
        checkpoint.write(RECORD, json.dumps(found, indent=1))
    except Py4JJavaError as error:
        told = f"where nothing can be written: {error.java_exception.getMessage()}"
        raise refused(job, told) from None


def recorded(checkpoint: Folder, job: Job) -> dict[str, str]:
    """Read the note that `record` wrote."""
    try:
        found: dict[str, str] = json.loads(checkpoint.read(RECORD))
    except (ValueError, Py4JJavaError) as error:
        why = str(getattr(error, "java_exception", error)).strip()
        raise refused(
            job,
            f"whose {RECORD} says what job it belongs to, and cannot be read ({why}): put it back from a copy, or "
            "give another run.checkpoint, and another place for the results",
        ) from None
    return found


def continued(join: JoinTable, before: dict[str, str]) -> JoinTable:
    """The join, with the choices that the file leaves open taken from the checkpoint."""
    noted = {key: before.get(key, unknown) for key, unknown in SPREAD.items()}
    left_open: dict[str, Any] = {}
    if join.workers is None:
        left_open["workers"] = json.loads(noted["join.workers"])
    if join.partitioning == "auto":
        left_open["partitioning"] = noted["join.partitioning"]
    return join.model_copy(update=left_open)


def refuse_used_sink(spark: SparkSession, job: Job) -> None:
    """Raise if another query has written to the sink: Spark would take the sink's log for that of the new query, and
    skip as many micro-batches as the log has."""
    for name, sink in job.files_sinks.items():
        if Folder(spark, sink.path).has(SINK_LOG):
            raise sink_refused(
                *(job, name, sink),
                f"which holds the rows of another run, and {job.run.checkpoint!r} is a new checkpoint: give another "
                f"{name}.path, or remove the old rows",
            )


def refuse_lost_sink(spark: SparkSession, job: Job) -> None:
    """Raise if results of finished micro-batches are gone: Spark would start a new log without them, which no reader
    can use."""
    done = Folder(spark, f"{job.run.checkpoint}/commits")
    for name, sink in job.files_sinks.items():
        if log_entries(done) and not log_entries(Folder(spark, f"{sink.path}/{SINK_LOG}")):
            raise sink_refused(
                *(job, name, sink),
                f"which lacks the rows ({SINK_LOG}) that were written there according to {job.run.checkpoint!r}: put "
                "them back to resume, or start anew with another run.checkpoint",
            )


def try_sink(spark: SparkSession, job: Job) -> None:
    """Raise unless files can be written to the sink's folder; otherwise the first micro-batch would fail."""
    for name, sink in job.files_sinks.items():
        folder = Folder(spark, sink.path)
        try:
            folder.write(TRIAL, "")
            folder.remove(TRIAL)
        except Py4JJavaError as error:
            told = f"where nothing can be written: {error.java_exception.getMessage()}"
            raise sink_refused(job, name, sink, told) from None


def refuse_changes(job: Job, before: dict[str, str], now: dict[str, str]) -> None:
    """Raise if another job wrote the checkpoint, and name the differences. What an older note lacks, the state itself
    checks. What may change today is not compared, even if an older note has it."""
    before = {
        key: without_credentials(text)  # older notes contain credentials
        for key, text in before.items()
        if SPREAD.get(key) != text and key != HOT_KEYS and not may_change(key)
    }
    changed = [
        key
        for key in (*now, *(key for key in before if key not in now))
        if before.get(key) != now.get(key) and (key in before or key not in (*SPREAD, *COLUMN_KEYS))
    ]
    if not changed:
        return
    lines = [f"  {key}: was {before.get(key, 'missing')}, is {now.get(key, 'missing')}" for key in changed]
    raise refused(
        job,
        "which holds the windows of another job, or of this one before it was changed:\n"
        + "\n".join(lines)
        + "\nChange it back to resume. To start anew, give another run.checkpoint and another place for the results.",
    )


def may_change(key: str) -> bool:
    return key == "join.index" or key.endswith(".select")


def mend(spark: SparkSession, job: Job) -> int | None:
    """Undo the last micro-batch if one of its log entries is torn. Return its number, None if all entries are whole.

    Spark logs a micro-batch in `offsets` before it runs, in the log of a files sink when its rows are written, and in
    `commits` at the end. Without the entry in `commits` it runs again, on the state before it. Without the entry in
    `offsets` it is planned again, so the sink's entry must go too. Torn entries are removed last, so that an
    interrupted call can be repeated.
    """
    if job.run.checkpoint is None:
        return None
    offsets, commits = (Folder(spark, f"{job.run.checkpoint}/{log}") for log in ("offsets", "commits"))
    sinks = [Folder(spark, f"{sink.path}/{SINK_LOG}") for sink in job.files_sinks.values()]
    torn = {log: number for log in (offsets, commits, *sinks) if (number := torn_at_the_end(log)) is not None}
    if not torn:
        return None
    first = min(torn.values())
    for log in sorted((offsets, commits, *sinks), key=torn.__contains__):
        again = log is commits or first in (torn.get(log), torn.get(offsets))
        for number, name in log_entries(log):
            if number > first or (number == first and again):
                log.remove(name)
    return first


def torn_at_the_end(log: Folder) -> int | None:
    """The number of a log's last entry if it is torn."""
    entries = log_entries(log)
    return entries[-1][0] if entries and is_torn(log, entries[-1][1]) else None


def is_torn(log: Folder, name: str) -> bool:
    """Whether an entry is incomplete. An entry is a version line, then lines of JSON or dashes."""
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
