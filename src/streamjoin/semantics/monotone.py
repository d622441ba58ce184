"""Float comparisons solved for one side, exactly as IEEE 754 rounds them.

Floats cannot be moved across a comparison: `x - a <= 10` and `x <= a + 10` round differently.
But adding, negating, multiplying or dividing by a constant, rounding and converting are monotone
functions, each correctly rounded, so the `x` for which `x - a <= 10` holds are an interval, and
its end is found by bisection (`Solve`) once per probing tuple.

Why that is exact. Let A(k) be the compared expression as a function of the stored value k,
increasing, and the atom `A(k) <= b` (the other directions mirror it):
- All other operands finite: A is nowhere NaN and monotone on [-inf, inf], overflows included,
  so the atom holds just up to the greatest k for which it does.
- One of them NaN: A is NaN everywhere, the atom never holds, `Solve` gives NaN.
- One of them infinite, e.g. k + p: that node is p for every k but those where it is
  inf - inf = NaN, so A is constant outside that set. If the set lies at the top of the line
  (p = -inf), the atom holds below it or nowhere: still monotone. If it lies at the bottom
  (p = inf), A is inf elsewhere, and `A < b` is false everywhere, as is `A <= b` for b < inf. Only
  `A <= b` with b = inf fails: it holds above the set, not in it.
So the bound is exact if the comparison is strict, or b is finite, or all other operands are.
Otherwise `NOT A > b` takes the place of `A <= b`: true where either is NaN, hence monotone in all
the cases above, and a superset; the caller must check the atom itself as well.

An atom that holds for NaN too (NOT of a comparison) has that condition to begin with; a NaN key
then stands for the infinity at which the condition always holds: there A is its own extreme or NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from streamjoin.semantics.expressions import Call, Column, Expr, Literal, Solve, sides, walk
from streamjoin.semantics.linear import KeyBounds
from streamjoin.semantics.types import BOOL

FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}

_NULL_TOLERANT = frozenset(("least", "greatest", "coalesce", "case", "and", "or", "is_null", "is_distinct"))


def solve_float(
    op: str, a: Expr, b: Expr, stored: str, or_nan: bool = False
) -> tuple[KeyBounds, bool] | None:
    """`a op b`, op one of lt le gt ge eq, as bounds of a key over `stored`, and whether they are exact.

    With `or_nan` the atom also holds if a or b is NaN; `eq` is not allowed then. The atom reads
    both sides. None if there is no such key; not exact: the bounds are necessary, not sufficient.
    """
    if stored in sides(b):
        op, a, b = FLIPPED[op], b, a
    if stored in sides(b):
        return None
    exact = True
    if or_nan and op in ("lt", "gt"):
        # NaN < inf must hold here, but no infinity that replaces NaN is below inf. So allow equality.
        op, exact = {"lt": "le", "gt": "ge"}[op], False
    path = _path(a, stored)
    if path is not None and not all(_is_strict(e) for e in (*path.operands, b)):
        path = None
    # Keep an equality whose sides are separated: it can be hashed, which is worth more than a shared key.
    if sides(a) == {stored} and (path is None or path.stem == a or op == "eq"):
        return (_separated_or_nan if or_nan else _separated)(op, a, b), exact
    if path is None:
        return None
    exact = exact and (or_nan or op in ("lt", "gt") or _is_finite(b) or all(map(_is_finite, path.operands)))
    parts = ("le", "ge") if op == "eq" else (op,)
    found = dict(_bound(part, a, b, path, stored, loose=or_nan or not exact) for part in parts)
    key = _without_nan(path.stem, -inf if "hi" in found else inf) if or_nan else path.stem
    return (key, found.get("lo"), found.get("hi")), exact


def _separated(op: str, a: Expr, b: Expr) -> KeyBounds:
    if op == "lt":
        return a, None, Call("next_down", (b,), b.type)
    if op == "gt":
        return a, Call("next_up", (b,), b.type), None
    return a, b if op != "le" else None, b if op != "ge" else None


def _separated_or_nan(op: str, a: Expr, b: Expr) -> KeyBounds:
    end = -inf if op == "le" else inf
    return _separated(op, _without_nan(a, end), _without_nan(b, -end))


@dataclass(frozen=True)
class _Path:
    """The way down to `stem`, the only part that reads the stored side, through monotone operations.

    It continues below operations with constants: then `b - 10 <= y` and `b + 10 >= y` share the key `b`.
    """

    stem: Expr
    increasing: bool
    operands: tuple[Expr, ...]


def _path(expr: Expr, stored: str) -> _Path | None:
    alone = _Path(expr, True, ()) if sides(expr) == {stored} else None
    if not isinstance(expr, Call) or not expr.args[0].type.is_float:
        return alone
    reading = [i for i, arg in enumerate(expr.args) if stored in sides(arg)]
    if len(reading) != 1:
        return alone
    at, others = reading[0], tuple(arg for i, arg in enumerate(expr.args) if i != reading[0])
    if alone and not all(map(_is_finite, others)):
        return alone
    match expr.op:
        case "add" | "floor" | "ceil" | "round" | "cast":
            turns = False
        case "neg":
            turns = True
        case "sub":
            turns = at == 1
        case "mul" | "div" if expr.op == "mul" or at == 0:
            factor = _constant(others[0])
            if not factor or not isfinite(factor):
                return alone
            turns, others = factor < 0, ()
        case _:
            return alone
    inner = _path(expr.args[at], stored)
    return inner and _Path(inner.stem, inner.increasing != turns, inner.operands + others)


def _bound(op: str, a: Expr, b: Expr, path: _Path, stored: str, loose: bool) -> tuple[str, Solve]:
    """Which end `a op b` bounds, and the bound; `loose`: the condition holds for NaN too."""
    variable = Column(stored, "<key>", path.stem.type)
    compared = (replaced(a, path.stem, variable), b)
    condition = Call(op, compared, BOOL)
    if loose:
        condition = Call("not", (Call(NEGATED[op], compared, BOOL),), BOOL)
    side = "hi" if (op in ("lt", "le")) == path.increasing else "lo"
    return side, Solve(variable, condition, side)


def replaced(expr: Expr, old: Expr, new: Expr) -> Expr:
    """`expr` with every `old` replaced by `new`."""
    if expr == old:
        return new
    if not isinstance(expr, Call):
        return expr
    return Call(expr.op, tuple(replaced(arg, old, new) for arg in expr.args), expr.type)


def _is_strict(expr: Expr) -> bool:
    """Whether a NULL in any column makes the expression NULL, which `Solve` assumes."""
    return not any(isinstance(node, Call) and node.op in _NULL_TOLERANT for node in walk(expr))


def _constant(expr: Expr) -> float | None:
    """The value of a float expression of literals alone, None if it is not one."""
    if isinstance(expr, Literal):
        return float(expr.value) if isinstance(expr.value, int | float) else None
    if isinstance(expr, Call) and expr.op == "neg":
        value = _constant(expr.args[0])
        return None if value is None else -value
    if isinstance(expr, Call) and expr.op == "cast":
        value, source = _constant(expr.args[0]), expr.args[0].type
        if value is None:
            return None
        value = value / 10.0**source.scale if source.is_exact else value
        with np.errstate(over="ignore"):
            return float(np.float32(value)) if expr.type.name == "float32" else value
    return None


def _is_finite(expr: Expr) -> bool:
    """Whether the value is certainly finite: a finite constant, or converted from at most 128 bits."""
    constant = _constant(expr)
    if constant is not None:
        return isfinite(constant)
    if isinstance(expr, Call) and expr.op in ("neg", "abs"):
        return _is_finite(expr.args[0])
    return isinstance(expr, Call) and expr.op == "cast" and expr.args[0].type.is_exact


def _without_nan(expr: Expr, stand_in: float) -> Expr:
    if _is_finite(expr):
        return expr
    return Call("nan_to", (expr, Literal(stand_in, expr.type)), expr.type)
