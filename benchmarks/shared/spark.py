"""Spark benchmarks: the session, the files that a query reads, and the progress of its micro-batches.

The queries join the papers' 2-D band over Parquet files, one file per side and micro-batch.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.shared.band import DOMAIN, MATCHING, PREDICATE
from streamjoin.spark.batch_limit import lift_limit
from streamjoin.spark.join.metrics import join_metrics
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.window_join import make_task, spec_of, watermarked

SEED = 20_260_101
MICROSECONDS_PER_ROW = 600  # event time between two rows of a side
SCHEMAS = {
    "left": "ts TIMESTAMP, x INT, y FLOAT",
    "right": "ts TIMESTAMP, a INT, b FLOAT",
}
NAMES = {"left": ("ts", "x", "y"), "right": ("ts", "a", "b")}


def open_session(master: str = "local[2]", partitions: int = 2, **settings: str) -> SparkSession:
    """Start a Spark session with the settings that the documentation recommends."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # To count rows, RocksDB would look up every value before it is written or removed.
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        # Over TCP, Java and Python wait 40 ms for each other in every task.
        "spark.python.unix.domain.socket.enabled": "true",
        # The results of inner joins need no micro-batch without rows.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        # Report soon that all files are read.
        "spark.sql.streaming.noDataProgressEventInterval": "500ms",
        **settings,
    }
    builder = SparkSession.builder.master(master).appName("benchmark")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def write_files(folder: Path, sizes: Sequence[int], domain: int = DOMAIN) -> None:
    """Write one Parquet file per side for each number of rows in `sizes`; event times continue from file to file."""
    random = np.random.default_rng(SEED)
    for side, names in NAMES.items():
        (folder / side).mkdir(parents=True)
        for number, rows in enumerate(sizes):
            ticks = (np.arange(rows) + sum(sizes[:number])) * MICROSECONDS_PER_ROW
            table = pa.table(
                {
                    names[0]: pa.array(1_700_000_000_000_000 + ticks, pa.timestamp("us", "UTC")),
                    names[1]: random.integers(1, domain + 1, rows, np.int32),
                    names[2]: (random.random(rows) * domain).astype(np.float32),
                }
            )
            path = folder / side / f"{number:05}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads files by age


def window_of(rows: int) -> str:
    """The window that holds `rows` rows of a side."""
    return f"{rows * MICROSECONDS_PER_ROW // 1000} milliseconds"


def domain_of(rows: int) -> int:
    """The domain of the keys in which a row has one match on average in a window of `rows` rows."""
    return math.isqrt(rows * MATCHING)


def streams(session: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    """Both sides' files as streams, one file per micro-batch."""
    left, right = (
        session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / side))
        for side, schema in SCHEMAS.items()
    )
    return left, right


def band_join(
    session: SparkSession, folder: Path, window: str, workers: int = 2, partitioning: Any = "auto"
) -> tuple[JoinTask, dict[str, DataFrame]]:
    """The papers' join over the files, as the task and frames that `assemble` takes."""
    left, right = streams(session, folder)
    spec = spec_of(left, right, PREDICATE, window, "ts", "ts")
    task = make_task(spec, "any", "auto", partitioning, workers)
    task, frames = watermarked(task, left, right, "1 second")
    return lift_limit(session, task), frames


def measure(frame: DataFrame, warm: int, most_seconds: float = 120) -> list[dict[str, Any]]:
    """Run a query over its files into a no-op sink until all are read or the time is up.

    Returns the progress of every micro-batch after the first `warm`.
    """
    folder = tempfile.mkdtemp(prefix="checkpoint")
    query = frame.writeStream.format("noop").option("checkpointLocation", folder).start()
    try:
        wait_for_all(query, most_seconds)
        return batches_of(query)[warm:]
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)


def batches_of(query: StreamingQuery) -> list[dict[str, Any]]:
    """What Spark reports about each micro-batch that had rows."""
    return [
        {
            "batch": each.batchId,
            "rows": each.numInputRows,
            "seconds": each.durationMs["triggerExecution"] / 1000,
            "parts_ms": dict(each.durationMs),
            "state_rows": sum(s.numRowsTotal for s in each.stateOperators),
            "state_bytes": sum(
                s.customMetrics.get("rocksdbSstFileSize", s.memoryUsedBytes) for s in each.stateOperators
            ),
            "observed": next(iter(join_metrics(each.observedMetrics).values()), {}),
        }
        for each in query.recentProgress
        if each.numInputRows
    ]


def wait_for_all(query: StreamingQuery, most_seconds: float) -> None:
    """Wait until all files are read or the time is up; raise the query's error if it failed."""
    end = time.monotonic() + most_seconds
    while time.monotonic() < end and query.isActive:
        last = query.lastProgress
        if last is not None and not last.numInputRows:
            break
        time.sleep(0.2)
    if (error := query.exception()) is not None:
        raise error


def rate(batches: list[dict[str, Any]]) -> float:
    """Rows per second of the median micro-batch."""
    return float(statistics.median(each["rows"] / each["seconds"] for each in batches))


def points(name: str, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per micro-batch of the join `name`: its rate, and the state so far."""
    read = 0
    found = []
    for each in batches:
        read += each["rows"]
        found.append(
            {
                "join": name,
                "rows_read": read,
                "rows_per_second": each["rows"] / each["seconds"],
                "state_rows": each["observed"].get("state_rows", each["state_rows"]),
                "state_bytes": each["state_bytes"],
            }
        )
    return found
