"""Outer, semi, anti, as-of and nearest joins: by eye on a few tuples, then against the oracle for every `how`, `keep`,
window, topology, index and order, with any interleaving of the nodes, several sources, lateness and small buffers."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import open_with
from outcome_runs import check, disordered, rows_of
from strategies import RELEASING, open_tuned, push_all
from streamjoin.plan.options import ORDERS, TOPOLOGY_NAMES
from streamjoin.semantics.keep import DIRECTIONS
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.outcomes import outcomes, picked
from streamjoin.topologies.outcomes.best import BestMatches
from streamjoin.topologies.outcomes.by_time import RowsByTime
from streamjoin.topologies.outcomes.queue import ResultQueue
from streamjoin.topologies.outcomes.rows import MatchBounds, Undecided
from streamjoin.topologies.protocol import Matches
from streamjoin.topologies.runtime.simulator import Simulator, from_seed

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
SCHEMA = pa.schema(
    {"ts": pa.int64(), "x": pa.int32(), "v": pa.float64(), "tie": pa.string(), "n": pa.int64()}
)
WINDOWS: list[Any] = [
    sj.TimeWindow(3),
    sj.TimeWindow(0, right=4),
    sj.TimeWindow(5, right=0),
    sj.Interval(-6, -2),
    sj.Interval(1, 5, closed="left"),
    sj.RowWindow(3),
    sj.RowWindow(left=2, right=0),
    (sj.TimeWindow(3), sj.RowWindow(2)),
    (sj.RowWindow(2), sj.TimeWindow(3)),
]
KEEPS: list[Any] = [
    sj.AsOf(),
    sj.AsOf(strict=True),
    sj.AsOf("forward"),
    sj.AsOf("forward", strict=True),
    sj.AsOf("nearest"),
    sj.AsOf("nearest", strict=True),
    sj.Nearest("abs(left.v - right.v)", k=2),
    sj.Nearest("left.v * right.v", largest=True),
    sj.Nearest("(right.n - 2 * left.n) * 1152921504606846977", k=3, largest=True),  # of 128 bits
]
MADE = [(how, "all") for how in ("left", "right", "full", "semi", "anti", "inner")]
MADE += [(how, keep) for keep in KEEPS for how in ("inner", "left")]
EQUAL, BAND = "left.x = right.x", "left.x BETWEEN right.x - 1 AND right.x + 1"
THREADED = [name for name in TOPOLOGY_NAMES if name != "three_step"]


def table(rows: list[tuple[int, int]], **columns: Any) -> pa.Table:
    """Rows of (ts, x), numbered."""
    count = len(rows)
    plain = {"v": [0.0] * count, "tie": [""] * count, "n": list(range(count))}
    both = {"ts": [ts for ts, _ in rows], "x": [x for _, x in rows]}
    return pa.table({**both, **plain, **columns}, schema=SCHEMA)


def spec_of(
    how: Any = "left", keep: Any = "all", window: Any = None, on: str = EQUAL, **options: Any
) -> sj.JoinSpec:
    window = sj.TimeWindow(3) if window is None else window
    return sj.JoinSpec(SCHEMA, SCHEMA, on, window, "ts", "ts", how=how, keep=keep, **options)


# ---- by eye


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("left", {(0, 0), (1, None)}),
        ("right", {(0, 0), (None, 1)}),
        ("full", {(0, 0), (1, None), (None, 1)}),
        ("semi", {(0, None)}),
        ("anti", {(1, None)}),
    ],
)
@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
def test_four_tuples_by_eye(topology, how, expected):
    left, right = table([(0, 7), (10, 8)]), table([(2, 7), (20, 8)])
    result = sj.join_tables(left, right, spec_of(how), topology, workers=2)
    assert Counter(rows_of([result])) == Counter(expected)


def test_an_unmatched_row_leaves_once_the_other_side_has_passed_its_window():
    with sj.open_join(spec_of("left")) as join:
        join.push("left", table([(0, 7)]))
        join.push("right", table([(3, 8)]))
        assert join.poll() == []  # a right row at 3 could still come
        join.push("right", table([(4, 8)]))
        assert rows_of(join.poll()) == [(0, None)]


def test_a_backward_as_of_row_leaves_once_the_right_side_has_passed_its_time():
    with sj.open_join(spec_of("left", sj.AsOf(), sj.TimeWindow(1000))) as join:
        join.push("right", table([(1, 7), (2, 7)]))
        join.push("left", table([(5, 7), (5, 9)]))
        assert join.poll() == []
        join.push("right", table([(5, 8)]))
        assert join.poll() == []  # the next one may have this time as well
        join.push("right", table([(6, 7)]))
        assert Counter(rows_of(join.poll())) == {(0, 1): 1, (1, None): 1}


def test_a_semi_join_gives_a_row_with_its_first_match():
    with sj.open_join(spec_of("semi")) as join:
        join.push("left", table([(0, 7)]))
        join.push("right", table([(1, 7), (2, 7)]))
        assert rows_of(join.poll()) == [(0, None)]
        join.push("right", table([(3, 7)]))
        assert join.poll() == []


def test_ties_go_to_the_later_row_and_a_tie_column_says_which_that_is():
    left, right = table([(5, 7)]), table([(4, 7), (4, 7), (4, 7)], tie=["b", "c", "a"])
    assert rows_of([sj.join_tables(left, right, spec_of("inner", sj.AsOf()))]) == [(0, 2)]
    assert rows_of([sj.join_tables(left, right, spec_of("inner", sj.AsOf(), right_tie="tie"))]) == [(0, 1)]


def test_rows_without_a_score_are_not_picked():
    left, right = table([(5, 7)]), table([(4, 7), (5, 7), (6, 7)], v=[math.nan, None, 9.0])
    assert rows_of([sj.join_tables(left, right, spec_of("inner", sj.Nearest("right.v", k=3)))]) == [(0, 2)]


def test_columns_and_nullability_follow_how():
    left, right = table([(0, 7)]), table([(9, 7)])
    assert sj.join_tables(left, right, spec_of("anti")).schema.names == SCHEMA.names
    outer = sj.join_tables(left, right, spec_of("full"))
    assert outer.to_pylist()[0]["ts_right"] is None
    assert sj.join_tables(left, right, spec_of("full")).equals(outer)


def test_late_rows_take_no_part_and_are_not_unmatched():
    with sj.open_join(spec_of("left", lateness=2)) as join:
        join.push("left", table([(10, 7), (3, 7)]))
        result = join.finish()
        assert rows_of([result]) == [(0, None)]


def test_sorted_rows_of_ties_need_no_row_that_is_gone():
    """The right rows that came first are gone when rows without a partner are sorted among pairs."""
    spec = spec_of("left", left_tie="tie", right_tie="tie")
    with sj.open_join(spec, order="timestamp") as join:
        left, right, found = join.source("left", ""), join.source("right", ""), []
        for at in (0, 100, 200):
            right.push(table([(at, 1), (at, 2)]))
            left.push(table([(at, 1), (at, 3), (at + 1, 4)]))
            for source in (left, right):
                source.advance(at + 50)
            found += rows_of(join.poll())
            made: Any = join._topology
            assert sum(len(facts._columns) for facts in made._facts.values()) == 0
    assert found == [(0, 0), (1, None), (2, None)] * 3


@pytest.mark.parametrize("window", [sj.RowWindow(2, 5), (sj.RowWindow(2), sj.TimeWindow(9))])
@pytest.mark.parametrize(
    "keep", [sj.AsOf("nearest"), sj.AsOf("forward"), sj.Nearest("abs(left.n - right.n)")]
)
@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
def test_a_row_without_a_partner_waits_for_the_row_that_ends_its_window_though_right_has_ended(
    topology, keep, window
):
    """Its result time is that of the second row after it. Rows with a match do not wait for that."""
    left, right = [(1, 9), (2, 9), (3, 9), (4, 7), (5, 9), (6, 7)], table([(1, 7), (2, 8)])
    spec = spec_of("left", keep, window)
    with sj.open_join(spec, topology, order="timestamp", workers=2) as join:
        join.push("right", right)
        join.end("right")
        found = []
        for number, row in enumerate(left):
            join.push("left", table([row], n=[number]))
            found += rows_of(join.poll())
        found += rows_of([join.finish()])
    expected = sj.oracle.rows(table(left), right, spec)
    assert found == [(row.left, row.right) for row in expected]


def test_a_row_with_a_match_leaves_in_order_once_right_has_ended():
    with sj.open_join(spec_of("left", sj.AsOf("nearest"), sj.RowWindow(1_000)), order="timestamp") as join:
        join.push("right", table([(1, 7)]))
        join.push("left", table([(2, 9), (3, 7)]))
        join.end("right")
        assert rows_of(join.poll()) == []  # a left row of the same time and a lower source can still come
        join.push("left", table([(4, 9)]))
        assert rows_of(join.poll()) == [(1, 0)]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("window", [sj.RowWindow(3), sj.TimeWindow(INT64_MAX)])
@pytest.mark.parametrize("index", ["auto", "scan"])
def test_times_at_opposite_ends_of_64_bits(index, window, direction):
    """Their difference has 65 bits."""
    spec = spec_of("left", sj.AsOf(direction), window)
    ends = [([INT64_MIN], [INT64_MAX]), ([-INT64_MAX], [INT64_MAX]), ([INT64_MIN], [5, INT64_MAX - 3])]
    ends += [([INT64_MAX], [INT64_MIN, INT64_MAX - 1]), ([0], [INT64_MIN, INT64_MAX])]
    for times in ends:
        left, right = (table([(ts, 7) for ts in side]) for side in times)
        found = rows_of([sj.join_tables(left, right, spec, index=index, workers=1)])
        assert found == [(row.left, row.right) for row in sj.oracle.rows(left, right, spec)]


# ---- what is kept


@pytest.mark.parametrize(
    ("how", "keep"), [("left", "all"), ("full", "all"), ("left", sj.AsOf()), ("semi", "all")]
)
@pytest.mark.parametrize("order", ["any", "timestamp"])
def test_what_is_kept_does_not_grow(how, keep, order):
    """After every hundred rows no more is held than after the first hundreds."""
    sizes = []
    with open_tuned(RELEASING, spec_of(how, keep), index="scan", order=order) as join:
        for at in range(0, 3000, 100):
            for side in ("left", "right"):
                rows = [(ts, ts % 7) for ts in range(at, at + 100)]
                join.push(side, table(rows))
            join.poll()
            made: Any = join._topology
            facts = sum(len(each._columns) for each in made._facts.values())
            sizes.append(facts + sum(map(len, made._undecided.values())) + join.stats().payload_rows)
    assert max(sizes[5:]) <= max(sizes[:5])


@pytest.mark.parametrize("ties", [{}, {"right_tie": "tie"}])
@pytest.mark.parametrize("how", ["inner", "left", "semi"])
@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
def test_rows_that_wait_to_be_sorted_are_bounded(topology, how, ties):
    """All of 60 x 60 rows match: the matches of a push leave while it is joined, not after it."""
    most, add = 0, ResultQueue.add

    def watched(queue: ResultQueue, *rows: Any) -> None:
        nonlocal most
        add(queue, *rows)
        most = max(most, len(queue))

    left, right = table([(ts, 7) for ts in range(60)]), table([(ts, 7) for ts in range(60, 120)])
    spec = spec_of(how, window=sj.TimeWindow(1_000), **ties)
    with patch.object(ResultQueue, "add", watched), patch.object(outcomes, "FEW_MATCHES", 100):
        join = sj.open_join(spec, topology, order="timestamp", index="scan", workers=2, max_results=50)
        with join:
            batches = push_all(join, [("left", left), ("right", right)], lambda: False)
            for side in SIDES:
                join.end(side)
            while len(found := join.poll(timeout=10.0)):
                batches += found
    times = sj.oracle.rows(left, right, spec)
    assert rows_of(batches) == [(row.left, None if how == "semi" else row.right) for row in times]
    assert most <= 300


def test_pairs_of_one_time_do_not_wait_for_each_other():
    with sj.open_join(spec_of("left"), order="timestamp", max_results=10) as join:
        join.push("left", table([(5, 7)] * 300))
        join.push("right", table([(5, 7)] * 300))
        made: Any = join._topology
        with patch.object(outcomes, "FEW_MATCHES", 500):
            join.push("right", table([(6, 8)]), timeout=0.0)
            join.push("left", table([(6, 8)]), timeout=0.0)
            assert len(made._queue) == 0
            assert sum(batch.num_rows for batch in join.poll()) >= 10
            assert join.finish().num_rows > 80_000


def test_a_match_for_a_row_that_was_decided_is_an_error():
    made: Any = outcomes.AllMatches
    with sj.open_join(spec_of("left")) as join:
        join.push("left", table([(0, 7), (9, 7)]))  # the second row keeps facts about the first, or not
        join.push("right", table([(9, 8)]))
        assert rows_of(join.poll()) == [(0, None)]
        assert isinstance(join._topology, made)
        with pytest.raises(RuntimeError, match="already final"):
            join._topology.take_matches(Matches(np.array([0]), np.array([0])))


# ---- against the oracle


def tables_of(draw: random.Random, lateness: int | None) -> dict[str, dict[str, pa.Table]]:
    """By side and source: a few rows, in order, or out of order as far as `lateness` allows. Some tables have times at
    both ends of 64 bits."""
    ends = lateness is None and draw.random() < 0.2
    made: dict[str, dict[str, pa.Table]] = {}
    for side in ("left", "right"):
        number, made[side] = 0, {}
        for name in draw.choice([[""], [""], ["b", "a"], ["a", "c", "b"]]):
            count = draw.randrange(14)
            ts = sorted(draw.randrange(14) for _ in range(count))
            if lateness is not None:
                ts = disordered(draw, ts, lateness)
            if ends:
                ts = [INT64_MIN + at if at < 7 else INT64_MAX - 13 + at for at in ts]
            values = [draw.choice([None, math.nan, -1.0, 0.0, 0.5, 2.0]) for _ in range(count)]
            columns: dict[str, Any] = {
                "ts": ts,
                "x": [draw.choice([0, 0, 1, 2, None]) for _ in range(count)],
                "v": values,
                "tie": [draw.choice(["a", "b", None]) for _ in range(count)],
                "n": range(number, number + count),
            }
            made[side][name] = pa.table(
                {k: pa.array(v, SCHEMA.field(k).type) for k, v in columns.items()}, schema=SCHEMA
            )
            number += count
    return made


def check_interleaving(topology: Any, seed: int, on_threads: bool = False) -> None:
    """One small join, everything about it drawn from the seed."""
    draw = random.Random(seed)
    how, keep = draw.choice(MADE)
    window, order = draw.choice(WINDOWS), draw.choice(ORDERS)
    index, on = draw.choice(
        [("scan", EQUAL), ("scan", BAND), ("hash", EQUAL), ("bisort", BAND), ("auto", EQUAL)]
    )
    ties: dict[str, Any] = {}
    rows = isinstance(window, (tuple, sj.RowWindow))
    if not rows and draw.random() < 0.3:
        ties = {f"{side}_tie": draw.choice(["tie", "v", None]) for side in ("left", "right")}
    lateness = draw.choice([None, None, 3])
    spec = spec_of(how, keep, window, on, lateness=lateness, **ties)
    sources = tables_of(draw, lateness)
    settings: dict[str, Any] = {"index": index, "workers": draw.randint(1, 4), "order": order}
    settings["max_results"] = draw.choice([1, 3, 1000])
    simulator, options = None, {}
    if topology != "three_step" and not on_threads:
        simulator = Simulator(from_seed(seed), *([draw.randint(1, 4)] if topology != "celljoin" else []))
        options = {"executor": simulator, **small(topology, draw)}
    join = open_with(topology, spec, **settings, **options)
    check(join, spec, sources, draw, simulator)


def small(topology: str, draw: random.Random) -> dict[str, int]:
    """The smallest batches, buffers and subwindows, so that little data meets every bound."""
    match topology:
        case "celljoin":
            return {"batch": draw.randint(1, 6)}
        case "scalejoin":
            return {"capacity": draw.randint(1, 2), "waiting": draw.randint(0, 4)}
        case "panjoin":
            return {"smallest": 2}
        case "low_latency_handshake":
            return {"batch": draw.randint(1, 3), "capacity": draw.randint(1, 2), "credit": draw.randint(1, 4)}
    return {"batch": draw.randint(1, 3), "capacity": draw.randint(1, 2)}


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@pytest.mark.parametrize("part", range(4))
def test_random_joins_under_the_simulator_give_the_oracles_rows(topology, part):
    for seed in range(100 * part, 100 * part + 100):
        check_interleaving(topology, seed)


@pytest.mark.parametrize("topology", THREADED)
def test_random_joins_on_threads_give_the_oracles_rows(topology):
    for seed in range(10_000, 10_040):
        check_interleaving(topology, seed, on_threads=True)


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@pytest.mark.parametrize("part", range(20))
def test_many_random_joins_under_the_simulator_give_the_oracles_rows(topology, part):
    for seed in range(100_000 + 500 * part, 100_000 + 500 * part + 500):
        check_interleaving(topology, seed)


# ---- guards that are needed: each mutation is found


class TooEarly(Undecided):
    """Decides rows without waiting for matches that are still on their way."""

    def take(self, bounds: MatchBounds) -> Any:
        return super().take(bounds._replace(own=bounds.own + 3, partner=bounds.partner + 3))


class EarlierFirst(BestMatches):
    """Prefers the earlier of two rows that are equally good."""

    def __init__(self, k: int, dtypes: Any, lateness: Any):
        super().__init__(k, dtypes, lambda right: [~key for key in lateness(right)])


class Hasty(RowsByTime):
    """Lets as-of rows leave although a right row at the same distance may come."""

    def take(self, before: float) -> Any:
        return super().take(before + 1)


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [(outcomes, "Undecided", TooEarly), (picked, "BestMatches", EarlierFirst), (picked, "RowsByTime", Hasty)],
)
def test_a_mutation_of_what_decides_is_found(where, name, broken):
    with patch.object(where, name, broken):
        assert any(is_found_wrong(seed) for seed in range(300))


def is_found_wrong(seed: int) -> bool:
    """Whether a join that is drawn from the seed fails."""
    try:
        check_interleaving("scalejoin", seed)
    except (AssertionError, RuntimeError, sj.StreamJoinError):
        return True
    return False
