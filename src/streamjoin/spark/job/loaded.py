"""A job in a running Spark: loads its streams and starts the query.

Reading the file has parsed and planned the join already, unless the columns come from `select`. Then the join is
parsed and planned here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamjoin.page.model import LAST_ROWS
from streamjoin.plan.hot_keys import HotKey
from streamjoin.plan.options import PARTITIONING
from streamjoin.semantics.durations import nanoseconds
from streamjoin.semantics.errors import SpecError, WindowError
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.spark.batch_limit import lift_limit
from streamjoin.spark.hot_keys import SAMPLE, HotKeySample, sampled
from streamjoin.spark.job.file import LATE_COLUMN, Job, join_mistake, spec_of_job, task_of
from streamjoin.spark.job.join_table import JoinTable
from streamjoin.spark.job.sides import SideError
from streamjoin.spark.job.sinks import SinkTable
from streamjoin.spark.job.toml import JobError
from streamjoin.spark.join.hot_keys import with_hot_keys
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.window_join import (
    CASE,
    arrow_schema,
    assemble,
    check_column_names,
    quoted,
    tells_case,
    watermarked,
    with_late,
)


@dataclass(frozen=True)
class LoadedJob:
    """A job, the streams of both sides, and the join of their columns. `hot_keys`: those that a sample has found or a
    checkpoint records; None if neither has been asked."""

    job: Job
    spark: SparkSession
    frames: dict[str, DataFrame]
    spec: JoinSpec
    shows_rows: bool = False  # the last result rows, for a page
    hot_keys: tuple[HotKey, ...] | None = None

    @cached_property
    def task(self) -> JoinTask:
        """The task that the driver sends to the join's workers."""
        workers = self.spark.sparkContext.defaultParallelism
        try:
            task = task_of(self.job.join, self.spec, workers)
            check_column_names(self.spec, task, tells_case(self.spark.conf.get(CASE)))
        except SpecError as error:
            raise refused_join(self.job, error) from None
        if self.hot_keys is not None:
            task = with_hot_keys(task, self.hot_keys)
        if self.job.late is not None:
            task = with_late(task, LATE_COLUMN)
        malformed = [self.job.side(side).malformed for side in SIDES]
        return replace(
            task,
            malformed="drop" if "drop" in malformed else "fail",
            shown_rows=-(-LAST_ROWS // task.routing.workers) if self.shows_rows else 0,
        )

    def with_join(self, join: JoinTable) -> LoadedJob:
        """The same streams with another `[join]` table."""
        return replace(self, job=replace(self.job, join=join))

    def settled(self) -> LoadedJob:
        """The same job, with the number of workers and the partitioning filled in if the file leaves them open."""
        join, routing = self.job.join, self.task.routing
        workers = join.workers or self.spark.sparkContext.defaultParallelism
        partitioning = routing.kind if routing.kind in PARTITIONING else join.partitioning
        return self.with_join(join.model_copy(update={"workers": workers, "partitioning": partitioning}))

    def sampled(self) -> LoadedJob:
        """The same job with its hot keys: those in a sample of its streams, if the file asks for one."""
        if self.job.join.hot_keys != SAMPLE:
            return replace(self, hot_keys=self.task.routing.hot)
        return replace(self, hot_keys=sampled(self.task, self.frames, HotKeySample()))

    def results(self) -> DataFrame:
        """The joined stream, not started."""
        try:
            task, frames = watermarked(
                self.task, self.frames["left"], self.frames["right"], self.job.join.lateness
            )
        except SpecError as error:
            raise refused_join(self.job, error) from None
        return assemble(lift_limit(self.spark, task), frames)

    def start(self) -> StreamingQuery:
        """Start the query; it resumes from its checkpoint if there is one."""
        job = self.job
        writer = self._written(self.results()).outputMode("append")
        if job.sink.kind != "memory":  # the name of that query is the name of its table
            writer = writer.queryName(job.run.name)
        if job.run.checkpoint is not None:
            writer = writer.option("checkpointLocation", job.run.checkpoint)
        if job.run.trigger == "available-now":
            return self._started(writer.trigger(availableNow=True))
        seconds = 0.0 if job.run.trigger == "asap" else float(nanoseconds(job.run.trigger, "trigger")) / 1e9
        return self._started(writer.trigger(processingTime=f"{round(seconds * 1000)} milliseconds"))

    def _started(self, writer: DataStreamWriter) -> StreamingQuery:
        return self.job.sink.started(writer) if self.job.late is None else writer.start()

    def _written(self, results: DataFrame) -> DataStreamWriter:
        """A writer of the results, and of late rows if they have a sink."""
        sink, late = self.job.sink, self.job.late
        if late is None:
            return sink.write(results)
        return results.writeStream.foreachBatch(to_both(sink, late, self.spec.schema.names))


def to_both(sink: SinkTable, late: SinkTable, columns: Sequence[str]) -> Callable[[DataFrame, int], None]:
    """A function that writes the results of a micro-batch, which have these columns, to one sink, and its late rows to
    the other. The rows are computed once, because the second time would update the state again."""

    def write(batch: DataFrame, number: int) -> None:
        is_late = F.col(quoted(LATE_COLUMN))
        batch.persist()
        try:
            sink.write_batch(batch.where(~is_late).select(*map(quoted, columns)), number)
            late.write_batch(batch.where(is_late).drop(LATE_COLUMN), number)
        finally:
            batch.unpersist()

    return write


def load_job(job: Job, spark: SparkSession) -> LoadedJob:
    """Load the streams. A mistake that only Spark can find is reported like those found in the file."""
    frames = {side: _load_side(job, side, spark) for side in SIDES}
    try:
        schemas = {side: arrow_schema(side, frame.schema) for side, frame in frames.items()}
        spec = job.spec
        if spec is None or (spec.left, spec.right) != (schemas["left"], schemas["right"]):
            times = (job.left.time, job.right.time)
            spec = spec_of_job(job.join, schemas["left"], schemas["right"], times)
    except SpecError as error:
        raise refused_join(job, error) from None
    return LoadedJob(job, spark, frames, spec)


def _load_side(job: Job, side: str, spark: SparkSession) -> DataFrame:
    try:
        return job.side(side).load(spark, side, job.join.lateness)
    except SideError as error:
        raise JobError(str(job.path), [(f"{side}.{error.field}", str(error))]) from None
    except WindowError as error:  # the lateness, which the watermarks of several sources need
        raise refused_join(job, error) from None


def refused_join(job: Job, error: SpecError) -> JobError:
    """An error of the join as an error of the job file."""
    return JobError(str(job.path), [join_mistake(error, job.join)])
