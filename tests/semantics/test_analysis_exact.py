"""Clauses and residual together are the predicate: no pair gained, none lost, NULL and NaN included."""

from __future__ import annotations

import math
import struct
from itertools import product
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamjoin.semantics.analysis import AccessPath, Band, analyse, describe
from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.expressions import Call, Expr, Literal, Solve, columns, sides, walk
from streamjoin.semantics.oracle import evaluate
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.sql import parse_predicate
from streamjoin.semantics.types import FLOAT32, INT128_MAX, INT128_MIN, Type

FLOAT_SPECIALS = [
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 1e16, -1e16, 5e-324, -5e-324, 1e-45, 3.4e38, -3.4e38,
    1.7976931348623157e308, -1.7976931348623157e308, 9e307, math.inf, -math.inf, math.nan,
]  # fmt: skip
FLOAT32_SPECIALS = [float(np.float32(v)) for v in FLOAT_SPECIALS if not 1e39 < abs(v) < math.inf]


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
    read = ((left if column.side == "left" else right)[column.name] for column in columns(solve))
    where = (solve, *read)
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


# ---- random predicates


def exact_values(lo: int, hi: int, *more: int) -> list:
    """Mostly small ones, so that pairs are close to every bound."""
    return [*range(max(lo, -4), min(hi, 4) + 1), lo, lo + 1, hi - 1, hi, *more, None]


# Both sides have the same columns, as what matters is how their values meet.
COLUMNS = {
    "i": (pa.int32(), exact_values(-(2**31), 2**31 - 1)),
    "j": (pa.int64(), exact_values(-(2**63), 2**63 - 1)),
    "u": (pa.uint64(), exact_values(0, 2**64 - 1)),
    "d": (pa.decimal128(5, 2), exact_values(-99999, 99999, -200, -100, 50, 100, 110, 150, 200, 300)),
    "t": (pa.timestamp("ms"), exact_values(-(2**63), 2**63 - 1)),
    "v": (pa.timestamp("us"), exact_values(-(2**63), 2**63 - 1, *range(-4000, 5000, 500))),
    "f": (pa.float64(), [*FLOAT_SPECIALS, None]),
    "g": (pa.float32(), [*FLOAT32_SPECIALS, None]),
    "s": (pa.string(), ["", "a", "b", "ab", "abc", None]),
    "q": (pa.bool_(), [False, True, None]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])


def some_rows(random: Random) -> list[dict]:
    return [{name: random.choice(values) for name, (_, values) in COLUMNS.items()} for _ in range(10)]


SMALL = st.sampled_from(["0", "1", "2", "3", "-1", "-4"])
LITERALS = {"exact": SMALL | st.sampled_from(["0.5", "-1.25", "1.10"]), "float": SMALL | st.sampled_from(
    ["0.5", "-1e0", "1e308", "-1e-300", "0e0"])}  # fmt: skip
COMPARISONS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=", ">=", "IS DISTINCT FROM"])
INTERVALS = st.sampled_from(["0", "1", "0.002", "-0.000001", "0.0015"]).map("INTERVAL '{}' SECOND".format)


def column(names: str, side: str | None = None):
    chosen = st.just(side) if side else st.sampled_from(["left", "right"])
    return st.builds("{}.{}".format, chosen, st.sampled_from(names))


def numbers(sort: str):
    """Any expression, most of them without a key."""
    names = {"exact": "ijud", "float": "fgi"}[sort]
    divide = ["*", "%"] if sort == "exact" else ["*", "/", "%"]
    return st.recursive(
        column(names) | LITERALS[sort],
        lambda inner: (
            st.builds("({} {} {})".format, inner, st.sampled_from("+-"), inner)
            | st.builds("({} {} {})".format, inner, st.sampled_from(divide), LITERALS[sort])
            | st.builds("{}({})".format, st.sampled_from(["-", "ABS", "FLOOR"]), inner)
            | st.builds("{}({}, {})".format, st.sampled_from(["LEAST", "COALESCE"]), inner, inner)
            | st.builds("({} * {})".format, inner, inner)
        ),
        max_leaves=5,
    )


@st.composite
def linked(draw, sort: str):
    """A comparison that has a key more often than not: a left and a right column, shifted and scaled."""
    names = draw(st.sampled_from(["ij", "i", "d", "u", "id"] if sort == "exact" else ["f", "g", "fg", "fi"]))
    terms = []
    for side in ("left", "right"):
        term = draw(column(names, side))
        if draw(st.booleans()):
            term = f"{term} * {draw(LITERALS[sort])}"
        if draw(st.booleans()):
            term = f"({term} {draw(st.sampled_from('+-'))} {draw(LITERALS[sort])})"
        terms.append(term)
    a, b = draw(st.permutations(terms))
    if draw(st.booleans()):
        a, b = f"({a} {draw(st.sampled_from('+--'))} {b})", draw(LITERALS[sort])
        a = f"ABS({a})" if draw(st.booleans()) else a
        b = f"{b} + {draw(column(names))}" if draw(st.booleans()) else b
    return f"{a} {draw(COMPARISONS)} {b}"


def comparison(operands):
    return st.builds("{} {} {}".format, operands, COMPARISONS, operands)


TIMES = st.builds("{} + {}".format, column("tv"), INTERVALS)
LINKED = linked("exact") | linked("float")
OTHERS = st.one_of(
    *(comparison(operands) for operands in (numbers("exact"), numbers("float"), TIMES, column("s"))),
    column("q"),
    column("ij").map("{} IS NULL".format),
)
ATOMS = st.integers(0, 3).flatmap(lambda which: LINKED if which else OTHERS)
PREDICATES = st.recursive(
    ATOMS,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner)
        | inner.map("NOT ({})".format)
    ),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(PREDICATES, st.integers(0, 2**32))
def test_clauses_and_residual_are_the_predicate(text, seed):
    try:
        predicate = parse_predicate(text, SCHEMA, SCHEMA)
    except PredicateError as error:
        if "128 bits" not in str(error):
            raise
        return
    random, analysis = Random(seed), analyse(predicate)
    for path in (analysis.left, analysis.right):
        check_shape(path)
    for left, right in product(some_rows(random), some_rows(random)):
        expected = evaluate(predicate, left, right) is True
        for path in (analysis.left, analysis.right):
            assert path_holds(path, left, right) == expected, f"{text}: {left} {right} {describe(analysis)}"


# ---- floats, exhaustively


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
FLOATS = pa.schema({"g": pa.float64(), "h": pa.float64(), "a": pa.int32()})
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
    names_of = {"left": ["f"], "right": ["g", "h"]}
    rows = {side: [dict(zip(names, values, strict=True)) for values in product(FEW_SPECIALS, repeat=len(names))]
            for side, names in names_of.items()}  # fmt: skip
    for atom in (text.format(op), f"NOT ({text.format(op)})"):
        predicate = parse_predicate(atom, pa.schema({"f": pa.float64()}), FLOATS)
        analysis = analyse(predicate)
        for left, right in product(rows["left"], rows["right"]):
            right["a"] = 7
            expected = evaluate(predicate, left, right) is True
            for path in (analysis.left, analysis.right):
                assert path_holds(path, left, right) == expected, (
                    f"{atom}: {left} {right} {describe(analysis)}"
                )
