"""A poll that waits: for results of threads, for pushes of other threads, and no longer than its timeout. Which thread
works meanwhile, and what an interrupt leaves behind."""

from __future__ import annotations

import itertools
import sys
import threading
import time

import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import SCHEMA, numbers, open_with, spec_of
from strategies import open_tuned
from streamjoin.engine import work
from streamjoin.plan.options import TOPOLOGY_NAMES
from streamjoin.plan.tuning import EngineTuning, Tuning
from streamjoin.topologies.runtime.simulator import Simulator, from_seed

LONG = 600.0  # seconds; a test waits so long only if no thread wakes it


PATIENT = Tuning(
    engine=EngineTuning(patience=10**9)
)  # only a bell ends a wait, not the check made now and then
ONE = pa.table({"ts": [1], "x": [0], "n": [7]}, schema=SCHEMA)


def in_a_moment(act):
    """Do something on another thread, most likely when this one has begun to wait."""
    timer = threading.Timer(0.05, act)
    timer.start()
    return timer


@pytest.mark.parametrize("order", ["any", "timestamp"])
@pytest.mark.parametrize("topology", list(TOPOLOGY_NAMES))
def test_a_poll_waits_for_what_threads_find(topology, order):
    later = ONE.set_column(0, "ts", pa.array([20], pa.int64()))
    with open_tuned(PATIENT, spec_of(sj.TimeWindow(9)), topology, "scan", workers=2, order=order) as join:
        for side in ("left", "right"):
            join.push(side, ONE)
        for side in ("left", "right"):
            join.push(side, later)  # lets the others settle, and leave a chain of nodes
        (batch,) = join.poll(LONG)
        assert numbers([batch])[0] == (7, 7)


@pytest.mark.parametrize("topology", ["three_step", "low_latency_handshake"])
def test_a_poll_waits_for_what_another_thread_pushes(topology):
    with open_tuned(PATIENT, spec_of(sj.TimeWindow(9)), topology, "scan", workers=1) as join:
        join.push("left", ONE)
        pusher = in_a_moment(lambda: join.push("right", ONE))
        assert numbers(join.poll(LONG)) == [(7, 7)]
        pusher.join()


def test_a_poll_without_results_ends_in_time():
    with sj.open_join(spec_of(sj.TimeWindow(9)), "three_step", "scan", 1) as join:
        began = time.perf_counter()
        assert join.poll(0.03) == []
        assert time.perf_counter() - began >= 0.03


@pytest.mark.parametrize("topology", ["three_step", "low_latency_handshake"])
def test_closing_ends_a_poll_that_waits(topology):
    join = open_tuned(PATIENT, spec_of(sj.TimeWindow(9)), topology, "scan", workers=1)
    join.push("left", ONE)
    closer = in_a_moment(join.close)
    assert join.poll(LONG) == []
    closer.join()


def test_a_poll_that_found_another_at_work_looks_again_when_that_is_done():
    """Threads ring while a call that has not seen their results is working: no other ring will come."""
    simulator, found = Simulator(from_seed(1)), []
    with open_with("panjoin", spec_of(sj.TimeWindow(9)), executor=simulator, tuning=PATIENT) as join:
        for side in ("left", "right"):
            join.push(side, ONE)
        join.poll()
        poll = threading.Thread(target=lambda: found.extend(join.poll(LONG)), daemon=True)

        def ring_meanwhile() -> None:
            poll.start()
            while not join._work.polls:
                time.sleep(0.001)
            time.sleep(0.05)  # most likely it waits by now
            simulator.run(100)
            time.sleep(0.05)  # and once more

        join._working(ring_meanwhile)
        poll.join(60)
        assert numbers(found) == [(7, 7)]


def test_a_poll_looks_now_and_then_though_nobody_rings(monkeypatch):
    with sj.open_join(spec_of(sj.TimeWindow(9)), "three_step", "scan", 1) as join:
        monkeypatch.setattr(join._work, "tell", lambda: None)
        join.push("left", ONE)
        pusher = in_a_moment(lambda: join.push("right", ONE))
        assert numbers(join.poll(LONG)) == [(7, 7)]
        pusher.join()


def test_a_poll_that_waits_tells_of_a_failure():
    class Failing(Simulator):
        def check(self) -> None:
            raise ValueError("refused")

        failed = True

    join = open_with("panjoin", spec_of(sj.TimeWindow(9)), executor=Failing(from_seed(1)))
    with join, pytest.raises(ValueError, match="refused"):
        join.poll(LONG)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", None, True])
def test_a_poll_refuses_what_is_no_number_of_seconds(timeout):
    join = sj.open_join(spec_of(sj.TimeWindow(9)), "three_step", "scan", 1)
    with join, pytest.raises(sj.InputError, match="allowed: seconds from 0 on"):
        join.poll(timeout)


def test_who_is_at_work_promises_for_a_poll_that_found_it_so():
    polled: list[pa.RecordBatch] = []
    with sj.open_join(spec_of(sj.TimeWindow(9)), "three_step", "scan", 1, "punctuated") as join:

        def poll_elsewhere() -> None:
            poll = threading.Thread(target=lambda: polled.extend(join.poll()))
            poll.start()
            poll.join()

        join._working(poll_elsewhere)
        for side in ("left", "right"):
            join.push(side, ONE)
        join._working(poll_elsewhere)
        assert [(batch.num_rows, sj.punctuation(batch)) for batch in polled] == [(1, 1)]


ACTS = {
    "push": lambda join: join.push("left", ONE),
    "push in time": lambda join: join.push("left", ONE, timeout=60),
    "poll": lambda join: join.poll(),
    "stats": lambda join: join.stats(),
    "finish": lambda join: join.finish(),
    "close": lambda join: join.close(),
}


def interrupted(act, join, place: int) -> bool:
    """Do something, and be interrupted where the driver's mutex is acquired or released: at the n-th line there, in the
    order they are come to, or for 0 as soon as it is taken. Whether that place was come to."""
    lines = []

    def at_line(frame, event, _):
        if frame.f_code.co_filename != work.__file__:
            return None
        lines.extend([frame.f_lineno] if event == "line" else [])
        if event == "line" and len(lines) == place:
            raise KeyboardInterrupt
        return at_line

    def at_return(frame, event, function):
        if event == "c_return" and function.__name__ == "acquire":
            raise KeyboardInterrupt

    (sys.settrace if place else sys.setprofile)(at_line if place else at_return)
    try:
        act(join)
        return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
        sys.setprofile(None)


@pytest.mark.parametrize("act", list(ACTS))
def test_an_interrupt_wherever_a_thread_begins_or_ends_to_work_lets_others_work(act):
    for place in itertools.count():
        with sj.open_join(spec_of(sj.TimeWindow(9)), "three_step", "scan", 1) as join:
            if not interrupted(ACTS[act], join, place):
                assert place > 5
                break
            other = threading.Thread(target=join.stats, daemon=True)
            other.start()
            other.join(60)
            assert not other.is_alive(), place
            assert not join._work.mine


def test_a_handler_that_interrupts_work_may_poll_and_close_but_not_begin_to_work(monkeypatch):
    told = []
    with sj.open_join(spec_of(sj.TimeWindow(9)), "three_step", "scan", 1) as join:
        join.push("left", ONE)
        step = join._topology.step

        def step_and_handle(most: float) -> object:
            told.append(join.poll())
            for act in ("push", "stats", "finish"):
                with pytest.raises(sj.StreamJoinError, match="already inside the join"):
                    ACTS[act](join)
            assert join._work.mine  # as before
            join.close()
            return step(most)

        monkeypatch.setattr(join._topology, "step", step_and_handle)
        join.push("right", ONE)
        assert told == [[]]
        assert join.stats().payload_rows == 0


def test_an_interrupt_after_results_were_taken_loses_none_of_them(monkeypatch):
    def interrupted() -> None:
        if not join._results.rows:
            raise KeyboardInterrupt

    with sj.open_join(spec_of(sj.TimeWindow(9)), "three_step", "scan", 1) as join:
        for side in ("left", "right"):
            join.push(side, ONE)
        monkeypatch.setattr(join._driver, "release", interrupted)
        assert numbers(join.poll()) == [(7, 7)]
        with pytest.raises(sj.StreamJoinError, match="KeyboardInterrupt"):
            join.poll()
