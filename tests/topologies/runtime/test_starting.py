"""Threads that start, wait for each other, and end: interrupts while they start, and what is logged about long
waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamjoin.kernels.pairs import PairBuffer
from streamjoin.topologies.runtime import waiting
from streamjoin.topologies.runtime.node import Bell, Channel
from streamjoin.topologies.runtime.team import ThreadTeam
from streamjoin.topologies.runtime.threads import Threads, WorkerThread


class Slow:
    """A node that takes a while for every message, and rings the driver."""

    def __init__(self, driver: Bell, seconds: float):
        self.name, self.bell, self._driver, self._seconds = "slow", Bell(), driver, seconds
        self.inlet: Channel[str] = Channel("driver to slow", 4, driver, self.bell)
        self.done = 0

    def step(self, most: int) -> bool:
        if self.inlet.take() is None:
            return False
        time.sleep(self._seconds)
        self.done += 1
        self._driver.ring()
        return True


@pytest.fixture
def soon(monkeypatch):
    """Log waits after a moment."""
    monkeypatch.setattr(waiting, "SILENT", 0.05)


def wait_for(executor: Threads, driver: Bell, node: Slow, messages: int) -> None:
    while True:
        seen = driver.read()
        if node.done == messages:
            return
        executor.wait(seen)


def test_a_driver_that_waits_for_threads_says_so(soon, caplog):
    driver, executor = Bell(), Threads()
    node = Slow(driver, 0.3)
    executor.start([node], [node.inlet], driver)
    node.inlet.put("message")
    wait_for(executor, driver, node, 1)
    executor.stop()
    assert "its worker threads are still comparing tuples" in caplog.text


def test_waits_with_a_pause_between_them_are_not_one(soon, caplog):
    driver, executor = Bell(), Threads()
    node = Slow(driver, 0.03)
    executor.start([node], [node.inlet], driver)
    for number in range(1, 4):
        node.inlet.put("message")
        wait_for(executor, driver, node, number)
        executor.wait(driver.read())  # nobody rings
        time.sleep(0.15)
    executor.stop()
    assert caplog.text == ""


def test_who_stops_threads_says_that_it_waits_for_them(soon, caplog):
    driver, executor = Bell(), Threads()
    node = Slow(driver, 0.3)
    executor.start([node], [node.inlet], driver)
    node.inlet.put("message")
    time.sleep(0.05)
    executor.stop()
    assert "worker thread slow has not ended yet" in caplog.text


@pytest.mark.parametrize("give_up", [False, True])
def test_a_team_says_that_it_waits_for_a_thread(soon, caplog, give_up):
    def quick(_: PairBuffer) -> Iterator[int]:
        yield 0
        if give_up:
            raise ValueError("given up")

    def slow(_: PairBuffer) -> Iterator[int]:
        time.sleep(0.3)
        yield 0

    team = ThreadTeam(2)
    try:
        list(team.share([quick, slow], PairBuffer()))
    except ValueError:
        assert give_up
    team.close()
    assert "worker thread streamjoin-probe-1 is still comparing tuples" in caplog.text


# ---- interrupts while threads start


def interrupted_start(number: int, started: bool) -> Callable[[threading.Thread], None]:
    """A `Thread.start` that is interrupted at the thread of that number, before or after it runs."""
    start, calls = threading.Thread.start, iter(range(1_000))

    def interrupted(thread: threading.Thread) -> None:
        last = next(calls) == number
        if not last or started:
            start(thread)
        if last:
            raise KeyboardInterrupt

    return interrupted


@pytest.mark.parametrize("started", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_threads_whose_start_was_interrupted_can_be_stopped(number, started, monkeypatch):
    driver, executor = Bell(), Threads()
    nodes = [Slow(driver, 0) for _ in range(3)]
    monkeypatch.setattr(WorkerThread, "start", interrupted_start(number, started))
    with pytest.raises(KeyboardInterrupt):
        executor.start(nodes, [], driver)
    executor.stop()
    assert workers() == []


@pytest.mark.parametrize("started", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_team_whose_start_was_interrupted_can_be_closed(number, started, monkeypatch):
    team = ThreadTeam(4)
    monkeypatch.setattr(WorkerThread, "start", interrupted_start(number, started))
    with pytest.raises(KeyboardInterrupt):
        list(team.share([lambda _: iter([0])] * 4, PairBuffer()))
    team.close()
    assert workers() == []


def test_a_thread_that_starts_after_its_crew_was_stopped_ends_by_itself(monkeypatch):
    """An interrupt may come when the system has made the thread, and before it has run."""
    late: list[threading.Thread] = []
    driver, executor = Bell(), Threads()
    node = Slow(driver, 0)
    start = threading.Thread.start
    node.inlet.put("message")

    def not_yet(thread: threading.Thread) -> None:
        late.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(WorkerThread, "start", not_yet)
    with pytest.raises(KeyboardInterrupt):
        executor.start([node], [node.inlet], driver)
    executor.stop()
    start(late[0])
    late[0].join(10)
    assert not late[0].is_alive()
    assert node.done == 0


def workers() -> list[Any]:
    return [thread for thread in threading.enumerate() if isinstance(thread, WorkerThread)]
