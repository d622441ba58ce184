"""The RaP-Table subwindow: range partitions that each subwindow rebalances for its successor (Pan & Jacobsen,
III-B)."""

from __future__ import annotations

import numpy as np

from streamjoin.index.structures.llat import HIGHEST, Finder, PartitionedSubwindow
from streamjoin.kernels.partitioned import llat, raptable
from streamjoin.semantics.errors import SpecError

PARTITION_SIZE = 64  # the default number of tuples in a partition
FIRST_ADJUSTMENT = 1024  # a table without predecessor first checks its balance after this many tuples
ADJUSTMENT_GROWTH = 4


class RaPTableSubwindow(PartitionedSubwindow):
    """Tuples of a subwindow, partitioned by splitters that balance its predecessor's tuples.

    `splitters`, P - 1 ascending keys, replace those. Without splitters or predecessor, the table divides the range of
    the dtype evenly, and adjusts itself after 1024, 4096, ... tuples, which moves each tuple 1/3 times on average.
    Keys that drift out of the predecessor's range fall into few partitions; WiB+-Tree suits such data.
    """

    def __init__(
        self,
        capacity: int,
        dtype: np.dtype,
        predecessor: object | None = None,
        partitions: int | None = None,
        splitters: np.ndarray | None = None,
    ):
        super().__init__(
            capacity, np.dtype(dtype), partitions or max(1, capacity // PARTITION_SIZE), columns=4
        )
        self._next_adjustment = self.capacity + 1
        self._counts, self._lows, self._highs = np.empty(0, np.int64), np.empty(0, dtype), np.empty(0, dtype)
        self._header[raptable.PARTITION_COUNT] = self.partitions
        if splitters is not None:
            self._divide(self._checked(splitters))
        elif (
            isinstance(predecessor, RaPTableSubwindow)
            and len(predecessor)
            and predecessor.dtype == self.dtype
        ):
            self._divide(predecessor.adjusted_splitters(self.partitions))
        else:
            self._divide(even_splitters(self.dtype, self.partitions))
            self._next_adjustment = FIRST_ADJUSTMENT

    def _checked(self, splitters: np.ndarray) -> np.ndarray:
        if splitters.shape != (self.partitions - 1,) or not (splitters[1:] >= splitters[:-1]).all():
            raise SpecError(
                f"{self.partitions} partitions need {self.partitions - 1} splitters in ascending order",
                field="splitters",
                given=splitters,
                allowed=f"{self.partitions - 1} in ascending order",
            )
        return splitters

    def _divide(self, splitters: np.ndarray) -> None:
        """Start with empty partitions."""
        self._fence(np.append(splitters.astype(self.dtype), self.dtype.type(HIGHEST[self.dtype.name])))
        normal = self._entries[: self.partitions]
        normal[:, llat.ENTRY_COUNT], normal[:, llat.ENTRY_NEXT] = 0, llat.NO_ENTRY
        normal[:, llat.ENTRY_LAST] = np.arange(self.partitions)
        normal[:, llat.ENTRY_AFTER] = np.arange(1, self.partitions + 1)
        self._header[llat.NEXT_UNUSED] = self.partitions

    @property
    def splitters(self) -> np.ndarray:
        """The partition table: partition i takes keys in (splitters[i - 1], splitters[i]]."""
        return self._fences[: self.partitions - 1]

    def histograms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The number of tuples, and the smallest and greatest finite key, of each partition; O(tuples + P), once if
        sealed."""
        if self.sealed:
            return self._counts, self._lows, self._highs
        counts = np.empty(self.partitions, np.int64)
        lows, highs = np.zeros(self.partitions, self.dtype), np.zeros(self.partitions, self.dtype)
        raptable.histograms(self._keys, self._entries, self.width, counts, lows, highs)
        return counts, lows, highs

    def adjusted_splitters(self, partitions: int) -> np.ndarray:
        """Splitters that would balance the held tuples over `partitions` partitions (Algorithm 1)."""
        counts, lows, highs = self.histograms()
        return (
            balanced(counts, lows, highs, partitions)
            if counts.any()
            else even_splitters(self.dtype, partitions)
        )

    def seal(self) -> None:
        self._counts, self._lows, self._highs = self.histograms()
        super().seal()

    def _insert(self, keys: np.ndarray, slots: np.ndarray) -> None:
        raptable.insert_in_partitions(
            *(self._keys, self._slots, self._entries, self._header, self.width, self._fences),
            *(keys, slots),
        )
        if self._count >= self._next_adjustment:
            self._adjust()

    def _adjust(self) -> None:
        """Balance the partitions of the held tuples; O(tuples + P)."""
        while self._next_adjustment <= self._count:
            self._next_adjustment *= ADJUSTMENT_GROWTH
        splitters = self.adjusted_splitters(self.partitions)
        held = np.empty(self._count, self.dtype), np.empty(self._count, np.int32)
        offsets = np.empty(self.partitions + 1, np.int64)
        llat.pack(
            *(self._keys, self._slots, self._entries, self.width, np.arange(self.partitions), offsets, *held)
        )
        count = offsets[-1]
        self._divide(splitters)
        raptable.insert_in_partitions(
            *(self._keys, self._slots, self._entries, self._header, self.width, self._fences),
            *(held[0][:count], held[1][:count]),
        )

    def _open(self) -> Finder:
        return raptable.probe_partitions, (
            self._keys,
            self._slots,
            self._entries,
            self._header,
            self.width,
            self._fences,
        )

    def _ordered_partitions(self) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(self.partitions), self._fences[: self.partitions]


def balanced(counts: np.ndarray, lows: np.ndarray, highs: np.ndarray, partitions: int) -> np.ndarray:
    """Splitters that spread the counted tuples as evenly as the histograms allow (Algorithm 1); O(P)."""
    uppers = np.empty(partitions, lows.dtype)
    raptable.adjust(counts, lows, highs, uppers)
    return uppers[:-1]


def even_splitters(dtype: np.dtype, partitions: int) -> np.ndarray:
    """The finite range of a dtype in equal parts, like the paper's first partition table."""
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return balanced(
        np.ones(1, np.int64), np.array([limits.min], dtype), np.array([limits.max], dtype), partitions
    )
