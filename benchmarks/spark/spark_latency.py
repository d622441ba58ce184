"""End-to-end latency of the join on Spark, from the creation of a row to its results in the sink, at growing rates.

A separate process creates rows of the papers' 2-D band in real time, and moves a file per side into the sources'
folders ten times a second. A row's event time is the moment of its creation. The sink is a folder of Parquet files. A
result's latency runs from its later row to the entry in the sink's log that names its file, so it includes up to 0.1 s
in the producer. Windows of 10 seconds, about one match per left row; micro-batches follow each other without a pause.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.shared.band import PREDICATE
from benchmarks.shared.figures import Figure
from benchmarks.shared.results import ROOT
from benchmarks.shared.spark import NAMES, SCHEMAS, SEED, open_session
from streamjoin.spark import window_join
from streamjoin.spark.join.metrics import join_metrics

RATES = (1_000, 10_000, 100_000)  # rows per second, both sides together
INTERVAL = 0.1  # seconds between files
WINDOW = 10  # seconds
BAND_WIDTH = 20
WARM, MEASURED, GRACE = 12, 22, 10  # seconds: warm-up, measurement, and wait for the last results
PHASES = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
FIGURES = {
    "spark_latency": Figure(
        "rate",
        {"p50": "median", "p95": "95th percentile", "p99": "99th percentile"},
        "rows/s of both sides together",
        "seconds from the creation of a row to the sink",
    ),
}


def feed(folder: Path, rate: int, seconds: float) -> None:
    """Create rows in real time and move them into both sides' folders; print the start and the worst delay."""
    random, rows = np.random.default_rng(SEED), round(rate * INTERVAL / 2)
    domain = round(BAND_WIDTH * (rate * WINDOW) ** 0.5)  # of x and y: about one row of a window matches
    begin, worst = time.time(), 0.0
    for number in range(round(seconds / INTERVAL)):
        due = begin + (number + 1) * INTERVAL
        ticks = ((due - INTERVAL) * 1e6 + np.arange(rows) * (INTERVAL * 1e6 / rows)).astype(np.int64)
        for side, names in NAMES.items():
            columns = (
                pa.array(ticks, pa.timestamp("us", "UTC")),
                random.integers(1, domain + 1, rows, np.int32),
                (random.random(rows) * domain).astype(np.float32),
            )
            pq.write_table(pa.table(dict(zip(names, columns, strict=True))), folder / f"{side}-unfinished")
        time.sleep(max(0.0, due - time.time()))
        for side in NAMES:
            (folder / f"{side}-unfinished").rename(folder / side / f"{number:06}.parquet")
        worst = max(worst, time.time() - due)
    print(json.dumps({"begin": begin, "producer_worst_delay": worst}))


def start_join(session: SparkSession, folder: Path) -> StreamingQuery:
    left, right = (
        session.readStream.schema(schema).parquet(str(folder / side)) for side, schema in SCHEMAS.items()
    )
    window, lateness = f"{WINDOW} seconds", "2 seconds"
    result = window_join(
        left, right, PREDICATE, window=window, left_time="ts", right_time="ts", lateness=lateness, workers=2
    )
    writer = result.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def latencies(folder: Path, begin: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    """For each result whose later row was created between `begin` and `end`: that moment, and the seconds until the
    sink's log named it."""
    made, took = [np.empty(0)], [np.empty(0)]
    for entry in (folder / "out" / "_spark_metadata").glob("[0-9]*"):
        for line in entry.read_text().splitlines()[1:]:  # the first line is the version
            path = json.loads(line)["path"].removeprefix("file://")
            times = pq.read_table(path, columns=["ts", "ts_right"])
            later = (
                np.maximum(*(column.cast(pa.timestamp("us")).cast(pa.int64()) for column in times.columns))
                / 1e6
            )
            made.append(later)
            took.append(entry.stat().st_mtime - later)
    later, seconds = np.concatenate(made), np.concatenate(took)
    chosen = (later >= begin) & (later < end)
    return later[chosen], seconds[chosen]


def measure(
    session: SparkSession, rate: int, warm: float, measured: float, grace: float = GRACE
) -> dict[str, Any]:
    """The row of one rate, starting with empty windows."""
    folder = Path(tempfile.mkdtemp(prefix="latency"))
    for side in NAMES:
        (folder / side).mkdir()
    query = start_join(session, folder)
    try:
        command = [
            sys.executable,
            "-m",
            "benchmarks.spark.spark_latency",
            str(folder),
            str(rate),
            str(warm + measured),
        ]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        produced = json.loads(done.stdout)
        begin = produced["begin"]
        wait_for_rows(query, round(rate * (warm + measured)), grace)
        progress = [each for each in query.recentProgress if each.numInputRows]
    finally:
        query.stop()
    later, seconds = latencies(folder, begin + warm, begin + warm + measured)
    shutil.rmtree(folder)
    if not len(seconds):
        raise RuntimeError(
            f"no result in time at {rate:,} rows/s: free the machine, or raise GRACE ({grace} s)"
        )
    batches = [each for each in progress if moment(each.timestamp) >= begin + warm] or progress[-1:]
    counts = [metrics for each in progress for metrics in join_metrics(each.observedMetrics).values()]
    third = np.array_split(seconds[np.argsort(later)], 3)
    return {
        "rate": rate,
        "results": len(seconds),
        **{f"p{share}": float(np.percentile(seconds, share)) for share in (50, 95, 99)},
        "worst": float(seconds.max()),
        # About 1 if the join sustains the rate; above 1 it falls behind more and more.
        "last_third_over_first": float(np.median(third[2]) / np.median(third[0])),
        "unread_rows": round(rate * (warm + measured)) - sum(each.numInputRows for each in progress),
        "late_rows": sum(each["late"] for each in counts),
        "batch_seconds": median(each.durationMs["triggerExecution"] for each in batches) / 1000,
        "batch_rows": median(each.numInputRows for each in batches),
        **{f"{name}_ms": median(each.durationMs.get(name, 0) for each in batches) for name in PHASES},
        "producer_worst_delay": produced["producer_worst_delay"],
    }


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def wait_for_rows(query: StreamingQuery, rows: int, most_seconds: float) -> None:
    """Wait until all rows are read and joined, or the time is up."""
    end = time.monotonic() + most_seconds
    while time.monotonic() < end and sum(each.numInputRows for each in query.recentProgress) < rows:
        if (error := query.exception()) is not None:
            raise error
        time.sleep(0.1)


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per rate. Summary: the median and the 99th percentile of each."""
    warm, measured = (4, 5) if quick else (WARM, MEASURED)
    # Keep one file per micro-batch in the sink's log.
    session = open_session("local[2]", 2, **{"spark.sql.streaming.fileSink.log.compactInterval": "1000000"})
    try:
        measure(session, RATES[0], 2, 2, grace=120)  # warms up: compiles kernels
        rows = [measure(session, rate, warm, measured) for rate in RATES]
    finally:
        session.stop()
    summary = {
        f"{share} at {row['rate']:,} rows/s, seconds": row[share] for row in rows for share in ("p50", "p99")
    }
    return {"rows": rows, "summary": summary}


if __name__ == "__main__":
    feed(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
