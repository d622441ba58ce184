"""PanJoin: the oracle's pairs under any interleaving of manager and workers, and what the manager says to whom."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import streamjoin as sj
from strategies import arrivals, numbered, pairs_of, push_all, specs
from streamjoin import engine, planner
from streamjoin.runtime.simulator import Choose, Simulator, from_bytes, from_seed
from streamjoin.topologies.panjoin import PanJoin, Worker

ORDERS = ["any", "punctuated", "timestamp"]
WINDOWS = [sj.TimeWindow(20, 7), sj.RowWindow(15, 30), (sj.TimeWindow(12), sj.RowWindow(9))]
SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
# Few, so that little is compiled: what they mean is tested elsewhere.
PREDICATES = [
    "left.x = right.x",
    "left.x BETWEEN right.x - 1 AND right.x + 1",
    "left.x <> right.x AND left.x % 3 = right.x % 2",
]


@pytest.fixture(autouse=True, scope="module")
def payload_goes_at_once() -> Iterator[None]:
    """Rows are let go as soon as nobody says that they are needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SLACK_ROWS", 1)
        yield


def simulated(choose: Choose, **options: Any) -> tuple[type[PanJoin], Simulator]:
    """PanJoin under the simulator, with small subwindows, batches and queues."""
    simulator = Simulator(choose)
    changes: dict[str, Any] = {"executor": simulator, "smallest": 2, **options}

    class Simulated(PanJoin):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments, **changes)

    return Simulated, simulator


def workers_of(join: sj.Join) -> list[Worker]:
    assert isinstance(join._topology, PanJoin)
    return join._topology.nodes


def raising(*_: object) -> Any:
    raise ZeroDivisionError("in the worker")


def spec_of(window: Any, on: str = "left.x BETWEEN right.x - 1 AND right.x + 1") -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, on, window, "ts", "ts")


def rows(ts: list[int], x: list[int]) -> pa.Table:
    return pa.table({"ts": ts, "x": x}, schema=SCHEMA)


def random_rows(count: int, seed: int, values: int = 40) -> pa.Table:
    source = np.random.default_rng(seed)
    ts = np.sort(source.integers(0, count, count))
    return pa.table({"ts": ts, "x": source.integers(0, values, count, dtype=np.int32)}, schema=SCHEMA)


def cut(left: pa.Table, right: pa.Table, sizes: int, seed: int) -> list[tuple[str, pa.Table]]:
    """Both tables in pieces of up to `sizes` rows, in the order of time, roughly."""
    source, pushes, at = random.Random(seed), [], {"left": 0, "right": 0}
    tables = {"left": left, "right": right}
    while waiting := [side for side in tables if at[side] < tables[side].num_rows]:
        side = source.choice(waiting)
        count = source.randint(1, sizes)
        pushes.append((side, tables[side].slice(at[side], count)))
        at[side] += count
    return pushes


def test_four_tuples_meet_once_each(monkeypatch):
    topology, simulator = simulated(from_seed(1))
    monkeypatch.setitem(planner.TOPOLOGIES, "panjoin", topology)
    with sj.open_join(spec_of(sj.TimeWindow(5)), "panjoin", "bisort", workers=2) as join:
        join.push("left", rows([1, 2], [10, 50]))
        join.push("right", rows([1, 4], [11, 50]))
        table = join.finish()
    assert sorted(map(tuple, zip(*(c.to_pylist() for c in table.columns), strict=True))) == [
        (1, 10, 1, 11),
        (2, 50, 4, 50),
    ]
    assert any("into subwindow" in line for line in simulator.trace)


@pytest.mark.parametrize("index", ["scan", "bisort", "raptable", "wibtree", "auto"])
@pytest.mark.parametrize("window", WINDOWS, ids=["time", "rows", "mixed"])
@pytest.mark.parametrize("order", ORDERS)
def test_equals_the_oracle_under_a_seeded_scheduler(order, window, index, monkeypatch):
    spec = spec_of(window)
    left, right = random_rows(90, 1), random_rows(80, 2)
    spec, left, right = numbered(spec, left, right)
    expected = pairs_of(sj.oracle.join(left, right, spec))
    for seed in range(4):
        topology, simulator = simulated(from_seed(seed), batch=1 + seed, credit=1 + seed % 2)
        monkeypatch.setitem(planner.TOPOLOGIES, "panjoin", topology)
        with sj.open_join(spec, "panjoin", index, workers=1 + seed % 4, order=order, max_results=9) as join:
            found = push_all(join, cut(left, right, 7, seed), partial(simulator.run, 2))
            while rest := join.poll():
                found += rest
            pairs = [pair for batch in [*found, join.finish()] for pair in pairs_of(batch)]
        assert (pairs if order == "timestamp" else sorted(pairs)) == (
            expected if order == "timestamp" else sorted(expected)
        ), simulator.tail()


def check_any_interleaving(data: st.DataObject) -> None:
    on = data.draw(st.sampled_from(PREDICATES))
    spec, left, right = data.draw(specs(on, both=(SCHEMA, SCHEMA), in_order=True))
    spec, left, right = numbered(spec, left, right)
    pushes = data.draw(arrivals(left, right))
    decisions = data.draw(st.binary(max_size=60))
    options = {"batch": data.draw(st.integers(1, 4)), "credit": data.draw(st.integers(1, 2))}
    order, workers = data.draw(st.sampled_from(ORDERS)), data.draw(st.integers(1, 4))
    topology, simulator = simulated(from_bytes(decisions), **options)
    registered, planner.TOPOLOGIES["panjoin"] = planner.TOPOLOGIES["panjoin"], topology
    try:
        with sj.open_join(spec, "panjoin", workers=workers, order=order, max_results=3) as join:
            for side in ("left", "right"):
                join.source(side, "")
            polls = iter(decisions)
            found = push_all(join, pushes, lambda: next(polls, 0) % 2 == 1)
            pairs = [pair for batch in [*found, join.finish()] for pair in pairs_of(batch)]
    finally:
        planner.TOPOLOGIES["panjoin"] = registered
    note(simulator.tail())
    expected = pairs_of(sj.oracle.join(left, right, spec))
    if order == "timestamp":
        assert pairs == expected
    else:
        assert sorted(pairs) == sorted(expected)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_join_under_any_interleaving(data):
    check_any_interleaving(data)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=10_000, deadline=None)
def test_any_join_under_ten_thousand_interleavings(data):
    check_any_interleaving(data)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", WINDOWS, ids=["time", "rows", "mixed"])
def test_threads_find_what_the_oracle_finds(window, order, workers):
    spec, left, right = numbered(spec_of(window), random_rows(600, 3), random_rows(500, 4))
    expected = pairs_of(sj.oracle.join(left, right, spec))
    with sj.open_join(spec, "panjoin", workers=workers, order=order, max_results=50) as join:
        found = push_all(join, cut(left, right, 40, 5), lambda: True)
        pairs = [pair for batch in [*found, join.finish()] for pair in pairs_of(batch)]
    assert (pairs if order == "timestamp" else sorted(pairs)) == (
        expected if order == "timestamp" else sorted(expected)
    )


def test_subwindows_are_dealt_in_turn_and_expire_whole(monkeypatch):
    topology, simulator = simulated(from_seed(3), smallest=4)
    monkeypatch.setitem(planner.TOPOLOGIES, "panjoin", topology)
    with sj.open_join(spec_of(sj.TimeWindow(10)), "panjoin", "bisort", workers=3) as join:
        for ts in range(0, 12, 2):
            join.push("left", rows([ts, ts + 1], [ts, ts]))
            join.push("right", rows([ts, ts + 1], [500, 500]))
        simulator.run(1000)
        join.poll()
        nodes = workers_of(join)
        assert [len(node.windows["left"]) for node in nodes] == [4, 4, 4]
        assert join.stats().left_window == 12
        join.push("right", rows([25], [0]))
        simulator.run(1000)
        join.poll()
        assert join.stats().left_window == 0, "no right tuple to come reaches back to 11"


def test_a_worker_without_opposite_subwindows_is_not_asked_to_probe(monkeypatch):
    topology, simulator = simulated(from_seed(3), smallest=100)
    monkeypatch.setitem(planner.TOPOLOGIES, "panjoin", topology)
    with sj.open_join(spec_of(sj.TimeWindow(10)), "panjoin", "scan", workers=4) as join:
        join.push("left", rows([1, 2], [1, 2]))
        join.push("right", rows([1, 2], [1, 2]))
        join.poll()
        simulator.run(1000)
        sent = {line.split(" <-")[0].strip() for line in simulator.trace if "<-" in line}
        assert sent == {"manager to worker 1", "manager to worker 2"}


@pytest.mark.parametrize(("credit", "waits"), [(1, True), (2, False)])
def test_the_next_command_is_sent_while_the_last_one_waits_for_its_worker(credit, waits, monkeypatch):
    topology, simulator = simulated(from_seed(3), credit=credit)
    monkeypatch.setitem(planner.TOPOLOGIES, "panjoin", topology)
    with sj.open_join(spec_of(sj.TimeWindow(10)), "panjoin", "scan", workers=1) as join:
        join.push("left", rows([1], [1]))
        join.push("right", rows([2], [1]))
        assert (simulator.steps > 0) == waits, (
            "a push waits for a worker only if it has no room for a command"
        )
        assert len(workers_of(join)[0].inlet) == (1 if waits else 2)
        assert join.finish().num_rows == 1


def test_an_error_in_a_worker_surfaces_and_stops_the_join(monkeypatch):
    with sj.open_join(spec_of(sj.TimeWindow(10)), "panjoin", "scan", workers=2) as join:
        for node in workers_of(join):
            monkeypatch.setattr(node, "_execute", raising)

        def use() -> None:
            join.push("left", rows([1], [1]))
            join.finish()

        with pytest.raises(ZeroDivisionError, match="in the worker") as caught:
            use()
        assert any("worker" in line for line in caught.value.__notes__)
        with pytest.raises(sj.StreamJoinError, match="in the worker"):
            join.push("left", rows([2], [1]))


def test_an_error_is_told_by_a_poll_when_nothing_more_is_pushed(monkeypatch):
    topology, simulator = simulated(from_seed(1))
    monkeypatch.setitem(planner.TOPOLOGIES, "panjoin", topology)
    with sj.open_join(spec_of(sj.TimeWindow(10)), "panjoin", "scan", workers=2) as join:
        join.push("left", rows([1], [1]))
        for node in workers_of(join):
            monkeypatch.setattr(node, "_execute", raising)
        with pytest.raises(ZeroDivisionError):
            simulator.run(10)
        with pytest.raises(ZeroDivisionError, match="in the worker"):
            join.poll()


def test_closing_ends_the_threads():
    with sj.open_join(spec_of(sj.TimeWindow(10)), "panjoin", workers=3) as join:
        join.push("left", rows([1], [1]))
        assert any(thread.name.startswith("worker") for thread in threading.enumerate())
    assert not any(thread.name.startswith("worker") for thread in threading.enumerate())
