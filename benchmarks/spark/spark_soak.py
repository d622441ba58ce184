"""Ten minutes of the join on Spark at full rate: memory, state and micro-batch time over the minutes.

The papers' 2-D band over generated rows, one micro-batch after another, 50,000 rows per side each. Windows span ten
micro-batches: they are full after a minute and slide many times. The sink is a no-op, because the log of a file sink
grows with every file. Samples hold the resident memory of the JVM and of all Python workers, the live heap (after a
collection), the join's state, the time of a micro-batch, and the sizes of the checkpoint and of the cache.

A column is flat if the median of the last third of its samples is at most 10 % above that of the first third; samples
count from `WARM` seconds on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.shared.band import PREDICATE
from benchmarks.shared.figures import Figure
from benchmarks.shared.spark import NAMES, SEED, open_session
from streamjoin.spark import window_join
from streamjoin.spark.job.generated import GeneratorSource
from streamjoin.spark.join.metrics import join_metrics

SECONDS, EVERY, WARM = 600.0, 10.0, 120.0
ROWS = 50_000  # per side and micro-batch: 30 seconds of stream time
WINDOW = "5 minutes"
GROWTH = 1.1
# The history that the driver keeps, as for a query that runs for months. These limits are reached within the first
# minutes; with Spark's defaults, a thousand of each, it would still grow when the run ends.
HISTORY = {
    "spark.sql.ui.retainedExecutions": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
}
FLAT = ("jvm_mb", "heap_live_mb", "python_mb", "state_rows", "state_mb", "batch_seconds")
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
    ),
    "spark_soak-state": Figure(
        "seconds",
        {"state_rows": "rows held"},
        "seconds at full rate",
        "M rows of state, replicas included",
        1e6,
    ),
    "spark_soak-batch": Figure(
        "seconds",
        {"batch_seconds": "a micro-batch"},
        "seconds at full rate",
        "seconds",
    ),
}


def start_join(session: SparkSession, checkpoint: str) -> StreamingQuery:
    left, right = (
        GeneratorSource(side, ROWS // 30, ROWS, SEED).load(session).select(*names)
        for side, names in NAMES.items()
    )
    result = window_join(
        left, right, PREDICATE, window=WINDOW, left_time="ts", right_time="ts", lateness=0, workers=2
    )
    return result.writeStream.format("noop").option("checkpointLocation", checkpoint).start()


def memory(session: SparkSession) -> dict[str, float]:
    """Megabytes of the JVM, of its live heap, and of the Python workers together."""
    jvm: Any = session._jvm
    jvm.java.lang.System.gc()
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
    process = psutil.Process(session.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    workers = 0
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            workers += child.memory_info().rss
    return {
        "jvm_mb": process.memory_info().rss / 1e6,
        "heap_live_mb": heap.getUsed() / 1e6,
        "python_mb": workers / 1e6,
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
    """Take a sample every EVERY seconds, from the end of the first micro-batch on."""
    while query.lastProgress is None or not query.lastProgress.numInputRows:
        check(query)
        time.sleep(0.1)
    rows: list[dict[str, Any]] = []
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        check(query)
        done = int(rows[-1]["batches"]) if rows else 0
        sizes = {f"{name}_mb": size_mb(folder / name) for name in ("checkpoint", "cache")}
        rows.append({"seconds": round(passed), **memory(session), **held(query, done), **sizes})
        time.sleep(max(0.0, EVERY - (time.monotonic() - begin - passed)))
    return rows


def check(query: StreamingQuery) -> None:
    """Raise the query's error if it failed."""
    if (error := query.exception()) is not None:
        raise error


def growth(rows: list[dict[str, Any]], column: str) -> float:
    """The median of the last third of the samples over that of the first."""
    third = max(1, len(rows) // 3)
    return float(median(row[column] for row in rows[-third:]) / median(row[column] for row in rows[:third]))


def run(quick: bool) -> dict[str, Any]:
    """Rows: the samples. Summary: whether all columns are flat, their growth, and their medians."""
    seconds, warm = (100.0, 40.0) if quick else (SECONDS, WARM)
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    os.environ["STREAMJOIN_SPARK_CACHE_DIR"] = str(folder / "cache")
    session = open_session("local[2]", 2, **{"spark.driver.memory": "2g", **HISTORY})
    try:
        query = start_join(session, str(folder / "checkpoint"))
        rows = sample(session, query, folder, seconds)
        query.stop()
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    settled = [row for row in rows if row["seconds"] >= warm]
    grown = {column: growth(settled, column) for column in FLAT}
    return {
        "rows": rows,
        "summary": {
            "all flat": max(grown.values()) <= GROWTH,
            **{f"{column}, last third over first": value for column, value in grown.items()},
            **{column: median(row[column] for row in settled) for column in (*FLAT, "rows_per_second")},
            "batches": rows[-1]["batches"],
        },
    }
