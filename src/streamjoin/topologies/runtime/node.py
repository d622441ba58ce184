"""What runs: nodes that work in steps, woken by bells, connected by bounded channels and outboxes.

A *node* is state of its own and a `step`. Nodes share nothing but channels, outboxes, and arrays of
which each word has one writer. An *executor* calls the steps: `Threads` on one pinned thread per node, `Simulator`
one at a time in an order of its choice. The same node runs on both, so what the simulator proves holds for
the code that threads run.

The contract of a step:
- it never waits: without input, or without room for its output, it returns False;
- it is bounded: `most` messages (or tuples) at most, and it comes back in the middle of them once its bell was stopped,
  so that stopping is prompt;
- when it returns False, nothing will change until its bell has rung. So whoever gives a node something to do, a
  message, room in an output, a new frontier, rings its bell *afterwards*.

The *driver*, the thread that pushes and polls, is no node. It has a bell too, which the nodes ring when they have
results or room for it, and waits with `Executor.wait`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from streamjoin.kernels.concurrent import atomics, queue

STOP = 1  # the word of a bell that says so
PATIENCE = 50_000  # microseconds in compiled code before Python looks whether it should stop

Item = TypeVar("Item")


class Bell:
    """Wakes who waits: a counter that others increment."""

    def __init__(self) -> None:
        self.words = np.zeros(atomics.LINE, np.int64)

    def stop(self) -> None:
        """Ring for the last time: who waits in compiled code comes back."""
        self.words[STOP] = 1  # one store; the ring after it releases it
        self.ring()

    @property
    def stopped(self) -> bool:
        """Whether its thread is to end. A step of several messages looks here between two of them, and at a scan's
        stretches; a plain load, as nothing is read on the strength of it."""
        return bool(self.words[STOP])

    def ring(self) -> None:
        atomics.ring(self.words)

    def read(self) -> int:
        """Read this before looking for work; `wait` for a change if there was none."""
        return int(atomics.read(self.words, 0))

    def wait(self, seen: int, patience: int = PATIENCE) -> None:
        """Wait until it has rung since `seen` was read, or about `patience` microseconds; without the GIL."""
        atomics.wait_for_ring(self.words, seen, patience)


class Node(Protocol):
    """Something that works on its own. `str(node)` is its state in one line, for traces."""

    name: str
    bell: Bell

    def step(self, most: int) -> bool:
        """Work on `most` messages at most, without waiting; whether anything was done."""


@runtime_checkable
class CompiledNode(Node, Protocol):
    """A node that also knows how to wait, so that its thread need not come back for it."""

    def work(self) -> None:
        """Step, wait for the bell, and so on, without the GIL. Returns now and then, and once the bell was stopped."""


class Executor(Protocol):
    """Runs nodes. Errors of nodes come out of `check` and `wait`, and stop all nodes."""

    def start(self, nodes: Sequence[Node], channels: Sequence[Channel[Any]], driver: Bell) -> None:
        """Begin to run nodes; `driver` is the bell of the thread that calls."""

    @property
    def failed(self) -> bool:
        """Whether `check` would raise."""

    def check(self) -> None:
        """Raise what a node raised, with the node's traceback."""

    def wait(self, seen: int) -> None:
        """Let the nodes work until the driver's bell has rung since `seen` was read, or a while has passed."""

    def stop(self) -> None:
        """Let the steps under way end, then run none any more. Idempotent."""


class Channel(Generic[Item]):
    """A bounded queue of messages from one node to one other. Puts ring the consumer's bell, takes the producer's if it
    may wait for room. `watch`, if set, is told of every message in words."""

    def __init__(self, name: str, capacity: int, producer: Bell, consumer: Bell):
        self.name = name
        self.watch: Callable[[str], None] | None = None
        self._ring = queue.new_ring(capacity, 1)  # numbers of the slots that are filled
        self._slots: list[Item | None] = [None] * capacity
        self._at = self._next = 0  # slots: the producer's to fill, the consumer's to empty
        self._put, self._taken = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._producer, self._consumer = producer, consumer

    def put(self, message: Item) -> bool:
        """Append a message; False, and nothing changed, if the channel is full. The producer's."""
        if not self.has_room:
            return False
        self._slots[self._at] = message
        self._put[0] = self._at
        queue.put(self._ring, self._put)
        self._at = (self._at + 1) % len(self._slots)
        if self.watch is not None:
            self.watch(f"{self.name} <- {message}")
        self._consumer.ring()
        return True

    def take(self) -> Item | None:
        """The oldest message, or None. The consumer's."""
        if not len(self):
            return None
        message, self._slots[self._next] = self._slots[self._next], None
        self._next = (self._next + 1) % len(self._slots)
        queue.take(self._ring, self._taken)  # now that the slot is empty, the producer may have it
        if self.watch is not None:
            self.watch(f"{self.name} -> {message}")
        if len(self) + 1 >= len(self._slots):  # looked at after the take, so whoever saw no room is woken
            self._producer.ring()
        return message

    def first(self) -> Item | None:
        """The oldest message, which stays, or None. The consumer's."""
        return self._slots[self._next] if len(self) else None

    def __len__(self) -> int:
        """Messages that wait."""
        return int(queue.waiting(self._ring))

    @property
    def has_room(self) -> bool:
        return len(self) < len(self._slots)


@cache
def rehearse_channels() -> None:
    """Compile what bells and channels call, or load it from the cache: the first message should not wait for it."""
    bell = Bell()
    channel: Channel[str] = Channel("rehearsal", 1, bell, bell)
    channel.put("message")
    channel.take()
    atomics.write(bell.words, atomics.LINE - 1, 1)  # as nodes tell of themselves
    bell.stop()
    bell.wait(bell.read() - 1)


class Outbox(Generic[Item]):
    """Results of one node that wait for the driver, bounded by rows. Puts ring the bells of those who wait for them,
    takes the node's if it may wait for room.

    A node puts an item when there is room for at least one row, however many rows it has: a step
    aims at `room` rows, and exceeds it by the matches of one tuple at most.
    """

    def __init__(self, most: int, node: Bell, *takers: Bell):
        self.most = most
        self._items: deque[tuple[int, Item]] = deque()
        self._added = self._taken = 0  # rows; written by the node and by the driver
        self._node, self._takers = node, takers

    @property
    def rows(self) -> int:
        """Rows that wait."""
        taken = self._taken  # first: `added` never falls, so the difference is never negative
        return self._added - taken

    @property
    def room(self) -> int:
        return self.most - self.rows

    @property
    def stopped(self) -> bool:
        """Whether the node's thread is to end."""
        return self._node.stopped

    def put(self, rows: int, item: Item) -> None:
        """The node's."""
        self._added += rows
        self._items.append((rows, item))
        for bell in self._takers:
            bell.ring()

    def first(self) -> Item | None:
        """The oldest item, which stays, or None. The driver's."""
        return self._items[0][1] if self._items else None

    def take(self) -> Item | None:
        """The oldest item, or None. The driver's."""
        if not self._items:
            return None
        rows, item = self._items.popleft()
        self._taken += rows
        # Looked at after the take, so that a node which saw no room is woken.
        if self.rows + rows >= self.most:
            self._node.ring()
        return item
