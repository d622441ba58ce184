"""Rows that wait for a time: a naive list takes the same ones, and nothing that waits is touched for those that go."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.topologies.outcomes.by_time import RowsByTime

TIMES = st.sampled_from([INT64_MIN, INT64_MAX, INT64_MAX - 1]) | st.integers(0, 20)


def test_rows_go_once_their_time_has_passed():
    waiting = RowsByTime()
    waiting.add(np.array([5, 3]), np.array([50, 30]))
    waiting.add(np.array([4]), np.array([40]))
    assert (len(waiting), waiting.least) == (3, 3)
    assert waiting.take(3) is None
    taken = waiting.take(5)
    assert taken is not None
    assert sorted(taken[1]) == [30, 40]
    assert (len(waiting), waiting.least) == (1, 5)


@given(st.lists(st.lists(TIMES, max_size=9) | TIMES | st.sampled_from([-np.inf, np.inf]), max_size=40))
def test_the_rows_are_those_of_a_list(steps):
    """A list of times is added; a single time is one before which rows go."""
    waiting, model, number = RowsByTime(), list[tuple[int, int]](), 0
    for step in steps:
        if isinstance(step, list):
            numbers = np.arange(number, number + len(step))
            waiting.add(np.array(step, np.int64), numbers)
            model += zip(step, numbers.tolist(), strict=True)
            number += len(step)
        else:
            taken = waiting.take(step)
            found = [] if taken is None else list(zip(*(column.tolist() for column in taken), strict=True))
            assert sorted(found) == sorted(row for row in model if row[0] < step)
            model = [row for row in model if row[0] >= step]
        assert len(waiting) == len(model)
        assert waiting.least == min((time for time, _ in model), default=np.inf)
        assert sorted(np.concatenate([[], *waiting.column(1)])) == sorted(row for _, row in model)


def test_few_runs_hold_many_rows():
    waiting = RowsByTime()
    for at in range(10_000):
        waiting.add(np.array([at % 97]), np.array([at]))
        waiting.take(3)
    assert len(waiting._runs) <= 15


def test_memory_of_rows_that_went_is_given_back():
    waiting = RowsByTime()
    waiting.add(np.arange(10_000), np.arange(10_000))
    for before in range(0, 9_990, 10):
        waiting.take(before)
    (times,) = waiting.column(0)
    assert len(times.base if times.base is not None else times) <= 64
