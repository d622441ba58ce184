"""The growable output of a scan: (probe, position) pairs, owned by whoever calls the kernel."""

from __future__ import annotations

import numpy as np


class PairBuffer:
    """`count` pairs in `probe[:count]` and `pos[:count]`; beyond that is free room. Doubles when it must grow."""

    def __init__(self, capacity: int):
        self.probe = np.empty(capacity, np.int32)
        self.pos = np.empty(capacity, np.int32)
        self.count = 0

    def reserve(self, room: int) -> None:
        """Make sure that `room` more pairs fit; what is there stays."""
        if self.count + room > len(self.probe):
            capacity = max(2 * len(self.probe), self.count + room)
            for name in ("probe", "pos"):
                grown = np.empty(capacity, np.int32)
                grown[: self.count] = getattr(self, name)[: self.count]
                setattr(self, name, grown)

    def keep(self, first: int, mask: np.ndarray) -> None:
        """Of the pairs from `first` on, keep those for which `mask` is true."""
        kept = np.flatnonzero(mask) + first
        end = first + len(kept)
        self.probe[first:end] = self.probe[kept]
        self.pos[first:end] = self.pos[kept]
        self.count = end
