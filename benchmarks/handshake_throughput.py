"""Handshake and low-latency handshake join over workers, with and without punctuations, beside the bare kernel.

The papers' figures 16 and 17: the 2-D band of `three_step` with full windows of 900 * rate tuples a side, batches of
64 and 256. A run pushes a fixed number of batches to either side in turns, polls, and waits until all of them
have been joined. The clock is the wall's: all cores work. Each topology's best of five runs counts, the topologies in
turns. The kernel's ceiling is measured in the same run on one core, and times the cores that the workers can use.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from benchmarks.three_step import LEFT, PREDICATE, RIGHT, WINDOW_SECONDS, Engine, Kernel

import streamjoin as sj

SEED = 20140905
WORKERS = (1, 2)
BATCHES = (64, 256)
RUNS = 5
TARGET = 0.85
PUNCTUATION_TARGET = 0.97
VARIANTS = (
    ("handshake", "any"),
    ("low_latency_handshake", "any"),
    ("low_latency_handshake", "punctuated"),
)


class Chain(Engine):
    """A join with full windows on a chain of nodes."""

    def __init__(self, topology: str, order: str, workers: int, rate: int):
        self.random = np.random.default_rng(SEED)
        self.rate, self.at = rate, 0
        window = sj.TimeWindow(f"{WINDOW_SECONDS} seconds")
        spec = sj.JoinSpec(LEFT, RIGHT, PREDICATE, window, "ts", "ts")
        self.join = sj.open_join(spec, topology, "scan", workers, order)
        for left, right in self.batches(WINDOW_SECONDS // 10, 10 * rate):
            self.step(left, right)
        self.drain()

    def drain(self) -> None:
        """Wait until the nodes have compared all that was pushed: until they stop counting."""
        seen = -1
        while seen != (seen := self.join.stats().comparisons):
            self.join.poll()
            time.sleep(0.001)

    def measure(self, count: int, batch: int) -> float:
        """Comparisons a second while `count` batches a side are joined."""
        made, before = self.batches(count, batch), self.join.stats().comparisons
        started = time.perf_counter()
        for left, right in made:
            self.step(left, right)
        self.drain()
        return (self.join.stats().comparisons - before) / (time.perf_counter() - started)


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per workers, batch and variant. Summary: shares of the ceiling, and what punctuations cost."""
    rate = 60 if quick else 300
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    window = rate * WINDOW_SECONDS
    rows: list[dict[str, Any]] = []
    kernel = Kernel(window)
    for workers in WORKERS:
        chains = {variant: Chain(*variant, workers, rate) for variant in VARIANTS}
        for batch in BATCHES:
            count = max(2, round((1e9 if quick else 4e9) / (2 * batch * window)))
            bare = min(kernel.measure(count, batch) for _ in range(RUNS))
            ceiling = 2 * count * batch * window / bare * min(workers, cores)
            rates: dict[tuple[str, str], float] = dict.fromkeys(VARIANTS, 0.0)
            for _ in range(RUNS + 1):
                for variant, chain in chains.items():
                    rates[variant] = max(rates[variant], chain.measure(count, batch))
            rows += [row(variant, workers, batch, window, rate_, ceiling) for variant, rate_ in rates.items()]
        for chain in chains.values():
            chain.join.close()
    return {"rows": rows, "summary": summary(rows)}


def row(
    variant: tuple[str, str], workers: int, batch: int, window: int, rate: float, ceiling: float
) -> dict[str, Any]:
    topology, order = variant
    return {
        "topology": topology,
        "order": order,
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
    def best(topology: str, order: str, workers: int) -> float:
        return max(
            (
                r["ratio"]
                for r in rows
                if (r["topology"], r["order"], r["workers"]) == (topology, order, workers)
            ),
            default=0.0,
        )

    return {
        "handshake_ratio_2_workers": best("handshake", "any", 2),
        "low_latency_ratio_2_workers": best("low_latency_handshake", "any", 2),
        "target": TARGET,
        "punctuated_over_plain": best("low_latency_handshake", "punctuated", 2)
        / best("low_latency_handshake", "any", 2),
        "punctuation_target": PUNCTUATION_TARGET,
    }
