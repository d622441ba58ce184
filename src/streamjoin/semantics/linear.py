"""Exact comparisons as linear forms, solved for the columns of one side.

A comparison of exact values is `sum(coefficient * term) + constant <= 0` (or `= 0`) over the
integers that stand for the values (see `types`): converting scales, adding literals and
multiplying by them only change coefficients. Solving that for one side is integer division,
so bounds are closed and no pair is gained or lost.

Scales in the results are labels that keep trees consistent: key and bounds share the key's
scale, and a factor carries the difference of scales (a literal 1 of scale -2 stands for 100).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from streamjoin.semantics.expressions import Call, Column, Expr, Literal, sides
from streamjoin.semantics.moments import LINEAR, expanded
from streamjoin.semantics.types import BOOL, INT128_MAX, INT128_MIN, Type

KeyBounds = tuple[Expr, Expr | None, Expr | None]
"""key, lo, hi: key BETWEEN lo AND hi, both ends closed; None is unbounded."""

_TIMES = ("timestamp", "time", "interval")
MAX_TERMS = 32  # terms of a form that is solved; the tree of a sum has one level per term


class TooWide(Exception):
    """A bound would need more than 128 bits. Caught by the analysis."""


@dataclass(frozen=True)
class Linear:
    """sum(coefficient * term) + const. A term with coefficient 0 stays: it may still be NULL."""

    terms: Mapping[Expr, int]
    const: int

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        terms = dict(self.terms)
        for term, coefficient in other.terms.items():
            terms[term] = terms.get(term, 0) + factor * coefficient
        return Linear(terms, self.const + factor * other.const)

    def times(self, factor: int) -> Linear:
        return Linear({t: c * factor for t, c in self.terms.items()}, self.const * factor)

    def without(self, term: Expr) -> Linear:
        return Linear({t: c for t, c in self.terms.items() if t != term}, self.const)


def linear_form(expr: Expr) -> Linear | None:
    """`expr` (exact) as a linear form, None if it is not one.

    Terms are columns, other expressions of one side, and abs() of both sides, which the caller
    takes apart. O(size of the tree squared).
    """
    if isinstance(expr, Literal):
        return Linear({}, int(expr.value)) if isinstance(expr.value, int) else None
    if isinstance(expr, Call) and expr.op in LINEAR:
        return linear_form(expanded(expr))
    if isinstance(expr, Call) and expr.op in ("add", "sub", "neg", "mul"):
        forms = [linear_form(arg) for arg in expr.args]
        first, last = forms[0], forms[-1]
        if first is not None and last is not None:
            if expr.op == "neg":
                return first.times(-1)
            if expr.op != "mul":
                return first.plus(last, 1 if expr.op == "add" else -1)
            if not first.terms or not last.terms:
                return first.times(last.const) if not last.terms else last.times(first.const)
    if len(sides(expr)) == 2 and not (isinstance(expr, Call) and expr.op == "abs"):
        return None
    return Linear({expr: 1}, 0)


def solve_at_most_zero(form: Linear, stored: str) -> KeyBounds | None:
    """`form <= 0` as a bound of a key over `stored`; None if there is none. See `_solve`."""
    divisor = gcd(*form.terms.values())
    if divisor > 1:
        # d*L + c <= 0 is L <= floor(-c / d): this gives the same constant however the comparison was written.
        form = Linear({t: c // divisor for t, c in form.terms.items()}, -(-form.const // divisor))
    return _solve(form, stored, equality=False)


def solve_zero(form: Linear, stored: str) -> KeyBounds | None:
    """`form = 0` as one bound, both lo and hi, of a key over `stored`; None if there is none."""
    divisor = gcd(*form.terms.values())
    if divisor > 1 and form.const % divisor == 0:
        form = Linear({t: c // divisor for t, c in form.terms.items()}, form.const // divisor)
    return _solve(form, stored, equality=True)


def _solve(form: Linear, stored: str, equality: bool) -> KeyBounds | None:
    """Solve for the stored terms, divided by the gcd of their coefficients and with a positive first one.

    None if either side has no term, a term has cancelled (it may be NULL, which the bound would not
    see), or the key's range is not narrower than 2**64. Raises TooWide for bounds beyond 128 bits.
    """
    parts = _parted(form, stored)
    if parts is None:
        return None
    own, rest = parts
    divisor = gcd(*own.values())
    sign = 1 if next(iter(own.values())) > 0 else -1
    timed = any(t.type.name in _TIMES for t in form.terms)
    scale = max(t.type.scale for t in own)
    name = _key_name(own, scale, timed)
    key = _total({t: c // (divisor * sign) for t, c in own.items()}, 0, name, scale, timed)
    if key.type.hi - key.type.lo >= 2**64:
        return None
    # sign * divisor * key + rest + const <= 0, so divisor * key is at most (sign 1) or at least this:
    wide = max(scale, *(t.type.scale for t in rest)) if divisor > 1 else scale
    limit = _total({t: -sign * c for t, c in rest.items()}, -sign * form.const, name, wide, timed)
    if equality:
        bound = _exact_quotient(limit, divisor, scale)
        return key, bound, bound
    if sign > 0:
        return key, None, _quotient("floordiv", limit, divisor, scale)
    return key, _quotient("ceildiv", limit, divisor, scale), None


def separated(form: Linear, stored: str) -> tuple[Expr, Expr, int] | None:
    """`form` as sign * (key - other): the key reads `stored` alone, the other value not at all. None if either side has
    no term or a term has cancelled. Raises TooWide beyond 128 bits."""
    parts = _parted(form, stored)
    if parts is None:
        return None
    own, rest = parts
    sign = 1 if next(iter(own.values())) > 0 else -1
    timed = any(t.type.name in _TIMES for t in form.terms)
    scale = max(t.type.scale for t in own)
    name = _key_name(own, scale, timed)
    key = _total({t: sign * c for t, c in own.items()}, 0, name, scale, timed)
    other = _total({t: -sign * c for t, c in rest.items()}, -sign * form.const, name, scale, timed)
    return key, other, sign


def cut_to_range(value: Expr, lo: int, hi: int) -> Expr:
    """`value`, exact, or the end of the range that it is beyond."""
    if lo <= value.type.lo and value.type.hi <= hi:
        return value
    name, scale = value.type.name, value.type.scale
    low, high = (_exact_literal(end, name, scale) for end in (lo, hi))
    return exact_extreme("min", [exact_extreme("max", [value, low]), high])


def _parted(form: Linear, stored: str) -> tuple[dict[Expr, int], dict[Expr, int]] | None:
    """The terms that read `stored`, and the others; None if either reads nothing, a term has cancelled (it may be NULL,
    which would not be seen), or there are too many."""
    if len(form.terms) > MAX_TERMS or not all(form.terms.values()):
        return None
    own = {t: form.terms[t] for t in _ordered(form.terms) if sides(t) == {stored}}
    rest = {t: form.terms[t] for t in _ordered(form.terms) if t not in own}
    return (own, rest) if own and any(sides(t) for t in rest) else None


def _key_name(own: Mapping[Expr, int], scale: int, timed: bool) -> str:
    """The type of a key over these terms."""
    return next(iter(own)).type.name if len(own) == 1 else "interval" if timed else _plain(scale)


def as_equality_with_constant(a: Expr, b: Expr) -> tuple[Expr, int] | None:
    """`a = b` (exact) as `value = constant`, or None. Equalities whose sides differ by a constant have equal values."""
    left, right = linear_form(a), linear_form(b)
    if left is None or right is None:
        return None
    form = left.plus(right, -1)
    if not form.terms or not all(form.terms.values()) or len(form.terms) > MAX_TERMS:
        return None
    terms = {term: form.terms[term] for term in _ordered(form.terms)}
    sign = 1 if next(iter(terms.values())) > 0 else -1
    scale = max(term.type.scale for term in terms)
    try:
        value = _total({term: sign * c for term, c in terms.items()}, 0, _plain(scale), scale, timed=False)
    except TooWide:
        return None
    return value, -sign * form.const


def exact_extreme(op: str, bounds: list[Expr]) -> Expr:
    """`max` or `min` of exact bounds of one scale."""
    pick = max if op == "max" else min
    first = bounds[0].type
    lo, hi = pick(b.type.lo for b in bounds), pick(b.type.hi for b in bounds)
    return _node(op, tuple(bounds), Type(first.name, first.scale, lo, hi))


def _ordered(terms: Mapping[Expr, int]) -> list[Expr]:
    """Sort key for terms, so that all ways of writing a sum give one order: columns by name, then the rest."""
    return sorted(terms, key=lambda t: (not isinstance(t, Column), repr(t)))


def _plain(scale: int) -> str:
    return "decimal" if scale else "int"


def _node(op: str, args: tuple[Expr, ...], type_: Type) -> Call:
    if type_.lo < INT128_MIN or type_.hi > INT128_MAX:
        raise TooWide
    return Call(op, args, type_)


def _exact_literal(value: int, name: str, scale: int) -> Literal:
    if not INT128_MIN <= value <= INT128_MAX:
        raise TooWide
    return Literal(value, Type(name, scale, value, value))


def _product(term: Expr, factor: int, name: str, scale: int) -> Expr:
    if factor == 1 and term.type.scale == scale:
        return term
    difference = scale - term.type.scale
    type_ = Type(name, scale, factor * term.type.lo, factor * term.type.hi)
    return _node("mul", (term, _exact_literal(factor, _plain(difference), difference)), type_)


def _total(terms: Mapping[Expr, int], const: int, name: str, scale: int, timed: bool) -> Expr:
    """The sum as a tree: added terms first, then subtracted terms, then the constant."""
    parts = sorted(
        ((c > 0, _product(t, abs(c), name, scale)) for t, c in terms.items()), key=lambda p: not p[0]
    )
    if const:
        literal = _exact_literal(abs(const), "interval" if timed else _plain(scale), scale)
        leads = const > 0 and not parts[0][0]  # 5 - a rather than -a + 5
        parts.insert(0 if leads else len(parts), (const > 0, literal))
    positive, total = parts[0]
    if not positive:
        total = _node("neg", (total,), Type(name, scale, -total.type.hi, -total.type.lo))
    for positive, part in parts[1:]:
        a, b = total.type, part.type
        lo, hi = (a.lo + b.lo, a.hi + b.hi) if positive else (a.lo - b.hi, a.hi - b.lo)
        total = _node("add" if positive else "sub", (total, part), Type(name, scale, lo, hi))
    return total


def _quotient(op: str, limit: Expr, divisor: int, scale: int) -> Expr:
    if divisor == 1:
        return limit
    a, difference = limit.type, limit.type.scale - scale
    lo, hi = (v // divisor if op == "floordiv" else -(-v // divisor) for v in (a.lo, a.hi))
    return _node(
        op, (limit, _exact_literal(divisor, _plain(difference), difference)), Type(a.name, scale, lo, hi)
    )


def _exact_quotient(limit: Expr, divisor: int, scale: int) -> Expr:
    """limit / divisor where that is an integer, else NULL, which equals nothing."""
    if divisor == 1:
        return limit
    quotient, a = _quotient("floordiv", limit, divisor, scale), limit.type
    literal = _exact_literal(divisor, _plain(a.scale), a.scale)
    left_over = Type(a.name, a.scale, 0 if a.lo >= 0 else 1 - divisor, 0 if a.hi <= 0 else divisor - 1)
    rest = _node("mod", (limit, literal), left_over)
    divides = Call("eq", (rest, _exact_literal(0, _plain(a.scale), a.scale)), BOOL)
    return Call("case", (divides, quotient, Literal(None, quotient.type)), quotient.type)
