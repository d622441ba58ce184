"""Compiled nodes of handshake join: blocks of rows that move by a border, what a hop costs however long the chain is,
and each part of the protocol is needed."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import (
    BAND,
    EQUAL,
    ORDERS,
    SCHEMA,
    WINDOWS,
    check,
    check_interleaving,
    numbers,
    open_with,
    small_tables,
    spec_of,
    table,
)
from streamjoin.kernels.concurrent import flowing_node as kernel
from streamjoin.kernels.concurrent import queue
from streamjoin.kernels.concurrent import scanning_node as scanning
from streamjoin.plan.tuning import HandshakeTuning, Tuning
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.handshake import handshake as handshake_join
from streamjoin.topologies.handshake.chain_node import Arrival, Marks
from streamjoin.topologies.handshake.flowing_node import FlowingNode
from streamjoin.topologies.handshake.handshake import HandshakeNode
from streamjoin.topologies.handshake.scanning_node import ScanningNode
from streamjoin.topologies.handshake.track import Track
from streamjoin.topologies.runtime.simulator import Simulator, from_seed

TOPOLOGY: Any = "handshake"
LEFT, RIGHT = scanning.LEFT_SIDE, scanning.RIGHT_SIDE

# Tracks whose memory is full all the time.
TINY = Tuning(handshake=HandshakeTuning(fewest_rows=1))


def rows(*ts: int, x: int = 0) -> pa.Table:
    return pa.table({"ts": ts, "x": [x] * len(ts), "n": range(len(ts))}, schema=SCHEMA)


# ---- results


@pytest.mark.parametrize(
    ("on", "index", "kind"),
    [
        (BAND, "scan", FlowingNode),
        (EQUAL, "scan", FlowingNode),
        (lambda left, right: left.x == right.x, "scan", FlowingNode),
        (EQUAL, "hash", HandshakeNode),
        (BAND, "auto", HandshakeNode),
    ],
    ids=["band", "equality", "function", "hash", "auto"],
)
def test_nodes_are_compiled_where_windows_are_scanned(on, index, kind):
    spec, simulator = spec_of(sj.TimeWindow(3), on), Simulator(from_seed(1))
    left, right = small_tables(3)
    join = open_with(TOPOLOGY, spec, index=index, executor=simulator)
    assert {type(node) for node in join._topology.nodes} == {kind}
    check(join, spec, left, right, "any", 3, simulator)


def test_interleavings_while_tracks_move_to_new_memory():
    for seed in range(40):
        check_interleaving(TOPOLOGY, seed, index="scan", tuning=TINY)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_interleavings_while_tracks_move_to_new_memory(part):
    for seed in range(1000 * part + 30_000, 1000 * part + 31_000):
        check_interleaving(TOPOLOGY, seed, index="scan", tuning=TINY)


def test_nulls_match_nothing_wherever_they_meet():
    left = pa.table({"ts": [0, 1, 2, 3], "x": [1, None, 1, 2], "n": range(4)}, schema=SCHEMA)
    right = pa.table({"ts": [1, 2, 3, 4], "x": [None, 1, 2, None], "n": range(4)}, schema=SCHEMA)
    spec = spec_of(sj.TimeWindow(5), BAND)
    for seed in range(10):
        simulator = Simulator(from_seed(seed))
        join = open_with(TOPOLOGY, spec, FlowingNode, executor=simulator, batch=1 + seed % 2)
        check(join, spec, left, right, "any", seed, simulator)


class Yielding(FlowingNode):
    """A node that lets others run at moments drawn from a seed."""

    def __init__(self, number: int, *given: Any):
        super().__init__(number, *given)
        self._moments = random.Random(number)

    def work(self) -> None:
        seen = self.bell.read()
        time.sleep(self._moments.choice([0, 0, 1e-5]))
        if not self.step(self._moments.randint(1, 3)):
            self.bell.wait(seen)


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_threads_under_stress(workers):
    for seed, kind in enumerate([Yielding, FlowingNode] * 3):
        left, right = small_tables(seed + 100)
        order, window = ORDERS[seed % 3], random.Random(seed).choice(list(WINDOWS.values()))
        options = {"batch": 1 + seed % 3, "capacity": 1 + seed % 2, "order": order, "workers": workers}
        join = open_with(TOPOLOGY, spec_of(window), kind, max_results=5, tuning=TINY, **options)
        check(join, spec_of(window), left, right, order, seed)


# ---- blocks, step by step


class Chain:
    """A chain of nodes that step when they are told to, or in turns of a scheduler."""

    def __init__(self, workers: int, batch: int, window: int = 1_000_000, **options: Any):
        self.simulator = Simulator(from_seed(1))
        given = {"workers": workers, "batch": batch, "executor": self.simulator, "max_results": 10**6}
        self.join = open_with(TOPOLOGY, spec_of(sj.TimeWindow(window)), FlowingNode, **given, **options)
        self.nodes: Any = self.join._topology.nodes
        self.found: list[pa.RecordBatch] = []
        self.sources = {side: self.join.source(side, "") for side in SIDES}

    def push(self, side: str, *ts: int) -> None:
        self.sources[side].push(rows(*ts))

    def run(self) -> None:
        while self.simulator.run(1):
            self.found += self.join.poll()

    def held(self, side: int) -> list[tuple[int, int, int]]:
        """By node, the numbers of the rows at BEGIN, SENT and END."""
        at = [which + side for which in (scanning.STORE_BEGIN, kernel.SLICE_SENT, scanning.STORE_END)]
        return [tuple(node._words[at] + node._words[kernel.TRACK_BASE + side]) for node in self.nodes]


def test_a_copy_of_a_right_block_stays_until_the_next_node_acknowledges_it():
    """Figures 7 and 8 of the paper: two blocks that cross on the way meet on the right node."""
    chain = Chain(workers=2, batch=4)
    for side in SIDES:
        chain.push(side, 1, 2)
    for source in chain.sources.values():
        source.advance(5)
    left_node, right_node = chain.nodes
    right_node.step(1)
    left_node._words[scanning.LAST_TAKEN_SIDE] = RIGHT  # left's turn is next
    left_node.step(1)
    assert chain.held(LEFT) == [(1, 1, 2), (0, 0, 0)]  # one row of two makes both nodes hold as many
    assert chain.held(RIGHT) == [(0, 0, 0), (0, 1, 2)]
    assert sum(node.outbox.rows for node in chain.nodes) == 0
    chain.run()
    assert chain.held(RIGHT) == [(0, 0, 1), (1, 1, 2)]
    assert sorted(numbers([*chain.found, chain.join.finish()])) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_messages_that_wait_are_taken_as_one_block_and_acknowledged_once():
    chain = Chain(workers=2, batch=8)
    for ts in range(6):
        chain.push("right", ts)
        chain.sources["left"].advance(ts)
    right_node, entry = chain.nodes[1], chain.nodes[1].inlets["right"]
    assert len(entry) >= 5
    right_node.step(1)
    assert len(entry) == 0
    begin, _, end = chain.held(RIGHT)[1]
    assert (begin, end) == (0, 5)
    assert right_node._words[kernel.TO_ACKNOWLEDGE] == 0  # the driver waits for no acknowledgement
    chain.run()
    assert chain.nodes[0]._words[kernel.ACKNOWLEDGED] == chain.held(RIGHT)[0][2] > 0
    chain.join.close()


def test_pushes_in_quick_succession_enter_as_one_block(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(handshake_join, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    chain = Chain(workers=2, batch=8, pace=0.5)
    topology: Any = chain.join._topology
    entries = [node.inlets[side] for node, side in zip(chain.nodes, SIDES, strict=True)]

    def push(ts: int) -> list[int]:
        for side in SIDES:
            chain.push(side, 2 * ts, 2 * ts + 1)
        assert topology.idle  # neither push nor poll waits for the rest of a block
        return [len(entry) for entry in entries]

    assert push(0) == [1, 1]  # the first ones at once
    assert [push(ts) for ts in (1, 2, 3)] == [[1, 1]] * 3
    assert push(4) == [2, 2]  # eight left ones have settled
    assert push(5) == [2, 2]
    clock[0] += 0.5
    assert chain.join.poll() == [] and [len(entry) for entry in entries] == [3, 3]
    push(6)
    chain.run()
    assert sum(batch.num_rows for batch in [*chain.found, chain.join.finish()]) == 14 * 14


def test_expiry_is_reported_where_no_tuple_follows():
    """Compiled nodes read in arrivals what has expired; a promise is reported without one."""
    chain = Chain(workers=3, batch=4, window=10)
    for ts in range(0, 12, 4):
        for side in SIDES:
            chain.push(side, ts, ts + 1, ts + 2, ts + 3)
    chain.run()
    assert sum(len(node.windows["left"]) for node in chain.nodes) >= 10
    for source in chain.sources.values():
        source.advance(1000)
    chain.run()
    assert [len(node.windows[side]) for node in chain.nodes for side in SIDES] == [0] * 6
    chain.join.close()


def test_no_wake_up_is_lost_between_neighbours_that_compare_loads():
    """When all nodes sleep, none could send: they would otherwise sleep on."""
    for seed in range(8):
        turns, chain = random.Random(seed), Chain(workers=5, batch=4, capacity=1 + seed % 2)
        chain.simulator._choose = from_seed(seed)
        for ts in range(0, 300, 3):
            chain.push(turns.choice(SIDES), ts, ts + 1, ts + 2)
            chain.simulator.run(turns.choice([0, 1, 7]))
        chain.run()
        for side, way in ((LEFT, chain.held(LEFT)), (RIGHT, chain.held(RIGHT)[::-1])):
            for (_, sent, end), (_, next_sent, _) in pairwise(way):
                size = min(4, max(1, (end - sent) >> kernel.SHARE_SHIFT))
                assert end - sent == 0 or (end - sent) - (sent - next_sent) < size, (seed, side, way)
        chain.join.close()


# ---- what a hop costs


class Costs(NamedTuple):
    """Per hop of a block of full size: messages, acknowledgements among them, and bells rung, which bound wake-ups."""

    messages: float
    acknowledgements: float
    bells: float


class Counted(FlowingNode):
    acknowledged = 0

    def step(self, most: int) -> bool:
        before = self._words[kernel.ACKNOWLEDGED]
        busy = super().step(min(most, 1))
        self.acknowledged += int(self._words[kernel.ACKNOWLEDGED] != before)
        return busy


def costs(workers: int, topology: Any = TOPOLOGY, node: Any = Counted, block: int = 4) -> Costs:
    """What a chain with full windows does while as many rows flow through it as it holds."""
    window = 16 * block * workers  # so that every node holds 16 blocks a side
    simulator = Simulator(from_seed(workers))
    options = {"workers": workers, "batch": block, "executor": simulator, "max_results": 10**7}
    with open_with(topology, spec_of(sj.TimeWindow(window), BAND), node, **options) as join:
        nodes: Any = join._topology.nodes
        counts, sources = [], {side: join.source(side, "") for side in SIDES}
        for first in range(0, 3 * window, block):
            for number, side in enumerate(SIDES):  # no keys match
                ts, keys = range(first, first + block), [10 * number] * block
                sources[side].push(pa.table({"ts": ts, "x": keys, "n": ts}, schema=SCHEMA))
                while simulator.run(8):
                    pass
            if first + block in (2 * window, 3 * window):
                messages = sum(
                    int(outlet.ring[queue.RING_TAIL]) for node in nodes for outlet in node.outlets.values()
                )
                acknowledged = sum(getattr(n, "acknowledged", 0) for n in nodes)
                counts.append((messages, acknowledged, sum(n.bell.read() for n in nodes)))
            join.poll()
    hops = 2 * (workers - 1) * window / block
    return Costs(*(float(after - before) / hops for before, after in zip(*counts, strict=True)))


of_any_length = pytest.mark.parametrize(
    "workers", [2, 4, 8, pytest.param(16, marks=pytest.mark.slow), pytest.param(64, marks=pytest.mark.slow)]
)


@of_any_length
def test_a_hop_costs_the_same_in_a_chain_of_any_length(workers):
    """A message for each block, an acknowledgement for each right block, and no more than four bells: one for each
    message, one where the previous node may send, and those of the driver, which a short chain has more of per hop."""
    found = costs(workers)
    assert found.messages <= 2, found
    assert found.acknowledgements <= 0.55, found
    assert found.bells <= 3 + 2 / (workers - 1), found


@of_any_length
def test_an_expedition_costs_the_same_per_hop_in_a_chain_of_any_length(workers):
    """A message for each arrival, an acknowledgement for each right one, and the end of the expedition for each left
    one."""
    found = costs(workers, "low_latency_handshake", ScanningNode)
    assert found.messages <= 2.1, found
    assert found.bells <= 2.2 + 2 / (workers - 1), found


# ---- each part is needed


class Changed(FlowingNode):
    """Nodes that are changed before and after every block."""

    def step(self, most: int) -> bool:
        busy = False
        for _ in range(max(most, 1)):
            for way, inlet in self.inlets.items():
                ring = inlet.ring
                for at in range(queue.RING_DATA, len(ring), scanning.MESSAGE_WORDS):
                    self.before(way, ring[at : at + scanning.MESSAGE_WORDS])
            busy |= super().step(min(most, 1))
            self.after(self._words)
        return busy

    def before(self, way: str, message: np.ndarray) -> None:
        pass

    def after(self, words: np.ndarray) -> None:
        pass


class WithoutAcknowledgements(Changed):
    """Copies of forwarded right rows stay."""

    def before(self, way: str, message: np.ndarray) -> None:
        if message[scanning.MESSAGE_KIND] == scanning.ACKNOWLEDGEMENT:
            message[scanning.MESSAGE_NUMBER] = 0


class WithoutCopies(Changed):
    """Right rows leave when they are sent on, as left ones do."""

    def after(self, words: np.ndarray) -> None:
        words[scanning.STORE_BEGIN + RIGHT] = words[kernel.SLICE_SENT + RIGHT]


class WithCopiesOfBoth(Changed):
    """Left rows that were sent on can still be found."""

    def after(self, words: np.ndarray) -> None:
        words[scanning.STORE_BEGIN + LEFT] = max(0, words[kernel.SLICE_SENT + LEFT] - 2)


class WithLateAcknowledgements(Changed):
    """Left rows overtake acknowledgements."""

    def step(self, most: int) -> bool:
        late = self._words[kernel.TO_ACKNOWLEDGE]
        self._words[kernel.TO_ACKNOWLEDGE] = self._words[kernel.ACKNOWLEDGED]
        busy = super().step(min(most, 1))
        self._words[kernel.TO_ACKNOWLEDGE] = max(late, self._words[kernel.TO_ACKNOWLEDGE])
        return super().step(0) or busy


class WithEarlyExpiry(Changed):
    """Rows leave the far end before all that they reach has passed it."""

    def before(self, way: str, message: np.ndarray) -> None:
        message[scanning.MESSAGE_EXPIRED] = np.iinfo(np.int64).max


class WithEarlyMarks(Changed):
    """A node reports right rows as finished when it has sent them on, though it has copies of them."""

    def after(self, words: np.ndarray) -> None:
        sent = int(words[kernel.TRACK_BASE + RIGHT] + words[kernel.SLICE_SENT + RIGHT])
        self._shared.marks.set(self.number, "right", sent)


@pytest.mark.parametrize(
    "node",
    [
        WithoutAcknowledgements,
        WithoutCopies,
        WithCopiesOfBoth,
        WithLateAcknowledgements,
        WithEarlyExpiry,
        WithEarlyMarks,
    ],
)
def test_without_a_part_of_the_protocol_results_are_wrong(node):
    def search() -> None:
        for seed in range(300):
            check_interleaving(TOPOLOGY, seed, node, index="scan")

    with pytest.raises(AssertionError):
        search()


def test_watching_nodes_changes_nothing():
    for seed in range(30):
        check_interleaving(TOPOLOGY, seed, Changed, index="scan")


# ---- marks


def test_the_node_that_was_behind_reports_that_all_have_finished_more():
    """And no other one: each sees that its next node is as far behind as it was."""
    for seed in range(200):
        turns, side = random.Random(seed), seed % 2
        count = 1 + seed % 5
        marks, chain = Marks(count, 0), range(count) if side == LEFT else range(count)[::-1]
        following = dict(pairwise(chain)) | {chain[-1]: -1}
        finished = dict.fromkeys(chain, 0)
        for _ in range(60):
            node = turns.choice(chain)
            least, finished[node] = min(finished.values()), finished[node] + turns.randint(1, 4)
            told = kernel.raise_mark(marks.words, node, side, finished[node], following[node])
            assert told == (min(finished.values()) > least)
            assert marks[SIDES[side]] == min(finished.values())


# ---- memory


def test_a_track_goes_over_to_new_memory_with_the_rows_that_nodes_hold():
    taken: list[Any] = []
    with open_with(TOPOLOGY, spec_of(sj.TimeWindow(1)), executor=Simulator(from_seed(1))) as join:
        join._topology.push = lambda side, tuples, ranks, frontier: taken.append(tuples)
        join.push("left", rows(*range(10)))
    tuples = replace(taken[0], since=taken[0].ts)
    finished = 0
    track = Track(3, lambda: finished)
    memories = []
    for number, (first, count) in enumerate(((0, 2), (2, 3), (5, 5))):
        finished = (0, 1, 5)[number]
        assert track.write(Arrival("left", number, 0, tuples.pick(slice(first, first + count)))) == first
        memories.append(track.memory)
    assert [(memory.base, memory.capacity) for memory in memories if memory] == [(0, 3), (1, 4), (5, 6)]
    last = memories[-1]
    assert last is not None
    held = slice(5 - last.base, 10 - last.base)
    assert last.rows[scanning.ROW_PLACE, held].tolist() == [5, 6, 7, 8, 9]
    assert all(len(column) == last.capacity for column in last.arrays())


def test_tracks_hold_what_the_windows_hold_and_nodes_follow_them():
    chain = Chain(workers=3, batch=4, window=40, tuning=TINY)
    for ts in range(0, 600, 4):
        for side in SIDES:
            chain.push(side, ts, ts + 1, ts + 2, ts + 3)
        chain.run()
    for number, name in enumerate(SIDES):
        track = chain.nodes[0].windows[name]._track
        assert track.memory.capacity < 400
        assert sum(len(node.windows[name]) for node in chain.nodes) < 60
        for node in chain.nodes:
            assert node.windows[name].stage.limit >= node._words[kernel.TRACK_BASE + number]
    assert chain.join.stats().window_bytes > 0
    chain.join.close()
    assert all(node.windows[name].stage is None for node in chain.nodes for name in SIDES)


def test_tuples_wait_outside_while_expired_ones_are_in_the_chain():
    """Nodes that hardly run: without the bound, everything pushed would be in the chain."""
    tuning = Tuning(handshake=HandshakeTuning(most_expired=4))
    chain = Chain(workers=3, batch=2, window=10, tuning=tuning)
    most = 0
    for ts in range(0, 600, 2):
        for side in SIDES:
            chain.push(side, ts, ts + 1)
        chain.simulator.run(1)
        most = max(most, *(len(sent) for sent in chain.join._topology._sent.values()))
    # The window's 10 tuples in arrivals of up to two, those that expired, and one push on its way.
    assert most <= 10 + 4 + 4, most
    assert chain.join.finish().num_rows > 0


def test_large_windows_equal_those_of_one_thread_when_tracks_move():
    source = np.random.default_rng(3)
    left, right = table(source, 9000, 18_000, 50), table(source, 9000, 18_000, 50)
    spec = spec_of(sj.TimeWindow(300))
    expected = sj.join_tables(left, right, spec, "three_step", order="timestamp", workers=1)
    for workers in (1, 4, 16):
        found = sj.join_tables(left, right, spec, TOPOLOGY, "scan", workers, "timestamp")
        assert found.num_rows > 10_000
        assert found.equals(expected)
