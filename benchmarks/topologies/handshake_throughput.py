"""Handshake and low-latency handshake join over workers, with and without punctuations, beside the bare kernel.

The papers' figures 16 and 17: the 2-D band with full 15-minute windows, batches of 64 and 256. The papers' rate is the
highest sustained one, and their windows hold 900 times as many tuples. The larger windows here do so too, see the
column `sustained_rate`. In the smaller ones, of 300 tuples per second, comparing a batch takes a tenth of the time, so
that its other costs weigh ten times as much.

A run pushes a fixed number of batches to each side in turns, polls, and ends when the nodes have compared the last
one. The clock is wall time, because all cores work; the best of five runs counts. The variants and the kernel take
turns, so that a slow minute affects all of them. The kernel runs on one core; its rate is multiplied by the cores that
the workers can use.

Punctuations cost less than separate runs vary. Both joins therefore stay open side by side with full windows, and take
turns over many short stretches: with, without, without, with. Each pair of neighbours gives a ratio of rates; the
result is the median, with quartiles and a 95 % interval. Beside it is the ratio of comparisons per processor second of
all threads, which depends less on other load of the machine.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from benchmarks.shared.band import WINDOW_SECONDS, Kernel
from benchmarks.shared.chain import Chain, Variant
from benchmarks.shared.figures import Figure
from benchmarks.shared.medians import interval_of_median
from benchmarks.shared.timing import core_count

BATCHES = (64, 256)
RUNS = 5
TARGET = 0.85
PUNCTUATION_TARGET = 0.97
FIGURES = {
    "handshake_throughput": Figure(
        "workers",
        {"comparisons_per_s": ""},
        "workers; two cores, batches of 256, windows of 270,000",
        "G comparisons/s",
        1e9,
        where={"batch": 256, "order": "any", "window": 270_000},
        by="topology",
        ceiling=("kernel_times_cores", "bare kernel on as many cores"),
    ),
}


class Point(NamedTuple):
    """15-minute windows at a rate; how many comparisons a run and a stretch of a pair make."""

    workers: int
    rate: int  # tuples per second and side
    run: float
    stretch: float
    pairs: int

    @property
    def window(self) -> int:
        return self.rate * WINDOW_SECONDS

    def batches(self, comparisons: float, batch: int) -> int:
        return max(6, round(comparisons / (2 * batch * self.window)))


POINTS = (
    Point(1, 300, 8e9, 8e9 / 3, 64),
    Point(2, 300, 8e9, 8e9 / 3, 200),  # more pairs, because two workers and the driver share two cores
    Point(1, 3_100, 5e9, 5e9, 12),
    Point(2, 4_200, 12e9, 12e9, 24),
)


VARIANTS = (
    Variant("handshake"),
    Variant("low_latency_handshake"),
    Variant("low_latency_handshake", "punctuated"),
)


class Ratio(NamedTuple):
    """Comparisons per second of one join over those of another, in wall time and in processor time."""

    wall: float
    processor: float


def paired_ratios(chain: Chain, peer: Chain, pairs: int, count: int, batch: int) -> list[Ratio]:
    """`chain` over `peer` in neighbouring stretches of `count` batches; each is first in every other pair."""
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
    """The columns of a row for both ratios."""
    wall, processor = (spread([ratio[which] for ratio in ratios]) for which in range(2))
    return wall | {f"processor_{name}": value for name, value in processor.items()}


def spread(ratios: list[float]) -> dict[str, float]:
    """Median, quartiles and the 95 % interval of the median."""
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
    """Comparisons per second of each chain, and of the kernel on one core; the best of several runs."""
    best, bare = dict.fromkeys(chains, 0.0), math.inf
    for _ in range(RUNS + 1):
        for variant, chain in chains.items():
            best[variant] = max(best[variant], chain.measure(count, batch))
            bare = min(bare, kernel.measure(count, batch))
    return best, 2 * count * batch * kernel.window / bare


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per workers, window, batch and variant. Summary: shares of the ceiling, cost of punctuations."""
    rows: list[dict[str, Any]] = []
    for point in POINTS:
        if quick:
            point = Point(point.workers, point.rate // 5, point.run / 8, point.stretch / 8, 8)
        kernel = Kernel(point.window)
        chains = {variant: Chain(variant, point.workers, point.rate) for variant in VARIANTS}
        plain, punctuated = (chains[variant] for variant in VARIANTS[1:])
        for batch in BATCHES:
            rates, bare = best_in_turns(chains, kernel, point.batches(point.run, batch), batch)
            stretch = point.batches(point.stretch, batch)
            ratios = paired_ratios(punctuated, plain, point.pairs, stretch, batch)
            for variant in VARIANTS:
                of_pairs: dict[str, float | None] = dict(spreads(ratios))
                if chains[variant] is not punctuated:
                    of_pairs = dict.fromkeys(of_pairs)
                ceiling = bare * min(point.workers, core_count())
                rows.append(row(variant, point, batch, rates[variant], ceiling) | of_pairs)
        for chain in chains.values():
            chain.join.close()
    return {"rows": rows, "summary": summary(rows)}


def row(variant: Variant, point: Point, batch: int, rate: float, ceiling: float) -> dict[str, Any]:
    return {
        **variant._asdict(),
        "workers": point.workers,
        "batch": batch,
        "window": point.window,
        "comparisons_per_s": rate,
        "kernel_times_cores": ceiling,
        "ratio": rate / ceiling,
        # The rate that these cores just sustain with 15-minute windows, and the rate of these windows.
        "sustained_rate": (rate / (2 * WINDOW_SECONDS)) ** 0.5,
        "rate": point.rate,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of the ceiling by window and workers, for the better batch; the cost of punctuations for each batch."""
    found: dict[str, Any] = {}
    for each in rows:
        where = f"{each['workers']} workers, windows of {each['window']:,}"
        name = f"{each['topology']}, {where}, over kernel x cores"
        if each["over_plain"] is None:
            found[name] = max(found.get(name, 0.0), each["ratio"])
        else:
            found[f"punctuated over plain, {where}, batch {each['batch']}"] = each["over_plain"]
            found[f"by processor time, {where}, batch {each['batch']}"] = each["processor_over_plain"]
    return found | {"target": TARGET, "punctuation_target": PUNCTUATION_TARGET}
