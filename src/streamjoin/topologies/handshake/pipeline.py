"""A chain of nodes between a driver that feeds both ends and a collector of the pairs that nodes find.

Only the driver knows the windows (Teubner & Mueller 2011, section 4.4). It stamps tuples, sends left ones in at the
left end and right ones at the right end, and reports with each message what can expire on the other side. It numbers
the messages of a side. Every node reports the last one it has finished. The last message that all nodes have finished
is the side's *high-water mark* (Roy, Teubner & Gemulla 2014, section 6.1).

The collector reads both marks, then empties the nodes' outboxes, and only then relies on the marks. Sorted output
waits in a buffer until the marks show that nothing earlier can come (section 6.2).

A node never waits for room in a channel, and the driver sends nothing that the chain cannot take. So memory is
bounded, and full channels cannot deadlock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from streamjoin.index.tuples import ProbingTuples
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN, least
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.handshake.chain_node import Arrival, ChainContext, ExpiryNotice, Marks, Message
from streamjoin.topologies.matching import Collector
from streamjoin.topologies.protocol import Frontier, Matches, Spread, Task
from streamjoin.topologies.runtime.node import Bell, Executor, Node
from streamjoin.topologies.runtime.threads import Threads
from streamjoin.topologies.stamps import make_stamps


class PipelineNode(Node, Protocol):
    """What a chain needs of a node. Channels and outboxes know the bells at their ends."""

    inlets: dict[str, Any]
    outlets: dict[str, Any]

    @property
    def outbox(self) -> Any:
        """Of pairs: `rows` counts those that wait, and `take` returns some of them as `Found`, or None."""

    @property
    def windows(self) -> Mapping[str, Any]: ...

    @property
    def comparisons(self) -> int: ...

    def inlet(self, side: str, name: str, capacity: int, producer: Bell) -> Any:
        """Create the channel that leads to this node in the direction of a side."""

    def rehearse(self) -> None:
        """Compile the code that a thread will run, or load it from the cache."""

    def clear(self) -> None: ...


AnyNode = TypeVar("AnyNode", bound=PipelineNode)


class SentArrival(NamedTuple):
    """What the driver remembers of an arrival: among others its first and last event time and place."""

    number: int
    tuples: int
    least_id: int
    first_place: int
    last_place: int
    first_time: int


class Pipeline(Generic[AnyNode]):
    """A topology over a chain of nodes. Subclasses define which nodes, and which pairs can still be found.
    `tells_at_once`: the driver reports expiry to the nodes as soon as it knows. `always_settles`: tuples settle
    first, whatever the task."""

    tells_at_once = always_settles = False
    few_on_way = INT64_MAX  # Marks do not wake the driver while more messages of a side are in the chain.

    def __init__(
        self,
        task: Task,
        executor: Executor | None = None,
        batch: int | None = None,
        capacity: int | None = None,
    ):
        scanned = all(window.kind == "scan" for window in task.plan.windows.values())
        tuning = self._tuning = task.plan.tuning.handshake
        self.workers, self._batch = task.workers, batch or (tuning.batch if scanned else tuning.indexed_batch)
        self.settles = task.settles or self.always_settles
        self._stamps = make_stamps(task.spec, self.settles)
        self._bell, self.found, self._marks = Bell(), Bell(), Marks(self.workers, self.few_on_way)
        let_go = Bell() if task.order == "any" else self.found  # marks let promises and sorted results go
        prober, bells = task.make_prober(), (self._bell, self.found, let_go)
        shared = ChainContext(self.workers, task.plan, task.make_window, prober, *bells, self._marks)
        self.nodes = self.make_nodes(shared)
        self._channels = connect(self.nodes, self._bell, capacity or tuning.capacity)
        self.nodes[0].rehearse()  # compiles before threads start and tuples arrive
        self._entries = {"left": self.nodes[0].inlets["left"], "right": self.nodes[-1].inlets["right"]}
        self._executor, self._started = executor or Threads(), False
        self._numbers = dict.fromkeys(SIDES, 0)  # of the last message sent
        self._told = dict.fromkeys(SIDES, INT64_MIN)  # the last expiry reported, in the direction of a side
        self._unheard = dict.fromkeys(SIDES, 0)  # tuples of the other side since the last message
        self._sent: dict[str, deque[SentArrival]] = {
            side: deque() for side in SIDES
        }  # arrivals not yet marked as finished
        self._counts = dict.fromkeys(SIDES, 0)  # tuples held
        self._collector = Collector(task.order)
        self._heard = -1  # value of `_rung` when results were last collected

    def make_nodes(self, shared: ChainContext) -> list[AnyNode]:
        raise NotImplementedError

    def make_arrival(self, side: str, number: int, expired: int, tuples: ProbingTuples) -> Arrival:
        return Arrival(side, number, expired, tuples)

    def number_after(self, side: str, tuples: int) -> int:
        """The number of the next message of a side, which brings so many tuples."""
        return self._numbers[side] + 1

    def earliest(self, what: str) -> float:
        """The least place (`first_place`) or event time (`first_time`) of the later tuple of any later pair that has
        a tuple in the chain; infinity if there is none."""
        raise NotImplementedError

    # Called by the engine

    @property
    def comparisons(self) -> tuple[int, ...]:
        return tuple(node.comparisons for node in self.nodes)

    @property
    def windows(self) -> dict[str, Spread]:
        return {side: Spread([node.windows[side] for node in self.nodes]) for side in SIDES}

    def held(self, side: str) -> int:
        return self._counts[side]

    def oldest_id(self, side: str) -> int | None:
        ids = [int(tuples.id.min()) for tuples in self._stamps.held(side)]
        ids += [sent.least_id for sent in self.in_chain(side)]
        waiting = self._collector.oldest_id(side)
        return min(ids if waiting is None else [*ids, waiting], default=None)

    def in_chain(self, side: str) -> Iterable[SentArrival]:
        """The arrivals that may have tuples in the chain."""
        return self._sent[side]

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        self._counts[side] += len(tuples)
        self._stamps.push(side, tuples, ranks, frontier)

    def advance(self, frontier: Frontier) -> None:
        self._stamps.advance(frontier)
        self._unheard = dict.fromkeys(
            SIDES, self._tuning.unheard
        )  # otherwise no arrival may report it for a long time

    @property
    def idle(self) -> bool:
        """Whether the chain has received all known tuples and every result so far is handed out. Reads the marks if
        nodes have rung, so that tuples expire and promises advance even while nothing arrives and nothing matches."""
        if self._collector.ready or not self._is_fed:
            return False
        seen = self._rung
        if seen != self._heard:
            marks = self._marks.by_side()
            if any(node.outbox.rows for node in self.nodes):  # read after the marks
                return False
            self.settle(marks)
            self._heard = seen
        return not self._collector.ready

    @property
    def _is_fed(self) -> bool:
        """Whether the chain has received all known tuples but those that await more, and has finished them if the
        streams have ended."""
        if (self._stamps.ready and not self.awaits_more()) or self._executor.failed:
            return False
        if any(map(self._owes, SIDES)):
            return False
        return not (self._stamps.ended and any(self._sent.values()))

    @property
    def _rung(self) -> int:
        """Changes with every pair, and with every mark that wakes the driver."""
        return self._bell.read() + self.found.read()

    @property
    def least_result_time(self) -> float:
        return min(self._stamps.low, self.earliest("first_time"))

    def least_unjoined_time(self, side: str) -> float:
        return min(self._stamps.least_waiting_time(side), self.earliest("first_time"))

    def step(self, most: float) -> Matches:
        seen, rung = self._bell.read(), self._rung
        self._executor.check()
        if not self._collector.ready and (rung != self._heard or not self._collector.empty):
            # Otherwise enough results wait to be handed out, or no node has rung, so that none has more.
            marks = self._marks.by_side()
            self._collect()
            self.settle(marks)
            self._heard = rung
        if not self._feed() and not self._collector.ready and not self._is_fed:
            self._executor.wait(seen)
        return self._collector.hand_out(most)

    def clear(self) -> None:
        self._executor.stop()
        self._stamps.clear()
        self._collector.clear()
        for side in SIDES:
            self._sent[side].clear()
            self._counts[side] = 0
            self._told[side] = INT64_MAX
        for node in self.nodes:
            node.clear()

    # The driver

    def _feed(self) -> bool:
        """Send tuples as far as the chain admits them, then expiry notices that are due. Return whether any message
        was sent."""
        sent = False
        if not self._started:
            self._executor.start(self.nodes, self._channels, self._bell)
            self._started = True
        while self._stamps.ready and not self.awaits_more() and all(map(self.lets_in, SIDES)):
            side, tuples, time = self._stamps.take(self._batch)
            self._send_arrival(side, tuples, time)
            sent = True
        for side in SIDES:
            if self._owes(side) and self.lets_progress_in(side):
                number, expired = self.number_after(side, 0), self._stamps.expired(OTHER[side])
                self.send(ExpiryNotice(side, number, expired))
                sent = True
        return sent

    def awaits_more(self) -> bool:
        """Whether tuples that could enter wait for more, to enter together."""
        return False

    def lets_in(self, side: str) -> bool:
        """Whether an arrival may enter the chain."""
        return bool(self._entries[side].has_room)

    def lets_progress_in(self, side: str) -> bool:
        """Whether an expiry notice may enter the chain."""
        return bool(self._entries[side].has_room)

    def _owes(self, side: str) -> bool:
        """Whether the nodes need an expiry notice now, in the direction of `side`."""
        due = self.tells_at_once or self._unheard[side] >= self._tuning.unheard or self._stamps.ended
        return due and self._stamps.expired(OTHER[side]) > self._told[side]

    def _send_arrival(self, side: str, tuples: ProbingTuples, time: int) -> None:
        number, expired = self.number_after(side, len(tuples)), self._stamps.expired(OTHER[side])
        self._unheard[OTHER[side]] += len(tuples)
        places = int(tuples.ts[0]), int(tuples.ts[-1])
        self._sent[side].append(SentArrival(number, len(tuples), least(tuples.id), *places, time))
        self.send(self.make_arrival(side, number, expired, tuples))

    def send(self, message: Message) -> None:
        """Let a message enter the chain."""
        side = message.side
        self._marks.send(side, message.number)
        self._entries[side].put(message)
        self._numbers[side], self._unheard[side] = message.number, 0
        if isinstance(message, ExpiryNotice):
            self._told[side] = message.expired

    # The collector

    def _collect(self) -> None:
        for node in self.nodes:
            while (found := node.outbox.take()) is not None:
                self._collector.add(found)

    def settle(self, marks: Mapping[str, int]) -> None:
        """All results up to the marks have been collected."""
        for side in SIDES:
            sent = self._sent[side]
            while sent and sent[0].number <= marks[side]:
                self.forget(side, sent.popleft())
        if not self._collector.empty:
            self._collector.release(min(self._stamps.place, self.earliest("first_place")))

    def forget(self, side: str, sent: SentArrival) -> None:
        """All nodes have finished an arrival."""
        self._counts[side] -= sent.tuples


def connect(nodes: Sequence[AnyNode], driver: Bell, capacity: int) -> list[Any]:
    """Create the channels of both directions, from the driver through all nodes."""
    channels: list[Any] = []
    for side, way in (("left", nodes), ("right", nodes[::-1])):
        bell, name = driver, "driver"
        for number, node in enumerate(way):
            channel = node.inlet(side, name, capacity, bell)
            if number:
                way[number - 1].outlets[side] = channel
            channels.append(channel)
            bell, name = node.bell, node.name
    return channels
