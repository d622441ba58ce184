"""Long predicates, other joins with long expressions, and what it costs to open one of them.

python tests/long_predicates.py "or of equalities"     prints CPU seconds; STREAMJOIN_CACHE_DIR decides what is cached
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import streamjoin as sj
from streamjoin.codegen.compile_cost import MOST, compile_cost
from streamjoin.semantics.sql import parse_predicate

NUMBERS = {"ts": pa.int64(), "k": pa.int32(), "b": pa.int64(), "x": pa.float64(), "e": pa.float32()}
OTHERS = {"w": pa.decimal128(30, 2), "s": pa.string(), "p": pa.bool_()}
INTEGERS = {f"c{number}": pa.int32() for number in range(100)}
FLOATS = {f"f{number}": pa.float64() for number in range(16)}
SCHEMA = pa.schema({**NUMBERS, **OTHERS, **INTEGERS, **FLOATS})


def listed(pattern: str, count: int, between: str) -> str:
    return between.join(pattern.replace("#", str(number)) for number in range(count))


def calculation(terms: int) -> Callable[[Any, Any], bool]:
    """A function of two rows with `terms` products."""
    sums = " + ".join(f"l.x * r.x / {number}.5" for number in range(terms))
    function: Callable[[Any, Any], bool] = eval(f"lambda l, r: {sums} < 3")
    return function


BASE = "left.k = right.k"
CALLABLE_TERMS = 180
LONG: dict[str, Callable[[], Any]] = {
    "or of equalities": lambda: listed("left.k = right.k + #", 300, " OR "),
    "or of columns": lambda: listed("left.c# = right.c#", 100, " OR "),
    "or of ranges": lambda: listed("left.x - right.x BETWEEN #0 AND #3", 300, " OR "),
    "or of products": lambda: listed("left.w * # < right.w + 3", 300, " OR "),
    "and of inequalities": lambda: listed("left.k <> right.k + #", 300, " AND "),
    "and of columns": lambda: listed("left.c# >= right.c#", 100, " AND "),
    "and of ors": lambda: listed("(left.k = right.k + # OR left.x < #.5 OR right.p)", 300, " AND "),
    "and of bounds": lambda: "left.p AND " + listed("left.b >= right.b - #", 300, " AND "),
    "many bands": lambda: listed("abs(left.c# - right.c#) <= 1#", 60, " AND "),
    "many float bands": lambda: listed("abs(left.f# - right.f#) <= 1.#", 16, " AND "),
    "bounds by functions": lambda: listed("SQRT(left.f#) + POWER(left.f#, 3) <= right.f#", 6, " AND "),
    "sum": lambda: "left.b < " + listed("right.b - #", 100, " + "),
    "sum of floats": lambda: listed("left.x * right.x / #.5", 100, " + ") + " < 3",
    "sum of columns": lambda: listed("left.c#", 100, " + ") + " < " + listed("right.c#", 100, " + "),
    "greatest": lambda: "left.k < GREATEST(" + listed("right.k - #", 300, ", ") + ")",
    "least of floats": lambda: "left.x <= LEAST(" + listed("right.x * #, left.x", 150, ", ") + ")",
    "coalesce": lambda: "left.x > COALESCE(" + listed("right.x / #, right.e", 150, ", ") + ")",
    "in 300": lambda: "left.k = right.k AND left.k IN (" + listed("#", 300, ", ") + ")",
    "in 10,000": lambda: "left.k - right.k IN (" + listed("#", 10_000, ", ") + ")",
    "in strings": lambda: "left.s IN (" + listed("'a#'", 10_000, ", ") + ") AND left.s = right.s",
    "like": lambda: listed("left.s LIKE '%#_a%' OR right.s LIKE '#%'", 150, " OR "),
    "case": lambda: "CASE " + listed("WHEN left.k = # THEN right.k > #", 300, " ") + " ELSE right.p END",
    "powers": lambda: listed("POWER(left.x, #.5) < POWER(right.x, 3)", 100, " OR "),
    "remainders": lambda: listed("left.b % (right.k + #) = #", 300, " OR "),
    # As long as what is still compiled.
    "compiled products": lambda: listed("left.w * # < right.w + 3", 6, " OR "),
    "compiled least": lambda: "left.x <= LEAST(" + listed("right.x * #, left.x", 10, ", ") + ")",
    "compiled powers": lambda: listed("POWER(left.x, #.5) < POWER(right.x, 3)", 4, " OR "),
    "compiled remainders": lambda: listed("left.b % (right.k + #) = #", 6, " OR "),
    "compiled bounds": lambda: listed("left.x * #.5 / 3 + 2 < right.x - #", 3, " AND "),
    "callable": lambda: calculation(CALLABLE_TERMS),
}  # fmt: skip


def near_limit(seed: int) -> str:
    """A random predicate whose cost is just below the limit of what is compiled."""
    choose = random.Random(seed)
    terms = {
        "left.x * right.x / #.5": "right.e - #", "left.b % (right.k + #)": "#", "POWER(left.x, #.5)": "right.e",
        "left.k + right.k * #": "left.b - right.b", "left.w * #": "right.w + left.k", "abs(left.x - right.e)": "#.5",
        "GREATEST(left.k, right.k, #)": "right.b", "left.c# - right.c#": "left.k",
    }  # fmt: skip
    predicate = "left.x > right.x"
    while True:
        value, other = choose.choice(list(terms.items()))
        text = f"{value} {choose.choice(('<', '<=', '<>', '='))} {other}".replace(
            "#", str(choose.randrange(2, 90))
        )
        longer = choose.choice((f"{predicate} OR {text}", f"({predicate}) AND ({text} OR left.p)"))
        if compile_cost([parse_predicate(longer, SCHEMA, SCHEMA)]) > MOST:
            return predicate
        predicate = longer


@dataclass(frozen=True)
class Opening:
    """What a join is opened on."""

    on: Any
    spec: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


CHAIN = {"topology": "low_latency_handshake", "workers": 2}
SCORE = "left.x * # / (right.x + #.5)"
BASES: dict[str, Opening] = {
    "default": Opening(BASE),
    "chain": Opening(BASE, {}, CHAIN),
    "bisort": Opening(BASE, {}, {"index": "bisort"}),
    "wibtree": Opening(BASE, {}, {"index": "wibtree"}),
    "nearest": Opening(BASE, {"how": "left", "keep": sj.Nearest("left.x - right.x")}),
}
RANDOM = [f"random {seed}" for seed in (0, 1, 2, 3, 23)]  # the last one generates the most source of 50


def opening(name: str) -> Opening:
    """A join by its name: one of BASES or RANDOM, a kind of LONG, or "base, kind" for a base with a long predicate; for
    "nearest", with a long score of the kind instead."""
    if name in BASES:
        return BASES[name]
    base, _, kind = name.rpartition(", ")
    plain = BASES[base or "default"]
    if base == "nearest":
        score = {"compiled": listed(SCORE, 4, " + "), "long": listed(SCORE, 25, " + ")}[kind]
        return Opening(BASE, {"how": "left", "keep": sj.Nearest(score, k=3, largest=True)})
    on = near_limit(int(kind.split()[1])) if kind.startswith("random ") else LONG[kind]()
    return Opening(f"{BASE} AND ({on})" if base else on, plain.spec, plain.options)


def opened(given: Opening) -> None:
    """Open a join, and push a row with values and one of NULLs to both sides: what is put off is done now."""
    spec = sj.JoinSpec(SCHEMA, SCHEMA, given.on, sj.TimeWindow(10), "ts", "ts", **given.spec)
    first: dict[str, Any] = dict.fromkeys(SCHEMA.names, 1)
    first |= {"s": "a", "p": True}
    rows = pa.Table.from_pylist([first, {"ts": 2}], SCHEMA)
    with sj.open_join(spec, **given.options) as join:
        for side in ("left", "right"):
            for at in (0, 1):
                join.push(side, rows.slice(at, 1))
        join.finish()


def main(name: str) -> None:
    given = opening(name)
    began = time.process_time()
    opened(given)
    print(time.process_time() - began)


if __name__ == "__main__":
    main(sys.argv[1])
