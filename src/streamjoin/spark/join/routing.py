"""Divide rows among workers as the plan's `Routing` says.

A row's workers follow from its content alone. Spark may run a task twice and use parts of the output of both runs; if
rows were placed at random, or by position, some would then be lost and others repeated.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from streamjoin.plan.routing import Routing


def gets_first_copy(routing: Routing, side: str, worker: int) -> bool:
    """Whether a worker gets the first copy of the rows that it gets. With ranges that depends on the row."""
    if routing.kind == "matrix":
        return worker % routing.columns == 0 if side == "left" else worker < routing.columns
    return routing.kind == "hash" or worker == 0


def rows_by_hash(routing: Routing, side: str, hashes: np.ndarray) -> list[np.ndarray]:
    """For each worker, which rows it gets, given a hash of each row: of its equality keys, or of all of it."""
    if routing.kind == "every":
        return [np.arange(len(hashes))] * routing.workers
    groups = routing.rows if routing.kind == "hash" or side == "left" else routing.columns
    chosen = _rows_of_groups(group_of(hashes, groups), groups)
    if routing.kind == "hash":
        return chosen
    cells = [(row, column) for row in range(routing.rows) for column in range(routing.columns)]
    return [chosen[row if side == "left" else column] for row, column in cells]


def rows_by_key(routing: Routing, side: str, hashes: np.ndarray, ties: np.ndarray) -> list[np.ndarray]:
    """For each worker, which rows it gets, given a hash of each row's equality keys and one of all of it. Rows of hot
    keys go to a line of their key's grid, the others to the worker of their hash."""
    grids = _grids(routing, side)
    keys = grids.keys_of(hashes)
    line = group_of(ties, grids.lines[keys]).astype(np.int64)
    home = np.where(keys == len(routing.hot), group_of(hashes, routing.workers).astype(np.int64), 0)
    begin = grids.begins[keys] + home + line * grids.line_steps[keys]
    copies = grids.copies[keys]
    if copies.max(initial=1) == 1:
        return _rows_of_groups(grids.workers[begin], routing.workers)
    rows = np.repeat(np.arange(len(hashes)), copies)
    further = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
    targets = grids.workers[begin[rows] + further * grids.copy_steps[keys[rows]]]
    return [rows[group] for group in _rows_of_groups(targets, routing.workers)]


def are_first_copies(routing: Routing, side: str, hashes: np.ndarray, worker: int) -> np.ndarray:
    """Which rows of a worker are first copies, by the hashes of their equality keys: those of hot keys in the first
    column (left) or row (right) of their grid, and all others."""
    first = [
        worker in (key.workers[:: key.columns] if side == "left" else key.workers[: key.columns])
        for key in routing.hot
    ]
    found: np.ndarray = np.array([*first, True])[_grids(routing, side).keys_of(hashes)]
    return found


@dataclass(frozen=True)
class Grids:
    """The grids of hot keys for the rows of one side, as arrays; the last entry of each is for all other keys.

    `workers`: all grids, one after the other, then all workers. A grid's cells begin at `begins`. It has `lines` lines
    that a row may go to, `line_steps` cells apart; a row goes to `copies` cells of its line, `copy_steps` apart.
    """

    hashes: np.ndarray
    workers: np.ndarray
    begins: np.ndarray
    lines: np.ndarray
    line_steps: np.ndarray
    copies: np.ndarray
    copy_steps: np.ndarray

    def keys_of(self, hashes: np.ndarray) -> np.ndarray:
        """The place of each hash among the hot keys; their number for all others. O(log keys) a row."""
        places = np.minimum(self.hashes.searchsorted(hashes), len(self.hashes) - 1)
        return np.where(self.hashes[places] == hashes, places, len(self.hashes))


@functools.lru_cache(maxsize=64)
def _grids(routing: Routing, side: str) -> Grids:
    hot, left = sorted(routing.hot, key=lambda key: key.hash), side == "left"
    cells = [len(key.workers) for key in hot]
    ones = [1] * len(hot)
    columns = [key.columns for key in hot]
    numbers = {
        "begins": np.cumsum([0, *cells]),
        "lines": [*((key.rows if left else key.columns) for key in hot), 1],
        "line_steps": [*(columns if left else ones), 0],
        "copies": [*((key.columns if left else key.rows) for key in hot), 1],
        "copy_steps": [*(ones if left else columns), 0],
    }
    return Grids(
        np.array([key.hash for key in hot], np.int64),
        np.array([*(worker for key in hot for worker in key.workers), *range(routing.workers)]),
        **{name: np.array(values, np.int64) for name, values in numbers.items()},
    )


def rows_by_range(routing: Routing, lows: np.ndarray, highs: np.ndarray) -> list[np.ndarray]:
    """For each worker, which rows it gets, given the interval of keys that each row meets, or its own key twice.

    An interval that is empty or has a NaN goes nowhere. Correct for any width, because `range_of` is monotone.
    """
    there = np.flatnonzero(lows <= highs)
    first, last = (range_of(ends[there], routing.width) for ends in (lows, highs))
    counts = np.minimum(last - first, routing.workers - 1) + 1
    rows = np.repeat(np.arange(len(there)), counts)
    further = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = _rows_of_groups((first[rows] + further) % routing.workers, routing.workers)
    return [there[rows[group]] for group in chosen]


def group_of(hashes: np.ndarray, groups: int | np.ndarray) -> np.ndarray:
    """A group from 0 to groups - 1 for each hash, by its high bits. `groups`: one number for all, or one for each."""
    many = groups.astype(np.uint64) if isinstance(groups, np.ndarray) else np.uint64(groups)
    return ((hashes.view(np.uint64) >> np.uint64(32)) * many) >> np.uint64(32)


def range_of(keys: np.ndarray, width: float) -> np.ndarray:
    """The number of the range that each key lies in."""
    return np.clip(np.floor(keys / width), -(2.0**61), 2.0**61).astype(np.int64)


def _rows_of_groups(groups: np.ndarray, count: int) -> list[np.ndarray]:
    """The rows of each group, in order."""
    if count == 1:
        return [np.arange(len(groups))]
    small = groups.astype(np.uint16 if count <= 1 << 16 else np.uint32)  # NumPy sorts 16 bits by radix
    order = np.argsort(small, kind="stable")
    return np.split(order, np.searchsorted(small[order], np.arange(1, count)))


@functools.cache
def worker_ids(workers: int) -> tuple[int, ...]:
    """Grouping keys, one for each worker, that Spark's hash partitioning sends to different partitions if the number
    of shuffle partitions is a multiple of the number of workers. The first is always 0.

    Cached, because every task asks for them and 256 workers take 18 ms.
    """
    found = {spark_hash(0) % workers: 0}
    candidate = 1
    while len(found) < workers:
        found.setdefault(spark_hash(candidate) % workers, candidate)
        candidate += 1
    return 0, *sorted(key for key in found.values() if key)


def spark_hash(value: int) -> int:
    """Spark's hash of an INT column (Murmur3 with seed 42). Its partition is this modulo their number."""
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
