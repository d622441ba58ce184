"""How long results take: from the push that completed a pair to the moment it is ready.

A step's results are sampled, and the samples are looked up some steps at a time, because a poll waits for a step.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from streamjoin.index.sliding import SlidingColumns
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.protocol import Matches

FRESH_STAMPS = 1_024  # pushes whose times are not in columns yet, at most
STAMPS_MORE = 16  # drop the stamps of a side once it has this many more than after the last time
# Look up latencies once this many steps, or samples of results, wait for it.
UNMEASURED, UNMEASURED_SAMPLES = 256, 16_384
SAMPLES = 256  # of a step's results
STAMP_IDS, STAMP_TIMES = 0, 1  # columns of the stamps of pushes
BUCKETS = 48  # bucket b holds latencies below 2**b microseconds
BUCKET_PARTS = (
    32  # of equal width that a bucket is divided into: a part is at most 1/32 wider than its beginning
)


@dataclass(frozen=True)
class LatencyHistogram:
    """Time from the push that completed a pair to its result being ready. `counts[b]` results took less than
    2**b microseconds (and at least half of that). `parts` divides each bucket into 32 of equal width, as a log-linear
    histogram (HdrHistogram); a histogram without them knows the buckets only. Steps with many results are sampled and
    weighted."""

    counts: tuple[int, ...]
    parts: tuple[int, ...] = ()

    def quantile(self, q: float) -> float:
        """An upper bound of the q-quantile in seconds, NaN without results; with `parts` at most 1/32 above it, or
        1/32 of a microsecond."""
        total = sum(self.counts)
        if not total:
            return math.nan
        counts = self.parts or self.counts
        bucket = int(np.searchsorted(np.cumsum(counts), max(1, q * total)))
        return float(_ends(len(self.counts), len(counts))[bucket])

    @property
    def seconds(self) -> float:
        """The sum of all latencies, estimated from the parts, within 1/64."""
        counts = self.parts or self.counts
        ends = _ends(len(self.counts), len(counts))
        return float(np.dot(counts, (ends + np.concatenate([[0.0], ends[:-1]])) / 2))

    def __str__(self) -> str:
        if not sum(self.counts):
            return "no results"
        shown = ((0.5, "half"), (0.99, "99 %"), (1.0, "all"))
        return ", ".join(f"{name} within {_seconds_text(self.quantile(q))}" for q, name in shown)


def _ends(buckets: int, parts: int) -> np.ndarray:
    """Where the parts of that many buckets end, in seconds."""
    ends = 2.0 ** np.arange(buckets) * 1e-6
    each = parts // buckets
    begins = np.concatenate([[0.0], ends[:-1]])
    within = np.arange(1, each + 1) / each
    whole: np.ndarray = (begins[:, None] + (ends - begins)[:, None] * within).ravel()
    return whole


def _bucket_parts(seconds: np.ndarray) -> np.ndarray:
    """The number of the part that has each latency."""
    microseconds = np.clip(seconds * 1e6, 0.0, 2.0 ** (BUCKETS - 2))
    fraction, exponent = np.frexp(microseconds)
    first = exponent <= 0  # below a microsecond: the first bucket begins at zero
    within = np.where(first, microseconds, 2 * fraction - 1)
    numbers: np.ndarray = (
        np.where(first, 0, exponent) * BUCKET_PARTS + (within * BUCKET_PARTS).astype(np.int64)
    ).astype(np.int64)
    return numbers


def _seconds_text(seconds: float) -> str:
    for unit, length in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


class LatencyMeter:
    """Measures the time from a push to the results that its tuples complete. Not thread-safe."""

    def __init__(self) -> None:
        self._counts = np.zeros(BUCKETS * BUCKET_PARTS, np.int64)
        self._stamps = {side: SlidingColumns() for side in SIDES}  # first id and time of each push
        self._fresh: dict[str, list[tuple[int, float]]] = {side: [] for side in SIDES}  # not in _stamps yet
        self._drop_from = dict.fromkeys(SIDES, STAMPS_MORE)  # `release` drops stamps once there are this many
        self._unmeasured: list[tuple[float, int, Matches]] = []
        self._samples = 0  # of these

    def pushed(self, side: str, first: int, at: float) -> None:
        """Note that tuples with ids from `first` on were pushed at this time of `time.perf_counter`."""
        self._fresh[side].append((first, at))
        if len(self._fresh[side]) >= FRESH_STAMPS:
            self._settle(side)

    def ready(self, matches: Matches) -> None:
        """Note that these results are ready now."""
        count, sample = len(matches.left), matches
        if count >= 2 * SAMPLES:
            every = count // SAMPLES
            sample = Matches(matches.left[::every].copy(), matches.right[::every].copy())
        self._unmeasured.append((time.perf_counter(), count, sample))
        self._samples += len(sample.left)
        if len(self._unmeasured) >= UNMEASURED or self._samples >= UNMEASURED_SAMPLES:
            self._measure()

    def release(self, side: str, before: int) -> None:
        """Drop the stamps of tuples with ids below `before`, as no later result has one; done once in a while."""
        stamps = self._stamps[side]
        if len(stamps) + len(self._fresh[side]) < self._drop_from[side]:
            return
        self._measure()
        self._settle(side)
        stamps.drop(max(0, int(stamps[STAMP_IDS].searchsorted(before, "right")) - 1))
        self._drop_from[side] = len(stamps) + STAMPS_MORE

    def clear(self) -> None:
        """Forget the pushes; what was measured stays."""
        self._measure()
        for side in SIDES:
            self._fresh[side].clear()
            self._stamps[side].drop(len(self._stamps[side]))

    def histogram(self) -> LatencyHistogram:
        self._measure()
        counts = self._counts.reshape(BUCKETS, BUCKET_PARTS).sum(axis=1)
        return LatencyHistogram(tuple(counts.tolist()), tuple(self._counts.tolist()))

    def _measure(self) -> None:
        """Look up when the later tuple of each sampled result was pushed, and count how long it took."""
        if not self._unmeasured:
            return
        ready, results, samples = zip(*self._unmeasured, strict=True)
        self._unmeasured.clear()
        self._samples = 0
        left = self._pushed_at("left", np.concatenate([sample.left for sample in samples]))
        right = self._pushed_at("right", np.concatenate([sample.right for sample in samples]))
        sizes = np.array([len(sample.left) for sample in samples])
        seconds = np.repeat(ready, sizes) - np.maximum(left, right)
        shares = _shares(np.array(results), sizes)
        self._counts += np.bincount(_bucket_parts(seconds), shares, len(self._counts)).astype(np.int64)

    def _pushed_at(self, side: str, ids: np.ndarray) -> np.ndarray:
        self._settle(side)
        stamps = self._stamps[side]
        if not len(stamps):
            return np.full(len(ids), -math.inf)  # all ids stand for "no row"
        times: np.ndarray = stamps[STAMP_TIMES][stamps[STAMP_IDS].searchsorted(ids, "right") - 1]
        times[ids < 0] = -math.inf
        return times

    def _settle(self, side: str) -> None:
        """Move the stamps of the last pushes into the columns where they are looked up."""
        if fresh := self._fresh[side]:
            first, arrived = zip(*fresh, strict=True)
            self._stamps[side].append([np.array(first), np.array(arrived)])
            fresh.clear()


def _shares(results: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """How many results each sample stands for; `results` and `sizes` are counts of results and samples by step. Samples
    of a step stand for about the same number."""
    begins = sizes.cumsum() - sizes
    within = np.arange(sizes.sum()) - np.repeat(begins, sizes)  # the number of a sample in its step
    shares: np.ndarray = np.repeat(results // sizes, sizes) + (within < np.repeat(results % sizes, sizes))
    return shares
