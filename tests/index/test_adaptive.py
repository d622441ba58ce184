"""A window that is scanned or indexed by cost: what it finds, when it changes, and that it cannot switch back and
forth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.codegen.columns import to_column_data
from streamjoin.codegen.prepared import Stored
from streamjoin.codegen.programs import WindowProgram
from streamjoin.index import adaptive
from streamjoin.index.adaptive import AdaptiveWindow, in_total_order
from streamjoin.index.chain import ChainWindow
from streamjoin.index.scan import ScanWindow
from streamjoin.index.times import Reach
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.costs import scanned_up_to
from streamjoin.plan.subwindows import BandRule
from streamjoin.plan.tuning import IndexCosts, Tuning, WindowTuning
from streamjoin.semantics.analysis import analyse
from streamjoin.semantics.callables import CallablePredicate

LEFT = pa.schema({"ts": pa.int64(), "x": pa.int32(), "y": pa.int32()})
RIGHT = pa.schema({"ts": pa.int64(), "a": pa.int32(), "b": pa.int32()})
PLANE = "x BETWEEN a - 1 AND a + 1 AND y BETWEEN b - 1 AND b + 1"
TWO_SOURCES = np.array([1, 0], np.int32)  # source 1 comes before source 0 at equal times


def make_program() -> WindowProgram:
    spec = sj.JoinSpec(LEFT, RIGHT, PLANE, sj.TimeWindow(1), "ts", "ts")
    assert not isinstance(spec.predicate, CallablePredicate)
    return WindowProgram(spec.predicate, analyse(spec.predicate).left, "left", indexed=True)


PROGRAM = make_program()


TUNING = Tuning(
    costs=IndexCosts(per_push=100, isolated_pair=0, batch=1_000, fewest_tuples=8),
    window=WindowTuning(smallest_subwindow=4, largest_subwindow=16, longest_pause=1),
)


def make_window(tuning: Tuning = TUNING) -> AdaptiveWindow:
    choose = BandRule(PROGRAM, "bisort", PROGRAM.indexable(False))
    return AdaptiveWindow(PROGRAM, choose, tuning=tuning)


Row = tuple[int, int | None, int | None]


def prepared(side: str, rows: list[Row], first: int = 0, sources: list[int] | None = None) -> Any:
    """Rows (ts, key, key) in the role that their side has for the left window, with ids from `first` on."""
    columns = PROGRAM.stored_columns if side == "left" else PROGRAM.probe_columns
    names = (LEFT if side == "left" else RIGHT).names
    data = {
        c: to_column_data(pa.array([row[names.index(c.name)] for row in rows], pa.int32()), c.type)
        for c in columns
    }
    ts, source = np.array([row[0] for row in rows], np.int64), np.array(sources or [0] * len(rows), np.int32)
    nulls = any(value is None for row in rows for value in row)
    header = ts, np.arange(first, first + len(rows)), source
    if side == "left":
        return Tuples(*header, PROGRAM.prepare_stored(data, len(rows)), nulls)
    return ProbingTuples(*header, Stored(), nulls, PROGRAM.prepare_probe(data, len(rows)))


def found(window: AdaptiveWindow, probes: list[Row], low: int, high: int) -> list[tuple[int, int]]:
    """(probe, id) pairs, sorted."""
    pairs = PairBuffer(1)
    reach = Reach(np.full(len(probes), low), np.full(len(probes), high))
    for _ in window.probe(prepared("right", probes), reach, pairs):
        pass
    probe, pos = pairs.take()
    return sorted(zip(probe.tolist(), window.ids(pos).tolist(), strict=True))


def holds(l: Row, r: Row) -> bool:
    if None in l or None in r:
        return False
    return all(abs(a - b) <= 1 for a, b in zip(l[1:], r[1:], strict=True) if a is not None and b is not None)


def expire(window: AdaptiveWindow, low: int) -> None:
    window.expire(low)


def kind(window: AdaptiveWindow) -> type:
    return type(window.window)


def push(window: AdaptiveWindow, rows: list[Row], first: int) -> None:
    """Probe with as many as are stored then."""
    found(window, rows, -(10**6), 10**6)
    window.insert(prepared("left", rows, first), TWO_SOURCES)


def test_a_window_is_indexed_when_it_has_grown_and_scanned_when_it_has_shrunk():
    window, seen = make_window(), []
    for n in range(0, 120, 4):
        push(window, [(n + i, n, i) for i in range(4)], n)
        seen.append(kind(window))
    assert seen[0] is ScanWindow and seen[-1] is ChainWindow and seen.count(ScanWindow) < 20
    assert found(window, [(0, 40, 1)], 0, 200) == [(0, 40), (0, 41), (0, 42)]
    compared = window.comparisons
    for n in range(120, 160):
        expire(window, n - 4)
        push(window, [(n, n, 0)], n)
    assert kind(window) is ScanWindow
    assert window.comparisons >= compared  # they are counted on
    assert [change.split()[0] for change in window.workload.changes] == ["indexed", "bisort", "scanned"]
    assert found(window, [(0, 158, 0)], 0, 200) == [(0, 157), (0, 158), (0, 159)]


def test_less_than_the_fewest_tuples_are_never_indexed():
    window = make_window(replace(TUNING, costs=replace(TUNING.costs, per_push=0)))
    for n in range(0, 400, 2):
        push(window, [(n, n, 0), (n + 1, n, 0)], n)
        expire(window, n - 4)
        assert kind(window) is ScanWindow
    assert not window.workload.changes


def test_a_window_between_the_two_costs_does_not_flap():
    """Its size moves around the threshold: it changes once at most."""
    window, rng, at = make_window(), np.random.default_rng(1), 0
    for _ in range(600):
        # An index pays from about 27 tuples on, a scan below 18.
        push(window, [(at, at, 0), (at + 1, at, 0)], at)
        at += 2
        expire(window, at - int(rng.integers(20, 36)))
    assert len(window.workload.changes) <= 2  # indexed, and by which structure


def test_what_changes_cost_is_shared_by_the_tuples_that_came():
    """Batches that alternate between one probe and many: a window moves at most a few times the tuples that come."""
    window, at, moved = make_window(), 0, 0
    for turn in range(400):
        before = kind(window)
        push(window, [(at + i, at + i, 0) for i in range(40 if turn // 20 % 2 else 1)], at)
        at += 40 if turn // 20 % 2 else 1
        moved += len(window) if kind(window) is not before else 0
        expire(window, at - 50)
    assert moved <= 2 * adaptive.PART_BETWEEN_CHANGES * (at + 400 * adaptive.PUSH)


def test_tuples_that_came_in_any_order_are_scanned_in_the_total_order():
    window = make_window()
    push(window, [(n, n, 0) for n in range(50)], 0)
    push(window, [(n, n, 0) for n in range(0, 50, 5)], 50)
    push(window, [(60, 0, 0)], 60)
    assert kind(window) is ChainWindow
    chain_window = window.window
    assert isinstance(chain_window, ChainWindow)
    tuples = in_total_order(chain_window.tuples(), TWO_SOURCES)
    assert tuples.ts.tolist() == sorted(tuples.ts.tolist())
    assert tuples.id.tolist()[:4] == [0, 50, 1, 2]  # of equal times, the first that came first


def test_equal_times_are_ordered_by_source():
    tuples = prepared("left", [(5, 0, 0), (5, 1, 1), (6, 2, 2)], 0, [0, 1, 0])
    assert in_total_order(tuples, TWO_SOURCES).id.tolist() == [1, 0, 2]
    assert in_total_order(tuples, np.array([0, 1], np.int32)) is tuples


def test_explained_thresholds_fall_with_the_batch():
    sizes = [scanned_up_to(PROGRAM, batch, IndexCosts()) for batch in (1, 4, 16, 64)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1] >= IndexCosts().fewest_tuples


KEYS = st.sampled_from([0, 1, 2, 3, 9, None])
ROWS = st.lists(st.tuples(st.integers(0, 5), KEYS, KEYS), min_size=1, max_size=30)


@settings(max_examples=80)
@given(batches=st.lists(st.tuples(st.integers(0, 20), ROWS, ROWS), max_size=12))
def test_it_finds_what_a_list_finds(batches):
    """Batches that overlap in time, windows that grow and shrink, NULLs: whatever it is at the moment."""
    window, held, now, gone = make_window(), list[Row](), 0, 0
    for step, rows, probes in batches:
        now += step
        arrived = sorted([(now + ts, x, y) for ts, x, y in rows], key=lambda row: row[0])
        window.insert(prepared("left", arrived, len(held)), TWO_SOURCES)
        held += arrived
        low, high = max(gone, now - 6), now + 3
        expected = [
            (i, n)
            for i, probe in enumerate(probes)
            for n, row in enumerate(held)
            if low <= row[0] <= high and holds(row, probe)
        ]
        assert found(window, [(now, a, b) for _, a, b in probes], low, high) == sorted(expected)
        gone = max(gone, now - 6)
        expire(window, gone)


def test_memory_and_tuples_are_let_go() -> None:
    window = make_window()
    push(window, [(n, n, 0) for n in range(200)], 0)
    push(window, [(200, 0, 0)], 200)
    assert kind(window) is ChainWindow and window.nbytes > 0
    window.clear()
    assert len(window) == 0
    push(window, [(300, 7, 0)], 201)
    assert found(window, [(0, 7, 0)], 0, 400) == [(0, 201)]


def test_nothing_inserted_into_an_empty_window_changes_nothing():
    window = make_window()
    push(window, [(1, 1, 1)], 0)
    window.clear()
    for _ in range(100):  # long enough for it to check its costs
        window.insert(prepared("left", []), TWO_SOURCES)
    assert len(window) == 0 and kind(window) is ScanWindow
