"""The papers' 2-D band on Spark: this join against the work-around for Spark's own, an equality on grid cells.

Spark refuses a stream-stream join without an equality, so its users cut both coordinates into cells, join on the
cell and let every left row stand for the nine cells around it. Both joins read the same files, one a side and
micro-batch, and send their results to a sink that does nothing. Points are micro-batches: rows a second over the rows
read so far, all of which are in the windows.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.spark_equi import points
from benchmarks.spark_throughput import BAND, measure, open_session, streams, write_files
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamjoin.spark import window_join


def ours(session: SparkSession, folder: Path) -> DataFrame:
    left, right = streams(session, folder)
    return window_join(
        left, right, BAND, window="1 hour", left_time="ts", right_time="ts", lateness="1 second"
    )


def grid(session: SparkSession, folder: Path, cell: int) -> DataFrame:
    """Spark's join on cells of `cell` in both dimensions, at least as wide as the band's half."""
    left, right = (frame.withWatermark("ts", "1 second") for frame in streams(session, folder))
    around = F.array(*(F.lit(step) for step in (-1, 0, 1)))
    left = left.withColumn("i", F.explode(around)).withColumn("j", F.explode(around))
    left = left.withColumn("cx", F.floor(F.col("x") / cell) + F.col("i"))
    left = left.withColumn("cy", F.floor(F.col("y") / cell) + F.col("j"))
    right = right.withColumnRenamed("ts", "ts_right")
    right = right.withColumn("rx", F.floor(F.col("a") / cell)).withColumn("ry", F.floor(F.col("b") / cell))
    near = F.expr(
        "cx = rx AND cy = ry AND x BETWEEN a - 10 AND a + 10 AND y BETWEEN b - 10 AND b + 10 "
        "AND ts_right BETWEEN ts - INTERVAL 1 HOUR AND ts + INTERVAL 1 HOUR"
    )
    return left.join(right, near)


def run(quick: bool) -> dict[str, Any]:
    """Rows: micro-batches of every join. Summary: the ratios at the last amount of state that both reached."""
    rows, files, seconds = (10_000, 4, 60) if quick else (100_000, 11, 55)
    folder = Path(tempfile.mkdtemp(prefix="files"))
    session = open_session()
    try:
        write_files(folder, files, rows)
        found = {"streamjoin": points("streamjoin", measure(ours(session, folder), 1, seconds))}
        for cell in (10, 40):
            name = f"grid of {cell}"
            found[name] = points(name, measure(grid(session, folder, cell), 1, seconds))
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    summary = {}
    for name in list(found)[1:]:
        last = min(len(found[name]), len(found["streamjoin"])) - 1
        peer, own = found[name][last], found["streamjoin"][last]
        summary[f"over the {name}, at {own['rows_read']:,} rows"] = (
            own["rows_per_second"] / peer["rows_per_second"]
        )
    return {"rows": [each for batches in found.values() for each in batches], "summary": summary}
