"""A Spark pipeline with the join against the same pipeline with an operator that drops its input (PanJoin, Figure 15h).

The papers' 2-D band, one match per row. Both pipelines read the same files, one per side and micro-batch, pack and
shuffle them, run a stateful operator, and write to a no-op sink; they differ only in the operator. Throughput is rows
over the time of a micro-batch from its trigger to its commit.

Both pipelines are queries of one session. They live through the whole run and are fed in turns, a stretch of
micro-batches at a time: only one works at any time, and both see the same Java, which compiles as it warms up, and the
same load of the machine. Two consecutive stretches make a pair, and each pipeline is first in every other pair. The
result is the median of the pairs' ratios with its 95 % interval.

Not counted: the micro-batches that fill the windows; the first micro-batch of a stretch, which finds the processor's
caches full of the other pipeline; and several minutes of warm-up before the first size, in which Java compiles most of
what it runs.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from benchmarks.shared.fed_queries import STRETCH, taking_turns, throughput
from benchmarks.shared.figures import Figure
from benchmarks.shared.medians import interval_of_median
from benchmarks.shared.spark import (
    band_join,
    domain_of,
    open_session,
    window_of,
    write_files,
)
from benchmarks.shared.spark_costs import Drop
from streamjoin.spark.join.processor import JoinProcessor
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.window_join import assemble

WARM_UP = 150  # pairs of stretches before the first that counts
FIGURES = {
    "spark_throughput": Figure(
        "rows_a_batch",
        {"rows_per_second": ""},
        "rows per micro-batch; windows of 1M rows per side, one match per row",
        "rows/s",
        by="pipeline",
    ),
}


Processor = Callable[[JoinTask], StatefulProcessor]
PROCESSORS: dict[str, Processor] = {"join": JoinProcessor, "drop": Drop}


def stretches(
    session: SparkSession,
    window: int,
    rows: int,
    pairs: int,
    processors: Mapping[str, Processor] = PROCESSORS,
) -> dict[str, list[list[dict[str, Any]]]]:
    """The counted micro-batches of every pipeline, by stretch: `rows` rows per side each, windows of `window` rows."""
    files = Path(tempfile.mkdtemp(prefix="files"))
    filling = min(window, 100_000)
    fill = [filling] * (window // filling + 1)

    def make(processor: Processor, folder: Path) -> DataFrame:
        return assemble(*band_join(session, folder, window_of(window)), processor)

    try:
        write_files(files, [*fill, *[rows] * (pairs + 1) * STRETCH], domain_of(window))
        makes = {name: partial(make, processor) for name, processor in processors.items()}
        return taking_turns(files, makes, len(fill), rows, pairs)
    finally:
        shutil.rmtree(files, ignore_errors=True)


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per pipeline and micro-batch size. Summary: the ratios of throughput."""
    window, sizes, pairs = (
        (60_000, (20_000,), 2) if quick else (1_000_000, (5_000, 10_000, 25_000, 100_000), 31)
    )
    warm_up = 1 if quick else WARM_UP
    results, summary = [], {}
    # A waiting query polls for files; four times a second keeps it from using a core.
    session = open_session("local[2]", 2, **{"spark.sql.streaming.pollingDelay": "250ms"})
    try:
        stretches(session, 60_000, 20_000, warm_up)
        for rows in sizes:
            found = stretches(session, window, rows, pairs)
            results += [point(name, rows, list(chain(*each))) for name, each in found.items()]
            size = f"with the join over without, {2 * rows:,} rows a micro-batch"
            for what, ratio in ratios(found["join"], found["drop"]).items():
                summary[f"{size}: {what}"] = ratio
    finally:
        session.stop()
    return {"rows": results, "summary": summary}


def ratios(join: Sequence[list[dict[str, Any]]], drop: Sequence[list[dict[str, Any]]]) -> dict[str, float]:
    """Throughput of `join` over `drop`: the median over pairs of stretches with its interval, and over all together."""
    paired = [throughput(one) / throughput(other) for one, other in zip(join, drop, strict=True)]
    low, high = interval_of_median(paired)
    together = throughput(list(chain(*join))) / throughput(list(chain(*drop)))
    return {"median": statistics.median(paired), "from": low, "to": high, "all together": together}


def point(name: str, rows: int, batches: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of a pipeline: its median micro-batch, the phases that Spark reports, and the join's own metrics.

    The join's metrics are means, because only some micro-batches merge runs.
    """
    metrics = ("state_rows", "matches", "written_bytes", "kernel_us", "state_us", "conversion_us")
    parts = ("addBatch", "queryPlanning", "walCommit", "commitOffsets", "latestOffset", "getBatch")
    return {
        "pipeline": name,
        "rows_a_batch": 2 * rows,
        "batches": len(batches),
        "rows_per_second": throughput(batches),
        "seconds_a_batch": statistics.median(each["seconds"] for each in batches),
        **{
            f"{part}_ms": statistics.median(each["parts_ms"].get(part, 0) for each in batches)
            for part in parts
        },
        **{key: statistics.mean(each["observed"].get(key, 0) for each in batches) for key in metrics},
    }
