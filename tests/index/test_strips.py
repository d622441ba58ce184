"""Two keys as one: every tuple of a rectangle lies in one of the intervals that are asked for, and in no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.kernels.sorted import strips
from streamjoin.plan.rulers import rulers_for

SCALE = (5.0, 4.0), (0.0, 0.5)  # origin and width of each key
HALVES = {
    "i8": (2**31, 2**31),
    "i4": (1000, 2**30 // 1000),
    "coarse": (2, 3),
}  # of its numbers, by size of places
INTEGERS = st.one_of(st.integers(-60, 60), st.sampled_from([-(2**63), 2**63 - 1, -(2**40), 2**53 + 1]))
FLOATS = st.one_of(
    st.floats(-60, 60), st.sampled_from([-np.inf, np.inf, np.nan, 1e300, -1e300, 5e-324, -0.0])
)


def scale(size: str) -> tuple[float, ...]:
    return (*SCALE[0], HALVES[size][0], *SCALE[1], HALVES[size][1])


def asked(
    rectangles: Any, dtypes: tuple[str, str], size: str = "i8"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    columns = [
        np.array(column, dtypes[number // 2]) for number, column in enumerate(zip(*rectangles, strict=True))
    ]
    room = 0
    while True:
        kind = size if size == "i8" else "i4"
        lows, highs, asking = (np.empty(room, each) for each in (kind, kind, "i4"))
        count = strips.intervals_of(*columns, *scale(size), lows, highs, asking)
        if count <= room:
            return lows[:count], highs[:count], asking[:count]
        assert room == 0  # what is asked for is enough
        room = count


def places(keys: Any, dtypes: tuple[str, str], size: str = "i8") -> np.ndarray:
    x, y = (np.array(column, dtype) for column, dtype in zip(zip(*keys, strict=True), dtypes, strict=True))
    out = np.empty(len(x), size if size == "i8" else "i4")
    strips.places_of(x, y, *scale(size), out)
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
@pytest.mark.parametrize("size", HALVES)
@given(data=st.data())
def test_what_a_rectangle_holds_is_asked_for_once(dtypes, first, second, size, data):
    keys = data.draw(st.lists(st.tuples(first, second), min_size=1, max_size=30))
    rectangles = data.draw(st.lists(st.tuples(first, first, second, second), min_size=1, max_size=10))
    lows, highs, asking = asked(rectangles, dtypes, size)
    place = places(keys, dtypes, size)
    hits = (lows[:, None] <= place) & (place <= highs[:, None])
    for number, (x_low, x_high, y_low, y_high) in enumerate(rectangles):
        times = hits[asking == number].sum(axis=0)
        assert (times <= 1).all()
        for at, (x, y) in enumerate(keys):
            assert times[at] or not (x_low <= x <= x_high and y_low <= y <= y_high)
        assert (asking == number).any() == (x_low <= x_high and y_low <= y_high)


@pytest.mark.parametrize("size", HALVES)
def test_places_fill_their_type_and_no_more(size):
    """The last strip's last step, the first one's first, and what lies beyond them."""
    (x_half, y_half), far = HALVES[size], 1e300
    ends = places([(-far, -far), (far, far)], ("f8", "f8"), size).astype(object)
    assert ends.tolist() == [-2 * x_half * y_half, 2 * x_half * y_half - 1]


# ---- how much has to be told apart


@pytest.mark.parametrize(
    ("ends", "rising", "dtype", "step"),
    [
        (((0, 1000), (0, 1000)), False, "int32", 0.25),
        (((0, 290_000), (0, 290_000)), False, "int32", 1.0),
        (((0, 290_000), (0, 290_000)), True, "int64", 0.25),
        (((0, 1e9), (0, 1e9)), False, "int64", 0.25),
        (((7, 7), (-3, -3)), False, "int32", 0.25),
        (((-1.7e308, 1.7e308), (0, 1)), False, "int64", 0.25),
    ],
)
def test_places_have_32_bits_where_those_are_enough(ends, rising, dtype, step):
    rulers = rulers_for((32.0, 0.25), ends, rising)
    assert (rulers.dtype.name, rulers.strips.width, rulers.steps.width) == (dtype, 32.0, step)
    assert rulers.suit(rulers, ends)
    for ruler, (low, high) in zip((rulers.strips, rulers.steps), ends, strict=True):
        assert low <= ruler.origin <= high
        if dtype == "int32":
            assert max(high - ruler.origin, ruler.origin - low) < ruler.half * ruler.width


def test_rulers_suit_keys_that_they_reach_and_widths_about_theirs():
    ends = (0.0, 1000.0), (0.0, 1000.0)
    rulers = rulers_for((32.0, 0.25), ends, False)
    assert rulers.suit(rulers_for((64.0, 0.25), ends, False), ends)
    assert not rulers.suit(rulers_for((128.0, 0.25), ends, False), ends)
    assert not rulers.suit(rulers_for((32.0, 1.0), ends, False), ends)
    assert not rulers.suit(rulers_for((32.0, 0.25), ends, True), ends)
    near = (10_000.0, 11_000.0), (-20_000.0, -19_000.0)
    assert rulers.suit(rulers_for((32.0, 0.25), near, False), near)  # of what 32 bits hold
    for moved in (((200_000.0, 201_000.0), ends[1]), (ends[0], (-1e9, -1e9 + 1000))):
        assert not rulers.suit(rulers_for((32.0, 0.25), moved, False), moved)
