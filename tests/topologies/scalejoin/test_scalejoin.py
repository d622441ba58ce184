"""ScaleJoin: the oracle's result under every interleaving, with the smallest bounds, on the simulator and on threads;
the same bytes whatever the workers, sources and paces; balanced work; errors that come out."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import handshake_runs
import streamjoin as sj
from handshake_runs import (
    EQUAL,
    ORDERS,
    SCHEMA,
    WINDOWS,
    check,
    check_large_join,
    numbers,
    pushes,
    small_tables,
    spec_of,
    table,
)
from strategies import arrivals, numbered, pairs_of, push_all, specs
from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.engine.join import Join
from streamjoin.index.tuples import ProbingTuples
from streamjoin.kernels.concurrent import gate as gate_kernels
from streamjoin.kernels.concurrent.gate import Gate
from streamjoin.kernels.stamping import INT64_MAX
from streamjoin.plan.tuning import DEFAULT_TUNING, ScaleJoinTuning
from streamjoin.topologies.runtime.simulator import Simulator, from_bytes, from_seed
from streamjoin.topologies.scalejoin import scalejoin, worker
from streamjoin.topologies.scalejoin.compiled_worker import CompiledWorker
from streamjoin.topologies.scalejoin.scalejoin import ScaleJoin
from streamjoin.topologies.scalejoin.worker import ScaleJoinWorker, SharedRows

BAND = "left.x BETWEEN right.x - 1 AND right.x + 1"


open_with = partial(handshake_runs.open_with, "scalejoin")


def check_interleaving(seed: int, **changes: Any) -> Join:
    """One small join, everything about it drawn from the seed: tables, window, order, index, workers, bounds, who steps
    when and how far."""
    draw = random.Random(seed)
    left, right = small_tables(seed)
    spec = spec_of(WINDOWS[draw.choice(list(WINDOWS))])
    order, index = draw.choice(ORDERS), draw.choice(["scan", "scan", "hash", "bisort"])
    simulator = Simulator(from_seed(seed), most=draw.randint(1, 4))
    bounds = {"capacity": draw.randint(1, 2), "waiting": draw.randint(0, 4)}
    options = {"index": index, "workers": draw.randint(1, 5), "order": order, **bounds, **changes}
    join: Join = open_with(spec, max_results=draw.choice([3, 1000]), executor=simulator, **options)
    check(Stepping(join, simulator, draw), spec, left, right, options["order"], seed, simulator)
    return join


class Stepping:
    """A join whose workers take some steps after every push, as they would on threads."""

    def __init__(self, join: Join, simulator: Simulator, draw: random.Random):
        self._join, self._simulator, self._draw = join, simulator, draw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._join, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._join.close()

    def push(self, *given: Any, **options: Any) -> None:
        self._join.push(*given, **options)
        self._simulator.run(self._draw.randrange(8))


@pytest.mark.parametrize("order", ORDERS)
def test_four_tuples_by_eye(order):
    left = pa.table({"ts": [1, 5], "x": [7, 7], "n": [0, 1]}, schema=SCHEMA)
    right = pa.table({"ts": [3, 9], "x": [7, 7], "n": [0, 1]}, schema=SCHEMA)
    for window, expected in (
        (sj.TimeWindow(2), [(0, 0), (1, 0)]),
        (sj.TimeWindow(4), [(0, 0), (1, 0), (1, 1)]),
        (sj.RowWindow(1), [(0, 0), (1, 0), (1, 1)]),
        (sj.RowWindow(left=2, right=0), [(0, 0), (0, 1), (1, 1)]),
    ):
        result = sj.join_tables(left, right, spec_of(window), "scalejoin", workers=2, order=order)
        assert sorted(numbers([result])) == expected, window


def test_each_tuple_is_stored_by_one_worker_in_turn():
    simulator = Simulator(from_seed(3))
    with open_with(spec_of(sj.TimeWindow(100)), workers=3, executor=simulator) as join:
        rows = pa.table({"ts": range(7), "x": [0] * 7, "n": range(7)}, schema=SCHEMA)
        join.push("left", rows)
        while simulator.run(1):
            pass
        workers: list[ScaleJoinWorker] = join._topology.workers
        windows = [worker.windows["left"] for worker in workers]
        assert [window.ids(np.arange(len(window))).tolist() for window in windows] == [
            [0, 3, 6],
            [1, 4],
            [2, 5],
        ]


def test_a_tuple_waits_for_the_slowest_source_if_the_output_is_sorted():
    simulator = Simulator(from_seed(1))
    with open_with(spec_of(sj.TimeWindow(9)), workers=2, order="timestamp", executor=simulator) as join:
        quick, slow = join.source("left", "quick"), join.source("left", "slow")
        one = pa.table({"ts": [5], "x": [0], "n": [0]}, schema=SCHEMA)
        quick.push(one)
        join.push("right", one)
        while simulator.run(1):
            pass
        assert numbers(join.poll()) == []
        slow.advance(6)  # as soon as nothing can precede them: the left tuple, then the right one
        while simulator.run(1):
            pass
        assert numbers(join.poll()) == []
        quick.advance(6)
        while simulator.run(1):
            pass
        assert numbers(join.poll()) == [(0, 0)]


@pytest.mark.parametrize("window", list(WINDOWS))
@pytest.mark.parametrize("index", ["scan", "hash", "bisort", "raptable", "wibtree", "auto"])
def test_every_window_and_index_equals_the_oracle(window, index):
    source = np.random.default_rng(5)
    left, right = table(source, 40, 25, 4), table(source, 40, 25, 4)
    spec = spec_of(WINDOWS[window])
    for number, order in enumerate(ORDERS):
        simulator = Simulator(from_seed(number))
        options = {"capacity": 2, "index": index, "workers": 1 + 2 * number, "order": order, "waiting": 3}
        check(open_with(spec, executor=simulator, **options), spec, left, right, order, number, simulator)


def test_hundreds_of_interleavings():
    for seed in range(250):
        check_interleaving(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_interleavings(part):
    for seed in range(1000 * part + 1000, 1000 * part + 2000):
        check_interleaving(seed)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_join_under_any_interleaving(data):
    """A failure shrinks to few tuples and few decisions of the scheduler, and prints what was done."""
    on = data.draw(st.sampled_from([EQUAL, BAND]))
    spec, left, right = data.draw(specs(on, both=(SCHEMA, SCHEMA), in_order=True))
    spec, left, right = numbered(spec, left, right)
    parts, decisions = data.draw(arrivals(left, right)), data.draw(st.binary(max_size=60))
    order, workers = data.draw(st.sampled_from(ORDERS)), data.draw(st.integers(1, 4))
    options = {"capacity": data.draw(st.integers(1, 2)), "waiting": data.draw(st.integers(0, 3))}
    simulator, polls = Simulator(from_bytes(decisions)), iter(decisions)

    def act() -> bool:
        decision = next(polls, 0)
        simulator.run(decision % 4)
        return decision % 2 == 1

    with open_with(spec, workers=workers, order=order, executor=simulator, **options) as join:
        for side in ("left", "right"):
            join.source(side, "")
        found = push_all(join, parts, act)
        pairs = [pair for batch in [*found, join.finish()] for pair in pairs_of(batch)]
    note(simulator.tail(200))
    expected = pairs_of(sj.oracle.join(left, right, spec))
    assert (pairs if order == "timestamp" else sorted(pairs)) == (
        expected if order == "timestamp" else sorted(expected)
    )


# ---- sources


def spread(rows: pa.Table, names: list[str], draw: random.Random) -> tuple[dict[str, pa.Table], pa.Table]:
    """Rows dealt to sources, and all of them in the total order: by time, then by the name of the source."""
    owner = [draw.choice(names) for _ in range(rows.num_rows)]
    parts = {
        name: rows.take(pa.array([n for n, o in enumerate(owner) if o == name], pa.int64())) for name in names
    }
    together = pa.concat_tables([parts[name] for name in sorted(names)])
    return parts, together.take(pa.array(np.argsort(together["ts"].to_numpy(), kind="stable")))


def run_sources(
    seed: int, window: Any, order: Any, **options: Any
) -> tuple[list[tuple[int, int]], sj.JoinSpec, Any]:
    """Sources of both sides push at random paces; some open late, with times that are not over yet, and all close when
    they have pushed all."""
    draw, rows = random.Random(seed), np.random.default_rng(seed)
    spec = spec_of(window)
    tables, expected = {}, {}
    waiting: dict[tuple[str, str], pa.Table] = {}
    for side in ("left", "right"):
        names = draw.sample("abcdef", draw.randint(1, 4))
        tables[side], expected[side] = spread(table(rows, 30, 20, 3), names, draw)
        waiting |= {(side, name): part for name, part in tables[side].items()}
    executor = options.get("executor")
    found = []
    with open_with(spec, order=order, **options) as join:
        # The first row of every source must not be late, so those that begin at once hold the others back.
        early = {key for key in waiting if draw.random() < 0.6} or set(waiting)
        early |= {min((k for k in waiting if k[0] == s), key=str) for s in tables}
        sources = {key: join.source(*key) for key in early}
        while waiting:
            key = draw.choice(list(waiting))
            if key not in sources:
                part = waiting[key]
                reached = max((int(s.newest) for s in sources.values() if np.isfinite(s.newest)), default=-1)
                begins = part["ts"][0].as_py() if part.num_rows else reached + 1
                if begins <= reached:  # it would be late: all of it comes with the ends of the others
                    dropped = set(part["n"].to_pylist())
                    side = expected[key[0]]
                    keep = [number not in dropped for number in side["n"].to_pylist()]
                    expected[key[0]] = side.filter(pa.array(keep))
                    del waiting[key]
                    continue
                sources[key] = join.source(*key)
            count = draw.randint(1, 6)
            sources[key].push(waiting[key].slice(0, count))
            waiting[key] = waiting[key].slice(count)
            if executor is not None:
                executor.run(draw.randrange(6))
            if draw.random() < 0.5:
                found += numbers(join.poll())
            if not waiting[key].num_rows:
                del waiting[key]
                sources[key].close()
        found += numbers([join.finish()])
        assert join.stats().late == 0
    return found, spec, expected


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", list(WINDOWS))
def test_sources_come_and_go(window, order):
    for seed in range(25):
        simulator = Simulator(from_seed(seed))
        options = {
            "workers": 1 + seed % 3,
            "capacity": 1 + seed % 2,
            "waiting": seed % 4,
            "executor": simulator,
        }
        found, spec, tables = run_sources(seed, WINDOWS[window], order, **options)
        expected = numbers([sj.oracle.join(tables["left"], tables["right"], spec)])
        if order == "timestamp":
            assert found == expected, (seed, simulator.tail())
        else:
            assert sorted(found) == sorted(expected), (seed, simulator.tail())


def test_a_silent_source_costs_memory_and_no_deadlock():
    spec = spec_of(sj.TimeWindow(5))
    with open_with(spec, workers=2, order="timestamp", capacity=1, waiting=1) as join:
        silent = join.source("right", "silent")
        for first in range(0, 3000, 100):
            ts = np.arange(first, first + 100)
            rows = pa.table({"ts": ts, "x": (ts % 3).astype(np.int32), "n": ts}, schema=SCHEMA)
            join.push("left", rows)
            join.push("right", rows)
        assert join.poll() == []
        silent.close()
        assert join.finish().num_rows > 3000


# ---- threads


class Yielding(ScaleJoinWorker):
    """A worker that lets others run at moments drawn from a seed."""

    def step(self, most: int) -> bool:
        moments = self.__dict__.setdefault("_moments", random.Random(self.number))
        if moments.random() < 0.3:
            time.sleep(moments.choice([0, 0, 1e-5]))
        return super().step(moments.choice([1, 3, most]))


class YieldingCompiled(CompiledWorker):
    """The same, compiled: it takes steps, as in the simulator, and waits in between."""

    def work(self) -> None:
        moments = self.__dict__.setdefault("_moments", random.Random(self.number))
        if moments.random() < 0.3:
            time.sleep(moments.choice([0, 0, 1e-5]))
        seen = self.bell.read()
        if moments.random() < 0.3:
            super().work()
        elif not self.step(moments.choice([1, 3, 4096])):
            self.bell.wait(seen)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
def test_threads_under_stress(workers, monkeypatch):
    monkeypatch.setattr(scalejoin, "ScaleJoinWorker", Yielding)
    monkeypatch.setattr(scalejoin, "CompiledWorker", YieldingCompiled)
    for seed in range(6):
        left, right = small_tables(seed + 100)
        window, order = random.Random(seed).choice(list(WINDOWS.values())), ORDERS[seed % 3]
        spec = spec_of(window)
        options = {"capacity": 1 + seed % 2, "waiting": seed, "order": order, "workers": workers}
        check(open_with(spec, max_results=5, **options), spec, left, right, order, seed)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", [sj.TimeWindow(300), sj.RowWindow(150)], ids=["time", "rows"])
@pytest.mark.parametrize("index", ["scan", "bisort"])
def test_large_joins_equal_those_of_one_thread(window, order, index):
    check_large_join("scalejoin", index, order, window)


def test_residual_conditions_are_checked_by_the_workers():
    schema = pa.schema({"ts": pa.int64(), "s": pa.string()})
    words = ["a", "ab", "b", "abc", None, "ba"]
    left = pa.table({"ts": range(300), "s": [words[n % 6] for n in range(300)]}, schema=schema)
    right = pa.table({"ts": range(0, 600, 2), "s": [words[n % 5] for n in range(300)]}, schema=schema)
    spec = sj.JoinSpec(
        schema, schema, "left.s < right.s AND left.ts <> right.ts", sj.TimeWindow(9), "ts", "ts"
    )
    found = sj.join_tables(left, right, spec, "scalejoin", workers=3, order="timestamp")
    assert found.equals(sj.oracle.join(left, right, spec)) and found.num_rows > 300


def test_comparisons_are_spread_evenly_whatever_the_keys():
    ts = np.arange(6000)
    skewed = pa.table({"ts": ts, "x": np.where(ts % 10, 0, ts).astype(np.int32), "n": ts}, schema=SCHEMA)
    with sj.open_join(
        spec_of(sj.TimeWindow(3000), on="left.x = right.x - 1"), "scalejoin", "scan", 4
    ) as join:
        for first in range(0, 6000, 500):
            for side in ("left", "right"):
                join.push(side, skewed.slice(first, 500))
        join.finish()
        loads = np.array(join.stats().worker_comparisons)
    assert len(loads) == 4 and loads.std() <= 0.001 * loads.mean()


# ---- bounds and faults


def test_windows_and_payload_stay_bounded_and_end_empty():
    for order in ORDERS:
        spec = spec_of(sj.TimeWindow(50))
        with open_with(spec, workers=2, order=order, waiting=100, max_results=100_000) as join:
            for first in range(0, 6000, 100):
                ts = np.arange(first, first + 100)
                rows = pa.table({"ts": ts, "x": (ts % 7).astype(np.int32), "n": ts}, schema=SCHEMA)
                for side in ("left", "right"):
                    join.push(side, rows)
                join.poll()
            running, nodes = join.stats(), join._topology._gate.size
            join.finish()
            last = join.stats()
        assert max(running.left_window, running.right_window) < 3000
        assert running.payload_rows < 11_000
        assert nodes == ScaleJoinTuning().capacity
        assert (last.left_window, last.right_window, last.buffered_results) == (0, 0, 0)


class Breaking(RuntimeError):
    pass


def push_and_poll(join: Join, parts: Any) -> None:
    """Push, then poll for ever: an error comes out though nothing more is pushed."""
    push_all(join, parts, lambda: False)
    while True:
        join.poll()


@pytest.mark.parametrize("order", ORDERS)
def test_an_error_in_a_worker_comes_out_of_push_or_poll_and_stops_the_rest(order, monkeypatch):
    class Broken(ScaleJoinWorker):
        def step(self, most: int) -> bool:
            if self.number == 1 and self._done > 3:
                raise Breaking("a worker broke")
            return super().step(most)

    class BrokenCompiled(CompiledWorker):
        def work(self) -> None:
            if self.number == 1 and self._joined > 3:
                raise Breaking("a worker broke")
            super().work()

    monkeypatch.setattr(scalejoin, "ScaleJoinWorker", Broken)
    monkeypatch.setattr(scalejoin, "CompiledWorker", BrokenCompiled)
    before = threading.active_count()
    spec, (left, right) = spec_of(sj.TimeWindow(5)), small_tables(7)
    with open_with(spec, order=order) as join:
        with pytest.raises((Breaking, sj.StreamJoinError)) as caught:
            push_and_poll(join, pushes(left, right, 7, 1))
        cause = caught.value if isinstance(caught.value, Breaking) else caught.value.__cause__
        assert isinstance(cause, Breaking)
        assert "scalejoin 1" in "".join(cause.__notes__)
        with pytest.raises(sj.StreamJoinError, match="stopped after an error"):
            join.push("left", left)
    assert threading.active_count() <= before


def test_a_join_that_nobody_uses_stops_its_threads():
    before = threading.active_count()
    join: Any = sj.open_join(spec_of(sj.TimeWindow(5)), "scalejoin", "scan", 3)
    join.push("left", small_tables(8)[0])
    assert threading.active_count() == before + 3
    gone = weakref.ref(join)
    del join
    gc.collect()
    assert gone() is None
    assert threading.active_count() == before


def test_rows_read_before_a_block_is_replaced_stay_valid():
    rows = SharedRows()

    def some(first: int, count: int) -> Any:
        numbers = np.arange(first, first + count)
        known = np.ones(count, np.bool_)
        stored, probing = Stored((numbers * 2,), known), Probing(known)
        return ProbingTuples(numbers, numbers, np.zeros(count, np.int32), stored, False, probing)

    assert rows.append(some(0, 1000)) == 0
    early = rows.pick(np.arange(10, 20))
    rows.release(500)
    assert rows.append(some(1000, 5000)) == 1000
    assert early.id.tolist() == list(range(10, 20))
    assert rows.pick(np.array([700, 4000, 501])).stored.columns[0].tolist() == [1400, 8000, 1002]


# ---- what each part is good for


def fails(**changes: Any) -> bool:
    """Whether some interleaving shows that something is wrong."""
    for seed in range(200):
        try:
            check_interleaving(seed, **changes)
        except Exception:  # a wrong result, or a window that is used wrongly
            return True
    return False


def test_without_the_ready_test_results_are_wrong(monkeypatch):
    def everything(self: Gate, source: int, first: int, second: int) -> None:
        gate_kernels.promise(self.table, source, INT64_MAX, INT64_MAX)

    monkeypatch.setattr(Gate, "promise", everything)
    assert fails()


def test_without_turns_in_storing_pairs_come_twice(monkeypatch):
    def everything(self: ScaleJoinWorker, side: str, tuples: Any, positions: Any) -> None:
        self._seen[side] += len(tuples)
        if len(tuples):
            self.windows[side].insert(tuples, np.zeros(1, np.int32))

    monkeypatch.setattr(ScaleJoinWorker, "_store", everything)
    assert fails()


def test_without_the_order_of_arrival_pairs_of_one_piece_come_twice(monkeypatch):
    monkeypatch.setattr(worker, "least_later_ids", lambda part, others: None)
    assert fails(order="any")


@pytest.mark.parametrize("index", ["scan", "bisort"])
def test_without_a_bell_after_news_a_worker_sleeps_on(index, monkeypatch):
    monkeypatch.setattr(ScaleJoin, "_ring", lambda self: None)
    assert fails(index=index, order="any")


def test_without_floors_windows_keep_everything(monkeypatch):
    monkeypatch.setattr(ScaleJoin, "_add_news", lambda self: None)
    with pytest.raises(AssertionError):
        test_windows_and_payload_stay_bounded_and_end_empty()


# ---- compiled workers


def test_compiled_workers_scan_where_tuples_join_at_once():
    time_window, rows = sj.TimeWindow(5), sj.RowWindow(5)
    for window, index, order, kind in (
        (time_window, "scan", "any", "scanning"),
        (time_window, "scan", "punctuated", "scanning"),
        (time_window, "scan", "timestamp", "interpreted"),
        (rows, "scan", "any", "interpreted"),
        (time_window, "hash", "any", "interpreted"),
    ):
        with open_with(spec_of(window), index=index, order=order) as join:
            assert join.plan.nodes.kind == kind
            kinds = {type(worker) for worker in join._topology.workers}
            assert kinds == {CompiledWorker if kind == "scanning" else ScaleJoinWorker}


def test_a_compiled_worker_compares_a_pair_once_however_it_cuts_the_entries():
    ts = np.arange(400)
    rows = pa.table({"ts": ts, "x": ts.astype(np.int32), "n": ts}, schema=SCHEMA)
    counts = set()
    for most in (1, 7, 4096):
        simulator = Simulator(from_seed(most), most=most)
        with open_with(spec_of(sj.TimeWindow(90)), workers=3, executor=simulator) as join:
            for first in range(0, 400, 10):
                for side in ("left", "right"):
                    join.push(side, rows.slice(first, 10))
            join.finish()
            counts.add(sum(join.stats().worker_comparisons))
    assert counts == {sum(abs(int(one) - int(other)) <= 90 for one in ts for other in ts)}


def test_compiled_workers_join_tuples_with_nulls_and_late_tuples():
    """Late tuples come between those that a worker holds; NULL matches nothing."""
    draw = random.Random(5)
    schema = pa.schema({"ts": pa.int64(), "x": pa.int32(), "n": pa.int64()})
    tables = []
    for _ in range(2):
        ts = sorted(draw.randrange(300) for _ in range(200))
        for at in range(0, 200, 3):
            ts[at] = max(0, ts[at] - draw.randrange(20))
        x = [draw.choice([None, 1, 2, 3]) for _ in ts]
        tables.append(pa.table({"ts": ts, "x": x, "n": range(200)}, schema=schema))
    spec = sj.JoinSpec(schema, schema, BAND, sj.TimeWindow(15), "ts", "ts", lateness=40)
    left, right = (rows.sort_by("ts") for rows in tables)
    expected = numbers([sj.oracle.join(left, right, spec)])
    for seed in range(20):
        simulator = Simulator(from_seed(seed), most=1 + seed % 5)
        with open_with(spec, workers=1 + seed % 4, executor=simulator) as join:
            found = []
            for first in range(0, 200, 20):
                for side, rows in zip(("left", "right"), tables, strict=True):
                    join.push(side, rows.slice(first, 20))
                    simulator.run(draw.randrange(6))
                found += numbers(join.poll())
            assert join.plan.nodes.kind == "scanning" and join.stats().late == 0
            found += numbers([join.finish()])
        assert sorted(found) == sorted(expected), simulator.tail()


def test_a_compiled_worker_waits_while_its_outbox_is_full():
    ts = np.zeros(60, np.int64)
    rows = pa.table({"ts": ts, "x": ts.astype(np.int32), "n": np.arange(60)}, schema=SCHEMA)
    tuning = replace(DEFAULT_TUNING, scalejoin=ScaleJoinTuning(compiled_waiting_pairs=7, fewest_rows=2))
    for seed in range(5):
        simulator = Simulator(from_seed(seed))
        with open_with(
            spec_of(sj.TimeWindow(5)), workers=2, executor=simulator, tuning=tuning, max_results=4_000
        ) as join:
            join.push("left", rows)
            join.push("right", rows)
            assert join.finish().num_rows == 3_600
