"""A node of a chain: messages that it takes from both sides, and what all chains of nodes have in common.

No node waits for room in a channel: what does not fit waits in the node. The work on a message goes piece by piece,
so that a node can stop for a full outbox in the middle of it; the next message is taken when it is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamjoin.index.probing import Prober
from streamjoin.index.times import Reach
from streamjoin.index.tuples import ProbingTuples
from streamjoin.index.window import WindowIndex
from streamjoin.kernels.concurrent import atomics
from streamjoin.kernels.concurrent import scanning_node as expedition
from streamjoin.plan.physical import Plan
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.matching import Found, Matcher
from streamjoin.topologies.protocol import MakeWindow
from streamjoin.topologies.runtime.node import Bell, Channel, Outbox, rehearse_channels

WAITING_PAIRS = 1 << 20  # of one node, before it stops for the collector


@dataclass(frozen=True)
class Message:
    """Something on the way of `side`. Those from the driver are numbered, and say that no later one reaches places of
    the other side below `expired`."""

    side: str
    number: int
    expired: int


@dataclass(frozen=True)
class Arrival(Message):
    """Tuples that enter the chain together."""

    tuples: ProbingTuples = field(repr=False)

    def __str__(self) -> str:
        return f"{self.side} {self.number}: places {self.tuples.ts.tolist()}"


@dataclass(frozen=True)
class Progress(Message):
    """News without tuples."""

    def __str__(self) -> str:
        return f"progress of {self.side} {self.number}: expired before {self.expired}"


class Marks:
    """The number of the last message of each side that each node is done with. Every node writes its own, in
    words that no other writes. The driver, who is told once `few` of a side's messages are on their way, writes
    which one it has sent."""

    def __init__(self, nodes: int, few: int) -> None:
        self.words = np.zeros((nodes * len(SIDES) + 1) * atomics.LINE, np.int64)
        self._sent = self.words[-atomics.LINE :]
        self._sent[expedition.FEW] = few
        for side, number in self.by_side().items():  # compiled now, not when tuples come
            self.send(side, number)
            if self.set(0, side, self[side]):
                self.is_due(side, number)

    def __getitem__(self, side: str) -> int:
        """The last one that all nodes are done with. Acquires: what they found by then is in their outboxes."""
        return int(expedition.least_mark(self.words, SIDES.index(side)))

    def by_side(self) -> dict[str, int]:
        left, right = expedition.least_marks(self.words)
        return {"left": left, "right": right}

    def send(self, side: str, number: int) -> None:
        """Count a message; before it is sent."""
        atomics.write(self._sent, SIDES.index(side), number)

    def is_due(self, side: str, number: int) -> bool:
        """Whether the driver is to be told, now that all nodes are done with a message."""
        return bool(expedition.is_due(self.words, SIDES.index(side), number))

    def set(self, node: int, side: str, number: int) -> bool:
        """Whether all nodes are done with it. Releases."""
        return bool(expedition.mark(self.words, node, SIDES.index(side), number))


@dataclass(frozen=True)
class Shared:
    """What all nodes know. Nothing of it leads back to the join, so that threads do not keep one alive that
    nobody uses any more."""

    count: int
    plan: Plan
    make_window: MakeWindow
    prober: Prober
    bell: Bell  # the driver's, rung for marks, and by a node without room for pairs
    found: Bell  # rung for pairs
    let_go: Bell  # rung for marks
    marks: Marks


class ChainNode:
    """A node: takes messages from both sides and hands them to `receive`, which subclasses write.

    `receive` works piece by piece: it yields wherever pairs were handed over, and goes on once the outbox has room.
    """

    def __init__(self, number: int, shared: Shared):
        self.name, self.number = f"node {number}", number
        self.is_end = {"left": number == shared.count - 1, "right": number == 0}  # of the way of a side
        self.bell = Bell()
        self.outbox: Outbox[Found] = Outbox(WAITING_PAIRS, self.bell, shared.found)
        self.windows: dict[str, WindowIndex] = {side: shared.make_window(side) for side in SIDES}
        self.inlets: dict[str, Channel[Any]] = {}
        self.outlets: dict[str, Channel[Any]] = {}
        self._unsent: dict[str, deque[Any]] = {side: deque() for side in SIDES}
        self._work: Iterator[None] | None = None
        self._turn = 0
        self._shared = shared
        self.match = Matcher(shared.prober, self.outbox).match

    def __str__(self) -> str:
        held = ", ".join(f"{len(self.windows[side])} {side}" for side in SIDES)
        return f"holds {held}, {self.outbox.rows} pairs wait"

    @property
    def comparisons(self) -> int:
        return sum(window.comparisons for window in self.windows.values())

    def inlet(self, side: str, name: str, capacity: int, producer: Bell) -> Channel[Any]:
        """Make the channel to this node on the way of a side."""
        self.inlets[side] = Channel(f"{name} to {self.name}", capacity, producer, self.bell)
        return self.inlets[side]

    def rehearse(self) -> None:
        """Compile, or load from the cache, what a thread will run."""
        rehearse_channels()

    def receive(self, side: str, message: Any) -> Iterator[None]:
        """Handle a message that came on the way of `side`."""
        raise NotImplementedError

    def forward(self) -> bool:
        """Do what is due between two messages, without taking one; whether anything was done."""
        return False

    def step(self, most: int) -> bool:
        busy = self._send_waiting()
        for _ in range(most):
            if self._work is None:
                busy |= self.forward()
                self._work = self._next_message()
            if self._work is None or self.bell.stopped:
                break
            if self.outbox.room <= 0:
                self._shared.bell.ring()
                break
            busy = True
            if next(self._work, self) is self:
                self._work = None
        return busy

    def _next_message(self) -> Iterator[None] | None:
        """The work on the next message, from both sides in turns."""
        for _ in SIDES:
            self._turn = 1 - self._turn
            message = self.inlets[SIDES[self._turn]].take()
            if message is not None:
                return self.receive(SIDES[self._turn], message)
        return None

    def send(self, side: str, message: Any) -> None:
        """Send on the way of `side`; at its end the message is forgotten."""
        if not self.is_end[side]:
            self._unsent[side].append(message)
            self._send_waiting()

    def _send_waiting(self) -> bool:
        sent = False
        for side, waiting in self._unsent.items():
            while waiting and self.outlets[side].put(waiting[0]):
                waiting.popleft()
                sent = True
        return sent

    def mark(self, side: str, number: int) -> None:
        """Say that this node is done with the messages of `side` up to this one. The last node that is tells."""
        shared = self._shared
        if shared.marks.set(self.number, side, number):
            shared.let_go.ring()
            if shared.marks.is_due(side, number):
                shared.bell.ring()

    def clear(self) -> None:
        """Let go of all tuples; nobody steps any more."""
        self._work = None
        for side in SIDES:
            self.windows[side].clear()
            self._unsent[side].clear()


def up_to(place: int) -> Reach:
    """The reach of a tuple that meets nothing before `place`."""
    bound = np.array([place])
    return Reach(bound, bound)
