"""ScaleJoin over workers and windows (Gulisano et al. 2015, Figure 5), beside the bare scan kernel on as many cores.

The papers' 2-D band, one stream per side. Windows of 5, 10 and 15 minutes hold 1,000 tuples per second; they are filled
beforehand and stay full. One more window of 15 minutes holds about the rate that all cores sustain with it, see the
column `sustained_rate`. A run pushes a fixed number of batches to each side and ends when every worker has joined the
last tuple; the clock is wall time, because threads work. Two peers take turns with it: the bare kernel, with one thread
pinned to each core on its share of the window, and CellJoin with as many workers. The best of five runs counts.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.shared.band import FedJoin, Kernel, open_band
from benchmarks.shared.figures import Figure
from benchmarks.shared.filling import without_probes
from benchmarks.shared.timing import best_of_turns, core_count, seconds_together

SEED = 20150301
WINDOWS = ((5, 1_000), (10, 1_000), (15, 1_000), (15, 4_200))  # minutes, tuples per second and side
BATCH = 256
RUNS = 5
TARGET = 0.85
FIGURES = {
    "scalejoin_throughput": Figure(
        "workers",
        {
            "comparisons_per_s": "ScaleJoin",
            "celljoin_comparisons_per_s": "CellJoin",
            "kernel_comparisons_per_s": "bare kernel on as many cores",
        },
        "workers, on two cores; full windows of 15 minutes",
        "G comparisons/s",
        1e9,
        where={"minutes": 15, "rate": 1_000},
    ),
}


class Filled(FedJoin):
    """A join with full windows; `measure` ends when all workers have joined everything."""

    def __init__(self, topology: Any, workers: int, rate: int, seconds: int):
        super().__init__(open_band(seconds, topology=topology, index="scan", workers=workers), rate, SEED)
        self.pushed = 0
        with without_probes(self.join):
            self.fill(seconds)
            self.wait()

    def step(self, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
        self.pushed += left.num_rows + right.num_rows
        return super().step(left, right)

    def wait(self) -> None:
        """Wait until every worker has joined everything; poll whenever one of them rings the bell."""
        topology: Any = self.join._topology
        workers = getattr(topology, "workers", [])
        while any(worker.progress.done < self.pushed for worker in workers):
            seen = topology._bell.read()
            self.join.poll()
            topology._bell.wait(seen)

    def measure(self, count: int, batch: int) -> float:
        made = self.batches(count, batch)
        started = time.perf_counter()
        for left, right in made:
            self.step(left, right)
        self.wait()
        return time.perf_counter() - started

    @property
    def loads(self) -> np.ndarray[Any, Any]:
        return np.array(self.join.stats().worker_comparisons, np.float64)


class Bare:
    """The bare scan kernel: one pinned thread per worker, on its share of both windows."""

    def __init__(self, workers: int, window: int):
        self.kernels = [Kernel(window // workers) for _ in range(workers)]

    def measure(self, count: int, batch: int) -> float:
        works = [
            partial(kernel.run, [kernel.probes(batch, side % 2) for side in range(2 * count)])
            for kernel in self.kernels
        ]
        return seconds_together(works, pinned=True)


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per window and number of workers. Summary: the ratio to the kernel on all cores."""
    rows: list[dict[str, Any]] = []
    cores = core_count()
    for minutes, full_rate in WINDOWS:
        rate = full_rate // 10 if quick else full_rate
        window = rate * 60 * minutes
        for workers in sorted({1, cores, 2 * cores}) if (minutes, full_rate) != WINDOWS[-1] else (cores,):
            engines = {name: Filled(name, workers, rate, 60 * minutes) for name in ("scalejoin", "celljoin")}
            count = max(2, round((1e9 if quick else 6e9) * min(workers, cores) / (2 * BATCH * window)))
            bare = Bare(min(workers, cores), window)
            before = engines["scalejoin"].loads
            rivals = {**{name: engine.measure for name, engine in engines.items()}, "kernel": bare.measure}
            times = best_of_turns(
                RUNS, {name: partial(measure, count, BATCH) for name, measure in rivals.items()}
            )
            ours, cell, kernel = (times[name] for name in rivals)
            loads = engines["scalejoin"].loads - before
            comparisons = 2 * count * BATCH * window
            rows.append(
                {
                    "minutes": minutes,
                    "rate": rate,
                    "workers": workers,
                    "comparisons_per_s": comparisons / ours,
                    "celljoin_comparisons_per_s": comparisons / cell,
                    "kernel_comparisons_per_s": comparisons / kernel,
                    "ratio": kernel / ours,
                    "celljoin_ratio": kernel / cell,
                    # The rate that the workers just sustain with windows of this length.
                    "sustained_rate": (comparisons / ours / (2 * 60 * minutes)) ** 0.5,
                    "load_deviation": float(loads.std() / loads.mean()),
                }
            )
            for engine in engines.values():
                engine.join.close()
    full = [row for row in rows if row["workers"] == cores]
    summary = {
        "cores": cores,
        "ratio_on_all_cores": min(row["ratio"] for row in full),
        "target": TARGET,
        "best_comparisons_per_s": max(row["comparisons_per_s"] for row in rows),
        "largest_load_deviation": max(row["load_deviation"] for row in rows),
    }
    return {"rows": rows, "summary": summary}
