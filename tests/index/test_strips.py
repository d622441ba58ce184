"""Two keys as one: every tuple of a rectangle lies in one of the intervals that are asked for, and in no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.kernels import strips

SCALE = (5.0, 4.0), (0.0, 0.5)  # origin and width of each key
INTEGERS = st.one_of(st.integers(-60, 60), st.sampled_from([-(2**63), 2**63 - 1, -(2**40), 2**53 + 1]))
FLOATS = st.one_of(
    st.floats(-60, 60), st.sampled_from([-np.inf, np.inf, np.nan, 1e300, -1e300, 5e-324, -0.0])
)


def asked(rectangles: Any, dtypes: tuple[str, str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    columns = [
        np.array(column, dtypes[number // 2]) for number, column in enumerate(zip(*rectangles, strict=True))
    ]
    room = 0
    while True:
        lows, highs, asking = (np.empty(room, np.int64) for _ in range(3))
        count = strips.intervals_of(*columns, *SCALE[0], *SCALE[1], lows, highs, asking)
        if count <= room:
            return lows[:count], highs[:count], asking[:count]
        assert room == 0  # what is asked for is enough
        room = count


def places(keys: Any, dtypes: tuple[str, str]) -> np.ndarray:
    x, y = (np.array(column, dtype) for column, dtype in zip(zip(*keys, strict=True), dtypes, strict=True))
    out = np.empty(len(x), np.int64)
    strips.places_of(x, y, *SCALE[0], *SCALE[1], out)
    return out


def test_by_eye():
    """Strips are 4 wide, from 5 on; the second key is counted in halves."""
    assert (places([(5, 0.0), (8, 0.0), (9, 0.0)], ("i4", "f4")) >> 32).tolist() == [0, 0, 1]
    lows, highs, asking = asked([(6, 10, 1.0, 1.5), (6, 5, 0.0, 1.0), (5, 8, 2.0, 2.2)], ("i4", "f4"))
    assert asking.tolist() == [0, 0, 2]
    assert (lows >> 32).tolist() == (highs >> 32).tolist() == [0, 1, 0]
    assert (highs - lows).tolist() == [1, 1, 0]


def test_a_rectangle_over_many_strips_is_one_interval():
    few, many = (5, 4 + 4 * strips.FEW_STRIPS, 0.0, 1.0), (5, 5 + 4 * strips.FEW_STRIPS, 0.0, 1.0)
    assert len(asked([few], ("i4", "f8"))[0]) == strips.FEW_STRIPS
    lows, highs, _ = asked([many], ("i4", "f8"))
    assert (len(lows), highs[0] >> 32) == (1, strips.FEW_STRIPS)


@pytest.mark.parametrize(
    ("dtypes", "first", "second"),
    [(("i8", "f8"), INTEGERS, FLOATS), (("f8", "i8"), FLOATS, INTEGERS), (("f8", "f8"), FLOATS, FLOATS)],
    ids=["integer, float", "float, integer", "floats"],
)
@given(data=st.data())
def test_what_a_rectangle_holds_is_asked_for_once(dtypes, first, second, data):
    keys = data.draw(st.lists(st.tuples(first, second), min_size=1, max_size=30))
    rectangles = data.draw(st.lists(st.tuples(first, first, second, second), min_size=1, max_size=10))
    lows, highs, asking = asked(rectangles, dtypes)
    place = places(keys, dtypes)
    hits = (lows[:, None] <= place) & (place <= highs[:, None])
    for number, (x_low, x_high, y_low, y_high) in enumerate(rectangles):
        times = hits[asking == number].sum(axis=0)
        assert (times <= 1).all()
        for at, (x, y) in enumerate(keys):
            assert times[at] or not (x_low <= x <= x_high and y_low <= y <= y_high)
        assert (asking == number).any() == (x_low <= x_high and y_low <= y_high)
