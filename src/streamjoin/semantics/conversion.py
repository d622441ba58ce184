"""Conversions of expressions to one type, and exact operations with their ranges (rules: see `coercion`).

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
from streamjoin.semantics.temporal import date_literal, time_literal, timestamp_literal
from streamjoin.semantics.types import FLOAT32, FLOAT64, INT128_MAX, INT128_MIN, NULL, SECONDS_PER_DAY, Type


def unify(args: Sequence[Expr], together: str) -> tuple[tuple[Expr, ...], Type]:
    """`args` converted to one sort and scale, and the type that holds all; NULL if all are bare NULLs."""
    known = [arg for arg in args if arg.type != NULL]
    if not known:
        return tuple(args), NULL
    known = _read_strings(known)
    for other in known[1:]:
        if _family(other.type) != _family(known[0].type):
            raise PredicateError(f"{described(known[0])} and {described(other)}: they cannot be {together}")
    if any(arg.type.is_float for arg in known):
        known = as_floats(known)
    elif known[0].type.is_exact:
        known = align(_as_timestamps(known, together))
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


def as_floats(args: Sequence[Expr]) -> list[Expr]:
    """All arguments as float32 if every one that is not a literal is float32, else all as float64."""
    fixed = [arg for arg in args if not isinstance(arg, Literal)]
    narrow = bool(fixed) and all(arg.type == FLOAT32 for arg in fixed)
    literals = [arg for arg in args if isinstance(arg, Literal) and arg.value is not None]
    if narrow and any(math.isinf(_nearest(_exact_value(literal), FLOAT32)) for literal in literals):
        narrow = False
    return [as_float(arg, FLOAT32 if narrow else FLOAT64) for arg in args]


def align(args: Sequence[Expr]) -> list[Expr]:
    """Exact expressions brought to the finest scale among them; literals give up trailing zeros first."""
    scale = max(least_scale(arg) for arg in args)
    return [_rescale(arg, scale) for arg in args]


def least_scale(arg: Expr) -> int:
    scale = arg.type.scale
    if isinstance(arg, Literal) and arg.value is not None:
        value, digits = int(arg.value), 3 if arg.type.name in ("timestamp", "time", "interval") else 1
        while scale >= digits and value % 10**digits == 0:
            value, scale = value // 10**digits, scale - digits
    return scale


def midnight(day: Expr, scale: int) -> Expr:
    ticks = SECONDS_PER_DAY * 10**scale
    return product(day, Literal(ticks, Type("interval", scale, ticks, ticks)), "timestamp")


def exact_call(
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
    return Literal(kind.lo, kind) if are_exact_literals(args) and not divides_by_zero else result


def product(a: Expr, b: Expr, name: str, tz: bool = False) -> Expr:
    corners = [x * y for x in (a.type.lo, a.type.hi) for y in (b.type.lo, b.type.hi)]
    return exact_call("mul", (a, b), name, a.type.scale + b.type.scale, (min(corners), max(corners)), tz)


def are_exact_literals(args: Sequence[Expr]) -> bool:
    return all(isinstance(arg, Literal) and arg.type.is_exact and arg.value is not None for arg in args)


def described(expr: Expr) -> str:
    return f"{to_sql(expr)} is {expr.type}"


def _family(kind: Type) -> str:
    if kind.is_number:
        return "number"
    return "moment" if kind.name in ("date", "timestamp") else kind.name


def _read_strings(args: Sequence[Expr]) -> list[Expr]:
    """Convert string literals to the type of the dates, timestamps or times of day beside them."""
    kinds = {arg.type.name for arg in args}
    read = next((_LITERAL_READERS[name] for name in _LITERAL_READERS if name in kinds), None)
    if read is None:
        return list(args)
    return [read(a.value) if isinstance(a, Literal) and isinstance(a.value, str) else a for a in args]


_LITERAL_READERS = {"timestamp": timestamp_literal, "date": date_literal, "time": time_literal}


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
            f"they cannot be {together}; both need a time zone (in a literal an offset such as +00:00) or neither"
        )
    scale = max(least_scale(arg) for arg in moments)
    return [midnight(arg, scale) if arg.type.name == "date" else arg for arg in args]


def _rescale(arg: Expr, scale: int) -> Expr:
    kind = arg.type
    if kind.scale == scale:
        return arg
    name = kind.name if kind.name not in ("int", "decimal") else "decimal" if scale else "int"
    if isinstance(arg, Literal) and arg.value is not None:
        value = int(arg.value) * 10**scale // 10**kind.scale
        return Literal(value, Type(name, scale, value, value, kind.tz))
    factor, step = 10 ** (scale - kind.scale), scale - kind.scale
    return product(arg, Literal(factor, Type("decimal", step, factor, factor)), name, kind.tz)


def _exact_value(literal: Literal) -> Fraction:
    assert isinstance(literal.value, (int, float))
    return Fraction(literal.value) / Fraction(10**literal.type.scale)


def _nearest(exact: Fraction, target: Type) -> float:
    """The float of type `target` nearest to `exact`: rounded once, never through the other float type."""
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
