"""Band joins over selectivity with windows of 8M tuples, by index and beside the scan (PanJoin's Figure 15e).

One band over x, as wide as the selectivity requires: 1 to 4,096 matches per tuple. Both windows are full. Batches have
32K tuples, fewer where they would find more than 2 million results, and 1,024 with the scan. Result rows are built and
taken; the paper's nodes leave that out. The paper's windows count tuples; here, 15-minute windows hold as many. Two
cores, the best of five runs after one that warms up.
"""

from __future__ import annotations

import gc
from typing import Any

from benchmarks.shared.band import WINDOW_SECONDS
from benchmarks.shared.figures import Figure
from benchmarks.shared.full_windows import FullWindows

WINDOW, DOMAIN = 1 << 23, 1 << 30
SELECTIVITIES = (1, 16, 256, 4096)
INDEXES = ("scan", "bisort", "raptable", "wibtree")
BATCH, SCANNED, MOST_MATCHES = 1 << 15, 1 << 10, 1 << 21
SECONDS = 0.25  # length of a run
WORKERS = 2
FIGURES = {
    "engine_select": Figure(
        "matches",
        {"capacity": ""},
        "matches per tuple; windows of 8M, batches of up to 32K",
        "tuples/s per side, two cores",
        by="index",
        log=True,
    ),
}


def row_of(index: Any, matches: int, window: int) -> dict[str, Any]:
    reach = max(1, DOMAIN * matches // window // 2)
    predicate = f"left.x BETWEEN right.a - {reach} AND right.a + {reach}"
    batch = min(SCANNED if index == "scan" else BATCH, MOST_MATCHES // matches)
    rate = window // WINDOW_SECONDS
    windows = FullWindows(predicate, rate, DOMAIN, index, WORKERS, SECONDS, batch)
    return {"index": index, "matches": matches, **windows.measured}


def run(quick: bool) -> dict[str, Any]:
    """Rows: capacity in tuples per second and side, by index and selectivity. Summary: ratios to the scan."""
    rows = []
    for index in INDEXES:
        for matches in SELECTIVITIES[::3] if quick else SELECTIVITIES:
            rows.append(row_of(index, matches, 1 << 20 if quick else WINDOW))
            gc.collect()
    capacity = {(row["index"], row["matches"]): row["capacity"] for row in rows}
    summary = {
        f"{index}, {matches:,} matches: ratio to the scan": rate / capacity["scan", matches]
        for (index, matches), rate in capacity.items()
        if index != "scan"
    }
    return {"rows": rows, "summary": summary}
