"""What time alone causes, under a simulated clock: gathered pushes are handed over, and silent sources hold nothing
back. And the thread that sees to it leaves nothing behind."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.engine.join import Join
from streamjoin.index.build import compile_plan
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import TOPOLOGY_NAMES, Options
from streamjoin.topologies.runtime.threads import WorkerThread

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
SECONDS = 60  # seconds: far longer than any test takes; only a hang waits this long


class SimulatedClock:
    """Stands still but for `advance`, which lets the join's timer look."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, join: Join, seconds: float) -> None:
        self.now += seconds
        join._timer.wake()


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


def opened(clock: Callable[[], float], latency: float | None = None, **options: object) -> Join:
    how = options.pop("how", "inner")
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(10), "ts", "ts", how=how)  # type: ignore[arg-type]
    plan = make_plan(spec, Options(latency=latency, **options))  # type: ignore[arg-type]
    compile_plan(plan)
    return Join(plan, clock)


def rows(*ts: int) -> pa.RecordBatch:
    return pa.record_batch({"ts": list(ts), "x": [7] * len(ts)}, schema=SCHEMA)


def eventually(done: Callable[[], bool]) -> None:
    """Wait for what a thread does in a moment."""
    deadline = time.perf_counter() + SECONDS
    while not done():
        assert time.perf_counter() < deadline, "it does not happen"
        time.sleep(0.002)


def matches(join: Join) -> int:
    """Without a call that would hand over anything."""
    return join._results.total


@pytest.fixture(autouse=True)
def no_timer_is_left() -> Iterator[None]:
    yield
    gc.collect()
    eventually(lambda: not timers())


def timers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "streamjoin-timer"]


# ---- gathered pushes


@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_gathered_pushes_are_handed_over_without_a_call(clock, topology):
    with opened(clock, latency=0.1, topology=topology, workers=2) as join:
        join.push("left", rows(1))
        join.push("right", rows(2))
        time.sleep(0.05)  # as the clock stands still, they wait
        assert join._driver.admission.rows == {"left": 1, "right": 1}
        clock.advance(join, 0.1)
        eventually(lambda: join._driver.admission.rows == {"left": 0, "right": 0})
        join.end()
        assert sum(batch.num_rows for batch in join) == 1


def test_with_the_clock_on_the_wall_too():
    with opened(time.perf_counter, latency=0.1) as join:
        for ts in range(3):
            join.push("left", rows(ts))
            join.push("right", rows(ts))
            eventually(lambda ts=ts: matches(join) == (ts + 1) ** 2)  # type: ignore[misc]


def test_the_timer_rests_while_the_result_buffer_is_full(clock):
    with opened(clock, latency=0.1, max_results=1) as join:
        join.push("left", rows(1))
        join.push("right", rows(1, 1))
        clock.advance(join, 0.1)
        eventually(lambda: matches(join) == 1)
        assert join.next_due() == float("inf")
        assert join.poll_table().num_rows == 1
        assert join.poll_table().num_rows == 1


def test_an_interrupt_while_the_timer_starts_leaves_no_thread(clock, monkeypatch):
    start = WorkerThread.start

    def interrupted(thread: WorkerThread) -> None:
        start(thread)
        raise KeyboardInterrupt

    with opened(clock, latency=0.1) as join:
        with monkeypatch.context() as patched:
            patched.setattr(WorkerThread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                join.push("left", rows(1))
        eventually(lambda: not timers())


def test_an_error_of_handed_over_work_is_raised_by_the_next_call(clock):
    with opened(clock, latency=0.1) as join:
        join.push("left", rows(1))
        fault = ValueError("a fault")

        def fail(*_: object) -> None:
            raise fault

        join._topology.push = fail  # type: ignore[assignment,method-assign]
        clock.advance(join, 0.1)
        eventually(lambda: join._driver.failure is fault)
        with pytest.raises(sj.StreamJoinError, match="a fault"):
            join.poll()


def test_a_join_that_is_dropped_ends_its_timer(clock):
    join = opened(clock, latency=0.1)
    join.push("left", rows(1))
    gone = weakref.ref(join)
    assert timers()
    del join
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("end", ["close", "finish"])
def test_an_ended_join_has_no_timer(clock, end):
    join = opened(clock, latency=0.1)
    join.push("left", rows(1))
    assert len(timers()) == 1
    getattr(join, end)()
    eventually(lambda: not timers())


def test_a_join_that_never_gathers_has_no_timer(clock):
    with opened(clock) as join:
        join.push("left", rows(1))
        assert not timers()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_can_drop_its_copy_and_the_timer_goes_on(clock):
    join = opened(clock, latency=0.1)
    join.push("left", rows(1))
    join.push("right", rows(1))
    pid = os.fork()
    if pid == 0:
        del join
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    clock.advance(join, 0.1)
    eventually(lambda: matches(join) == 1)
    join.close()


# ---- silent sources


def test_a_silent_source_no_longer_holds_the_others_back(clock, caplog):
    caplog.set_level(logging.INFO, "streamjoin")
    with opened(clock, order="timestamp") as join:
        quiet, busy = join.source("left", "quiet", idle_after="10 seconds"), join.source("left", "busy")
        quiet.push(rows(1))
        busy.push(rows(1, 50))
        join.push("right", rows(1, 50, 60))
        assert [row["ts"] for row in join.poll_table().to_pylist()] == [], "quiet may still bring rows"
        clock.advance(join, 9.9)
        time.sleep(0.03)
        assert matches(join) == 0
        clock.advance(join, 0.1)
        eventually(lambda: matches(join) == 2)
        quiet.push(rows(20, 50, 55))
        assert join.late("left").column("ts").to_pylist() == [20], "behind what busy has reached"
        busy.push(rows(55))
        found = join.poll_table().column("ts").to_pylist()
        assert found[:3] == [1, 1, 50]
        assert len(found) + join.finish().num_rows == 10, "the late row alone is missing"
    assert "source 'quiet' of left brought nothing for 10 s" in caplog.text


def test_what_arrives_or_is_promised_in_time_is_a_sign_of_life(clock):
    with opened(clock, order="timestamp") as join:
        quiet = join.source("left", "quiet", idle_after="10 seconds")
        join.push("right", rows(1, 50))
        for ts in range(4):
            clock.advance(join, 9)
            if ts % 2:
                quiet.push(rows(ts))
            else:
                quiet.advance(ts)
        time.sleep(0.03)
        assert not quiet.idle
        clock.advance(join, 10)
        eventually(lambda: quiet.idle)
        quiet.push(rows(60))
        assert not quiet.idle
        clock.advance(join, 10)
        eventually(lambda: quiet.idle)


def test_a_side_whose_sources_are_all_silent_follows_the_other_side(clock):
    """Right rows without a match leave although left brings nothing."""
    with opened(clock, how="right") as join:
        left = join.source("left", "only", idle_after="1 second")
        join.push("right", rows(1))
        join.push("right", rows(100))
        assert join.poll() == []
        clock.advance(join, 1)
        eventually(lambda: matches(join) == 1)
        assert join.poll_table().column("ts_right").to_pylist() == [1]
        join.push("right", rows(200))
        assert join.poll_table().column("ts_right").to_pylist() == [100]
        left.push(rows(150, 205))
        assert join.late("left").num_rows == 1
        join.push("right", rows(205))
        assert join.finish().column("ts_right").to_pylist() == [200, 205]


def test_if_all_are_silent_the_furthest_counts(clock):
    with opened(clock, order="timestamp") as join:
        left = join.source("left", "l", idle_after="1 second")
        right = join.source("right", "r", idle_after="2 seconds")
        left.push(rows(100))
        right.push(rows(95))
        assert join.poll() == []
        clock.advance(join, 1)
        eventually(lambda: left.idle)
        assert matches(join) == 0
        clock.advance(join, 1)
        eventually(lambda: right.idle)
        right.push(rows(99, 101))
        assert join.late("right").column("ts").to_pylist() == [99]
        assert join.finish().num_rows == 2


def test_a_silent_source_that_closes_or_ends_is_forgotten(clock):
    with opened(clock) as join:
        sources = [join.source("left", name, idle_after="1 second") for name in "abc"]
        sources[0].close()
        clock.advance(join, 1)
        eventually(lambda: sources[2].idle)
        assert not sources[0].idle
        sources[1].close()
        join.end("left")
        clock.advance(join, 5)
        assert join.next_due() == float("inf")


@pytest.mark.parametrize("given", [5, "0 seconds", "-1 s", "soon", ""])
def test_a_limit_of_silence_is_a_duration(clock, given):
    with opened(clock) as join:
        with pytest.raises(sj.StreamJoinError) as refused:
            join.source("left", "a", idle_after=given)
        assert refused.value.field == "idle_after" and refused.value.given == given
        join.source("left", "a")
