"""Long predicates: the right pairs on both sides of what is compiled, and nothing that takes long to open."""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest
from hypothesis import given, settings

import streamjoin as sj
from strategies import _pools, array, numbered, pairs_of, specs
from streamjoin.codegen import evaluate, programs
from streamjoin.codegen.columnwise import TILE
from streamjoin.codegen.compile_cost import MOST, compile_cost
from streamjoin.codegen.programs import WindowProgram
from streamjoin.codegen.scores import Scores
from streamjoin.semantics.analysis import MAX_BANDS, MAX_CLAUSES, analyse
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.expressions import Expr
from streamjoin.semantics.spec import JoinSpec
from streamjoin.semantics.windows import TimeWindow

LEFT = pa.schema(
    [
        ("ts", pa.int64()), ("i", pa.int32()), ("b", pa.int64()), ("u", pa.uint64()), ("w", pa.decimal128(30, 2)),
        ("f", pa.float64()), ("e", pa.float32()), ("t", pa.string()), ("p", pa.bool_()),
    ]
)  # fmt: skip
RIGHT = pa.schema(
    [
        ("ts", pa.int64()), ("k", pa.int32()), ("c", pa.int64()), ("v", pa.uint64()), ("n", pa.decimal128(28, 2)),
        ("g", pa.float64()), ("h", pa.float32()), ("z", pa.large_string()), ("q", pa.bool_()),
    ]
)  # fmt: skip


def listed(pattern: str, n: int, between: str) -> str:
    return between.join(pattern.replace("#", str(i)) for i in range(n))


# Each grows with n. The data has values around the small numbers in them, NULL, NaN and the extremes of its types.
GROWING = {
    "or of equalities": lambda n: listed("i = k + #", n, " OR "),
    "or of literals": lambda n: listed("i = #", n, " OR "),
    "or of ranges": lambda n: listed("i - k BETWEEN #0 AND #3", n, " OR "),
    "or of float ranges": lambda n: listed("f - g BETWEEN #0 AND #3", n, " OR "),
    "or of pairs": lambda n: listed("(i = # AND k = #)", n, " OR "),
    "and of inequalities": lambda n: listed("i <> k + #", n, " AND "),
    "and of equalities": lambda n: listed("i - # = k - #", n, " AND ") + " AND b = c",
    "and of ors": lambda n: listed("(i = k + # OR f < #.5 OR p)", n, " AND "),
    "bounds of one key": lambda n: "p AND " + listed("b >= c - #", n, " AND "),
    "equality last": lambda n: listed("(f < g + # OR f > #)", n, " AND ") + " AND i = k",
    "sum": lambda n: "b < " + listed("c - #", n, " + "),
    "sum of both sides": lambda n: listed("i * #", n, " - ") + " < " + listed("k * #", n, " - "),
    "sum of floats": lambda n: listed("f * g / #.5", min(n, 120), " + ") + " < 3",
    "sum of singles": lambda n: "e < " + listed("h * #.25", min(n, 120), " + "),
    "products of decimals": lambda n: listed("w * # < n + 3", n, " OR "),
    "remainders": lambda n: listed("b % (k + #) = #", n, " OR "),
    "greatest": lambda n: "i < GREATEST(" + listed("k - #", n, ", ") + ")",
    "greatest of floats": lambda n: "f <= LEAST(" + listed("g * #, f", n, ", ") + ")",
    "coalesce": lambda n: "f > COALESCE(" + listed("g / #, h", n, ", ") + ")",
    "in numbers": lambda n: f"i IN ({listed('#7', n, ', ')}, 1, -1)",
    "in with null": lambda n: f"NOT (i - k IN ({listed('#', n, ', ')}, NULL))",
    "not in": lambda n: f"i NOT IN ({listed('#', n, ', ')}) AND i = k",
    "in wide": lambda n: f"u - v IN ({listed('#', n, ', ')}, 18446744073709551615, -18446744073709551615)",
    "in floats": lambda n: f"f IN ({listed('#.5', n, ', ')}, -0.0, 1.5) OR f = g",
    "in floats, negated": lambda n: "f <> 0e0 AND " + listed("f <> #.5e0", n, " AND "),
    "in mixed": lambda n: f"i IN ({listed('#, #.5, #e0', n, ', ')})",
    "in strings": lambda n: f"t IN ({listed(chr(39) + 'a#' + chr(39), n, ', ')}, 'a', '', 'é', z)",
    "not in strings": lambda n: listed("t <> 'a#'", n, " AND ") + " AND t <> 'ab'",
    "patterns": lambda n: "i = k AND (" + listed("t LIKE '%#_a%' OR z LIKE 'a!%' ESCAPE '!'", n, " OR ") + " OR p)",
    "order of strings": lambda n: listed("t > z AND t < 'a#'", n, " OR "),
    "case": lambda n: "CASE " + listed("WHEN i = # THEN k > # WHEN f > # THEN NULL", n, " ") + " ELSE q END",
    "case of a value": lambda n: "CASE i " + listed("WHEN # THEN #.5", n, " ") + " END < g",
    "deep": lambda n: "CASE WHEN p THEN ABS(i - " * min(n, 15) + "k" + ") ELSE 3 END" * min(n, 15) + " < 3",
    "abs": lambda n: listed("ABS(i - k - #)", n, " + ") + " < 900",
    "distinct": lambda n: listed("f IS DISTINCT FROM g + #", n, " AND "),
    "powers": lambda n: listed("POWER(f, #.5) < POWER(g, 3)", n, " OR "),
    "functions of floats": lambda n: listed("SIN(f + #) < ATAN2(g, #.5)", n, " OR ") + " OR ROUND(f, 1) = ROUND(g * 3)",
    "functions of text": lambda n: "LOWER(t) = LOWER(z) AND (" + listed("t || '#' <> UPPER(z)", n, " OR ") + ")",
    "parts of text": lambda n: listed("SUBSTRING(t, #) = TRIM(z, 'a#')", n, " OR ") + " OR LENGTH(t) > LENGTH(z) + 1",
    "casts": lambda n: (
        listed("CAST(f * # AS SMALLINT) < CAST(n AS DECIMAL(30, 1)) + CAST(t AS INT)", n, " OR ")
        + " OR CAST(u AS VARCHAR) = z OR CAST(w AS BIGINT) = CAST(q AS INT)"
    ),
    "booleans": lambda n: listed("(p = q) IS NOT TRUE AND COALESCE(p, q, #=3)", n, " OR "),
}  # fmt: skip


def rows(schema: pa.Schema, count: int, seed: int) -> pa.Table:
    choose = random.Random(seed)
    arrays = []
    for field in schema:
        tame, wild = _pools(field.type)
        pool = [*tame, *tame, *wild, None, None]
        values = range(count) if field.name == "ts" else [choose.choice(pool) for _ in range(count)]
        arrays.append(array(list(values), field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def check(spec: JoinSpec, left: pa.Table, right: pa.Table) -> None:
    """The engine finds the pairs that the oracle finds."""
    numbers, left_rows, right_rows = numbered(spec, left, right)
    assert sorted(pairs_of(sj.join_tables(left_rows, right_rows, numbers))) == sorted(
        sj.oracle.pairs(left, right, spec)
    ), spec.on


@pytest.mark.parametrize("kind", GROWING)
def test_a_long_predicate_finds_what_the_oracle_finds(kind):
    left, right = rows(LEFT, 60, 1), rows(RIGHT, 50, 2)
    check(JoinSpec(LEFT, RIGHT, GROWING[kind](90), TimeWindow(40), "ts", "ts"), left, right)


@pytest.mark.slow  # compiles some ten loops a kind
@pytest.mark.parametrize("n", [5, 9, 13, 17, 24, 40])
@pytest.mark.parametrize("kind", GROWING)
def test_predicates_around_what_is_compiled_find_what_the_oracle_finds(kind, n):
    left, right = rows(LEFT, 60, n), rows(RIGHT, 50, n + 1)
    check(JoinSpec(LEFT, RIGHT, GROWING[kind](n), TimeWindow(40), "ts", "ts"), left, right)


@settings(max_examples=60)
@given(join=specs())
def test_what_is_evaluated_column_by_column_is_what_the_oracle_finds(join):
    """For random predicates: no loop is compiled, only scans of bands."""
    spec, left, right = join
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "MOST", -1.0)
        patch.setattr(programs, "MOST", -1.0)
        patch.setattr(evaluate, "MOST_OF_BANDS", -1.0)
        check(spec, left, right)


SCORES = {
    "floats": listed("ABS(f - g * #)", 40, " + "),
    "integers": listed("ABS(b - c / 3 - i * #)", 40, " + "),
    "narrow": "GREATEST(" + listed("i - k % (k + #)", 40, ", ") + ")",
    "wide": listed("ABS(u - v + b * #)", 40, " + "),
}


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("kind", SCORES)
def test_a_long_score_picks_what_the_oracle_picks(kind, largest):
    left, right = rows(LEFT, 60, 3), rows(RIGHT, 50, 4)
    spec = JoinSpec(
        LEFT, RIGHT, "TRUE", TimeWindow(40), "ts", "ts", keep=sj.Nearest(SCORES[kind], 2, largest)
    )
    assert spec.score is not None and not Scores(spec.score, largest).is_fused
    check(spec, left, right)


# ---- what is compiled


def program_of(on: str, indexed: bool = False) -> WindowProgram:
    spec = JoinSpec(LEFT, RIGHT, on, TimeWindow(9), "ts", "ts")
    assert not isinstance(spec.predicate, CallablePredicate)
    return WindowProgram(spec.predicate, analyse(spec.predicate).left, "left", indexed)


def block_of(program: WindowProgram) -> Expr:
    assert program.block is not None and not isinstance(program.block, CallablePredicate)
    return program.block


def test_short_predicates_are_compiled_and_long_ones_are_not():
    short, long = program_of("f * g < 3 OR i < k"), program_of(GROWING["remainders"](90))
    assert short.method == "scan, compiled expression"
    assert long.method == "scan, evaluated column by column"
    assert compile_cost([block_of(short)]) < MOST < compile_cost([block_of(long)])


@pytest.mark.parametrize(
    "kind", ["or of equalities", "or of ranges", "and of inequalities", "and of ors", "sum"]
)
def test_the_bands_of_a_long_predicate_are_few(kind):
    for n in (3, 90, 900):
        program = program_of(GROWING[kind](n), indexed=True)
        assert len(program.bounds.bands) <= MAX_BANDS
        assert len(program.clauses) <= MAX_CLAUSES


def test_many_equalities_leave_a_few_clauses_and_a_residual():
    program = program_of(" AND ".join(f"i = k * {n}" for n in range(1, 300)), indexed=True)
    assert 0 < len(program.clauses) <= MAX_CLAUSES
    assert program.residual is not None


def test_the_equality_of_a_long_predicate_serves_an_index():
    program = program_of(GROWING["equality last"](900), indexed=True)
    assert program.clauses[0].is_equality
    assert program.residual is not None


def test_a_scan_goes_on_where_a_call_stopped():
    """More pairs than a tile has rows, and room for few of them."""
    schema = pa.schema({"ts": pa.int64(), "i": pa.int32()})
    left = pa.table({"ts": range(300), "i": [n % 7 for n in range(300)]}, schema)
    spec = JoinSpec(
        schema, schema, " OR ".join(f"left.i * right.i = {n}" for n in range(90)), TimeWindow(300), "ts", "ts"
    )
    assert 20 * TILE < 300 * 300
    assert sj.join_tables(left, left, spec).num_rows == 300 * 300


# ---- what is refused


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("f < " + " + ".join(["g"] * 200), r"129 operations .* at most 128 are allowed"),
        (
            "POWER(" * 25 + "f" + ", 2)" * 25 + " < 3",
            r"at least [\d,]+ operations.* at most 100,000 are allowed",
        ),
        ("i IN (" + "1, " * 40_000 + "1)", r"80,00\d words, numbers, strings and signs; at most 50,000"),
        ("t = '" + "a" * 600_000 + "'", r"600,\d+ characters; at most 500,000 are allowed"),
        ("(" * 200 + "p" + ")" * 200, r"nested too deeply; at most 32 levels"),
    ],
)
def test_what_is_too_long_is_refused_in_a_sentence_at_once(on, said):
    began = time.process_time()
    with pytest.raises(PredicateError, match=said) as error:
        JoinSpec(LEFT, RIGHT, on, TimeWindow(1), "ts", "ts")
    assert time.process_time() - began < 20, "without the limits it takes minutes"
    assert len(str(error.value)) < 1_200
