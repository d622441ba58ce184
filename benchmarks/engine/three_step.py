"""The three-step engine end to end with full 15-minute windows, beside the bare scan kernel in the same run.

The papers' 2-D band. A full window holds 900 * rate tuples. The windows are filled before the measurement, and stay
full because stream time advances with every batch. A run pushes a fixed number of batches to each side in turns and
takes all results. The bare kernel scans two window arrays of the same size in turns, with probes of the same batch
size and arguments made beforehand. Both run on one pinned core, in turns, and the best of five runs counts. The clock
is processor time: the engine runs in the calling thread, and other load of the machine must not count.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from benchmarks.shared.band import WINDOW_SECONDS, FedJoin, Kernel, open_band
from benchmarks.shared.figures import Figure, Row
from benchmarks.shared.timing import best_of_turns, pin

SEED = 20110612
BATCHES = (1, 16, 64, 256, 1024)
RUNS = 5
TARGET = 0.85
FIGURES = {
    "three_step": Figure(
        "batch",
        {"engine_comparisons_per_s": "three-step engine", "kernel_comparisons_per_s": "bare kernel"},
        "tuples per batch",
        "G comparisons/s, one core",
        1e9,
    ),
}


class ThreeStep(FedJoin):
    """The engine with full windows, in the caller's thread."""

    def __init__(self, rate: int):
        super().__init__(
            open_band(WINDOW_SECONDS, topology="three_step", index="scan", workers=1), rate, SEED
        )
        self.fill(WINDOW_SECONDS, at_once=1)

    def measure(self, count: int, batch: int) -> float:
        """Processor seconds for `count` batches to each side."""
        made = self.batches(count, batch)
        started = time.process_time()
        for left, right in made:
            self.step(left, right)
        return time.process_time() - started


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per batch size. Summary: the smallest ratio to the kernel, and the best rates."""
    pin()
    rate = 200 if quick else 1000
    window = rate * WINDOW_SECONDS
    engine, kernel = ThreeStep(rate), Kernel(window)
    rows = []
    for batch in BATCHES:
        # About 10 G comparisons, so that a run takes most of a second.
        count = max(2, round((2e9 if quick else 1e10) / (2 * batch * window)))
        rivals = {"engine": engine.measure, "kernel": kernel.measure}
        times = best_of_turns(
            RUNS, {name: partial(measure, count, batch) for name, measure in rivals.items()}
        )
        ours, bare = times["engine"], times["kernel"]
        comparisons = 2 * count * batch * window
        rows.append(
            {
                "batch": batch,
                "window": window,
                "tuples_per_s": count * batch / ours,
                "engine_comparisons_per_s": comparisons / ours,
                "kernel_comparisons_per_s": comparisons / bare,
                "ratio": bare / ours,
                # The rate r that this core just sustains with 15-minute windows (900 r tuples).
                "sustained_rate": (comparisons / ours / (2 * WINDOW_SECONDS)) ** 0.5,
            }
        )
    summary = {
        "smallest_ratio": min(row["ratio"] for row in rows),
        "target": TARGET,
        "best_comparisons_per_s": max(row["engine_comparisons_per_s"] for row in rows),
        "best_sustained_rate": max(row["sustained_rate"] for row in rows),
    }
    return {"rows": rows, "summary": summary}


def main_rows(result: Row) -> list[tuple[str, str]]:
    """The lines of the lab's main table."""
    window = result["rows"][0]["window"]
    what = f"engine, scan, full windows of {window:,} tuples, one core"
    return [
        (
            f"{what}, batches of {row['batch']:,}",
            f"{row['engine_comparisons_per_s'] / 1e9:.1f} G comparisons/s, {row['ratio']:.2f} of the bare kernel",
        )
        for row in result["rows"]
    ]
