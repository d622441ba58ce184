"""Low-latency handshake join: every row of the paper's case table is reached and right, and each part of the protocol
is needed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import (
    SCHEMA,
    check,
    check_interleaving,
    numbers,
    open_with,
    spec_of,
)
from streamjoin.index.tuples import ProbingTuples
from streamjoin.kernels.concurrent import queue
from streamjoin.kernels.concurrent import scanning_node as kernel
from streamjoin.plan.tuning import HandshakeTuning, Tuning
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.handshake.chain_node import Acknowledgement
from streamjoin.topologies.handshake.low_latency import Expedition, ExpeditionEnd, KeyedNode, LowLatencyNode
from streamjoin.topologies.handshake.scanning_node import ScanningNode, Stage
from streamjoin.topologies.runtime.simulator import Simulator, from_seed

TOPOLOGY = "low_latency_handshake"
KINDS = {"interpreted": LowLatencyNode, "compiled": ScanningNode}
both_kinds = pytest.mark.parametrize("kind", list(KINDS))
ROWS = [
    "fresh, fresh",
    "fresh, stored",
    "stored, fresh",
    "stored, stored",
    "right through before left came",
    "left through before right came",
]


class Taken(NamedTuple):
    """An arrival that a node has taken: ids and homes of its tuples."""

    node: int
    side: str
    number: int
    ids: list[int]
    homes: list[int]


def watched(taken: list[Taken]) -> dict[str, Any]:
    """Nodes of both kinds that write down what they take."""

    class Interpreted(LowLatencyNode):
        def receive(self, side: str, message: Any) -> Iterator[None]:
            if isinstance(message, Expedition):
                ids, homes = message.tuples.id.tolist(), message.home.tolist()
                taken.append(Taken(self.number, side, message.number, ids, homes))
            return super().receive(side, message)

    class Compiled(ScanningNode):
        def step(self, most: int) -> bool:
            busy = False
            for _ in range(max(most, 1)):
                before = self._words[: kernel.NEXT_STEP].tolist()
                busy |= super().step(min(most, 1))
                if (
                    self._words[: kernel.NEXT_STEP].tolist() != before
                    and self._words[kernel.MESSAGE_KIND] == kernel.ARRIVAL
                ):
                    side, first = (
                        int(self._words[kernel.MESSAGE_SIDE]),
                        int(self._words[kernel.MESSAGE_FIRST]),
                    )
                    here = slice(first, first + int(self._words[kernel.MESSAGE_COUNT]))
                    ids, homes = (
                        self._stages[side].rows[c, here].tolist() for c in (kernel.ROW_ID, kernel.ROW_HOME)
                    )
                    taken.append(
                        Taken(self.number, SIDES[side], int(self._words[kernel.MESSAGE_NUMBER]), ids, homes)
                    )
            return busy

    return {"interpreted": Interpreted, "compiled": Compiled}


def case(taken: list[Taken], count: int, left: tuple[int, int], right: tuple[int, int]) -> str:
    """The row of table 1 for two tuples, each an arrival's number and a home, from who was taken when on which node."""
    times = {(each.node, each.side, each.number): at for at, each in enumerate(taken)}
    crossing = sum(times[k, "left", left[0]] < times[k, "right", right[0]] for k in range(count))
    if crossing in (0, count):
        return "left through before right came" if crossing else "right through before left came"
    states = "fresh" if left[1] >= crossing else "stored", "fresh" if right[1] < crossing else "stored"
    return ", ".join(states)


def cases_of(seed: int, kind: str) -> Counter[str]:
    """Run a join under the simulator, compare it with the oracle, and tell how each of its result pairs met."""
    taken: list[Taken] = []
    node = watched(taken)[kind]
    rows = pa.table({"ts": [0] * 6, "x": [0] * 6, "n": range(6)}, schema=SCHEMA)
    spec, simulator, count = spec_of(sj.TimeWindow(1)), Simulator(from_seed(seed)), 2 + seed % 3
    join = open_with(TOPOLOGY, spec, node, workers=count, executor=simulator, batch=2, capacity=2)
    check(join, spec, rows, rows, "any", seed, simulator)
    homes = {
        side: {
            i: (each.number, home)
            for each in taken
            if each.side == side
            for i, home in zip(each.ids, each.homes, strict=True)
        }
        for side in ("left", "right")
    }
    pairs = [(left, right) for left in homes["left"].values() for right in homes["right"].values()]
    assert len(pairs) == 36
    return Counter(case(taken, count, left, right) for left, right in pairs)


@both_kinds
def test_every_row_of_the_case_table_is_reached(kind):
    counts: Counter[str] = sum((cases_of(seed, kind) for seed in range(40)), Counter())
    assert set(counts) == set(ROWS)
    assert min(counts.values()) >= 20, counts


# ---- one meeting, step by step


class Meeting:
    """One left and one right tuple in a chain of three nodes that step when they are told to."""

    def __init__(self, kind: str, left_home: int, right_home: int):
        homes = {"left": left_home, "right": right_home}
        self.simulator = Simulator(from_seed(0))
        spec = spec_of(sj.TimeWindow(1))
        self.join = open_with(TOPOLOGY, spec, KINDS[kind], workers=3, executor=self.simulator)
        self.nodes = self.join._topology.nodes
        self.join._topology.make_arrival = lambda side, number, expired, tuples: Expedition(
            side, number, expired, tuples, np.full(len(tuples), homes[side])
        )

    def push(self, side: str) -> None:
        self.join.push(side, pa.table({"ts": [0], "x": [0], "n": [0]}, schema=SCHEMA))

    def step(self, *numbers: int) -> None:
        for number in numbers:
            self.nodes[number].step(1)

    @property
    def found_by(self) -> list[int]:
        """The nodes that have found the pair."""
        return [node.number for node in self.nodes for _ in range(node.outbox.rows)]


@pytest.mark.parametrize(
    ("homes", "node"),
    [
        ((2, 0), 1),  # fresh, fresh: node 1 still has the right tuple, not acknowledged
        ((0, 0), 1),  # stored, fresh: the same
        ((2, 2), 2),  # fresh, stored: at the right tuple's home
        ((0, 2), 2),  # stored, stored: there, too
    ],
)
@both_kinds
def test_two_tuples_that_cross_between_nodes_are_compared_once(kind, homes, node):
    meeting = Meeting(kind, *homes)
    meeting.push("left")
    meeting.push("right")
    meeting.step(0, 2, 1)  # left is on its way from node 0 to 1, right from 1 to 0
    # On the way of left: the tuple, the acknowledgement of right.
    assert [len(n.inlets["left"]) for n in meeting.nodes] == [0, 1, 1]
    assert meeting.found_by == []
    meeting.simulator.run(100)
    assert meeting.found_by == [node]
    assert numbers([meeting.join.finish()]) == [(0, 0)]


def hidden(node: Any) -> int:
    """Left tuples that rest on a node and are on expedition."""
    if isinstance(node, LowLatencyNode):
        return len(node._in_expedition)
    return int(
        node._words[kernel.STORE_END + kernel.LEFT_SIDE]
        - node._words[kernel.STORE_VISIBLE + kernel.LEFT_SIDE]
    )


@both_kinds
def test_a_right_tuple_that_comes_when_left_is_through_finds_the_copy(kind):
    meeting = Meeting(kind, left_home=0, right_home=2)
    meeting.push("left")
    meeting.step(0, 1, 2)
    # It has seen all nodes. Its copy is hidden until node 0 has heard of that.
    assert (len(meeting.nodes[0].windows["left"]), hidden(meeting.nodes[0])) == (0, 1)
    meeting.simulator.run(100)
    assert (len(meeting.nodes[0].windows["left"]), hidden(meeting.nodes[0])) == (1, 0)
    meeting.push("right")
    meeting.simulator.run(100)
    assert meeting.found_by == [0]
    meeting.join.close()


def take_next_from(node: Any, side: str) -> None:
    turn = 1 - SIDES.index(side)
    if isinstance(node, LowLatencyNode):
        node._turn = turn
    else:
        node._words[kernel.LAST_TAKEN_SIDE] = turn


@both_kinds
def test_a_right_tuple_behind_the_end_of_the_expedition_at_the_entry_is_not_missed(kind):
    meeting = Meeting(kind, left_home=1, right_home=0)
    meeting.push("left")
    meeting.step(0, 1)
    meeting.push("right")  # waits at node 2 while left passes there
    take_next_from(meeting.nodes[2], "left")
    meeting.step(2)
    assert len(meeting.nodes[2].inlets["right"]) > 0
    meeting.simulator.run(100)
    assert meeting.found_by == [1]
    meeting.join.close()


# ---- each part is needed


class WithoutAcknowledgements(LowLatencyNode):
    def _acknowledged(self, number: int) -> None:
        pass


class WithoutCopies(LowLatencyNode):
    """Fresh right tuples are forgotten when they are sent on."""

    def _acknowledged(self, number: int) -> None:
        pass

    def _not_acknowledged(self) -> Any:
        self._unacknowledged.clear()
        self._current = False
        return super()._not_acknowledged()


class WithoutExpeditionFlag(LowLatencyNode):
    """Left tuples can be found at home as soon as they are stored."""

    def _receive_left(self, arrival: Expedition) -> Iterator[None]:
        yield from super()._receive_left(arrival)
        while self._in_expedition:
            self.windows["left"].insert(self._in_expedition.popleft()[1], arrival.home[:1] * 0)


class WithLateExpeditionEnd(LowLatencyNode):
    """The end of an expedition waits its turn behind the right tuples at the entry, as figure 13 can be read."""

    def __init__(self, number: int, shared: Any):
        super().__init__(number, shared)
        self._late: deque[ExpeditionEnd] = deque()

    def _expedition_ended(self, end: ExpeditionEnd) -> None:
        if self.is_end["left"]:
            self._late.append(end)
        else:
            super()._expedition_ended(end)

    def forward(self) -> bool:
        if not self._late or len(self.inlets["right"]):
            return False
        super()._expedition_ended(self._late.popleft())
        return True


class WithEarlyAcknowledgements(LowLatencyNode):
    """Right tuples are acknowledged before they are taken, one arrival ahead."""

    def _receive_right(self, arrival: Expedition) -> Iterator[None]:
        self.send("left", Acknowledgement(arrival.number + 1))
        return super()._receive_right(arrival)


class WithEarlyMarks(LowLatencyNode):
    """A node reports tuples as finished as soon as they come."""

    def receive(self, side: str, message: Any) -> Iterator[None]:
        if isinstance(message, Expedition):
            self.mark(side, message.number)
        return super().receive(side, message)


class Changed(ScanningNode):
    """Compiled nodes that are changed before and after every message."""

    def step(self, most: int) -> bool:
        busy = False
        for _ in range(max(most, 1)):
            ring = self.inlets["left"].ring
            for at in range(queue.RING_DATA, len(ring), kernel.MESSAGE_WORDS):
                if ring[at + kernel.MESSAGE_KIND] == kernel.ACKNOWLEDGEMENT:
                    ring[at + kernel.MESSAGE_NUMBER] = self.acknowledged(
                        int(ring[at + kernel.MESSAGE_NUMBER])
                    )
            busy |= super().step(min(most, 1))
            self.after(self._words)
        return busy

    def acknowledged(self, number: int) -> int:
        return number

    def after(self, words: Any) -> None:
        pass


class CompiledWithoutAcknowledgements(Changed):
    def acknowledged(self, number: int) -> int:
        return 0


class CompiledWithEarlyAcknowledgements(Changed):
    def acknowledged(self, number: int) -> int:
        return 10**6


class CompiledWithoutCopies(Changed):
    def after(self, words: Any) -> None:
        words[kernel.STORE_BEGIN + kernel.FORWARDED_RIGHT] = words[kernel.STORE_END + kernel.FORWARDED_RIGHT]


class CompiledWithoutExpeditionFlag(Changed):
    def after(self, words: Any) -> None:
        words[kernel.STORE_VISIBLE + kernel.LEFT_SIDE] = words[kernel.STORE_END + kernel.LEFT_SIDE]


class CompiledWithEarlyMarks(Changed):
    def after(self, words: Any) -> None:
        if words[kernel.MESSAGE_KIND] == kernel.ARRIVAL:
            self._shared.marks.set(
                self.number, SIDES[words[kernel.MESSAGE_SIDE]], int(words[kernel.MESSAGE_NUMBER]) + 1
            )


@pytest.mark.parametrize(
    "node",
    [
        CompiledWithoutAcknowledgements,
        CompiledWithEarlyAcknowledgements,
        CompiledWithoutCopies,
        CompiledWithoutExpeditionFlag,
        CompiledWithEarlyMarks,
        WithoutAcknowledgements,
        WithoutCopies,
        WithoutExpeditionFlag,
        WithLateExpeditionEnd,
        WithEarlyAcknowledgements,
        WithEarlyMarks,
    ],
)
def test_without_a_part_of_the_protocol_results_are_wrong(node):
    def search() -> None:
        for seed in range(300):
            check_interleaving(TOPOLOGY, seed, node, index="scan")

    with pytest.raises(AssertionError):
        search()


# ---- what compiled nodes share with the driver


def test_staged_columns_appear_all_at_once_and_rows_take_turns():
    spec, taken = spec_of(sj.TimeWindow(1)), []
    with open_with(TOPOLOGY, spec, executor=Simulator(from_seed(1))) as join:
        join._topology.push = lambda side, tuples, ranks, frontier: taken.append(tuples)
        join.push("left", pa.table({"ts": [1, 2], "x": [3, 4], "n": [0, 1]}, schema=SCHEMA))
    (plain,) = taken
    tuples = replace(plain, since=plain.ts)
    stage, seen = Stage(arrivals=2, most=3), []
    firsts = []
    for number in range(3):
        seen.append((stage.stored, stage.probing))
        firsts.append(stage.write(Expedition("left", number, 0, tuples, tuples.id)))
    assert firsts == [0, 3, 0]
    assert seen[0][0].arrays() == () and seen[0][1] is None
    given = tuples.stored, tuples.probing
    assert [len(columns.arrays()) for columns in seen[1] if columns] == [
        len(columns.arrays()) for columns in given
    ]
    assert all(a is b for a, b in zip(stage.stored.arrays(), seen[1][0].arrays(), strict=True))
    assert stage.rows[kernel.ROW_ID, :5].tolist() == [0, 1, 0, 0, 1]


# ---- homes by key


def test_tuples_of_one_key_have_one_home_and_only_its_index_is_asked():
    rows = pa.table({"ts": [0] * 60, "x": [n % 6 for n in range(60)], "n": range(60)}, schema=SCHEMA)
    spec, simulator = spec_of(sj.TimeWindow(1)), Simulator(from_seed(5))
    options: dict[str, Any] = {"index": "hash", "workers": 3, "batch": 7, "max_results": 5000}
    with open_with(TOPOLOGY, spec, executor=simulator, **options) as join:
        join.push("left", rows)
        join.push("right", rows)
        while simulator.run(1):
            pass
        homes: dict[int, int] = {}
        for node in join._topology.nodes:
            keys = [set(rows["x"].take(node.windows[side].held_ids).to_pylist()) for side in SIDES]
            assert keys[0] == keys[1]
            homes |= dict.fromkeys(keys[0], node.number)
        assert sorted(homes) == list(range(6)) and len(set(homes.values())) > 1
        assert sum(join.stats().worker_comparisons) == 600  # candidates: no node finds what another has
        assert sorted(numbers([join.finish()])) == sorted(numbers([sj.oracle.join(rows, rows, spec)]))


def test_pairs_are_lost_if_homes_do_not_follow_from_the_key():
    """A chain that is given its nodes deals homes in turn."""

    def search() -> None:
        for seed in range(300):
            check_interleaving(TOPOLOGY, seed, KeyedNode)

    with pytest.raises(AssertionError):
        search()


# ---- what is kept


def test_results_that_wait_to_be_sorted_keep_their_payload():
    """Right 1 has met left 0, which expires. The pair waits: left 1 comes before right 1 and is not through."""
    simulator, options = Simulator(from_seed(0)), {"order": "timestamp", "workers": 2}
    with open_with(TOPOLOGY, spec_of(sj.TimeWindow(1)), executor=simulator, **options) as join:
        sources = {side: join.source(side, "") for side in ("left", "right")}
        sources["left"].push(pa.table({"ts": [0], "x": [0], "n": [0]}, schema=SCHEMA))
        sources["right"].advance(1)
        simulator.run(100)
        for side in ("left", "right"):
            sources[side].push(pa.table({"ts": [1], "x": [0], "n": [1]}, schema=SCHEMA))
        for source in sources.values():
            source.advance(100)
        for node in reversed(join._topology.nodes):
            while len(node.inlets["right"]):
                take_next_from(node, "right")
                node.step(1)
        assert join.poll() == []
        assert join._topology.windows["left"]._parts[0].held_ids.tolist() == []
        assert join._topology.oldest_id("left") == 0
        assert numbers([join.finish()]) == [(0, 1), (1, 1)]


def copies(node: Any) -> int:
    """Right tuples that are forwarded and not acknowledged."""
    if isinstance(node, LowLatencyNode):
        return len(node._unacknowledged)
    return int(
        node._words[kernel.STORE_END + kernel.FORWARDED_RIGHT]
        - node._words[kernel.STORE_BEGIN + kernel.FORWARDED_RIGHT]
    )


@both_kinds
def test_tuples_rest_on_their_home_nodes_in_equal_numbers(kind):
    spec = spec_of(sj.TimeWindow(1000))
    rows = pa.table({"ts": range(60), "x": [0] * 60, "n": range(60)}, schema=SCHEMA)
    simulator = Simulator(from_seed(4))
    options = {"workers": 4, "batch": 7, "max_results": 5000}
    with open_with(TOPOLOGY, spec, KINDS[kind], executor=simulator, **options) as join:
        join.push("left", rows)
        join.push("right", rows)
        while simulator.run(1):
            join.poll()
        for node in join._topology.nodes:
            assert {side: len(window) for side, window in node.windows.items()} == {"left": 15, "right": 15}
            assert not hidden(node)
            assert copies(node) == 0


@pytest.mark.parametrize("order", ["any", "punctuated"])
@pytest.mark.parametrize("ended", [True, False], ids=["right has ended", "right is far ahead"])
def test_tuples_that_can_meet_nothing_any_more_do_not_stay(ended, order):
    """All of left had expired before it came."""
    simulator, spec = Simulator(from_seed(3)), spec_of(sj.TimeWindow(10))
    tuning = Tuning(handshake=HandshakeTuning(unheard=8))
    with open_with(TOPOLOGY, spec, executor=simulator, order=order, tuning=tuning) as join:
        sources = {side: join.source(side, "") for side in SIDES}
        if ended:
            join.end("right")
        else:
            sources["right"].advance(10**6)
        for ts in range(0, 400, 4):
            times = range(ts, ts + 4)
            sources["left"].push(pa.table({"ts": times, "x": [0] * 4, "n": times}, schema=SCHEMA))
            while simulator.run(1):
                join.poll()
        stats = join.stats()
        assert stats.left_window <= 16
        assert stats.payload_rows <= 32


def test_resting_tuples_keep_no_probing_columns():
    spec = spec_of(sj.TimeWindow(1))
    with open_with(TOPOLOGY, spec, executor=Simulator(from_seed(1))) as join:
        taken = []
        join._topology.push = lambda side, tuples, ranks, frontier: taken.append(tuples)
        join.push("left", pa.table({"ts": [1, 2], "x": [3, 4], "n": [0, 1]}, schema=SCHEMA))
        (tuples,) = taken
    kept = tuples.kept(tuples.id[1:])
    assert (kept.id.tolist(), kept.ts.tolist()) == ([1], [2]) and not isinstance(kept, ProbingTuples)
    assert len(kept.stored.arrays()) == len(tuples.stored.arrays())
