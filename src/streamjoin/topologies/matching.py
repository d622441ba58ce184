"""What nodes find and how it leaves: pairs with their places from a node, results in order from a collector.

Any topology whose tuples are stamped (`stamps.py`) can use both. A node hands pairs over stretch by stretch, so
that it can stop for a full outbox in the middle of a batch; the collector belongs to the driver.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from streamjoin.index.probing import Prober
from streamjoin.index.tuples import ProbingTuples
from streamjoin.index.window import WindowIndex
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.stamping import INT64_MIN
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.protocol import Matches
from streamjoin.topologies.runtime.node import Outbox
from streamjoin.topologies.stamps import in_reach

STRETCH = 65_536  # pairs that a node hands over at a time


@dataclass(frozen=True)
class Found:
    """Pairs that a node has found: ids and places of both."""

    ids: Mapping[str, np.ndarray]
    places: Mapping[str, np.ndarray]


class Matcher:
    """Probes windows for one node and puts what it finds into the node's outbox."""

    def __init__(self, prober: Prober, outbox: Outbox[Found]):
        self._prober, self._outbox = prober, outbox
        self._pairs = PairBuffer(STRETCH)

    def match(
        self, window: WindowIndex, side: str, probes: ProbingTuples, floor: int = INT64_MIN
    ) -> Iterator[None]:
        """Hand over the pairs of `probes`, tuples of `side`, with what they reach in a window of the other, from the
        place `floor` on. Yields wherever pairs were handed over, and wherever it can once the node is to stop."""
        if not len(window) or not len(probes):
            return
        pairs = self._pairs
        for _ in self._prober.probe(window, side, probes, in_reach(window, probes, floor), pairs):
            if pairs.count >= STRETCH // 2:
                self._hand_over(window, side, probes)
                yield
            elif self._outbox.stopped:
                yield
        if pairs.count:
            self._hand_over(window, side, probes)
            yield

    def _hand_over(self, window: WindowIndex, side: str, probes: ProbingTuples) -> None:
        probe, pos = self._pairs.take()
        ids = {side: probes.id[probe], OTHER[side]: window.ids(pos)}
        places = {side: probes.ts[probe], OTHER[side]: window.ts[pos]}
        self._outbox.put(len(probe), Found(ids, places))


class Collector:
    """Results on their way out. Sorted ones wait until nothing before them can come."""

    def __init__(self, order: str):
        self._sorted = order == "timestamp"
        self._ready: deque[Matches] = deque()
        self._waiting: list[Found] = []
        self._least: float = math.inf  # place of the later tuple of a pair that waits

    @property
    def ready(self) -> bool:
        """Whether `hand_out` has something."""
        return bool(self._ready)

    @property
    def empty(self) -> bool:
        return not self._ready and not self._waiting

    @property
    def waiting(self) -> int:
        """Pairs that wait to be sorted."""
        return sum(len(found.ids["left"]) for found in self._waiting)

    def add(self, found: Found) -> None:
        if not len(found.ids["left"]):
            return
        if self._sorted:
            self._waiting.append(found)
            later = np.maximum(found.places["left"], found.places["right"])
            self._least = min(self._least, int(later.min()))
        else:
            self._ready.append(Matches(found.ids["left"], found.ids["right"]))

    def release(self, bound: float) -> None:
        """Every pair to come has its later tuple at `bound` or after it: let those before go, by the
        place of the later tuple, then of the earlier. O(waiting + n log n) for n that go, O(1) if none can."""
        if bound <= self._least:
            return
        places, ids = (
            [np.concatenate([getattr(found, what)[side] for found in self._waiting]) for side in SIDES]
            for what in ("places", "ids")
        )
        later = np.maximum(*places)
        now, rest = np.flatnonzero(later < bound), np.flatnonzero(later >= bound)
        now = now[np.lexsort((np.minimum(*places)[now], later[now]))]
        self._ready.append(Matches(ids[0][now], ids[1][now]))
        by_side = [dict(zip(SIDES, (a[rest] for a in arrays), strict=True)) for arrays in (ids, places)]
        self._waiting = [Found(*by_side)] if len(rest) else []
        self._least = int(later[rest].min()) if len(rest) else math.inf

    def oldest_id(self, side: str) -> int | None:
        """The smallest id of a side among what waits to be sorted; O(waiting)."""
        return min((int(found.ids[side].min()) for found in self._waiting), default=None)

    def hand_out(self, most: float) -> Matches:
        """The next results, at most `most` of them, which is 1 or more."""
        if not self._ready:
            none = np.empty(0, np.int64)
            return Matches(none, none)
        first = self._ready.popleft()
        if len(first) > most:
            cut = int(most)
            self._ready.appendleft(Matches(first.left[cut:], first.right[cut:]))
            first = Matches(first.left[:cut], first.right[:cut])
        return first

    def clear(self) -> None:
        self._ready.clear()
        self._waiting.clear()
        self._least = math.inf
