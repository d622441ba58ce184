"""Nodes: units of work that run in steps, woken by bells, connected by bounded channels and outboxes.

A *node* has its own state and a `step`. Nodes share only channels, outboxes, and arrays in which each word has one
writer. An *executor* calls the steps: `Threads` runs each node on a thread of its own, `Simulator` runs one step at a
time in an order that it chooses. Both run the same nodes, so results of the simulator hold for the code that threads
run.

The contract of a step:

- It never waits: without input, or without room for its output, it returns False.
- It is bounded: it handles at most `most` messages (or tuples), and returns early once its bell is stopped, so that
  stopping is fast.
- After it returns False, nothing changes until its bell rings. So a thread that gives a node work (a message, room in
  an output, a new frontier) rings the node's bell *afterwards*.

The *driver*, the thread that pushes and polls, is not a node. It waits with `Executor.wait`; nodes ring its bell when
they have results, or room for more work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from streamjoin.kernels.concurrent import atomics, queue

PATIENCE = (
    50_000  # Compiled code returns after this many microseconds, so that Python can check whether to stop.
)

Item = TypeVar("Item")


class Bell:
    """A counter that wakes the thread waiting on it; other threads increment it. `awaited`: how many polls wait for
    results that it announces, or are about to."""

    def __init__(self) -> None:
        self.words = np.zeros(atomics.LINE_PAIR, np.int64)
        self.awaited = 0

    def stop(self) -> None:
        """Ring for the last time: a thread that waits in compiled code returns."""
        self.words[atomics.BELL_STOPPED] = 1  # one store; the ring below releases it
        self.ring()

    @property
    def stopped(self) -> bool:
        """Whether its thread should end. A step checks this between messages, and at each stretch of a scan. A plain
        load is enough, because no other data depends on it."""
        return bool(self.words[atomics.BELL_STOPPED])

    def ring(self) -> None:
        atomics.ring(self.words)

    def read(self) -> int:
        """Read this before looking for work. If there was none, `wait` for a change."""
        return int(atomics.read(self.words, 0))

    def wait(self, seen: int, patience: int = PATIENCE) -> None:
        """Wait until the bell has rung since `seen` was read, or for about `patience` microseconds; without the
        GIL."""
        atomics.wait_for_ring(self.words, seen, patience)


class Node(Protocol):
    """A unit of work with its own state. `str(node)` is its state in one line, for traces."""

    name: str
    bell: Bell

    def step(self, most: int) -> bool:
        """Handle at most `most` messages, without waiting. Return whether there was anything to do."""


@runtime_checkable
class CompiledNode(Node, Protocol):
    """A node that can also wait in compiled code, so that its thread need not return to Python for that."""

    def work(self) -> None:
        """Alternately step and wait for the bell, without the GIL. Returns from time to time, and once the bell is
        stopped."""


class Executor(Protocol):
    """Runs nodes. `check` and `wait` raise the errors of nodes; an error stops all nodes."""

    def start(self, nodes: Sequence[Node], channels: Sequence[Channel[Any]], driver: Bell) -> None:
        """Start to run nodes. `driver` is the bell of the calling thread."""

    @property
    def failed(self) -> bool:
        """Whether `check` would raise."""

    def check(self) -> None:
        """Raise the error that a node raised, with the node's traceback."""

    def wait(self, seen: int) -> None:
        """Let the nodes work until the driver's bell has rung since `seen` was read, or for a while."""

    def stop(self) -> None:
        """Let the current steps end, then run no more. Idempotent."""


class Channel(Generic[Item]):
    """A bounded queue of messages from one node to another. A put rings the consumer's bell; a take rings the
    producer's if the producer may be waiting for room. `watch`, if set, gets a description of every message."""

    def __init__(self, name: str, capacity: int, producer: Bell, consumer: Bell):
        self.name = name
        self.watch: Callable[[str], None] | None = None
        self._ring = queue.new_ring(capacity, 1)  # numbers of the filled slots
        self._slots: list[Item | None] = [None] * capacity
        self._at = self._next = 0  # slots: the producer fills the first, the consumer empties the second
        self._put, self._taken = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._producer, self._consumer = producer, consumer

    def put(self, message: Item) -> bool:
        """Append a message. Return False and change nothing if the channel is full. Only the producer calls this."""
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
        """Remove and return the oldest message, or None. Only the consumer calls this."""
        if not len(self):
            return None
        message, self._slots[self._next] = self._slots[self._next], None
        self._next = (self._next + 1) % len(self._slots)
        queue.take(
            self._ring, self._taken
        )  # the producer may fill the slot from here on, so it is empty by now
        if self.watch is not None:
            self.watch(f"{self.name} -> {message}")
        if len(self) + 1 >= len(
            self._slots
        ):  # Read after the take, so that a producer which saw no room is woken.
            self._producer.ring()
        return message

    def first(self) -> Item | None:
        """Return the oldest message without removing it, or None. Only the consumer calls this."""
        return self._slots[self._next] if len(self) else None

    def __len__(self) -> int:
        """The number of messages that wait."""
        return int(queue.waiting(self._ring))

    @property
    def has_room(self) -> bool:
        return len(self) < len(self._slots)


@cache
def rehearse_channels() -> None:
    """Compile the code that bells and channels call, or load it from the cache, so that the first message need not
    wait."""
    bell = Bell()
    channel: Channel[str] = Channel("rehearsal", 1, bell, bell)
    channel.put("message")
    channel.take()
    atomics.write(bell.words, atomics.LINE_PAIR - 1, 1)  # nodes publish their progress by this call
    bell.stop()
    bell.wait(bell.read() - 1)


class Outbox(Generic[Item]):
    """Results of one node that wait for the driver, bounded by rows. A put rings the bells of the threads that wait
    for results; a take rings the node's if the node may be waiting for room.

    A node puts an item, however many rows it has, when there is room for at least one row. A step aims at `room`
    rows, and exceeds it by at most the matches of one tuple.
    """

    def __init__(self, most: int, node: Bell, *takers: Bell):
        self.most = most
        self._items: deque[tuple[int, Item]] = deque()
        self._added = self._taken = 0  # rows; the node writes the first, the driver the second
        self._node, self._takers = node, takers

    @property
    def rows(self) -> int:
        """The number of rows that wait."""
        taken = self._taken  # Read first: `added` never falls, so the difference is never negative.
        return self._added - taken

    @property
    def room(self) -> int:
        return self.most - self.rows

    @property
    def stopped(self) -> bool:
        """Whether the node's thread should end."""
        return self._node.stopped

    def put(self, rows: int, item: Item) -> None:
        """Append an item. Only the node calls this."""
        self._added += rows
        self._items.append((rows, item))
        for bell in self._takers:
            bell.ring()

    def first(self) -> Item | None:
        """Return the oldest item without removing it, or None. Only the driver calls this."""
        return self._items[0][1] if self._items else None

    def take(self) -> Item | None:
        """Remove and return the oldest item, or None. Only the driver calls this."""
        if not self._items:
            return None
        rows, item = self._items.popleft()
        self._taken += rows
        # Read after the take, so that a node which saw no room is woken.
        if self.rows + rows >= self.most:
            self._node.ring()
        return item
