"""The growable buffer that kernels write pairs into. The caller owns it, so no match can be lost."""

from __future__ import annotations

import numpy as np


class PairBuffer:
    """Pairs of int32 (probe, position): `probe[:count]` and `pos[:count]` are filled, the rest is free.

    A kernel takes both arrays and `count`, writes from `count` on and returns the new count. `compared` counts the
    pairs or candidates that were compared to find them; the caller of the kernel adds to it.
    """

    def __init__(self, room: int = 16384):
        self.probe = np.empty(room, np.int32)
        self.pos = np.empty(room, np.int32)
        self.count = 0
        self.compared = 0

    @property
    def room(self) -> int:
        """The number of free places after `count`."""
        return len(self.probe) - self.count

    def reserve(self, room: int) -> None:
        """Make at least `room` places free and keep the content. Doubles the capacity, so filling costs O(1) a
        pair."""
        if len(self.probe) - self.count < room:
            size = max(2 * len(self.probe), self.count + room)
            self.probe, self.pos = self._grown(self.probe, size), self._grown(self.pos, size)

    def _grown(self, array: np.ndarray, size: int) -> np.ndarray:
        grown = np.empty(size, np.int32)
        grown[: self.count] = array[: self.count]
        return grown

    def keep(self, first: int, mask: np.ndarray) -> None:
        """Keep the pairs before `first`, and of the others those for which `mask` is true."""
        kept = np.flatnonzero(mask) + first
        self.count = first + len(kept)
        self.probe[first : self.count] = self.probe[kept]
        self.pos[first : self.count] = self.pos[kept]

    def extend(self, other: PairBuffer) -> None:
        """Append the pairs of another buffer, and add its `compared`."""
        self.reserve(other.count)
        end = self.count + other.count
        self.probe[self.count : end] = other.probe[: other.count]
        self.pos[self.count : end] = other.pos[: other.count]
        self.count = end
        self.compared += other.compared

    def take(self) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the filled parts and empty the buffer, which keeps its capacity."""
        filled = self.probe[: self.count].copy(), self.pos[: self.count].copy()
        self.count = 0
        return filled
