"""Nodes on threads and under the simulator: work is done, errors surface, stopping is clean."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from streamjoin.kernels.pairs import PairBuffer
from streamjoin.topologies.runtime import placement
from streamjoin.topologies.runtime.node import Bell, Channel, Outbox
from streamjoin.topologies.runtime.simulator import Simulator, Stuck, from_bytes, from_seed
from streamjoin.topologies.runtime.team import ThreadTeam
from streamjoin.topologies.runtime.threads import Threads


class Incrementer:
    """Takes numbers from one channel and puts their successors into the next, or into an outbox."""

    def __init__(self, name):
        self.name, self.bell = name, Bell()
        self.source: Any = None
        self.target: Any = None
        self.outbox: Any = None
        self.held = self.refused = None

    def __str__(self):
        return f"holds {self.held}"

    def step(self, most):
        busy = False
        for _ in range(most):
            if self.held is None:
                message = self.source.take()
                if message is None:
                    return busy
                if message == self.refused:
                    raise ValueError(f"{message} is refused")
                self.held, busy = message + 1, True
            if self.outbox is not None:
                if self.outbox.room <= 0:
                    return busy
                self.outbox.put(1, self.held)
            elif not self.target.put(self.held):
                return busy
            self.held, busy = None, True
        return busy


class Chain:
    """`length` incrementers one after the other, fed and drained by the driver."""

    def __init__(self, length, capacity, executor):
        self.driver, self.executor = Bell(), executor
        self.nodes = [Incrementer(f"incrementer {n}") for n in range(length)]
        bells = [self.driver, *(node.bell for node in self.nodes)]
        self.channels: list[Channel[int]] = [
            Channel(f"c{n}", capacity, bells[n], bells[n + 1]) for n in range(length)
        ]
        for node, source, target in zip(self.nodes, self.channels, [*self.channels[1:], None], strict=True):
            node.source, node.target = source, target
        self.outbox: Outbox[int] = Outbox(capacity, self.nodes[-1].bell, self.driver)
        self.nodes[-1].outbox = self.outbox
        executor.start(self.nodes, self.channels, self.driver)

    def run(self, numbers):
        results: list[int] = []
        at = 0
        while len(results) < len(numbers):
            seen = self.driver.read()
            busy = False
            if at < len(numbers) and self.channels[0].put(numbers[at]):
                at, busy = at + 1, True
            item = self.outbox.take()
            if item is not None:
                results.append(item)
                busy = True
            if not busy:
                self.executor.wait(seen)
        return results


@pytest.mark.parametrize("length", [1, 2, 5, 64])
@pytest.mark.parametrize("capacity", [1, 2, 100])
def test_a_chain_of_threads_passes_everything_on_in_order(length, capacity):
    chain = Chain(length, capacity, Threads())
    try:
        assert chain.run(range(100)) == [number + length for number in range(100)]
    finally:
        chain.executor.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("incrementer")]


@pytest.mark.parametrize("capacity", [1, 2])
def test_a_chain_under_the_simulator_passes_everything_on_in_order(capacity):
    for seed in range(50):
        assert Chain(4, capacity, Simulator(from_seed(seed))).run(range(20)) == [n + 4 for n in range(20)]


def test_the_simulator_repeats_a_run_from_its_seed():
    traces = []
    for seed in (1, 1, 2):
        chain = Chain(3, 2, Simulator(from_seed(seed)))
        chain.run(range(10))
        traces.append(chain.executor.trace)
    assert traces[0] == traces[1] != traces[2]
    assert any("c1 <- " in line for line in traces[0]) and any(
        "incrementer 2: holds" in line for line in traces[0]
    )


def test_decisions_by_bytes_end_in_fair_turns():
    choose = from_bytes(bytes([5, 1]))
    assert [choose(3) for _ in range(6)] == [2, 1, 0, 1, 2, 0]


def test_a_bell_that_nobody_rings_leaves_the_simulator_stuck():
    chain = Chain(2, 1, Simulator(from_seed(0)))
    chain.channels[1]._consumer = Bell()  # the message arrives, and its taker sleeps on
    with pytest.raises(Stuck, match="c1 <- "):
        chain.run([1])


@pytest.mark.parametrize("make", [Threads, lambda: Simulator(from_seed(0))])
def test_an_error_of_a_node_comes_out_with_its_traceback_and_stops_the_rest(make):
    chain = Chain(3, 2, make())
    chain.nodes[1].refused = 3
    with pytest.raises(ValueError, match="3 is refused") as caught:
        chain.run([0, 1, 2, 3])
    assert "step" in [entry.name for entry in caught.traceback]
    assert "incrementer 1" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="3 is refused"):
        chain.executor.check()
    chain.executor.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("incrementer")]


def test_stopping_twice_is_harmless_and_so_is_stopping_before_the_start():
    Threads().stop()
    chain = Chain(2, 1, Threads())
    chain.executor.stop()
    chain.executor.stop()


def test_threads_end_when_nobody_holds_them_any_more():
    chain = Chain(2, 1, Threads())
    threads, gone = chain.executor._crew._threads.copy(), weakref.ref(chain.executor)
    del chain
    gc.collect()
    assert gone() is None
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_an_interrupt_of_the_driver_reaches_it_while_it_waits(monkeypatch):
    chain = Chain(1, 1, Threads())
    waited = []

    def interrupt(seen, patience):
        waited.append(patience)
        raise KeyboardInterrupt

    monkeypatch.setattr(chain.driver, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        chain.executor.wait(chain.driver.read())
    assert waited[0] <= 100_000  # microseconds in compiled code, where no signal is handled
    chain.executor.stop()


def test_a_team_gives_up_the_other_parts_when_one_fails():
    def failing(pairs):
        yield from ()
        raise ValueError("refused")

    def long(pairs):
        for _ in range(10_000_000):
            yield pairs.count
        through.append("all")

    team, through = ThreadTeam(2), list[str]()
    with pytest.raises(ValueError, match="refused"):
        list(team.share([failing, long], PairBuffer()))
    team.close()
    assert not through
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("streamjoin-probe")]


def endless(pairs):
    while True:
        yield pairs.count


def short(pairs):
    yield pairs.count


def failing(pairs):
    yield from ()
    raise ValueError("refused")


@pytest.mark.parametrize("parts", [[endless, failing], [short, endless, failing], [short, failing, endless]])
def test_a_team_does_not_wait_for_other_parts_when_a_thread_fails(parts):
    team = ThreadTeam(3)
    with pytest.raises(ValueError, match="refused"):
        list(team.share(parts, PairBuffer()))
    pairs = PairBuffer()
    assert set(team.share([short, short, short], pairs)) == {0}  # and is as good as new
    team.close()


def test_a_caller_that_is_to_stop_need_not_wait_for_the_threads_of_its_team():
    caller = Bell()
    team = ThreadTeam(2, caller)
    stretches = team.share([short, endless], PairBuffer())
    assert next(stretches) == 0
    caller.stop()
    assert next(stretches) == 0  # though the other thread has no result, and never will
    team.close()  # while the part is under way, as after an interrupt
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("streamjoin-probe")]


def test_an_outbox_counts_rows_and_takes_an_item_that_exceeds_its_room():
    node, driver = Bell(), Bell()
    outbox: Outbox[str] = Outbox(3, node, driver)
    outbox.put(2, "a")
    outbox.put(5, "b")
    assert (outbox.rows, outbox.room, outbox.first()) == (7, -4, "a")
    assert driver.read() == 2 and node.read() == 0
    assert [outbox.take(), outbox.take(), outbox.take()] == ["a", "b", None]
    assert outbox.room == 3 and node.read() == 2
    outbox.put(2, "c")
    outbox.take()
    assert node.read() == 2  # a node that had room does not wait for it


def test_cores_of_one_numa_node_come_together(tmp_path, monkeypatch):
    for node, cpus in {"node0": "0-1,4", "node1": "2-3\n", "node10": "6", "node2": "5,7"}.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(cpus)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 3, 4, 5, 6}, raising=False)
    assert placement.usable_cores(tmp_path) == [[0, 4], [2, 3], [5], [6]]
    assert placement.usable_cores(Path("/nonexistent")) == [[0, 2, 3, 4, 5, 6]]
    # One worker a core while one core is left; else any core of the NUMA node.
    assert placement.allotted_cores(5, tmp_path) == [{0}, {4}, {2}, {3}, {5}]
    assert placement.allotted_cores(7, tmp_path) == [{0, 4}, {0, 4}, {2, 3}, {2, 3}, {5}, {6}, {0, 4}]


@pytest.mark.parametrize(("text", "numbers"), [("", []), ("3", [3]), ("0-2,8,10-11\n", [0, 1, 2, 8, 10, 11])])
def test_lists_of_cores_are_read(text, numbers):
    assert placement.parse(text) == numbers
