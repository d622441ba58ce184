"""A small job that tests run on Spark: its files, its rows, and what the oracle makes of them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import streamjoin as sj
from streamjoin.spark.job.checkpoint import claim, mend
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.loaded import load_job
from streamjoin.spark.state.cache import cache_folder

TIME = pa.timestamp("us", "UTC")


LEFT = pa.schema({"ts": TIME, "x": pa.int32(), "name": pa.string()})


RIGHT = pa.schema({"ts": TIME, "a": pa.int32()})


ON = "abs(left.x - right.a) <= 1"
FAR = 1000  # the number of files that are so late that the rows of all others are final


JOB = f"""
[join]
on = "{ON}"
window = "10 seconds"
lateness = 0
workers = 2

[left]
source = {{ kind = "files", path = "left", max_files = 1 }}
[right]
source = {{ kind = "files", path = "right", max_files = 1 }}

[sink]
kind = "files"
path = "out"

[run]
trigger = "available-now"
checkpoint = "checkpoint"
"""


def rows_of(side: str, number: int) -> pa.Table:
    """Rows of one file: twenty, one a second, in a time of their own."""
    seconds = [20 * number + at for at in range(20)]
    stamps = pa.array([1_700_000_000_000_000 + 1_000_000 * second for second in seconds], TIME)
    values = pa.array([(7 * second + (side == "right")) % 10 for second in seconds], pa.int32())
    if side == "right":
        return pa.table([stamps, values], schema=RIGHT)
    return pa.table([stamps, values, pa.array([f"row {second}" for second in seconds])], schema=LEFT)


def add_files(folder: Path, number: int) -> None:
    """One more file for either side. Spark takes the oldest first, so each gets a moment of its own."""
    for side in ("left", "right"):
        (folder / side).mkdir(exist_ok=True)
        path = folder / side / f"{number}.parquet"
        pq.write_table(rows_of(side, number), path)
        os.utime(path, (1e9 + number, 1e9 + number))


def write_job(folder: Path, files: int, change: Callable[[str], str] = str) -> Path:
    for number in range(files):
        add_files(folder, number)
    path = folder / "job.toml"
    path.write_text(change(JOB))
    return path


def truth(
    files: int, how: Any = "inner", on: str = ON, window: Any = "10 seconds", later: bool = False
) -> Counter[tuple[Any, ...]]:
    """The rows of a join of the first files; `later`: only those that are final when FAR has come, too."""
    numbers = [*range(files), FAR] if later else range(files)
    left, right = (pa.concat_tables(rows_of(side, n) for n in numbers) for side in ("left", "right"))
    spec = sj.JoinSpec(LEFT, RIGHT, on, window, "ts", "ts", how)
    found = counted(sj.oracle.join(left, right, spec).to_pylist())
    return final(found) if later else found


def final(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """The rows without those of the file FAR, which wait for others."""
    end = rows_of("left", FAR)["ts"][0].as_py()
    return Counter(
        {row: n for row, n in rows.items() if all(at is None or at < end for at in (row[0], row[3]))}
    )


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def written(spark: SparkSession, folder: Path) -> Counter[tuple[Any, ...]]:
    """What the sink holds, as Spark reads it: only committed files."""
    return counted(spark.read.parquet(str(folder / "out")).toArrow().to_pylist())


def run_to_the_end(spark: SparkSession, path: Path) -> tuple[bool, Job]:
    loaded, going_on = claim(load_job(Job.read(path), spark))
    mend(spark, loaded.job)
    loaded.start().awaitTermination()
    return going_on, loaded.job


def query_id(folder: Path) -> str:
    return str(json.loads((folder / "checkpoint" / "metadata").read_text())["id"])


def cached(folder: Path) -> list[Path]:
    """The files that the job's query has in the cache."""
    return [path for path in cache_folder().iterdir() if path.name.startswith(query_id(folder))]


def last_entry(log: Path) -> Path:
    return max(log.glob("[0-9]*"), key=lambda path: int(path.name.removesuffix(".compact")))


def tear(entry: Path) -> None:
    """What a machine that loses power leaves of a file that it was writing."""
    entry.write_bytes(entry.read_bytes()[: entry.stat().st_size // 2])
