"""Equality with full 15-minute windows on two cores: the rate that each index sustains, beside the scan.

Table 2 of Roy, Teubner & Gemulla 2014: on 40 cores, a hash index raised the rate of their handshake join from 5,117 to
225,234 tuples per second, a factor of 44. They changed the predicate of the 2-D band benchmark so that it could be
hashed, and do not say how. Here it is `x = a`, with keys from a domain as large as the window, so that a tuple finds
one partner on average at every rate. Rates rise until one is not sustained or memory runs out. If the last listed rate
is sustained, the index could take more.
"""

from __future__ import annotations

import gc
from typing import Any

from benchmarks.shared.band import WINDOW_SECONDS
from benchmarks.shared.figures import Figure
from benchmarks.shared.full_windows import BYTES_PER_TUPLE as USUAL_BYTES
from benchmarks.shared.full_windows import FullWindows, fits, sustained

PREDICATE = "left.x = right.a"
RATES = {
    "scan": (2000, 4000, 8000),
    "hash": (20_000, 60_000, 140_000),
    "bisort": (10_000, 40_000, 140_000),
    "raptable": (10_000, 30_000),
    "wibtree": (10_000, 30_000),
    "auto": (10_000, 140_000, 400_000),
}
BYTES_PER_TUPLE = {"scan": 48, "hash": 66}  # upper bounds; other indexes need as much as with two bands
SECONDS = 0.5  # length of a run
WORKERS = 2
PAPER_RATIO = 225_234 / 5_117
FIGURES = {
    "index_against_scan": Figure(
        "rate",
        {"capacity": ""},
        "tuples/s per side offered; 15-minute windows are full",
        "tuples/s per side taken, two cores",
        by="index",
        log=True,
        diagonal="taken = offered",
    ),
}


def index_rows(index: Any, quick: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for rate in (rate // 10 for rate in RATES[index]) if quick else RATES[index]:
        if not fits(rate, BYTES_PER_TUPLE.get(index, USUAL_BYTES)):
            break
        measured = FullWindows(PREDICATE, rate, WINDOW_SECONDS * rate, index, WORKERS, SECONDS).measured
        rows.append({"index": index, **measured})
        gc.collect()
        if rows[-1]["capacity"] < rate:
            break
    return rows


def run(quick: bool) -> dict[str, Any]:
    """Rows: capacity in tuples per second and side, by index and rate. Summary: sustained rates, ratios to the scan."""
    by_index = {index: index_rows(index, quick) for index in RATES}
    summary: dict[str, Any] = {"paper's ratio, 40 cores": PAPER_RATIO}
    rates = {index: sustained(rows) for index, rows in by_index.items()}
    for index, rate in rates.items():
        summary[f"{index}: sustained tuples/s a side"] = rate
        if index != "scan":
            summary[f"{index}: ratio to the scan"] = rate / rates["scan"]
    return {"rows": [row for rows in by_index.values() for row in rows], "summary": summary}
