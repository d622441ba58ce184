"""Handshake and low-latency handshake join over workers, with and without punctuations, beside the bare kernel.

The papers' figures 16 and 17: the 2-D band of `three_step` with full windows of 900 * rate tuples a side, batches of
64 and 256. A run pushes a fixed number of batches to either side in turns, polls, and ends when the nodes have compared
the last of them. The clock is the wall's: all cores work. The best of five runs counts. The variants take turns, and
the kernel with them, on one core and times the cores that the workers can use: a slow minute hits all alike.

What punctuations cost is less than what separate runs differ by. So both joins stay open side by side, with full
windows, and take turns over many short stretches: with, without, without, with. Each two neighbours give a ratio of
rates; the median of these counts. Rows have their quartiles too, and where the true median lies with 95 %. The ratio of
comparisons to processor time of all threads is beside it: what else the machine does counts less there.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from benchmarks.medians import interval_of_median
from benchmarks.three_step import LEFT, PREDICATE, RIGHT, WINDOW_SECONDS, Engine, Kernel

import streamjoin as sj

SEED = 20140905
BATCHES = (64, 256)
RUNS = 5
PAIRS = {1: 64, 2: 200}  # by workers: two and the driver share two cores
QUIET = 0.05  # seconds without a comparison, after which there will be none; ten times what a batch takes
TARGET = 0.85
PUNCTUATION_TARGET = 0.97


class Variant(NamedTuple):
    topology: str
    order: str = "any"


VARIANTS = (
    Variant("handshake"),
    Variant("low_latency_handshake"),
    Variant("low_latency_handshake", "punctuated"),
)


class Taken(NamedTuple):
    """What joining some batches took, of the clock and of all threads, and the comparisons that were made."""

    seconds: float
    processor_seconds: float
    comparisons: int


class Chain(Engine):
    """A join with full windows on a chain of nodes."""

    def __init__(
        self,
        variant: Variant,
        workers: int,
        rate: int,
        on: str | Callable[..., bool] = PREDICATE,
        index: str = "scan",
    ):
        self.random = np.random.default_rng(SEED)
        self.rate, self.at = rate, 0
        window = sj.TimeWindow(f"{WINDOW_SECONDS} seconds")
        spec = sj.JoinSpec(LEFT, RIGHT, on, window, "ts", "ts")
        self.join = sj.open_join(spec, variant.topology, index, workers, variant.order)
        for left, right in self.batches(WINDOW_SECONDS // 10, 10 * rate):
            self.step(left, right)
        self.drain()

    def drain(self) -> tuple[int, float]:
        """Wait until nothing was compared for a while; how much was, and when it ended."""
        seen, ended = -1, time.perf_counter()
        while time.perf_counter() < ended + QUIET:
            self.join.poll()
            time.sleep(0.002)
            if seen != (seen := self.join.stats().comparisons):
                ended = time.perf_counter()
        return seen, ended

    def measure(self, count: int, batch: int) -> float:
        """Comparisons a second until `count` batches a side are joined."""
        taken = self.timed(count, batch)
        return taken.comparisons / taken.seconds

    def timed(self, count: int, batch: int) -> Taken:
        """Take the time until `count` batches a side are joined."""
        made, before = self.batches(count, batch), self.join.stats().comparisons
        started, processor_started = time.perf_counter(), time.process_time()
        for left, right in made:
            self.step(left, right)
        after, ended = self.drain()
        return Taken(ended - started, time.process_time() - processor_started, after - before)


class Ratio(NamedTuple):
    """Comparisons a second of one join over those of another, by the clock and by processor time."""

    wall: float
    processor: float


def paired_ratios(chain: Chain, peer: Chain, pairs: int, count: int, batch: int) -> list[Ratio]:
    """`chain` over `peer` in neighbouring stretches of `count` batches, each first in turns."""
    ratios = []
    for number in range(pairs):
        if number % 2:
            without, given = peer.timed(count, batch), chain.timed(count, batch)
        else:
            given, without = chain.timed(count, batch), peer.timed(count, batch)
        more = given.comparisons / without.comparisons
        ratios.append(
            Ratio(
                more * without.seconds / given.seconds,
                more * without.processor_seconds / given.processor_seconds,
            )
        )
    return ratios


def spreads(ratios: list[Ratio]) -> dict[str, float]:
    """What rows tell of both."""
    wall, processor = (spread([ratio[which] for ratio in ratios]) for which in range(2))
    return wall | {f"processor_{name}": value for name, value in processor.items()}


def spread(ratios: list[float]) -> dict[str, float]:
    """Median and quartiles, and the interval in which the median of all such ratios lies with 95 %."""
    low, high = interval_of_median(ratios)
    quartiles = np.percentile(ratios, [25, 50, 75])
    return {
        "over_plain": float(quartiles[1]),
        "over_plain_from": low,
        "over_plain_to": high,
        "over_plain_quartile_1": float(quartiles[0]),
        "over_plain_quartile_3": float(quartiles[2]),
    }


def best_in_turns(
    chains: dict[Variant, Chain], kernel: Kernel, count: int, batch: int
) -> tuple[dict[Variant, float], float]:
    """Comparisons a second of each chain, and of the kernel on one core, the best of several runs."""
    best, bare = dict.fromkeys(chains, 0.0), math.inf
    for _ in range(RUNS + 1):
        for variant, chain in chains.items():
            best[variant] = max(best[variant], chain.measure(count, batch))
            bare = min(bare, kernel.measure(count, batch))
    return best, 2 * count * batch * kernel.window / bare


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per workers, batch and variant. Summary: shares of the ceiling, and what punctuations cost."""
    rate = 60 if quick else 300
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    window = rate * WINDOW_SECONDS
    rows: list[dict[str, Any]] = []
    kernel = Kernel(window)
    for workers in PAIRS:
        chains = {variant: Chain(variant, workers, rate) for variant in VARIANTS}
        plain, punctuated = (chains[variant] for variant in VARIANTS[1:])
        for batch in BATCHES:
            count = max(20, round((1e9 if quick else 8e9) / (2 * batch * window)))
            rates, bare = best_in_turns(chains, kernel, count, batch)
            short = max(10, count // 3)
            ratios = paired_ratios(punctuated, plain, 8 if quick else PAIRS[workers], short, batch)
            for variant in VARIANTS:
                of_pairs: dict[str, float | None] = dict(spreads(ratios))
                if chains[variant] is not punctuated:
                    of_pairs = dict.fromkeys(of_pairs)
                ceiling = bare * min(workers, cores)
                rows.append(row(variant, workers, batch, window, rates[variant], ceiling) | of_pairs)
        for chain in chains.values():
            chain.join.close()
    return {"rows": rows, "summary": summary(rows)}


def row(
    variant: Variant, workers: int, batch: int, window: int, rate: float, ceiling: float
) -> dict[str, Any]:
    return {
        **variant._asdict(),
        "workers": workers,
        "batch": batch,
        "window": window,
        "comparisons_per_s": rate,
        "kernel_times_cores": ceiling,
        "ratio": rate / ceiling,
        # The rate at which 15-minute windows keep these cores just busy.
        "sustained_rate": (rate / (2 * WINDOW_SECONDS)) ** 0.5,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def best(variant: Variant, what: str = "ratio", workers: int = 2) -> float:
        return max(
            float(row[what])
            for row in rows
            if (row["topology"], row["order"], row["workers"]) == (*variant, workers)
        )

    plain, ours, _ = VARIANTS
    return {
        "handshake_ratio_2_workers": best(plain),
        "low_latency_ratio_2_workers": best(ours),
        "target": TARGET,
        **{
            f"punctuated_{what}_plain_{row['workers']}_workers_batch_{row['batch']}": row[f"{what}_plain"]
            for row in rows
            for what in ("over", "processor_over")
            if row["over_plain"] is not None
        },
        "punctuation_target": PUNCTUATION_TARGET,
        "low_latency_2_workers_over_1": best(ours, "comparisons_per_s") / best(ours, "comparisons_per_s", 1),
    }
