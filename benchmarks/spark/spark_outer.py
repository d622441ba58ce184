"""Left outer joins on Spark beside the inner join of the same streams, and beside Spark's own left outer join.

An equality within a minute: a left row meets 200,000 right rows and matches one of them on average, and a third of the
left rows matches none. All queries read the same files, one per side and micro-batch, and write to a no-op sink; state
is in RocksDB. They live through the whole run and are fed in turns, as in `spark_throughput.py`; the ratios are medians
over the turns, with their 95 % intervals.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.shared.fed_queries import STRETCH, Make, taking_turns, throughput
from benchmarks.shared.figures import Figure
from benchmarks.shared.medians import interval_of_median
from benchmarks.shared.spark import open_session, streams, window_of, write_files
from streamjoin.semantics.keep import How
from streamjoin.spark import window_join

WINDOW = 100_000  # rows of a side in a minute
ROWS, PAIRS, WARM_UP = 50_000, 9, 3
QUICK_ROWS, QUICK_PAIRS = 10_000, 2
LATENESS = "1 second"
FIGURES = {
    "spark_outer": Figure("turn", {"rows_per_second": ""}, "turn", "rows/s", by="query"),
}


def ours(session: SparkSession, how: How, folder: Path) -> DataFrame:
    left, right = streams(session, folder)
    return window_join(
        left,
        right,
        "left.x = right.a",
        window=window_of(WINDOW),
        left_time="ts",
        right_time="ts",
        how=how,
        lateness=LATENESS,
    )


def sparks(session: SparkSession, folder: Path) -> DataFrame:
    left, right = (frame.withWatermark("ts", LATENESS) for frame in streams(session, folder))
    span = f"INTERVAL '{window_of(WINDOW)}'"
    near = F.expr(f"x = a AND ts_right BETWEEN ts - {span} AND ts + {span}")
    return left.join(right.withColumnRenamed("ts", "ts_right"), near, "leftOuter")


def turns(makes: Mapping[str, Make], rows: int, pairs: int) -> dict[str, list[float]]:
    """The throughput of every query, turn by turn."""
    files = Path(tempfile.mkdtemp(prefix="files"))
    filling = 2 * WINDOW // rows
    try:
        write_files(files, [rows] * (filling + (pairs + 1) * STRETCH), 2 * WINDOW)
        found = taking_turns(files, makes, filling, rows, pairs)
    finally:
        shutil.rmtree(files, ignore_errors=True)
    return {name: [throughput(each) for each in stretches] for name, stretches in found.items()}


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per query and turn. Summary: the ratios of throughput."""
    rows, pairs = (QUICK_ROWS, QUICK_PAIRS) if quick else (ROWS, PAIRS)
    # A waiting query polls for files; four times a second keeps it from using a core.
    session = open_session("local[2]", 2, **{"spark.sql.streaming.pollingDelay": "250ms"})
    makes: dict[str, Make] = {
        "streamjoin, inner": partial(ours, session, "inner"),
        "streamjoin, left": partial(ours, session, "left"),
        "Spark, left": partial(sparks, session),
    }
    try:
        turns(makes, rows, 1 if quick else WARM_UP)
        found = turns(makes, rows, pairs)
    finally:
        session.stop()
    points = [
        {"query": name, "turn": number, "rows_per_second": rate}
        for name, rates in found.items()
        for number, rate in enumerate(rates)
    ]
    return {"rows": points, "summary": summary_of(found)}


def summary_of(found: Mapping[str, list[float]]) -> dict[str, float]:
    """Median rates, and ratios of the left join."""
    left = found["streamjoin, left"]
    summary = {f"{name}: rows/s": statistics.median(rates) for name, rates in found.items()}
    for name, what in (("streamjoin, inner", "our inner join"), ("Spark, left", "Spark's left join")):
        paired = [one / other for one, other in zip(left, found[name], strict=True)]
        low, high = interval_of_median(paired)
        ratios = {"median": statistics.median(paired), "from": low, "to": high}
        summary |= {f"our left join, {what} being 1: {key}": value for key, value in ratios.items()}
    return summary
