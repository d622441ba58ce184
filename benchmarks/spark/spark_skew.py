"""A skewed equi-join on Spark: 99 % of the rows have one key, which one worker joins, or four.

The key must be equal and another column near, so that a row has about one match, but the rows of the key are candidates
of each other. Four workers on two cores. Points are micro-batches: rows per second over the rows read so far, all of
which are in the windows. The summary has the busiest worker's part of rows and of candidates, over the mean.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.shared.figures import Figure
from benchmarks.shared.spark import (
    NAMES,
    batches_of,
    open_session,
    points,
    streams,
    wait_for_all,
    write_files,
)
from streamjoin.spark import window_join

WORKERS, HOT, PART = 4, 1, 0.99
DOMAIN = 100_000
HOT_KEYS = {"one worker": None, "four workers": [HOT]}
COUNTED = ("rows_in", "candidates")
FIGURES = {
    "spark_skew": Figure(
        "rows_read",
        {"rows_per_second": ""},
        "rows read, all of them in the windows; 99 % have one key",
        "rows/s",
        by="join",
    ),
}


def skew(folder: Path) -> None:
    """Give most rows of the files the hot key."""
    for side, (_, key, _) in NAMES.items():
        for number, path in enumerate(sorted((folder / side).iterdir())):
            table = pq.read_table(path)
            hot = np.random.default_rng([number, len(side)]).random(table.num_rows) < PART
            keys = pc.if_else(pa.array(hot), pa.scalar(HOT, pa.int32()), table[key])
            pq.write_table(table.set_column(table.schema.get_field_index(key), key, keys), path)
            os.utime(path, (1_700_000_000 + number,) * 2)


def measured(
    session: SparkSession, folder: Path, hot_keys: Any
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The micro-batches of the join, and how uneven its workers are."""
    joined = window_join(
        *streams(session, folder),
        "left.x = right.a AND abs(left.y - right.b) <= 0.5",
        window="15 minutes",
        left_time="ts",
        right_time="ts",
        lateness="1 second",
        workers=WORKERS,
        hot_keys=hot_keys,
    )
    checkpoint = tempfile.mkdtemp(prefix="checkpoint")
    query = joined.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    try:
        wait_for_all(query, 120)
        counts: dict[str, dict[int, int]] = {name: defaultdict(int) for name in COUNTED}
        for progress in query.recentProgress:
            for observed in progress.observedMetrics.values():
                for each in observed["workers"] or ():
                    for name in COUNTED:
                        counts[name][each["worker"]] += each[name]
        return batches_of(query), {
            name: max(found.values()) * WORKERS / sum(found.values()) for name, found in counts.items()
        }
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def run(quick: bool) -> dict[str, Any]:
    """Rows: micro-batches of both joins. Summary: the ratio over the second half, and how even the workers are."""
    rows, files = (2_000, 4) if quick else (8_000, 12)
    folder = Path(tempfile.mkdtemp(prefix="files"))
    session = open_session(partitions=WORKERS)
    try:
        write_files(folder, [rows] * files, DOMAIN)
        skew(folder)
        found = {name: measured(session, folder, keys) for name, keys in HOT_KEYS.items()}
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    rates = {name: [*points(name, batches)] for name, (batches, _) in found.items()}
    last = min(map(len, rates.values()))
    speed = {
        name: statistics.median(each["rows_per_second"] for each in batches[last // 2 : last])
        for name, batches in rates.items()
    }
    one, four = HOT_KEYS
    return {
        "rows": [each for found in rates.values() for each in found],
        "summary": {
            **{f"{name}, rows a second": value for name, value in speed.items()},
            "four workers over one": speed[four] / speed[one],
            **{
                f"{name}, {count} of the busiest worker over the mean": part
                for name, (_, parts) in found.items()
                for count, part in parts.items()
            },
        },
    }
