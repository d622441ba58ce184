"""CAST to integers, decimals and strings.

A number is rounded half away from zero, and a value that the target cannot hold is NULL: too large, NaN, an infinity,
or a string that is not a number. A cast of a float x to scale s rounds `x * 10^s` in float64. Numbers in strings are
written as in `-12.50`, with spaces around them.
"""

from __future__ import annotations

import math

from streamjoin.semantics import coercion
from streamjoin.semantics.conversion import as_float, described, product
from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.expressions import Call, Expr, Literal
from streamjoin.semantics.types import BOOL, FLOAT64, NULL, STRING, Type, decimal, sql_name

TARGETS = "DOUBLE, REAL, TINYINT to BIGINT, UTINYINT to UBIGINT, DECIMAL(digits, scale), VARCHAR"
MOST_DECIMAL_DIGITS = 38  # of a decimal


def decimal_type(params: list[str]) -> Type:
    """DECIMAL(digits) or DECIMAL(digits, scale); without a scale, it is 0."""
    digits, scale = (int(each) if each.isdecimal() else -1 for each in (*params, "0")[:2])
    if len(params) > 2 or digits == 0 or not 0 <= scale <= digits <= MOST_DECIMAL_DIGITS:
        raise PredicateError(
            f"DECIMAL({', '.join(params)}) is not a type: write the digits, from 1 to {MOST_DECIMAL_DIGITS}, and how "
            "many of them are after the point, such as DECIMAL(10, 2)"
        )
    return decimal(digits, scale)


def cast_to_exact(a: Expr, target: Type) -> Expr:
    """CAST to an integer or a decimal."""
    kind = a.type
    if kind == NULL:
        return Literal(None, target)
    if not (kind.is_number or kind in (BOOL, STRING)):
        raise PredicateError(
            f"CAST to {sql_name(target)} needs a number, a boolean or a string, but {described(a)}; of times, write "
            "EXTRACT(EPOCH FROM x) or x - y"
        )
    if (kind.is_float or kind == STRING) and target.bits > 64:
        raise PredicateError(
            f"CAST to {sql_name(target)} needs an integer, a decimal or a boolean, but {described(a)}: of floats and "
            "strings, integers to BIGINT and decimals of at most 18 digits can be made"
        )
    if (
        kind.name == target.name
        and kind.scale == target.scale
        and target.lo <= kind.lo
        and kind.hi <= target.hi
    ):
        return a
    call = Call("to_exact", (a,), target)
    scaled(call)  # raises for more than 128 bits
    return call


def scaled(call: Call) -> Expr:
    """The argument of a `to_exact` in units of the result's scale, before the check of its range; booleans and strings
    as they are."""
    (a,), scale = call.args, call.type.scale
    if a.type.is_float:
        whole = as_float(a, FLOAT64)
        factor = Literal(float(10**scale), FLOAT64)
        return Call("round", (Call("mul", (whole, factor), FLOAT64) if scale else whole,), FLOAT64)
    if not a.type.is_exact or a.type.scale == scale:
        return a
    if a.type.scale > scale:
        return coercion.rounded_to(a, scale)
    factor_value, steps = 10 ** (scale - a.type.scale), scale - a.type.scale
    return product(a, Literal(factor_value, Type("decimal", steps, factor_value, factor_value)), "decimal")


def cast_to_text(a: Expr) -> Expr:
    """CAST to a string: integers and decimals with all digits of their scale, booleans as true and false."""
    if a.type == NULL:
        return Literal(None, STRING)
    if a.type == STRING:
        return a
    if not (a.type == BOOL or a.type.name in ("int", "decimal")):
        raise PredicateError(
            f"CAST to VARCHAR needs an integer, a decimal or a boolean, but {described(a)}; of a float, write the "
            "digits to keep: CAST(CAST(x AS DECIMAL(18, 6)) AS VARCHAR)"
        )
    return Call("to_text", (a,), STRING)


def float_bounds(target: Type) -> tuple[float, float]:
    """The least and the greatest float64 that the target, of at most 64 bits, holds."""
    lo, hi = float(target.lo), float(target.hi)
    return (
        lo if int(lo) >= target.lo else math.nextafter(lo, math.inf),
        hi if int(hi) <= target.hi else math.nextafter(hi, -math.inf),
    )
