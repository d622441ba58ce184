"""The index over one run finds what comparing all rows finds, for every structure it may choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj

pytest.importorskip("pyspark")

from streamjoin.index.access import BandAccess, StripAccess
from streamjoin.index.times import Reach
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.sorted.strips import FEW_STRIPS
from streamjoin.plan.options import Options
from streamjoin.plan.rulers import Ruler, Rulers, strip_widths
from streamjoin.plan.subwindows import Choice, StripsKey
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.state.content import Content
from streamjoin.spark.state.run_index import RunIndex, ScannedRun

POINTS = pa.schema({"ts": pa.int64(), "x": pa.float64(), "y": pa.int64(), "reach": pa.float64()})
NEAR = "abs(left.x - right.x) <= right.reach AND left.y BETWEEN right.y - 2 AND right.y + 2"
EQUAL = "left.y = right.y"


def points(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(POINTS.names, row, strict=True)) for row in rows], POINTS)


def pairs_of(index: RunIndex | ScannedRun, probes: Any, reach: Reach) -> set[tuple[int, int]]:
    buffer = PairBuffer(64)
    for _ in index.probe(probes, reach, buffer, {}):
        pass
    probe, place = buffer.take()
    found = list(zip(probe.tolist(), place.tolist(), strict=True))
    assert len(found) == len(set(found)), "a pair came twice"
    return set(found)


def contents(on: str, left: list[Any], right: list[Any], index: Any = "auto") -> tuple[Content, Content]:
    task = JoinTask(
        sj.JoinSpec(POINTS, POINTS, on, sj.TimeWindow(10), "ts", "ts"),
        Options(index=index, engine="spark"),
    )
    return Content(task, "left", points(left)), Content(task, "right", points(right))


def rulers(strip: float, step: float) -> Rulers:
    return Rulers(Ruler(0.0, strip), Ruler(0.0, step))


def by_strips(stored: Content, key: StripsKey) -> RunIndex:
    program = stored.task.plan().programs["left"]
    return RunIndex(program, Choice("bisort", key, "strips", "the only one"), stored.stored)


def test_a_probe_finds_what_lies_in_its_rectangle_across_the_edge_of_a_strip():
    stored, probing = contents(
        NEAR,
        [(0, 7.9, 5, 0.0), (1, 8.1, 5, 0.0), (2, 8.1, 9, 0.0), (3, None, 5, 0.0), (4, -0.1, 5, 0.0)],
        [(5, 8.0, 5, 0.5), (5, 0.0, 6, 0.1), (5, 8.0, 5, None)],
    )
    key = StripsKey((0, 1), rulers(8.0, 1.0))
    index = RunIndex(
        stored.task.plan().programs["left"], Choice("bisort", key, "strips", "the only one"), stored.stored
    )
    probes = probing.tuples.pick(np.array([0, 1]))
    reach = Reach(np.full(2, -5), np.full(2, 15))
    assert pairs_of(index, probes, reach) == {(0, 0), (0, 1), (1, 4)}
    assert pairs_of(index, probes, Reach(np.full(2, 1), np.full(2, 3))) == {(0, 1)}, "of the time it reaches"


def test_a_strict_reach_ends_before_its_own_time():
    stored, probing = contents(NEAR, [(5, 8.0, 5, 0.0)], [(5, 8.0, 5, 0.5)])
    key = StripsKey((0, 1), rulers(8.0, 1.0))
    index = RunIndex(
        stored.task.plan().programs["left"], Choice("bisort", key, "strips", "the only one"), stored.stored
    )
    low, high = np.array([0]), np.array([5])
    assert pairs_of(index, probing.tuples, Reach(low, high)) == {(0, 0)}
    assert pairs_of(index, probing.tuples, Reach(low, high, strict=True)) == set()


def test_a_run_with_two_bands_is_cut_into_strips_and_one_with_few_rows_is_scanned():
    rng = np.random.default_rng(1)
    rows = [(i, float(x), int(y), 3.0) for i, (x, y) in enumerate(rng.integers(0, 500, (5_000, 2)))]
    stored, probing = contents(NEAR, rows, rows[:300])
    indexer = stored.task.compiled.indexers["left"]
    made = indexer.index(stored.stored, probing.tuples)
    assert isinstance(made, RunIndex) and isinstance(made.access, StripAccess)
    again = indexer.index(stored.stored, probing.tuples)
    assert isinstance(again, RunIndex) and again.choice == made.choice, "runs share what probes ask"
    few = indexer.index(stored.stored.pick(slice(0, 100)), probing.tuples)
    assert isinstance(few, ScannedRun)
    reach = Reach(np.full(300, 0), np.full(300, 4_000))
    scanned = ScannedRun(stored.task.plan().programs["left"], stored.stored)
    assert pairs_of(made, probing.tuples, reach) == pairs_of(scanned, probing.tuples, reach)
    assert made.comparisons < scanned.comparisons / 100


def test_strips_follow_keys_that_move_on_from_run_to_run():
    rng, compared = np.random.default_rng(2), []
    for run in range(4):
        places = rng.uniform(0, 1000, (6_000, 2)) + 1_000_000_000 * run
        rows = [(run, float(x), int(y), 10.0) for x, y in places]
        stored, probing = contents(NEAR, rows, rows[:500])
        if not run:
            indexer = stored.task.compiled.indexers["left"]
        made = indexer.index(stored.stored, probing.tuples)
        assert isinstance(made, RunIndex) and isinstance(made.access, StripAccess)
        pairs_of(made, probing.tuples, Reach(np.full(500, -10), np.full(500, 20)))
        compared.append(made.comparisons)
    assert max(compared) < 2 * compared[0]


def test_strips_are_wider_the_less_is_found_and_their_widths_are_powers_of_two():
    assert strip_widths((16.0, 64.0), 1.0) == (16.0, 1.0)
    assert strip_widths((16.0, 64.0), 0.06) == (64.0, 1.0)
    assert strip_widths((16.0, 64.0), 0.0) == (256.0, 1.0)
    for ends in (strip_widths((5e-324, 5e-324), 1.0), strip_widths((1.7e308, 1.7e308), 0.0)):
        assert all(0 < width < float("inf") for width in ends)


coordinates = st.one_of(
    st.floats(-40, 40),
    st.sampled_from([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e300]),
    st.none(),
)
numbers = st.one_of(st.integers(-20, 20), st.sampled_from([2**63 - 1, -(2**63) + 3]), st.none())
reaches = st.one_of(st.floats(0, 9), st.sampled_from([0.0, 1e9, float("inf"), float("nan")]), st.none())
rows_of = st.lists(st.tuples(st.integers(0, 9), coordinates, numbers, reaches), min_size=1, max_size=40)


@settings(max_examples=60)
@given(
    rows_of,
    rows_of,
    st.sampled_from([(0.5, 0.25), (4.0, 1.0), (64.0, 8.0)]),
    st.integers(-3, 12),
    st.integers(0, 6),
    st.booleans(),
)
def test_strips_find_what_a_scan_finds(left, right, widths, low, length, strict):
    stored, probing = contents(NEAR, sorted(left, key=lambda r: r[0]), right)
    scanned = ScannedRun(stored.task.plan().programs["left"], stored.stored)
    key = StripsKey((0, 1), rulers(*widths))
    index = RunIndex(
        stored.task.plan().programs["left"], Choice("bisort", key, "strips", "the only one"), stored.stored
    )
    probes = probing.tuples
    probes = probes.pick(np.flatnonzero(probes.probing.known))
    if len(probes):
        reach = Reach(np.full(len(probes), low), np.full(len(probes), low + length), strict=strict)
        assert pairs_of(index, probes, reach) == pairs_of(scanned, probes, reach)


@pytest.mark.parametrize("index", ["auto", "hash", "bisort"])
def test_equal_keys_are_found_by_hash_and_sorted(index):
    rng = np.random.default_rng(2)
    rows = [
        (i // 10, 0.0, None if y == 7 else int(y), 0.0) for i, y in enumerate(rng.integers(0, 900, 5_000))
    ]
    stored, probing = contents(EQUAL, rows, rows[:400], index)
    made = stored.task.compiled.indexers["left"].index(stored.stored, probing.tuples)
    assert isinstance(made, RunIndex) and isinstance(made.access, BandAccess)
    probes = probing.tuples.pick(np.flatnonzero(probing.tuples.probing.known))
    reach = Reach(np.full(len(probes), 50), np.full(len(probes), 300))
    scanned = ScannedRun(stored.task.plan().programs["left"], stored.stored)
    assert pairs_of(made, probes, reach) == pairs_of(scanned, probes, reach) != set()


def test_a_probe_of_too_many_strips_meets_all_of_them():
    stored, probing = contents(NEAR, [(0, float(x), 0, 0.0) for x in range(200)], [(0, 100.0, 1, 1e6)])
    key = StripsKey((0, 1), rulers(1.0, 1.0))
    assert FEW_STRIPS < 200 and len(by_strips(stored, key).access.questions(probing.tuples.probing).lows) == 1
    index = RunIndex(
        stored.task.plan().programs["left"], Choice("bisort", key, "strips", "the only one"), stored.stored
    )
    assert len(pairs_of(index, probing.tuples, Reach(np.zeros(1), np.zeros(1)))) == 200
