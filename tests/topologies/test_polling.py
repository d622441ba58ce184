"""A poll that waits: for what threads find, for what somebody else pushes, and no longer than it was told."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import SCHEMA, numbers, open_with, spec_of
from streamjoin.planner import TOPOLOGIES
from streamjoin.runtime.simulator import Simulator, from_seed

LONG = 600.0  # seconds; no test waits so long unless nobody wakes it up
ONE = pa.table({"ts": [1], "x": [0], "n": [7]}, schema=SCHEMA)


def in_a_moment(act):
    """Do something on another thread, most likely when this one has begun to wait."""
    timer = threading.Timer(0.05, act)
    timer.start()
    return timer


@pytest.mark.parametrize("order", ["any", "timestamp"])
@pytest.mark.parametrize("topology", list(TOPOLOGIES))
def test_a_poll_waits_for_what_threads_find(topology, order):
    later = ONE.set_column(0, "ts", pa.array([20], pa.int64()))
    with sj.open_join(spec_of(sj.TimeWindow(9)), topology, "scan", 2, order) as join:
        for side in ("left", "right"):
            join.push(side, ONE)
        for side in ("left", "right"):
            join.push(side, later)  # lets the others settle, and leave a chain of nodes
        (batch,) = join.poll(LONG)
        assert numbers([batch])[0] == (7, 7)


@pytest.mark.parametrize("topology", ["three_step", "low_latency_handshake"])
def test_a_poll_waits_for_what_another_thread_pushes(topology):
    with sj.open_join(spec_of(sj.TimeWindow(9)), topology, "scan", 1) as join:
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
    join = sj.open_join(spec_of(sj.TimeWindow(9)), topology, "scan", 1)
    join.push("left", ONE)
    closer = in_a_moment(join.close)
    assert join.poll(LONG) == []
    closer.join()


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
