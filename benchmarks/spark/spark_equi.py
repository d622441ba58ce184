"""An equi-join (x = a within 15 minutes) on Spark: this join against Spark's own stream-stream join, both with RocksDB.

Both read the same files, one per side and micro-batch, and write to a no-op sink. Points are micro-batches: rows per
second over the rows read so far, all of which are in the windows. State bytes are the sizes of RocksDB's files.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.shared.figures import Figure
from benchmarks.shared.spark import measure, open_session, points, streams, write_files
from streamjoin.spark import window_join

FIGURES = {
    "spark_equi": Figure(
        "rows_read",
        {"rows_per_second": ""},
        "rows read, all of them in the windows",
        "rows/s",
        by="join",
        log=True,
    ),
}


def ours(session: SparkSession, folder: Path) -> DataFrame:
    left, right = streams(session, folder)
    return window_join(
        left,
        right,
        "left.x = right.a",
        window="15 minutes",
        left_time="ts",
        right_time="ts",
        lateness="1 second",
    )


def sparks(session: SparkSession, folder: Path) -> DataFrame:
    left, right = (frame.withWatermark("ts", "1 second") for frame in streams(session, folder))
    right = right.withColumnRenamed("ts", "ts_right")
    near = F.expr("x = a AND ts_right BETWEEN ts - INTERVAL 15 MINUTES AND ts + INTERVAL 15 MINUTES")
    return left.join(right, near)


def run(quick: bool) -> dict[str, Any]:
    """Rows: micro-batches of both joins. Summary: the ratio over the second half, where the state is large."""
    rows, files = (10_000, 4) if quick else (50_000, 11)
    folder = Path(tempfile.mkdtemp(prefix="files"))
    session = open_session()
    try:
        write_files(folder, [rows] * files, domain=rows * files // 2)  # about one match per row
        found = {
            name: points(name, measure(make(session, folder), 1, most_seconds=130))
            for name, make in (("spark", sparks), ("streamjoin", ours))
        }
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    last = min(len(batches) for batches in found.values())
    speed = {
        name: statistics.median(each["rows_per_second"] for each in batches[last // 2 : last])
        for name, batches in found.items()
    }
    return {
        "rows": [each for batches in found.values() for each in batches],
        "summary": {
            **{f"{name}, rows a second": value for name, value in speed.items()},
            "over Spark's own": speed["streamjoin"] / speed["spark"],
            **{
                f"{name}, state bytes a row": batches[last - 1]["state_bytes"]
                / batches[last - 1]["rows_read"]
                for name, batches in found.items()
            },
        },
    }
