"""Ten minutes of an inner and of a left join on Spark at full rate: do memory, threads and descriptors stay flat?

The papers' 2-D band over generated rows, one micro-batch after another, 50,000 rows per side each. Windows span ten
micro-batches, and are full when the ten minutes begin. The sink is a no-op, because the log of a file sink
grows with every file. Each join runs in its own process, with its own JVM. The JVM takes its whole heap when it starts,
so its resident memory grows only if something outside the heap does. Samples hold resident memory, threads and open
descriptors of the JVM and of all Python workers, the live heap (the least of several collections, because a running
micro-batch holds as much again), the join's state, the time of a micro-batch, and the sizes of the checkpoint and of
the cache.

A column is flat if its fitted line over the second half of the run rises by no more than its bound, a fraction of the
mean. Java's pools let threads go when there is little to do and start them again, so their number is flat if its peak
in the second half exceeds that in the first by no more than its bound. The time of a micro-batch has a verdict of its
own, because it also follows what else the machine does.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.shared.band import PREDICATE
from benchmarks.shared.figures import Figure
from benchmarks.shared.flatness import rise
from benchmarks.shared.spark import NAMES, SEED, open_session
from streamjoin.semantics.keep import How
from streamjoin.spark import window_join
from streamjoin.spark.job.generated import benchmark_rows
from streamjoin.spark.join.metrics import join_metrics

JOINS: tuple[How, ...] = ("inner", "left")
SECONDS, EVERY = 600.0, 10.0
ROWS = 50_000  # per side and micro-batch: 30 seconds of stream time
WINDOW = "5 minutes"
WARM = 30  # micro-batches before the clock starts
HEAP, COLLECTIONS, APART = "2g", 5, 0.15  # seconds between the collections of a sample
# The history that the driver keeps, as for a query that runs for months. These limits are reached within the first
# minutes; with Spark's defaults, a thousand of each, it would still grow when the run ends.
HISTORY = {
    "spark.sql.ui.retainedExecutions": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
}
LINES = {  # the rise that is allowed, as a fraction of the mean
    "jvm_mb": 0.05,
    "heap_live_mb": 0.1,
    "python_mb": 0.05,
    "python_threads": 0.05,
    "jvm_descriptors": 0.05,
    "python_descriptors": 0.05,
    "state_rows": 0.05,
    "state_mb": 0.05,
}
PEAKS = {"jvm_threads": 0.05}  # of the first half's peak
BATCH = {"batch_seconds": 0.05}
FIGURES = {
    "spark_soak-memory": Figure(
        "seconds",
        {
            "jvm_mb": "JVM, resident",
            "heap_live_mb": "JVM, live heap",
            "python_mb": "Python workers, resident",
        },
        "seconds at full rate",
        "MB",
        by="how",
    ),
    "spark_soak-state": Figure(
        "seconds",
        {"state_rows": "rows held"},
        "seconds at full rate",
        "M rows of state, replicas included",
        1e6,
        by="how",
    ),
    "spark_soak-batch": Figure(
        "seconds",
        {"batch_seconds": "a micro-batch"},
        "seconds at full rate",
        "seconds",
        by="how",
    ),
}


def start_join(session: SparkSession, how: How, checkpoint: str) -> StreamingQuery:
    left, right = (
        benchmark_rows(session, side, ROWS // 30, ROWS, SEED).select(*names) for side, names in NAMES.items()
    )
    result = window_join(
        left,
        right,
        PREDICATE,
        window=WINDOW,
        left_time="ts",
        right_time="ts",
        how=how,
        lateness=0,
        workers=2,
    )
    return result.writeStream.format("noop").option("checkpointLocation", checkpoint).start()


def resources(session: SparkSession) -> dict[str, float]:
    """What the JVM takes, its live heap, and what the Python workers take together. Children of the JVM that are not
    Python run one command and end."""
    process = psutil.Process(session.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    workers = []
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "python" in child.name():
                workers.append(taken(child))
    together = {name: sum(each[name] for each in workers) for name in ("mb", "threads", "descriptors")}
    return {
        "heap_live_mb": min(live_heap(session) for _ in range(COLLECTIONS)),
        **{f"jvm_{name}": value for name, value in taken(process).items()},
        **{f"python_{name}": value for name, value in together.items()},
    }


def live_heap(session: SparkSession) -> float:
    """Megabytes of the heap after a collection."""
    time.sleep(APART)
    jvm: Any = session._jvm
    jvm.java.lang.System.gc()
    used: int = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    return used / 1e6


def taken(process: psutil.Process) -> dict[str, float]:
    """What a process takes."""
    return {
        "mb": process.memory_info().rss / 1e6,
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
    }


def held(query: StreamingQuery, batches: int) -> dict[str, float]:
    """The join's state, and the median micro-batch from number `batches` on."""
    progress = [each for each in query.recentProgress if each.numInputRows]
    recent = [each for each in progress if each.batchId >= batches] or progress[-1:]
    (counts,) = join_metrics(recent[-1].observedMetrics).values()
    seconds = median(each.durationMs["triggerExecution"] for each in recent) / 1000
    return {
        "batches": progress[-1].batchId + 1,
        "batch_seconds": seconds,
        "rows_per_second": recent[-1].numInputRows / seconds,
        "state_rows": counts["state_rows"],
        "state_mb": counts["state_bytes"] / 1e6,
        "rocksdb_mb": max(state.memoryUsedBytes for state in recent[-1].stateOperators) / 1e6,
        "cache_hits": counts["cache_hits"],
        "cache_misses": counts["cache_misses"],
    }


def size_mb(folder: Path) -> float:
    """Megabytes of the files below a folder; files may vanish meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total / 1e6


def sample(
    session: SparkSession, query: StreamingQuery, folder: Path, seconds: float
) -> list[dict[str, Any]]:
    """Take a sample every EVERY seconds, from the end of the last warm micro-batch on."""
    while query.lastProgress is None or query.lastProgress.batchId < WARM:
        check(query)
        time.sleep(0.1)
    rows: list[dict[str, Any]] = []
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        check(query)
        done = int(rows[-1]["batches"]) if rows else 0
        sizes = {f"{name}_mb": size_mb(folder / name) for name in ("checkpoint", "cache")}
        rows.append({"seconds": round(passed), **resources(session), **held(query, done), **sizes})
        time.sleep(max(0.0, EVERY - (time.monotonic() - begin - passed)))
    return rows


def check(query: StreamingQuery) -> None:
    """Raise the query's error if it failed."""
    if (error := query.exception()) is not None:
        raise error


def soak(how: How, seconds: float) -> list[dict[str, Any]]:
    """Run one join; its samples."""
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    os.environ["STREAMJOIN_SPARK_CACHE_DIR"] = str(folder / "cache")
    heap = {
        "spark.driver.memory": HEAP,
        "spark.driver.extraJavaOptions": f"-Xms{HEAP} -XX:+AlwaysPreTouch",
    }
    session = open_session("local[2]", 2, **heap, **HISTORY)
    try:
        query = start_join(session, how, str(folder / "checkpoint"))
        rows = sample(session, query, folder, seconds)
        query.stop()
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return [{"how": how, **row} for row in rows]


def rises(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How much each column of a join's samples rises."""
    first, second = halves(rows)
    peaks = {name: [max(row[name] for row in half) for half in (first, second)] for name in PEAKS}
    return {name: rise(second, name) for name in LINES | BATCH} | {
        name: after / before - 1 for name, (before, after) in peaks.items()
    }


def halves(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    middle = rows[-1]["seconds"] / 2
    return [row for row in rows if row["seconds"] < middle], [row for row in rows if row["seconds"] >= middle]


def verdict(how: How, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether a join is flat, what rises by how much, and the medians over the second half."""
    found, (_, half) = rises(rows), halves(rows)
    return {
        f"{how}, flat": all(found[column] <= bound for column, bound in (LINES | PEAKS).items()),
        f"{how}, time of a micro-batch flat": all(found[column] <= bound for column, bound in BATCH.items()),
        **{f"{how}, rise of {column}, %": 100 * value for column, value in found.items()},
        **{f"{how}, {column}": median(row[column] for row in half) for column in found},
        f"{how}, batches": rows[-1]["batches"],
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: the samples of each join. Summary: whether all are flat, and the verdict on each."""
    seconds = 100.0 if quick else SECONDS
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        samples = {how: pool.submit(soak, how, seconds).result() for how in JOINS}
    verdicts = {how: verdict(how, rows) for how, rows in samples.items()}
    return {
        "rows": [row for rows in samples.values() for row in rows],
        "summary": {
            "all flat": all(each[f"{how}, flat"] for how, each in verdicts.items()),
            **{name: value for each in verdicts.values() for name, value in each.items()},
        },
    }
