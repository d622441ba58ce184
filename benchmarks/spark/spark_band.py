"""The papers' 2-D band on Spark: this join against the work-arounds for Spark's own, an equality on cells.

Spark refuses a stream-stream join without an equality. Its users cut the plane into cells, join on the cell, and
replicate every right row to all cells that it can reach: in both dimensions (a grid) or in one (buckets). All joins
read the same files, one per side and micro-batch, and write to a no-op sink. Points are micro-batches: rows per second
over the rows read so far, all of which are in the windows.

Grids with several cell sizes run with state in Spark's heap, and the best of them on RocksDB as well. A work-around
that has not read all files when its time is up ends with a row without a rate. Its `at_most` is the rate of the
micro-batch before: an upper bound, because rates fall as state grows.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.shared.band import PREDICATE
from benchmarks.shared.figures import Figure
from benchmarks.shared.spark import measure, open_session, points, streams, write_files
from streamjoin.spark import window_join

STORES = "org.apache.spark.sql.execution.streaming.state."
STORE = "spark.sql.streaming.stateStore.providerClass"
MEMORY, ROCKSDB = "HDFSBacked", "RocksDB"
GRIDS = {20: 35, 80: 40, 40: 90}  # cell width (a band is 20 wide) -> seconds to run
BUCKET = 5
LAST = 3  # compare this many micro-batches at the end
NEAR = (
    "x BETWEEN a - 10 AND a + 10 AND y BETWEEN b - 10 AND b + 10 "
    "AND ts_right BETWEEN ts - INTERVAL 1 HOUR AND ts + INTERVAL 1 HOUR"
)
FIGURES = {
    "spark_band": Figure(
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
        left, right, PREDICATE, window="1 hour", left_time="ts", right_time="ts", lateness="1 second"
    )


def reached(name: str, cell: int) -> Column:
    """The cells within 10 of a coordinate, one row for each."""
    low, high = (F.floor((F.col(name) + side) / cell) for side in (-10, 10))
    return F.explode(F.sequence(low, high))


def cells(session: SparkSession, folder: Path, cell: int, dimensions: int) -> DataFrame:
    """Spark's join on cells in one or two dimensions."""
    left, right = (frame.withWatermark("ts", "1 second") for frame in streams(session, folder))
    right = right.withColumnRenamed("ts", "ts_right")
    condition = NEAR
    for mine, other in (("x", "a"), ("y", "b"))[:dimensions]:
        left = left.withColumn(f"cell_{mine}", F.floor(F.col(mine) / cell))
        right = right.withColumn(f"cell_{other}", reached(other, cell))
        condition = f"cell_{mine} = cell_{other} AND {condition}"
    return left.join(right, F.expr(condition))


def curve(name: str, frame: DataFrame, sizes: Sequence[int], seconds: float) -> list[dict[str, Any]]:
    """A row per micro-batch that the join completes in time; if some are missing, one more with an upper bound."""
    found = [{**each, "at_most": None} for each in points(name, measure(frame, 0, seconds))]
    if not found:
        raise RuntimeError(f"{name} completed no micro-batch in {seconds} seconds: give it more")
    if len(found) < len(sizes):
        last = found[-1]
        read = last["rows_read"] + 2 * sizes[len(found)]
        found.append({**last, "rows_read": read, "rows_per_second": None, "at_most": last["rows_per_second"]})
    return found


def final_rate(found: list[dict[str, Any]]) -> float:
    """Rows per second with the most state: the median of the last micro-batches, or the upper bound."""
    if found[-1]["at_most"] is not None:
        return float(found[-1]["at_most"])
    return float(statistics.median(each["rows_per_second"] for each in found[-LAST:]))


def compared(name: str, own: list[dict[str, Any]], peer: list[dict[str, Any]]) -> tuple[str, float]:
    """A label and the ratio of this join's final rate to a work-around's; the label says so if the ratio is a bound."""
    state = f"{own[-1 - LAST // 2]['rows_read']:,} rows"
    bound = f", at least: it did not get beyond {peer[-2]['rows_read']:,}" if peer[-1]["at_most"] else ""
    return f"over {name}, about {state}{bound}", final_rate(own) / final_rate(peer)


def best_grid(found: dict[int, list[dict[str, Any]]]) -> int:
    """The cell width of the fastest grid, by the last micro-batches that all grids completed."""
    rates = {
        cell: [each["rows_per_second"] for each in rows if each["at_most"] is None]
        for cell, rows in found.items()
    }
    taken = min(len(each) for each in rates.values())
    return max(rates, key=lambda cell: statistics.median(rates[cell][max(0, taken - LAST) : taken]))


def work_arounds(
    session: SparkSession, folder: Path, sizes: Sequence[int]
) -> dict[str, list[dict[str, Any]]]:
    """The rows of all work-arounds by name; each runs for a limited time."""
    found: dict[str, list[dict[str, Any]]] = {}

    def take(kind: str, cell: int, store: str, seconds: float) -> None:
        session.conf.set(STORE, f"{STORES}{store}StateStoreProvider")
        name = f"{kind} of {cell}, {'memory' if store == MEMORY else store}"
        frame = cells(session, folder, cell, 2 if kind == "grid" else 1)
        found[name] = curve(name, frame, sizes, seconds)

    for cell, seconds in GRIDS.items():
        take("grid", cell, MEMORY, seconds)
    take("grid", best_grid({cell: found[f"grid of {cell}, memory"] for cell in GRIDS}), ROCKSDB, 60)
    take("bucket", BUCKET, MEMORY, 40)
    take("bucket", BUCKET, ROCKSDB, 20)
    return found


def run(quick: bool) -> dict[str, Any]:
    """Rows: micro-batches of every join. Summary: the ratios where the state is largest."""
    sizes = [5_000] * 4 if quick else [*[25_000] * 4, *[50_000] * 2, *[100_000] * 9]
    folder = Path(tempfile.mkdtemp(prefix="files"))
    # The state of a grid must fit into the heap.
    session = open_session("local[2]", 2, **{"spark.driver.memory": "8g"})
    try:
        write_files(folder, sizes)
        found = work_arounds(session, folder, sizes)
        session.conf.set(STORE, f"{STORES}{ROCKSDB}StateStoreProvider")
        own = curve("streamjoin", ours(session, folder), sizes, 60)
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "rows": [each for batches in (*found.values(), own) for each in batches],
        "summary": dict(compared(name, own, peer) for name, peer in found.items()),
    }
