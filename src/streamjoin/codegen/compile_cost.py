"""Estimates how long a predicate takes to compile, before anything is compiled.

The unit is the time to compile the comparison of two integer columns in a loop: about eight milliseconds for both forms
of the loop (with and without NULLs). A join compiles up to ten such forms, and Numba and LLVM take more than linear
time for a long loop. So an expression that costs more than MOST is evaluated column by column instead (`columnwise`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from streamjoin.codegen.expressions import LIBM, sort_of
from streamjoin.semantics.expressions import Call, Expr, Solve, walk
from streamjoin.semantics.moments import EXPANDED

MOST = 48.0  # the highest cost of a loop that is compiled
MOST_OF_BANDS = 64.0  # the same for the loop that computes a window's bounds, each of which adds CLAMP

CLAMP = 3.0  # cost of cutting a bound to the range of its key, and of comparing it with the opposite bound
EXPANSION = 10.0  # cost of DATE_TRUNC or EXTRACT: up to ten operations
SOLVE = 12.0  # cost of a bisection, without its condition

_CALLS = frozenset((
    "mod", "floordiv", "ceildiv", "rounddiv", "floormod", "floor", "ceil", "round", "like", "hash64", "next_up",
    "next_down", "length", "substring", "trim", "ltrim", "rtrim", "month_number", "month_start", *LIBM,
))  # fmt: skip
MAKING_TEXT = frozenset(
    ("lower", "upper", "concat", "to_text")
)  # a compiled loop has no memory for their bytes


def compile_cost(expressions: Iterable[Expr]) -> float:
    """The cost of a loop that evaluates these expressions. O(size), but it stops soon after MOST_OF_BANDS."""
    total = 0.0
    seen: set[Expr] = set()
    for expr in expressions:
        for node in walk(expr):
            if node in seen:
                continue
            if node.size < MOST_OF_BANDS:  # hashing larger nodes would take long
                seen.add(node)
            total += _cost(node)
            if total > 2 * MOST_OF_BANDS:
                return total
    return total


def _cost(node: Expr) -> float:
    if isinstance(node, Solve):
        return SOLVE
    if not isinstance(node, Call):
        return 0.5
    if node.op in MAKING_TEXT:
        return math.inf
    if node.op == "to_exact" and node.args[0].type.name == "string":
        return math.inf  # a separate kernel parses numbers
    if node.op in EXPANDED or node.op == "to_exact":
        return EXPANSION
    cost = 1.0 + 0.5 * max(0, len(node.args) - 2)
    if node.op in ("least", "greatest", "case", "coalesce"):
        cost = 1.5 * len(node.args)
    if node.op in _CALLS:
        cost += 3.0
    sorts = {sort_of(each.type) for each in (node, *node.args[:8])}
    return cost * 3.0 if 128 in sorts else cost * 2.0 if "text" in sorts else cost
