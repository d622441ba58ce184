"""A row leaves exactly when the table of "What is final when" (docs/semantics.md) says, on every topology."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from finality import KEYED, ON, leaves, rows_of_a_side
from handshake_runs import open_with
from strategies import intervals, outcomes, time_windows
from streamjoin.plan.options import TOPOLOGY_NAMES
from streamjoin.topologies.runtime.simulator import Simulator, from_seed

Numbered = tuple[int | None, int | None]
NUMBERED = pa.schema([*KEYED, pa.field("n", pa.int64())])
STEPS = 300  # of the simulator: enough for all nodes to do what they can


def numbered(table: pa.Table) -> pa.Table:
    return table.append_column("n", pa.array(range(table.num_rows), pa.int64()))


class Watched:
    """A join whose result rows are collected after every change."""

    def __init__(self, spec: sj.JoinSpec, topology: Any, seed: int = 0):
        simulator: dict[str, Any] = {}
        if topology != "three_step":
            simulator = {"executor": Simulator(from_seed(seed))}
        self._simulator = simulator.get("executor")
        index = "auto" if topology == "three_step" else "scan"
        self.join = open_with(topology, spec, index=index, workers=2, order="any", **simulator)
        self.given: list[Numbered] = []

    def poll(self) -> list[Numbered]:
        """All rows that have left so far, once all nodes have done what they can."""
        for _ in range(3):  # nodes may wait for the driver, and the driver for nodes
            if self._simulator is not None:
                self._simulator.run(STEPS)
            for batch in self.join.poll():
                right = batch["n_right"] if "n_right" in batch.schema.names else pa.nulls(batch.num_rows)
                self.given += zip(batch["n"].to_pylist(), right.to_pylist(), strict=True)
        return self.given


def expected(
    spec: sj.JoinSpec, tables: dict[str, pa.Table], pushed: dict[str, int], low: dict[str, float]
) -> set[Numbered]:
    """The rows that have left by now."""
    here = {side: tables[side].slice(0, pushed[side]) for side in tables}
    if spec.how == "semi":  # which leave as soon as there is a match
        return {(row.left, None) for row in sj.oracle.rows(here["left"], here["right"], spec)}
    came = (
        row
        for row in sj.oracle.rows(tables["left"], tables["right"], spec)
        if (row.left or 0) < max(pushed["left"], row.left is None)
        and (row.right or 0) < max(pushed["right"], row.right is None)
    )
    return {(row.left, row.right) for row in came if leaves(row, spec, tables["left"], tables["right"], low)}


def check_leaving(spec: sj.JoinSpec, tables: dict[str, pa.Table], topology: Any, seed: int) -> None:
    """Push row by row, the sides in any interleaving, and compare what has left after each."""
    draw, pushed = random.Random(seed), dict.fromkeys(tables, 0)
    low: dict[str, float] = dict.fromkeys(tables, -math.inf)
    watched = Watched(spec, topology, seed)
    late = topology == "handshake"  # its tuples meet as they flow past each other
    with watched.join as join:
        sources = {side: join.source(side, "") for side in tables}
        while waiting := [side for side in tables if low[side] < math.inf]:
            side = draw.choice(waiting)
            if pushed[side] < tables[side].num_rows:
                row = tables[side].slice(pushed[side], 1)
                sources[side].push(row)
                pushed[side] += 1
                low[side] = row["ts"][0].as_py()
            elif low[side] < 8 and draw.random() < 0.7:
                low[side] = max(low[side] + 1, 0)
                sources[side].advance(int(low[side]))
            else:
                low[side] = math.inf
                sources[side].close()
                join.end(side)
            found, must = watched.poll(), expected(spec, tables, pushed, low)
            assert len(found) == len(set(found))
            assert set(found) <= must if late else set(found) == must, (pushed, low)
        assert set(watched.poll()) == expected(spec, tables, pushed, low)


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@settings(max_examples=25)
@given(
    rows_of_a_side(),
    rows_of_a_side(),
    time_windows(None) | intervals(None),
    outcomes(),
    st.sampled_from(ON),
    st.integers(0, 2**32),
)
def test_rows_leave_when_the_table_says(topology, left, right, window, outcome, on, seed):
    how, keep = outcome
    spec = sj.JoinSpec(NUMBERED, NUMBERED, on, window, "ts", "ts", how=how, keep=keep)
    check_leaving(spec, {"left": numbered(left), "right": numbered(right)}, topology, seed)
