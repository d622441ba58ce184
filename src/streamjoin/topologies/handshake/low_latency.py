"""Low-latency handshake join: tuples rush past all nodes, and one node stores a copy (Roy, Teubner & Gemulla 2014).

Left tuples travel through a chain of nodes from left to right, right tuples from right to left. Each node forwards a
tuple on arrival (*expedites* it), and only its home node stores it (section 4.1). Two tuples may cross between nodes
`m - 1` and `m`, or not cross because one had passed before the other came. Their pair is evaluated once (section
4.2.3, table 1):

    left tuple   right tuple    evaluated
    fresh        fresh          at m, against the forwarded right tuples that are not yet acknowledged
    fresh        stored         at the right tuple's home
    stored       fresh          at m, as above
    stored       stored         at the right tuple's home
    came later   through        at the right tuple's home
    through      came later     at the left tuple's home

A *stored* tuple has passed its home. Two rules keep the rows apart. A right tuple that is still fresh stays
*unacknowledged* on the node that forwarded it, until the next node has taken it. The copy of a left tuple is *in
expedition*, and hidden from right tuples, until the tuple has reached the right end. `_in_expedition` holds such
copies behind the window; the end of the expedition moves the boundary between them, which is the paper's pointer.

Where an index serves an equality, homes follow from its key (`KeyedNode`): both tuples of a pair have the same home,
and meet only there. Nodes are compiled where windows are scanned (`scanning_node.py`), and where a hash index alone
decides the predicate (`hashing_node.py`).

Assumed: channels are FIFO, a node handles one message at a time, and stamps decide which tuples are in which window.
So expiry only frees memory and may come late.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from streamjoin.codegen.programs import COMPOSITE, WindowProgram, combined
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.index.window import ONE_SOURCE, WindowIndex
from streamjoin.kernels.concurrent.hashing_node import deal
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.handshake.chain_node import (
    Acknowledgement,
    Arrival,
    ChainContext,
    ChainNode,
    Message,
)
from streamjoin.topologies.handshake.hashing_node import HashingNode, KeyedStage
from streamjoin.topologies.handshake.pipeline import Pipeline, SentArrival
from streamjoin.topologies.handshake.scanning_node import ScanningNode, Stage
from streamjoin.topologies.protocol import Task


@dataclass(frozen=True)
class Expedition(Arrival):
    """Tuples that rush through the chain, and the home node of each: -1 for a tuple that matches nothing and needs
    none. `keys` are the values that homes follow from, if they do."""

    home: np.ndarray = field(repr=False)
    keys: np.ndarray | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{super().__str__()}, homes {self.home.tolist()}"


@dataclass(frozen=True)
class ExpeditionEnd:
    """The left tuples of an arrival, and of all arrivals before it, have reached the right end."""

    number: int


class LowLatencyNode(ChainNode):
    """One node of the chain: its part of both windows, and the tuples between two states."""

    def __init__(self, number: int, shared: ChainContext):
        super().__init__(number, shared)
        self._in_expedition: deque[tuple[int, Tuples]] = deque()
        self._unacknowledged: deque[tuple[int, Tuples]] = deque()
        self._forwarded = shared.make_window("right")  # the tuples of `_unacknowledged`, if `_current`
        self._current = True

    @property
    def comparisons(self) -> int:
        return super().comparisons + self._forwarded.comparisons

    def receive(self, side: str, message: Any) -> Iterator[None]:
        if isinstance(message, Expedition):
            yield from (self._receive_left if side == "left" else self._receive_right)(message)
            self._end(message)
        elif isinstance(message, Acknowledgement):
            self._acknowledged(message.number)
        elif isinstance(message, ExpeditionEnd):
            self._expedition_ended(message)
        else:
            self.send(side, message)
            self._end(message)

    def _receive_left(self, arrival: Expedition) -> Iterator[None]:
        """Figure 13. At the right end the expedition ends at once, ahead of the right tuples that wait at the entry:
        those have not met this tuple, and will find it in the window of its home."""
        self.send(arrival.side, arrival)
        yield from self.match(self.windows["right"], "left", arrival.tuples)
        yield from self.match(self._not_acknowledged(), "left", arrival.tuples)
        at_home = np.flatnonzero(arrival.home == self.number)
        if len(at_home):
            self._in_expedition.append((arrival.number, arrival.tuples.kept(at_home)))
        if self.is_end["left"]:
            self._expedition_ended(ExpeditionEnd(arrival.number))

    def _receive_right(self, arrival: Expedition) -> Iterator[None]:
        """Figure 14. The window holds only left tuples that have ended their expedition."""
        self.send(arrival.side, arrival)
        yield from self.match(self.windows["left"], "right", arrival.tuples)
        fresh = np.flatnonzero(arrival.home < self.number)
        if len(fresh):
            self._unacknowledged.append((arrival.number, arrival.tuples.kept(fresh)))
            self._current = False
        at_home = np.flatnonzero(arrival.home == self.number)
        if len(at_home):
            self.windows["right"].insert(arrival.tuples.kept(at_home), ONE_SOURCE)
        self.send("left", Acknowledgement(arrival.number))

    def _end(self, message: Message) -> None:
        """Drop tuples that a driver's message lets expire, then report the message as finished."""
        self.windows[OTHER[message.side]].expire(message.expired)
        self.mark(message.side, message.number)

    def _not_acknowledged(self) -> WindowIndex:
        """The forwarded right tuples that the left neighbour may not have seen: the paper's IWS."""
        if not self._current:
            self._forwarded.clear()
            for _, tuples in self._unacknowledged:
                self._forwarded.insert(tuples, ONE_SOURCE)
            self._current = True
        return self._forwarded

    def _acknowledged(self, number: int) -> None:
        while self._unacknowledged and self._unacknowledged[0][0] <= number:
            self._unacknowledged.popleft()
            self._current = False

    def _expedition_ended(self, end: ExpeditionEnd) -> None:
        self.send("right", end)
        while self._in_expedition and self._in_expedition[0][0] <= end.number:
            self.windows["left"].insert(self._in_expedition.popleft()[1], ONE_SOURCE)

    def clear(self) -> None:
        super().clear()
        self._in_expedition.clear()
        self._unacknowledged.clear()
        self._forwarded.clear()


class KeyedNode(LowLatencyNode):
    """A node for homes that follow from a key. Both tuples of a pair pass their common home, and the second one finds
    the first there. So no copies, acknowledgements or expeditions are needed, and each probe asks a single index."""

    def _meet_at_home(self, arrival: Expedition) -> Iterator[None]:
        self.send(arrival.side, arrival)
        at_home = np.flatnonzero(arrival.home == self.number)
        if len(at_home):
            own = arrival.tuples.pick(at_home)
            yield from self.match(self.windows[OTHER[arrival.side]], arrival.side, own)
            self.windows[arrival.side].insert(own.kept(slice(None)), ONE_SOURCE)

    _receive_left = _receive_right = _meet_at_home


class Key(NamedTuple):
    """The key that homes follow from: a band of the left window's program that is an equality."""

    program: WindowProgram
    band: int

    def rehearse(self) -> None:
        """Compile code now that would otherwise be compiled when tuples arrive."""
        none = np.empty(0, self.program.band_dtype(self.band))
        deal(none, none, np.empty(0, np.bool_), 1, np.empty(0, np.int64))
        if self.band == COMPOSITE:
            combined([none])

    def of(self, side: str, tuples: ProbingTuples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The key of each tuple, twice. A tuple matches nothing if its two keys differ, or if the last array is false
        for it."""
        if side == "left":
            keys = self.program.key_of_band(tuples.stored, self.band)
            assert tuples.stored.known is not None
            return keys, keys, tuples.stored.known
        return *self.program.bounds_of_band(tuples.probing, self.band), tuples.probing.known


class LowLatencyHandshake(Pipeline[LowLatencyNode | ScanningNode | HashingNode]):
    """The topology. Home nodes take turns, so that all nodes hold and compare equally much, or follow from an index's
    key."""

    def __init__(self, task: Task, *given: Any, credit: int | None = None, **options: Any):
        self._credit = credit or task.plan.tuning.handshake.credit
        # If every mark woke the driver, it would wake for each one, only to send one message and sleep again.
        self.few_on_way = self._credit // 2
        self._key: Key | None = None
        super().__init__(task, *given, **options)
        self._first_home = dict.fromkeys(SIDES, 0)
        self._turns = np.arange(self._batch + self.workers) % self.workers
        self._stored: dict[str, deque[SentArrival]] = {
            side: deque() for side in SIDES
        }  # finished, except for expiry
        # Number and `expired` of the messages in the chain.
        self._bounds: dict[str, deque[tuple[int, int]]] = {side: deque() for side in SIDES}

    def make_nodes(self, shared: ChainContext) -> list[LowLatencyNode | ScanningNode | HashingNode]:
        """Create nodes of the planned kind."""
        plan, numbers = shared.plan.nodes, range(shared.count)
        waiting = 2 * (shared.plan.tuning.handshake.most_on_way + self._credit + 1)
        if plan.kind == "scanning":
            stages = [Stage(self._credit, self._batch) for _ in SIDES]
            return [ScanningNode(number, shared, stages, waiting) for number in numbers]
        if plan.band is None:
            return [LowLatencyNode(number, shared) for number in numbers]
        self._key = key = Key(shared.plan.programs["left"], plan.band)
        key.rehearse()
        if plan.kind == "hashing":
            dtype = key.program.band_dtype(key.band)
            keyed = [KeyedStage(self._credit, self._batch, shared.count, dtype) for _ in SIDES]
            return [HashingNode(number, shared, keyed, waiting) for number in numbers]
        return [KeyedNode(number, shared) for number in numbers]

    def lets_in(self, side: str) -> bool:
        return len(self._sent[side]) < self._credit and super().lets_in(side)

    def lets_progress_in(self, side: str) -> bool:
        on_way = self._numbers[side] - self._marks[side]
        return super().lets_progress_in(side) and on_way < self._tuning.most_on_way

    def make_arrival(self, side: str, number: int, expired: int, tuples: ProbingTuples) -> Arrival:
        if self._key is None:
            return Expedition(side, number, expired, tuples, self._in_turns(side, len(tuples)))
        keys, others, known = self._key.of(side, tuples)
        home = np.empty(len(tuples), np.int64)
        deal(keys, others, known, self.workers, home)
        return Expedition(side, number, expired, tuples, home, keys)

    def _in_turns(self, side: str, count: int) -> np.ndarray:
        first = self._first_home[side]
        self._first_home[side] = (first + count) % self.workers
        return self._turns[first : first + count]

    def in_chain(self, side: str) -> Iterable[SentArrival]:
        return chain(self._stored[side], self._sent[side])

    def earliest(self, what: str) -> float:
        """The least place or event time that a later match can have. Tuples on expedition find the pairs. If sources
        are out of step, such tuples may be earlier than tuples sent before them."""
        return min(map(attrgetter(what), chain(*self._sent.values())), default=math.inf)

    def send(self, message: Message) -> None:
        super().send(message)
        side, other = message.side, OTHER[message.side]
        self._told[side] = message.expired  # arrivals report expiry, too
        if isinstance(message, Arrival):  # repeat the report for tuples that had expired before they arrived
            self._told[other] = min(self._told[other], int(message.tuples.ts[0]))
        self._bounds[side].append((message.number, message.expired))

    def forget(self, side: str, sent: SentArrival) -> None:
        """Nothing to do: the tuples rest on their home nodes until they expire."""
        self._stored[side].append(sent)

    def settle(self, marks: Mapping[str, int]) -> None:
        super().settle(marks)
        for side, bounds in self._bounds.items():
            stored = self._stored[OTHER[side]]
            while bounds and bounds[0][0] <= marks[side]:
                _, expired = bounds.popleft()
                while stored and stored[0].last_place < expired:
                    self._counts[OTHER[side]] -= stored.popleft().tuples

    def clear(self) -> None:
        super().clear()
        for side in SIDES:
            self._stored[side].clear()
            self._bounds[side].clear()
