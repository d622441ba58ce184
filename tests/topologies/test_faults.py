"""What every topology with threads guarantees when something goes wrong, and how many workers it can have."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import SCHEMA, numbers, open_with, small_tables, spec_of
from strategies import open_tuned
from streamjoin.codegen.blocks import Pace
from streamjoin.index.structures.bisort import BISortSubwindow
from streamjoin.kernels.concurrent import scanning_node as kernel
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.options import TOPOLOGY_NAMES
from streamjoin.plan.tuning import Tuning, WindowTuning
from streamjoin.topologies import celljoin
from streamjoin.topologies.handshake.scanning_node import ScannedStore
from streamjoin.topologies.matching import Found
from streamjoin.topologies.runtime.node import Bell, Channel, Node
from streamjoin.topologies.runtime.simulator import Simulator, from_seed
from streamjoin.topologies.runtime.threads import MESSAGES, Threads

THREADED = ["celljoin", "panjoin", "scalejoin"]


class Interrupt(BaseException):
    """Like KeyboardInterrupt, which pytest would take for its own."""


SHARED = Tuning(window=WindowTuning(shared_comparisons=1))  # every part of a scan is worth a worker


class Interrupted(Threads):
    """Threads whose nodes do nothing, so that the driver has to wait; and an interrupt while it does."""

    def start(self, nodes: Sequence[Node], channels: Sequence[Channel[Any]], driver: Bell) -> None:
        for node in nodes:
            node.step = lambda most: False  # type: ignore[method-assign]
        super().start(nodes, channels, driver)

    def wait(self, seen: int) -> None:
        raise Interrupt


@pytest.mark.parametrize("topology", THREADED)
def test_an_interrupt_of_a_waiting_driver_stops_the_join_and_its_threads(topology):
    before, (left, right) = threading.active_count(), small_tables(7)

    def use(join: sj.Join) -> None:
        join.push("left", left)
        join.push("right", right)
        join.finish()

    options = {"workers": 2, "executor": Interrupted(), "tuning": SHARED}
    with open_with(topology, spec_of(sj.TimeWindow(50)), **options) as join:
        with pytest.raises(Interrupt):
            use(join)
        assert threading.active_count() == before + 2
        with pytest.raises(sj.StreamJoinError, match="stopped after an error: Interrupt"):
            join.poll()
    assert threading.active_count() == before


def odd(left: Any, right: Any) -> Any:
    return (left.n + right.n) % 2 == 1


@pytest.mark.parametrize("topology", ["panjoin", "scalejoin"])
def test_a_worker_that_is_to_stop_leaves_a_scan_by_a_slow_function_in_the_middle(topology, monkeypatch):
    """A comparison a call, as with a function that takes long; the bell is stopped after the third."""
    rows = pa.table({"ts": range(20), "x": [0] * 20, "n": range(20)}, schema=SCHEMA)
    calls: list[float] = []
    with open_with(
        topology, spec_of(sj.TimeWindow(50), odd), workers=1, executor=Simulator(from_seed(1))
    ) as join:
        running: Any = join._topology
        (node,) = running.nodes if topology == "panjoin" else running.workers

        def took(self: Pace, seconds: float, left: int) -> None:
            calls.append(seconds)
            if len(calls) == 3:
                node.bell.stop()

        monkeypatch.setattr(Pace, "took", took)
        join.push("left", rows)
        join.push("right", rows)  # there are hundreds of pairs to look at now
        for _ in range(2):
            node.step(MESSAGES)
        assert 3 <= len(calls) <= 4


@pytest.mark.parametrize("order", ["any", "timestamp"])
@pytest.mark.parametrize(("topology", "workers"), [*((name, 1) for name in TOPOLOGY_NAMES), ("celljoin", 2)])
def test_a_close_by_another_thread_ends_a_step_by_a_slow_function(topology, workers, order, monkeypatch):
    """One comparison per call. From the third on, the function runs until its thread gets the order to stop."""
    rows = pa.table({"ts": range(20), "x": [0] * 20, "n": range(20)}, schema=SCHEMA)
    calls, reached = list[float](), threading.Event()
    join = open_tuned(SHARED, spec_of(sj.TimeWindow(50), odd), topology, "scan", workers=workers, order=order)
    running: Any = join._topology
    if workers == 1 and topology in ("three_step", "celljoin"):
        bells = [running.found]  # the thread that pushes does it all
    elif topology == "celljoin":
        bells = [node.bell for node in running._cores.nodes]
    else:
        bells = [node.bell for node in getattr(running, "nodes", None) or running.workers]

    def took(self: Pace, seconds: float, left: int) -> None:
        calls.append(seconds)
        if len(calls) >= 3:
            reached.set()
            until(lambda: all(bell.stopped for bell in bells))

    monkeypatch.setattr(Pace, "took", took)
    pusher = threading.Thread(target=push_and_finish, args=(join, rows), daemon=True)
    pusher.start()
    assert reached.wait(60)
    join.close()
    pusher.join(60)
    assert not pusher.is_alive()
    assert 3 <= len(calls) <= 4 + workers  # of 400
    assert join.stats().left_window == join.stats().right_window == 0


def until(condition: Callable[[], bool]) -> None:
    """Wait for it, a minute at most."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)


def push_and_finish(join: sj.Join, rows: pa.Table) -> None:
    with contextlib.suppress(sj.ClosedError):
        join.push("left", rows)
        join.push("right", rows)
        join.finish()


def test_a_driver_whose_join_is_closed_does_not_wait_for_its_cores():
    found, pairs = Bell(), PairBuffer()
    cores = celljoin.Cores(2, Threads(), found, 1 << 18)
    found.stop()
    assert next(cores.share([endless, endless], pairs)) == 0
    cores.clear()


def endless(pairs: PairBuffer) -> Iterator[int]:
    while True:
        yield pairs.count


def test_a_scanner_that_is_to_stop_leaves_its_part_in_the_middle():
    node, stretches = celljoin.Scanner(0, Bell(), 1 << 18), []

    def part(pairs: PairBuffer) -> Iterator[int]:
        while True:
            stretches.append(pairs.count)
            if len(stretches) == 3:
                node.bell.stop()
            yield 0

    node.inlet.put(part)
    node.step(MESSAGES)
    assert len(stretches) == 3


FIRST_PUSH = f"""
import numba.core.dispatcher as dispatcher, pyarrow as pa, streamjoin as sj

schema = pa.schema({{"ts": pa.int64(), "x": pa.int32(), "n": pa.int64()}})
rows = pa.table({{"ts": range(300), "x": [0] * 300, "n": range(300)}}, schema=schema)
compiled, compile = [], dispatcher.Dispatcher.compile


def recorded(self, signature):
    known = len(self.overloads)
    entry_point = compile(self, signature)
    compiled.extend([self.py_func.__qualname__] * (len(self.overloads) - known))
    return entry_point


for topology in {list(TOPOLOGY_NAMES)}:
    for index, order in (("scan", "any"), ("bisort", "timestamp")):
        on = "left.x BETWEEN right.x - 1 AND right.x + 1"
        spec = sj.JoinSpec(schema, schema, on, sj.TimeWindow(300), "ts", "ts")
        with sj.open_join(spec, topology, index, 2, order) as join:
            dispatcher.Dispatcher.compile = recorded
            for at in range(0, 300, 20):
                join.push("left", rows.slice(at, 20))
                join.push("right", rows.slice(at, 20))
            assert join.finish().num_rows == 300 * 300
            dispatcher.Dispatcher.compile = compile
            if compiled:
                print(topology, index, order, compiled)
                compiled.clear()
"""


def test_a_push_compiles_nothing():
    """In a fresh process; PanJoin with pairs first, and then, since hundreds match a tuple, with records."""
    done = subprocess.run([sys.executable, "-c", FIRST_PUSH], capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


@pytest.mark.parametrize("workers", [1, 7, 64])
@pytest.mark.parametrize("topology", list(TOPOLOGY_NAMES))
def test_any_number_of_workers(topology, workers):
    before, (left, right) = threading.active_count(), small_tables(11)
    for window in (sj.TimeWindow(5), sj.RowWindow(4)):
        spec = spec_of(window)
        found = sj.join_tables(left, right, spec, topology, "scan", workers, "timestamp")
        assert numbers([found]) == numbers([sj.oracle.join(left, right, spec)])
    assert threading.active_count() == before


@pytest.mark.parametrize("topology", list(TOPOLOGY_NAMES))
def test_a_watermark_may_lie_below_all_times(topology):
    left, right = (pa.table({"ts": [-(2**63)], "x": [0], "n": [0]}, schema=SCHEMA) for _ in range(2))
    spec = dataclasses.replace(spec_of(sj.TimeWindow(5)), lateness=3)
    found = sj.join_tables(left, right, spec, topology, "scan", 1, "timestamp")
    assert numbers([found]) == numbers([sj.oracle.join(left, right, spec)]) == [(0, 0)]


@pytest.mark.parametrize("order", ["any", "punctuated", "timestamp"])
@pytest.mark.parametrize("topology", list(TOPOLOGY_NAMES))
def test_a_promise_may_be_the_last_of_all_times_and_no_later(topology, order):
    rows = pa.table({"ts": [2**63 - 2], "x": [0], "n": [5]}, schema=SCHEMA)
    with sj.open_join(spec_of(sj.TimeWindow(5)), topology, "scan", 1, order) as join:
        sources = [join.source(side, "") for side in ("left", "right")]
        for source in sources:
            source.push(rows)
        for source in sources:
            with pytest.raises(sj.InputError, match="does not fit 64 signed bits"):
                source.advance(2**63)
            source.advance(2**63 - 1)
        for source in sources:
            source.push(rows.set_column(0, "ts", pa.array([2**63 - 1], pa.int64())))
        found = numbers([*join.poll(), join.finish()])
    assert found == [(5, 5)] * 4


@pytest.mark.parametrize(
    "on",
    ["abs(left.x % left.n - right.x) <= 3", "abs(left.x - right.x % right.n) <= 3"],
    ids=["left", "right"],
)
@pytest.mark.parametrize("topology", list(TOPOLOGY_NAMES))
def test_keys_that_are_null_by_arithmetic_meet_nothing(topology, on):
    rows = pa.table({"ts": [0, 1], "x": [5, 6], "n": [0, 4]}, schema=SCHEMA)
    spec = spec_of(sj.TimeWindow(9), on)
    found = sj.join_tables(rows, rows, spec, topology, "scan", 1)
    assert sorted(numbers([found])) == sorted(numbers([sj.oracle.join(rows, rows, spec)]))
    assert found.num_rows == 1


@pytest.mark.parametrize("topology", ["handshake", "low_latency_handshake"])
def test_no_more_is_collected_while_results_wait(topology, monkeypatch):
    collected = []
    with open_with(
        topology, spec_of(sj.TimeWindow(9)), workers=1, executor=Simulator(from_seed(1)), max_results=10
    ) as join:
        chain: Any = join._topology
        chain._collector.add(Found({"left": np.arange(3), "right": np.arange(3)}, {}))
        monkeypatch.setattr(chain, "_collect", lambda: collected.append("once"))
        assert [len(chain.step(most).left) for most in (1, 2)] == [1, 2] and not collected
        assert len(chain.step(1).left) == 0 and collected == ["once"]


def test_sizes_of_compiled_nodes_are_never_below_nothing():
    words = np.zeros(64, np.int64)
    words[kernel.STORE_BEGIN], words[kernel.STORE_VISIBLE] = (
        3,
        2,
    )  # as they may be seen while the node moves both
    assert len(ScannedStore(0, words, cast(Any, None), cast(Any, None), 1)) == 0


def test_sizes_can_be_asked_while_a_worker_changes_its_windows(monkeypatch):
    """A subwindow disappears while its neighbours are read, as may happen on a thread."""
    tuning = Tuning(window=WindowTuning(smallest_subwindow=4))
    rows = pa.table({"ts": range(40), "x": [0] * 40, "n": range(40)}, schema=SCHEMA)
    with open_with(
        "scalejoin",
        spec_of(sj.TimeWindow(100)),
        index="bisort",
        workers=1,
        executor=Simulator(from_seed(1)),
        tuning=tuning,
    ) as join:
        topology: Any = join._topology
        join.push("left", rows)
        topology._executor.run(100)
        window = topology.workers[0].windows["left"]
        assert len(window.links) > 3

        def dropping(self: BISortSubwindow) -> int:
            if len(window.links) > 2:
                window._drop_first()
            return 1

        with monkeypatch.context() as patch:
            patch.setattr(BISortSubwindow, "nbytes", property(dropping))
            assert join.stats().window_bytes > 0
        assert len(window.links) == 2
