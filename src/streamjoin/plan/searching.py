"""How a nearest join is found by searches in a sorted list, where its score and its predicate allow that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamjoin.codegen.programs import conjunction
from streamjoin.semantics.analysis import Clause, analyse
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.expressions import Call, Expr, Literal, sides
from streamjoin.semantics.keep import Nearest
from streamjoin.semantics.score_shape import ScoreShape, shape_of
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.semantics.types import BOOL


@dataclass(frozen=True)
class SearchPlan:
    """Rows are searched among those with equal keys of the `equalities`. `conditions`: by side, what a row must satisfy
    to take part. `residual`: what is checked on each pair of rows; None if the equalities say it all."""

    shape: ScoreShape
    equalities: tuple[Clause, ...]
    conditions: Mapping[str, Expr | None]
    residual: Expr | None


def plan_search(spec: JoinSpec) -> SearchPlan | None:
    """The plan of a nearest join by searches; None for joins that have to score every match.

    A search visits rows that fail the residual one by one, each at the price of many that a window would compare. So
    without an equality, a residual is checked only around a target, and only if no window could serve it by intervals.
    """
    keep = spec.keep
    if not isinstance(keep, Nearest) or spec.delta is None or isinstance(spec.predicate, CallablePredicate):
        return None
    if spec.left_tie is not None or spec.right_tie is not None:
        return None
    assert spec.score is not None
    shape = shape_of(spec.score, keep.largest)
    if shape is None:
        return None
    conjuncts = _conjuncts(spec.predicate)
    pairs = [each for each in conjuncts if len(sides(each)) == 2]
    clauses = analyse(conjunction(pairs) or Literal(True, BOOL)).right.clauses
    equalities = tuple(clause for clause in clauses if clause.is_equality)
    others = [each for each in pairs if not _is_equality(each)]
    interval = any(band.lo is not None and band.hi is not None for clause in clauses for band in clause.bands)
    if others and not equalities and (interval or not shape.turns):
        return None
    conditions = {side: conjunction([c for c in conjuncts if _belongs(c, side)]) for side in SIDES}
    exact = len(pairs) == len(equalities) == 1 and analyse(pairs[0]).right.residual is None
    return SearchPlan(shape, equalities, conditions, None if exact else conjunction(pairs))


def _conjuncts(predicate: Expr) -> list[Expr]:
    if isinstance(predicate, Call) and predicate.op == "and":
        return [each for arg in predicate.args for each in _conjuncts(arg)]
    return [] if predicate == Literal(True, BOOL) else [predicate]


def _belongs(conjunct: Expr, side: str) -> bool:
    """Whether a side's own rows decide a conjunct. Constants belong to left."""
    return sides(conjunct) == {side} or (not sides(conjunct) and side == "left")


def _is_equality(conjunct: Expr) -> bool:
    return any(clause.is_equality for clause in analyse(conjunct).right.clauses)
