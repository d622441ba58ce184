"""RaP-Table: balance of partitions after each splitter adjustment (PanJoin's Figure 10f).

Each subwindow gets new keys of one distribution, and splitters adjusted from its predecessor. The first splitters cut
the range of a 32-bit integer evenly. Balance is the mean absolute error of partition sizes over the mean size; it is
near 2 with all tuples in one partition. Even perfect splitters leave sqrt(2 / (pi n)) by chance, with n tuples per
partition on average. `floor` is the error left by splitters from the sorted keys of the previous subwindow.

The paper's curves fall to a level and stay there after at most 3 adjustments; the level is lower with fewer
partitions. The paper's worst case (Figure 4) needs up to ceil(log_P 2^32). An adjustment narrows the fullest partition
by a factor of P if its neighbours are empty, and by more if they show which of its ends is dense. Skewed keys
therefore need more adjustments with fewer partitions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.shared.figures import Figure
from streamjoin.index.structures.raptable import RaPTableSubwindow, even_splitters

SEED = 20
ADJUSTMENTS = 5
INT32 = np.dtype("int32")
LOW, HIGH = -(2**31), 2**31 - 1
CLOSE = 0.1  # mean error at which partitions are balanced enough for a probe that scans one
TOLERANCE = (
    1.25  # balanced within this factor of the error left by chance, which exceeds CLOSE with many partitions
)

Draw = Callable[[np.random.Generator, int], np.ndarray]
FIGURES = {
    f"raptable_balance-{partitions}": Figure(
        "adjustment",
        {"error": ""},
        f"adjustments; {partitions:,} partitions, 2M tuples",
        "mean error of a partition's size",
        where={"partitions": partitions},
        by="keys",
        log=True,
    )
    for partitions in (64, 1024, 65_536)
}


def uniform(share: float) -> Draw:
    """Uniform keys in the middle `share` of the range."""

    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.uniform(-share * 2**31, share * 2**31, count)

    return draw


def normals(deviation: float, modes: int) -> Draw:
    """Keys around `modes` centres spread evenly over the range; `deviation` is a share of the range."""

    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        centres = (np.arange(modes) + 0.5) / modes * 2**32 - 2**31
        keys: np.ndarray = rng.normal(centres[rng.integers(0, modes, count)], deviation * 2**32)
        return keys

    return draw


def rank_size(rng: np.random.Generator, count: int) -> np.ndarray:
    """Keys from 0 to 1 % of the range, 99 % of them in its lowest 1 %, like view counts: P(key > x) ~ 1 / x."""
    greatest = 0.01 * 2**32
    # rng.pareto(1) is below 99 with a probability of 0.99.
    keys = 0.01 * greatest * rng.pareto(1, count) / 99
    return np.minimum(keys, greatest * rng.uniform(0.99, 1, count))


DISTRIBUTIONS: dict[str, Draw] = {
    "uniform": uniform(1.0),
    "uniform, 1 % of the range": uniform(0.01),
    "normal": normals(0.05, 1),
    "narrow normal": normals(0.0005, 1),
    "multimodal": normals(0.005, 8),
    "rank-size": rank_size,
}


def drawn(draw: Draw, rng: np.random.Generator, count: int) -> np.ndarray:
    return np.clip(draw(rng, count), LOW, HIGH).astype(INT32)


def error(counts: np.ndarray) -> float:
    """Mean absolute error of partition sizes over their mean."""
    return float(np.abs(counts - counts.mean()).mean() / counts.mean())


def perfect(keys: np.ndarray, partitions: int) -> np.ndarray:
    """Splitters from the sorted keys."""
    ordered = np.sort(keys)
    return ordered[np.arange(1, partitions) * len(keys) // partitions]


def sizes(keys: np.ndarray, splitters: np.ndarray) -> np.ndarray:
    return np.bincount(np.searchsorted(splitters, keys, "left"), minlength=len(splitters) + 1)


def series(
    draw: Draw, count: int, partitions: int, splitters: np.ndarray, adjustments: int
) -> list[dict[str, float]]:
    """Balance, floor and cost of the adjustment, for each subwindow of a chain."""
    rng = np.random.default_rng(SEED)
    slots, points = np.arange(count, dtype=np.int32), []
    before = drawn(draw, rng, count)
    for _ in range(adjustments + 1):
        keys = drawn(draw, rng, count)
        table = RaPTableSubwindow(count, INT32, partitions=partitions, splitters=splitters)
        table.insert(keys, slots)
        balance = error(table.histograms()[0])
        began = time.process_time()
        splitters = table.adjusted_splitters(partitions)
        seconds = time.process_time() - began
        floor = error(sizes(keys, perfect(before, partitions)))
        points.append({"error": balance, "floor": floor, "adjusting_ms": 1000 * seconds})
        before = keys
    return points


def converged_after(points: list[dict[str, float]], mean_size: float) -> int:
    """Adjustments until the error stays below CLOSE, or within TOLERANCE of what perfect splitters or chance leave.

    Returns the number of points if it never does. A histogram does not show where keys lie in a partition, so chance
    counts even where the same keys come again.
    """
    chance = math.sqrt(2 / (math.pi * mean_size))
    near = [point["error"] <= max(CLOSE, TOLERANCE * max(point["floor"], chance)) for point in points]
    return next((i for i in range(len(near)) if all(near[i:])), len(near))


def worst_case(count: int, partitions: int) -> list[dict[str, float]]:
    """Figure 4: one key at the end of the range, one at a P-th of it, one at a P-th of that, ...; the rest below 16 P.

    All start in the first partition, and each adjustment splits off only the greatest key. (With the others below P, a
    partition would hold one or two different keys, and could not be balanced.)
    """
    rng = np.random.default_rng(SEED)
    few = [(2**32 - 1) // partitions**k for k in range(math.ceil(32 / math.log2(partitions)))]
    keys = (np.r_[few, rng.integers(0, 16 * partitions, count - len(few))] + LOW).astype(INT32)
    return series(
        lambda rng, count: keys, count, partitions, np.full(partitions - 1, HIGH, INT32), ADJUSTMENTS + 3
    )


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per distribution, partition count and subwindow. Summary: adjustments until the balance is reached."""
    count = 2**17 if quick else 2**21
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for partitions in (64, 1024) if quick else (64, 256, 1024, 16384, 65536):
        even = even_splitters(INT32, partitions)
        runs = {
            name: series(draw, count, partitions, even, ADJUSTMENTS) for name, draw in DISTRIBUTIONS.items()
        }
        runs["worst case"] = worst_case(count, partitions)
        for name, points in runs.items():
            for adjustment, point in enumerate(points):
                row = {"keys": name, "tuples": count, "partitions": partitions, "adjustment": adjustment}
                rows.append({**row, **point})
            summary[f"{name}, P={partitions}: converged after"] = converged_after(points, count / partitions)
        summary[f"worst case, P={partitions}: bound"] = math.ceil(32 / math.log2(partitions))
    return {"rows": rows, "summary": summary}
