"""Which scores of `Nearest` a sorted list can search: how a score depends on one key of the right row.

A score *turns* if, with the left row fixed, it falls until the key reaches a target and rises after it, as
abs(left.x - right.y) does. Otherwise it *rises*: the best right rows are those with the least keys.

Exact scores are linear forms. The distance of a key from a target, or the key itself, orders right rows as such a
score does, ties included. Float scores have one rounded operation on both sides, and the search makes the same one: so
keys that round to one score tie. Rounding is monotone, so it never turns the order of two scores.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamjoin.semantics.expressions import Call, Expr, sides
from streamjoin.semantics.linear import Linear, TooWide, cut_to_range, linear_form, separated

# The least and greatest key: of all keys of 64 bits, this is the nearest one to a target beyond it.
KEY_ENDS = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class ScoreShape:
    """A score by which less is better: the distance of key_sign * key from target_sign * target if it `turns`, else
    their sum. The key reads right alone, the target left alone; without a target it is zero. With a target_sign
    of 0 it counts as zero too, and only says, by being NULL, that there is no score."""

    key: Expr
    target: Expr | None
    turns: bool
    key_sign: int = 1
    target_sign: int = 1


def shape_of(score: Expr, largest: bool) -> ScoreShape | None:
    """The shape of a score, None if it has none that can be searched."""
    sign = -1 if largest else 1
    score, sign = _without_minus(score, sign)
    if sides(score) == {"right"}:
        shape: ScoreShape | None = ScoreShape(score, None, False, sign)
    elif score.type.is_float:
        shape = _float_shape(score, sign)
    else:
        try:
            shape = _exact_shape(score, sign)
        except TooWide:
            return None
    if shape is None or (shape.key.type.is_exact and shape.key.type.bits not in (32, 64)):
        return None
    return shape


def _without_minus(score: Expr, sign: int) -> tuple[Expr, int]:
    while isinstance(score, Call) and score.op == "neg":
        score, sign = score.args[0], -sign
    return score, sign


def _float_shape(score: Expr, sign: int) -> ScoreShape | None:
    turns = isinstance(score, Call) and score.op == "abs"
    if isinstance(score, Call) and turns:
        if sign < 0:  # the farthest rows
            return None
        score, sign = _without_minus(score.args[0], 1)
    if not isinstance(score, Call) or score.op not in ("add", "sub"):
        return None
    (a, b), second = score.args, sign if score.op == "add" else -sign
    if sides(a) == {"right"}:
        a, b, sign, second = b, a, second, sign
    if sides(a) != {"left"} or sides(b) != {"right"}:
        return None
    if turns:
        return ScoreShape(b, a, True, -sign * second)
    return ScoreShape(b, a, False, second, sign)


def _exact_shape(score: Expr, sign: int) -> ScoreShape | None:
    form = linear_form(score)
    if form is None:
        return None
    turning = next(((term, c) for term, c in form.terms.items() if len(sides(term)) == 2), None)
    if turning is None:
        return _rising_shape(form, sign)
    term, coefficient = turning
    assert isinstance(term, Call)  # abs(), the only term of both sides
    inner = linear_form(term.args[0])
    if inner is None or len(form.terms) > 1 or sign * coefficient <= 0:
        return None
    if any(len(sides(t)) == 2 for t in inner.terms):
        return None
    parts = separated(inner, "right")
    if parts is None:
        return None
    key, target, _ = parts
    return ScoreShape(key, cut_to_range(target, *KEY_ENDS), True)


def _rising_shape(form: Linear, sign: int) -> ScoreShape | None:
    parts = separated(form, "right")
    if parts is None:
        return None
    key, target, own_sign = parts
    return ScoreShape(key, cut_to_range(target, *KEY_ENDS), False, sign * own_sign, 0)
