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

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from benchmarks.shared.figures import Figure
from benchmarks.shared.medians import interval_of_median
from benchmarks.shared.spark import (
    NAMES,
    band_join,
    batches_of,
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
STRETCH = (
    5  # micro-batches per turn of a pipeline; odd, because the join merges runs every second or sixth time
)
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


class Pipeline:
    """A query that lives through the run and works while it is fed."""

    def __init__(
        self,
        session: SparkSession,
        files: Path,
        window: int,
        processor: Processor,
    ):
        self.files, self._fed, self._last = files, 0, -1
        self.folder = Path(tempfile.mkdtemp(prefix="pipeline"))
        for side in NAMES:
            (self.folder / side).mkdir()
        frame = assemble(*band_join(session, self.folder, window_of(window)), processor)
        writer = frame.writeStream.format("noop")
        self.query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def feed(self, count: int) -> list[dict[str, Any]]:
        """Let it read the next `count` files of each side; return its micro-batches."""
        for number in range(self._fed, self._fed + count):
            for side in NAMES:
                name = f"{number:05}.parquet"
                os.link(self.files / side / name, self.folder / side / name)
        self._fed += count
        self.query.processAllAvailable()
        new = [each for each in batches_of(self.query) if each["batch"] > self._last]
        self._last = new[-1]["batch"]
        return new

    def stop(self) -> None:
        self.query.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def taking_turns(
    session: SparkSession,
    window: int,
    rows: int,
    pairs: int,
    processors: Mapping[str, Processor] = PROCESSORS,
) -> dict[str, list[list[dict[str, Any]]]]:
    """The counted micro-batches of every pipeline, by stretch: `rows` rows per side each, windows of `window` rows."""
    folder = Path(tempfile.mkdtemp(prefix="files"))
    filling = min(window, 100_000)
    fill = [filling] * (window // filling + 1)
    pipelines: dict[str, Pipeline] = {}
    found: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in processors}
    try:
        write_files(folder, [*fill, *[rows] * (pairs + 1) * STRETCH], domain_of(window))
        for name, processor in processors.items():
            pipelines[name] = Pipeline(session, folder, window, processor)
            pipelines[name].feed(len(fill))
        for number in range(pairs + 1):  # the first pair is not counted
            for name in list(pipelines)[:: -1 if number % 2 else 1]:
                batches = pipelines[name].feed(STRETCH)
                # Spark may list one side's file before the other's, which gives micro-batches of half the rows.
                whole = [each for each in batches[1:] if each["rows"] == 2 * rows]
                found[name] += [whole] if number else []
    finally:
        for pipeline in pipelines.values():
            pipeline.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def throughput(batches: Sequence[dict[str, Any]]) -> float:
    """Rows per second of several micro-batches together."""
    return float(sum(each["rows"] for each in batches) / sum(each["seconds"] for each in batches))


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
        taking_turns(session, 60_000, 20_000, warm_up)
        for rows in sizes:
            found = taking_turns(session, window, rows, pairs)
            results += [point(name, rows, list(chain(*stretches))) for name, stretches in found.items()]
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
