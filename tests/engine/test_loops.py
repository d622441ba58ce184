"""Loops over a join's results: they wait for what others push, end when nothing more can come, never wait for nobody,
and share the results so that each row comes out once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from strategies import open_tuned
from streamjoin.engine.async_calls import CallThread
from streamjoin.plan.options import TOPOLOGY_NAMES
from streamjoin.plan.tuning import DEFAULT_TUNING, EngineTuning, Tuning
from streamjoin.topologies.runtime import waiting

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
SPEC = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
SECONDS = 60  # seconds: far longer than any test takes; only a hang waits this long


def rows(ts: list[int], x: int = 7) -> pa.RecordBatch:
    return pa.record_batch({"ts": ts, "x": [x] * len(ts)}, schema=SCHEMA)


def pairs(batches: Any) -> list[tuple[int, int]]:
    return [(row["ts"], row["ts_right"]) for batch in batches for row in batch.to_pylist()]


def run(main: Callable[[], Any]) -> Any:
    """What a coroutine returns; fails if it takes too long."""

    async def bounded() -> Any:
        return await asyncio.wait_for(main(), SECONDS)

    return asyncio.run(bounded())


def program(text: str) -> str:
    """What a program prints that runs in a process of its own, where no threads of a test run."""
    head = """
import threading, time
import pyarrow as pa
import streamjoin as sj

schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
rows = pa.table({"ts": [1, 2], "x": [7, 7]}, schema=schema)
"""
    command = [sys.executable, "-c", head + text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * SECONDS, check=True)
    return done.stdout


# ---- one thread


def test_a_loop_after_the_end_gives_every_row_and_ends():
    with sj.open_join(SPEC) as join:
        join.push("left", rows([1, 2]))
        join.push("right", rows([3]))
        join.end()
        assert pairs(join) == [(1, 3), (2, 3)]
        assert pairs(join) == [], "each row comes out once"
        assert join.finish().num_rows == 0


@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_a_loop_waits_for_worker_threads_and_for_room(topology):
    """More results than fit: the loop makes the room."""
    with sj.open_join(SPEC, topology, max_results=100, workers=2) as join:
        for ts in range(1, 10):
            for side in ("left", "right"):
                while True:
                    try:
                        join.push(side, rows([100 * ts] * 20), timeout=0.0)
                        break
                    except sj.Backpressure:
                        next(iter(join))
        before = join.stats().matches
        join.end()
        assert before <= 9 * 400
        rest = sum(batch.num_rows for batch in join)
        assert join.stats().matches == 9 * 400
        assert rest <= 9 * 400


def test_a_loop_that_is_left_loses_nothing():
    with open_tuned(Tuning(engine=EngineTuning(batch_rows=3)), SPEC) as join:
        join.push("left", rows([1] * 4))
        join.push("right", rows([2] * 4))
        for batch in join:
            assert batch.num_rows == 3
            break
        assert sum(batch.num_rows for batch in join.poll()) == 13
        join.push("left", rows([3]))
        for batch in join:
            assert batch.num_rows == 3
            break
        assert join.finish().num_rows == 1, "finish gives what no loop has taken"
        assert list(join) == []


def test_the_only_thread_of_a_program_is_told_what_to_do_and_not_left_to_wait():
    printed = program("""
with sj.open_join(spec) as join:
    join.push("left", rows)
    join.push("right", rows)
    found = []
    try:
        for batch in join:
            found += batch.to_pylist()
    except sj.StreamJoinError as error:
        print(len(found), error)
    join.end()
    print(sum(batch.num_rows for batch in join))
""")
    first, second = printed.splitlines()
    assert first.startswith("4 a loop over results would wait forever: no result is ready")
    assert "left and right may still bring rows" in first
    assert "no other thread runs that could push" in first and "call join.end() before the loop" in first
    assert second == "0"


def test_a_loop_ends_if_the_last_thread_that_could_push_has_ended():
    """The main thread counts as ended when only other threads keep the process alive."""
    printed = program("""
join = sj.open_join(spec)

def read():
    try:
        for batch in join:
            print(batch.num_rows, flush=True)
    except sj.StreamJoinError as error:
        print(error, flush=True)

threading.Thread(target=read).start()
join.push("left", rows)
join.push("right", rows)
""")
    assert "no other thread runs that could push" in printed.splitlines()[-1]


def test_loops_do_not_wait_for_each_other():
    """The main thread has ended; each of the others could only wait for the rest."""
    printed = program("""
join = sj.open_join(spec)

def read():
    try:
        list(join)
    except sj.StreamJoinError as error:
        print("refused", flush=True)

for _ in range(3):
    threading.Thread(target=read).start()
""")
    assert printed.split() == ["refused"] * 3


def test_a_closed_join_has_nothing_to_loop_over():
    join = sj.open_join(SPEC)
    join.push("left", rows([1]))
    join.push("right", rows([1]))
    join.close()
    assert list(join) == []


def test_a_failed_join_raises_in_a_loop():
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64()})
    spec = sj.JoinSpec(schema, schema, lambda l, r: 1 // (l.x - 7) == r.x, sj.TimeWindow(10), "ts", "ts")
    with sj.open_join(spec, "scalejoin", workers=2) as join:
        join._driver.fail(ValueError("a fault"))
        with pytest.raises(sj.StreamJoinError, match="stopped after an error"):
            list(join)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_copy_in_a_fork_is_no_source_of_rows():
    with sj.open_join(SPEC) as join:
        join.mark_as_copy()
        for use in (lambda: list(join), lambda: join.poll_table(), lambda: asyncio.run(join.poll_async())):
            with pytest.raises(sj.StreamJoinError, match="fork"):
                use()


# ---- several threads


@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_loops_and_pushing_threads_find_what_the_oracle_finds(topology):
    left, right = (rows(list(range(0, 300, step))) for step in (1, 2))
    wanted = sorted(pairs(sj.oracle.join(left, right, SPEC).to_batches()))
    with sj.open_join(SPEC, topology, workers=2, max_results=500) as join, ThreadPoolExecutor(4) as pool:
        loops = [pool.submit(lambda: pairs(join)) for _ in range(2)]

        def push(side: str, data: pa.RecordBatch) -> None:
            for at in range(0, len(data), 30):
                join.push(side, data.slice(at, 30), timeout=float("inf"))
            join.end(side)

        pushes = [pool.submit(push, side, data) for side, data in (("left", left), ("right", right))]
        for each in pushes:
            each.result(SECONDS)
        found = [pair for loop in loops for pair in loop.result(SECONDS)]
    assert sorted(found) == wanted


@pytest.mark.parametrize("ending", ["end", "finish"])
def test_a_loop_and_the_thread_that_ends_the_join_share_the_rows(ending):
    for _ in range(10):
        with sj.open_join(SPEC) as join:
            got: list[tuple[int, int]] = []
            reading = threading.Thread(target=lambda join=join, got=got: got.extend(pairs(join)), daemon=True)
            reading.start()
            for ts in range(20):
                join.push("left", rows([100 * ts]))
                join.push("right", rows([100 * ts]))
            rest: list[tuple[int, int]] = []
            if ending == "finish":
                rest = pairs(join.finish().to_batches())
            else:
                join.end()
            reading.join(SECONDS)
            assert not reading.is_alive(), "the loop ends"
            assert sorted(got + rest) == [(100 * ts, 100 * ts) for ts in range(20)]
            assert ending == "finish" or not rest


def test_closing_ends_a_loop_in_another_thread():
    with sj.open_join(SPEC) as join, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: list(join))
        time.sleep(0.05)
        assert not reading.done()
        join.close()
        assert reading.result(SECONDS) == []


def test_a_loop_says_what_it_waits_for(monkeypatch, caplog):
    monkeypatch.setattr(waiting, "SILENT", 0.05)
    with sj.open_join(SPEC) as join, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: list(join))
        while not (told := [record.getMessage() for record in caplog.records]):
            time.sleep(0.01)
        join.end()
        reading.result(SECONDS)
    assert (
        "a loop over results has waited 0 s: no result is ready, and left and right may still bring rows"
        in told[0]
    )


# ---- asyncio


def test_tasks_push_and_loop():
    async def main() -> list[tuple[int, int]]:
        async with sj.open_join(SPEC, max_results=4) as join:
            north = join.source("left", "north")

            async def push() -> None:
                for ts in range(10):
                    await north.push_async(rows([100 * ts] * 2))
                    await join.push_async("right", rows([100 * ts] * 3))
                join.end()

            pushing = asyncio.create_task(push())
            found = [pair async for batch in join for pair in pairs([batch])]
            await pushing
            assert (await join.poll_async(), (await join.finish_async()).num_rows) == ([], 0)
            return found

    assert sorted(run(main)) == sorted((100 * ts, 100 * ts) for ts in range(10) for _ in range(6))


def test_the_event_loop_runs_on_while_tasks_wait():
    async def main() -> int:
        beats = 0
        async with sj.open_join(SPEC) as join:
            polling = asyncio.create_task(join.poll_async(SECONDS))
            while beats < 20:
                await asyncio.sleep(0.001)
                beats += 1
            assert not polling.done()
            await join.push_async("left", rows([1]))
            await join.push_async("right", rows([1]))
            assert pairs(await polling) == [(1, 1)]
        return beats

    assert run(main) == 20


def test_more_waiting_tasks_than_a_pool_has_threads_do_not_wait_for_each_other():
    async def one() -> int:
        async with sj.open_join(SPEC, "three_step") as join:

            async def read() -> int:
                return sum([batch.num_rows async for batch in join])

            reading = asyncio.create_task(read())
            await asyncio.sleep(0)
            for side in ("left", "right"):
                await join.push_async(side, rows([1, 2]))
            join.end()
            return await reading

    async def main() -> list[int]:
        return await asyncio.gather(*(one() for _ in range(40)))

    assert run(main) == [4] * 40
    deadline = time.perf_counter() + SECONDS  # a thread ends a moment after its call
    while any(isinstance(each, CallThread) for each in threading.enumerate()):
        assert time.perf_counter() < deadline, "threads of calls are left"
        time.sleep(0.01)


def test_a_cancelled_loop_loses_nothing():
    async def main() -> None:
        async with sj.open_join(SPEC) as join:

            async def read() -> None:
                async for _ in join:
                    pytest.fail("nothing was pushed yet")

            reading = asyncio.create_task(read())
            await asyncio.sleep(0.05)
            reading.cancel()
            await join.push_async("left", rows([1]))
            await join.push_async("right", rows([1]))
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert pairs(join.poll()) == [(1, 1)]

    run(main)


def test_a_push_that_is_cancelled_while_it_waits_took_nothing():
    async def main() -> None:
        async with sj.open_join(SPEC, max_results=2) as join:
            leave = threading.Event()
            threading.Thread(target=lambda: (join.poll(), leave.wait(SECONDS)), daemon=True).start()
            await join.push_async("left", rows([1, 1]))
            await join.push_async("right", rows([1]))
            waits = asyncio.create_task(join.push_async("right", rows([1])))
            await asyncio.sleep(0.1)
            assert not waits.done()
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            leave.set()
            assert join.stats().right_tuples == 1
            assert pairs(join.poll()) == [(1, 1), (1, 1)]

    run(main)


def test_a_task_that_alone_polls_is_refused_at_once():
    async def main() -> float:
        async with sj.open_join(SPEC, max_results=2) as join:
            await join.poll_async()
            await join.push_async("left", rows([1, 1]))
            await join.push_async("right", rows([1]))
            start = time.perf_counter()
            with pytest.raises(sj.Backpressure, match="this task, which pushes, is the only one that polls"):
                await join.push_async("right", rows([1]))
            return time.perf_counter() - start

    assert run(main) < DEFAULT_TUNING.engine.first_poll / 2


def test_a_plain_loop_does_not_stop_an_event_loop():
    async def main() -> None:
        async with sj.open_join(SPEC) as join:
            join.push("left", rows([1]))
            join.push("right", rows([1]))
            found: list[pa.RecordBatch] = []
            with pytest.raises(sj.StreamJoinError, match="use `async for batch in join`"):
                found.extend(join)
            assert pairs(found) == [(1, 1)]
            join.end()
            assert list(join) == []

    run(main)


def test_errors_of_a_push_reach_the_task():
    async def main() -> None:
        async with sj.open_join(SPEC) as join:
            with pytest.raises(sj.InputError, match="left column 'x' has type string"):
                await join.push_async("left", pa.table({"ts": [1], "x": ["seven"]}))
            with pytest.raises(sj.InputError, match="timeout is -1"):
                await join.poll_async(-1)

    run(main)


# ---- what can be seen


@pytest.mark.parametrize("order", ["any", "punctuated", "timestamp"])
def test_poll_table_has_the_joins_schema_whatever_is_ready(order):
    with sj.open_join(SPEC, order=order) as join:
        empty = join.poll_table()
        assert (empty.num_rows, empty.schema) == (0, join.schema)
        join.push("left", rows([1, 50]))
        join.push("right", rows([1, 50]))
        full = join.poll_table()
        assert full.schema.equals(join.schema, check_metadata=True)
        join.end()
        assert full.num_rows + join.poll_table().num_rows == 2
