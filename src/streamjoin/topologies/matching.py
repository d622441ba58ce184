"""How pairs leave a topology: nodes hand over pairs with their places, and a collector hands out results in order.

Any topology that stamps its tuples (`stamps.py`) can use both. A node hands pairs over stretch by stretch, so that it
can stop for a full outbox in the middle of a batch. The collector belongs to the driver.
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

STRETCH = 65_536  # A node hands over about this many pairs at a time.


@dataclass(frozen=True)
class Found:
    """Pairs that a node has found: ids and places of both tuples."""

    ids: Mapping[str, np.ndarray]
    places: Mapping[str, np.ndarray]


class Matcher:
    """Probes windows for one node and puts the pairs it finds into the node's outbox."""

    def __init__(self, prober: Prober, outbox: Outbox[Found]):
        self._prober, self._outbox = prober, outbox
        self._pairs = PairBuffer(STRETCH)

    def match(
        self,
        window: WindowIndex,
        side: str,
        probes: ProbingTuples,
        floor: int = INT64_MIN,
        later: np.ndarray | None = None,
    ) -> Iterator[None]:
        """Hand over the pairs of `probes`, tuples of `side`, with the tuples that they reach in a window of the other
        side, from the place `floor` on. With `later`, by probe, only those with a smaller id.
        Yields wherever it has handed over pairs, and after every stretch once the node must stop."""
        if not len(window) or not len(probes):
            return
        pairs = self._pairs
        for _ in self._prober.probe(window, side, probes, in_reach(window, probes, floor), pairs):
            if pairs.count >= STRETCH // 2:
                self._hand_over(window, side, probes, later)
                yield
            elif self._outbox.stopped:
                yield
        if pairs.count:
            self._hand_over(window, side, probes, later)
            yield

    def _hand_over(
        self, window: WindowIndex, side: str, probes: ProbingTuples, later: np.ndarray | None
    ) -> None:
        probe, pos = self._pairs.take()
        stored = window.ids(pos)
        if later is not None:
            kept = np.flatnonzero(stored < later[probe])
            probe, pos, stored = probe[kept], pos[kept], stored[kept]
        ids = {side: probes.id[probe], OTHER[side]: stored}
        places = {side: probes.ts[probe], OTHER[side]: window.ts[pos]}
        self._outbox.put(len(probe), Found(ids, places))


def take_first(ready: deque[Matches], most: float) -> Matches:
    """Take the first matches of a queue, at most `most`; none if it is empty."""
    if not ready:
        none = np.empty(0, np.int64)
        return Matches(none, none)
    first = ready.popleft()
    if len(first) > most:
        cut = int(most)
        ready.appendleft(Matches(first.left[cut:], first.right[cut:]))
        first = Matches(first.left[:cut], first.right[:cut])
    return first


class Collector:
    """Results on their way out. Sorted results wait until nothing earlier can come."""

    def __init__(self, order: str):
        self._sorted = order == "timestamp"
        self._ready: deque[Matches] = deque()
        self._waiting: list[Found] = []
        self._least: float = math.inf  # least place of the later tuple among the pairs that wait

    @property
    def ready(self) -> bool:
        """Whether `hand_out` has results."""
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
        """Release pairs whose later tuple lies before `bound`; no later pair can precede them. Sort them by the place
        of the later tuple, then of the earlier one. O(waiting + n log n) for n released pairs, O(1) for none."""
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
        """The smallest id of a side among the pairs that wait to be sorted; O(waiting)."""
        return min((int(found.ids[side].min()) for found in self._waiting), default=None)

    def hand_out(self, most: float) -> Matches:
        """The next results, at most `most`, which is at least 1."""
        return take_first(self._ready, most)

    def clear(self) -> None:
        self._ready.clear()
        self._waiting.clear()
        self._least = math.inf
