"""The arithmetic that generated code calls: 128-bit integers, text, floats by rank; against Python's own."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from streamjoin.jit.decorator import jit
from streamjoin.kernels.values import exact, floats, text
from streamjoin.kernels.values import wide as typed_by_numba
from streamjoin.semantics import oracle

wide: Any = typed_by_numba  # its functions have signatures that only Numba sees

# ---- 128-bit integers

MIN128, MAX128 = -(2**127), 2**127 - 1
CORNERS = [
    0,
    1,
    -1,
    10,
    -10,
    2**31,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    10**18,
    -(10**38) + 1,
    MAX128,
    MIN128 + 1,
]
INTEGERS = st.sampled_from(CORNERS) | st.integers(MIN128 + 1, MAX128)


def limbs(value: int) -> tuple[np.int64, np.int64]:
    low, high = struct.unpack("<qq", value.to_bytes(16, "little", signed=True))
    return np.int64(low), np.int64(high)


def whole(low: int, high: int) -> int:
    return int.from_bytes(struct.pack("<qq", low, high), "little", signed=True)


@functools.cache
def binary(name: str) -> Any:
    """A function of `wide` over limbs: (a low, a high, b low, b high) -> limbs."""
    function = getattr(wide, name)

    @functools.partial(jit, cached=False)
    def call(a, b, c, d):
        result = function(wide.from_limbs(a, b), wide.from_limbs(c, d))
        return wide.low_limb(result), wide.high_limb(result)

    return call


@functools.cache
def predicate(name: str) -> Any:
    function = getattr(wide, name)

    @functools.partial(jit, cached=False)
    def call(a, b, c, d):
        return function(wide.from_limbs(a, b), wide.from_limbs(c, d))

    return call


@functools.cache
def unary(name: str) -> Any:
    function = getattr(wide, name)

    @functools.partial(jit, cached=False)
    def call(a, b):
        result = function(wide.from_limbs(a, b))
        return wide.low_limb(result), wide.high_limb(result)

    return call


@functools.partial(jit, cached=False)
def float_of(a, b):
    return wide.to_float(wide.from_limbs(a, b))


@functools.partial(jit, cached=False)
def widened(value):
    result = wide.widen(value)
    return wide.low_limb(result), wide.high_limb(result)


@given(INTEGERS, INTEGERS)
def test_wide_sums_differences_and_products_are_exact(a, b):
    for name, value in (("add", a + b), ("sub", a - b), ("mul", a * b)):
        if MIN128 <= value <= MAX128:
            assert whole(*binary(name)(*limbs(a), *limbs(b))) == value, name


@given(INTEGERS, INTEGERS)
def test_wide_comparisons(a, b):
    for name, value in (("lt", a < b), ("le", a <= b), ("eq", a == b)):
        assert predicate(name)(*limbs(a), *limbs(b)) == value, name
    assert predicate("eq")(*limbs(a), *limbs(a)) and predicate("le")(*limbs(a), *limbs(a))


@given(INTEGERS)
def test_wide_negation_and_magnitude(a):
    assert whole(*unary("neg")(*limbs(a))) == -a
    assert whole(*unary("absolute")(*limbs(a))) == abs(a)


@given(INTEGERS, INTEGERS.filter(bool) | st.integers(1, 1000))
@example(MAX128, 1)
@example(MIN128 + 1, -1)
def test_wide_remainder_has_the_sign_of_the_dividend(a, b):
    assert whole(*binary("remainder")(*limbs(a), *limbs(b))) == int(math.copysign(1, a)) * (abs(a) % abs(b))


@given(INTEGERS, st.integers(1, 10**20) | st.sampled_from([10**k for k in range(39)]))
def test_wide_division_rounds_down(a, b):
    assert whole(*binary("floor_divide")(*limbs(a), *limbs(b))) == a // b


@given(INTEGERS | st.integers(2**52, 2**56) | st.integers(-(2**66), 2**66))
@example(2**53 + 1)
@example(2**64 + 2**11)
@example(2**64 + 2**11 + 1)
@example((2**53 + 1) << 40)
def test_wide_becomes_the_nearest_float(a):
    assert float_of(*limbs(a)) == float(a)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_machine_integer_widens(value):
    assert whole(*widened(np.int64(value))) == value
    assert whole(*widened(np.uint64(value + 2**63))) == value + 2**63
    small = value % 2**31
    assert whole(*widened(np.int32(-small))) == -small
    assert whole(*widened(np.uint8(small % 256))) == small % 256


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1).filter(bool))
@example(-(2**63), -1)
@example(-7, 3)
@example(7, -3)
def test_narrow_remainder_has_the_sign_of_the_dividend(a, b):
    expected = int(math.copysign(1, a)) * (abs(a) % abs(b))
    assert exact.remainder64(np.int64(a), np.int64(b)) == expected


# ---- text

WORDS = st.text(st.sampled_from("abé\U0001f600%_\x00"), max_size=6)


def placed(value: bytes) -> tuple[np.ndarray, int, int]:
    """A value somewhere inside a larger buffer, as Arrow lays it out."""
    return np.frombuffer(b"ab" + value + b"b", np.uint8).copy(), 2, len(value)


@given(st.binary(max_size=8), st.binary(max_size=8))
@example(b"", b"")
@example(b"a", b"a\x00")
@example(b"\xff", b"\x7f")
def test_text_compares_by_bytes(a, b):
    assert text.compare(placed(a), placed(b)) == (a > b) - (a < b)
    assert text.equal(placed(a), placed(b)) == (a == b)
    assert text.compare(placed(a), placed(a)) == 0 and text.equal(placed(a), placed(a))


@given(st.binary(max_size=40))
def test_equal_bytes_have_equal_hashes_wherever_they_lie(value):
    elsewhere = np.frombuffer(value, np.uint8).copy(), 0, len(value)
    assert text.hash64(placed(value)) == text.hash64(elsewhere)


def test_hashes_of_short_strings_differ():
    values = [str(n).encode() for n in range(5000)] + [b"", b"\x00", b"\x00\x00"]
    assert len({int(text.hash64(placed(value))) for value in values}) == len(values)


@given(WORDS, WORDS, st.sampled_from(["", "!", "a", "%", "_"]))
@example("", "%", "")
@example("aab", "%ab", "")
@example("é", "_", "")
@example("a%", "a!%", "!")
@example("abab", "%a_%b", "")
def test_like_is_the_oracles(value, pattern, escape):
    assume(not escape or (len(pattern) - len(pattern.rstrip(escape))) % 2 == 0)
    found = text.like(placed(value.encode()), placed(pattern.encode()), ord(escape) if escape else -1)
    assert found == oracle.is_like(value, pattern, escape or None)


# ---- floats

FLOATS = st.floats(width=64) | st.sampled_from(
    [0.0, -0.0, math.inf, -math.inf, 5e-324, -5e-324, 1.7976931348623157e308]
)
SINGLES = st.floats(width=32).map(np.float32)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@given(FLOATS)
def test_neighbours_of_doubles(x):
    assert same(floats.next_up64(x), math.nextafter(x, math.inf) if x < math.inf else math.nan)
    assert same(floats.next_down64(x), math.nextafter(x, -math.inf) if x > -math.inf else math.nan)


@given(SINGLES)
def test_neighbours_of_singles(x):
    with np.errstate(all="ignore"):
        up, down = np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))
    assert same(floats.next_up32(x), up if x < np.inf else math.nan)
    assert same(floats.next_down32(x), down if x > -np.inf else math.nan)


@given(FLOATS, FLOATS)
def test_ranks_of_doubles_keep_their_order(a, b):
    assume(not math.isnan(a) and not math.isnan(b))
    if a < b:
        assert floats.rank64(a) < floats.rank64(b)
    back = floats.float64_at(floats.rank64(a))
    assert struct.pack("d", back) == struct.pack("d", a)


@given(SINGLES, SINGLES)
def test_ranks_of_singles_keep_their_order(a, b):
    assume(not math.isnan(a) and not math.isnan(b))
    if a < b:
        assert floats.rank32(a) < floats.rank32(b)
    assert np.float32(floats.float32_at(floats.rank32(a))).tobytes() == a.tobytes()


@pytest.mark.parametrize(
    ("rank", "at", "most", "kind"),
    [
        (floats.rank64, floats.float64_at, floats.MAX_RANK64, np.float64),
        (floats.rank32, floats.float32_at, floats.MAX_RANK32, np.float32),
    ],
    ids=["float64", "float32"],
)
def test_ranks_end_at_the_infinities_and_part_the_zeros(rank, at, most, kind):
    assert rank(kind(math.inf)) == most and rank(kind(-math.inf)) == -most - 1
    assert at(most) == math.inf and at(-most - 1) == -math.inf
    assert rank(kind(0.0)) - rank(kind(-0.0)) == 1
