"""Low-latency handshake join: tuples rush past all nodes, and rest as copies on one (Roy, Teubner & Gemulla 2014).

Left tuples travel through a chain of nodes from left to right, right tuples from right to left. Each is forwarded
on arrival (*expedited*) and stored on its home node only (section 4.1). Where two tuples cross between nodes
`m - 1` and `m`, or do not cross because one was through before the other came, their pair is evaluated once
(section 4.2.3, table 1):

    left tuple   right tuple    evaluated
    fresh        fresh          at m, against the forwarded right tuples that are not yet acknowledged
    fresh        stored         at the right tuple's home
    stored       fresh          at m, as above
    stored       stored         at the right tuple's home
    came later   through        at the right tuple's home
    through      came later     at the left tuple's home

A *stored* tuple has passed its home. Two things keep the rows apart. A right tuple stays *unacknowledged* on the
node that forwarded it, while it is fresh, until the next node has taken it. A left tuple's copy is *in
expedition*, and hidden from right tuples, until the tuple has reached the right end: `_in_expedition` lies behind the
window, and the expedition's end moves the boundary between them, the paper's pointer.

Where an index serves an equality, homes follow from its key (`KeyedNode`): the tuples of a pair then have the same
home, and meet nowhere else. Where windows are scanned (`scanning_node.py`), and where a hash index decides by itself
(`hashing_node.py`), nodes are compiled.

Assumed: channels are FIFO, a node handles one message at a time, and stamps decide who is in whose window, so
that expiry only frees memory and may come late.
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
from streamjoin.index.window import WindowIndex
from streamjoin.kernels.concurrent.hashing_node import deal
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.handshake.chain_node import Arrival, ChainNode, Message, Shared, up_to
from streamjoin.topologies.handshake.hashing_node import HashingNode, KeyedStage
from streamjoin.topologies.handshake.pipeline import Pipeline, Sent
from streamjoin.topologies.handshake.scanning_node import ScanningNode, Stage

CREDIT = 8  # arrivals of a side on expedition, at most
MOST_ON_WAY = 16  # messages of a side, beyond which none without tuples is sent
ONE_SOURCE = np.zeros(1, np.int32)


@dataclass(frozen=True)
class Expedition(Arrival):
    """Tuples that rush through the chain, and the home node of each; -1 if it matches nothing, and needs none. `keys`:
    what homes follow from, if they do."""

    home: np.ndarray = field(repr=False)
    keys: np.ndarray | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{super().__str__()}, homes {self.home.tolist()}"


@dataclass(frozen=True)
class Acknowledgement:
    """The left neighbour, who sends it, has taken the right tuples of an arrival."""

    number: int


@dataclass(frozen=True)
class ExpeditionEnd:
    """The left tuples of an arrival, and so of all before it, have reached the right end."""

    number: int


class LowLatencyNode(ChainNode):
    """One node of the chain: its part of both windows, and what is between two states."""

    def __init__(self, number: int, shared: Shared):
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
        they have not met this one, and will find it in its home's window."""
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
        """This node is done with a driver's message, once it has dropped what that lets expire."""
        self.windows[OTHER[message.side]].expire(up_to(message.expired))
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
    """A node for homes by key. Both tuples of a pair pass their one home, and whichever comes second finds the other
    there: no copies, acknowledgements or expeditions are needed, and a probe asks one index of all."""

    def _meet_at_home(self, arrival: Expedition) -> Iterator[None]:
        self.send(arrival.side, arrival)
        at_home = np.flatnonzero(arrival.home == self.number)
        if len(at_home):
            own = arrival.tuples.pick(at_home)
            yield from self.match(self.windows[OTHER[arrival.side]], arrival.side, own)
            self.windows[arrival.side].insert(own.kept(slice(None)), ONE_SOURCE)

    _receive_left = _receive_right = _meet_at_home


class Key(NamedTuple):
    """What homes follow from: a band of the left window's program that is an equality."""

    program: WindowProgram
    band: int

    def rehearse(self) -> None:
        """Compile now what would else be compiled when tuples come."""
        none = np.empty(0, self.program.band_dtype(self.band))
        deal(none, none, np.empty(0, np.bool_), 1, np.empty(0, np.int64))
        if self.band == COMPOSITE:
            combined([none])

    def of(self, side: str, tuples: ProbingTuples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The key of each tuple, twice: a tuple with two different ones, or for which the last array is false, matches
        nothing."""
        if side == "left":
            keys = self.program.key_of_band(tuples.stored, self.band)
            assert tuples.stored.known is not None
            return keys, keys, tuples.stored.known
        return *self.program.bounds_of_band(tuples.probing, self.band), tuples.probing.known


class LowLatencyHandshake(Pipeline[LowLatencyNode | ScanningNode | HashingNode]):
    """The topology. Home nodes come in turns, so that all nodes hold and compare the same, or by an index's key."""

    def __init__(self, *given: Any, credit: int = CREDIT, **options: Any):
        # Told of every one, the driver would be woken for each, only to send one more and sleep again.
        self._credit, self.few_on_way = credit, credit // 2
        self._key: Key | None = None
        super().__init__(*given, **options)
        self._first_home = dict.fromkeys(SIDES, 0)
        self._turns = np.arange(self._batch + self.workers) % self.workers
        self._stored: dict[str, deque[Sent]] = {side: deque() for side in SIDES}  # done, but for expiry
        # Number and `expired` of the messages that are on their way.
        self._bounds: dict[str, deque[tuple[int, int]]] = {side: deque() for side in SIDES}

    def make_nodes(self, shared: Shared) -> list[LowLatencyNode | ScanningNode | HashingNode]:
        """Nodes of the planned kind."""
        plan, numbers = shared.plan.nodes, range(shared.count)
        waiting = 2 * (MOST_ON_WAY + self._credit + 1)
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
        return super().lets_progress_in(side) and self._numbers[side] - self._marks[side] < MOST_ON_WAY

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

    def in_chain(self, side: str) -> Iterable[Sent]:
        return chain(self._stored[side], self._sent[side])

    def earliest(self, what: str) -> float:
        """Pairs are found by tuples on expedition. Where sources are not in step, these may be earlier than what was
        sent before them."""
        return min(map(attrgetter(what), chain(*self._sent.values())), default=math.inf)

    def send(self, message: Message) -> None:
        super().send(message)
        side, other = message.side, OTHER[message.side]
        self._told[side] = message.expired  # by arrivals, too
        if isinstance(message, Arrival):  # what has expired before it came has to be said again
            self._told[other] = min(self._told[other], int(message.tuples.ts[0]))
        self._bounds[side].append((message.number, message.expired))

    def forget(self, side: str, sent: Sent) -> None:
        """The tuples rest on their home nodes until they expire."""
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
