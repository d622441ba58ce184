"""Sources that are opened while others run, with names between theirs: the order of tuples stays that of the names."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.plan.options import TOPOLOGY_NAMES

SCHEMA = pa.schema([("ts", pa.int64()), ("n", pa.int64())])
Taken = dict[tuple[str, str], list[tuple[int, int]]]


def rows(*values: tuple[int, int]) -> pa.Table:
    return pa.table([pa.array([v[n] for v in values], pa.int64()) for n in (0, 1)], schema=SCHEMA)


def spec_of(window: Any) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, "left.n >= 0 AND right.n >= 0", window, "ts", "ts")


def numbers(found: pa.Table) -> list[tuple[int, int]]:
    return list(zip(found["n"].to_pylist(), found["n_right"].to_pylist(), strict=True))


@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_newcomers_that_only_advance_do_not_let_a_later_source_come_first(topology):
    """c may still bring a tuple of time 5, which precedes that of d, also now that b and bb lie before both."""
    with sj.open_join(spec_of(sj.TimeWindow(10)), topology, order="timestamp", workers=2) as join:
        a, c, d = (join.source("left", name) for name in "acd")
        join.source("right", "r").push(rows((7, 0)))
        d.push(rows((5, 1)))
        a.advance(6)
        b, bb = join.source("left", "b"), join.source("left", "bb")
        b.advance(6)
        bb.advance(6)
        c.advance(5)
        join.poll(0.05)
        c.push(rows((5, 2)))
        assert numbers(join.finish()) == [(2, 0), (1, 0)]


def act(join: sj.Join, draw: random.Random) -> Taken:
    """Open sources, push and advance them at random; what was pushed and not late."""
    taken: Taken = {}
    sources: dict[str, list[sj.Source]] = {"left": [], "right": []}

    def open_some(side: str) -> None:
        for _ in range(draw.randint(1, 3)):
            name = f"{draw.choice('abcdefghijkl')}{len(sources[side])}"
            sources[side].append(join.source(side, name))
            taken[side, name] = []

    for side in sources:
        open_some(side)
    for number in range(40):
        side, what = draw.choice(["left", "right"]), draw.random()
        source = draw.choice(sources[side])
        ts = int(max(source.newest, source.promised, 0)) + draw.choice([0, 0, 0, 1])
        if what < 0.2:
            open_some(side)
        elif what < 0.6:
            source.advance(ts)
        else:
            late = join.stats().late
            source.push(rows((ts, number)))
            if join.stats().late == late:
                taken[side, source.name].append((ts, number))
    return taken


def union(taken: Taken, side: str) -> pa.Table:
    """All rows of a side in the order (ts, name, position)."""
    named = sorted((name, each) for (of, name), each in taken.items() if of == side)
    return rows(*sorted((row for _, each in named for row in each), key=lambda row: row[0]))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_sources_that_come_one_after_the_other_join_as_their_union(topology, seed):
    cases: Any = ((sj.RowWindow(4), "any"), (sj.TimeWindow(3), "timestamp"))
    for window, order in cases:
        spec = spec_of(window)
        with sj.open_join(spec, topology, order=order, workers=2) as join:
            taken = act(join, random.Random(seed))
            found = numbers(join.finish())
        expected = numbers(sj.oracle.join(union(taken, "left"), union(taken, "right"), spec))
        assert expected
        assert (found if order == "timestamp" else sorted(found)) == (
            expected if order == "timestamp" else sorted(expected)
        )
