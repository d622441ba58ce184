"""Bring the checkpoint of a stopped query to another number of workers, or to another partitioning.

1. Read the state with Spark's reader, and divide its rows among the new workers (`division.py`): a batch job.
2. Have a query of one micro-batch write them as the state of the new workers (`refill.py`).
3. Make a copy of the checkpoint with that state, compare what it holds with the old one, and exchange the two
   (`exchange.py`).

Nothing is written into the old checkpoint. So the work can be interrupted at any moment and repeated. It takes time and
disk in proportion to the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamjoin.plan.hot_keys import HotKey
from streamjoin.semantics.errors import StreamJoinError
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.built import tasks_in
from streamjoin.spark.checkpoint.division import (
    Division,
    check_hot_keys,
    counted,
    division,
    reached,
    stored_task,
)
from streamjoin.spark.checkpoint.exchange import IDENTITY, MAKING, check_storage, exchange, settle
from streamjoin.spark.checkpoint.folder import Folder
from streamjoin.spark.checkpoint.held import (
    MATCHED,
    RUNS,
    HeldManifest,
    JoinState,
    Operator,
    join_state,
    manifests,
    operators,
    values,
)
from streamjoin.spark.checkpoint.logs import Committed, copy_logs, last_committed, metadata_with_partitions
from streamjoin.spark.checkpoint.refill import OUTPUT, StateWriter
from streamjoin.spark.hot_keys import HOT_KEYS_FOLDER, recorded_hot_keys
from streamjoin.spark.join.carried import carried
from streamjoin.spark.join.pack import PARCEL_COLUMNS
from streamjoin.spark.join.routing import worker_ids
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.sessions import (
    OUR_PARTITIONS,
    SHUFFLE_PARTITIONS,
    is_classic,
    python_of_workers,
)
from streamjoin.spark.state.manifest import StateError

# Settings of the query that writes the state, over those that the old one keeps.
WRITING = {
    # Then its only micro-batch writes a snapshot, which needs none of the versions before it.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    # No second micro-batch for a watermark that advances.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
    "spark.sql.adaptive.enabled": "false",
}
# Values may have hundreds of megabytes: read few at a time.
LARGE_VALUES = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8",
    "spark.sql.parquet.enableVectorizedReader": "false",
}
PARCELS = StructType([*PARCEL_COLUMNS])
Say = Callable[[str], object]


@dataclass(frozen=True)
class Rescaled:
    """What `rescale` has done to one join. `rows`: those of both sides that the state holds now, replicas included.
    `seconds`: how long it took."""

    before: JoinState
    workers: int
    partitions: int
    rows: int
    seconds: float


def rescale(joined: DataFrame, checkpoint: str, say: Say | None = None) -> tuple[Rescaled, ...]:
    """Bring the checkpoint of a stopped query to the `workers` and the `partitioning` that its joins have now. After it
    the query resumes from the checkpoint: no row is lost, and none comes twice.

    `joined`: the DataFrame that the query will write, made by `window_join` with the new numbers; it is not started.
    `say` is called with a line at each step. Returns what was done to each join: nothing if all of them fit already.

    The old checkpoint is replaced at the end, in one step. A call that was interrupted can be repeated. Raises
    `StateError` if the checkpoint belongs to other joins, `StreamJoinError` if the query still runs.

    Example:
        >>> joined = window_join(left, right, on, window="15 minutes", workers=16, ...)  # doctest: +SKIP
        >>> rescale(joined, "/data/checkpoint")  # doctest: +SKIP
        >>> joined.writeStream.option("checkpointLocation", "/data/checkpoint").start()  # doctest: +SKIP
    """
    spark = joined.sparkSession
    if not is_classic(spark):
        raise StreamJoinError(
            "rescale moves files of the checkpoint through Java, which a Spark Connect session does not reach: call it "
            "with a classic session, or use `streamjoin rescale`"
        )
    tasks = tasks_in(joined)
    given, ours = (spark.conf.get(name, None) for name in (SHUFFLE_PARTITIONS, OUR_PARTITIONS))
    chosen = None if given is None or given == ours else int(given)
    partitions = chosen or max(task.routing.workers for task in tasks)
    recorded = recorded_hot_keys(spark, f"{checkpoint}/{HOT_KEYS_FOLDER}") or ()
    return rescale_checkpoint(spark, checkpoint, tasks, partitions, say or (lambda line: None), hot=recorded)


def rescale_checkpoint(
    spark: SparkSession,
    checkpoint: str,
    tasks: Sequence[JoinTask],
    partitions: int,
    say: Say,
    notes: Mapping[str, str] | None = None,
    hot: Sequence[HotKey] = (),
) -> tuple[Rescaled, ...]:
    """Bring a checkpoint to the routing of these tasks. `notes`: files to write into it, by name. `hot`: the hot keys
    that it records."""
    began = time.monotonic()
    settle(spark, checkpoint)
    place = Folder(spark, checkpoint)
    check_storage(place)
    _check_stopped(spark, place)
    last, found = last_committed(place), operators(spark, checkpoint)
    for task in tasks:
        check_hot_keys(task)
    moves = [_Move.of(spark, checkpoint, each, tasks, last, hot) for each in found if each.joins]
    if not moves:
        raise StateError(f"{checkpoint} holds no state of a window join")
    if any(not each.joins for each in found):  # only Spark knows how its own operators spread their keys
        partitions = found[0].partitions
    if all(move.fits(partitions) for move in moves):
        return ()
    making = place.beside(MAKING)
    made = making.below("checkpoint")
    for move in moves:
        move.write(spark, checkpoint, making, partitions, last, say)
    say("copying the rest of the checkpoint")
    made.make()
    copy_logs(place, made, last.batch, partitions)
    _copy_state(place, made, making, found, moves, partitions, last)
    for name, text in (notes or {}).items():
        made.write(name, text)
    say("replacing the old checkpoint")
    exchange(place, made)
    making.remove_all()
    return tuple(move.result(partitions, time.monotonic() - began) for move in moves)


def _check_stopped(spark: SparkSession, place: Folder) -> None:
    """Raise if the query runs in this process."""
    if not place.has(IDENTITY):
        raise StateError(f"{place} is not the checkpoint of a query: it has no file {IDENTITY!r}")
    identity = place.read(IDENTITY)
    running = [query for query in spark.streams.active if query.id in identity]
    if running:
        raise StreamJoinError(
            f"the query {running[0].name or running[0].id} runs from {place}: stop it first"
        )


@dataclass
class _Move:
    """A join whose state is to be written anew."""

    operator: Operator
    held: list[HeldManifest]
    old: JoinTask
    new: JoinTask
    spark_ms: int
    written: int = 0

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        checkpoint: str,
        operator: Operator,
        tasks: Sequence[JoinTask],
        last: Committed,
        hot: Sequence[HotKey],
    ) -> _Move:
        held = manifests(spark, checkpoint, operator)
        if not held:
            raise StateError(
                f"{checkpoint} holds no rows yet: start a new query with the number of workers you want"
            )
        settings, refused = held[0].values["join"], None
        for task in tasks:
            try:
                return cls(operator, held, stored_task(task, settings, hot), task, last.spark_ms)
            except StateError as error:
                refused = refused or error
        assert refused is not None
        raise refused

    def fits(self, partitions: int) -> bool:
        """Whether the state is as it is wanted already."""
        return self.old.routing == self.new.routing and self.operator.partitions == partitions

    def state(self, making: Folder) -> Folder:
        """Where the state is written."""
        return making.below(f"written {self.operator.number}")

    def write(
        self, spark: SparkSession, checkpoint: str, making: Folder, partitions: int, last: Committed, say: Say
    ) -> None:
        before, new = join_state(self.operator, self.held), self.new.routing
        rows = sum(before.side(side).rows for side in SIDES)
        say(
            f"dividing {rows:,} rows of {self.old.routing.workers} workers ({self.old.routing.describe()}) among "
            f"{new.workers} ({new.describe()})"
        )
        parcels = making.below(f"parcels {self.operator.number}")
        cut = division(self.old, self.new, self.held)
        counted = divide(spark, checkpoint, self.operator, cut, str(parcels))
        say(f"writing the state of {new.workers} workers in {partitions} partitions")
        writer = StateWriter(self.new, reached(self.held, last.spark_ms))
        conf = {**last.conf, **WRITING, SHUFFLE_PARTITIONS: str(partitions)}
        written = write_states(spark, writer, str(parcels), str(self.state(making)), conf)
        if counted != written:
            raise StateError(
                f"of {counted} rows (left, right) only {written} were written: this is a mistake of streamjoin, please "
                "report it; the checkpoint is as it was"
            )
        self.written = sum(written)

    def result(self, partitions: int, seconds: float) -> Rescaled:
        before = join_state(self.operator, self.held)
        return Rescaled(before, self.new.routing.workers, partitions, self.written, seconds)


def divide(
    spark: SparkSession, checkpoint: str, operator: Operator, cut: Division, to: str
) -> tuple[int, ...]:
    """Write the parcels of a join's new workers to a folder; return how many rows of each side they have."""
    session = session_with(spark, LARGE_VALUES)
    kinds = [RUNS, *([MATCHED] if cut.old.kept else [])]
    stored = [values(session, checkpoint, operator.number, kind) for kind in kinds]
    columns = ["key.worker AS worker", "user_map_key.number AS number", "user_map_value.data AS data"]
    frames = [
        frame.selectExpr(*columns, f"'{kind}' AS kind") for frame, kind in zip(stored, kinds, strict=True)
    ]
    rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    keys = session.createDataFrame([*cut.runs], "worker INT, number BIGINT") if cut.runs else None
    empty = session.createDataFrame([(key, -1, None) for key in worker_ids(cut.new.routing.workers)], PARCELS)
    if keys is None:
        empty.write.mode("overwrite").parquet(to)
        return 0, 0
    wanted = rows.join(F.broadcast(keys), ["worker", "number"])
    with python_of_workers(session):
        made = wanted.groupBy("worker", "number").applyInArrow(carried(cut.parcels), PARCELS)
        made.unionByName(empty).write.mode("overwrite").parquet(to)
    return count_rows(session, to)


def count_rows(spark: SparkSession, parcels: str) -> tuple[int, ...]:
    """The rows of each side in parcels."""
    with python_of_workers(spark):
        sizes = (
            spark.read.parquet(parcels)
            .where("side >= 0")
            .mapInArrow(carried(counted), "side INT, rows BIGINT")
        )
    found = {
        row["side"]: row["rows"] for row in sizes.groupBy("side").agg(F.sum("rows").alias("rows")).collect()
    }
    return tuple(found.get(number, 0) for number in range(len(SIDES)))


def write_states(
    spark: SparkSession, writer: StateWriter, parcels: str, to: str, conf: Mapping[str, str]
) -> tuple[int, ...]:
    """Write the state of all new workers, in a query of one micro-batch whose checkpoint is `to`; return how many rows
    of each side they were given."""
    session = session_with(spark, {**conf, **LARGE_VALUES})
    stream = session.readStream.schema(PARCELS).parquet(parcels)
    # Timers of event time need a watermark, which drops no row of the first micro-batch after 1970.
    timed = stream.withColumn("time", F.timestamp_millis(F.lit(1000))).withWatermark("time", "0 seconds")
    with python_of_workers(session):
        written = timed.groupBy("worker").transformWithStateInPandas(
            writer, OUTPUT, outputMode="Append", timeMode="EventTime"
        )
        counts = f"{to} counts"
        query = written.writeStream.format("parquet").option("path", counts).option("checkpointLocation", to)
        query.trigger(availableNow=True).start().awaitTermination()
    found = session.read.parquet(counts).agg(*(F.sum(side) for side in SIDES)).collect()[0]
    return tuple(int(count or 0) for count in found)


def session_with(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Another session of the same Spark, with these settings."""
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def _copy_state(
    place: Folder,
    made: Folder,
    making: Folder,
    found: Sequence[Operator],
    moves: Sequence[_Move],
    partitions: int,
    last: Committed,
) -> None:
    """Put the state of all operators into the new checkpoint, as the version that its next micro-batch starts from.
    Spark notes the path of an operator's schema, which stays the old one's: that is where the copy will be."""
    moved = {move.operator.number: move for move in moves}
    for operator in found:
        name = f"state/{operator.number}"
        if operator.number not in moved:
            made.below("state").make()
            place.below("state").copy(str(operator.number), made.below("state"))
            continue
        old, new = place.below(name), made.below(name)
        new.make()
        for entry in old.names():
            if entry.startswith("_"):
                old.copy(entry, new)
        metadata = new.below("_metadata").below("v2")
        for entry in metadata.names():
            metadata.write(entry, metadata_with_partitions(metadata.read(entry), partitions))
        _take_versions(moved[operator.number].state(making).below("state/0"), new, last.batch + 1)


def _take_versions(written: Folder, to: Folder, version: int) -> None:
    """Move the partitions of a state whose only version is 1, and give them another version."""
    for partition in written.names():
        if not partition.isdecimal():
            continue
        written.move(partition, to, partition)
        folder = to.below(partition)
        for name in folder.names():
            if name.startswith("1."):
                folder.move(name, folder, f"{version}{name[1:]}")
