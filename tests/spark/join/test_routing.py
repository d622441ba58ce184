"""Routing: every pair that can match meets at exactly one worker, and a row's place depends on its content alone."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from streamjoin.plan.choose import make_plan
from streamjoin.plan.hot_keys import KeyShare, placed
from streamjoin.plan.options import Options
from streamjoin.plan.physical import Plan
from streamjoin.plan.routing import Routing, choose_routing
from streamjoin.spark.join import routing
from streamjoin.spark.join.pack import divided
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.window_join import make_task

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20)


def places(route: Routing, side: str, hashes: list[int]) -> list[set[int]]:
    """The workers of each row."""
    targets = routing.rows_by_hash(route, side, np.array(hashes, np.int64))
    assert len(targets) == route.workers
    return [{worker for worker, rows in enumerate(targets) if row in rows} for row in range(len(hashes))]


@given(HASHES, HASHES, st.integers(1, 6), st.integers(1, 6))
def test_a_pair_meets_in_one_cell_of_a_matrix(left, right, rows, columns):
    route = Routing("matrix", rows, columns)
    for l, r in itertools.product(places(route, "left", left), places(route, "right", right)):
        assert len(l) == columns and len(r) == rows
        assert len(l & r) == 1


@given(HASHES, st.integers(1, 9))
def test_equal_hashes_meet_at_one_worker(hashes, workers):
    route = Routing("hash", workers)
    left, right = places(route, "left", hashes), places(route, "right", hashes)
    assert left == right and all(len(place) == 1 for place in left)


FEW_HASHES = st.lists(st.tuples(st.sampled_from([5, -(2**62), 2**63 - 1, 0]), st.integers()), max_size=20)


@given(
    FEW_HASHES,
    FEW_HASHES,
    st.lists(
        st.tuples(st.sampled_from([5, -(2**62), 7]), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=3
    ),
    st.integers(2, 9),
    st.sampled_from([(), ("left",), ("right",)]),
)
def test_a_pair_of_a_hot_key_meets_at_one_worker(left, right, shares, workers, kept):
    """Rows are (hash of the key, hash of the row)."""
    keys = {share[0]: KeyShare(*share) for share in shares}
    route = Routing("hash", workers, hot=placed(list(keys.values()), workers, kept))
    assume(route.hot)
    found = {}
    for side, rows in (("left", left), ("right", right)):
        hashes = np.array([key for key, _ in rows], np.int64)
        ties = np.array([tie % 2**64 - 2**63 for _, tie in rows], np.int64)
        targets = routing.rows_by_key(route, side, hashes, ties)
        assert len(targets) == workers and all((np.diff(target) > 0).all() for target in targets)
        found[side] = [{w for w, target in enumerate(targets) if row in target} for row in range(len(rows))]
        firsts = [
            routing.are_first_copies(route, side, hashes[target], w) for w, target in enumerate(targets)
        ]
        assert sum(first.sum() for first in firsts) == len(rows), "each row has one first copy"
        if side in kept:
            assert all(len(place) == 1 for place in found[side])
    for (l, l_place), (r, r_place) in itertools.product(
        zip(left, found["left"], strict=True), zip(right, found["right"], strict=True)
    ):
        if l[0] == r[0]:
            assert len(l_place & r_place) == 1


def test_rows_of_other_keys_go_where_they_would_go_without_hot_keys():
    hashes = np.random.default_rng(2).integers(-(2**63), 2**63 - 1, 1000)
    route = Routing("hash", 5, hot=placed([KeyShare(42)], 5, ()))
    for side in ("left", "right"):
        with_hot = routing.rows_by_key(route, side, hashes, hashes)
        without = routing.rows_by_hash(Routing("hash", 5), side, hashes)
        assert [rows.tolist() for rows in with_hot] == [rows.tolist() for rows in without]


def test_hashes_are_spread_evenly():
    hashes = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 100_000)
    counts = [len(rows) for rows in routing.rows_by_hash(Routing("hash", 7), "left", hashes)]
    assert sum(counts) == 100_000 and max(counts) < 1.1 * min(counts)


@pytest.mark.parametrize(
    ("workers", "shape"), [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (6, (2, 3)), (7, (1, 7)), (16, (4, 4))]
)
def test_a_matrix_is_as_square_as_it_can_be(workers, shape):
    route = choose_routing("auto", workers, has_equality=False, rows=False, kept=())
    assert (route.rows, route.columns) == shape


@pytest.mark.parametrize(
    ("kept", "copies"), [(("left",), (1, 4)), (("right",), (4, 1)), (("left", "right"), (1, 1))]
)
def test_a_side_of_which_unmatched_rows_are_asked_for_is_not_replicated(kept, copies):
    route = choose_routing("auto", 4, has_equality=False, rows=False, kept=kept)
    assert (route.replicas("left"), route.replicas("right")) == copies


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 8, 16, 40])
def test_workers_land_in_different_partitions(workers):
    ids = routing.worker_ids(workers)
    assert len(ids) == workers and ids[0] == 0
    for partitions in (workers, 3 * workers):
        assert len({routing.spark_hash(key) % partitions for key in ids}) == workers


def test_the_hash_is_that_of_spark(spark):
    keys = [0, 1, 2, 77, 123_456_789, -1]
    rows = spark.createDataFrame([(key,) for key in keys], "key INT").select(F.hash("key")).collect()
    assert [row[0] for row in rows] == [routing.spark_hash(key) for key in keys]


def test_keys_of_different_types_and_expressions_meet():
    left = pa.schema({"ts": pa.int64(), "x": pa.int16(), "s": pa.string()})
    right = pa.schema({"ts": pa.int64(), "a": pa.float64(), "s": pa.large_string()})
    spec = sj.JoinSpec(left, right, "left.x + 1 = right.a AND left.s = right.s", sj.TimeWindow(9), "ts", "ts")
    task = JoinTask(spec, Options(engine="spark"), Routing("hash", 5))
    rows = range(-50, 50)
    lefts = divided(
        task, "left", pa.record_batch([list(rows), list(rows), [f"s{n}" for n in rows]], schema=left)
    )
    rights = divided(
        task,
        "right",
        pa.record_batch([list(rows), [n + 1.0 for n in rows], [f"s{n}" for n in rows]], schema=right),
    )
    assert [part["ts"] for part in lefts] == [part["ts"] for part in rights]
    assert len([part for part in lefts if part.num_rows]) == 5


@pytest.mark.parametrize(
    "on", ["LOWER(left.s) = LOWER(right.s)", "DATE_TRUNC('second', left.ts) = DATE_TRUNC('second', right.ts)"]
)
def test_rows_of_equal_computed_keys_meet_at_one_worker(on):
    schema = pa.schema({"ts": pa.timestamp("us"), "s": pa.string()})
    task = make_task(
        sj.JoinSpec(schema, schema, on, sj.TimeWindow("1 day"), "ts", "ts"), "any", "auto", "auto", 5
    )
    assert task.routing == Routing("hash", 5)
    rows = range(100)
    lefts = divided(
        task, "left", pa.record_batch([[n * 10**6 for n in rows], [f"Key{n}" for n in rows]], schema=schema)
    )
    rights = divided(
        task, "right", pa.record_batch([[n * 10**6 for n in rows], [f"kEY{n}" for n in rows]], schema=schema)
    )
    assert [part["ts"] for part in lefts] == [part["ts"] for part in rights]
    assert len([part for part in lefts if part.num_rows]) == 5


def test_rows_that_can_not_match_are_left_out_unless_they_are_asked_for():
    schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
    spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(9), "ts", "ts")
    batch = pa.record_batch([[1, 2, 3, 4], [7, None, None, 8]], schema=schema)

    how: Any
    for how, sides in (("inner", (2, 2)), ("left", (4, 2)), ("full", (4, 4))):
        task = JoinTask(replace(spec, how=how), Options(engine="spark"), Routing("hash", 2))
        counts = [sum(part.num_rows for part in divided(task, side, batch)) for side in ("left", "right")]
        assert tuple(counts) == sides


# Ranges

# The sides share no names, so that whoever asks a side for the other's columns gets an error.
POINTS = {
    "left": pa.schema({"ts": pa.int64(), "x": pa.float64(), "reach": pa.int32()}),
    "right": pa.schema({"at": pa.int64(), "a": pa.float64(), "far": pa.int32()}),
}
NEAR = "abs(left.x - right.a) <= 1"


def ranged(on: str, how: Any = "inner", workers: int = 3, asked: Any = "auto") -> JoinTask:
    spec = sj.JoinSpec(POINTS["left"], POINTS["right"], on, sj.TimeWindow(9), "ts", "at")
    return make_task(replace(spec, how=how), "any", "auto", asked, workers)


@pytest.mark.parametrize(
    ("on", "how", "route"),
    [
        (NEAR, "inner", Routing("range", 3, 1, "left", 8.0)),
        (NEAR, "left", Routing("range", 3, 1, "left", 8.0)),
        (NEAR, "right", Routing("range", 3, 1, "right", 8.0)),
        (NEAR, "full", Routing("matrix", 1, 1)),
        (
            "left.x BETWEEN right.a - right.far AND right.a + right.far",
            "inner",
            Routing("matrix", 1, 3),
        ),
        ("left.x > right.a", "inner", Routing("matrix", 1, 3)),
        ("abs(left.x - right.a) <= 0", "inner", Routing("matrix", 1, 3)),
        ("left.x BETWEEN right.a AND right.a + 1e308", "inner", Routing("matrix", 1, 3)),
        ("left.x = right.a", "inner", Routing("hash", 3)),
        (f"{NEAR} AND left.reach < right.far", "inner", Routing("range", 3, 1, "left", 8.0)),
    ],
)
def test_ranges_are_chosen_where_every_interval_is_equally_wide(on, how, route):
    assert ranged(on, how).routing == route


@pytest.mark.parametrize(
    ("on", "how", "why"),
    [(NEAR, "full", "a full join"), ("left.x > right.a", "inner", "no interval condition")],
)
def test_ranges_that_can_not_be_are_refused(on, how, why):
    with pytest.raises(sj.StreamJoinError, match=why):
        ranged(on, how, asked="range")


VALUES = st.lists(
    st.one_of(
        st.floats(-30, 30), st.sampled_from([7.0, 8.0, 9.0, float("inf"), -1e300, float("nan")]), st.none()
    ),
    min_size=1,
    max_size=20,
)


@given(VALUES, VALUES, st.integers(1, 5), st.sampled_from(["inner", "left", "right"]))
def test_a_pair_within_the_interval_meets_at_one_worker(left, right, workers, how):
    task = ranged(NEAR, how, workers, "range")
    batches = {
        side: pa.record_batch([list(range(len(xs))), xs, [0] * len(xs)], schema=POINTS[side])
        for side, xs in (("left", left), ("right", right))
    }
    parts = {side: divided(task, side, batch) for side, batch in batches.items()}
    assert all(len(part) == workers for part in parts.values())
    met = [
        (l, r)
        for lefts, rights in zip(parts["left"], parts["right"], strict=True)
        for l, r in itertools.product(lefts["ts"].to_pylist(), rights["at"].to_pylist())
    ]
    for l, r in itertools.product(range(len(left)), range(len(right))):
        near = left[l] is not None and right[r] is not None and abs(left[l] - right[r]) <= 1
        assert met.count((l, r)) == 1 if near else met.count((l, r)) <= 1
    once = task.routing.once
    placed = sorted(time for part in parts[once] for time in part.column(0).to_pylist())
    keys = {"left": left, "right": right}[once]
    asked_for = [n for n, x in enumerate(keys) if how != "inner" or (x is not None and x == x)]
    assert placed == asked_for, "each row of that side goes to one worker, if it can matter"


def test_uniform_keys_are_spread_evenly_and_few_rows_are_sent_twice():
    task = ranged(NEAR, workers=4)
    xs = np.random.default_rng(1).random(40_000) * 3_000
    columns = [np.arange(40_000), xs, np.zeros(40_000, np.int32)]
    lefts, rights = (
        [part.num_rows for part in divided(task, side, pa.record_batch(columns, schema=schema))]
        for side, schema in POINTS.items()
    )
    assert sum(lefts) == 40_000 and max(lefts) < 1.1 * min(lefts)
    assert 1.2 * 40_000 < sum(rights) < 1.3 * 40_000


def test_tasks_that_differ_only_in_how_rows_are_spread_share_one_plan(monkeypatch):
    planned = []

    def counted(*given: Any) -> Plan:
        planned.append(given)
        return make_plan(*given)

    monkeypatch.setattr("streamjoin.spark.join.task.make_plan", counted)
    schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
    spec = sj.JoinSpec(schema, schema, "abs(left.x - right.x) <= 12345", sj.TimeWindow(9), "ts", "ts")
    tasks = [make_task(spec, "any", "auto", "auto", workers) for workers in (1, 2, 8)]
    assert len({task.digest for task in tasks}) == 3
    assert len({id(task.compiled.plan) for task in tasks}) == len(planned) == 1


def test_a_worker_has_the_plan_of_the_driver():
    """A task is pickled on its way to a worker, which must not choose anything again."""
    task = ranged(NEAR, "left", 3)
    received = pickle.loads(pickle.dumps(task))
    assert received.plan().to_dict() == task.plan().to_dict() and received.options is not task.options
    assert received.compiled.ranged(received.routing).band == task.plan().nodes.band
