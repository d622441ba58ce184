"""Stamps: the overlap of two intervals is the window condition, whatever is pushed when; what expires is not needed."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamjoin as sj
from strategies import windows
from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.index.times import saturated_sum
from streamjoin.index.tuples import ProbingTuples
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.semantics.spec import OTHER
from streamjoin.topologies.protocol import Frontier
from streamjoin.topologies.stamps import ArrivalStamps, OrderStamps

SCHEMA = pa.schema({"ts": pa.int64()})
NUMBERED = pa.schema({"ts": pa.int64(), "n": pa.int64()})
SIDES = ("left", "right")
RANKS = {side: np.zeros(1, np.int32) for side in SIDES}


def tuples(ts: list[int], first: int) -> ProbingTuples:
    ids = np.arange(first, first + len(ts))
    known = Probing(np.ones(len(ts), np.bool_))
    return ProbingTuples(np.array(ts, np.int64), ids, np.zeros(len(ts), np.int32), Stored(), False, known)


def taken(
    stamps: Any, times: dict[str, list[int]], cuts: list[int], most: int
) -> tuple[list[Any], list[Any]]:
    """Push both sides in pieces, each side one source, and take whatever is ready: (side, id, since, place) of every
    tuple, and (side, bound, how many were taken) each time something was said to be expired."""
    seen: list[Any] = []
    bounds: list[Any] = []
    at, newest = dict.fromkeys(SIDES, 0), dict.fromkeys(SIDES, -math.inf)
    for side, size in zip(itertools.cycle(SIDES), [*cuts, 99, 99], strict=False):
        piece = times[side][at[side] : at[side] + size]
        newest[side] = max([newest[side], *piece])
        done = {s: at[s] + (size if s == side else 0) >= len(times[s]) and size == 99 for s in SIDES}
        low = {s: math.inf if done[s] else newest[s] for s in SIDES}
        bound = min((low[s], n, 0) for n, s in enumerate(SIDES))
        stamps.push(side, tuples(piece, at[side]), RANKS, Frontier(bound, low))
        at[side] += len(piece)
        while stamps.ready:
            took, part, _ = stamps.take(most)
            seen += zip([took] * len(part), part.id, part.since, part.ts, strict=True)
            bounds += [(s, stamps.expired(s), len(seen)) for s in SIDES]
    stamps.advance(Frontier((math.inf, 0, 0), dict.fromkeys(SIDES, math.inf)))
    while stamps.ready:
        took, part, _ = stamps.take(most)
        seen += zip([took] * len(part), part.id, part.since, part.ts, strict=True)
    return seen, bounds


@given(
    window=windows(None),
    left=st.lists(st.integers(0, 8), max_size=8).map(sorted),
    right=st.lists(st.integers(0, 8), max_size=8).map(sorted),
    cuts=st.lists(st.integers(0, 3), max_size=8),
    most=st.integers(1, 4),
)
def test_tuples_are_in_each_others_window_iff_their_intervals_overlap(window, left, right, cuts, most):
    spec = sj.JoinSpec(NUMBERED, NUMBERED, "TRUE", window, "ts", "ts")
    left_rows, right_rows = (pa.table({"ts": ts, "n": range(len(ts))}, NUMBERED) for ts in (left, right))
    result = sj.oracle.join(left_rows, right_rows, spec)
    expected = sorted(zip(result["n"].to_pylist(), result["n_right"].to_pylist(), strict=True))
    kinds = [OrderStamps] if spec.left_window.rows or spec.right_window.rows else [OrderStamps, ArrivalStamps]
    for kind in kinds:
        seen, bounds = taken(kind(spec), {"left": left, "right": right}, cuts, most)
        assert len(seen) == len(left) + len(right)
        met = [
            (int(a), int(b))
            for (s, a, a_since, a_place), (t, b, b_since, b_place) in itertools.product(seen, seen)
            if (s, t) == SIDES and a_since <= b_place and b_since <= a_place
        ]
        assert sorted(met) == expected
        for side, bound, count in bounds:
            assert all(since >= bound for s, _, since, _ in seen[count:] if s == OTHER[side])


def test_places_are_the_total_order():
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "TRUE", sj.RowWindow(2), "ts", "ts")
    seen, _ = taken(OrderStamps(spec), {"left": [1, 2, 2], "right": [2, 3]}, [], 10)
    assert [(side, int(place)) for side, _, _, place in sorted(seen, key=lambda s: s[3])] == [
        ("left", 0),
        ("left", 1),
        ("left", 2),
        ("right", 3),
        ("right", 4),
    ]
    # Both right tuples reach back to the last two left ones, the left ones to nothing.
    assert {(side, int(id)): int(since) for side, id, since, _ in seen} == {
        ("left", 0): 0,
        ("left", 1): 1,
        ("left", 2): 2,
        ("right", 0): 1,
        ("right", 1): 1,
    }


@pytest.mark.parametrize("size", [0, 1, 5, INT64_MAX])
def test_sums_stop_at_the_ends(size):
    ts = np.array([INT64_MIN, INT64_MIN + 3, 0, INT64_MAX - 3, INT64_MAX])
    for signed in (size, -size):
        exact = [min(max(int(t) + signed, INT64_MIN), INT64_MAX) for t in ts]
        assert saturated_sum(ts, signed).tolist() == exact


@pytest.mark.parametrize("kind", [ArrivalStamps, OrderStamps])
def test_a_push_can_be_the_last(kind):
    stamps = kind(sj.JoinSpec(SCHEMA, SCHEMA, "true", sj.TimeWindow(3), "ts", "ts"))
    for side, low in (("left", 5.0), ("right", math.inf)):
        assert not stamps.ended
        stamps.push(side, tuples([5], 0), RANKS, Frontier((low, 0, 0), dict.fromkeys(SIDES, low)))
    assert stamps.ended
