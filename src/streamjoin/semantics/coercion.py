"""How operations convert their arguments and what type they give: SQL's implicit rules made explicit.

Numbers
- Exact with exact stays exact. `+ - %`, comparisons and choices (LEAST, GREATEST, COALESCE, CASE)
  bring both to the finer scale, multiplying by a power of ten; `*` adds the scales. Ranges follow by
  interval arithmetic; a range beyond 128 bits is refused.
- `/` is always floating: float32 of two float32, else float64. SQRT and POWER give float64;
  POWER(u, 2) is u * u in float64. FLOOR, CEIL and ROUND give an int of an exact number, else the same float.
- Exact with float becomes float64, and so does float32 with float64. A literal takes the float type
  of what it meets, rounded once (float64 if it exceeds float32).
- CAST of an exact number to REAL goes by way of DOUBLE.
Time
- date - date is an int of days, date +- int a date, date +- interval a timestamp. A date that meets a
  timestamp becomes midnight of that day. timestamp - timestamp is an interval, as is time - time (of day);
  timestamp +- interval a timestamp of the finer unit. Intervals add, subtract, negate, compare, and multiply
  with exact numbers.
- A string literal that meets a date, a timestamp or a time is read as one. A timestamp with a time zone never
  meets a date or a timestamp without one, and times never mix with plain numbers otherwise.
Rest
- Strings compare with strings, binaries with binaries, booleans with booleans.
- A bare NULL takes the type of what it meets; arithmetic with one is NULL.
- Operations on exact literals only are folded, but for an explicit CAST.

Every function raises a `PredicateError` without a place; the caller knows the place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from streamjoin.semantics.conversion import (
    align,
    are_exact_literals,
    as_float,
    as_floats,
    described,
    exact_call,
    least_scale,
    midnight,
    product,
    unify,
)
from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.expressions import Call, Expr, Literal
from streamjoin.semantics.types import BOOL, FLOAT32, FLOAT64, NULL, Type

UNTYPED_NULL = Literal(None, NULL)
_VERBS = {"add": "added", "sub": "subtracted", "mul": "multiplied", "div": "divided", "mod": "divided"}
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
_HOLDS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "is_distinct": lambda a, b: a != b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def condition(expr: Expr, where: str) -> Expr:
    """`expr` if it is a condition (a bare NULL is one), else an error that names `where`."""
    if expr.type == NULL:
        return Literal(None, BOOL)
    if expr.type != BOOL:
        raise PredicateError(f"{where} needs a condition, but {described(expr)}")
    return expr


def arithmetic(op: str, a: Expr, b: Expr) -> Expr:
    """`a op b` for op in add, sub, mul, div, mod."""
    if NULL in (a.type, b.type):
        return UNTYPED_NULL
    if a.type.is_number and b.type.is_number:
        return _number_arithmetic(op, a, b)
    if op in ("add", "sub"):
        return _time_sum(op, a, b)
    kinds = {a.type.name, b.type.name}
    if op == "mul" and "interval" in kinds and kinds <= {"interval", "int", "decimal"} and len(kinds) == 2:
        return product(a, b, "interval")
    raise _refusal(op, a, b)


def negate(a: Expr) -> Expr:
    _require_amount("-", a)
    if a.type.is_exact:
        return exact_call("neg", (a,), a.type.name, a.type.scale, (-a.type.hi, -a.type.lo))
    if isinstance(a, Literal) and isinstance(a.value, float):
        return Literal(-a.value, a.type)
    return a if a.type == NULL else Call("neg", (a,), a.type)


def absolute_value(a: Expr) -> Expr:
    _require_amount("ABS", a)
    if not a.type.is_exact:
        return a if a.type == NULL else Call("abs", (a,), a.type)
    lo, hi = a.type.lo, a.type.hi
    smallest = 0 if lo <= 0 <= hi else min(abs(lo), abs(hi))
    return exact_call("abs", (a,), a.type.name, a.type.scale, (smallest, max(abs(lo), abs(hi))))


def rounded(op: str, a: Expr) -> Expr:
    """FLOOR or CEIL (`op` is floor or ceil)."""
    require_number(op.upper(), a)
    if not a.type.is_exact:
        return a if a.type == NULL else Call(op, (a,), a.type)
    if a.type.scale == 0:
        return a
    unit = 10**a.type.scale
    lo, hi = (v // unit if op == "floor" else -(-v // unit) for v in (a.type.lo, a.type.hi))
    return exact_call(op, (a,), "int", 0, (lo, hi))


def rounded_to(a: Expr, digits: int) -> Expr:
    """An exact number rounded to decimal digits, half away from zero."""
    steps = a.type.scale - digits
    if steps <= 0:
        return a
    unit = 10**steps
    step = Literal(unit, Type("decimal", steps, unit, unit))
    lo, hi = (_half_away(v, unit) for v in (a.type.lo, a.type.hi))
    return exact_call("rounddiv", (a, step), "decimal" if digits else "int", digits, (lo, hi))


def _half_away(value: int, unit: int) -> int:
    nearest = (2 * abs(value) + unit) // (2 * unit)
    return -nearest if value < 0 else nearest


def square_root(a: Expr) -> Expr:
    require_number("SQRT", a)
    return Call("sqrt", (as_float(a, FLOAT64),), FLOAT64)


def power(base: Expr, exponent: Expr) -> Expr:
    for arg in (base, exponent):
        require_number("POWER", arg)
    base = as_float(base, FLOAT64)
    if isinstance(exponent, Literal) and exponent.value == 2 * 10**exponent.type.scale:
        return Call("mul", (base, base), FLOAT64)
    return Call("power", (base, as_float(exponent, FLOAT64)), FLOAT64)


def cast(a: Expr, target: Type) -> Expr:
    """An explicit CAST to a float type; never folded, so that it keeps its type beside other floats."""
    if a.type == NULL:
        return Literal(None, target)
    require_number("CAST to a float", a)
    if a.type.is_exact and target == FLOAT32:
        # Through float64, so that there is only one conversion from exact numbers, with one rounding rule.
        a = Call("cast", (a,), FLOAT64)
    return a if a.type == target and not isinstance(a, Literal) else Call("cast", (a,), target)


def comparison_of(op: str, a: Expr, b: Expr) -> Expr:
    """`a op b` for the six comparisons and is_distinct."""
    if a.type == NULL and b.type == NULL:
        a = b = Literal(None, BOOL)
    (x, y), _ = unify((a, b), "compared")
    if are_exact_literals((x, y)):
        assert isinstance(x, Literal) and isinstance(y, Literal)
        return Literal(_HOLDS[op](x.value, y.value), BOOL)
    return Call(op, (x, y), BOOL)


def choose(op: str, args: Sequence[Expr]) -> Expr:
    """LEAST, GREATEST or COALESCE."""
    unified, kind = unify(args, f"arguments of one {op.upper()}")
    if kind == NULL or len(unified) == 1:
        return unified[0]
    if are_exact_literals(unified):
        by_value = sorted(unified, key=lambda literal: literal.type.lo)
        return {"least": by_value[0], "greatest": by_value[-1], "coalesce": unified[0]}[op]
    return Call(op, unified, kind)


def case(conditions: Sequence[Expr], values: Sequence[Expr], otherwise: Expr) -> Expr:
    unified, kind = unify((*values, otherwise), "results of one CASE")
    if kind == NULL:
        return UNTYPED_NULL
    branches = zip(conditions, unified[:-1], strict=True)
    return Call("case", (*(arg for branch in branches for arg in branch), unified[-1]), kind)


def _number_arithmetic(op: str, a: Expr, b: Expr) -> Expr:
    if op == "div" or a.type.is_float or b.type.is_float:
        x, y = as_floats((a, b))
        return Call(op, (x, y), x.type)
    name = "int" if a.type.name == b.type.name == "int" else "decimal"
    if op == "mul":
        return product(a, b, name)
    x, y = align((a, b))
    name = name if x.type.scale else "int" if {x.type.name, y.type.name} == {"int"} else "decimal"
    return exact_call(op, (x, y), name, x.type.scale, _RANGES[op](x.type, y.type))


def _time_sum(op: str, a: Expr, b: Expr) -> Expr:
    """`+` or `-` where at least one argument is not a number."""
    first, second = a.type.name, b.type.name
    if op == "add" and (second in ("date", "timestamp") and first in ("interval", "int")):
        return _time_sum(op, b, a)
    if first == "interval" and second == "interval":
        return _aligned_sum(op, a, b, "interval")
    if first == "date" and second == "int":
        return exact_call(op, (a, b), "date", 0, _RANGES[op](a.type, b.type))
    if first in ("date", "timestamp") and second == "interval":
        moment = midnight(a, least_scale(b)) if first == "date" else a
        return _aligned_sum(op, moment, b, "timestamp")
    kinds = {first, second}
    if op == "sub" and (kinds <= {"date", "timestamp", "string"} or kinds <= {"time", "string"}):
        (x, y), kind = unify((a, b), "subtracted")
        if kind.is_exact:
            name = "int" if kind.name == "date" else "interval"
            return exact_call("sub", (x, y), name, kind.scale, _RANGES["sub"](x.type, y.type))
    raise _refusal(op, a, b)


def _aligned_sum(op: str, a: Expr, b: Expr, name: str) -> Expr:
    x, y = align((a, b))
    return exact_call(op, (x, y), name, x.type.scale, _RANGES[op](x.type, y.type), a.type.tz)


def _remainder_range(a: Type, b: Type) -> tuple[int, int]:
    if a.lo == a.hi and b.lo == b.hi != 0:
        # Truncated division: the sign of the dividend.
        exact = int(math.copysign(1, a.lo)) * (abs(a.lo) % abs(b.lo))
        return exact, exact
    largest = max(abs(b.lo), abs(b.hi), 1) - 1
    return max(min(a.lo, 0), -largest), min(max(a.hi, 0), largest)


_RANGES = {
    "add": lambda a, b: (a.lo + b.lo, a.hi + b.hi),
    "sub": lambda a, b: (a.lo - b.hi, a.hi - b.lo),
    "mod": _remainder_range,
}


def require_number(what: str, a: Expr) -> None:
    if not (a.type.is_number or a.type == NULL):
        raise PredicateError(f"{what} needs a number, but {described(a)}")


def _require_amount(what: str, a: Expr) -> None:
    if not (a.type.is_number or a.type.name in ("interval", "null")):
        raise PredicateError(f"{what} needs a number or an interval, but {described(a)}")


def _refusal(op: str, a: Expr, b: Expr) -> PredicateError:
    rules = {
        "add": "number + number, interval + interval, date + int, date + interval, timestamp + interval",
        "sub": "number - number, interval - interval, date - date, date - int, date - interval, "
        "timestamp - timestamp, timestamp - interval, time - time",
        "mul": "number * number, interval * exact number",
    }
    symbol = _SYMBOLS[op]
    if "time" in (a.type.name, b.type.name) and "interval" in (a.type.name, b.type.name):
        return PredicateError(
            f"{described(a)} and {described(b)}: a time of day and an interval may make no time of day; compare "
            "differences, as in left.x - right.y BETWEEN INTERVAL '0' SECOND AND INTERVAL '5' MINUTE"
        )
    return PredicateError(
        f"{described(a)} and {described(b)}: they cannot be {_VERBS[op]}; "
        f"allowed: {rules.get(op, f'number {symbol} number')}"
    )
