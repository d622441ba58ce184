"""A compiled node of a chain: the protocol runs without the GIL, and calls Python only for what
compiled code cannot do, such as making room.

Messages between nodes are records in lock-free rings. Rows on their way stay where the driver has staged them; nodes
copy the rows that they store. The kernel of the node's kind handles the messages (`scanning_node.py`,
`hashing_node.py`, `flowing_node.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from streamjoin.kernels.concurrent import queue
from streamjoin.kernels.concurrent import scanning_node as kernel
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.handshake.chain_node import Arrival, ChainContext, Message
from streamjoin.topologies.pair_ring import PairRing
from streamjoin.topologies.runtime.node import PATIENCE, Bell, rehearse_channels

FOUND_PAIRS = 65_536  # A scan or a probe stops once it has found this many pairs.


class Staging(Protocol):
    """Rows of one side's arrivals that are on their way. The driver writes them, nodes read them. There is room for
    as many arrivals as the driver admits."""

    rows: np.ndarray

    def write(self, arrival: Any) -> int:
        """Stage an arrival and return the number of its first row."""


class RecordChannel:
    """A bounded queue of records that leads to a node, from the driver or another node. Only the driver's end is in
    Python."""

    def __init__(self, name: str, capacity: int, consumer: Bell, stage: Staging):
        self.name = name
        self.watch: Callable[[str], None] | None = None
        self.ring = queue.new_ring(capacity, kernel.MESSAGE_WORDS)
        self._consumer, self._stage = consumer, stage
        self._record = np.zeros(kernel.MESSAGE_WORDS, np.int64)

    def put(self, message: Message) -> None:
        """Stage a driver's message and send it; there must be room."""
        kind, first, count, nulls = kernel.PROGRESS, 0, 0, False
        if isinstance(message, Arrival):
            tuples = message.tuples
            kind, first, count, nulls = kernel.ARRIVAL, self._stage.write(message), len(tuples), tuples.nulls
        self._record[:] = kind, message.number, message.expired, first, count, nulls
        queue.put(self.ring, self._record)
        if self.watch is not None:
            self.watch(f"{self.name} <- {message}")
        self._consumer.ring()

    def __len__(self) -> int:
        return int(queue.waiting(self.ring))

    @property
    def has_room(self) -> bool:
        return bool(queue.has_room(self.ring, kernel.MESSAGE_WORDS))


class RecordNode:
    """One node: its channels, the words that compiled code works on, and its calls of Python. Subclasses hold the
    stores."""

    advance: ClassVar[Callable[..., Any]]  # the kernels of the node's kind
    wait_and_advance: ClassVar[Callable[..., Any]]
    windows: dict[str, Any]

    def __init__(
        self, number: int, shared: ChainContext, stages: Sequence[Staging], waiting: int, words: int
    ):
        self.name, self.number = f"node {number}", number
        self.bell = Bell()
        self.outbox = PairRing(shared.plan.tuning.handshake.compiled_waiting_pairs, self.bell, places=True)
        self.inlets: dict[str, RecordChannel] = {}
        self.outlets: dict[str, RecordChannel] = {}
        self._shared, self._staging = shared, stages
        self._bells = dict.fromkeys(SIDES, shared.bell)  # of the sender in the direction of a side
        self._unsent = [queue.new_ring(waiting, kernel.MESSAGE_WORDS) for _ in SIDES]
        self._words = np.zeros(words, np.int64)
        self._words[[kernel.OWN_NODE, kernel.LAST_NODE]] = number, shared.count - 1
        self._arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        message = self._words[: kernel.MESSAGE_WORDS].tolist()
        held = ", ".join(f"{len(store)} {side}" for side, store in self.windows.items())
        side = SIDES[self._words[kernel.MESSAGE_SIDE]]
        return f"was at {message} from {side}; holds {held}, {self.outbox.rows} pairs wait"

    @property
    def comparisons(self) -> int:
        return int(self._words[kernel.COMPARED])

    def inlet(self, side: str, name: str, capacity: int, producer: Bell) -> RecordChannel:
        """Create the channel that leads to this node in the direction of a side."""
        self._bells[side] = producer
        stage = self._staging[SIDES.index(side)]
        self.inlets[side] = RecordChannel(f"{name} to {self.name}", capacity, self.bell, stage)
        return self.inlets[side]

    def step(self, most: int) -> bool:
        busy = False
        self._words[kernel.MESSAGES_LEFT] = most
        while True:
            why, did = self.advance(*self._gathered())
            busy |= bool(did)
            if not self.help(why):
                return busy

    def work(self) -> None:
        while self.help(self.wait_and_advance(self.bell.words, PATIENCE, self._gathered())):
            if self.bell.stopped:
                break

    def help(self, why: int) -> bool:
        """Do what compiled code asks for and return whether it asked. Forgets the arguments if they have changed."""
        raise NotImplementedError

    def gather(self) -> tuple[Any, ...]:
        """The arguments of compiled code that follow those of every node."""
        raise NotImplementedError

    def staged_rows(self) -> tuple[np.ndarray, ...]:
        """By side, the rows that messages name."""
        return tuple(stage.rows for stage in self._staging)

    def rehearse(self) -> None:
        """Compile the code that a thread will run, or load it from the cache."""
        rehearse_channels()
        stopped = Bell()
        stopped.stop()
        self.wait_and_advance(stopped.words, 0, self._gathered())
        queue.has_room(self._unsent[0], kernel.MESSAGE_WORDS)

    def _gathered(self) -> tuple[Any, ...]:
        if not self._arguments:
            nowhere = queue.new_ring(1, kernel.MESSAGE_WORDS)
            rings = [self.inlets[side].ring for side in SIDES]
            rings += [self.outlets[side].ring if side in self.outlets else nowhere for side in SIDES]
            bells = [self._bells[side].words for side in SIDES]
            self._arguments = (
                self._words,
                (*rings, *self._unsent),
                (*bells, self._shared.bell.words, self._shared.found.words, self._shared.let_go.words),
                self._shared.marks.words,
                self.staged_rows(),
                *self.gather(),
            )
        return self._arguments

    def clear(self) -> None:
        """Drop all tuples. Call this when no thread steps the node any more."""
        self._words[kernel.STORE_BEGIN :] = 0
        self._arguments = ()
