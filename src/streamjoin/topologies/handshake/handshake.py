"""Handshake join: both windows are sliced over a chain of nodes, and the streams flow past each other (Teubner &
Mueller 2011).

Left tuples enter at the left end and move to the right, right tuples the other way. They rest in the windows of a
node and move on with the flow; two tuples are compared on the node where one finds the other (section 3.5). That is
late, half a window after they came, but every node talks to its neighbours only.

- *Two-phase forwarding* (section 4.2). Two tuples could pass each other on the way between two nodes. A right tuple
  that was sent on therefore stays in the window, *forwarded*, until its receiver acknowledges it; a left tuple that
  comes before the acknowledgement has not met it there, and meets it here. Left tuples leave when they are sent.
- *Autonomous load balancing* (section 4.3). A node sends its oldest tuples on while it holds more than the next.
- *Expiry* (section 4.4). The driver says at the far end of a side what has expired. An expired tuple may have partners
  that it has not met; so it is not dropped where it lies but hurries to the far end, past all of them, and leaves
  there. When the streams end, everything expires, and so everything meets.

Tuples move as they came, arrival by arrival. Window positions are in the total order, so that what is left behind in an
index can be told from what is there: it lies before the `floor`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from streamjoin.kernels.concurrent import atomics
from streamjoin.kernels.stamping import INT64_MIN
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.handshake.chain_node import Arrival, ChainNode, Progress, Shared, up_to
from streamjoin.topologies.handshake.pipeline import Pipeline

ONE_SOURCE = np.zeros(1, np.int32)


@dataclass(frozen=True)
class Acknowledgement:
    """The sender has taken the oldest right tuples that the receiver has forwarded."""


class HandshakeNode(ChainNode):
    """One node: a slice of both windows."""

    def __init__(self, number: int, shared: Shared):
        super().__init__(number, shared)
        self.next: dict[str, HandshakeNode] = {}  # on the way of a side, as `previous`
        self.previous: dict[str, HandshakeNode] = {}
        # Tuples of a side that this node has sent on or dropped. Only it writes them; the previous node reads them.
        self._passed = {side: np.zeros(atomics.LINE, np.int64) for side in SIDES}
        self._slices: dict[str, deque[Arrival]] = {side: deque() for side in SIDES}
        self._forwarded = 0  # the oldest right arrivals, sent but not acknowledged
        self._loads = dict.fromkeys(SIDES, 0)  # tuples that are not forwarded
        self._floors = dict.fromkeys(SIDES, INT64_MIN)
        self._expired = dict.fromkeys(SIDES, INT64_MIN)
        self._news: dict[str, Progress] = {}  # to pass on, by the side on whose way it is

    def receive(self, side: str, message: Any) -> Iterator[None]:
        if isinstance(message, Arrival):
            yield from self._receive_arrival(side, message)
        elif isinstance(message, Acknowledgement):
            self._forwarded -= 1
            self._leave("right")
        else:
            self._expired[OTHER[side]] = message.expired
            self._news[side] = message

    def _receive_arrival(self, side: str, arrival: Arrival) -> Iterator[None]:
        """Figure 9: meet the other side's slice, forwarded tuples included, and join the own one."""
        other = OTHER[side]
        yield from self.match(self.windows[other], side, arrival.tuples, self._floors[other])
        self.windows[side].insert(arrival.tuples, ONE_SOURCE)
        self._slices[side].append(arrival)
        self._loads[side] += len(arrival.tuples)
        if side == "right":
            self.send("left", Acknowledgement())

    def forward(self) -> bool:
        """Pass on what the driver said, and tuples as far as load, expiry and room in the channels allow."""
        busy = False
        for side in list(self._news):
            if self.is_end[side] or self._can_send(side):
                self.send(side, self._news.pop(side))
                busy = True
        for side in SIDES:
            while self._forward_oldest(side):
                busy = True
        return busy

    def _can_send(self, side: str) -> bool:
        return not self._unsent[side] and self.outlets[side].has_room

    def _forward_oldest(self, side: str) -> bool:
        """Send on the oldest arrival of a side, if it is due; at the far end, drop it if it has expired."""
        kept = self._forwarded if side == "right" else 0
        if len(self._slices[side]) == kept:
            return False
        arrival = self._slices[side][kept]
        expired = arrival.tuples.ts[-1] < self._expired[side]
        if self.is_end[side]:
            if not expired:
                return False
            self._leave(side)
        else:
            if not (expired or self._loads[side] > self._load_ahead(side)) or not self._can_send(side):
                return False
            self.send(side, arrival)
            if side == "right":
                self._forwarded += 1
            else:
                self._leave(side)
        self._count_passed(side, len(arrival.tuples))
        return True

    def _load_ahead(self, side: str) -> int:
        """Tuples that the next node holds, or that are on the way to it: sent from here, not sent on from there."""
        return self.passed(side) - self.next[side].passed(side)

    def passed(self, side: str) -> int:
        """Acquires nothing: a value that is behind costs balance, not correctness."""
        return int(atomics.read(self._passed[side], 0))

    def _count_passed(self, side: str, count: int) -> None:
        self._loads[side] -= count
        atomics.write(self._passed[side], 0, self.passed(side) + count)
        if side in self.previous:
            self.previous[side].bell.ring()  # it may send more now

    def _leave(self, side: str) -> None:
        """Take the oldest arrival out of the window: this node is done with it. An index may keep some of it; the floor
        hides that."""
        gone, rest = self._slices[side].popleft(), self._slices[side]
        self._floors[side] = int(rest[0].tuples.ts[0] if rest else gone.tuples.ts[-1] + 1)
        self.windows[side].expire(up_to(self._floors[side]))
        self.mark(side, gone.number)

    def clear(self) -> None:
        super().clear()
        for slices in self._slices.values():
            slices.clear()


class Handshake(Pipeline[HandshakeNode]):
    """The topology. Tuples always wait for their place in the total order, in which they move."""

    tells_at_once = True  # what has expired moves on
    always_settles = True

    def __init__(self, *given: Any, **options: Any):
        super().__init__(*given, **options)
        for way, nodes in (("left", self.nodes), ("right", self.nodes[::-1])):
            for previous, following in pairwise(nodes):
                previous.next[way], following.previous[way] = following, previous

    def make_nodes(self, shared: Shared) -> list[HandshakeNode]:
        return [HandshakeNode(number, shared) for number in range(shared.count)]

    def earliest(self, what: str) -> float:
        """Two tuples that have not met are both in the chain, and the later one is no earlier than the oldest there of
        either side, which came first: tuples are settled."""
        return max(getattr(way[0], what) if way else math.inf for way in self._sent.values())
