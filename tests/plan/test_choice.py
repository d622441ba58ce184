"""Which topology runs a join that leaves the choice open, and how `explain` describes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.plan import choose
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Options, TopologyName
from streamjoin.semantics.analysis import analyse

SCHEMA = pa.schema({"ts": pa.timestamp("ms"), "x": pa.int32(), "y": pa.float32()})
BAND = "left.x BETWEEN right.x - 10 AND right.x + 10"
EQUALITY = "left.x = right.x"
DISTANCE = "ABS(left.x - right.x) + ABS(left.y - right.y) < 10"


def spec_of(on: str = BAND, window: Any = None) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, on, window or sj.TimeWindow("10 minutes"), "ts", "ts")


def chosen(spec: sj.JoinSpec, **known: Any) -> tuple[str, int, float, str]:
    """Topology, threads, how long pushes wait for each other, and the sentence that says so."""
    plan = make_plan(spec, Options(**{"workers": 2, **known}))
    return plan.topology, plan.workers, plan.wait, plan.reasons["pushes"]


@pytest.mark.parametrize("on", [BAND, EQUALITY, DISTANCE])
def test_without_a_word_on_latency_nothing_waits(on):
    topology, workers, wait, reason = chosen(spec_of(on), rate=100_000)
    assert (topology, workers, wait) == ("three_step", 2, 0)
    assert "one by one, because no latency says that results may wait" in reason


@pytest.mark.parametrize("window", [None, sj.RowWindow(50_000), (sj.TimeWindow("1 hour"), sj.RowWindow(5))])
@pytest.mark.parametrize("on", [BAND, EQUALITY, DISTANCE])
def test_pushes_whose_results_may_wait_are_gathered(on, window):
    topology, workers, wait, reason = chosen(spec_of(on, window), workers=4, latency=0.5)
    assert (topology, workers, wait) == ("three_step", 4, choose.GATHERING)
    assert "gathered for up to 20 ms" in reason and "results may wait 0.5 s" in reason


def test_pushes_are_not_gathered_where_that_takes_too_long_or_gains_nothing():
    assert chosen(spec_of(), latency=0.01)[2:] == (
        0,
        "joined one by one, because results may wait only 0.01 s",
    )
    *_, wait, reason = chosen(spec_of(), latency=1, rate=100)
    assert wait == 0 and "fewer than 64 tuples come in 20 ms at 100 a second and side" in reason


def test_amounts_may_be_of_any_kind_of_number():
    assert chosen(spec_of(), latency=np.float32(1), rate=np.int64(10_000))[2] > 0
    assert chosen(spec_of(), latency=1, rate=1e308)[2] > 0


def test_explain_says_what_was_chosen_and_why():
    text = sj.explain(spec_of(), workers=2, latency=2)
    assert (
        "three_step, 2 workers: runs in the calling thread" in text and "as soon as they arrive" not in text
    )
    assert "gathered for up to 20 ms and joined together" in text and "results may wait 2 s" in text
    assert "panjoin, 2 workers: as asked" in sj.explain(spec_of(), "panjoin", workers=2, latency=2)


def test_a_single_equality_is_left_to_hash_tables_where_nodes_are_compiled():
    text = sj.explain(spec_of(EQUALITY), "low_latency_handshake")
    assert "hash index: serves the equality, which compiled nodes look up" in text
    assert "compiled nodes look up their share of the keys in hash tables" in text and "scanned" not in text
    for on in (f"{EQUALITY} AND left.y < right.y", f"{EQUALITY} OR left.x = right.x + 1", BAND):
        assert "scanned" in sj.explain(spec_of(on), "low_latency_handshake")
    assert "scanned" in sj.explain(spec_of(EQUALITY), "handshake")


@pytest.mark.parametrize(
    ("cores", "workers"), [(1, 1), (2, 2), (3, 2), (4, 3), (16, 15), (64, 63), (200, 63)]
)
def test_the_caller_gets_a_core_where_it_feeds_workers_on_many(monkeypatch, cores, workers):
    monkeypatch.setattr(choose, "available_cores", lambda: cores)
    feeding: tuple[TopologyName, ...] = ("scalejoin", "panjoin", "low_latency_handshake", "handshake")
    for topology in feeding:
        plan = make_plan(spec_of(), Options(topology=topology))
        assert plan.workers == workers
        explained = f"one core of {min(cores, 64)} is left to the calling thread, assumed to need 0.4 of it"
        assert (explained in sj.explain(spec_of(), topology)) == (cores > 2)
        assert make_plan(spec_of(), Options(topology=topology, workers=7)).workers == 7
    working: tuple[TopologyName, ...] = ("three_step", "celljoin")  # the caller works, or waits
    for topology in working:
        assert make_plan(spec_of(), Options(topology=topology)).workers == min(cores, 64)


def test_explain_says_what_is_assumed_of_more_cores_than_were_measured(monkeypatch):
    for cores, assumed in ((1, False), (2, False), (8, True)):
        monkeypatch.setattr(choose, "available_cores", lambda cores=cores: cores)
        text = sj.explain(spec_of())
        assert ("fastest on 2 cores, and assumed to be on 8" in text) == assumed


@pytest.mark.parametrize("what", ["rate", "latency"])
@pytest.mark.parametrize("given", [0, -1, float("nan"), float("inf"), 10**400, "fast", True])
def test_an_amount_that_makes_no_sense_is_refused(what, given):
    with pytest.raises(sj.StreamJoinError, match=f"{what} is {given!r}; allowed: a number above 0"):
        sj.open_join(spec_of(), **{what: given})


@pytest.mark.parametrize("latency", [None, 1])
def test_the_chosen_topology_finds_what_the_oracle_finds(latency):
    rows = {"ts": list(range(0, 4000, 2)), "x": [n % 97 for n in range(2000)], "y": [0.0] * 2000}
    table = pa.table(rows, schema=SCHEMA)
    spec = spec_of(window=sj.TimeWindow("100 milliseconds"))
    with sj.open_join(spec, workers=2, order="timestamp", latency=latency) as join:
        for first in range(0, 2000, 100):
            for side in ("left", "right"):
                join.push(side, table.slice(first, 100))
        found = join.finish()
    assert found.equals(sj.oracle.join(table, table, spec)) and found.num_rows > 1000


def test_join_tables_plans_once(monkeypatch):
    planned = []

    def counting(predicate):
        planned.append(predicate)
        return analyse(predicate)

    monkeypatch.setattr(choose, "analyse", counting)
    rows = pa.table({"ts": [1], "x": [7], "y": [0.0]}).cast(SCHEMA)
    assert sj.join_tables(rows, rows, spec_of(EQUALITY)).num_rows == 1
    assert len(planned) == 1
