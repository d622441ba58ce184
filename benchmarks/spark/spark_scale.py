"""How the join on Spark scales with the window and with the executors of a cluster.

Windows hold ten thousand to ten million rows of state; clusters have 1, 2 and 4 executors of one core each. The papers'
2-D band, with one match per row at every window size. Large micro-batches fill a window, then small ones of equal size
are measured. The bytes written must follow the micro-batch, not the window. Executors share the cores if they outnumber
them.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.shared.figures import Figure
from benchmarks.shared.spark import (
    band_join,
    domain_of,
    measure,
    open_session,
    rate,
    window_of,
    write_files,
)
from streamjoin.spark.window_join import assemble

ROWS, FILL = 50_000, 500_000  # rows per side in a measured micro-batch, and in one that fills a window
COLD = 16  # micro-batches that warm up a new executor, whose Java still compiles
MEASURED = 8  # a multiple of the micro-batches between two merges, so that merged bytes count in proportion
FIGURES = {
    "spark_scale-window": Figure(
        "rows_of_windows",
        {"seconds_a_batch": "a micro-batch of 100,000 rows"},
        "rows of both windows, one match per row",
        "seconds",
        where={"part": "window"},
    ),
    "spark_scale-cluster": Figure(
        "executors",
        {"rows_per_second": "windows of 500,000 rows per side"},
        "executors of one core each, on two cores",
        "rows/s",
        where={"part": "cluster"},
    ),
}


def point(
    session: SparkSession, window: int, workers: int, partitioning: Any = "auto", warm: int = 2
) -> dict[str, Any]:
    """A row for micro-batches into windows of `window` rows per side, after `warm` that are not measured."""
    folder = Path(tempfile.mkdtemp(prefix="files"))
    fill = [FILL] * (window // FILL) or [window]
    try:
        write_files(folder, [*fill, *[ROWS] * (warm + MEASURED)], domain_of(window))
        frame = assemble(*band_join(session, folder, window_of(window), workers, partitioning))
        batches = measure(frame, len(fill) + warm)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    observed = batches[-1]["observed"]
    return {
        "rows_of_windows": 2 * window,
        "rows_per_second": rate(batches),
        "seconds_a_batch": statistics.median(each["seconds"] for each in batches),
        "written_bytes": statistics.mean(each["observed"]["written_bytes"] for each in batches),
        **{key: observed[key] for key in ("state_rows", "state_bytes", "matches", "kernel_us", "state_us")},
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per window, partitioning and number of executors. Summary: costs and gains as ratios."""
    windows = (5_000, 50_000) if quick else (5_000, 50_000, 500_000, 5_000_000)
    executors = (1, 2) if quick else (1, 2, 4)
    results = []
    session = open_session()
    try:
        point(session, windows[0], 2)  # warms up Java
        for window in windows:
            results.append({"part": "window", "executors": 0, **point(session, window, 2)})
        for partitioning in ("range", "matrix"):
            found = point(session, windows[-2], 2, partitioning)
            results.append({"part": partitioning, "executors": 0, **found})
    finally:
        session.stop()
    for count in executors:
        session = open_session(f"local-cluster[{count},1,2048]", count)
        try:
            found = point(session, windows[-2], count, warm=2 if quick else COLD)
            results.append({"part": "cluster", "executors": count, **found})
        finally:
            session.stop()
    return {"rows": results, "summary": summary(results)}


def summary(results: list[dict[str, Any]]) -> dict[str, float]:
    """The cost of the largest window, and the gains of ranges and of executors."""
    windows, cluster = ([each for each in results if each["part"] == part] for part in ("window", "cluster"))
    small, large = windows[0], windows[-1]
    ranges, matrix = (
        next(each["rows_per_second"] for each in results if each["part"] == part)
        for part in ("range", "matrix")
    )
    return {
        "micro-batch with the largest window over that with the smallest": large["seconds_a_batch"]
        / small["seconds_a_batch"],
        "bytes written, largest window over smallest": large["written_bytes"] / small["written_bytes"],
        "ranges over the matrix": ranges / matrix,
        **{
            f"{each['executors']} executors over one": each["rows_per_second"] / cluster[0]["rows_per_second"]
            for each in cluster[1:]
        },
    }
