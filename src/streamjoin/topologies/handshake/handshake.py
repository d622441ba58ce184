"""Handshake join: a chain of nodes slices both windows, and the streams flow past each other (Teubner & Mueller
2011).

Left tuples enter at the left end and move right; right tuples move left. They rest in the windows of a node and move
on with the flow. A node compares two tuples when one of them arrives where the other rests (section 3.5). This
happens late, up to half a window after they arrived, but every node talks only to its neighbours.

- *Two-phase forwarding* (section 4.2). Two tuples could pass each other between two nodes. A right tuple therefore
  stays in the window of its sender, marked *forwarded*, until the receiver acknowledges it. A left tuple that arrives
  before the acknowledgement has not met it at the receiver, and meets it at the sender. Left tuples leave when they
  are sent.
- *Autonomous load balancing* (section 4.3). A node sends its oldest tuples on while it holds more than the next node.
- *Expiry* (section 4.4). The driver reports at the far end of a side which of its tuples have expired. An expired
  tuple may still have partners that it has not met. So its node does not drop it: the tuple hurries past all
  remaining nodes and leaves at the far end. When the streams end, all tuples expire, so all of them meet.

Tuples move in the batches in which they arrived. Window positions follow the total order, so the `floor` separates
tuples that have left, but may still be in an index, from tuples that are present.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np

from streamjoin.index.window import ONE_SOURCE
from streamjoin.kernels.concurrent import atomics
from streamjoin.kernels.stamping import INT64_MIN
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.handshake.chain_node import (
    Acknowledgement,
    Arrival,
    ChainContext,
    ChainNode,
    ExpiryNotice,
    Message,
)
from streamjoin.topologies.handshake.flowing_node import FlowingNode
from streamjoin.topologies.handshake.pipeline import Pipeline
from streamjoin.topologies.handshake.track import Track
from streamjoin.topologies.stamps import OrderStamps


class HandshakeNode(ChainNode):
    """One node: a slice of both windows."""

    def __init__(self, number: int, shared: ChainContext):
        super().__init__(number, shared)
        self.next: dict[str, HandshakeNode] = {}  # in the direction of a side, as `previous`
        self.previous: dict[str, HandshakeNode] = {}
        # Tuples of a side that this node has sent on or dropped. Only this node writes the counts; the previous node
        # reads them.
        self._passed = {side: np.zeros(atomics.LINE_PAIR, np.int64) for side in SIDES}
        self._slices: dict[str, deque[Arrival]] = {side: deque() for side in SIDES}
        self._forwarded = 0  # the oldest right arrivals, sent but not yet acknowledged
        self._loads = dict.fromkeys(SIDES, 0)  # tuples that are not forwarded
        self._floors = dict.fromkeys(SIDES, INT64_MIN)
        self._expired = dict.fromkeys(SIDES, INT64_MIN)
        self._news: dict[
            str, ExpiryNotice
        ] = {}  # the notice to pass on, by the side in whose direction it travels

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
        """Figure 9: probe the other side's slice, forwarded tuples included, then store the tuples in the slice of
        their side."""
        other = OTHER[side]
        yield from self.match(self.windows[other], side, arrival.tuples, self._floors[other])
        self.windows[side].insert(arrival.tuples, ONE_SOURCE)
        self._slices[side].append(arrival)
        self._loads[side] += len(arrival.tuples)
        if side == "right":
            self.send("left", Acknowledgement(arrival.number))

    def forward(self) -> bool:
        """Pass on expiry notices, and tuples as far as load, expiry and room in the channels allow."""
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
        """Send the oldest arrival of a side on, if it is due. At the far end, drop it if it has expired."""
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
        """Tuples that the next node holds, or that are on their way to it: those sent from here and not yet sent on
        from there."""
        return self.passed(side) - self.next[side].passed(side)

    def passed(self, side: str) -> int:
        """Tuples sent on or dropped. Does not acquire: an outdated value costs balance, not correctness."""
        return int(atomics.read(self._passed[side], 0))

    def _count_passed(self, side: str, count: int) -> None:
        self._loads[side] -= count
        atomics.write(self._passed[side], 0, self.passed(side) + count)
        if side in self.previous:
            self.previous[side].bell.ring()  # it may now send more

    def _leave(self, side: str) -> None:
        """Remove the oldest arrival from the window: this node has finished with it. An index may keep some of its
        tuples; the floor hides them."""
        gone, rest = self._slices[side].popleft(), self._slices[side]
        self._floors[side] = int(rest[0].tuples.ts[0] if rest else gone.tuples.ts[-1] + 1)
        self.windows[side].expire(self._floors[side])
        self.mark(side, gone.number)

    def clear(self) -> None:
        super().clear()
        for slices in self._slices.values():
            slices.clear()


class Handshake(Pipeline[HandshakeNode | FlowingNode]):
    """The topology. Tuples always wait for their place in the total order, because they move in that order. Nodes are
    compiled where windows are scanned (`flowing_node.py`)."""

    always_settles = True

    def __init__(self, *given: Any, **options: Any):
        super().__init__(*given, **options)
        self._flows = isinstance(self.nodes[0], FlowingNode)
        self.tells_at_once = not self._flows  # compiled nodes read in arrivals what has expired
        self._entered_at = -math.inf  # the time when tuples entered last
        if not self._flows:
            connect_loads(cast("list[HandshakeNode]", self.nodes))

    def make_nodes(self, shared: ChainContext) -> list[HandshakeNode | FlowingNode]:
        if shared.plan.nodes.kind != "scanning":
            return [HandshakeNode(number, shared) for number in range(shared.count)]
        fewest = max(self._tuning.fewest_rows, self._batch)
        tracks = [Track(fewest, partial(shared.marks.__getitem__, side)) for side in SIDES]
        flow = np.zeros(shared.count * len(SIDES) * atomics.LINE_PAIR, np.int64)
        return [FlowingNode(number, shared, tracks, flow, self._batch) for number in range(shared.count)]

    def number_after(self, side: str, tuples: int) -> int:
        """Compiled nodes cut messages into other blocks, so their marks count tuples."""
        return self._numbers[side] + tuples if self._flows else super().number_after(side, tuples)

    def awaits_more(self) -> bool:
        """A block that is not full does not follow the last one at once. Pushes that come in quick succession would
        otherwise enter one by one, and wake nodes for each. While a poll waits for results, tuples enter at once."""
        stamps: OrderStamps = self._stamps  # type: ignore[assignment]  # they settle always
        if not self._flows or self.found.awaited or stamps.ended or not stamps.fewer_than(self._batch):
            return False
        return time.perf_counter() < self._entered_at + self._tuning.pace

    def lets_in(self, side: str) -> bool:
        """Tuples enter while few expired ones are still in the chain: otherwise those would be more and more."""
        return super().lets_in(side) and not any(map(self._is_behind, SIDES))

    def _is_behind(self, side: str) -> bool:
        sent, most = self._sent[side], self._tuning.most_expired
        return len(sent) > most and sent[most].last_place < self._told[OTHER[side]]

    def send(self, message: Message) -> None:
        super().send(message)
        if self._flows:
            self._told[message.side] = message.expired  # compiled nodes read it in arrivals, too
            self._entered_at = time.perf_counter()

    def earliest(self, what: str) -> float:
        """The least place or event time that a later match can have. Two tuples that have not met are both in the
        chain. The later one is no earlier than the oldest tuple of either side in the chain, because tuples enter
        settled."""
        return max(getattr(way[0], what) if way else math.inf for way in self._sent.values())


def connect_loads(nodes: Sequence[HandshakeNode]) -> None:
    """Let neighbours compare their loads."""
    for way, chain in (("left", nodes), ("right", nodes[::-1])):
        for previous, following in pairwise(chain):
            previous.next[way], following.previous[way] = following, previous
