"""What an index can do for a predicate: equality keys, interval conditions, and the rest.

For the window of one side, `predicate = AND(clauses) AND residual`. A clause is a disjunction of
bands: a key computed from a stored tuple lies between bounds computed from the probing one. The
split does not depend on how the predicate is written: negations are pushed down to the atoms,
comparisons of exact values are solved as linear forms (`linear`), of floats by monotonicity
(`monotone`), and bands over one key are intersected.

Only the truth of a predicate matters here, not whether it is FALSE or NULL. Once negations are at
the atoms, the predicate's truth is a monotone function of the atoms' truths, so each can be
replaced by a condition that is true for the same pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

from streamjoin.semantics.expressions import Call, Expr, Literal, Solve, columns, sides
from streamjoin.semantics.linear import (
    KeyBounds,
    Linear,
    TooWide,
    exact_extreme,
    linear_form,
    solve_at_most_zero,
    solve_zero,
)
from streamjoin.semantics.monotone import FLIPPED, NEGATED, replaced, solve_float
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.types import BOOL, signed

# Limits of what an index or a vector scan serves. Each band is code to compile, so parts beyond these numbers stay in
# the residual, whose code need not grow with the predicate.
MAX_BANDS = 16
MAX_CLAUSES = 6
MAX_CONJUNCTS = 64  # conjuncts that clauses are made of
MAX_ANALYSED = 256  # conjuncts that are analysed

# abs() of both sides splits an atom in two; beyond this many in one atom the scan is cheaper.
_MOST_ABS = 4


@dataclass(frozen=True)
class Band:
    """`key BETWEEN lo AND hi`, both ends closed; None is unbounded.

    True iff key, lo and hi are neither NULL nor NaN and lo <= key <= hi. The key reads stored
    columns only, the bounds probing columns only. Exact keys have a range narrower than 2**64 and
    bounds of their scale that fit 128 bits; float keys have bounds of their type.
    """

    key: Expr
    lo: Expr | None
    hi: Expr | None

    @property
    def is_equality(self) -> bool:
        return self.lo is not None and self.lo == self.hi


@dataclass(frozen=True)
class Clause:
    """True iff one of its bands is true."""

    bands: tuple[Band, ...]

    @property
    def is_equality(self) -> bool:
        return len(self.bands) == 1 and self.bands[0].is_equality


@dataclass(frozen=True)
class AccessPath:
    """The predicate for a window of `stored`: all clauses and the residual (None: nothing is left)."""

    stored: str
    clauses: tuple[Clause, ...]
    residual: Expr | None


@dataclass(frozen=True)
class Analysis:
    """Both access paths of a predicate: `left` for left's window (probed by right), and the mirror."""

    left: AccessPath
    right: AccessPath

    def for_window(self, side: str) -> AccessPath:
        return self.left if side == "left" else self.right


def analyse(predicate: Expr) -> Analysis:
    """Split a boolean expression for both windows. Milliseconds; quadratic in the predicate's size."""
    conjuncts = list(_flattened("and", [_pushed_down(predicate)]))
    return Analysis(_access_path(conjuncts, "left"), _access_path(conjuncts, "right"))


def describe(analysis: Analysis) -> list[str]:
    """The split as lines of text for people."""
    lines = []
    for path in (analysis.left, analysis.right):
        lines += [f"{path.stored} window:", *(f"  {line}" for line in describe_path(path))]
    return lines


def describe_path(path: AccessPath) -> list[str]:
    """What a predicate offers to one window."""
    lines = []
    for clause in path.clauses:
        sort = "equality" if all(band.is_equality for band in clause.bands) else "interval"
        lines.append(f"{sort}: {' OR '.join(band_text(band) for band in clause.bands)}")
    return [*lines, f"residual: {'none' if path.residual is None else _residual_text(path.residual)}"]


def _residual_text(residual: Expr) -> str:
    wide = [to_sql(column) for column in columns(residual) if column.type.hi - column.type.lo >= 1 << 64]
    why = f" ({', '.join(wide)}: more than 64 bits, which no index holds)" if wide else ""
    return f"{to_sql(residual)}{why}"


def band_text(band: Band) -> str:
    """A band as SQL."""
    key, los, his = to_sql(band.key), _arguments("max", band.lo), _arguments("min", band.hi)
    if band.is_equality:
        return f"{key} = {to_sql(los[0])}"
    texts = [_bound_text(band.key, ">", lo) for lo in los], [_bound_text(band.key, "<", hi) for hi in his]
    if [text[: len(key) + 4] for side in texts for text in side] == [f"{key} >= ", f"{key} <= "]:
        return f"{key} BETWEEN {to_sql(los[0])} AND {to_sql(his[0])}"
    return " AND ".join(texts[0] + texts[1])


def _bound_text(key: Expr, symbol: str, bound: Expr) -> str:
    """One bound as the comparison it stands for."""
    if isinstance(bound, Solve):
        return to_sql(replaced(bound.condition, bound.variable, key))
    if isinstance(bound, Call) and bound.op in ("next_up", "next_down"):
        return f"{to_sql(key)} {symbol} {to_sql(bound.args[0])}"
    return f"{to_sql(key)} {symbol}= {to_sql(bound)}"


# Negations -------------------------------------------------------------------------------------


def _pushed_down(expr: Expr, negated: bool = False) -> Expr:
    """An expression that is true for the same pairs, with NOT only before float comparisons and before
    conditions that are not comparisons.

    De Morgan's laws hold in three-valued logic. NOT of a float comparison is true for NaN, so
    it cannot be replaced by another comparison.
    """
    if isinstance(expr, Call) and expr.op == "not":
        return _pushed_down(expr.args[0], not negated)
    if isinstance(expr, Call) and expr.op in ("and", "or"):
        op = expr.op if not negated else {"and": "or", "or": "and"}[expr.op]
        return Call(op, tuple(_flattened(op, (_pushed_down(a, negated) for a in expr.args))), BOOL)
    if not negated:
        return expr
    if isinstance(expr, Call) and expr.op in NEGATED and not expr.args[0].type.is_float:
        return Call(NEGATED[expr.op], expr.args, BOOL)
    return Call("not", (expr,), BOOL)


def _flattened(op: str, args: Iterable[Expr]) -> Iterator[Expr]:
    for arg in args:
        if isinstance(arg, Call) and arg.op == op:
            yield from arg.args
        else:
            yield arg


# Clauses ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Split:
    """Clauses that an expression implies. If `exact`, they also imply the expression."""

    clauses: tuple[Clause, ...]
    exact: bool


_NOTHING = _Split((), False)


def _access_path(conjuncts: list[Expr], stored: str) -> AccessPath:
    splits = [_NOTHING] * len(conjuncts)
    for number in _analysed(conjuncts):
        splits[number] = _split(conjuncts[number], stored)
    kept = _affordable(splits)
    rest = tuple(c for c, split in zip(conjuncts, kept, strict=True) if not split.exact)
    residual = None if not rest else rest[0] if len(rest) == 1 else Call("and", rest, BOOL)
    return AccessPath(stored, _all_of(kept).clauses, residual)


def _analysed(conjuncts: list[Expr]) -> Iterable[int]:
    """The conjuncts to look at, equalities first if there are too many."""
    if len(conjuncts) <= MAX_ANALYSED:
        return range(len(conjuncts))
    ordered = sorted(
        range(len(conjuncts)), key=lambda n: not (isinstance(c := conjuncts[n], Call) and c.op == "eq")
    )
    return ordered[:MAX_ANALYSED]


def _affordable(splits: list[_Split]) -> list[_Split]:
    """The splits, without those that would exceed MAX_BANDS, MAX_CLAUSES or MAX_CONJUNCTS: the most selective stay."""
    if len(splits) <= MAX_CONJUNCTS and _are_few(splits):
        return splits
    kept = [_NOTHING if split.clauses else split for split in splits]
    chosen: list[_Split] = []
    found = [number for number, split in enumerate(splits) if split.clauses]
    for number in sorted(found, key=lambda n: min(map(_looseness, splits[n].clauses))):
        if len(chosen) < MAX_CONJUNCTS and _are_few([*chosen, splits[number]]):
            chosen.append(splits[number])
            kept[number] = splits[number]
    return kept


def _are_few(splits: list[_Split]) -> bool:
    clauses = _all_of(splits).clauses
    return len(clauses) <= MAX_CLAUSES and sum(len(clause.bands) for clause in clauses) <= MAX_BANDS


def _split(expr: Expr, stored: str) -> _Split:
    if isinstance(expr, Literal):
        return _Split((), expr.value is True)
    if not isinstance(expr, Call) or len(sides(expr)) < 2:
        return _NOTHING
    if expr.op == "and":
        looked_at = [_split(arg, stored) for arg in expr.args[:MAX_CONJUNCTS]]
        return _all_of([*looked_at, _NOTHING] if len(expr.args) > MAX_CONJUNCTS else looked_at)
    if expr.op == "or":
        return _NOTHING if len(expr.args) > MAX_BANDS else _any_of([_split(arg, stored) for arg in expr.args])
    negated = expr.op == "not"
    atom = expr.args[0] if negated else expr
    if not isinstance(atom, Call) or atom.op not in NEGATED:
        return _NOTHING
    a, b = atom.args
    if a.type.is_float:
        return _split_float(NEGATED[atom.op] if negated else atom.op, a, b, stored, negated)
    if a.type.is_exact:
        return _split_exact(atom.op, a, b, stored)
    return _split_text(atom.op, a, b, stored)


def _all_of(splits: list[_Split]) -> _Split:
    """AND: bands over one key are intersected, equalities come first."""
    clauses = dict.fromkeys(clause for split in splits for clause in split.clauses)
    ranges: dict[Expr, list[Band]] = {}
    for clause in clauses:
        if len(clause.bands) == 1:
            ranges.setdefault(clause.bands[0].key, []).append(clause.bands[0])
    merged: dict[Clause, None] = {}
    for clause in clauses:
        whole = [clause] if len(clause.bands) > 1 else _intersected(ranges[clause.bands[0].key])
        merged.update(dict.fromkeys(whole))
    ordered = sorted(merged, key=lambda clause: not clause.is_equality)
    return _Split(tuple(ordered), all(split.exact for split in splits))


def _intersected(bands: list[Band]) -> list[Clause]:
    """Intersect bands over one key. Equalities stay separate, because they are worth more than a narrower band."""
    key = bands[0].key
    los = dict.fromkeys(lo for band in bands for lo in _arguments("max", band.lo))
    his = dict.fromkeys(hi for band in bands for hi in _arguments("min", band.hi))
    equal = [lo for lo in los if lo in his]
    found = [Clause((Band(key, bound, bound),)) for bound in equal]
    lo = _extreme("max", [bound for bound in los if bound not in equal])
    hi = _extreme("min", [bound for bound in his if bound not in equal])
    return found if lo is None and hi is None else [*found, Clause((Band(key, lo, hi),))]


def _arguments(op: OneOf["max", "min"], bound: Expr | None) -> tuple[Expr, ...]:
    if bound is None:
        return ()
    return bound.args if isinstance(bound, Call) and bound.op == op else (bound,)


def _extreme(op: OneOf["max", "min"], bounds: list[Expr]) -> Expr | None:
    if len(bounds) < 2:
        return bounds[0] if bounds else None
    return Call(op, tuple(bounds), bounds[0].type) if bounds[0].type.is_float else exact_extreme(op, bounds)


def _any_of(splits: list[_Split]) -> _Split:
    """OR: one clause with the bands of one clause of each operand; exact if no operand has more than that clause."""
    if not all(split.clauses for split in splits):
        return _NOTHING
    chosen = [min(split.clauses, key=_looseness) for split in splits]
    bands = dict.fromkeys(band for clause in chosen for band in clause.bands)
    if len(bands) > MAX_BANDS:
        return _NOTHING
    return _Split((Clause(tuple(bands)),), all(split.exact and len(split.clauses) == 1 for split in splits))


def _looseness(clause: Clause) -> tuple[bool, bool, int]:
    """Smaller is likely more selective: equality, then bounded at both ends, then fewer bands."""
    half_open = any(band.lo is None or band.hi is None for band in clause.bands)
    return not clause.is_equality, half_open, len(clause.bands)


def _one_band(bounds: KeyBounds, exact: bool = True) -> _Split:
    return _Split((Clause((Band(*bounds),)),), exact)


# Atoms -----------------------------------------------------------------------------------------


def _split_exact(op: str, a: Expr, b: Expr, stored: str) -> _Split:
    left, right = linear_form(a), linear_form(b)
    if left is None or right is None:
        return _NOTHING
    form, one = left.plus(right, -1), Linear({}, 1)
    below, above = form, form.times(-1)
    if op == "eq":
        if _abs_of_both(form) is None:
            return _solved(form, stored, equality=True)
        return _all_of([_split_form(below, stored), _split_form(above, stored)])
    if op == "ne":
        return _any_of([_split_form(below.plus(one), stored), _split_form(above.plus(one), stored)])
    form = below if op in ("lt", "le") else above
    return _split_form(form.plus(one) if op in ("lt", "gt") else form, stored)


def _abs_of_both(form: Linear) -> Call | None:
    """A term of both sides; `linear_form` lets only abs() pass."""
    return next((t for t in form.terms if isinstance(t, Call) and len(sides(t)) == 2), None)


def _split_form(form: Linear, stored: str, depth: int = 0) -> _Split:
    """`form <= 0`. |u| is the larger of u and -u: q*|u| <= c holds for both if q > 0, for one if q < 0."""
    term = _abs_of_both(form)
    if term is None:
        return _solved(form, stored, equality=False)
    factor, inner = form.terms[term], linear_form(term.args[0])
    if inner is None or depth == _MOST_ABS:
        return _NOTHING
    rest = form.without(term)
    halves = [_split_form(rest.plus(inner, f), stored, depth + 1) for f in (factor, -factor)]
    return (_all_of if factor > 0 else _any_of)(halves)


def _solved(form: Linear, stored: str, equality: bool) -> _Split:
    try:
        bounds = (solve_zero if equality else solve_at_most_zero)(form, stored)
    except TooWide:
        return _NOTHING
    return _one_band(bounds) if bounds else _NOTHING


def _split_float(op: str, a: Expr, b: Expr, stored: str, or_nan: bool) -> _Split:
    """`a op b`, or, with `or_nan`, also true for NaN (a negated comparison)."""
    for first, second, way in ((a, b, op), (b, a, FLIPPED[op])):
        if isinstance(first, Call) and first.op == "abs" and len(sides(first)) == 2:
            return _split_float_abs(way, first.args[0], second, stored, or_nan)
    if op == "ne" and not or_nan:
        return _any_of([_split_float(way, a, b, stored, False) for way in ("lt", "gt")])
    if op in ("eq", "ne") and or_nan:
        return _NOTHING
    found = solve_float(op, a, b, stored, or_nan)
    return _one_band(*found) if found else _NOTHING


def _split_float_abs(op: str, u: Expr, c: Expr, stored: str, or_nan: bool) -> _Split:
    """`|u| op c`. Negation is exact, so `-u op c` is `u flipped(op) -c`, rounding and NaN included."""
    if op in ("eq", "ne"):
        if or_nan:
            return _NOTHING
        ways = ("le", "ge") if op == "eq" else ("lt", "gt")
        splits = [_split_float_abs(way, u, c, stored, False) for way in ways]
        return (_all_of if op == "eq" else _any_of)(splits)
    halves = [
        _split_float(op, u, c, stored, or_nan),
        _split_float(FLIPPED[op], u, _minus(c), stored, or_nan),
    ]
    return (_all_of if op in ("lt", "le") else _any_of)(halves)


def _minus(expr: Expr) -> Expr:
    if isinstance(expr, Literal) and isinstance(expr.value, float):
        return Literal(-expr.value, expr.type)
    return Call("neg", (expr,), expr.type)


def _split_text(op: str, a: Expr, b: Expr, stored: str) -> _Split:
    """Equal strings have equal hashes: a necessary condition. A key of booleans or NULL would not pay."""
    if op != "eq" or a.type.name not in ("string", "binary") or len(sides(a)) != 1 or len(sides(b)) != 1:
        return _NOTHING
    key, bound = (a, b) if sides(a) == {stored} else (b, a)
    hashed = [Call("hash64", (side,), signed(64)) for side in (key, bound)]
    return _one_band((hashed[0], hashed[1], hashed[1]), exact=False)
