"""Which threads wait for room in the result buffer: never one for which no other thread could make room."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from strategies import open_tuned
from streamjoin.plan.options import TOPOLOGY_NAMES
from streamjoin.plan.tuning import DEFAULT_TUNING, EngineTuning, Tuning
from streamjoin.topologies.runtime import waiting

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
SECONDS = 60  # seconds: far longer than any test takes; only a hang waits this long
FIRST_POLL = DEFAULT_TUNING.engine.first_poll
AT_ONCE = FIRST_POLL / 2  # seconds: shorter than any wait


def spec_of() -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")


def open_waiting(first_poll: float) -> sj.Join:
    """A join with room for two results, whose pushes wait so long for a first poll."""
    join: sj.Join = open_tuned(Tuning(engine=EngineTuning(first_poll=first_poll)), spec_of(), max_results=2)
    return join


def alike(count: int, ts: int = 1) -> pa.RecordBatch:
    """Rows that all match each other."""
    return pa.record_batch([np.full(count, ts), np.full(count, 7, np.int32)], schema=SCHEMA)


def within(call: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """What a call returns or raises in its own thread; fails if that takes longer."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, f"the call takes longer than {seconds} seconds"
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def count_polled(join: sj.Join) -> int:
    """Poll until nothing comes."""
    count = 0
    while batches := join.poll():
        count += sum(batch.num_rows for batch in batches)
    return count


# ---- one thread


@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_a_push_does_not_wait_for_room_for_its_own_results(topology):
    """More results than max_results, from one thread with default options: the push returns, nothing is lost."""

    def use() -> tuple[int, int]:
        with sj.open_join(spec_of(), topology) as join:
            join.push("left", alike(1_100))
            join.push("right", alike(1_100))
            held = join.stats().buffered_results
            return held, join.finish().num_rows

    held, found = within(use)
    assert held <= 1_000_000
    assert found == 1_100 * 1_100


@pytest.mark.parametrize("order", ["any", "punctuated", "timestamp"])
@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_one_thread_that_polls_when_it_is_told_to_loses_nothing(topology, order):
    """Each push has more results than fit; the buffer is never exceeded."""
    rounds, each = 5, 40

    def use() -> int:
        found = 0
        with sj.open_join(spec_of(), topology, order=order, max_results=100, workers=2) as join:
            assert join.poll() == []  # the join knows from here that this thread polls
            for ts in range(1, rounds + 1):
                for side in ("left", "right"):
                    while True:
                        try:
                            join.push(side, alike(each, 100 * ts))
                            break
                        except sj.Backpressure:
                            assert join.stats().buffered_results <= 100
                            found += sum(batch.num_rows for batch in join.poll())
            return found + int(join.finish().num_rows)

    assert within(use) == rounds * each * each


def test_the_only_thread_of_a_program_is_refused_at_once_and_not_left_to_wait():
    """In its own process, because other threads run in this one."""
    program = """
import time
import pyarrow as pa
import streamjoin as sj

schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
rows = pa.table({"ts": [1] * 20, "x": [7] * 20}, schema=schema)
spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
with sj.open_join(spec, "TOPOLOGY", max_results=10, workers=2) as join:
    join.push("left", rows)
    join.push("right", rows)
    while True:  # until the first results are there: with threads that is in a moment
        start = time.perf_counter()
        try:
            join.push("left", rows.slice(0, 0))
        except sj.Backpressure as error:
            print(f"{time.perf_counter() - start:.3f} {error}")
            break
    print(join.finish().num_rows)
"""
    for topology in ("three_step", "scalejoin"):
        text = program.replace("TOPOLOGY", topology)
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, timeout=4 * SECONDS, check=True
        )
        refused, found = done.stdout.splitlines()
        seconds, message = refused.split(" ", 1)
        assert float(seconds) < AT_ONCE
        assert "no other thread runs that could poll" in message
        assert "poll until it gives nothing, then push again" in message
        assert found == "400"


def test_the_only_thread_that_polls_is_refused_at_once():
    def use() -> float:
        with sj.open_join(spec_of(), max_results=2) as join:
            join.push("left", alike(2))
            join.poll()
            join.push("right", alike(2))
            start = time.perf_counter()
            with pytest.raises(
                sj.Backpressure, match=r"2 result rows wait.*only one that polls.*nothing.*taken"
            ):
                join.push("left", alike(1))
            assert join.stats().left_tuples == 2
            return time.perf_counter() - start

    assert within(use) < AT_ONCE


def test_a_thread_that_nobody_has_polled_for_is_refused_after_two_seconds():
    def use() -> float:
        with sj.open_join(spec_of(), max_results=2) as join:
            join.push("left", alike(2))
            join.push("right", alike(2))
            start = time.perf_counter()
            with pytest.raises(sj.Backpressure, match="no other thread polls"):
                join.push("left", alike(1))
            assert count_polled(join) == 4
            return time.perf_counter() - start

    assert FIRST_POLL <= within(use) < FIRST_POLL + AT_ONCE


def test_a_push_with_a_timeout_that_is_taken_returns_at_once():
    with sj.open_join(spec_of(), max_results=2) as join:
        join.push("left", alike(2))
        start = time.perf_counter()
        join.push("right", alike(2), timeout=SECONDS)
        assert time.perf_counter() - start < AT_ONCE
        assert join.stats().buffered_results == 2
        assert count_polled(join) == 4


# ---- several threads


def polled_once(join: sj.Join) -> threading.Event:
    """Let another thread poll once, and stay until the event is set."""
    leave, has_polled = threading.Event(), threading.Event()

    def poll() -> None:
        join.poll()
        has_polled.set()
        leave.wait(SECONDS)

    threading.Thread(target=poll, daemon=True).start()
    has_polled.wait(SECONDS)
    return leave


def test_a_push_waits_as_long_as_another_thread_polls():
    """However rarely it polls: here with a shorter wait for threads that never do."""
    with open_waiting(0.05) as join:
        leave = polled_once(join)
        join.push("left", alike(2))
        join.push("right", alike(1))
        threading.Timer(0.5, join.poll).start()
        join.push("left", alike(1))
        leave.set()
        assert join.stats().left_tuples == 3
        assert join.finish().num_rows == 1


def test_a_push_does_not_wait_for_a_thread_that_has_ended(monkeypatch):
    """It checks again now and then, and not only when there is something to log."""
    monkeypatch.setattr(waiting, "SILENT", SECONDS)
    with open_waiting(0.05) as join:
        leave = polled_once(join)
        join.push("left", alike(2))
        join.push("right", alike(1))
        threading.Timer(0.3, leave.set).start()
        start = time.perf_counter()
        with pytest.raises(sj.Backpressure, match="no other thread"):
            join.push("left", alike(1))
        assert 0.3 <= time.perf_counter() - start < SECONDS / 2, "while the other one runs it may poll"


def test_an_infinite_timeout_waits_for_whoever_comes():
    with open_waiting(0.01) as join:
        join.push("left", alike(2))
        join.push("right", alike(1))
        join.poll()
        join.push("right", alike(1))
        threading.Timer(0.3, join.poll).start()
        join.push("left", alike(1), timeout=float("inf"))
        assert join.stats().left_tuples == 3


def test_sources_in_several_threads_without_a_poll_are_all_refused():
    with open_waiting(0.2) as join:
        sources = [join.source("left", name) for name in "abc"]
        join.push("right", alike(3))
        sources[0].push(alike(1))
        refused: list[str] = []

        def push(source: sj.Source) -> None:
            try:
                source.push(alike(1))
            except sj.Backpressure:
                refused.append(source.name)

        threads = [threading.Thread(target=push, args=(source,), daemon=True) for source in sources]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert sorted(refused) == ["a", "b", "c"]
        assert join.finish().num_rows == 3


# ---- an event loop


def test_a_push_does_not_stop_an_event_loop():
    """Polls of other threads could wait for the loop themselves."""

    async def use() -> tuple[float, int]:
        with sj.open_join(spec_of(), max_results=2) as join:
            await asyncio.to_thread(join.poll)
            join.push("left", alike(2))
            join.push("right", alike(2))
            start = time.perf_counter()
            with pytest.raises(sj.Backpressure, match="event loop"):
                join.push("left", alike(1))
            seconds = time.perf_counter() - start
            return seconds, count_polled(join)

    seconds, found = within(lambda: asyncio.run(use()))
    assert seconds < AT_ONCE
    assert found == 4


def test_an_event_loop_waits_for_a_thread_that_does_not_depend_on_it(monkeypatch):
    """As in a notebook, whose cells run inside a loop."""

    async def use() -> int:
        with sj.open_join(spec_of(), max_results=2) as join:
            leave = polled_once(join)
            join.push("left", alike(2))
            join.push("right", alike(1))
            threading.Timer(0.2, join.poll).start()
            join.push("left", alike(1))
            leave.set()
            return join.stats().left_tuples

    assert within(lambda: asyncio.run(use())) == 3


def test_a_thread_of_a_pool_that_has_polled_waits_for_another_that_will():
    """The pool hands a push to the thread that has polled before, and the next poll to a new one."""
    with sj.open_join(spec_of(), max_results=2) as join, ThreadPoolExecutor(2) as pool:
        pool.submit(join.poll).result(SECONDS)
        join.push("left", alike(2))
        join.push("right", alike(1))
        pushing = pool.submit(join.push, "left", alike(1))
        time.sleep(0.1)
        assert not pushing.done()
        pool.submit(join.poll).result(SECONDS)
        pushing.result(SECONDS)
        assert join.stats().left_tuples == 3


def test_tasks_that_push_and_poll_in_threads_wait_for_each_other():
    async def use() -> int:
        found = 0
        with sj.open_join(spec_of(), max_results=5) as join:

            async def push() -> None:
                for ts in range(20):
                    for side in ("left", "right"):
                        await asyncio.to_thread(join.push, side, alike(4, 100 * ts))

            pushing = asyncio.create_task(push())
            while not pushing.done():
                found += sum(batch.num_rows for batch in await asyncio.to_thread(join.poll, 0.01))
            await pushing
            return found + int(join.finish().num_rows)

    assert within(lambda: asyncio.run(use())) == 20 * 16


# ---- the log


@pytest.fixture
def soon(monkeypatch):
    """Log waits after a moment."""
    monkeypatch.setattr(waiting, "SILENT", 0.05)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "streamjoin" and r.levelno == logging.WARNING]


def test_a_push_says_what_it_waits_for(soon, caplog):
    with sj.open_join(spec_of(), max_results=2) as join:
        leave = polled_once(join)
        join.push("left", alike(2))
        join.push("right", alike(1))
        threading.Timer(0.5, join.poll).start()
        join.push("left", alike(1))
        leave.set()
    assert "push has waited 0 s" in told(caplog)[0]
    assert "2 result rows wait for poll() and max_results is 2" in told(caplog)[0]
    assert 2 <= len(told(caplog)) <= 4, "at 0.05, 0.1, 0.2 and 0.4 seconds at most"


def test_who_waits_for_another_threads_work_says_so(soon, caplog, monkeypatch):
    with sj.open_join(spec_of()) as join:
        inside, stats = threading.Event(), join._stats

        def look_slowly() -> sj.Stats:
            inside.set()
            time.sleep(0.3)
            return stats()

        monkeypatch.setattr(join, "_stats", look_slowly)
        looking = threading.Thread(target=join.stats)
        looking.start()
        inside.wait(SECONDS)
        join.push("left", alike(1))
        looking.join()
    assert any("another thread" in line for line in told(caplog))


def test_short_waits_say_nothing(caplog):
    with sj.open_join(spec_of(), "scalejoin", workers=2) as join:
        join.push("left", alike(100))
        join.push("right", alike(100))
        assert join.finish().num_rows == 10_000
    assert told(caplog) == []
