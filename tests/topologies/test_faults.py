"""What every topology with threads owes its caller when something goes wrong, and how many workers it can have."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import SCHEMA, numbers, open_with, small_tables, spec_of
from streamjoin.index import chain, scan
from streamjoin.index.bisort import BISortSubwindow
from streamjoin.planner import TOPOLOGIES
from streamjoin.runtime.node import Bell, Channel, Node
from streamjoin.runtime.simulator import Simulator, from_seed
from streamjoin.runtime.threads import Threads

THREADED = ["celljoin", "panjoin", "scalejoin"]


class Interrupt(BaseException):
    """Like KeyboardInterrupt, which pytest would take for its own."""


class Interrupted(Threads):
    """Threads whose nodes do nothing, so that the driver has to wait; and an interrupt while it does."""

    def start(self, nodes: Sequence[Node], channels: Sequence[Channel[Any]], driver: Bell) -> None:
        for node in nodes:
            node.step = lambda most: False  # type: ignore[method-assign]
        super().start(nodes, channels, driver)

    def wait(self, seen: int) -> None:
        raise Interrupt


@pytest.mark.parametrize("topology", THREADED)
def test_an_interrupt_of_a_waiting_driver_stops_the_join_and_its_threads(topology, monkeypatch):
    monkeypatch.setattr(scan, "SHARED_COMPARISONS", 1)
    before, (left, right) = threading.active_count(), small_tables(7)

    def use(join: sj.Join) -> None:
        join.push("left", left)
        join.push("right", right)
        join.finish()

    with open_with(topology, spec_of(sj.TimeWindow(50)), workers=2, executor=Interrupted()) as join:
        with pytest.raises(Interrupt):
            use(join)
        assert threading.active_count() == before + 2
        with pytest.raises(sj.StreamJoinError, match="stopped after an error: Interrupt"):
            join.poll()
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [1, 7, 64])
@pytest.mark.parametrize("topology", list(TOPOLOGIES))
def test_any_number_of_workers(topology, workers):
    before, (left, right) = threading.active_count(), small_tables(11)
    for window in (sj.TimeWindow(5), sj.RowWindow(4)):
        spec = spec_of(window)
        found = sj.join_tables(left, right, spec, topology, "scan", workers, "timestamp")
        assert numbers([found]) == numbers([sj.oracle.join(left, right, spec)])
    assert threading.active_count() == before


def test_sizes_can_be_asked_while_a_worker_changes_its_windows(monkeypatch):
    """A subwindow goes between two others being looked at, as it may on a thread."""
    monkeypatch.setattr(chain, "SMALLEST", 4)
    rows = pa.table({"ts": range(40), "x": [0] * 40, "n": range(40)}, schema=SCHEMA)
    with open_with(
        "scalejoin", spec_of(sj.TimeWindow(100)), index="bisort", workers=1, executor=Simulator(from_seed(1))
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
