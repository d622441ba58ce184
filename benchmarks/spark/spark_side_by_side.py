"""Joins on Spark beside another checkout: rows a second of an equality and of the papers' 2-D band.

STREAMJOIN_BASE names the other checkout (`benchmarks/shared/checkouts.py`); without it, only this one is measured. A
run is a process with a Spark session of its own, which runs both joins over the same files, one per side and
micro-batch, into a no-op sink. Runs of the two checkouts alternate. A run's number is the median of its micro-batches
after the first ones, in which Java warms up; the best of the runs counts.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.shared.checkouts import BASE, TREE, alternated
from streamjoin.spark import window_join

HERE = Path(__file__).resolve()
SEED, RUNS = 20_260_101, 3
MICROS_PER_ROW = 600  # event time between two rows of a side
BATCH, FILES, WARM_UP = (
    100_000,
    14,
    6,
)  # rows of a side in a micro-batch; micro-batches; those that do not count
JOINS = {
    "equality": "left.x = right.a",
    "band": "left.x BETWEEN right.a - 10 AND right.a + 10 AND left.y BETWEEN right.b - 10 AND right.b + 10",
}
WINDOW_ROWS = 400_000
DOMAINS = {"equality": WINDOW_ROWS, "band": 13_000}  # in which a row has about one match in a window
NAMES = {"left": ("ts", "x", "y"), "right": ("ts", "a", "b")}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.noDataProgressEventInterval": "500ms",
}


def open_session() -> SparkSession:
    """A session with the settings that the documentation recommends."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def write_files(folder: Path, files: int, domain: int) -> None:
    """One Parquet file per side and micro-batch; event times continue from file to file."""
    random = np.random.default_rng(SEED)
    for side, (ts, key, value) in NAMES.items():
        (folder / side).mkdir(parents=True)
        for number in range(files):
            ticks = 1_700_000_000_000_000 + (number * BATCH + np.arange(BATCH)) * MICROS_PER_ROW
            columns = {
                ts: pa.array(ticks, pa.timestamp("us", "UTC")),
                key: random.integers(1, domain + 1, BATCH, np.int32),
                value: (random.random(BATCH) * domain).astype(np.float32),
            }
            path = folder / side / f"{number:05}.parquet"
            pq.write_table(pa.table(columns), path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads files by age


def rate(session: SparkSession, folder: Path, on: str) -> float:
    """Rows a second of the median micro-batch."""
    left, right = (
        session.readStream.schema(f"{ts} TIMESTAMP, {key} INT, {value} FLOAT")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / side))
        for side, (ts, key, value) in NAMES.items()
    )
    window = f"{WINDOW_ROWS * MICROS_PER_ROW // 1000} milliseconds"
    joined = window_join(left, right, on, window=window, left_time="ts", right_time="ts", lateness="1 second")
    query = joined.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        while query.isActive and not (
            (last := query.lastProgress) and last.batchId and not last.numInputRows
        ):
            time.sleep(0.1)
        if (error := query.exception()) is not None:
            raise error
        batches = [each for each in query.recentProgress if each.numInputRows][WARM_UP:]
        return statistics.median(b.numInputRows / b.durationMs["triggerExecution"] * 1000 for b in batches)
    finally:
        query.stop()


def numbers(files: int) -> list[float]:
    """The rate of each join."""
    session, found = open_session(), []
    for name, on in JOINS.items():
        folder = Path(tempfile.mkdtemp(prefix="files"))
        try:
            write_files(folder, files, DOMAINS[name])
            found.append(rate(session, folder, on))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    session.stop()
    return found


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per join. `ratio` is above 1 where this checkout is faster. Summary: the smaller ratio."""
    runs = alternated(HERE, 1 if quick else RUNS, WARM_UP + 3 if quick else FILES)
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(JOINS):
        best = {checkout: float(found[:, number].max()) for checkout, found in runs.items()}
        ratio = best[TREE] / best[BASE] if BASE in best else None
        rows.append(
            {"join": name, "rows_per_s": best[TREE], "base_rows_per_s": best.get(BASE), "ratio": ratio}
        )
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    return {"rows": rows, "summary": {"allowed": 0.95} | ({"smallest_ratio": min(ratios)} if ratios else {})}


if __name__ == "__main__":
    os.environ.setdefault("STREAMJOIN_COMPILE", "wait")
    print(json.dumps(numbers(int(sys.argv[1]))))
