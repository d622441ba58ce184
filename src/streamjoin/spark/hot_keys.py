"""Choose the hot keys of a join: those that are given, those that a checkpoint records, or those of a sample.

Rows are placed before any state is read, so all runs of a query must use one table of hot keys. Who samples therefore
names the checkpoint: the first run writes its table there, before the query starts, and later runs read it. A
checkpoint that was started without one has none, and its query continues without hot keys.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streamjoin.plan.hot_keys import HotKey, from_json, to_json
from streamjoin.plan.options import not_allowed
from streamjoin.semantics.errors import SpecError
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.join.carried import carried
from streamjoin.spark.join.hot_keys import (
    KEY_COUNTS_DDL,
    KeyCounts,
    check_divisible,
    counted_columns,
    given_hot_keys,
    hot_keys_of,
    key_counter,
    why_not_divided,
)
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.sessions import python_of_workers

SAMPLE: Literal["sample"] = "sample"
HOT_KEYS_FOLDER = "streamjoin-hot-keys"  # the folder in a checkpoint that holds the table
OFFSETS = "offsets"  # Spark's folder in a checkpoint whose query has started
SAMPLING_CHECKED = 0.2  # look this often whether a sampling query has read enough


@dataclass(frozen=True)
class HotKeySample:
    """Find the hot keys of a join in a sample of its input, once for each checkpoint.

    `checkpoint`: the checkpoint of the query that the join will run in; its first run writes the hot keys there, and
    later runs read them. Streams need it. `rows`: count at most about this many rows of each partition, and stop
    reading streams after twice as many. `seconds`: read streams for at most this long.

    Example:
        >>> sample = HotKeySample("checkpoints/quotes")
        >>> window_join(..., hot_keys=sample)
    """

    checkpoint: str | None = None
    rows: int = 200_000
    seconds: float = 10.0

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise not_allowed("rows", self.rows, "a whole number of rows, at least 1")
        if (
            isinstance(self.seconds, bool)
            or not isinstance(self.seconds, (int, float))
            or not self.seconds > 0
        ):
            raise not_allowed("seconds", self.seconds, "a number of seconds above 0")
        if self.checkpoint is not None and (not isinstance(self.checkpoint, str) or not self.checkpoint):
            raise not_allowed("checkpoint", self.checkpoint, "the folder of a checkpoint, or None")


HotKeys = Sequence[Any] | HotKeySample | Literal["sample"]


def choose_hot_keys(
    task: JoinTask, frames: Mapping[str, DataFrame], wanted: HotKeys | None
) -> tuple[HotKey, ...]:
    """The hot keys of a join as its caller wants them."""
    if wanted is None:
        return ()
    if isinstance(wanted, str) and wanted == SAMPLE:
        wanted = HotKeySample()
    if isinstance(wanted, HotKeySample):
        check_divisible(task, wanted)
        return _sampled_once(task, frames, wanted)
    if isinstance(wanted, (str, bytes)) or not isinstance(wanted, Sequence):
        raise not_allowed("hot_keys", wanted, f"a list of keys, '{SAMPLE}', a HotKeySample, or None")
    return given_hot_keys(task, wanted)


def _sampled_once(
    task: JoinTask, frames: Mapping[str, DataFrame], sample: HotKeySample
) -> tuple[HotKey, ...]:
    if sample.checkpoint is None:
        if frames["left"].isStreaming:
            raise SpecError(
                "hot_keys is a sample without a checkpoint, but a restarted query must find the same hot keys: give "
                "hot_keys=HotKeySample(checkpoint), with the query's checkpointLocation, or list the keys",
                field="hot_keys",
                given=sample,
                allowed="HotKeySample(checkpoint), or a list of keys",
            )
        return sampled(task, frames, sample)
    spark, place = frames["left"].sparkSession, f"{sample.checkpoint}/{HOT_KEYS_FOLDER}"
    if (recorded := recorded_hot_keys(spark, place)) is not None:
        return recorded
    if _exists(spark, f"{sample.checkpoint}/{OFFSETS}"):
        return ()
    found = sampled(task, frames, sample)
    spark.createDataFrame([(to_json(found),)], "value STRING").coalesce(1).write.mode("overwrite").text(place)
    return found


def recorded_hot_keys(spark: SparkSession, place: str) -> tuple[HotKey, ...] | None:
    """The table that an earlier run wrote; None if none has finished writing one."""
    try:
        lines = spark.read.text(place).collect()
    except AnalysisException:
        return None
    with contextlib.suppress(ValueError):
        return from_json(lines[0][0] if lines else "")
    return None


def _exists(spark: SparkSession, place: str) -> bool:
    try:
        return bool(spark.read.format("binaryFile").load(place).select("path").take(1))
    except AnalysisException:
        return False


def sampled(task: JoinTask, frames: Mapping[str, DataFrame], sample: HotKeySample) -> tuple[HotKey, ...]:
    """The hot keys of a sample: the first rows of every partition of two tables, or what two streams give at first.
    Runs a Spark job, or for streams a query of its own."""
    if why_not_divided(task):
        return ()
    spark = frames["left"].sparkSession
    counts = KeyCounts()
    with python_of_workers(spark):
        counted = _counted(task, frames, "left", sample).unionByName(_counted(task, frames, "right", sample))
        for side, key, rows, name in (
            _of_streams(counted, sample) if frames["left"].isStreaming else counted.collect()
        ):
            counts.add(SIDES[side], key, rows, name)
    return hot_keys_of(task, counts.shares())


def _counted(task: JoinTask, frames: Mapping[str, DataFrame], side: str, sample: HotKeySample) -> DataFrame:
    names = counted_columns(task, side)
    read = [F.col("`" + name.replace("`", "``") + "`").alias(f"column {n}") for n, name in enumerate(names)]
    return (
        frames[side].select(*read).mapInArrow(carried(key_counter(task, side, sample.rows)), KEY_COUNTS_DDL)
    )


def _of_streams(counted: DataFrame, sample: HotKeySample) -> list[Any]:
    """The counts of the first micro-batches, which a query without a checkpoint of ours keeps in memory."""
    spark, name = counted.sparkSession, f"streamjoin_sample_{uuid.uuid4().hex}"
    query = counted.writeStream.format("memory").queryName(name).outputMode("append").start()
    try:
        _wait_for_rows(query, 2 * sample.rows, time.monotonic() + sample.seconds)
    finally:
        query.stop()
        rows = spark.table(name).collect()
        spark.catalog.dropTempView(name)
    return rows


def _wait_for_rows(query: StreamingQuery, enough: int, end: float) -> None:
    """Wait until a query has read enough rows or all there are, or the time is over. Raises what stopped the query."""
    while time.monotonic() < end:
        time.sleep(SAMPLING_CHECKED)
        if not query.isActive:
            query.awaitTermination(1)
            return
        status, read = query.status, sum(each.numInputRows for each in query.recentProgress)
        if read >= enough:
            return
        if read and not status["isTriggerActive"] and not status["isDataAvailable"]:
            return
