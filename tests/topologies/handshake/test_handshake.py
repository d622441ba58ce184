"""Handshake join: tuples that pass each other on the way between nodes, load that balances itself, expiry that loses
nothing, and each part of the protocol is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import (
    SCHEMA,
    check_interleaving,
    numbers,
    open_with,
    spec_of,
)
from streamjoin.topologies.handshake.chain_node import Acknowledgement, Arrival
from streamjoin.topologies.handshake.flowing_node import FlowingNode
from streamjoin.topologies.handshake.handshake import HandshakeNode
from streamjoin.topologies.runtime.simulator import Simulator, from_seed

TOPOLOGY = "handshake"


def rows(*ts: int) -> pa.Table:
    return pa.table({"ts": ts, "x": [0] * len(ts), "n": range(len(ts))}, schema=SCHEMA)


def test_tuples_in_flight_between_two_nodes_meet_on_the_right_one():
    """Figures 7 and 8 of the paper."""
    simulator = Simulator(from_seed(0))
    spec, options = spec_of(sj.TimeWindow(9)), {"workers": 2, "executor": simulator, "batch": 1}
    with open_with(TOPOLOGY, spec, HandshakeNode, **options) as join:
        left_core, right_core = join._topology.nodes
        sources = {side: join.source(side, "") for side in ("left", "right")}
        for source in sources.values():
            source.push(rows(1))
        for source in sources.values():
            source.advance(5)
        while not right_core.passed("right"):
            right_core.step(1)
        while not left_core.passed("left"):
            left_core._turn = 1  # left's turn is next
            left_core.step(1)
        # Each has sent its tuple; the right one stays behind as a copy.
        assert (len(left_core.windows["left"]), len(right_core.windows["right"])) == (0, 1)
        assert right_core._forwarded == 1
        assert left_core.outbox.rows + right_core.outbox.rows == 0
        while simulator.run(1):
            pass
        assert (left_core.outbox.rows, right_core.outbox.rows) == (0, 1)
        assert right_core._forwarded == 0
        assert numbers([*join.poll(), join.finish()]) == [(0, 0)]


@pytest.mark.parametrize("node", [HandshakeNode, FlowingNode])
def test_load_balances_itself_over_the_nodes(node):
    simulator, spec = Simulator(from_seed(3)), spec_of(sj.TimeWindow(10_000))
    options = {"workers": 4, "executor": simulator, "batch": 2, "max_results": 10**6}
    with open_with(TOPOLOGY, spec, node, **options) as join:
        for first in range(0, 400, 20):
            join.push("left", rows(*range(first, first + 20)))
            join.push("right", rows(*range(first, first + 20)))
            join.poll()
        while simulator.run(1):
            join.poll()
        sizes = {
            side: [len(node.windows[side]) for node in join._topology.nodes] for side in ("left", "right")
        }
    for side in ("left", "right"):
        assert sum(sizes[side]) >= 380  # the rest is not settled yet
        assert max(sizes[side]) - min(sizes[side]) <= 8, sizes


@pytest.mark.parametrize("node", [HandshakeNode, FlowingNode])
def test_an_expired_tuple_meets_those_it_has_not_met_before_it_leaves(node):
    """The left tuple expires while it lies on the first node, and its partner on the last."""
    simulator, spec = Simulator(from_seed(1)), spec_of(sj.TimeWindow(5))
    with open_with(TOPOLOGY, spec, node, workers=3, executor=simulator, batch=1) as join:
        sources = [join.source(side, "") for side in ("left", "right")]
        join.push("left", rows(0))
        join.push("right", rows(4))
        join.push("left", rows(100))
        join.push("right", rows(100))
        for source in sources:
            source.advance(100)  # no arrival follows that would report what has expired
        while simulator.run(1):
            pass
        assert numbers(join.poll()) == [(0, 0)]
        while simulator.run(1):
            pass
        held = [len(window) for node in join._topology.nodes for window in node.windows.values()]
        assert sum(held) == 1  # left 100 has come and not expired; right 100 is not settled
        assert numbers([join.finish()]) == [(0, 0)]


# ---- each part is needed


class WithoutAcknowledgements(HandshakeNode):
    """Copies of forwarded right tuples stay."""

    def receive(self, side: str, message: Any) -> Iterator[None]:
        return iter(()) if isinstance(message, Acknowledgement) else super().receive(side, message)


class WithoutCopies(HandshakeNode):
    """Right tuples leave when they are sent on, as left ones do."""

    def receive(self, side: str, message: Any) -> Iterator[None]:
        return iter(()) if isinstance(message, Acknowledgement) else super().receive(side, message)

    def forward(self) -> bool:
        busy = super().forward()
        while self._forwarded:
            self._forwarded -= 1
            self._leave("right")
        return busy


class WithCopiesOfBoth(HandshakeNode):
    """Left tuples that were sent on can still be found."""

    def _leave(self, side: str) -> None:
        super()._leave(side)
        if side == "left":
            self._floors["left"] -= 3


class WithExpiryInPlace(HandshakeNode):
    """Expired left tuples are dropped wherever they lie."""

    def forward(self) -> bool:
        slices = self._slices["left"]
        while slices and slices[0].tuples.ts[-1] < self._expired["left"] and not self.is_end["left"]:
            gone = slices[0]
            self._leave("left")
            self.windows["left"].expire(self._floors["left"])
            self._count_passed("left", len(gone.tuples))
        return super().forward()


class WithEarlyMarks(HandshakeNode):
    """A node reports right tuples as finished when it has sent them on, though it has copies of them."""

    def send(self, side: str, message: Any) -> None:
        super().send(side, message)
        if side == "right" and isinstance(message, Arrival):
            self.mark("right", message.number)


@pytest.mark.parametrize(
    "node", [WithoutAcknowledgements, WithoutCopies, WithCopiesOfBoth, WithExpiryInPlace, WithEarlyMarks]
)
def test_without_a_part_of_the_protocol_results_are_wrong(node):
    def search() -> None:
        for seed in range(300):
            check_interleaving(TOPOLOGY, seed, node)

    with pytest.raises(AssertionError):
        search()
