"""How soon the nodes of a chain end: after the current stretch or message. The first push compiles nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import BAND, SCHEMA, TOPOLOGIES, open_with, spec_of
from streamjoin.codegen import programs
from streamjoin.codegen.blocks import Pace
from streamjoin.kernels.scan.bands import MAX_CHUNK
from streamjoin.topologies.handshake.handshake import HandshakeNode
from streamjoin.topologies.handshake.record_node import RecordNode
from streamjoin.topologies.runtime.node import Bell
from streamjoin.topologies.runtime.simulator import Simulator, from_seed

ROWS = pa.table({"ts": range(20), "x": [0] * 20, "n": range(20)}, schema=SCHEMA)


def odd(left, right):
    return (left.n + right.n) % 2 == 1


class Stopping(Pace):
    """One comparison per call. After the third, the node gets the order to stop."""

    def __init__(self, bell: Bell):
        super().__init__()
        self._bell, self.calls = bell, 0

    def took(self, seconds: float, left: int) -> None:
        self.calls += 1
        if self.calls == 3:
            self._bell.stop()


def run_as_a_thread_does(node: Any) -> None:
    if isinstance(node, RecordNode):
        node.work()
    else:
        node.step(4096)


@pytest.mark.parametrize("topology", list(TOPOLOGIES))
def test_a_node_that_is_to_stop_leaves_a_scan_by_a_slow_function_in_the_middle(topology):
    with open_with(
        topology, spec_of(sj.TimeWindow(50), odd), workers=1, executor=Simulator(from_seed(1))
    ) as join:
        chain: Any = join._topology
        node = chain.nodes[0]
        pace = Stopping(node.bell)
        for program in join.plan.programs.values():
            program._pace = pace
        join.push("left", ROWS)
        join.push("right", ROWS)  # a thread would call the function for hundreds of pairs now
        run_as_a_thread_does(node)
        assert pace.calls == 3
        run_as_a_thread_does(node)
        assert pace.calls <= 4


def test_a_node_that_is_to_stop_leaves_a_scan_of_bands_in_the_middle(monkeypatch):
    monkeypatch.setattr(programs, "UNITS", 1)
    count, calls = 3 * MAX_CHUNK, []
    rows = pa.table({"ts": [0] * count, "x": range(count), "n": range(count)}, schema=SCHEMA)
    with open_with(
        "handshake",
        spec_of(sj.TimeWindow(50), BAND),
        HandshakeNode,
        workers=1,
        batch=count,
        executor=Simulator(from_seed(1)),
    ) as join:
        chain: Any = join._topology

        def counted(scan: Any, *arguments: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                chain.nodes[0].bell.stop()
            return scan(*arguments)

        for program in join.plan.programs.values():
            monkeypatch.setattr(program, "_band_kernel", partial(counted, program._band_kernel))
        join.push("left", rows)
        join.push("right", pa.table({"ts": [0] * 8 + [1], "x": [0] * 9, "n": range(9)}, schema=SCHEMA))
        join.push("left", pa.table({"ts": [1], "x": [9], "n": [0]}, schema=SCHEMA))
        run_as_a_thread_does(chain.nodes[0])
        assert len(calls) == 2  # of hundreds, whichever side comes first


@pytest.mark.parametrize("topology", list(TOPOLOGIES))
def test_a_node_that_is_to_stop_takes_one_message_more_at_most(topology):
    with open_with(
        topology, spec_of(sj.TimeWindow(50), BAND), workers=1, batch=1, executor=Simulator(from_seed(1))
    ) as join:
        chain: Any = join._topology
        for at in range(5):
            for side in ("left", "right"):
                join.push(side, ROWS.slice(at, 1))
        assert sum(len(channel) for channel in chain._channels) >= 5
        chain.nodes[0].bell.stop()
        run_as_a_thread_does(chain.nodes[0])
        assert sum(len(channel) for channel in chain._channels) > 0
        assert sum(len(window) for window in chain.nodes[0].windows.values()) <= 1


def test_a_closed_chain_remembers_nothing():
    for topology in TOPOLOGIES:
        join = open_with(topology, spec_of(sj.TimeWindow(50)), executor=Simulator(from_seed(1)))
        chain: Any = join._topology
        join.push("left", ROWS)
        join.push("right", ROWS)
        join.close()
        kept = [chain._sent, chain._counts, getattr(chain, "_bounds", {}), getattr(chain, "_stored", {})]
        assert not any(value for of_sides in kept for value in of_sides.values())
