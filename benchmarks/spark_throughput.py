"""Throughput of a Spark pipeline with the join over that of the same pipeline with an operator that drops everything
(Pan & Jacobsen 2018, Figure 15h), for the papers' 2-D band, one match a row.

Files of both sides are read, one a side and micro-batch, packed, shuffled, joined and sent to a sink that does
nothing. The other pipeline differs in the stateful operator alone. Both windows are full before anything is measured,
and both pipelines take turns, in either order, because a Java process becomes faster for a while.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streamjoin.spark.processor import JoinProcessor
from streamjoin.spark.task import JoinTask
from streamjoin.spark.window_join import assemble, make_task, spec_of, watermarked

SEED = 20_260_101
DOMAIN = 10_000  # of x, y, a, b in the papers
MATCHING = 420  # of DOMAIN ** 2 places, those that a row matches
BAND = "left.x BETWEEN right.a - 10 AND right.a + 10 AND left.y BETWEEN right.b - 10 AND right.b + 10"
MICROSECONDS_A_ROW = 600
SCHEMAS = {
    "left": "ts TIMESTAMP, x INT, y FLOAT",
    "right": "ts TIMESTAMP, a INT, b FLOAT",
}
NAMES = {"left": ("ts", "x", "y"), "right": ("ts", "a", "b")}

if __name__ in sys.modules:  # what workers run must travel with the query: they can not import this file
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def open_session(master: str = "local[2]", partitions: int = 2, **settings: str) -> SparkSession:
    """A Spark of its own, with the settings that the documentation recommends."""
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
        # Every value that is written or removed would be looked up first, to count them.
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        # Results of inner joins need no micro-batch without rows.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        # The end of the files is told soon.
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
    """A Parquet file a side for each of the sizes, in rows, one after the other in time."""
    random = np.random.default_rng(SEED)
    for side, names in NAMES.items():
        (folder / side).mkdir(parents=True)
        for number, rows in enumerate(sizes):
            ticks = (np.arange(rows) + sum(sizes[:number])) * MICROSECONDS_A_ROW
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
    """The window that holds so many rows of a side."""
    return f"{rows * MICROSECONDS_A_ROW // 1000} milliseconds"


def domain_of(rows: int) -> int:
    """The domain in which a row has one match in a window of so many rows."""
    return math.isqrt(rows * MATCHING)


def streams(session: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    left, right = (
        session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / side))
        for side, schema in SCHEMAS.items()
    )
    return left, right


def band_join(
    session: SparkSession, folder: Path, window: str, workers: int = 2, partitioning: str = "auto"
) -> tuple[JoinTask, dict[str, DataFrame]]:
    """The papers' join over the files."""
    left, right = streams(session, folder)
    spec = spec_of(left, right, BAND, window, "ts", "ts")
    task = make_task(spec, "inner", "any", "auto", partitioning, workers)
    return watermarked(task, left, right, "1 second")


class Drop(StatefulProcessor):
    """An operator that takes its input and gives nothing."""

    def __init__(self, _task: JoinTask):
        pass

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("nothing", "data BINARY")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        for _ in rows:
            pass
        return iter(())


PROCESSORS = {"join": JoinProcessor, "drop": Drop}


def measure(frame: DataFrame, warm: int, most_seconds: float = 120) -> list[dict[str, Any]]:
    """Run a query over its files into a sink that does nothing, for some time at most; the progress of every
    micro-batch after the first `warm`."""
    folder = tempfile.mkdtemp(prefix="checkpoint")
    query = frame.writeStream.format("noop").option("checkpointLocation", folder).start()
    try:
        wait_for_all(query, most_seconds)
        progress = [each for each in query.recentProgress if each.numInputRows]
        return [
            {
                "rows": each.numInputRows,
                "seconds": each.durationMs["triggerExecution"] / 1000,
                "state_rows": sum(s.numRowsTotal for s in each.stateOperators),
                "state_bytes": sum(
                    s.customMetrics.get("rocksdbSstFileSize", s.memoryUsedBytes) for s in each.stateOperators
                ),
                "observed": {
                    name: row[name] or 0 for row in each.observedMetrics.values() for name in row.__fields__
                },
            }
            for each in progress[warm:]
        ]
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_all(query: StreamingQuery, most_seconds: float) -> None:
    """Wait until all files are read or the time is up."""
    end = time.monotonic() + most_seconds
    while time.monotonic() < end and query.isActive:
        last = query.lastProgress
        if last is not None and not last.numInputRows:
            break
        time.sleep(0.2)
    if (error := query.exception()) is not None:
        raise error


def rate(batches: list[dict[str, Any]]) -> float:
    """Rows a second, of the median micro-batch."""
    return float(statistics.median(each["rows"] / each["seconds"] for each in batches))


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per pipeline and size of micro-batches. Summary: the ratios."""
    window, sizes, rounds = (60_000, (20_000,), 1) if quick else (1_000_000, (25_000, 100_000), 2)
    results = []
    session = open_session()
    try:
        for rows in sizes:
            found = taking_turns(session, window, rows, rounds)
            results += [point(name, rows, batches) for name, batches in found.items()]
    finally:
        session.stop()
    speed = {(each["pipeline"], each["rows_a_batch"]): each["rows_per_second"] for each in results}
    return {
        "rows": results,
        "summary": {
            f"with the join over without, {2 * rows:,} rows a micro-batch": speed["join", 2 * rows]
            / speed["drop", 2 * rows]
            for rows in sizes
        },
    }


def taking_turns(
    session: SparkSession, window: int, rows: int, rounds: int
) -> dict[str, list[dict[str, Any]]]:
    """The measured micro-batches of both pipelines, of `rows` rows a side each, into windows of `window` rows."""
    folder = Path(tempfile.mkdtemp(prefix="files"))
    fill = [min(window, 100_000)] * -(-window // min(window, 100_000))
    found: dict[str, list[dict[str, Any]]] = {"join": [], "drop": []}
    try:
        write_files(folder, [*fill, *[rows] * 10], domain_of(window))
        for number in range(rounds):
            for name in found if number % 2 else reversed(found):  # none is always the one that comes later
                frame = assemble(*band_join(session, folder, window_of(window)), PROCESSORS[name])
                found[name] += measure(frame, len(fill) + 2)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def point(name: str, rows: int, batches: list[dict[str, Any]]) -> dict[str, Any]:
    """What is stored of a pipeline: its median micro-batch, and what the join told of the last."""
    observed = batches[-1]["observed"]
    told = ("state_rows", "matches", "written_bytes", "kernel_us", "state_us", "conversion_us")
    return {
        "pipeline": name,
        "rows_a_batch": 2 * rows,
        "rows_per_second": rate(batches),
        "seconds_a_batch": statistics.median(each["seconds"] for each in batches),
        **{key: observed.get(key, 0) for key in told},
    }
