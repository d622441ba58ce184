"""Which workers get a row: every pair that can match must meet at exactly one of them.

- *hash*: an equality in the predicate sends equal keys to one worker; nothing is replicated.
- *matrix*: without one, workers form a grid; a left row goes to a row of it and a right row to a column, so a
  pair meets in the one cell where they cross, and replication grows with the square root of the workers. An
  outer join must know at one place whether a row has partners, so its kept side is not replicated: the grid is
  a single column or row.
- *range*: without an equality but with an interval of one width, such as `abs(left.x - right.a) <= 10`, the key's line
  is cut into ranges of a few such widths, which go round the workers. A row of one side goes to the worker of its key's
  range, one of the other to those of the ranges that its interval touches, most often one. Ranges need not be known
  beforehand and follow no distribution, so none has to be sampled, and keys may drift.
- *every*: row windows count all rows, so every worker gets all and each row is probed by one worker, its owner.

A row's place follows from its content alone. Spark may run a task twice and use parts of both runs' output;
a place chosen at random, or by position, would then lose rows or repeat them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

RANGE_INTERVALS = 4  # of a range: one row in so many has to go to a second worker
NO_WIDTHS: Mapping[str, float] = {}


@dataclass(frozen=True)
class Routing:
    """`rows` x `columns` workers; only a matrix has more than one column. With ranges, each `width` long, rows of the
    side `once` go to one worker."""

    kind: str
    rows: int
    columns: int = 1
    once: str = ""
    width: float = 0.0

    @property
    def workers(self) -> int:
        return self.rows * self.columns

    def describe(self) -> str:
        if self.kind == "range":
            return f"ranges of {self.width:g}, {self.once} rows once"
        return f"matrix of {self.rows} x {self.columns}" if self.kind == "matrix" else self.kind

    def replicas(self, side: str) -> int:
        """How many workers get a row of this side; of ranges, at most."""
        if self.kind == "range":
            return 1 if side == self.once else min(2, self.workers)
        return {"hash": 1, "every": self.workers}.get(
            self.kind, self.columns if side == "left" else self.rows
        )

    def gets_first(self, side: str, worker: int) -> bool:
        """Whether the rows that a worker gets have their first copy there; not for ranges, where it is a matter of the
        row."""
        if self.kind == "matrix":
            return worker % self.columns == 0 if side == "left" else worker < self.columns
        return self.kind == "hash" or worker == 0

    def targets(self, side: str, hashes: np.ndarray) -> list[np.ndarray]:
        """For each worker, which rows it gets, given a hash of each row: of its equality keys, or of all of it."""
        if self.kind == "every":
            return [np.arange(len(hashes))] * self.workers
        groups = self.rows if self.kind == "hash" or side == "left" else self.columns
        chosen = _grouped(share(hashes, groups), groups)
        if self.kind == "hash":
            return chosen
        cells = [(row, column) for row in range(self.rows) for column in range(self.columns)]
        return [chosen[row if side == "left" else column] for row, column in cells]

    def ranges(self, lows: np.ndarray, highs: np.ndarray) -> list[np.ndarray]:
        """For each worker, which rows it gets, given the keys that each may meet, or its own key twice. An interval
        that is empty or has a NaN goes nowhere. Right whatever the width: `range_of` never falls."""
        there = np.flatnonzero(lows <= highs)
        first, last = (range_of(ends[there], self.width) for ends in (lows, highs))
        counts = np.minimum(last - first, self.workers - 1) + 1
        rows = np.repeat(np.arange(len(there)), counts)
        further = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = _grouped((first[rows] + further) % self.workers, self.workers)
        return [there[rows[group]] for group in chosen]


ONE_WORKER = Routing("matrix", 1, 1)


def share(hashes: np.ndarray, groups: int) -> np.ndarray:
    """A group from 0 to groups - 1 for each hash, by its high bits."""
    return ((hashes.view(np.uint64) >> np.uint64(32)) * np.uint64(groups)) >> np.uint64(32)


def range_of(keys: np.ndarray, width: float) -> np.ndarray:
    """The number of the range that each key lies in."""
    return np.clip(np.floor(keys / width), -(2.0**61), 2.0**61).astype(np.int64)


def _grouped(groups: np.ndarray, count: int) -> list[np.ndarray]:
    """The rows of each group, in order."""
    if count == 1:
        return [np.arange(len(groups))]
    small = groups.astype(np.uint16 if count <= 1 << 16 else np.uint32)  # which NumPy sorts by radix
    order = np.argsort(small, kind="stable")
    return np.split(order, np.searchsorted(small[order], np.arange(1, count)))


def choose(
    asked: str,
    workers: int,
    has_equality: bool,
    rows: bool,
    kept: tuple[str, ...],
    widths: Mapping[str, float] = NO_WIDTHS,
) -> Routing:
    """The routing for a predicate with or without an equality, row windows or not, and the sides of which
    unmatched rows are asked for. `widths`: by side, of the intervals of its key that the other meets, if equal."""
    if rows:
        return Routing("every", 1 if kept else workers)
    if asked == "hash" or (asked == "auto" and has_equality):
        return Routing("hash", workers)
    once = kept[0] if kept else next(iter(widths), "")
    if once in widths and len(kept) < 2 and (asked == "range" or (asked == "auto" and workers > 1)):
        return Routing("range", workers, 1, once, RANGE_INTERVALS * widths[once])
    if len(kept) == 2:
        return Routing("matrix", 1, 1)
    if kept:
        return Routing("matrix", *((workers, 1) if kept == ("left",) else (1, workers)))
    return Routing("matrix", *_near_square(workers))


def _near_square(workers: int) -> tuple[int, int]:
    """The factors of `workers` that are nearest to each other: the least replication."""
    short = next(n for n in range(math.isqrt(workers), 0, -1) if workers % n == 0)
    return short, workers // short


@functools.cache
def worker_ids(workers: int) -> tuple[int, ...]:
    """Grouping keys, one for each worker, that Spark's hash partitioning sends to different partitions whenever
    the number of shuffle partitions is a multiple of the number of workers. The first is always 0.

    Every task asks for them: 18 ms for 256 workers, the first time.
    """
    found = {spark_hash(0) % workers: 0}
    candidate = 1
    while len(found) < workers:
        found.setdefault(spark_hash(candidate) % workers, candidate)
        candidate += 1
    return 0, *sorted(key for key in found.values() if key)


def spark_hash(value: int) -> int:
    """Spark's hash of an INT column, Murmur3 with seed 42; its partition is this modulo their number."""
    word = (value * 0xCC9E2D51) & 0xFFFFFFFF
    word = (_rotated(word, 15) * 0x1B873593) & 0xFFFFFFFF
    state = (_rotated(42 ^ word, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    state ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = ((state ^ (state >> shift)) * factor) & 0xFFFFFFFF
    state ^= state >> 16
    return state - (1 << 32) if state >= 1 << 31 else state


def _rotated(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & 0xFFFFFFFF
