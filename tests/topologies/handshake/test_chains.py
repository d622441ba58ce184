"""What both handshake joins promise: the oracle's result under every interleaving, with the smallest channels, on the
simulator and on threads; the same bytes on every run; errors that come out."""

from __future__ import annotations

import gc
import math
import os
import random
import threading
import time
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

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
    pushes,
    result_times,
    small_tables,
    spec_of,
    table,
)
from strategies import arrivals, numbered, pairs_of, push_all, specs
from streamjoin.plan.tuning import HandshakeTuning, Tuning
from streamjoin.topologies.handshake.chain_node import Marks
from streamjoin.topologies.protocol import Spread
from streamjoin.topologies.runtime.simulator import Simulator, from_bytes, from_seed

both = pytest.mark.parametrize("topology", list(TOPOLOGIES))


@both
@pytest.mark.parametrize("order", ORDERS)
def test_four_tuples_by_eye(topology, order):
    left = pa.table({"ts": [1, 5], "x": [7, 7], "n": [0, 1]}, schema=sj_schema())
    right = pa.table({"ts": [3, 9], "x": [7, 7], "n": [0, 1]}, schema=sj_schema())
    for window, expected in (
        (sj.TimeWindow(2), [(0, 0), (1, 0)]),
        (sj.TimeWindow(4), [(0, 0), (1, 0), (1, 1)]),
        (sj.RowWindow(1), [(0, 0), (1, 0), (1, 1)]),
        (sj.RowWindow(left=2, right=0), [(0, 0), (0, 1), (1, 1)]),
    ):
        result = sj.join_tables(left, right, spec_of(window), topology, workers=2, order=order)
        assert sorted(numbers([result])) == expected, window


def sj_schema() -> pa.Schema:
    return spec_of(sj.TimeWindow(1)).left


@both
@pytest.mark.parametrize("window", list(WINDOWS))
@pytest.mark.parametrize("index", ["scan", "hash", "bisort", "raptable", "wibtree", "auto"])
def test_every_window_and_index_equals_the_oracle(topology, window, index):
    source = np.random.default_rng(5)
    left, right = table(source, 40, 25, 4), table(source, 40, 25, 4)
    spec = spec_of(WINDOWS[window])
    for number, order in enumerate(ORDERS):
        simulator = Simulator(from_seed(number))
        options = {"batch": 5, "capacity": 2, "index": index, "workers": 1 + 2 * number, "order": order}
        join = open_with(topology, spec, executor=simulator, **options)
        check(join, spec, left, right, order, number, simulator)


@both
def test_hundreds_of_interleavings(topology):
    for seed in range(250):
        check_interleaving(topology, seed)


@both
@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_interleavings(topology, part):
    for seed in range(1000 * part + 1000, 1000 * part + 2000):
        check_interleaving(topology, seed)


@both
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_join_under_any_interleaving(topology, data):
    """A failure shrinks to few tuples and few decisions of the scheduler, and prints what was sent."""
    on = data.draw(st.sampled_from([EQUAL, BAND]))
    spec, left, right = data.draw(specs(on, both=(sj_schema(), sj_schema()), in_order=True))
    spec, left, right = numbered(spec, left, right)
    parts, decisions = data.draw(arrivals(left, right)), data.draw(st.binary(max_size=60))
    order, workers = data.draw(st.sampled_from(ORDERS)), data.draw(st.integers(1, 4))
    options = {"batch": data.draw(st.integers(1, 3)), "capacity": data.draw(st.integers(1, 2))}
    simulator, polls = Simulator(from_bytes(decisions)), iter(decisions)
    with open_with(topology, spec, workers=workers, order=order, executor=simulator, **options) as join:
        for side in ("left", "right"):
            join.source(side, "")
        found = push_all(join, parts, lambda: next(polls, 0) % 2 == 1)
        pairs = [pair for batch in [*found, join.finish()] for pair in pairs_of(batch)]
    note(simulator.tail(200))
    expected = pairs_of(sj.oracle.join(left, right, spec))
    assert (pairs if order == "timestamp" else sorted(pairs)) == (
        expected if order == "timestamp" else sorted(expected)
    )


# ---- threads


def with_yields(node: Any) -> Any:
    """A node that lets others run at moments drawn from a seed."""

    class Yielding(node):  # type: ignore[misc]
        def __init__(self, number: int, shared: Any):
            super().__init__(number, shared)
            self._moments = random.Random(number)

        def receive(self, side: str, message: Any) -> Any:
            for _ in range(self._moments.choice([0, 0, 1, 3])):
                time.sleep(self._moments.choice([0, 0, 1e-5]))
            return super().receive(side, message)

    return Yielding


@both
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
def test_threads_under_stress(topology, workers):
    for seed in range(6):
        left, right = small_tables(seed + 100)
        window, order = random.Random(seed).choice(list(WINDOWS.values())), ORDERS[seed % 3]
        spec = spec_of(window)
        options = {"batch": 1 + seed % 3, "capacity": 1 + seed % 2, "order": order, "workers": workers}
        for node in (with_yields(TOPOLOGIES[topology][1]), None):
            join = open_with(topology, spec, node, max_results=5, **options)
            check(join, spec, left, right, order, seed)


@both
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", [sj.TimeWindow(300), sj.RowWindow(150)], ids=["time", "rows"])
def test_large_joins_equal_those_of_one_thread(topology, window, order):
    source = np.random.default_rng(3)
    left, right = table(source, 4000, 8000, 20), table(source, 4000, 8000, 20)
    spec = spec_of(window)
    expected = sj.join_tables(left, right, spec, "three_step", order="timestamp", workers=1)
    found = sj.join_tables(left, right, spec, topology, "scan", workers=3, order=order)
    assert found.num_rows == expected.num_rows > 10_000
    if order == "timestamp":
        assert found.equals(expected)
    assert sorted(numbers([found])) == sorted(numbers([expected]))


@both
def test_punctuations_follow_the_streams(topology):
    """Low-latency handshake join promises everything that has passed; handshake join a window less."""
    spec, promises = spec_of(sj.TimeWindow(20)), []
    simulator = Simulator(from_seed(2))
    with open_with(topology, spec, executor=simulator, workers=3, order="punctuated", batch=4) as join:
        for ts in range(0, 200, 4):
            for side in ("left", "right"):
                join.push(
                    side,
                    table(np.random.default_rng(ts), 4, 4, 2).set_column(
                        0, "ts", pa.array(range(ts, ts + 4))
                    ),
                )
            simulator.run(200)
            promises += [sj.punctuation(out) for out in join.poll()]
    told = [promise for promise in promises if promise is not None]
    assert told == sorted(told)
    assert told[-1] >= (195 if topology == "low_latency_handshake" else 150)


def test_a_promise_needs_no_message_of_its_own():
    simulator, promises = Simulator(from_seed(3)), []
    spec, options = spec_of(sj.TimeWindow(20)), {"workers": 3, "order": "punctuated"}
    with open_with("low_latency_handshake", spec, executor=simulator, **options) as join:
        for ts in (4, 7):
            for side in ("left", "right"):
                join.push(side, pa.table({"ts": [ts], "x": [1], "n": [ts]}, schema=SCHEMA))
            while simulator.run(1):
                pass
            promises += [sj.punctuation(batch) for batch in join.poll()]
        assert promises == [4, 7]
        assert sum("driver to" in line for line in simulator.trace) == 4


def test_marks_are_those_of_the_last_node_and_it_tells():
    marks = Marks(3, 2)
    assert [marks.set(node, "right", 5) for node in (2, 0)] == [False, False]
    assert (marks["left"], marks["right"]) == (0, 0)
    assert marks.set(1, "right", 4)
    assert not marks.set(0, "right", 6)
    assert marks["right"] == 4
    assert marks.set(1, "right", 5)
    assert (marks["left"], marks["right"]) == (0, 5)


def test_the_driver_is_told_once_few_messages_are_on_their_way():
    marks = Marks(1, 2)
    marks.send("right", 5)
    assert [marks.is_due("right", number) for number in range(2, 6)] == [False, True, True, True]
    assert marks.is_due("left", 0)


@both
@pytest.mark.parametrize("seed", range(12))
def test_promises_hold_while_sources_are_not_in_step(topology, seed):
    """A tuple on its way may be earlier than one that was sent before it."""
    turns, simulator, promised = random.Random(seed), Simulator(from_seed(seed)), -math.inf
    spec = spec_of(sj.TimeWindow(20))
    with open_with(topology, spec, executor=simulator, workers=2, order="punctuated", batch=2) as join:
        sources = [join.source(side, name) for side in ("left", "right") for name in "ab"]
        times = [0] * len(sources)
        for n in range(60):
            at = turns.randrange(len(sources))
            times[at] += turns.randint(0, 6)
            sources[at].push(pa.table({"ts": [times[at]], "x": [1], "n": [n]}, schema=SCHEMA))
            simulator.run(turns.choice([0, 1, 3]))
            for batch in join.poll():
                assert min(result_times(batch), default=math.inf) >= promised, simulator.tail()
                promised = max(promised, sj.punctuation(batch) or promised)
    assert promised > 0


@both
def test_sorted_output_is_the_same_whatever_the_workers_and_the_pace(topology):
    same_bytes(topology, 2)


@both
@pytest.mark.slow
def test_sorted_output_is_the_same_on_fifty_runs(topology):
    same_bytes(topology, 50)


def same_bytes(topology: Any, repeats: int) -> None:
    """One to eight workers, one to six sources a side, pushed at random paces."""
    source = np.random.default_rng(9)
    tables = {side: table(source, 240, 200, 4) for side in ("left", "right")}
    spec = spec_of(sj.TimeWindow(12))
    expected: dict[int, Any] = {}
    for run in range(repeats * 4):
        turns = random.Random(run)
        count, workers = 1 + run % 4 if run % 4 < 3 else 6, 1 + run % 8
        with sj.open_join(spec, topology, "scan", workers, "timestamp") as join:
            sources = {(s, k): join.source(s, f"s{k}") for s in tables for k in range(count)}
            waiting = {(s, k): take_every(tables[s], k, count) for s, k in sources}
            while any(rows.num_rows for rows in waiting.values()):
                key = turns.choice([key for key, rows in waiting.items() if rows.num_rows])
                size = turns.randint(1, 40)
                sources[key].push(waiting[key].slice(0, size))
                waiting[key] = waiting[key].slice(size)
            result = join.finish()
        # How rows are spread over sources decides ties, so each number of sources has its own order.
        assert expected.setdefault(count, result.to_pydict()) == result.to_pydict()
        assert result.num_rows > 100


def take_every(rows: pa.Table, first: int, step: int) -> pa.Table:
    return rows.take(pa.array(range(first, rows.num_rows, step)))


@both
@pytest.mark.parametrize("index", ["scan", "hash", "bisort"])
@pytest.mark.parametrize("lateness", [None, 6])
def test_sources_that_are_not_in_step_and_tuples_out_of_order(topology, index, lateness):
    """Of time windows only the event times matter, so the oracle may see all sources as one."""
    for seed in range(8):
        source, turns = np.random.default_rng(seed), random.Random(seed)
        tables = {side: table(source, 60, 50, 3) for side in ("left", "right")}
        spec = replace(spec_of(sj.TimeWindow(4, right=7)), lateness=lateness)
        simulator = Simulator(from_seed(seed))
        options = {
            "workers": 1 + seed % 4,
            "batch": 4,
            "capacity": 2,
            "index": index,
            "order": ORDERS[seed % 2],
        }
        with open_with(topology, spec, executor=simulator, **options) as join:
            parts = {(s, k): take_every(tables[s], k, 3) for s in tables for k in range(3)}
            if lateness:
                parts = {key: disordered(rows, lateness, turns) for key, rows in parts.items()}
            sources = {(s, k): join.source(s, f"s{k}") for s, k in parts}
            found: list[Any] = []
            while waiting := [key for key, rows in parts.items() if rows.num_rows]:
                key, size = turns.choice(waiting), turns.randint(1, 9)
                sources[key].push(parts[key].slice(0, size))
                parts[key] = parts[key].slice(size)
                simulator.run(turns.choice([0, 2, 9]))
                found += join.poll()
            pairs = numbers([*found, join.finish()])
            assert join.stats().late == 0
        expected = numbers([sj.oracle.join(tables["left"], tables["right"], spec)])
        assert sorted(pairs) == sorted(expected), simulator.tail()


def disordered(rows: pa.Table, lateness: int, turns: random.Random) -> pa.Table:
    """The rows so that none comes more than `lateness` after a later one."""
    due = [ts + turns.uniform(0, lateness) for ts in rows["ts"].to_pylist()]
    return rows.take(pa.array(np.argsort(due, kind="stable")))


# ---- bounds and faults


@both
def test_windows_and_payload_stay_bounded_and_end_empty(topology):
    spec = spec_of(sj.TimeWindow(50))
    with sj.open_join(spec, topology, "scan", 2) as join:
        for first in range(0, 6000, 100):
            for side in ("left", "right"):
                ts = np.arange(first, first + 100)
                join.push(
                    side, pa.table({"ts": ts, "x": (ts % 7).astype(np.int32), "n": ts}, schema=spec.left)
                )
            join.poll()
        running = join.stats()
        join.finish()
        last = join.stats()
    assert max(running.left_window, running.right_window) < 3000
    assert running.payload_rows < 12_000
    assert (last.left_window, last.right_window, last.buffered_results) == (0, 0, 0)


@both
@pytest.mark.parametrize("order", ORDERS)
def test_payload_of_tuples_that_have_left_an_idle_chain_is_let_go_by_a_poll(topology, order):
    simulator, spec = Simulator(from_seed(5)), spec_of(sj.TimeWindow(3))
    with open_with(topology, spec, executor=simulator, order=order, batch=2) as join:
        sources = [join.source(side, "") for side in ("left", "right")]
        for source in sources:
            source.push(table(np.random.default_rng(1), 20, 30, 3))
        for source in sources:
            source.advance(1000)
        while simulator.run(1) or join.poll():
            pass
        stats = join.stats()
        assert stats.payload_rows == 0
        assert stats.matches > 0


@both
@pytest.mark.parametrize(("index", "on"), [("scan", BAND), ("hash", EQUAL), ("bisort", EQUAL)])
def test_a_node_without_room_for_its_pairs_tells_the_driver(topology, index, on):
    tuning = Tuning(handshake=HandshakeTuning(waiting_pairs=2, compiled_waiting_pairs=2))
    for seed in range(25):
        check_interleaving(topology, seed, on=on, index=index, tuning=tuning)


@both
def test_one_silent_side_does_not_hold_the_others_payload(topology):
    spec = spec_of(sj.TimeWindow(10))
    with sj.open_join(spec, topology, "scan", 3) as join:
        silent = join.source("left", "silent")
        for first in range(0, 40_000, 1000):
            ts = np.arange(first, first + 1000)
            silent.advance(first)
            join.push("right", pa.table({"ts": ts, "x": ts.astype(np.int32), "n": ts}, schema=spec.right))
        assert join.finish().num_rows == 0
        assert join.stats().right_window == 0


class Breaking(RuntimeError):
    pass


@both
def test_an_error_in_a_node_comes_out_and_stops_the_rest(topology):
    class Broken(TOPOLOGIES[topology][1]):  # type: ignore[misc]
        def receive(self, side: str, message: Any) -> Any:
            if self.number == 1 and getattr(message, "number", 0) > 3:  # acknowledgements have none
                raise Breaking("a node broke")
            return super().receive(side, message)

    before = threading.active_count()
    spec, (left, right) = spec_of(sj.TimeWindow(5)), small_tables(7)

    def run() -> None:
        with open_with(topology, spec, Broken) as join:
            for side, rows in pushes(left, right, 7, 1):
                join.push(side, rows)
            join.finish()

    with pytest.raises((Breaking, sj.StreamJoinError)) as caught:
        run()
    cause = caught.value if isinstance(caught.value, Breaking) else caught.value.__cause__
    assert isinstance(cause, Breaking)
    assert "node 1" in "".join(cause.__notes__)
    assert threading.active_count() <= before


@both
def test_a_join_that_nobody_uses_stops_its_threads(topology):
    before = threading.active_count()
    join: Any = sj.open_join(spec_of(sj.TimeWindow(5)), topology, "scan", 3)
    for side, rows in zip(("left", "right"), small_tables(8), strict=True):
        join.push(side, rows)
    assert threading.active_count() == before + 3
    gone = weakref.ref(join)
    del join
    gc.collect()
    assert gone() is None
    assert threading.active_count() == before


def test_a_window_that_gets_its_first_columns_while_it_is_measured_is_measured_again():
    class Growing:
        def __init__(self) -> None:
            self.columns = {"ts": np.zeros(2)}

        @property
        def nbytes(self) -> int:
            total = 0
            for column in self.columns.values():
                self.columns.setdefault("id", np.zeros(3))
                total += column.nbytes
            return total

    growing: Any = Growing()
    assert Spread([growing]).nbytes == 40


@both
def test_more_workers_than_cores(topology):
    workers = min(64, 4 * (os.cpu_count() or 1) + 8)
    spec, (left, right) = spec_of(sj.RowWindow(4)), small_tables(11)
    found = sj.join_tables(left, right, spec, topology, "scan", workers, "timestamp")
    assert found.equals(sj.oracle.join(left, right, spec))
