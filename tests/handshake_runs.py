"""Run handshake joins for their tests: small joins under the simulator or on threads, compared with the oracle."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import streamjoin as sj
from strategies import open_tuned, push_all
from streamjoin.engine.join import Join
from streamjoin.plan.tuning import DEFAULT_TUNING, Tuning
from streamjoin.topologies import registry
from streamjoin.topologies.handshake import handshake as handshake_join
from streamjoin.topologies.handshake import low_latency as low_latency_handshake
from streamjoin.topologies.handshake.flowing_node import FlowingNode
from streamjoin.topologies.handshake.handshake import Handshake, HandshakeNode
from streamjoin.topologies.handshake.low_latency import LowLatencyHandshake, LowLatencyNode
from streamjoin.topologies.handshake.scanning_node import ComparingNode, ScanningNode
from streamjoin.topologies.runtime.simulator import Simulator, from_seed

TOPOLOGIES: dict[str, tuple[Any, Any]] = {
    "handshake": (Handshake, HandshakeNode),
    "low_latency_handshake": (LowLatencyHandshake, LowLatencyNode),
}
ORDERS = ("any", "punctuated", "timestamp")
WINDOWS: dict[str, Any] = {
    "time": sj.TimeWindow(3),
    "uneven": sj.TimeWindow(0, right=4),
    "rows": sj.RowWindow(4),
    "one-sided rows": sj.RowWindow(left=3, right=0),
    "time and rows": (sj.TimeWindow(3), sj.RowWindow(2)),
    "rows and time": (sj.RowWindow(2), sj.TimeWindow(3)),
}
SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32(), "n": pa.int64()})
EQUAL = "left.x = right.x"
BAND = "left.x BETWEEN right.x - 1 AND right.x + 1"


def spec_of(window: Any, on: Any = EQUAL) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, on, window, "ts", "ts")


def table(random_rows: np.random.Generator, count: int, span: int, values: int) -> pa.Table:
    """Rows by time, numbered."""
    ts = np.sort(random_rows.integers(0, span, count))
    x = random_rows.integers(0, values, count, dtype=np.int32)
    return pa.table({"ts": ts, "x": x, "n": np.arange(count)}, schema=SCHEMA)


def small_tables(seed: int) -> tuple[pa.Table, pa.Table]:
    source = np.random.default_rng(seed)
    left, right = (table(source, int(source.integers(0, 20)), 12, 3) for _ in range(2))
    return left, right


def numbers(batches: Sequence[Any]) -> list[tuple[int, int]]:
    """The row numbers of all result rows, in their order."""
    return [
        pair
        for batch in batches
        for pair in zip(batch["n"].to_pylist(), batch["n_right"].to_pylist(), strict=True)
    ]


def pushes(left: pa.Table, right: pa.Table, seed: int, most: int = 4) -> Iterator[tuple[str, pa.Table]]:
    """Both tables in pieces of up to `most` rows, the sides in any interleaving."""
    turns, at, tables = random.Random(seed), {"left": 0, "right": 0}, {"left": left, "right": right}
    while waiting := [side for side in tables if at[side] < tables[side].num_rows]:
        side, count = turns.choice(waiting), turns.randint(1, most)
        yield side, tables[side].slice(at[side], count)
        at[side] += count


def open_with(
    topology: Any, spec: sj.JoinSpec, node: Any = None, index: Any = "scan", workers: int = 3,
    order: Any = "any", max_results: int = 1000, tuning: Tuning = DEFAULT_TUNING, pace: float = 0.0, **options: Any,
) -> Join:  # fmt: skip
    """Open a join of any topology with more options than users have; a chain is made of `node`s. Rows are released as
    soon as they are not needed. The clock decides nothing: with a `pace` of 0 tuples enter at once, with infinity they
    wait for a full block."""
    tuning = replace(
        tuning,
        engine=replace(tuning.engine, slack_rows=1),
        handshake=replace(tuning.handshake, pace=pace),
    )
    compiled = node is not None and issubclass(node, ComparingNode)
    kind: Any = registry.TOPOLOGY_CLASSES[topology]

    class Changed(kind):  # type: ignore[misc]
        def __init__(self, *given: Any):
            super().__init__(*given, **options)

        def make_nodes(self, shared: Any) -> Any:
            if node is None or compiled:
                return super().make_nodes(shared)
            return [node(number, shared) for number in range(shared.count)]

    scanning, flowing = (
        node if compiled and issubclass(node, kind_of_node) else kind_of_node
        for kind_of_node in (ScanningNode, FlowingNode)
    )
    nodes = (
        patch.object(low_latency_handshake, "ScanningNode", scanning),
        patch.object(handshake_join, "FlowingNode", flowing),
    )
    with nodes[0], nodes[1], patch.dict(registry.TOPOLOGY_CLASSES, {topology: Changed}):
        join: Join = open_tuned(
            tuning, spec, topology, index, workers=workers, order=order, max_results=max_results
        )
        return join


def check_large_join(topology: Any, index: Any, order: Any, window: Any) -> None:
    """Thousands of tuples on threads: the same rows as the three-step engine, in its order if that is promised."""
    source = np.random.default_rng(3)
    left, right = table(source, 4000, 8000, 20), table(source, 4000, 8000, 20)
    spec = spec_of(window)
    expected = sj.join_tables(left, right, spec, "three_step", order="timestamp", workers=1)
    found = sj.join_tables(left, right, spec, topology, index, workers=3, order=order)
    assert found.num_rows == expected.num_rows > 10_000
    if order == "timestamp":
        assert found.equals(expected)
    assert sorted(numbers([found])) == sorted(numbers([expected]))


def check(
    join: Join,
    spec: sj.JoinSpec,
    left: pa.Table,
    right: pa.Table,
    order: Any,
    seed: int,
    simulator: Simulator | None = None,
) -> None:
    """Push both tables and assert that the result is the oracle's, in its order if that is promised."""
    turns, trace = random.Random(seed), simulator.tail if simulator else str

    def poll_after() -> bool:
        if simulator:
            simulator.run(turns.choice([0, 1, 3, 9]))
        return turns.random() < 0.5

    with join:
        for side in ("left", "right"):
            join.source(side, "")
        polled = push_all(join, pushes(left, right, seed), poll_after)
        rest = join.finish()
    promised = -math.inf
    for batch in [*polled, *rest.to_batches()]:
        assert all(time >= promised for time in result_times(batch)), trace()
        promised = max(promised, sj.punctuation(batch) or promised)
    found = numbers([*polled, rest])
    expected = numbers([sj.oracle.join(left, right, spec)])
    if order != "timestamp":
        found, expected = sorted(found), sorted(expected)
    assert found == expected, trace()


def result_times(batch: pa.RecordBatch) -> list[int]:
    return [max(pair) for pair in zip(batch["ts"].to_pylist(), batch["ts_right"].to_pylist(), strict=True)]


def check_interleaving(topology: Any, seed: int, node: Any = None, on: str = "", **changes: Any) -> Join:
    """One small join. The seed decides tables, window, order, index, workers, the sizes of batches and channels, and
    which node steps when; the condition `on` and the `changes` are given."""
    draw = random.Random(seed)
    left, right = small_tables(seed)
    window, order = WINDOWS[draw.choice(list(WINDOWS))], draw.choice(ORDERS)
    index, drawn = draw.choice(
        [("scan", EQUAL), ("scan", BAND), ("hash", EQUAL), ("bisort", EQUAL), ("bisort", BAND)]
    )
    spec = spec_of(window, on or drawn)
    simulator = Simulator(from_seed(seed), most=draw.randint(1, 4))
    options: dict[str, Any] = {"batch": draw.randint(1, 3), "capacity": draw.randint(1, 2)}
    if topology == "low_latency_handshake":
        options["credit"] = draw.randint(1, 4)
    settings = {"index": index, "workers": draw.randint(1, 5), "order": order, **changes}
    settings["pace"] = draw.choice([0.0, math.inf])
    join = open_with(
        topology, spec, node, max_results=draw.choice([3, 1000]), executor=simulator, **settings, **options
    )
    check(join, spec, left, right, settings["order"], seed, simulator)
    return join
