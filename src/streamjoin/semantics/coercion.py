"""How operations convert their arguments and what type they give: SQL's implicit rules made explicit.

Numbers
- Exact with exact stays exact. `+ - %`, comparisons and choices (LEAST, GREATEST, COALESCE, CASE)
  bring both to the finer scale, multiplying by a power of ten; `*` adds the scales. Ranges follow by
  interval arithmetic; a range beyond 128 bits is refused.
- `/` is always floating: float32 of two float32, else float64. SQRT and POWER give float64;
  POWER(u, 2) is u * u in float64. FLOOR and CEIL give an int of an exact number, else the same float.
- Exact with float becomes float64, and so does float32 with float64. A literal takes the float type
  of what it meets, rounded once (float64 if it exceeds float32).
Time
- date - date is an int of days, date +- int a date, date +- interval a timestamp. A date that meets a
  timestamp becomes midnight of that day. timestamp - timestamp is an interval; timestamp +- interval a
  timestamp of the finer unit. Intervals add, subtract, negate, compare, and multiply with exact numbers.
- A string literal that meets a date or timestamp is read as one. A timestamp with a time zone never
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
from fractions import Fraction

import numpy as np

from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.expressions import Call, Expr, Literal
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.temporal import date_literal, timestamp_literal
from streamjoin.semantics.types import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT128_MAX,
    INT128_MIN,
    NULL,
    SECONDS_PER_DAY,
    Type,
)

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
        return _product(a, b, "interval")
    raise _refusal(op, a, b)


def negate(a: Expr) -> Expr:
    _require_amount("-", a)
    if a.type.is_exact:
        return _exact("neg", (a,), a.type.name, a.type.scale, (-a.type.hi, -a.type.lo))
    if isinstance(a, Literal) and isinstance(a.value, float):
        return Literal(-a.value, a.type)
    return a if a.type == NULL else Call("neg", (a,), a.type)


def absolute(a: Expr) -> Expr:
    _require_amount("ABS", a)
    if not a.type.is_exact:
        return a if a.type == NULL else Call("abs", (a,), a.type)
    lo, hi = a.type.lo, a.type.hi
    smallest = 0 if lo <= 0 <= hi else min(abs(lo), abs(hi))
    return _exact("abs", (a,), a.type.name, a.type.scale, (smallest, max(abs(lo), abs(hi))))


def rounded(op: str, a: Expr) -> Expr:
    """FLOOR or CEIL (`op` is floor or ceil)."""
    _require_number(op.upper(), a)
    if not a.type.is_exact:
        return a if a.type == NULL else Call(op, (a,), a.type)
    if a.type.scale == 0:
        return a
    unit = 10**a.type.scale
    lo, hi = (v // unit if op == "floor" else -(-v // unit) for v in (a.type.lo, a.type.hi))
    return _exact(op, (a,), "int", 0, (lo, hi))


def square_root(a: Expr) -> Expr:
    _require_number("SQRT", a)
    return Call("sqrt", (as_float(a, FLOAT64),), FLOAT64)


def power(base: Expr, exponent: Expr) -> Expr:
    for arg in (base, exponent):
        _require_number("POWER", arg)
    base = as_float(base, FLOAT64)
    if isinstance(exponent, Literal) and exponent.value == 2 * 10**exponent.type.scale:
        return Call("mul", (base, base), FLOAT64)
    return Call("power", (base, as_float(exponent, FLOAT64)), FLOAT64)


def cast(a: Expr, target: Type) -> Expr:
    """An explicit CAST to a float type; never folded, so that it keeps its type beside other floats."""
    if a.type == NULL:
        return Literal(None, target)
    _require_number("CAST to a float", a)
    return a if a.type == target and not isinstance(a, Literal) else Call("cast", (a,), target)


def compare(op: str, a: Expr, b: Expr) -> Expr:
    """`a op b` for the six comparisons and is_distinct."""
    if a.type == NULL and b.type == NULL:
        a = b = Literal(None, BOOL)
    (x, y), _ = unify((a, b), "compared")
    if _are_exact_literals((x, y)):
        assert isinstance(x, Literal) and isinstance(y, Literal)
        return Literal(_HOLDS[op](x.value, y.value), BOOL)
    return Call(op, (x, y), BOOL)


def choose(op: str, args: Sequence[Expr]) -> Expr:
    """LEAST, GREATEST or COALESCE."""
    unified, kind = unify(args, f"arguments of one {op.upper()}")
    if kind == NULL or len(unified) == 1:
        return unified[0]
    if _are_exact_literals(unified):
        by_value = sorted(unified, key=lambda literal: literal.type.lo)
        return {"least": by_value[0], "greatest": by_value[-1], "coalesce": unified[0]}[op]
    return Call(op, unified, kind)


def case(conditions: Sequence[Expr], values: Sequence[Expr], otherwise: Expr) -> Expr:
    unified, kind = unify((*values, otherwise), "results of one CASE")
    if kind == NULL:
        return UNTYPED_NULL
    branches = zip(conditions, unified[:-1], strict=True)
    return Call("case", (*(arg for branch in branches for arg in branch), unified[-1]), kind)


def unify(args: Sequence[Expr], together: str) -> tuple[tuple[Expr, ...], Type]:
    """`args` converted to one sort and scale, and the type that holds all; NULL if all are bare NULLs."""
    known = [arg for arg in args if arg.type != NULL]
    if not known:
        return tuple(args), NULL
    known = _read_strings(known)
    for other in known[1:]:
        if _family(other.type) != _family(known[0].type):
            raise PredicateError(f"{described(known[0])} and {described(other)}: they can not be {together}")
    if any(arg.type.is_float for arg in known):
        known = _as_floats(known)
    elif known[0].type.is_exact:
        known = _align(_as_timestamps(known, together))
    kind = _hull([arg.type for arg in known])
    rest = iter(known)
    return tuple(Literal(None, kind) if arg.type == NULL else next(rest) for arg in args), kind


def as_float(a: Expr, target: Type) -> Expr:
    """`a` as a float of type `target`: literals are rounded once, the rest is cast."""
    if a.type == NULL:
        return Literal(None, target)
    if not isinstance(a, Literal):
        return a if a.type == target else Call("cast", (a,), target)
    if a.value is None or a.type == target:
        return Literal(a.value, target)
    return Literal(_nearest(_exact_value(a), target), target)


def described(expr: Expr) -> str:
    return f"{to_sql(expr)} is {expr.type}"


def _number_arithmetic(op: str, a: Expr, b: Expr) -> Expr:
    if op == "div" or a.type.is_float or b.type.is_float:
        x, y = _as_floats((a, b))
        return Call(op, (x, y), x.type)
    name = "int" if a.type.name == b.type.name == "int" else "decimal"
    if op == "mul":
        return _product(a, b, name)
    x, y = _align((a, b))
    name = name if x.type.scale else "int" if {x.type.name, y.type.name} == {"int"} else "decimal"
    return _exact(op, (x, y), name, x.type.scale, _RANGES[op](x.type, y.type))


def _time_sum(op: str, a: Expr, b: Expr) -> Expr:
    """`+` or `-` where at least one argument is no number."""
    first, second = a.type.name, b.type.name
    if op == "add" and (second in ("date", "timestamp") and first in ("interval", "int")):
        return _time_sum(op, b, a)
    if first == "interval" and second == "interval":
        return _aligned_sum(op, a, b, "interval")
    if first == "date" and second == "int":
        return _exact(op, (a, b), "date", 0, _RANGES[op](a.type, b.type))
    if first in ("date", "timestamp") and second == "interval":
        moment = _midnight(a, _least_scale(b)) if first == "date" else a
        return _aligned_sum(op, moment, b, "timestamp")
    if op == "sub" and {first, second} <= {"date", "timestamp", "string"}:
        (x, y), kind = unify((a, b), "subtracted")
        if kind.is_exact:
            name = "int" if kind.name == "date" else "interval"
            return _exact("sub", (x, y), name, kind.scale, _RANGES["sub"](x.type, y.type))
    raise _refusal(op, a, b)


def _aligned_sum(op: str, a: Expr, b: Expr, name: str) -> Expr:
    x, y = _align((a, b))
    return _exact(op, (x, y), name, x.type.scale, _RANGES[op](x.type, y.type), a.type.tz)


def _product(a: Expr, b: Expr, name: str, tz: bool = False) -> Expr:
    corners = [x * y for x in (a.type.lo, a.type.hi) for y in (b.type.lo, b.type.hi)]
    return _exact("mul", (a, b), name, a.type.scale + b.type.scale, (min(corners), max(corners)), tz)


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


def _exact(
    op: str, args: tuple[Expr, ...], name: str, scale: int, bounds: tuple[int, int], tz: bool = False
) -> Expr:
    """The exact operation, folded if its arguments are literals (their ranges are single values)."""
    kind = Type(name, scale, *bounds, tz)
    result = Call(op, args, kind)
    if kind.lo < INT128_MIN or kind.hi > INT128_MAX:
        unit = f" in units of 10^-{scale}" if scale else ""
        raise PredicateError(
            f"{to_sql(result)} needs more than 128 bits: its values go from {kind.lo} to {kind.hi}{unit}; "
            "CAST an operand to DOUBLE to calculate in floating point"
        )
    divides_by_zero = op == "mod" and isinstance(args[1], Literal) and args[1].value == 0
    return Literal(kind.lo, kind) if _are_exact_literals(args) and not divides_by_zero else result


def _are_exact_literals(args: Sequence[Expr]) -> bool:
    return all(isinstance(arg, Literal) and arg.type.is_exact and arg.value is not None for arg in args)


def _family(kind: Type) -> str:
    if kind.is_number:
        return "number"
    return "moment" if kind.name in ("date", "timestamp") else kind.name


def _read_strings(args: Sequence[Expr]) -> list[Expr]:
    """String literals beside dates or timestamps, read as such."""
    kinds = {arg.type.name for arg in args} & {"date", "timestamp"}
    if not kinds:
        return list(args)
    read = timestamp_literal if "timestamp" in kinds else date_literal
    return [read(a.value) if isinstance(a, Literal) and isinstance(a.value, str) else a for a in args]


def _as_timestamps(args: Sequence[Expr], together: str) -> Sequence[Expr]:
    """Dates among timestamps become timestamps; time zones must agree."""
    moments = [arg for arg in args if arg.type.name == "timestamp"]
    if not moments:
        return args
    zoned = next((arg for arg in args if arg.type.tz), None)
    local = next((arg for arg in args if not arg.type.tz), None)
    if zoned is not None and local is not None:
        raise PredicateError(
            f"{described(zoned)} (with a time zone) and {described(local)} (without): "
            f"they can not be {together}; both need a time zone (in a literal an offset such as +00:00) or neither"
        )
    scale = max(_least_scale(arg) for arg in moments)
    return [_midnight(arg, scale) if arg.type.name == "date" else arg for arg in args]


def _midnight(day: Expr, scale: int) -> Expr:
    ticks = SECONDS_PER_DAY * 10**scale
    return _product(day, Literal(ticks, Type("interval", scale, ticks, ticks)), "timestamp")


def _align(args: Sequence[Expr]) -> list[Expr]:
    """Exact expressions brought to the finest scale among them; literals give up trailing zeros first."""
    scale = max(_least_scale(arg) for arg in args)
    return [_rescale(arg, scale) for arg in args]


def _least_scale(arg: Expr) -> int:
    scale = arg.type.scale
    if isinstance(arg, Literal) and arg.value is not None:
        value, digits = int(arg.value), 3 if arg.type.name in ("timestamp", "interval") else 1
        while scale >= digits and value % 10**digits == 0:
            value, scale = value // 10**digits, scale - digits
    return scale


def _rescale(arg: Expr, scale: int) -> Expr:
    kind = arg.type
    if kind.scale == scale:
        return arg
    name = kind.name if kind.name not in ("int", "decimal") else "decimal" if scale else "int"
    if isinstance(arg, Literal) and arg.value is not None:
        value = int(arg.value) * 10**scale // 10**kind.scale
        return Literal(value, Type(name, scale, value, value, kind.tz))
    factor, step = 10 ** (scale - kind.scale), scale - kind.scale
    return _product(arg, Literal(factor, Type("decimal", step, factor, factor)), name, kind.tz)


def _as_floats(args: Sequence[Expr]) -> list[Expr]:
    """All as float32 if every argument but literals is, else all as float64."""
    fixed = [arg for arg in args if not isinstance(arg, Literal)]
    narrow = bool(fixed) and all(arg.type == FLOAT32 for arg in fixed)
    literals = [arg for arg in args if isinstance(arg, Literal) and arg.value is not None]
    if narrow and any(math.isinf(_nearest(_exact_value(literal), FLOAT32)) for literal in literals):
        narrow = False
    return [as_float(arg, FLOAT32 if narrow else FLOAT64) for arg in args]


def _exact_value(literal: Literal) -> Fraction:
    assert isinstance(literal.value, (int, float))
    return Fraction(literal.value) / Fraction(10**literal.type.scale)


def _nearest(exact: Fraction, target: Type) -> float:
    """The float of type `target` nearest to `exact`: rounded once, never by way of the other type."""
    wide = exact.numerator / exact.denominator
    if target == FLOAT64:
        return wide
    with np.errstate(over="ignore"):
        near = np.float32(wide)
    if np.isinf(near) or Fraction(wide) == exact:
        return float(near)
    around = (np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf)))
    return min((float(f) for f in around if np.isfinite(f)), key=lambda f: abs(Fraction(f) - exact))


def _hull(kinds: Sequence[Type]) -> Type:
    first = kinds[0]
    if not first.is_exact:
        return first
    name = "decimal" if any(kind.name == "decimal" for kind in kinds) else first.name
    return Type(name, first.scale, min(k.lo for k in kinds), max(k.hi for k in kinds), first.tz)


def _require_number(what: str, a: Expr) -> None:
    if not (a.type.is_number or a.type == NULL):
        raise PredicateError(f"{what} needs a number, but {described(a)}")


def _require_amount(what: str, a: Expr) -> None:
    if not (a.type.is_number or a.type.name in ("interval", "null")):
        raise PredicateError(f"{what} needs a number or an interval, but {described(a)}")


def _refusal(op: str, a: Expr, b: Expr) -> PredicateError:
    rules = {
        "add": "number + number, interval + interval, date + int, date + interval, timestamp + interval",
        "sub": "number - number, interval - interval, date - date, date - int, date - interval, "
        "timestamp - timestamp, timestamp - interval",
        "mul": "number * number, interval * exact number",
    }
    symbol = _SYMBOLS[op]
    return PredicateError(
        f"{described(a)} and {described(b)}: they can not be {_VERBS[op]}; "
        f"allowed: {rules.get(op, f'number {symbol} number')}"
    )
