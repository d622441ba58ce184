"""Which topology runs a join that leaves the choice open, and what `explain` says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin import planner

SCHEMA = pa.schema({"ts": pa.timestamp("ms"), "x": pa.int32(), "y": pa.float32()})
BAND = "left.x BETWEEN right.x - 10 AND right.x + 10"
EQUALITY = "left.x = right.x"
DISTANCE = "ABS(left.x - right.x) + ABS(left.y - right.y) < 10"


def spec_of(on: str = BAND, window: Any = None) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, on, window or sj.TimeWindow("10 minutes"), "ts", "ts")


def chosen(spec: sj.JoinSpec, workers: int | None = 2, **known: Any) -> tuple[str, int, str]:
    """Topology, threads and the sentence that tells of it."""
    plan = planner.make_plan(spec, "auto", known.pop("index", "auto"), workers, "any", **known)
    return plan.topology, plan.workers, plan.reasons[0]


@pytest.mark.parametrize("on", [BAND, EQUALITY, DISTANCE])
def test_without_a_word_on_latency_results_are_there_when_push_returns(on):
    topology, workers, reason = chosen(spec_of(on), rate=100_000)
    assert (topology, workers) == ("three_step", 2)
    assert "results are there when push returns" in reason


def test_a_band_whose_results_may_wait_is_joined_by_a_thread_of_its_own():
    topology, workers, reason = chosen(spec_of(), workers=4, latency=0.5)
    assert (topology, workers) == ("scalejoin", 1)
    assert "results may wait 0.5 s" in reason and "1 thread of its own" in reason


@pytest.mark.parametrize(
    ("on", "window", "known", "why"),
    [
        (BAND, None, {"latency": 0.01}, "least latency"),
        (BAND, None, {"latency": 1, "workers": 1}, "nobody to hand pushes to"),
        (EQUALITY, None, {"latency": 1}, "an equality is looked up sooner"),
        (DISTANCE, None, {"latency": 1}, "shares the scan"),
        (BAND, None, {"latency": 1, "index": "scan"}, "shares the scan"),
        (BAND, sj.RowWindow(5_000), {"latency": 1}, "windows of 5,000 tuples"),
        (BAND, None, {"latency": 1, "rate": 10}, "windows of 6,000 tuples"),
        (BAND, (sj.TimeWindow("10 minutes"), sj.RowWindow(50)), {"latency": 1, "rate": 1e4}, "windows of 50 tuples"),
    ],
)  # fmt: skip
def test_three_step_is_kept_where_it_is_faster(on, window, known, why):
    topology, _, reason = chosen(spec_of(on, window), **known)
    assert topology == "three_step" and why in reason


def test_large_windows_are_known_from_the_rate_or_from_rows():
    assert chosen(spec_of(), latency=1, rate=100)[0] == "scalejoin"
    assert chosen(spec_of(window=sj.RowWindow(50_000)), latency=1)[0] == "scalejoin"
    assert chosen(spec_of(), latency=np.float32(1), rate=np.int64(100))[0] == "scalejoin"
    assert chosen(spec_of(), latency=1, rate=1e308)[0] == "scalejoin"


def test_explain_says_what_was_chosen_and_why():
    assert "topology scalejoin: results may wait 2 s" in sj.explain(spec_of(), workers=2, latency=2)
    assert "topology panjoin: as asked" in sj.explain(spec_of(), "panjoin", latency=2)


def test_a_single_equality_is_left_to_hash_tables_where_nodes_are_compiled():
    text = sj.explain(spec_of(EQUALITY), "low_latency_handshake")
    assert "left window: hash, for the equality, which compiled nodes look up" in text
    assert "scanned" not in text
    for on in (f"{EQUALITY} AND left.y < right.y", f"{EQUALITY} OR left.x = right.x + 1", BAND):
        assert "scanned" in sj.explain(spec_of(on), "low_latency_handshake")
    assert "scanned" in sj.explain(spec_of(EQUALITY), "handshake")


@pytest.mark.parametrize("what", ["rate", "latency"])
@pytest.mark.parametrize("given", [0, -1, float("nan"), float("inf"), 10**400, "fast", True])
def test_an_amount_that_makes_no_sense_is_refused(what, given):
    with pytest.raises(sj.StreamJoinError, match=f"{what} is {given!r}; allowed: a number above 0"):
        sj.open_join(spec_of(), **{what: given})


def test_the_chosen_topology_finds_what_the_oracle_finds():
    rows = {"ts": list(range(0, 4000, 2)), "x": [n % 97 for n in range(2000)], "y": [0.0] * 2000}
    table = pa.table(rows, schema=SCHEMA)
    spec = spec_of(window=sj.TimeWindow("100 milliseconds"))
    with sj.open_join(spec, workers=2, order="timestamp", latency=1) as join:
        assert join.plan.topology == "scalejoin"
        for first in range(0, 2000, 100):
            for side in ("left", "right"):
                join.push(side, table.slice(first, 100))
        found = join.finish()
    assert found.equals(sj.oracle.join(table, table, spec)) and found.num_rows > 1000
