"""Columns that slide: rows come at the end, leave at the front, and always lie contiguous in memory.

A kernel can scan the live rows of a column as one array. Every row is moved at most a constant number of times
on average, and memory stays within a constant factor of the live rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

SMALLEST = 1024  # rows of capacity below which memory is not given back


class SlidingColumns:
    """Aligned arrays, by name, of which rows `begin` to `end` are live."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        self._begin = self._end = self._capacity = 0

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, name: str) -> np.ndarray:
        """The live rows of one column; valid until the next change."""
        return self._arrays[name][self._begin : self._end]

    def live(self) -> dict[str, np.ndarray]:
        """The live rows of every column; valid until the next change."""
        return {name: array[self._begin : self._end] for name, array in self._arrays.items()}

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def append(self, rows: Mapping[str, np.ndarray]) -> None:
        """Add rows at the end; O(rows) amortised."""
        count = len(next(iter(rows.values())))
        self._reserve(rows, count)
        for name, values in rows.items():
            self._arrays[name][self._end : self._end + count] = values
        self._end += count

    def merge(self, rows: Mapping[str, np.ndarray], last: int, order: np.ndarray) -> None:
        """Add rows and rearrange them with the `last` live rows: `order` permutes (last rows, new rows)."""
        self.append(rows)
        low, high = self._end - last - len(next(iter(rows.values()))), self._end
        for array in self._arrays.values():
            array[low:high] = array[low:high][order]

    def drop(self, count: int) -> None:
        """Remove rows at the front and give memory back when little is left; O(1) amortised."""
        self._begin += count
        if self._capacity > SMALLEST and len(self) < self._capacity // 8:
            self._move(max(SMALLEST, 2 * len(self)))

    def _reserve(self, rows: Mapping[str, np.ndarray], count: int) -> None:
        for name, values in rows.items():
            if name not in self._arrays:
                self._arrays[name] = np.empty((self._capacity, *values.shape[1:]), values.dtype)
        needed = len(self) + count
        if self._end + count <= self._capacity:
            return
        if needed <= self._capacity // 2:  # at least as many rows came since the last move as are moved now
            for name in self._arrays:
                self._arrays[name][: len(self)] = self[name]
            self._begin, self._end = 0, len(self)
        else:
            self._move(max(SMALLEST, 2 * needed))

    def _move(self, capacity: int) -> None:
        for name, array in self._arrays.items():
            moved = np.empty((capacity, *array.shape[1:]), array.dtype)
            moved[: len(self)] = self[name]
            self._arrays[name] = moved
        self._begin, self._end, self._capacity = 0, len(self), capacity
