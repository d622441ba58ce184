"""A chain of nodes between a driver that feeds both its ends and a collector of what the nodes find.

The driver alone knows the windows (Teubner & Mueller 2011, section 4.4): it stamps tuples, sends left ones in at
the left end and right ones at the right end, and says with each message what of the other side can expire. Messages
of one side are numbered. When one reaches the far end, every node is done with all that were sent before it:
that is the side's *high-water mark* (Roy, Teubner & Gemulla 2014, section 6.1).

The collector reads both marks, then empties the nodes' outboxes, then trusts the marks. Sorted output waits in a
buffer until the marks say that nothing earlier can come (section 6.2).

No node waits for room in a channel: what does not fit waits in the node, and the driver lets no more than
`CREDIT` messages a side into the chain. So memory is bounded, and full channels can not stop each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamjoin.codegen.columns import ColumnData
from streamjoin.codegen.evaluate import Filter
from streamjoin.index.protocol import Reach, Tuples, WindowIndex
from streamjoin.kernels import atomics
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.runtime.node import Bell, Channel, Executor, Outbox
from streamjoin.runtime.threads import Threads
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.topologies.protocol import OTHER, Fetch, Frontier, MakeWindow, Matches, Residuals
from streamjoin.topologies.stamps import INT64_MAX, INT64_MIN, ArrivalStamps, OrderStamps, in_reach

BATCH = 256  # tuples of a message, at most
CREDIT = 8  # messages of a side in the chain, at most
CAPACITY = 64  # messages of a channel
STRETCH = 65_536  # pairs that a node hands over at a time
WAITING_PAIRS = 1 << 20  # of one node, before it stops for the collector


@dataclass(frozen=True)
class Found:
    """Pairs that a node has found: ids and places of both."""

    ids: Mapping[str, np.ndarray]
    places: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Message:
    """Something on the way of `side`. Those from the driver are numbered, and say that no later one reaches places of
    the other side below `expired`."""

    side: str
    number: int
    expired: int


@dataclass(frozen=True)
class Arrival(Message):
    """Tuples that enter the chain together. `home`: the node that each is stored on, if it is one."""

    tuples: Tuples = field(repr=False)
    home: np.ndarray = field(repr=False)

    def __str__(self) -> str:
        return f"{self.side} {self.number}: places {self.tuples.ts.tolist()}"


@dataclass(frozen=True)
class Progress(Message):
    """News without tuples."""

    def __str__(self) -> str:
        return f"progress of {self.side} {self.number}: expired before {self.expired}"


class Marks:
    """The number of the last message of each side that all nodes are done with. The end of its way writes it."""

    def __init__(self) -> None:
        self._words = np.zeros(2 * atomics.LINE, np.int64)

    def __getitem__(self, side: str) -> int:
        """Acquires: what any node found before the mark was set is in its outbox."""
        return int(atomics.read(self._words, SIDES.index(side) * atomics.LINE))

    def __setitem__(self, side: str, number: int) -> None:
        """Releases. Each node has passed the message on after it was done with the one before."""
        atomics.write(self._words, SIDES.index(side) * atomics.LINE, number)


@dataclass(frozen=True)
class Shared:
    """What all nodes know. Nothing of it leads back to the join, so that threads do not keep one alive that
    nobody uses any more."""

    count: int
    make_window: MakeWindow
    residuals: Mapping[str, Filter | None]
    fetch: Fetch
    bell: Bell  # the driver's
    marks: Marks


class ChainNode:
    """A node: takes messages from both sides and hands them to `receive`, which subclasses write.

    `receive` works piece by piece: it yields wherever pairs were handed over, and goes on once the outbox has room.
    """

    def __init__(self, number: int, shared: Shared):
        self.name, self.number = f"node {number}", number
        self.is_end = {"left": number == shared.count - 1, "right": number == 0}  # of the way of a side
        self.bell = Bell()
        self.outbox: Outbox[Found] = Outbox(WAITING_PAIRS, self.bell, shared.bell)
        self.windows = {side: shared.make_window(side) for side in SIDES}
        self.inlets: dict[str, Channel[Any]] = {}
        self.outlets: dict[str, Channel[Any]] = {}
        self._unsent: dict[str, deque[Any]] = {side: deque() for side in SIDES}
        self._work: Iterator[None] | None = None
        self._turn = 0
        self._shared = shared
        self._pairs = PairBuffer(STRETCH)

    def __str__(self) -> str:
        held = ", ".join(f"{len(self.windows[side])} {side}" for side in SIDES)
        return f"holds {held}, {self.outbox.rows} pairs wait"

    def receive(self, side: str, message: Any) -> Iterator[None]:
        """Handle a message that came on the way of `side`."""
        raise NotImplementedError

    def step(self, most: int) -> bool:
        busy = self._send_waiting()
        for _ in range(most):
            if self._work is None and not self._begin():
                break
            if self.outbox.room <= 0:
                break
            busy = True
            if self._work is not None and next(self._work, self) is self:
                self._work = None
        return busy

    def _begin(self) -> bool:
        """Take the next message, from both sides in turns."""
        for _ in SIDES:
            self._turn = 1 - self._turn
            side = SIDES[self._turn]
            message = self.inlets[side].take()
            if message is not None:
                self._work = self.receive(side, message)
                return True
        return False

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

    def pass_on(self, message: Message) -> None:
        """Send a driver's message on, at once. At the end of its way it is the high-water mark: all nodes have begun
        with it, so they are done with those before, and with itself if it is mere progress."""
        self.send(message.side, message)
        if self.is_end[message.side]:
            self._shared.marks[message.side] = message.number - isinstance(message, Arrival)
            self._shared.bell.ring()

    def clear(self) -> None:
        """Let go of all tuples; nobody steps any more."""
        self._work = None
        for side in SIDES:
            self.windows[side].clear()
            self._unsent[side].clear()

    def expire(self, message: Message) -> None:
        self.windows[OTHER[message.side]].expire(up_to(message.expired))

    def match(self, window: WindowIndex, side: str, probes: Tuples, floor: int = INT64_MIN) -> Iterator[None]:
        """Hand over the pairs of `probes`, tuples of `side`, with what they reach in a window of the other, from the
        place `floor` on."""
        if not len(window) or not len(probes):
            return
        pairs = self._pairs
        for before in window.probe(probes, in_reach(window, probes, floor), pairs):
            self._check_residual(window, side, probes, before)
            if pairs.count >= STRETCH // 2:
                self._hand_over(window, side, probes)
                yield
        if pairs.count:
            self._hand_over(window, side, probes)
            yield

    def _hand_over(self, window: WindowIndex, side: str, probes: Tuples) -> None:
        probe, pos = self._pairs.take()
        ids = {side: probes.id[probe], OTHER[side]: window["id"][pos]}
        places = {side: probes.ts[probe], OTHER[side]: window["ts"][pos]}
        self.outbox.put(len(probe), Found(ids, places))

    def _check_residual(self, window: WindowIndex, side: str, probes: Tuples, before: int) -> None:
        residual, pairs = self._shared.residuals[OTHER[side]], self._pairs
        if residual is None or pairs.count == before:
            return
        fresh = slice(before, pairs.count)
        ids = {side: probes.id[pairs.probe[fresh]], OTHER[side]: window["id"][pairs.pos[fresh]]}
        data: dict[Column, ColumnData] = {}
        for each in SIDES:
            data |= self._shared.fetch(each, tuple(c for c in residual.columns if c.side == each), ids[each])
        pairs.keep(before, residual(data, pairs.count - before))


def up_to(place: int) -> Reach:
    """The reach of a tuple that meets nothing before `place`."""
    bound = np.array([place])
    return Reach(bound, bound)


@dataclass(frozen=True)
class Sent:
    """A message in the chain, or tuples that it left there."""

    number: int
    expired: int
    count: int = 0
    least_id: int = 0
    first_place: int = 0
    last_place: int = 0
    first_time: int = 0


class Pipeline:
    """A topology over a chain of nodes; subclasses say which nodes, and where tuples are at home."""

    orders: tuple[str, ...] = ("any", "punctuated", "timestamp")
    most_workers = 64

    def __init__(
        self,
        spec: JoinSpec,
        make_window: MakeWindow,
        residuals: Residuals,
        order: str,
        fetch: Fetch,
        workers: int,
        executor: Executor | None = None,
        batch: int = BATCH,
        capacity: int = CAPACITY,
        credit: int = CREDIT,
    ):
        self.workers, self.order, self._batch, self._credit = workers, order, batch, credit
        self.settles = self.must_settle(spec, order)
        self._stamps = OrderStamps(spec) if self.settles else ArrivalStamps(spec)
        self._bell, self._marks = Bell(), Marks()
        filters = {side: None if e is None else Filter(e) for side, e in residuals.items()}
        shared = Shared(workers, make_window, filters, fetch, self._bell, self._marks)
        self.nodes = [self.make_node(number, shared) for number in range(workers)]
        self._channels = connect(self.nodes, self._bell, capacity)
        self._entries = {"left": self.nodes[0].inlets["left"], "right": self.nodes[-1].inlets["right"]}
        self._executor, self._started = executor or Threads(), False
        self._numbers = dict.fromkeys(SIDES, 0)  # of the last message sent
        self._told = dict.fromkeys(SIDES, INT64_MIN)  # what was said to be expired, on the way of a side
        self._owing = dict.fromkeys(SIDES, False)  # the last message was an arrival
        self._sent: dict[str, deque[Sent]] = {side: deque() for side in SIDES}  # messages in the chain
        self._stored: dict[str, deque[Sent]] = {side: deque() for side in SIDES}  # tuples that rest in it
        self._counts = dict.fromkeys(SIDES, 0)
        self._unsorted: list[Found] = []
        self._ready: deque[Matches] = deque()

    def must_settle(self, spec: JoinSpec, order: str) -> bool:
        return order == "timestamp" or spec.left_window.rows or spec.right_window.rows

    def make_node(self, number: int, shared: Shared) -> ChainNode:
        raise NotImplementedError

    def homes(self, side: str, tuples: Tuples) -> np.ndarray:
        """The home node of each tuple."""
        raise NotImplementedError

    # What the engine asks

    @property
    def comparisons(self) -> tuple[int, ...]:
        return tuple(sum(window.comparisons for window in node.windows.values()) for node in self.nodes)

    @property
    def windows(self) -> dict[str, Spread]:
        return {side: Spread([node.windows[side] for node in self.nodes]) for side in SIDES}

    def held(self, side: str) -> int:
        return self._counts[side]

    def oldest_id(self, side: str) -> int | None:
        ids = [int(tuples.id.min()) for tuples in self._stamps.held(side)]
        ids += [sent.least_id for sent in (*self._sent[side], *self._stored[side]) if sent.count]
        return min(ids, default=None)

    def push(self, side: str, tuples: Tuples, ranks: Mapping[str, np.ndarray], frontier: Frontier) -> None:
        self._counts[side] += len(tuples)
        self._stamps.push(side, tuples, ranks, frontier)

    def advance(self, frontier: Frontier) -> None:
        self._stamps.advance(frontier)

    @property
    def idle(self) -> bool:
        """Whether the chain has all that is known, and what has come of it so far is handed out."""
        if self._ready or self._stamps.ready or any(map(self._owes, SIDES)):
            return False
        if self._stamps.ended and any(self._sent.values()):
            return False
        return not any(node.outbox.rows for node in self.nodes) and not any(
            map(self._has_come_through, SIDES)
        )

    def _has_come_through(self, side: str) -> bool:
        """Whether the oldest message of a side that is held for being in the chain no longer is."""
        sent = self._sent[side]
        return bool(sent) and sent[0].number <= self._marks[side]

    @property
    def least_result_time(self) -> float:
        """A result to come is driven by a tuple that is still to come or is in the chain."""
        times = [sent.first_time for way in self._sent.values() for sent in way if sent.count]
        return min([self._stamps.low, *times])

    def step(self, most: float) -> Matches:
        seen = self._bell.read()
        self._executor.check()
        marks = {side: self._marks[side] for side in SIDES}
        self._collect()
        self._settle(marks)
        self._feed()
        if not self._ready and not self.idle:
            self._executor.wait(seen)
        return self._hand_out(most)

    def clear(self) -> None:
        self._executor.stop()
        self._stamps.clear()
        self._ready.clear()
        self._unsorted.clear()
        for side in SIDES:
            self._sent[side].clear()
            self._stored[side].clear()
            self._counts[side] = 0
            self._told[side], self._owing[side] = INT64_MAX, False
        for node in self.nodes:
            node.clear()

    # The driver

    def _feed(self) -> None:
        """Send tuples as far as credit goes, then what has expired, which brings the mark up to the last."""
        if not self._started:
            self._executor.start(self.nodes, self._channels, self._bell)
            self._started = True
        while self._stamps.ready and all(map(self._may_send, SIDES)):
            side, tuples, time = self._stamps.take(self._batch)
            self._send_arrival(side, tuples, time)
        for side in SIDES:
            if self._owes(side) and self._entries[side].room:
                self._send(Progress(side, self._numbers[side] + 1, self._stamps.expired(OTHER[side])))

    def _may_send(self, side: str) -> bool:
        """Whether an arrival may enter."""
        return len(self._sent[side]) < self._credit and self._entries[side].room > 0

    def _owes(self, side: str) -> bool:
        """Whether the nodes have not been told all that is known on the way of `side`."""
        return self._owing[side] or self._stamps.expired(OTHER[side]) > self._told[side]

    def _send_arrival(self, side: str, tuples: Tuples, time: int) -> None:
        number, expired = self._numbers[side] + 1, self._stamps.expired(OTHER[side])
        places = int(tuples.ts[0]), int(tuples.ts[-1])
        sent = Sent(number, expired, len(tuples), int(tuples.id.min()), *places, time)
        self._send(Arrival(side, number, expired, tuples, self.homes(side, tuples)), sent)

    def _send(self, message: Message, sent: Sent | None = None) -> None:
        side = message.side
        self._entries[side].put(message)
        self._numbers[side], self._told[side], self._owing[side] = (
            message.number,
            message.expired,
            sent is not None,
        )
        self._sent[side].append(sent or Sent(message.number, message.expired))

    # The collector

    def _collect(self) -> None:
        for node in self.nodes:
            while (found := node.outbox.take()) is not None:
                if self.order == "timestamp":
                    self._unsorted.append(found)
                else:
                    self._ready.append(Matches(found.ids["left"], found.ids["right"]))

    def _settle(self, marks: Mapping[str, int]) -> None:
        """All results up to the marks are collected."""
        for side in SIDES:
            sent = self._sent[side]
            while sent and sent[0].number <= marks[side]:
                done = sent.popleft()
                if done.count:
                    self._stored[side].append(done)
                self._forget(OTHER[side], done.expired)
        if self._unsorted:
            self._sort(min(self._least_place(side) for side in SIDES))

    def _forget(self, side: str, expired: int) -> None:
        """Every node has dropped what was expired."""
        stored = self._stored[side]
        while stored and stored[0].last_place < expired:
            self._counts[side] -= stored.popleft().count

    def _least_place(self, side: str) -> int:
        """No tuple of `side` that can still drive a result has a smaller place."""
        return next((sent.first_place for sent in self._sent[side] if sent.count), self._stamps.place)

    def _sort(self, bound: int) -> None:
        """Release the results before `bound`: by the place of the later tuple, then of the earlier."""
        places, ids = (
            [np.concatenate([getattr(found, what)[side] for found in self._unsorted]) for side in SIDES]
            for what in ("places", "ids")
        )
        later = np.maximum(*places)
        order = np.lexsort((np.minimum(*places), later))
        cut = int(later[order].searchsorted(bound))
        now, rest = order[:cut], order[cut:]
        if len(now):
            self._ready.append(Matches(ids[0][now], ids[1][now]))
        by_side = [dict(zip(SIDES, (a[rest] for a in arrays), strict=True)) for arrays in (ids, places)]
        self._unsorted = [Found(*by_side)] if len(rest) else []

    def _hand_out(self, most: float) -> Matches:
        if not self._ready:
            none = np.empty(0, np.int64)
            return Matches(none, none)
        first = self._ready.popleft()
        if len(first) > most:
            cut = max(1, int(most))
            self._ready.appendleft(Matches(first.left[cut:], first.right[cut:]))
            first = Matches(first.left[:cut], first.right[:cut])
        return first


class Spread:
    """A window whose parts lie on all nodes."""

    def __init__(self, parts: Sequence[WindowIndex]):
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)


def connect(nodes: Sequence[ChainNode], driver: Bell, capacity: int) -> list[Channel[Any]]:
    """Channels for both ways, from the driver through all nodes."""
    channels = []
    for side, way in (("left", nodes), ("right", nodes[::-1])):
        bell, name = driver, "driver"
        for number, node in enumerate(way):
            channel: Channel[Any] = Channel(f"{name} to {node.name}", capacity, bell, node.bell)
            node.inlets[side] = channel
            if number:
                way[number - 1].outlets[side] = channel
            channels.append(channel)
            bell, name = node.bell, node.name
    return channels
