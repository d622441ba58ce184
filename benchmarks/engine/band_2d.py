"""The papers' 2-D band join with full 15-minute windows on two cores: the rate it sustains, indexed and scanned.

Two key domains:
- `papers`: uniform in 1..10,000, so that one pair in 238,000 matches. Results grow with the square of the rate: 4,000
  tuples per second and side give 60,000 results per second; 225,234 would give 380 million.
- `one match`: the domain grows with the window, so that a tuple finds one partner on average at every rate.

Rates rise until one is not sustained or memory runs out: at 225,234 tuples per second a window holds 203 million
tuples. BAND_2D_PARTS=papers,... measures some parts and keeps the stored rows of the others.

The published 225,234 tuples per second (Roy, Teubner & Gemulla 2014, Table 2) are for another predicate, 40 cores and
a hash index; the paper does not say how many results there were. PanJoin's figures are for another join as well: one
key, windows of a fixed number of tuples, and no result transfer (section V-C).
"""

from __future__ import annotations

import gc
import math
import os
from typing import Any

from benchmarks.shared.band import DOMAIN, MATCHING, PREDICATE, WINDOW_SECONDS
from benchmarks.shared.figures import Figure
from benchmarks.shared.full_windows import FullWindows, fits, sustained
from benchmarks.shared.results import git, stored

SECONDS = 0.5  # length of a run
WORKERS = 2
PAPER_RATE = 225_234
# Each part has a key domain, an index, and rates.
PARTS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "scan": ("papers", "scan", (2000, 4000, 6000)),
    "papers": ("papers", "auto", (10_000, 20_000, 40_000)),
    "one match": ("one match", "auto", (20_000, 100_000, PAPER_RATE, 440_000)),
}
FIGURES = {
    "band_2d": Figure(
        "rate",
        {"capacity": ""},
        "tuples/s per side offered; 15-minute windows are full",
        "tuples/s per side taken, two cores",
        by="part",
        log=True,
        diagonal="taken = offered",
    ),
}


def domain_of(name: str, rate: int) -> int:
    return DOMAIN if name == "papers" else round(math.sqrt(MATCHING * WINDOW_SECONDS * rate))


def part_rows(part: str, quick: bool) -> list[dict[str, Any]]:
    domain, index, rates = PARTS[part]
    rows: list[dict[str, Any]] = []
    for rate in (rate // 10 for rate in rates) if quick else rates:
        if not fits(rate):
            break
        windows = FullWindows(PREDICATE, rate, domain_of(domain, rate), index, WORKERS, SECONDS)
        commit = git("rev-parse", "HEAD")  # the stored parts may come from different runs
        rows.append({"part": part, "keys": domain, "index": index, **windows.measured, "commit": commit})
        del windows
        gc.collect()
        if rows[-1]["capacity"] < rate:
            break
    return rows


def run(quick: bool) -> dict[str, Any]:
    """Rows: capacity in tuples per second and side, by part and rate. Summary: sustained rates, ratios to the scan."""
    chosen = os.environ.get("BAND_2D_PARTS", ",".join(PARTS)).split(",")
    before = stored("band_2d", quick) if len(chosen) < len(PARTS) else None
    kept = before["rows"] if before else []
    rows = [row for part in PARTS if part not in chosen for row in kept if row["part"] == part]
    rows += [row for part in PARTS if part in chosen for row in part_rows(part, quick)]
    summary: dict[str, Any] = {"paper's rate, another predicate, 40 cores": PAPER_RATE}
    rates = {part: sustained(own) for part in PARTS if (own := [r for r in rows if r["part"] == part])}
    for part, rate in rates.items():
        summary[f"{part}: sustained tuples/s a side"] = rate
        if part != "scan" and "scan" in rates:
            summary[f"{part}: ratio to the scan"] = rate / rates["scan"]
    return {"rows": rows, "summary": summary}
