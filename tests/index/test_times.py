"""Which tuples a probe reaches, at the ends of time and in between."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.index.times import SPARSE, Reach, places, saturated_sum
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
