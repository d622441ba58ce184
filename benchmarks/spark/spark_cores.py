"""Processor time per row of a Spark pipeline by the size of a micro-batch: Spark alone, without joining, with the join.

The papers' 2-D band, one match per row, `local[2]`, two partitions. Every pipeline but Spark's own runs in two forms:
as it is, and as before Java was relieved (`benchmarks/shared/spark_costs.py`).
"""

from __future__ import annotations

from typing import Any

from benchmarks.shared.figures import Figure
from benchmarks.shared.spark import open_session
from benchmarks.shared.spark_costs import FILLING, WARM_UP, point, taking_turns

PARTITIONS = 2
FIGURES = {
    "spark_cores": Figure(
        "rows_a_batch",
        {"core_us": ""},
        "rows per micro-batch; windows of 1M rows per side, one match per row",
        "core-microseconds/row",
        by="pipeline",
    ),
}


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per pipeline and micro-batch size. Summary: ratios of processor time and of throughput."""
    # Rows of a micro-batch, with the number of turns and the micro-batches of a turn.
    sizes = {40_000: (2, 1)} if quick else {200_000: (5, 2), 800_000: (3, 2), 3_200_000: (3, 1)}
    rows: list[dict[str, Any]] = []
    # A waiting query polls for files; four times a second keeps it from using a core.
    session = open_session("local[2]", PARTITIONS, **{"spark.sql.streaming.pollingDelay": "250ms"})
    try:
        for size, (turns, batches) in sizes.items():
            warm_up = FILLING if rows else WARM_UP
            found = taking_turns(session, size, PARTITIONS, turns, batches, warm_up)
            rows += [point(name, size, PARTITIONS, costs) for name, costs in found.items()]
    finally:
        session.stop()
    return {"rows": rows, "summary": {key: value for size in sizes for key, value in summary(rows, size)}}


def summary(rows: list[dict[str, Any]], size: int) -> list[tuple[str, float]]:
    """The ratios at one size of micro-batches."""
    at = {row["pipeline"]: row for row in rows if row["rows_a_batch"] == size}
    named = f"{size:,} rows a micro-batch: "
    return [
        (
            named + "core-time without joining over Spark alone",
            core(at, "drop") / core(at, "read and shuffle"),
        ),
        (named + "the same before", core(at, "drop, before") / core(at, "read and shuffle")),
        (named + "throughput of the join over before", speed(at, "join") / speed(at, "join, before")),
        (named + "Python's microseconds a row in the join", at["join"]["python_us"]),
    ]


def core(at: dict[str, Any], name: str) -> float:
    return float(at[name]["core_us"])


def speed(at: dict[str, Any], name: str) -> float:
    return float(at[name]["rows_per_second"])
