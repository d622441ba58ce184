"""The split of a predicate: one band for all spellings, and never a pair gained or lost."""

from __future__ import annotations

import math
import struct
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamjoin.semantics import coercion
from streamjoin.semantics.analysis import AccessPath, Band, analyse, describe
from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.expressions import Call, Column, Expr, Literal, Solve, sides, walk
from streamjoin.semantics.oracle import evaluate
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.sql import parse_predicate
from streamjoin.semantics.types import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT128_MAX,
    INT128_MIN,
    STRING,
    Type,
    decimal,
    signed,
    timestamp,
    unsigned,
)

LEFT = pa.schema(
    [
        ("x", pa.int32()), ("y", pa.int32()), ("big", pa.int64()), ("price", pa.decimal128(10, 2)),
        ("huge", pa.decimal128(38, 0)), ("ts", pa.timestamp("ms")), ("day", pa.date32()),
        ("f", pa.float64()), ("f4", pa.float32()), ("sym", pa.string()), ("flag", pa.bool_()),
    ]
)  # fmt: skip
RIGHT = pa.schema(
    [
        ("a", pa.int32()), ("b", pa.int32()), ("wide", pa.int64()), ("cost", pa.decimal128(10, 3)),
        ("tol", pa.int16()), ("at", pa.timestamp("us")), ("g", pa.float64()), ("h", pa.float64()),
        ("g4", pa.float32()), ("name", pa.string()), ("on_", pa.bool_()),
        ("m", pa.decimal128(38, 0)), ("n", pa.decimal128(38, 0)),
    ]
)  # fmt: skip


def split(text: str, stored: str = "left") -> AccessPath:
    return analyse(parse_predicate(text, LEFT, RIGHT)).for_window(stored)


def shown(path: AccessPath) -> list[str]:
    """Clauses as text, key first, then lo and hi; what is left over comes last."""

    def bound(expr: Expr | None) -> str:
        return "-" if expr is None else to_sql(expr)

    lines = [
        " | ".join(f"{to_sql(band.key)} in [{bound(band.lo)}, {bound(band.hi)}]" for band in clause.bands)
        for clause in path.clauses
    ]
    return lines + ([f"residual {to_sql(path.residual)}"] if path.residual is not None else [])


# ---- literal cases


BAND_SPELLINGS = [
    "left.x BETWEEN right.a - 10 AND right.a + 10",
    "right.a BETWEEN left.x - 10 AND left.x + 10",
    "abs(left.x - right.a) <= 10",
    "abs(right.a - left.x) < 11",
    "10 >= abs(left.x - right.a)",
    "NOT (abs(left.x - right.a) > 10)",
    "right.a >= left.x - 10 AND left.x >= right.a - 10",
    "NOT (left.x < right.a - 10) AND NOT (left.x > right.a + 10)",
    "NOT (left.x < right.a - 10 OR left.x > 10 + right.a)",
    "left.x > right.a - 11 AND left.x < right.a + 11",
    "-left.x <= 10 - right.a AND -10 <= right.a - left.x",
    "2 * left.x <= 2 * right.a + 21 AND 3 * left.x - 3 * right.a >= -32",
    "2 * abs(left.x - right.a) + 5 <= 25",
    "abs(left.x - right.a) - 10 <= 0 AND left.x <= right.a + 10",
    "abs(left.x * 1.0 - right.a) <= 10.05",
    "left.x - right.a BETWEEN -10 AND 10",
]


@pytest.mark.parametrize("text", BAND_SPELLINGS)
def test_every_spelling_of_a_band_gives_the_same_band(text):
    assert shown(split(text)) == ["left.x in [right.a - 10, right.a + 10]"]
    assert shown(split(text, "right")) == ["right.a in [left.x - 10, left.x + 10]"]
    assert split(text) == split(BAND_SPELLINGS[0])
    assert split(text, "right") == split(BAND_SPELLINGS[0], "right")


def test_the_key_of_one_column_is_that_column():
    (clause,) = split("2 * left.x <= right.a").clauses
    assert clause.bands[0].key == Column("left", "x", signed(32))


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("left.x < right.a", "left.x in [-, right.a - 1]", "right.a in [left.x + 1, -]"),
        ("left.x = right.a", "left.x in [right.a, right.a]", "right.a in [left.x, left.x]"),
        (
            "left.x <= right.a AND right.a <= left.x",
            "left.x in [right.a, right.a]",
            "right.a in [left.x, left.x]",
        ),
        (
            "NOT left.x <> right.a + 1",
            "left.x in [right.a + 1, right.a + 1]",
            "right.a in [left.x - 1, left.x - 1]",
        ),
        (
            "left.x <> right.a",
            "left.x in [-, right.a - 1] | left.x in [right.a + 1, -]",
            "right.a in [left.x + 1, -] | right.a in [-, left.x - 1]",
        ),
        ("2 * left.x <= right.a", "left.x in [-, FLOORDIV(right.a, 2)]", "right.a in [left.x * 2, -]"),
        ("right.a < 3 * left.x", "left.x in [CEILDIV(right.a + 1, 3), -]", "right.a in [-, left.x * 3 - 1]"),
        (
            "2 * left.x = right.a",
            "left.x in [{0}, {0}]".format(
                "CASE WHEN right.a % 2 = 0 THEN FLOORDIV(right.a, 2) ELSE NULL END"
            ),
            "right.a in [left.x * 2, left.x * 2]",
        ),
        ("left.x + left.y <= right.a", "left.x + left.y in [-, right.a]", "right.a in [left.x + left.y, -]"),
        ("right.a >= 2 * left.y - 2 * left.x", "left.x - left.y in [CEILDIV(-right.a, 2), -]", None),
        (
            "left.x + right.a = 5",
            "left.x in [5 - right.a, 5 - right.a]",
            "right.a in [5 - left.x, 5 - left.x]",
        ),
        ("abs(left.x) <= right.a", "ABS(left.x) in [-, right.a]", "right.a in [ABS(left.x), -]"),
        (
            "abs(left.x - right.a) >= 10",
            "left.x in [right.a + 10, -] | left.x in [-, right.a - 10]",
            "right.a in [-, left.x - 10] | right.a in [left.x + 10, -]",
        ),
        (
            "abs(left.x - right.a) <= right.tol",
            "left.x in [right.a - right.tol, right.a + right.tol]",
            "right.a + right.tol in [left.x, -]",
        ),
        (
            "left.x IN (right.a, right.b)",
            "left.x in [right.a, right.a] | left.x in [right.b, right.b]",
            "right.a in [left.x, left.x] | right.b in [left.x, left.x]",
        ),
        (
            "left.x BETWEEN right.a - 1 AND right.a + 1 OR left.y = right.b OR left.x <> right.b",
            "left.x in [right.a - 1, right.a + 1] | left.y in [right.b, right.b]"
            " | left.x in [-, right.b - 1] | left.x in [right.b + 1, -]",
            None,
        ),
        ("left.x >= right.a AND left.x >= right.b", "left.x in [MAX(right.a, right.b), -]", None),
        ("left.price <= right.cost", "left.price in [-, FLOORDIV(right.cost, 1.0)]", None),
        (
            "left.price <= right.a",
            "left.price in [-, right.a * 1.00]",
            "right.a in [CEILDIV(left.price, 1.00), -]",
        ),
        (
            "left.ts BETWEEN right.at - INTERVAL '5' SECOND AND right.at",
            "left.ts in [CEILDIV(right.at - INTERVAL '5.000000' SECOND, 1.000), FLOORDIV(right.at, 1.000)]",
            "right.at in [left.ts * 1.000, left.ts * 1.000 + INTERVAL '5.000000' SECOND]",
        ),
    ],
)
def test_atoms(text, left, right):
    path = split(text)
    assert path.residual is None
    assert shown(path)[0] == left
    if right is not None:
        assert shown(split(text, "right"))[0] == right


def test_two_dimensions_give_two_bands():
    path = split("abs(left.x - right.a) <= 10 AND left.y BETWEEN right.b - 10 AND right.b + 10")
    assert shown(path) == ["left.x in [right.a - 10, right.a + 10]", "left.y in [right.b - 10, right.b + 10]"]


def test_manhattan_distance_gives_the_two_diagonals():
    path = split("abs(left.x - right.a) + abs(left.y - right.b) <= 10")
    assert shown(path) == [
        "left.x + left.y in [right.a + right.b - 10, right.a + right.b + 10]",
        "left.x - left.y in [right.a - right.b - 10, right.a - right.b + 10]",
    ]


def test_abs_equal_is_a_band_and_its_outside():
    assert shown(split("abs(left.x - right.a) = 10")) == [
        "left.x in [right.a - 10, right.a + 10]",
        "left.x in [right.a + 10, -] | left.x in [-, right.a - 10]",
    ]
    assert len(split("abs(left.x - right.a) <> 10").clauses[0].bands) == 3


def test_equalities_come_first_and_survive_other_conditions_on_their_key():
    path = split("left.y < right.b AND left.x <= right.b AND left.x = right.a AND left.x = right.a")
    assert shown(path) == [
        "left.x in [right.a, right.a]",
        "left.y in [-, right.b - 1]",
        "left.x in [-, right.b]",
    ]
    assert [clause.is_equality for clause in path.clauses] == [True, False, False]


def test_dates_compare_as_days():
    text = "left.day = right.at"
    assert shown(split(text))[0].endswith("FLOORDIV(right.at, 86400.000000) ELSE NULL END]")
    assert shown(split(text, "right")) == ["right.at in [{0}, {0}]".format("left.day * 86400.000000")]


def test_strings_are_hashed_and_compared_again():
    path = split("left.sym = right.name AND left.x = right.a")
    assert shown(path) == [
        "HASH64(left.sym) in [HASH64(right.name), HASH64(right.name)]",
        "left.x in [right.a, right.a]",
        "residual left.sym = right.name",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "left.x = 5",
        "right.a > 3 AND left.x < 7",
        "left.x * right.a <= 10",
        "left.x IS NOT DISTINCT FROM right.a",
        "left.flag = right.on_",
        "left.sym < right.name",
        "left.huge = right.a",
        "left.x - left.x <= right.a",
        "0 * left.x + left.x - right.a - left.x + right.a <= 3",
        "left.x = right.a OR left.y = 3",
        "NOT (left.f = right.g)",
        "left.f * right.g <= 3e0",
        "left.f + right.g - left.f4 <= 3e0",
        "left.f - coalesce(right.g, 0e0) <= 3e0",
        "greatest(left.x, right.a) <= 3",
    ],
)
def test_what_has_no_key_is_residual(text):
    predicate = parse_predicate(text, LEFT, RIGHT)
    assert analyse(predicate).left == AccessPath("left", (), predicate)


def test_a_key_wider_than_64_bits_is_residual_for_its_own_window_only():
    text = "left.big + left.x <= right.wide"
    assert split(text).clauses == ()
    assert shown(split(text, "right")) == ["right.wide in [left.big + left.x, -]"]


def test_bounds_beyond_128_bits_are_residual():
    assert shown(split("left.x <= right.m")) == ["left.x in [-, right.m]"]
    assert split("left.x + right.n <= right.m").clauses == ()


def test_a_disjunct_with_more_than_a_band_leaves_the_whole_as_residual():
    text = "left.x = right.a AND left.y = right.b OR left.x = right.b"
    assert shown(split(text)) == [
        "left.x in [right.a, right.a] | left.x in [right.b, right.b]",
        f"residual {text}",
    ]
    text = "left.x = right.a AND left.f * right.g < 1.0 OR left.x = right.b"
    assert shown(split(text)) == [
        "left.x in [right.a, right.a] | left.x in [right.b, right.b]",
        f"residual {text}",
    ]


def test_separated_floats_need_no_search():
    assert shown(split("left.f <= right.g AND left.f > right.h")) == ["left.f in [NEXT_UP(right.h), right.g]"]
    assert shown(split("left.f = right.g")) == ["left.f in [right.g, right.g]"]
    assert shown(split("left.f <> right.g")) == [
        "left.f in [-, NEXT_DOWN(right.g)] | left.f in [NEXT_UP(right.g), -]"
    ]
    assert shown(split("NOT (left.f < right.g)")) == ["NAN_TO(left.f, inf) in [NAN_TO(right.g, -inf), -]"]


@pytest.mark.parametrize("text", ["abs(left.f - right.g) <= 10", "left.f - right.g BETWEEN -10 AND 10"])
def test_float_differences_are_solved_by_search(text):
    path = split(text)
    (clause,) = path.clauses
    (band,) = clause.bands
    variable = Column("left", "<key>", FLOAT64)
    difference = Call("sub", (variable, Column("right", "g", FLOAT64)), FLOAT64)
    at_least, at_most = (
        Call(op, (difference, Literal(v, FLOAT64)), BOOL) for op, v in (("ge", -10.0), ("le", 10.0))
    )
    assert band == Band(
        Column("left", "f", FLOAT64), Solve(variable, at_least, "lo"), Solve(variable, at_most, "hi")
    )
    assert path.residual is None


def test_a_negated_float_band_keeps_nan_at_both_ends():
    path = split("NOT abs(left.f - right.g) > 10")
    keys = {
        to_sql(band.key): (band.lo is None, band.hi is None)
        for clause in path.clauses
        for band in clause.bands
    }
    assert keys == {"NAN_TO(left.f, -inf)": (True, False), "NAN_TO(left.f, inf)": (False, True)}
    assert path.residual is None


def test_a_float_limit_that_may_be_infinite_is_checked_again():
    assert split("left.f - right.g <= right.h").residual is not None
    assert split("left.f - right.g < right.h").residual is None
    assert split("left.f - right.g <= right.a").residual is None
    assert split("left.f - right.a <= right.h").residual is None
    assert split("left.f4 - right.g4 <= CAST(1e300 AS REAL)").residual is not None


def test_describe_says_it_in_sql():
    predicate = parse_predicate(
        "left.sym = right.name AND abs(left.x - right.a) <= 10 AND left.f - right.g < 2 AND left.f > right.h",
        LEFT,
        RIGHT,
    )
    assert describe(analyse(predicate)) == [
        "left window:",
        "  equality: HASH64(left.sym) = HASH64(right.name)",
        "  interval: left.x BETWEEN right.a - 10 AND right.a + 10",
        "  interval: left.f > right.h AND left.f - right.g < 2.0",
        "  residual: left.sym = right.name",
        "right window:",
        "  equality: HASH64(right.name) = HASH64(left.sym)",
        "  interval: right.a BETWEEN left.x - 10 AND left.x + 10",
        "  interval: left.f - right.g < 2.0",
        "  interval: right.h < left.f",
        "  residual: left.sym = right.name",
    ]


# ---- an interpreter of the split


def value(expr: Expr, left: dict, right: dict):
    """Like the oracle's `evaluate`, with the operations that only the analysis makes."""
    if isinstance(expr, Solve):
        return solved(expr, left, right)
    if not isinstance(expr, Call):
        result = evaluate(expr, left, right)
    else:
        values = [value(arg, left, right) for arg in expr.args]
        if expr.op in EXTRA:
            result = None if None in values else EXTRA[expr.op](expr, values)
        else:
            literals = (Literal(v, arg.type) for v, arg in zip(values, expr.args, strict=True))
            result = evaluate(Call(expr.op, tuple(literals), expr.type), {}, {})
    if expr.type.is_exact and result is not None:
        assert expr.type.lo <= result <= expr.type.hi, f"{to_sql(expr)} is {result}, beyond its range"
    return result


def extreme(expr: Call, values: list):
    nan = next((v for v in values if isinstance(v, float) and math.isnan(v)), None)
    return nan if nan is not None else (max if expr.op == "max" else min)(values)


def neighbour(expr: Call, values: list) -> float:
    end = math.inf if expr.op == "next_up" else -math.inf
    if values[0] == end:
        return math.nan
    kind = np.float32 if expr.type == FLOAT32 else np.float64
    with np.errstate(over="ignore"):
        return float(np.nextafter(kind(values[0]), kind(end)))


EXTRA = {
    "floordiv": lambda _, values: values[0] // values[1],
    "ceildiv": lambda _, values: -(-values[0] // values[1]),
    "max": extreme,
    "min": extreme,
    "next_up": neighbour,
    "next_down": neighbour,
    "nan_to": lambda _, values: values[1] if math.isnan(values[0]) else values[0],
    # Equal for equal strings, and as bad a hash as that allows.
    "hash64": lambda _, values: len(values[0]) % 2,
}


def float_at(position: int, kind: Type):
    """The floats from -inf to inf numbered in order; 0 is 0.0, and -0.0 is left out."""
    unpacked, packed = ("<f", "<I") if kind == FLOAT32 else ("<d", "<Q")
    magnitude = struct.unpack(unpacked, struct.pack(packed, abs(position)))[0]
    return magnitude if position >= 0 else -magnitude


SOLVED: dict[tuple, float] = {}


def solved(solve: Solve, left: dict, right: dict) -> float:
    """Bisection; each condition is also tried at some floats, as it has to be monotone."""
    where = (solve, *left.items(), *right.items())
    if where not in SOLVED:
        SOLVED[where] = bisected(solve, left, right)
    return SOLVED[where]


def bisected(solve: Solve, left: dict, right: dict) -> float:
    infinity = 0x7F800000 if solve.type == FLOAT32 else 0x7FF0000000000000

    def holds(k: float) -> bool:
        bound = {**(left if solve.variable.side == "left" else right), solve.variable.name: k}
        rows = (bound, right) if solve.variable.side == "left" else (left, bound)
        return evaluate(solve.condition, *rows) is True

    sign = 1 if solve.side == "hi" else -1
    inside, outside = -sign * infinity, sign * (infinity + 1)
    if not holds(float_at(inside, solve.type)):
        answer = math.nan
    else:
        while abs(outside - inside) > 1:
            middle = (inside + outside) // 2
            inside, outside = (middle, outside) if holds(float_at(middle, solve.type)) else (inside, middle)
        answer = float_at(inside, solve.type)
    for k in FLOAT32_SPECIALS if solve.type == FLOAT32 else FLOAT_SPECIALS:
        assert math.isnan(k) or holds(k) == (k <= answer if sign > 0 else k >= answer), "not monotone"
    return answer


def band_holds(band: Band, stored: str, left: dict, right: dict):
    """Each expression sees its own side only."""
    own, other = ((left, {}), ({}, right)) if stored == "left" else (({}, right), (left, {}))
    key = value(band.key, *own)
    lo, hi = (None if bound is None else value(bound, *other) for bound in (band.lo, band.hi))
    if key is None or (band.lo is not None and lo is None) or (band.hi is not None and hi is None):
        return False
    return (lo is None or lo <= key) and (hi is None or key <= hi) and key == key


def path_holds(path: AccessPath, left: dict, right: dict) -> bool:
    found = all(any(band_holds(band, path.stored, left, right) for band in c.bands) for c in path.clauses)
    return found and (path.residual is None or value(path.residual, left, right) is True)


def check_shape(path: AccessPath) -> None:
    for band in (band for clause in path.clauses for band in clause.bands):
        bounds = [bound for bound in (band.lo, band.hi) if bound is not None]
        assert bounds
        assert sides(band.key) == {path.stored}
        for bound in bounds:
            assert path.stored not in sides(bound)
            assert bound.type.scale == band.key.type.scale
            assert bound.type.is_exact == band.key.type.is_exact
            assert bound.type.is_exact or bound.type == band.key.type
            assert all(n.type.lo >= INT128_MIN and n.type.hi <= INT128_MAX for n in walk(bound))
        assert band.key.type.hi - band.key.type.lo < 2**64


# ---- properties


FLOAT_SPECIALS = [
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 1e16, -1e16, 5e-324, -5e-324, 1e-45, 3.4e38, -3.4e38,
    1.7976931348623157e308, -1.7976931348623157e308, 9e307, math.inf, -math.inf, math.nan,
]  # fmt: skip
FLOAT32_SPECIALS = [float(np.float32(v)) for v in FLOAT_SPECIALS if not 1e39 < abs(v) < math.inf]


def exact_values(lo: int, hi: int):
    near = st.integers(max(lo, -4), min(hi, 4))
    ends = st.sampled_from([lo, lo + 1, hi - 1, hi])
    return st.none() | near | near | near | ends


KINDS = {
    "i": (signed(32), exact_values(-(2**31), 2**31 - 1)),
    "j": (signed(64), exact_values(-(2**63), 2**63 - 1)),
    "u": (unsigned(64), exact_values(0, 2**64 - 1)),
    "d": (decimal(5, 2), exact_values(-99999, 99999) | st.sampled_from([-200, -100, 50, 100, 200, 300])),
    "t": (timestamp("ms"), exact_values(-(2**63), 2**63 - 1)),
    "v": (timestamp("us"), exact_values(-(2**63), 2**63 - 1) | st.sampled_from([-1000, 1000, 2000])),
    "f": (FLOAT64, st.none() | st.sampled_from(FLOAT_SPECIALS)),
    "g": (FLOAT32, st.none() | st.sampled_from(FLOAT32_SPECIALS)),
    "s": (STRING, st.none() | st.sampled_from(["", "a", "b", "ab", "abc"])),
    "q": (BOOL, st.none() | st.booleans()),
}  # fmt: skip
ROWS = st.fixed_dictionaries({name: values for name, (_, values) in KINDS.items()})


def some_column(names: str, side: str | None = None):
    chosen = st.just(side) if side else st.sampled_from(["left", "right"])
    return st.builds(lambda side, name: Column(side, name, KINDS[name][0]), chosen, st.sampled_from(names))


COMPARISONS = st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge", "le", "ge", "is_distinct"])
INT_LITERALS = st.integers(-4, 4).map(lambda v: Literal(v, Type("int", 0, v, v)))
DECIMAL_LITERALS = st.sampled_from([-150, -10, 25, 50, 150]).map(lambda v: Literal(v, decimal(3, 2)))
FLOAT_LITERALS = st.sampled_from([0.0, 1.0, -0.5, 3.0, 1e308, -1e-300]).map(lambda v: Literal(v, FLOAT64))
NUMBERS = {
    "exact": some_column("ijud") | some_column("ij") | INT_LITERALS | DECIMAL_LITERALS,
    "float": some_column("fg") | some_column("f") | some_column("fi") | FLOAT_LITERALS | INT_LITERALS,
}


@st.composite
def numbers(draw, sort: str, depth: int = 3):
    shape = (
        draw(st.sampled_from(["leaf", "add", "sub", "sub", "scale", "neg", "abs", "other"]))
        if depth
        else "leaf"
    )
    if shape == "leaf":
        return draw(NUMBERS[sort])
    first = draw(numbers(sort, depth - 1))
    if shape in ("neg", "abs"):
        return (coercion.negate if shape == "neg" else coercion.absolute)(first)
    if shape == "scale":
        factor = draw(INT_LITERALS | (FLOAT_LITERALS if sort == "float" else DECIMAL_LITERALS))
        return coercion.arithmetic(
            draw(st.sampled_from(["mul", "div"] if sort == "float" else ["mul"])), first, factor
        )
    second = draw(numbers(sort, depth - 1))
    if shape in ("add", "sub"):
        return coercion.arithmetic(shape, first, second)
    op = draw(st.sampled_from(["mul", "mod", "least", "coalesce", "floor"]))
    if op == "floor":
        return coercion.rounded("floor", first)
    return (
        coercion.choose(op, (first, second))
        if op in ("least", "coalesce")
        else coercion.arithmetic(op, first, second)
    )


@st.composite
def times(draw) -> Expr:
    moment = draw(some_column("tv"))
    tick = draw(st.sampled_from([-2, 0, 1, 1000, 1500]))
    return coercion.arithmetic("add", moment, Literal(tick, Type("interval", 6, tick, tick)))


@st.composite
def linked(draw, sort: str):
    """A comparison that has a key more often than not: a left and a right column, shifted and scaled."""
    names = draw(st.sampled_from(["ij", "i", "d", "u", "id"] if sort == "exact" else ["f", "g", "fg", "fi"]))
    literals = INT_LITERALS if sort == "exact" else INT_LITERALS | FLOAT_LITERALS
    terms = []
    for side in ("left", "right"):
        term: Expr = draw(some_column(names, side))
        if draw(st.booleans()):
            term = coercion.arithmetic("mul", term, draw(literals))
        if draw(st.booleans()):
            term = coercion.arithmetic(draw(st.sampled_from(["add", "sub"])), term, draw(literals))
        terms.append(term)
    a, b = draw(st.permutations(terms))
    if draw(st.booleans()):
        a, b = coercion.arithmetic(draw(st.sampled_from(["add", "sub", "sub"])), a, b), draw(literals)
        a = coercion.absolute(a) if draw(st.booleans()) else a
        b = coercion.arithmetic("add", b, draw(some_column(names))) if draw(st.booleans()) else b
    return coercion.compare(draw(COMPARISONS), a, b)


@st.composite
def atoms(draw):
    if draw(st.integers(0, 3)):
        return draw(linked(draw(st.sampled_from(["exact", "float"]))))
    sort = draw(st.sampled_from(["exact", "float", "time", "string", "column"]))
    if sort == "column":
        return draw(some_column("q") | some_column("ij").map(lambda c: Call("is_null", (c,), BOOL)))
    if sort == "string":
        operands = some_column("s")
    else:
        operands = times() if sort == "time" else numbers(sort)
    return coercion.compare(draw(COMPARISONS), draw(operands), draw(operands))


def joined(op: str, args: list[Expr]) -> Expr:
    return Call(op, tuple(args), BOOL)


PREDICATES = st.recursive(
    atoms(),
    lambda inner: (
        st.builds(joined, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3))
        | inner.map(lambda e: Call("not", (e,), BOOL))
    ),
    max_leaves=4,
)


@st.composite
def within_128_bits(draw):
    try:
        return draw(PREDICATES)
    except PredicateError:
        return Literal(True, BOOL)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(within_128_bits(), st.lists(st.tuples(ROWS, ROWS), min_size=4, max_size=12))
def test_clauses_and_residual_are_the_predicate(predicate, pairs):
    analysis = analyse(predicate)
    for path in (analysis.left, analysis.right):
        check_shape(path)
        for left, right in pairs:
            expected = evaluate(predicate, left, right) is True
            assert path_holds(path, left, right) == expected, f"{to_sql(predicate)}: {shown(path)}"


FEW_SPECIALS = (
    0.0,
    -1.0,
    5e-324,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    math.inf,
    -math.inf,
    math.nan,
)
FLOAT_ATOMS = [
    "left.f - right.g {} 10",
    "left.f - right.g {} right.h",
    "left.f + right.g - right.h {} 1e308",
    "right.g - (left.f + right.h) {} right.h",
    "-(2 * left.f - right.g) / -3 {} right.h",
    "floor(right.g - left.f) {} right.h",
    "abs(left.f - right.g) {} right.h",
    "abs(left.f) {} right.g + right.h",
    "0.5 * left.f + right.a {} right.h",
    "0 * (left.f - right.g) {} right.h",
]


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize("text", FLOAT_ATOMS)
def test_float_atoms_and_their_negations_are_exact_for_all_special_values(text, op):
    columns = {"left": ["f"], "right": ["g", "h"]}
    rows = {side: [dict(zip(names, values, strict=True)) for values in product(FEW_SPECIALS, repeat=len(names))]
            for side, names in columns.items()}  # fmt: skip
    for atom in (text.format(op), f"NOT ({text.format(op)})"):
        predicate = parse_predicate(atom, LEFT, RIGHT)
        analysis = analyse(predicate)
        for left, right in product(rows["left"], rows["right"]):
            right["a"] = 7
            expected = evaluate(predicate, left, right) is True
            for path in (analysis.left, analysis.right):
                assert path_holds(path, left, right) == expected, f"{atom}: {left} {right} {shown(path)}"
