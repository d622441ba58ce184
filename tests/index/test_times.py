"""Which tuples a probe reaches, at the ends of time and in between."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.index.times import SPARSE, Reach, ReachAround, places, reach_around, saturated_sum
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN


def test_sums_stop_at_the_ends_of_64_bits():
    ts = np.array([INT64_MIN, -1, 0, INT64_MAX])
    assert saturated_sum(ts, 5).tolist() == [INT64_MIN + 5, 4, 5, INT64_MAX]
    assert saturated_sum(ts, -5).tolist() == [INT64_MIN, -6, -5, INT64_MAX - 5]


@given(st.lists(st.integers(0, 50), max_size=60), st.lists(st.integers(-5, 55), min_size=1, max_size=20))
def test_times_that_rise_are_found_where_numpy_finds_them(held, sought):
    ts, asked = np.sort(np.array(held, np.int64)), np.sort(np.array(sought, np.int64))
    for side in ("left", "right"):
        assert places(ts, asked, side, many=2).tolist() == ts.searchsorted(asked, side).tolist()
    for strict, rows in ((False, 0), (True, 0), (True, 7)):
        low = None if rows else asked - 3
        start, stop = Reach(low, asked, rows, strict).positions(ts)
        reached = [int((ts < time if strict else ts <= time).sum()) for time in asked]
        before = [max(0, n - rows) for n in reached] if rows else [int((ts < t - 3).sum()) for t in asked]
        assert (start.tolist(), stop.tolist()) == (before, reached)


def test_few_times_among_many_are_searched_for_one_by_one():
    held = np.repeat(np.arange(20 * SPARSE), 2)
    assert places(held, np.array([3, 19 * SPARSE]), "left", many=2).tolist() == [6, 38 * SPARSE]
    assert places(held, np.array([3, 19 * SPARSE]), "right", many=2).tolist() == [8, 38 * SPARSE + 2]


def test_the_positions_around_a_time():
    ts = np.array([1, 3, 3, 4, 9])
    start, stop = ReachAround(np.array([3, 5, 20]), back=1, ahead=1).positions(ts)
    assert (start.tolist(), stop.tolist()) == ([1, 3, 5], [4, 4, 5])


TIMES = st.one_of(st.integers(0, 40), st.sampled_from([INT64_MIN, INT64_MIN + 3, INT64_MAX - 3, INT64_MAX]))


@given(
    held=st.lists(TIMES, max_size=60),
    asked=st.lists(TIMES, min_size=1, max_size=20),
    back=st.integers(-5, 30),
    ahead=st.integers(-5, 30),
)
def test_positions_found_by_one_kernel_are_those_of_the_bounds(held, asked, back, ahead):
    """The range is empty where it ends before it begins: there the two differ in where."""
    ts, times = np.sort(np.array(held, np.int64)), np.sort(np.array(asked, np.int64))
    lazy, eager = ReachAround(times, back, ahead), reach_around(times, back, ahead)
    (start, stop), ends = lazy.positions(ts), eager.positions(ts)
    expected = [range(*pair) for pair in zip(*ends, strict=True)]
    assert [range(*pair) for pair in zip(start, stop, strict=True)] == expected
    assert (start >= 0).all() and (start <= stop).all() and (stop <= len(ts)).all()
    assert lazy.low is not None and eager.low is not None
    assert lazy.low.tolist() == eager.low.tolist() and lazy.high.tolist() == eager.high.tolist()
    some = lazy.pick(slice(1, None))
    assert some.low is not None
    assert some.low.tolist() == eager.low[1:].tolist()
    assert (np.diff(start) >= 0).all() and (np.diff(stop) >= 0).all()
