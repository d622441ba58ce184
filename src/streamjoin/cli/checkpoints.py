"""`streamjoin state` and `streamjoin rescale`: what a job's checkpoint holds, and how it gets other workers."""

from __future__ import annotations

import json
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamjoin.cli.run import RunFailed, size_text
from streamjoin.semantics.errors import StreamJoinError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamjoin.spark.checkpoint.held import JoinState, SideState
    from streamjoin.spark.checkpoint.rescale import Rescaled
    from streamjoin.spark.job.file import Job

T = TypeVar("T")
PARTITIONINGS = ("hash", "range", "matrix")
FIRST_TICK = datetime(1970, 1, 1, tzinfo=UTC)


def run_state(job: Job, master: str | None, console: Console) -> Sequence[JoinState]:
    """What the checkpoint of a job holds. The job may run meanwhile: no lock is taken."""
    from streamjoin.spark.job.rescaling import state_of_job

    return with_spark(job, master, console, (), partial(state_of_job, job))


def run_rescale(
    job: Job, master: str | None, workers: int, partitioning: Any, console: Console
) -> Sequence[Rescaled]:
    """Bring the checkpoint of a job to other workers, under the job's lock."""
    from streamjoin.spark.job.lock import locked
    from streamjoin.spark.job.rescaling import rescale_job

    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    with locked(job, say) as lock:
        try:
            return with_spark(
                *(job, master, console, lock.inherited),
                lambda spark: rescale_job(job, spark, workers, partitioning, say),
            )
        finally:
            lock.release()


def check_partitioning(given: str | None) -> None:
    """Raise unless this names a way to spread rows."""
    if given not in (None, *PARTITIONINGS):
        raise StreamJoinError(
            f"--partitioning is {given!r}: give {', '.join(PARTITIONINGS)}, or leave it out",
            field="--partitioning",
            given=given,
            allowed=PARTITIONINGS,
        )


def with_spark(
    job: Job,
    master: str | None,
    console: Console,
    inherited: Sequence[int],
    ask: Callable[[SparkSession], T],
) -> T:
    """The answer of a session of the job, which is stopped afterwards."""
    from streamjoin.spark.job.failure import FAILURES, why
    from streamjoin.spark.job.session import open_session

    with console.status(Text(f"starting Spark ({master or job.spark.master or 'local'})")):
        spark = open_session(job, master, inherited)
    with stopped_after(spark, FAILURES):
        try:
            return ask(spark)
        except FAILURES as error:
            logging.getLogger(__name__).error("failed\n%s", job.without_secrets(traceback.format_exc()))
            raise RunFailed(
                f"{job.without_secrets(why(error))}\nSpark's log: {job.run.log}; the checkpoint is as it was"
            ) from None


@contextmanager
def stopped_after(spark: SparkSession, failures: Any) -> Iterator[None]:
    """Stop the session at the end; the JVM may have ended before."""
    try:
        yield
    finally:
        with suppress(*failures), warnings.catch_warnings(action="ignore"):
            spark.stop()


def state_json(joins: Sequence[JoinState]) -> str:
    """What a checkpoint holds, as JSON. Times are ticks: microseconds since 1970, or integers."""
    return json.dumps([asdict(join) for join in joins], indent=1)


def state_table(join: JoinState) -> Table:
    """What a checkpoint holds of a join, as a table for a terminal."""
    table = Table(box=None, show_edge=False, pad_edge=False)
    for heading in ("", "rows", "bytes", "runs", "oldest", "newest"):
        table.add_column(heading, justify="left" if not heading else "right")
    for side in ("left", "right"):
        table.add_row(side, *cells(join, join.side(side)))
    for worker in join.workers:
        for side in ("left", "right"):
            table.add_row(f"worker {worker.number}, {side}", *cells(join, getattr(worker, side)))
    return table


def state_heading(join: JoinState) -> str:
    """The line above the table: whose state this is."""
    settings = join.settings
    spread = f", spread by {settings['partitioning']}" if settings else ""
    return (
        f"after micro-batch {join.batch}: state of version {join.version}, {settings.get('workers', 'no')} workers in "
        f"{join.partitions} partitions{spread}\n{settings.get('how', '')} join on {settings.get('on', '')}"
    )


def cells(join: JoinState, side: SideState) -> list[str]:
    times = [shown_time(ticks, join.ticks_are_micros) for ticks in (side.oldest, side.newest)]
    return [f"{side.rows:,}", size_text(side.nbytes), f"{side.runs:,}", *times]


def shown_time(ticks: int | None, micros: bool) -> str:
    """A time as people read it."""
    if ticks is None:
        return ""
    if not micros:
        return str(ticks)
    try:
        return (FIRST_TICK + timedelta(microseconds=ticks)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return f"{ticks} us"


def rescaled_line(done: Rescaled) -> str:
    """What was done to a join, in a line."""
    before = done.before.settings["workers"]
    return (
        f"rescaled from {before} to {done.workers} workers in {done.partitions} partitions: {done.rows:,} rows in "
        f"{done.seconds:.1f} s"
    )
