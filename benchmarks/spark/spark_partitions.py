"""What a partition costs in a micro-batch: processor time by the number of partitions, with few rows in each.

The papers' 2-D band, one match per row, `local[2]`, micro-batches of 200,000 rows, as many workers as partitions. The
pipelines are those of `spark_cores.py`. The cost of a partition is the slope between the least and the most of them.
"""

from __future__ import annotations

from typing import Any

from benchmarks.shared.figures import Figure
from benchmarks.shared.spark import open_session
from benchmarks.shared.spark_costs import FILLING, KINDS, WARM_UP, point, taking_turns

FIGURES = {
    "spark_partitions": Figure(
        "partitions",
        {"core_ms_a_batch": ""},
        "partitions; micro-batches of 200,000 rows",
        "core-milliseconds a micro-batch",
        by="pipeline",
    ),
}


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per pipeline and number of partitions. Summary: the cost of a further partition."""
    size, counts = (40_000, {2: 2, 4: 2}) if quick else (200_000, {2: 5, 8: 5, 32: 5})
    rows: list[dict[str, Any]] = []
    session = open_session("local[2]", 2, **{"spark.sql.streaming.pollingDelay": "250ms"})
    try:
        for partitions, turns in counts.items():
            found = taking_turns(session, size, partitions, turns, 2, FILLING if rows else WARM_UP)
            rows += [point(name, size, partitions, costs) for name, costs in found.items()]
    finally:
        session.stop()
    few, many = min(counts), max(counts)
    summary = {}
    for kind in KINDS:
        cost = {row["partitions"]: row["core_ms_a_batch"] for row in rows if row["pipeline"] == kind.name}
        summary[f"{kind.name}: core-ms of a further partition"] = (cost[many] - cost[few]) / (many - few)
    return {"rows": rows, "summary": summary}
