"""ScaleJoin's latency over workers (Gulisano et al. 2015, Figure 7b): from the push of a tuple to its polled results.

The papers' 2-D band, full 5-minute windows of 60,000 tuples, batches of 16 and 64 to each side in turns. They are
pushed by the clock at 50 % and 90 % of the join's highest rate, which the same run measures first. The driver polls
after every push, and repeatedly until the next one is due. A result's latency counts from the push of its later tuple.
Output is unsorted or sorted by timestamp.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.shared.band import FedJoin, open_band
from benchmarks.shared.filling import without_probes
from benchmarks.shared.timing import core_count

SEED = 20150303
SECONDS = 300
RATE = 200
LOADS = (0.5, 0.9)


class Paced(FedJoin):
    """A join with full windows, pushed by the clock."""

    def __init__(self, workers: int, order: Any):
        join = open_band(SECONDS, topology="scalejoin", index="scan", workers=workers, order=order)
        super().__init__(join, RATE, SEED)
        with without_probes(self.join):
            self.fill(SECONDS)
            self.settle()

    def settle(self) -> None:
        """Wait until every worker has joined everything that is ready."""
        topology: Any = self.join._topology
        while min(worker.progress.done for worker in topology.workers) < topology._ready:
            self.join.poll()
            time.sleep(0.0002)
        self.join.poll()

    def fastest(self, batch: int, count: int) -> float:
        """Seconds per batch, pushed as fast as possible."""
        made = self.batches(count, batch)
        started = time.perf_counter()
        for left, right in made:
            self.step(left, right)
        self.settle()
        return (time.perf_counter() - started) / count

    def latencies(self, batch: int, interval: float, count: int) -> np.ndarray[Any, Any]:
        """The latencies of all results in seconds, with a batch pushed every `interval` seconds."""
        made, found = self.batches(count, batch), []
        first = int(made[0][0]["ts"][0].value)
        span = 1_000_000 * batch // RATE  # event time of a batch, in microseconds
        pushed = np.zeros(count)
        begin = time.perf_counter()
        for number, (left, right) in enumerate(made):
            while (now := time.perf_counter()) < begin + number * interval:
                found += self.poll(first, span, pushed)
                time.sleep(min(0.0001, interval / 20))
            pushed[number] = now
            self.join.push("left", left)
            self.join.push("right", right)
            found += self.poll(first, span, pushed)
        while time.perf_counter() < begin + (count + 5) * interval:
            found += self.poll(first, span, pushed)
        self.settle()
        return np.concatenate(found) if found else np.zeros(0)

    def poll(self, first: int, span: int, pushed: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        ready = []
        for out in self.join.poll():
            later = np.maximum(*(out[name].cast("int64").to_numpy() for name in ("ts", "ts_right")))
            batch = np.clip((later - first) // span, 0, len(pushed) - 1)
            ready.append(time.perf_counter() - pushed[batch][later >= first])
        return ready


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per order, number of workers, batch size and load. Summary: mean latencies on all cores."""
    rows = []
    cores = core_count()
    for order in ("any", "timestamp"):
        for workers in sorted({1, cores, 2 * cores}):
            join = Paced(workers, order)
            for batch in (16, 64):
                count = max(20, (200 if quick else 4000) // batch)
                join.fastest(batch, count)
                fastest = min(join.fastest(batch, count) for _ in range(3))
                for load in LOADS:
                    seconds = 0.3 if quick else 1.5
                    took = join.latencies(batch, fastest / load, int(seconds / (fastest / load)) + 10)
                    rows.append(
                        {
                            "order": order,
                            "workers": workers,
                            "batch": batch,
                            "load": load,
                            "batches_per_s": load / fastest,
                            "results": len(took),
                            "mean_ms": 1e3 * float(took.mean()) if len(took) else None,
                            "p99_ms": 1e3 * float(np.quantile(took, 0.99)) if len(took) else None,
                        }
                    )
            join.join.close()
    means = [row["mean_ms"] for row in rows if row["mean_ms"] is not None and row["workers"] == cores]
    return {
        "rows": rows,
        "summary": {"least_mean_ms": min(means), "most_mean_ms": max(means), "paper_most_ms": 70},
    }
