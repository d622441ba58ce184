"""Intervals made disjoint: the same keys, each in one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.kernels.sorted.intervals import make_disjoint

POOLS: dict[str, list[float]] = {
    "int32": [-(2**31), -(2**31) + 1, -1, 0, 1, 2, 3, 2**31 - 2, 2**31 - 1],
    "int64": [-(2**63), -(2**63) + 1, -1, 0, 1, 2, 3, 2**63 - 2, 2**63 - 1],
    "float32": [-np.inf, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.5, np.inf, np.nan],
    "float64": [-np.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, np.inf, np.nan],
}


def disjoint(lows: Any, highs: Any, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Of the intervals of each probe, lists by band."""
    low, high = np.array(lows, dtype), np.array(highs, dtype)
    kind = np.dtype(dtype).type
    if low.dtype.kind == "f":
        make_disjoint(low, high, kind(np.nan), kind(np.nan))
    else:
        make_disjoint(low, high, kind(np.iinfo(dtype).max), kind(np.iinfo(dtype).min))
    return low, high


def test_three_intervals_by_eye():
    """Probe 0: two meet, and come behind the third. Probe 1: one is empty. Probe 2: one holds the others."""
    lows, highs = disjoint([[5, 9, 0], [1, 1, 1], [7, 4, 2]], [[7, 3, 9], [2, 2, 3], [9, 4, 9]], "int64")
    assert (lows[0].tolist(), highs[0].tolist()) == ([1, 1, 0], [2, 2, 9])
    assert (lows[1, :2].tolist(), highs[1, :2].tolist()) == ([5, 4], [9, 4])
    assert (lows[2] > highs[2]).all() and lows[1, 2] > highs[1, 2]


def test_no_probes_and_one_interval():
    lows, highs = disjoint(np.empty((2, 0)), np.empty((2, 0)), "int32")
    assert lows.shape == highs.shape == (2, 0)
    lows, highs = disjoint([[1.0, 3.0]], [[2.0, 2.0]], "float32")
    assert (lows[0, 0], highs[0, 0]) == (1, 2) and np.isnan([lows[0, 1], highs[0, 1]]).all()


@pytest.mark.parametrize("dtype", POOLS)
@given(data=st.data())
def test_each_key_is_in_one_interval_if_it_was_in_any(dtype, data):
    bands, probes = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    bound = st.sampled_from(POOLS[dtype])
    ends = st.lists(st.lists(bound, min_size=probes, max_size=probes), min_size=bands, max_size=bands).map(
        lambda rows: np.array(rows, dtype)
    )
    lows, highs = data.draw(ends), data.draw(ends)
    keys = np.array(POOLS[dtype], dtype)[:, None, None]
    before = ((lows <= keys) & (keys <= highs)).any(axis=1)
    low, high = disjoint(lows, highs, dtype)
    after = ((low <= keys) & (keys <= high)).sum(axis=1)
    assert (after == before).all()
    # Those that hold something come first, and rise.
    for probe in range(probes):
        filled = low[:, probe] <= high[:, probe]
        assert (filled[1:] <= filled[:-1]).all()
        assert (high[filled, probe][:-1] < low[filled, probe][1:]).all()
