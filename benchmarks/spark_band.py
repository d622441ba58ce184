"""The papers' 2-D band on Spark: this join against the work-arounds for Spark's own, an equality on cells.

Spark refuses a stream-stream join without an equality, so its users cut the plane into cells, join on the cell and let
every right row stand for all cells that it can reach: in both dimensions (a grid), or in one (buckets). All joins read
the same files, one a side and micro-batch, and send their results to a sink that does nothing. Points are
micro-batches: rows a second over the rows read so far, all of which are in the windows. Each work-around has a minute
or two.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.spark_equi import points
from benchmarks.spark_throughput import BAND, measure, open_session, streams, write_files
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamjoin.spark import window_join

STORES = "org.apache.spark.sql.execution.streaming.state."
STORE = "spark.sql.streaming.stateStore.providerClass"
NEAR = (
    "x BETWEEN a - 10 AND a + 10 AND y BETWEEN b - 10 AND b + 10 "
    "AND ts_right BETWEEN ts - INTERVAL 1 HOUR AND ts + INTERVAL 1 HOUR"
)


def ours(session: SparkSession, folder: Path) -> DataFrame:
    left, right = streams(session, folder)
    return window_join(
        left, right, BAND, window="1 hour", left_time="ts", right_time="ts", lateness="1 second"
    )


def reached(name: str, cell: int) -> Column:
    """The cells that lie within 10 of a coordinate, one row for each."""
    low, high = (F.floor((F.col(name) + side) / cell) for side in (-10, 10))
    return F.explode(F.sequence(low, high))


def cells(session: SparkSession, folder: Path, cell: int, dimensions: int) -> DataFrame:
    """Spark's join on cells."""
    left, right = (frame.withWatermark("ts", "1 second") for frame in streams(session, folder))
    right = right.withColumnRenamed("ts", "ts_right")
    condition = NEAR
    for mine, other in (("x", "a"), ("y", "b"))[:dimensions]:
        left = left.withColumn(f"cell_{mine}", F.floor(F.col(mine) / cell))
        right = right.withColumn(f"cell_{other}", reached(other, cell))
        condition = f"cell_{mine} = cell_{other} AND {condition}"
    return left.join(right, F.expr(condition))


def run(quick: bool) -> dict[str, Any]:
    """Rows: micro-batches of every join. Summary: the ratios at the last amount of state that both reached."""
    sizes = [5_000] * 4 if quick else [25_000, 25_000, 50_000, *[100_000] * 10]
    peers = {  # name: cell, dimensions, state store, seconds
        "buckets of 5": (5, 1, "RocksDB", 20 if quick else 25),
        "grid of 40, memory": (40, 2, "HDFSBacked", 20 if quick else 35),
        "grid of 40, RocksDB": (40, 2, "RocksDB", 20 if quick else 80),
    }
    folder = Path(tempfile.mkdtemp(prefix="files"))
    session = open_session()
    found = {}
    try:
        write_files(folder, sizes)
        for name, (cell, dimensions, store, seconds) in peers.items():
            session.conf.set(STORE, f"{STORES}{store}StateStoreProvider")
            found[name] = points(name, measure(cells(session, folder, cell, dimensions), 0, seconds))
        found["streamjoin"] = points("streamjoin", measure(ours(session, folder), 0, 60))
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    summary = {}
    for name in peers:
        last = min(len(found[name]), len(found["streamjoin"])) - 1
        peer, own = found[name][last], found["streamjoin"][last]
        ratio = own["rows_per_second"] / peer["rows_per_second"]
        summary[f"over {name}, at {own['rows_read']:,} rows"] = ratio
    return {"rows": [each for batches in found.values() for each in batches], "summary": summary}
