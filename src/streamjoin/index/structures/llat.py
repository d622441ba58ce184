"""What RaP-Table and WiB+-Tree share: tuples are in an LLAT while they arrive, and in packed partitions once
sealed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streamjoin.index.window import KEY_DTYPES
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE, MAX_SLOT
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.partitioned import llat
from streamjoin.semantics.errors import ClosedError, InputError, SpecError

SIGMA = 1.25  # room in an entry, relative to the average partition; the paper suggests 1.10-1.25
HIGHEST = {name: np.iinfo(name).max for name in ("int32", "int64")} | {"float32": np.inf, "float64": np.inf}

# A kernel with the contract of `llat.probe_packed`, and the arrays that it takes before the probes.
Finder = tuple[Callable[..., int], tuple[Any, ...]]


class PartitionedSubwindow(ABC):
    """A subwindow (`index.window.Subwindow`) that keeps its tuples unsorted in partitions that are ordered by key.

    `partitions` is the number to aim at. `columns` is the width of the LLAT's table of entries.
    """

    parts = None

    def __init__(self, capacity: int, dtype: np.dtype, partitions: int, columns: int):
        if not 1 <= capacity <= MAX_SLOT:
            raise SpecError(
                f"a subwindow holds 1 to {MAX_SLOT:,} tuples, not {capacity}",
                field="capacity",
                given=capacity,
                allowed=f"1 to {MAX_SLOT:,}",
            )
        if dtype.name not in KEY_DTYPES:
            raise SpecError(
                f"a key is one of {', '.join(KEY_DTYPES)}, not {dtype}",
                field="dtype",
                given=str(dtype),
                allowed=KEY_DTYPES,
            )
        if not 1 <= partitions <= capacity:
            raise SpecError(
                f"{capacity:,} tuples lie in 1 to {capacity:,} partitions, not {partitions}",
                field="partitions",
                given=partitions,
                allowed=f"1 to {capacity:,}",
            )
        self.capacity, self.dtype, self.partitions = capacity, dtype, partitions
        self.width = int(np.ceil(SIGMA * capacity / partitions))
        self.sealed = False
        self._count = 0
        self._header = np.zeros(8, np.int64)
        self._entries = np.empty((2 * partitions, columns), np.int32)
        self._fences = self._offsets = np.empty(0, dtype)
        self._allocate()

    def _allocate(self) -> None:
        """Allocate the places of an LLAT of 2P entries. The system provides memory only for places that are
        touched."""
        places = 2 * self.partitions * self.width + llat.LANES
        self._keys, self._slots = np.empty(places, self.dtype), np.empty(places, np.int32)

    def __len__(self) -> int:
        return self._count

    @property
    def entries_used(self) -> int:
        """The number of LLAT entries used so far; at most 2P."""
        return int(self._header[llat.NEXT_UNUSED])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.__dict__.values() if isinstance(array, np.ndarray))

    def insert(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Add tuples; O(log P) each. A tuple with a NaN key counts, but no probe finds it."""
        if self.sealed:
            raise ClosedError("this subwindow is sealed and takes no tuples; insert into the next one")
        if self._count + len(keys) > self.capacity:
            raise InputError(
                f"a subwindow of {self.capacity:,} tuples that holds {self._count:,} cannot take {len(keys):,} more",
                field="keys",
                given=len(keys),
                allowed=f"up to {self.capacity - self._count} more",
            )
        if len(keys):
            self._count += len(keys)
            self._insert(keys, slots)

    def seal(self) -> None:
        """Pack the partitions and free the LLAT; O(tuples + P)."""
        if self.sealed:
            return
        firsts, uppers = self._ordered_partitions()
        self._fence(uppers)
        self._offsets = np.empty(len(firsts) + 1, np.int64)
        keys = np.empty(self._count + llat.LANES, self.dtype)
        slots = np.empty(self._count + llat.LANES, np.int32)
        llat.pack(self._keys, self._slots, self._entries, self.width, firsts, self._offsets, keys, slots)
        self._keys, self._slots = keys, slots
        self._entries = self._entries[:0].copy()
        self.sealed = True

    def _fence(self, uppers: np.ndarray) -> None:
        self._fences = np.empty(llat.fence_places(len(uppers)), self.dtype)
        llat.fill_fences(uppers, self._fences)

    def probe(
        self, lows: np.ndarray, highs: np.ndarray, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        """See `Subwindow.probe`. O(log P + tuples of the partitions met) a probe, `LANES` tuples at once."""
        if not (self._count and len(lows)):
            return
        find, held = self._packed() if self.sealed else self._open()
        cursor = np.zeros(CURSOR_SIZE, np.int64)
        while cursor[0] != DONE:
            pairs.reserve(llat.MIN_PARTITION_ROOM)
            before = pairs.count
            pairs.count = find(*held, lows, highs, start, stop, cursor, pairs.probe, pairs.pos, before)
            yield before

    def _packed(self) -> Finder:
        return llat.probe_packed, (self._keys, self._slots, self._fences, self._offsets)

    @abstractmethod
    def _insert(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Add tuples to the LLAT."""

    @abstractmethod
    def _open(self) -> Finder:
        """The kernel that finds pairs in the LLAT, and its arrays."""

    @abstractmethod
    def _ordered_partitions(self) -> tuple[np.ndarray, np.ndarray]:
        """The first entry and the upper bound of each partition, in order of keys."""
