"""`streamjoin run`: starts a job, shows its progress, stops it cleanly.

Exit codes: 0 when the query ended or was stopped by one Ctrl-C (or SIGTERM), 1 when it failed, 2 when the job
cannot be started as it is written, 130 when a second Ctrl-C ended it. In every case the next run resumes
from the last committed micro-batch.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

import streamjoin as sj
from streamjoin.page.open import open_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streamjoin.spark.job.file import Job
    from streamjoin.spark.job.progress import ProgressListener, QueryProgress

POLL_SECONDS = 1
LINE_SECONDS = 10.0  # between progress lines if the output is not a terminal
OLD_SECONDS = 86_400.0  # a longer lag means that old data is replayed, not that the query is slow


class RunFailed(sj.StreamJoinError, RuntimeError):
    """The query failed while it ran."""


@dataclass(frozen=True)
class FinishedRun:
    """The outcome of a run. `stopped`: it was asked to stop, so there may be more rows to join."""

    progress: QueryProgress
    stopped: bool


def run_job(
    job: Job, master: str | None, console: Console, page: tuple[str, int] | None = None
) -> FinishedRun:
    """Run the job until it ends, fails or is asked to stop; with a page at a host and port, if they are given."""
    from streamjoin.spark.job.failure import FAILURES, why
    from streamjoin.spark.job.lock import locked
    from streamjoin.spark.job.progress import ProgressListener
    from streamjoin.spark.job.session import open_session
    from streamjoin.spark.job.watching import WatchedQuery
    from streamjoin.spark.state.cache import RUN_FILES

    stop, watched = (
        threading.Event(),
        None if page is None else WatchedQuery(job.run.name, job.without_secrets),
    )
    listener = watched or ProgressListener()
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    with (
        stopping(stop, console, "when Spark has started"),
        locked(job, say) as lock,
        ExitStack() as when_stopped,
    ):
        if watched is not None and page is not None:
            say(f"the page is at {when_stopped.enter_context(open_page(watched, *page)).url}")
        with console.status(Text(f"starting Spark ({master or job.spark.master or 'local'})")):
            spark = open_session(job, master, lock.inherited)
        try:
            with stopping(stop, console, "after this micro-batch"):
                if not stop.is_set():
                    query = begin(spark, job, console, listener)
                    when_stopped.callback(RUN_FILES.remove_all_of, query.id)
                    prints = any(sink.kind == "console" for sink in job.sinks.values())
                    watch(query, listener, stop, console, live=not prints)
        except FAILURES as error:
            logging.getLogger(__name__).error(
                "the run failed\n%s", job.without_secrets(traceback.format_exc())
            )
            raise RunFailed(f"{job.without_secrets(why(error))}\nSpark's log: {job.run.log}") from None
        finally:
            with suppress(*FAILURES), warnings.catch_warnings(action="ignore"):  # the JVM may have ended
                spark.stop()  # delivers the last progress event
                lock.release()
    return FinishedRun(listener.progress, stop.is_set())


def begin(spark: SparkSession, job: Job, console: Console, listener: ProgressListener) -> StreamingQuery:
    """Start the query, from its checkpoint if there is one, and report which. The listener hears of this query alone,
    and not of one that takes a sample."""
    from streamjoin.spark.job.checkpoint import claim, mend
    from streamjoin.spark.job.loaded import load_job
    from streamjoin.spark.job.watching import WatchedQuery

    with console.status("starting the query"):
        loaded, resumes = claim(load_job(job, spark))
        began = "resumes from its checkpoint" if resumes else "started"
        if (torn := mend(spark, job)) is not None:
            began += f", whose micro-batch {torn} was only half written and is repeated"
        if isinstance(listener, WatchedQuery):
            loaded = replace(loaded, shows_rows=True)
            listener.begin(loaded.task)
        spark.streams.addListener(listener)
        query = loaded.start()
    text = f"{job.run.name} {began}; Ctrl-C stops it, Spark's log is {job.run.log}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    return query


@contextmanager
def stopping(stop: threading.Event, console: Console, when: str) -> Iterator[None]:
    """The first SIGINT or SIGTERM sets `stop`; the second ends this process, and Spark with it.

    It raises no exception, which would leave a Java process behind while Spark starts.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            console.show_cursor()
            console.file.write("\n")
            console.file.flush()
            os._exit(128 + number)  # Spark's JVM ends when the pipe to us breaks
        stop.set()
        text = f"stopping {when}; Ctrl-C again stops at once and loses nothing either"
        console.print(text, highlight=False, soft_wrap=True)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch(
    query: StreamingQuery, listener: ProgressListener, stop: threading.Event, console: Console, live: bool
) -> None:
    """Show the progress until the query ends; when `stop` is set, let its micro-batch end and stop it."""
    started, shown = time.monotonic(), 0.0
    with Live(console=console, auto_refresh=False, transient=True) as screen:
        while not query.awaitTermination(POLL_SECONDS):
            now = time.monotonic()
            if live and console.is_terminal:
                screen.update(progress_table(listener.progress, now - started), refresh=True)
            elif live and now - shown > LINE_SECONDS and listener.progress.batches:
                shown = now
                console.print(progress_line(listener.progress), highlight=False, soft_wrap=True)
            if stop.is_set():
                end_batch(query)
                query.stop()
                return


def end_batch(query: StreamingQuery) -> None:
    """Wait until the running micro-batch has been committed, or none is running."""

    def committed() -> int:
        return -1 if query.lastProgress is None else query.lastProgress.batchId

    before = committed()
    while query.isActive and query.status["isTriggerActive"] and committed() == before:
        time.sleep(0.02)


def progress_table(progress: QueryProgress, seconds: float) -> Table:
    """The progress as a small table, for a terminal."""
    table = Table(show_header=False, box=None)
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")
    if not progress.batches:
        table.add_row("waiting", f"{seconds:.0f} s", "for the first micro-batch; kernels are compiled once")
        return table
    busy = progress.busy_seconds or 1.0
    table.add_row(
        "rows",
        f"{progress.rows:,}",
        f"{progress.rows_per_second:,.0f}/s; {progress.rows / busy:,.0f}/s on average",
    )
    table.add_row("matches", f"{progress.matches:,}", f"{progress.matches / busy:,.0f}/s")
    each = f"{progress.candidates / progress.matches:,.1f} for a match" if progress.matches else ""
    table.add_row("candidates", f"{progress.candidates:,}", each)
    table.add_row("watermark", watermark_text(progress), lag_text(progress))
    table.add_row("state", f"{progress.state_rows:,} rows", size_text(progress.state_bytes))
    table.add_row(
        "cache",
        f"{progress.cache_hits:,}",
        f"runs found; {progress.cache_misses:,} read back from the state store",
    )
    if progress.behind is not None:
        table.add_row("behind", f"{progress.behind:,}", "rows wait in Kafka")
    if progress.busiest is not None:
        workers = f"of the rows are at one of {len(progress.received)} workers; hot_keys spreads a key's rows"
        table.add_row("uneven", f"{progress.busiest:.0%}", workers)
    if progress.late:
        table.add_row("late", f"{progress.late:,}", "rows came too late to be joined")
    if progress.malformed:
        table.add_row("malformed", f"{progress.malformed:,}", "rows could not be joined and were dropped")
    table.add_row(
        "batches",
        f"{progress.batches:,}",
        f"{progress.batch_seconds:.2f} s; {busy / progress.batches:.2f} s on average, running for {seconds:,.0f} s",
    )
    table.add_row("workers", f"{progress.worker_seconds:.2f} s", worker_text(progress))
    return table


def progress_line(progress: QueryProgress) -> str:
    """The progress as one line, for a log."""
    if not progress.batches:
        return "no micro-batch was run: nothing new has come"
    behind = "" if progress.behind is None else f", {progress.behind:,} behind"
    more = f", {progress.late:,} late" if progress.late else ""
    more += f", {progress.malformed:,} malformed" if progress.malformed else ""
    if progress.busiest is not None:
        more += f", {progress.busiest:.0%} of the rows at one of {len(progress.received)} workers"
    return (
        f"{progress.rows:,} rows ({progress.rows_per_second:,.0f}/s), {progress.matches:,} matches, watermark "
        f"{watermark_text(progress)}, state {progress.state_rows:,} rows ({size_text(progress.state_bytes)})"
        f"{behind}{more}"
    )


def worker_text(progress: QueryProgress) -> str:
    """How the workers spent their time in the last micro-batch; other time is Spark's."""
    return (
        f"kernels {progress.kernel_seconds:.2f} s, state {progress.state_seconds:.2f} s, conversion "
        f"{progress.conversion_seconds:.2f} s"
    )


def watermark_text(progress: QueryProgress) -> str:
    if progress.watermark is None or progress.watermark.timestamp() == 0:  # Spark's initial one
        return "not yet"
    return progress.watermark.strftime("%Y-%m-%d %H:%M:%S")


def lag_text(progress: QueryProgress) -> str:
    lag = progress.lag_seconds
    return "" if lag is None or not 0 <= lag < OLD_SECONDS else f"newest row {lag:.1f} s ago"


def size_text(size: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
