"""The rows of one side that are in a chain, in the order in which the driver sent them. Nodes share them, and each
holds a stretch (`kernels/concurrent/flowing_node.py`).

The driver appends rows; it never changes them. Memory is filled to its end. Then the rows that some node still holds
are copied to new memory, which takes the next ones. Nodes go over to the new memory when a message names rows that
their old one does not have, so old memory lives until the last node has left it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.index.tuples import ProbingTuples

ROW_STAMPS = 3  # place, since and id
NO_TRACK_ROWS = np.zeros((ROW_STAMPS, 1), np.int64)


class TrackMemory:
    """Memory for `capacity` rows; `base` is the number of the first one. The driver writes it, nodes read it."""

    def __init__(self, base: int, capacity: int, like: ProbingTuples):
        self.base, self.capacity = base, capacity
        self.rows = np.zeros((ROW_STAMPS, capacity), np.int64)
        self.stored: Stored = like.stored.with_arrays(self._columns_like(like.stored.arrays()))
        self.probing: Probing = like.probing.with_arrays(self._columns_like(like.probing.arrays()))
        self.nulls = False

    def _columns_like(self, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.zeros((self.capacity, *values.shape[1:]), values.dtype) for values in given]

    @property
    def limit(self) -> int:
        """The number of the row after its last one."""
        return self.base + self.capacity

    def arrays(self) -> list[np.ndarray]:
        return [*self.rows, *self.stored.arrays(), *self.probing.arrays()]

    def write(self, at: int, tuples: ProbingTuples) -> None:
        """Write rows from position `at` on."""
        given = (
            tuples.ts,
            tuples.since,
            tuples.id,
            *tuples.stored.arrays(),
            *tuples.probing.arrays(),
        )
        for column, values in zip(self.arrays(), given, strict=True):
            column[at : at + len(tuples)] = values
        self.nulls |= tuples.nulls

    def copy(self, other: TrackMemory) -> None:
        """Copy the other memory's rows from this one's first on."""
        first, count = self.base - other.base, other.limit - self.base
        for column, values in zip(self.arrays(), other.arrays(), strict=True):
            column[:count] = values[first : first + count]
        self.nulls = other.nulls


class Track:
    """The track of one side. `finished`: the number of the first row that some node still holds."""

    def __init__(self, fewest_rows: int, finished: Callable[[], int]):
        self.memory: TrackMemory | None = None  # None until the first row. Nodes read it in other threads.
        self._fewest_rows, self._finished, self._written = fewest_rows, finished, 0

    def write(self, arrival: Any) -> int:
        """Append an arrival and return the number of its first row; O(tuples), amortized."""
        tuples, first = arrival.tuples, self._written
        while len(tuples):
            if self.memory is None or self.memory.limit == self._written:
                self.memory = self._next_memory(tuples)
            here = slice(0, self.memory.limit - self._written)
            self.memory.write(self._written - self.memory.base, tuples.pick(here))
            self._written += min(here.stop, len(tuples))
            tuples = tuples.pick(slice(here.stop, None))
        return first

    def _next_memory(self, tuples: ProbingTuples) -> TrackMemory:
        """Memory for the rows that some node still holds and as many more."""
        base = self._finished()
        memory = TrackMemory(base, max(self._fewest_rows, 2 * (self._written - base)), tuples)
        if self.memory is not None:
            memory.copy(self.memory)
        return memory

    @property
    def nbytes(self) -> int:
        memory = self.memory
        return 0 if memory is None else sum(array.nbytes for array in memory.arrays())

    def clear(self) -> None:
        self.memory = None
