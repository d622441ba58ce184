"""The papers' 2-D band join with full 15-minute windows on two cores: the rate it can keep, indexed and scanned.

R(x int32, y float32) and S(a int32, b float32) meet where both keys differ by 10 at most. Two key domains:
- `papers`: uniform in 1..10,000, so that one pair in 238,000 matches. Results grow with the square of the rate: 4,000
  tuples a second and side find 60,000 results a second, 225,234 would find 380 million.
- `one match`: the domain grows with the window, so that a tuple finds one partner on average at every rate.

Rates rise until one is not kept, or memory ends: 225,234 tuples a second fill windows of 203 million tuples a side.
BAND_2D_PARTS=papers,... measures a part, and keeps the stored rows of the others.

The figure of 225,234 tuples a second (Roy, Teubner & Gemulla 2014, Table 2) is not of this predicate: it is of 40 cores
and a hash index, for which the predicate was changed; how many results it had is not told. PanJoin's figures are
not of it either: they have one key, windows of a fixed number of tuples, and leave result transfer out (section V-C).
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

SECONDS = 0.5  # of a run
WORKERS = 2
PAPER_RATE = 225_234
# Domain, index, and rates.
PARTS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "scan": ("papers", "scan", (2000, 4000, 6000)),
    "papers": ("papers", "auto", (10_000, 20_000, 40_000)),
    "one match": ("one match", "auto", (20_000, 100_000, PAPER_RATE, 440_000)),
}
FIGURES = {
    "band_2d": Figure(
        "rate",
        {"capacity": ""},
        "tuples/s a side whose 15-minute windows are full",
        "tuples/s a side that are taken, two cores",
        by="part",
        log=True,
        diagonal="what comes",
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
        commit = git("rev-parse", "HEAD")  # parts may come from several runs
        rows.append({"part": part, "keys": domain, "index": index, **windows.measured, "commit": commit})
        del windows
        gc.collect()
        if rows[-1]["capacity"] < rate:
            break
    return rows


def run(quick: bool) -> dict[str, Any]:
    """Rows: capacity in tuples a second and side by part and rate. Summary: sustained rates, ratios to the scan's."""
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
