"""Tuples that wait for their place in the total order: row windows and sorted output need it.

A tuple is *settled* once nothing that precedes it can still come. Tuples wait here in the total order, so the settled
ones of a side are its first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from streamjoin.index.sliding import SortedTuples
from streamjoin.index.tuples import ProbingTuples
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.protocol import Frontier


class Settling:
    """The waiting tuples of both sides, by side, and how many of them are settled. `ranks` order the sources."""

    def __init__(self) -> None:
        self.waiting = {side: SortedTuples(probing=True) for side in SIDES}
        self.settled = dict.fromkeys(SIDES, 0)
        self.ranks: Mapping[str, np.ndarray] = {side: np.zeros(0, np.int32) for side in SIDES}
        self.frontier = Frontier((-math.inf, 0, 0), dict.fromkeys(SIDES, -math.inf))

    def push(self, side: str, tuples: ProbingTuples) -> None:
        """Take tuples, which settle with the next frontier; O(tuples + those waiting that come later)."""
        self.waiting[side].insert(tuples, self.ranks[side])

    def advance(self, frontier: Frontier) -> None:
        self.frontier = frontier
        self.settled = {side: self._settled(side) for side in SIDES}

    @property
    def any_settled(self) -> bool:
        return self.settled["left"] > 0 or self.settled["right"] > 0

    def _settled(self, side: str) -> int:
        """How many tuples of a side precede everything that can still come; O(log waiting)."""
        bound, first_side, rank = self.frontier.bound
        waiting = self.waiting[side]
        if not len(waiting):
            return 0
        if not math.isfinite(bound):
            return len(waiting) if bound > 0 else 0
        low, high = (int(waiting.ts.searchsorted(int(bound), end)) for end in ("left", "right"))
        if SIDES.index(side) != first_side:
            return high if SIDES.index(side) < first_side else low
        return low + int(np.searchsorted(self.ranks[side][waiting.source[low:high]], rank, "right"))

    def first(self, most: int) -> dict[str, int]:
        """How many of each side come first in the total order, together: all that are settled, or about `most` of
        either; just one if that is 1."""
        counts = {side: min(self.settled[side], most) for side in SIDES}
        times = {side: self.waiting[side].ts for side in SIDES}
        if most == 1 and all(counts.values()):
            later = "right" if times["left"][0] <= times["right"][0] else "left"
            return {**counts, later: 0}
        lasts = [(times[s][counts[s] - 1], n) for n, s in enumerate(SIDES) if counts[s] < self.settled[s]]
        if lasts:
            ts, number = min(lasts)
            other = SIDES[1 - number]
            cut = int(times[other].searchsorted(ts, "left" if other == "right" else "right"))
            counts[other] = min(counts[other], cut)
        return counts

    def drop(self, side: str, count: int) -> None:
        """Drop the first tuples, which are settled."""
        self.waiting[side].drop(count)
        self.settled[side] -= count

    def low(self, side: str) -> float:
        """No tuple of a side that waits or can still come has an earlier event time."""
        waiting, low = self.waiting[side], self.frontier.low[side]
        return min(low, int(waiting.ts[0])) if len(waiting) else low

    def clear(self) -> None:
        for side in SIDES:
            self.waiting[side].drop(len(self.waiting[side]))
            self.settled[side] = 0
