"""Handshake joins over node-local indexes: the oracle's result under every interleaving with channels of one and two
messages, and what compiled nodes over hash tables do at the borders of their stores and tables."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import (
    BAND,
    EQUAL,
    ORDERS,
    SCHEMA,
    TOPOLOGIES,
    WINDOWS,
    check,
    check_interleaving,
    numbers,
    open_with,
    small_tables,
    spec_of,
    table,
)
from streamjoin.index.structures.hash import HashSubwindow
from streamjoin.kernels.concurrent import hashing_node as keyed
from streamjoin.kernels.concurrent import queue
from streamjoin.kernels.concurrent import scanning_node as expedition
from streamjoin.kernels.hash import tables as hashing
from streamjoin.plan.tuning import HandshakeTuning, Tuning, WindowTuning
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.handshake import low_latency as low_latency_handshake
from streamjoin.topologies.handshake.hashing_node import HashingNode, NodeTable
from streamjoin.topologies.handshake.low_latency import Expedition, KeyedNode, LowLatencyNode
from streamjoin.topologies.runtime.simulator import Simulator, from_seed

TOPOLOGY: Any = "low_latency_handshake"
INDEXES = [
    ("hash", EQUAL), ("bisort", EQUAL), ("raptable", EQUAL), ("wibtree", EQUAL),
    ("bisort", BAND), ("raptable", BAND), ("wibtree", BAND),
]  # fmt: skip
both = pytest.mark.parametrize("topology", list(TOPOLOGIES))


# Stores of few rows and tables of fewer, so that both are outgrown, moved and left behind all the time.
TINY = Tuning(window=WindowTuning(smallest_subwindow=3), handshake=HandshakeTuning(fewest_rows=4))


@contextmanager
def nodes_are(kind: type[HashingNode]) -> Iterator[None]:
    with patch.object(low_latency_handshake, "HashingNode", kind):
        yield


# ---- every index, window and order


@pytest.mark.parametrize(
    ("on", "index", "kind"),
    [
        (EQUAL, "hash", HashingNode),
        ("left.x + 1 = right.x", "hash", HashingNode),
        # Equal hashes prove nothing.
        pytest.param("left.x = right.x AND left.n = right.n", "hash", KeyedNode, marks=pytest.mark.slow),
        pytest.param("left.x = right.x AND left.n < right.n", "hash", KeyedNode, marks=pytest.mark.slow),
        (EQUAL, "bisort", KeyedNode),
        (EQUAL, "auto", HashingNode),
        pytest.param("left.x = right.x AND left.n < right.n", "auto", KeyedNode, marks=pytest.mark.slow),
        (BAND, "bisort", LowLatencyNode),
    ],
)
def test_the_kind_of_node_follows_from_predicate_and_index(on, index, kind):
    spec, simulator = spec_of(sj.TimeWindow(3), on), Simulator(from_seed(1))
    left, right = small_tables(3)
    join = open_with(TOPOLOGY, spec, index=index, executor=simulator)
    assert {type(node) for node in join._topology.nodes} == {kind}
    check(join, spec, left, right, "any", 3, simulator)


@pytest.mark.slow
@both
@pytest.mark.parametrize(("index", "on"), INDEXES)
@pytest.mark.parametrize("window", list(WINDOWS))
@pytest.mark.parametrize("capacity", [1, 2])
def test_every_index_window_and_order_equals_the_oracle(topology, index, on, window, capacity):
    for seed, order in enumerate(ORDERS * 4):
        left, right = small_tables(seed + 500)
        spec, simulator = spec_of(WINDOWS[window], on), Simulator(from_seed(seed))
        options = {"batch": 1 + seed % 5, "capacity": capacity, "index": index, "workers": 1 + seed % 5}
        join = open_with(topology, spec, executor=simulator, order=order, tuning=TINY, **options)
        check(join, spec, left, right, order, seed, simulator)


def test_interleavings_over_hash_tables():
    for seed in range(25):
        check_interleaving(TOPOLOGY, seed, index="hash", on=EQUAL, tuning=TINY)


@both
@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_interleavings_over_indexes(topology, part):
    for seed in range(1000 * part + 20_000, 1000 * part + 21_000):
        index, on = INDEXES[seed % len(INDEXES)] if seed % 2 else ("hash", EQUAL)
        check_interleaving(topology, seed, index=index, on=on, tuning=TINY)


class Yielding(HashingNode):
    """A compiled node that lets others run at moments drawn from a seed."""

    def __init__(self, number: int, *given: Any):
        super().__init__(number, *given)
        self._moments = random.Random(number)

    def work(self) -> None:
        seen = self.bell.read()
        time.sleep(self._moments.choice([0, 0, 1e-5]))
        if not self.step(self._moments.randint(1, 3)):
            self.bell.wait(seen)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_hash_tables_on_threads_under_stress(workers):
    for seed, kind in enumerate([Yielding, HashingNode] * 3):
        left, right = small_tables(seed + 100)
        order, window = ORDERS[seed % 3], random.Random(seed).choice(list(WINDOWS.values()))
        options = {"batch": 1 + seed % 3, "capacity": 1 + seed % 2, "order": order, "workers": workers}
        with nodes_are(kind):
            spec = spec_of(window)
            join = open_with(TOPOLOGY, spec, index="hash", max_results=5, tuning=TINY, **options)
            check(join, spec, left, right, order, seed)


@pytest.mark.parametrize("order", ORDERS)
def test_large_joins_over_hash_tables_equal_those_of_one_thread(order):
    source = np.random.default_rng(3)
    left, right = table(source, 40_000, 80_000, 500), table(source, 40_000, 80_000, 500)
    spec = spec_of(sj.TimeWindow(4000))
    expected = sj.join_tables(left, right, spec, "three_step", "hash", order="timestamp", workers=1)
    found = sj.join_tables(left, right, spec, TOPOLOGY, "hash", workers=3, order=order)
    if order != "timestamp":
        by_both = [("n", "ascending"), ("n_right", "ascending")]
        found, expected = found.sort_by(by_both), expected.sort_by(by_both)
    assert found.num_rows > 100_000
    assert found.combine_chunks().equals(expected.combine_chunks())


# ---- keys


@pytest.mark.parametrize(
    "kind",
    [
        pa.int32(),
        pytest.param(pa.int64(), marks=pytest.mark.slow),
        pytest.param(pa.float32(), marks=pytest.mark.slow),
        pa.float64(),
    ],
)
def test_keys_of_every_type_and_such_as_match_nothing(kind):
    """NULL and NaN match nothing, both zeros are equal, and no number is lost between 64 bits and less."""
    schema = pa.schema({"ts": pa.int64(), "x": kind, "n": pa.int64()})
    floats = pa.types.is_floating(kind)
    values = [
        0,
        1,
        None,
        2,
        1,
        None,
        -1,
        *([-0.0, float("nan"), float("inf"), 0.5] if floats else [2**31 - 1]),
    ]
    rows = {"ts": [5] * len(values), "x": values, "n": range(len(values))}
    left = right = pa.table({**rows, "x": pa.array(values, kind, from_pandas=False)}, schema=schema)
    spec = sj.JoinSpec(schema, schema, EQUAL, sj.TimeWindow(1), "ts", "ts")
    expected = sorted(numbers([sj.oracle.join(left, right, spec)]))
    for workers in (1, 3):
        found = sj.join_tables(left, right, spec, TOPOLOGY, "hash", workers=workers)
        assert sorted(numbers([found])) == expected
    assert len(expected) == (12 if floats else 8)


def test_a_key_that_no_number_of_the_other_type_equals_has_no_home():
    """`left.x * 2 = right.n` with an odd n."""
    spec, simulator = spec_of(sj.TimeWindow(9), "left.x = right.n"), Simulator(from_seed(2))
    with open_with(TOPOLOGY, spec, index="hash", executor=simulator) as join:
        join.push("left", pa.table({"ts": [0, 0], "x": [1, None], "n": [0, 1]}, schema=SCHEMA))
        join.push("right", pa.table({"ts": [0, 0], "x": [0, 0], "n": [2**40, 1]}, schema=SCHEMA))
        while simulator.run(1):
            pass
        held = {s: sum(len(node.windows[s]) for node in join._topology.nodes) for s in SIDES}
        assert held["left"] == 1
        assert held["right"] in (1, 2)  # 2**40 is a number of its type, if that has 64 bits
        assert numbers([join.finish()]) == [(0, 1)]


def test_homes_are_spread_and_do_not_follow_from_the_bits_that_choose_a_line():
    keys, homes = np.arange(30_000, dtype=np.int64), np.empty(30_000, np.int64)
    keyed.deal(keys, keys, np.ones(len(keys), np.bool_), 3, homes)
    counts = np.bincount(homes, minlength=3)
    assert counts.min() > 9_500 and counts.max() < 10_500
    subwindow = HashSubwindow(30_000, np.dtype(np.int64))
    own = keys[homes == 1]
    subwindow.insert(own, np.arange(len(own), dtype=np.int32))
    used = np.flatnonzero(subwindow._table[hashing.WAYS :: hashing.LINE_WORDS])
    quarters = np.histogram(used, 4, (0, subwindow._lines))[0]
    assert quarters.min() > 0.8 * quarters.max()


def test_an_arrival_is_staged_by_home_and_in_order():
    rows, keys = np.zeros((4, 8), np.int64), np.zeros(8, np.int64)
    homes, given = np.array([1, -1, 0, 1, 0]), np.array([10, 11, 12, 13, 14], np.int32)
    keyed.stage_by_home(given + 100, given + 200, given + 300, homes, given, 2, 3, rows, keys)
    assert keys.tolist() == [0, 0, 0, 11, 12, 14, 10, 13]
    assert rows[expedition.ROW_HOME, 3:].tolist() == [-1, 0, 0, 1, 1]
    assert rows[expedition.ROW_PLACE, 3:].tolist() == [111, 112, 114, 110, 113]
    assert rows[expedition.ROW_ID, 3:].tolist() == [311, 312, 314, 310, 313]


# ---- memory


def test_tables_are_begun_filled_and_left_behind_with_their_rows():
    spec, simulator = spec_of(sj.TimeWindow(20)), Simulator(from_seed(4))
    options: dict[str, Any] = {"index": "hash", "workers": 1, "max_results": 10_000, "tuning": TINY}
    with open_with(TOPOLOGY, spec, executor=simulator, batch=2, **options) as join:
        (node,) = join._topology.nodes
        for ts in range(0, 200, 2):
            for side in SIDES:
                rows = {"ts": [ts, ts + 1], "x": [ts % 7, ts % 5], "n": [ts, ts + 1]}
                join.push(side, pa.table(rows, schema=SCHEMA))
            while simulator.run(1):
                join.poll()
        for side in SIDES:
            store = node.windows[side]
            assert store.held_ids.tolist() == list(range(200 - len(store), 200))
            assert 20 <= len(store) <= 24
            tables: tuple[NodeTable, ...] = store.tables
            assert [table.end for table in tables[:-1]] == [table.first_row for table in tables[1:]]
            assert tables[-1].end == 200 and len(tables) < 12
            assert store.rows.shape[1] < 200  # moved, not grown
        assert node.comparisons > 0
        join.finish()
        assert {side: len(store) for side, store in node.windows.items()} == {"left": 0, "right": 0}


def test_a_key_of_thousands_of_tuples_fills_the_outbox_and_nothing_is_lost():
    rows = pa.table({"ts": [0] * 600, "x": [0] * 600, "n": range(600)}, schema=SCHEMA)
    spec, simulator = spec_of(sj.TimeWindow(1)), Simulator(from_seed(6))
    options: dict[str, Any] = {"index": "hash", "workers": 2, "max_results": 10**6, "executor": simulator}
    with open_with(TOPOLOGY, spec, **options) as join:
        join.push("left", rows)
        join.push("right", rows)
        while simulator.run(1):
            pass
        assert max(node.outbox.rows for node in join._topology.nodes) == 65_536
        found = join.finish()
    assert len(set(numbers([found]))) == found.num_rows == 360_000


# ---- each part is needed


class WithoutRest(HashingNode):
    """Tuples meet what is there, and do not stay."""

    def step(self, most: int) -> bool:
        busy = super().step(most)
        self._words[expedition.STORE_BEGIN : expedition.STORE_BEGIN + 2] = self._words[
            expedition.STORE_END : expedition.STORE_END + 2
        ]
        return busy


class WithEarlyExpiry(HashingNode):
    """A message lets more expire than what no later tuple reaches."""

    def step(self, most: int) -> bool:
        for inlet in self.inlets.values():
            inlet.ring[queue.RING_DATA + expedition.MESSAGE_EXPIRED :: expedition.MESSAGE_WORDS] += 1
        return super().step(most)


@pytest.mark.parametrize("kind", [WithoutRest, WithEarlyExpiry])
def test_without_a_part_of_the_node_results_are_wrong(kind):
    def search() -> None:
        for seed in range(300):
            check_interleaving(TOPOLOGY, seed, index="hash", on=EQUAL)

    with nodes_are(kind), pytest.raises(AssertionError):
        search()


def test_pairs_are_lost_if_homes_do_not_follow_from_the_key():
    def in_turns(self: Any, side: str, number: int, expired: int, tuples: Any) -> Expedition:
        keys, _, _ = self._key.of(side, tuples)
        return Expedition(side, number, expired, tuples, np.arange(len(keys)) % self.workers, keys)

    def search() -> None:
        for seed in range(300):
            check_interleaving(TOPOLOGY, seed, index="hash", on=EQUAL)

    kind = low_latency_handshake.LowLatencyHandshake
    with patch.object(kind, "make_arrival", in_turns), pytest.raises(AssertionError):
        search()


def test_sorted_output_over_hash_tables_is_the_same_whatever_the_workers():
    source = np.random.default_rng(9)
    left, right = table(source, 400, 300, 4), table(source, 400, 300, 4)
    spec, seen = spec_of(sj.TimeWindow(12)), []
    for workers in (1, 3, 8):
        for batch in (7, 400):
            with sj.open_join(spec, TOPOLOGY, "hash", workers, "timestamp") as join:
                for at in range(0, 400, batch):
                    join.push("right", right.slice(at, batch))
                    join.push("left", left.slice(at, batch))
                seen.append(join.finish().to_pydict())
    assert all(each == seen[0] for each in seen)
    assert seen[0] == sj.join_tables(left, right, spec, "three_step", order="timestamp").to_pydict()


def test_a_push_compiles_nothing():
    def forms() -> dict[str, int]:
        kernels = {**vars(keyed), **vars(hashing)}
        return {name: len(each.overloads) for name, each in kernels.items() if hasattr(each, "overloads")}

    source = np.random.default_rng(1)
    with sj.open_join(spec_of(sj.TimeWindow(500)), TOPOLOGY, "hash", 2, max_results=10**6) as join:
        before = forms()
        for side in SIDES:
            join.push(side, table(source, 9000, 9000, 5000))
        assert join.finish().num_rows > 100
        assert forms() == before
