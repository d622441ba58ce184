"""Pairs that a compiled worker or node has found and that wait for the driver, in a ring without locks
(`kernels/concurrent/queue.py`)."""

from __future__ import annotations

import numpy as np

from streamjoin.kernels.concurrent import queue
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.matching import Found
from streamjoin.topologies.runtime.node import Bell


class PairRing:
    """At most `most` pairs: the ids of both sides and, with `places`, their places. The worker puts them, the driver
    takes them and rings `worker` if it may be waiting for room."""

    def __init__(self, most: int, worker: Bell, places: bool):
        self._words, self._worker = 4 if places else 2, worker
        self.ring = queue.new_ring(most, self._words)
        queue.take_many(
            self.ring, np.empty((self._words, 0), np.int64)
        )  # compiles it now, not when results wait

    @property
    def rows(self) -> int:
        return int(queue.waiting(self.ring))

    def take(self) -> Found | None:
        """Return the pairs that wait, or None. Only the driver calls this."""
        count = self.rows
        if not count:
            return None
        pairs = np.empty((self._words, count), np.int64)
        if queue.take_many(self.ring, pairs):
            self._worker.ring()
        ids, places = pairs[:2], pairs[2:]
        return Found(
            dict(zip(SIDES, ids, strict=True)), dict(zip(SIDES, places, strict=False))
        )  # or no places
