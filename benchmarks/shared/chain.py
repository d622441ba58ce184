"""Threaded joins with full windows: open one, push to it, and wait until its workers have compared everything."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.shared.band import PREDICATE, WINDOW_SECONDS, FedJoin, open_band
from benchmarks.shared.filling import without_comparing

SEED = 20140905
# Handshake join is idle after this many seconds without a comparison: ten times what a batch takes.
QUIET, QUIET_PER_COMPARISON = 0.05, 1e-9


class Variant(NamedTuple):
    topology: Any
    order: Any = "any"


class Taken(NamedTuple):
    """What joining some batches took: wall time, processor time of all threads, and comparisons."""

    seconds: float
    processor_seconds: float
    comparisons: int


class Chain(FedJoin):
    """A join with full 15-minute windows, on a chain of nodes or other workers."""

    def __init__(
        self,
        variant: Variant,
        workers: int,
        rate: int,
        on: str | Callable[..., bool] = PREDICATE,
        index: Any = "scan",
    ):
        options = {**variant._asdict(), "index": index, "workers": workers}
        join = open_band(WINDOW_SECONDS, on, **options)
        super().__init__(join, rate, SEED)
        self.still_moves, self.scans = variant.topology == "handshake", index == "scan"
        with without_comparing(self.join):
            self.fill(WINDOW_SECONDS)
            self.drain(10 * QUIET)

    def drain(self, quiet: float) -> tuple[int, float]:
        """Wait until everything is joined; return the comparisons so far, and when the last of them was seen.

        In handshake join tuples meet only as later ones move them on, so it counts as done after `quiet` seconds
        without a comparison.
        """
        topology, low = self.join._topology, min(self.join._sources.frontier().low.values())
        compared, ended = -1, time.perf_counter()
        while True:
            self.join.poll()
            now, total = time.perf_counter(), sum(topology.comparisons)
            if total > compared:
                compared, ended = total, now
            if now >= ended + quiet if self.still_moves else topology.least_result_time >= low:
                return compared, ended
            time.sleep(0.002)

    def measure(self, count: int, batch: int) -> float:
        """Comparisons per second until `count` batches to each side are joined."""
        taken = self.timed(count, batch)
        return taken.comparisons / taken.seconds

    def timed(self, count: int, batch: int) -> Taken:
        """Join `count` batches to each side; return what that took."""
        made, before = self.batches(count, batch), sum(self.join._topology.comparisons)
        started, processor_started = time.perf_counter(), time.process_time()
        for left, right in made:
            self.step(left, right)
        per_batch = self.scans * batch * self.rate * WINDOW_SECONDS
        after, ended = self.drain(max(QUIET, QUIET_PER_COMPARISON * per_batch))
        return Taken(ended - started, time.process_time() - processor_started, after - before)
