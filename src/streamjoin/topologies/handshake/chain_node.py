"""A node of a chain: the messages that it takes from both sides, and what all chains of nodes have in common.

A node never waits for room in a channel; messages that do not fit wait in the node. A node handles a message piece by
piece, so that it can stop for a full outbox. It takes the next message when it has finished this one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamjoin.index.probing import Prober
from streamjoin.index.tuples import ProbingTuples
from streamjoin.index.window import WindowIndex
from streamjoin.kernels.concurrent import atomics
from streamjoin.kernels.concurrent import scanning_node as expedition
from streamjoin.plan.physical import Plan
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.matching import Found, Matcher
from streamjoin.topologies.protocol import MakeWindow
from streamjoin.topologies.runtime.node import Bell, Channel, Outbox, rehearse_channels


@dataclass(frozen=True)
class Message:
    """A message that travels in the direction of `side`. The driver numbers its messages. Later messages reach no
    place of the other side below `expired`."""

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
class ExpiryNotice(Message):
    """A message without tuples, which only reports what has expired."""

    def __str__(self) -> str:
        return f"progress of {self.side} {self.number}: expired before {self.expired}"


@dataclass(frozen=True)
class Acknowledgement:
    """The sender has taken the right tuples of an arrival that the receiver forwarded."""

    number: int


class Marks:
    """The number of the last message of each side that each node has finished. Every node writes its own words, and
    only those. The driver writes the number of the last message it has sent; nodes wake it once at most `few`
    messages of a side are in the chain."""

    def __init__(self, nodes: int, few: int) -> None:
        self.words = np.zeros((nodes * len(SIDES) + 1) * atomics.LINE_PAIR, np.int64)
        self._sent = self.words[-atomics.LINE_PAIR :]
        self._sent[expedition.FEW_ON_WAY] = few
        for side, number in self.by_side().items():  # compiles these calls now, not when tuples arrive
            self.send(side, number)
            if self.set(0, side, self[side]):
                self.is_due(side, number)

    def __getitem__(self, side: str) -> int:
        """The last message that all nodes have finished. Acquires: pairs found for it are in the outboxes."""
        return int(expedition.least_mark(self.words, SIDES.index(side)))

    def by_side(self) -> dict[str, int]:
        left, right = expedition.least_marks(self.words)
        return {"left": left, "right": right}

    def send(self, side: str, number: int) -> None:
        """Count a message. Call this before sending it."""
        atomics.write(self._sent, SIDES.index(side), number)

    def is_due(self, side: str, number: int) -> bool:
        """Return whether to wake the driver, now that all nodes have finished a message."""
        return bool(expedition.is_due(self.words, SIDES.index(side), number))

    def set(self, node: int, side: str, number: int) -> bool:
        """Return whether all nodes have finished this message. Releases."""
        return bool(expedition.set_mark(self.words, node, SIDES.index(side), number))


@dataclass(frozen=True)
class ChainContext:
    """What all nodes share. It holds no reference to the join, so that threads do not keep an unused join alive."""

    count: int
    plan: Plan
    make_window: MakeWindow
    prober: Prober
    bell: Bell  # the driver's; rung for marks, and by a node whose outbox is full
    found: Bell  # rung for pairs
    let_go: Bell  # rung for marks
    marks: Marks


class ChainNode:
    """A node: takes messages from both sides and hands them to `receive`, which subclasses define.

    `receive` works piece by piece: it yields wherever it has handed over pairs, and resumes once the outbox has room.
    """

    def __init__(self, number: int, shared: ChainContext):
        self.name, self.number = f"node {number}", number
        # The end of the chain in the direction of a side
        self.is_end = {"left": number == shared.count - 1, "right": number == 0}
        self.bell = Bell()
        self.outbox: Outbox[Found] = Outbox(
            shared.plan.tuning.handshake.waiting_pairs, self.bell, shared.found
        )
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
        """Create the channel that leads to this node in the direction of a side."""
        self.inlets[side] = Channel(f"{name} to {self.name}", capacity, producer, self.bell)
        return self.inlets[side]

    def rehearse(self) -> None:
        """Compile the code that a thread will run, or load it from the cache."""
        rehearse_channels()

    def receive(self, side: str, message: Any) -> Iterator[None]:
        """Handle a message that travels in the direction of `side`."""
        raise NotImplementedError

    def forward(self) -> bool:
        """Do the work that is due between two messages, without taking one. Return whether there was any."""
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
        """Start work on the next message; the sides take turns."""
        for _ in SIDES:
            self._turn = 1 - self._turn
            message = self.inlets[SIDES[self._turn]].take()
            if message is not None:
                return self.receive(SIDES[self._turn], message)
        return None

    def send(self, side: str, message: Any) -> None:
        """Send in the direction of `side`. The last node drops the message."""
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
        """Report that this node has finished the messages of `side` up to this one. The last node to finish one wakes
        the driver."""
        shared = self._shared
        if shared.marks.set(self.number, side, number):
            shared.let_go.ring()
            if shared.marks.is_due(side, number):
                shared.bell.ring()

    def clear(self) -> None:
        """Drop all tuples. Call this when no thread steps the node any more."""
        self._work = None
        for side in SIDES:
            self.windows[side].clear()
            self._unsent[side].clear()
