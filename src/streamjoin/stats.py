"""What a running join tells of itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

UNCOUNTED = 64  # records of latency
BUCKETS = 48  # bucket b holds latencies below 2**b microseconds


@dataclass(frozen=True)
class LatencyHistogram:
    """Time from the push that completed a pair to its result being ready. `counts[b]` results took less than
    2**b microseconds (and at least half of that). Steps with many results are sampled and weighted."""

    counts: tuple[int, ...]

    def quantile(self, q: float) -> float:
        """An upper bound of the q-quantile in seconds, NaN without results."""
        total = sum(self.counts)
        if not total:
            return math.nan
        bucket = int(np.searchsorted(np.cumsum(self.counts), q * total))
        return 2.0**bucket * 1e-6


@dataclass(frozen=True)
class SubwindowStats:
    """A part of a window: how tuples are found in it, by which condition, and why."""

    structure: str
    condition: str
    tuples: int
    capacity: int
    reason: str


@dataclass(frozen=True)
class IndexStats:
    """What a window is made of, oldest part first, and how the choice has changed lately."""

    subwindows: tuple[SubwindowStats, ...] = ()
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{part.structure} on {part.condition}, {part.tuples:,} of {part.capacity:,} tuples: {part.reason}"
            for part in self.subwindows
        ]
        return "\n".join([*lines, *(f"changed to {change}" for change in self.changes)])


@dataclass(frozen=True)
class Stats:
    """Counts since the join was opened, and sizes now. Windows and buffers are in tuples or rows.

    `left_window` and `right_window` count the tuples held; an indexed window lets whole subwindows expire, so it
    holds somewhat more than can still match. `comparisons` are pairs compared, by an index candidates found.
    `left_index` and `right_index` tell what the windows are made of, where the topology has one a side.
    """

    left_tuples: int
    right_tuples: int
    left_late: int
    right_late: int
    left_window: int
    right_window: int
    comparisons: int
    matches: int
    buffered_results: int
    payload_rows: int
    window_bytes: int
    worker_comparisons: tuple[int, ...]
    latency: LatencyHistogram = field(repr=False)
    left_index: IndexStats = field(default=IndexStats(), repr=False)
    right_index: IndexStats = field(default=IndexStats(), repr=False)

    @property
    def tuples(self) -> int:
        return self.left_tuples + self.right_tuples

    @property
    def late(self) -> int:
        return self.left_late + self.right_late


class LatencyRecorder:
    """Counts latencies given in seconds, each with a weight."""

    def __init__(self) -> None:
        self._counts = np.zeros(BUCKETS, np.int64)
        self._uncounted: list[tuple[np.ndarray, int]] = []

    def add(self, seconds: np.ndarray, results: int) -> None:
        """Record samples that stand for `results` results. They are counted some at a time: results wait for this."""
        self._uncounted.append((seconds, results))
        if len(self._uncounted) >= UNCOUNTED:
            self._count()

    def _count(self) -> None:
        given, self._uncounted = self._uncounted, []
        for seconds, results in given:
            self._count_samples(seconds, results)

    def _count_samples(self, seconds: np.ndarray, results: int) -> None:
        buckets = np.clip(np.frexp(seconds * 1e6)[1], 0, BUCKETS - 1)
        weights = np.full(len(seconds), results // len(seconds))
        weights[: results % len(seconds)] += 1
        self._counts += np.bincount(buckets, weights, BUCKETS).astype(np.int64)

    def histogram(self) -> LatencyHistogram:
        self._count()
        return LatencyHistogram(tuple(int(count) for count in self._counts))
