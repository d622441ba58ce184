"""Predicates at random: each is read and analysed, or refused with a `StreamJoinError`, within two seconds.

A case is a function of its number alone, so that one that fails can be repeated: `check(12345)`. Cases come from a
grammar that knows the columns, from good predicates that were changed at random, and from words in no order. What is
accepted is also analysed for both windows, written as SQL and read again. Nothing is compiled.
"""

from __future__ import annotations

import random
import re
import time

import pyarrow as pa
import pytest
from tests.fuzz.limits import no_hang

import streamjoin as sj
from streamjoin.codegen.compile_cost import compile_cost
from streamjoin.semantics.analysis import MAX_BANDS, analyse, describe
from streamjoin.semantics.errors import CONTROL
from streamjoin.semantics.expressions import Expr
from streamjoin.semantics.functions import FUNCTIONS
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.sql import parse_predicate

CHUNKS, CHUNK = 40, 5_000
SHORT = 3_000  # cases of the default suite
MOST_SECONDS = 2.0  # of the processor, so that a busy machine is no slow one
MOST_MESSAGE = 2_000  # characters

LEFT = pa.schema(
    [
        ("ts", pa.timestamp("us")), ("i", pa.int32()), ("b", pa.int64()), ("u", pa.uint64()), ("s", pa.int8()),
        ("d", pa.decimal128(9, 2)), ("w", pa.decimal128(38, 10)), ("f", pa.float64()), ("e", pa.float32()),
        ("t", pa.string()), ("raw", pa.binary()), ("p", pa.bool_()), ("day", pa.date32()),
        ("zoned", pa.timestamp("ns", "UTC")), ("list", pa.list_(pa.int32())), ("A b", pa.int32()), ("select",
        pa.int32()),
    ]
)  # fmt: skip
RIGHT = pa.schema(
    [
        ("ts", pa.timestamp("ms")), ("k", pa.int32()), ("c", pa.int64()), ("v", pa.uint64()),
        ("m", pa.decimal128(18, 0)),
        ("g", pa.float64()), ("h", pa.float32()), ("z", pa.large_string()), ("q", pa.bool_()), ("i", pa.int16()),
        ("at", pa.date64()), ("word", pa.dictionary(pa.int32(), pa.string())),
    ]
)  # fmt: skip

COLUMNS = [
    *(f"left.{name}" for name in LEFT.names[:14]), *(f"right.{name}" for name in RIGHT.names),
    "b", "c", "k", "f", "g", "t", "z", 'left."A b"', 'left."select"', "LEFT.I", "nowhere", "left.nowhere", "left.list",
]  # fmt: skip
NUMBERS = [
    *(f"left.{name}" for name in ("i", "b", "u", "s", "d", "f", "e")),
    *(f"right.{name}" for name in ("k", "c", "v", "m", "g", "h", "i")),
    "0", "1", "5", "0.5", "1e3", "k", "b", "CAST(left.i AS DOUBLE)",
]  # fmt: skip
LITERALS = [
    "0", "1", "-1", "5", "0.5", "1e3", "1e", "1e999", "1.", ".5", "1_000", "9223372036854775807",
    "-9223372036854775808",
    "170141183460469231731687303715884105727", "9" * 60, "0." + "3" * 40, "NULL", "TRUE", "FALSE", "'a'", "''", "'é%_'",
    "'it''s'", "X'ff'", "X'f'", "x''", "DATE '2024-02-29'", "DATE '2023-02-29'", "'2024-01-01'",
    "TIMESTAMP '2024-02-29 12:00:00.5'", "TIMESTAMP '2024-02-29 12:00:00+00:00'", "TIMESTAMP '0001-01-01'",
    "INTERVAL '90' MINUTE", "INTERVAL '1 day 2 hours'", "INTERVAL '1' MONTH", "INTERVAL 5 SECOND",
    "INTERVAL '99999999' WEEK",
    "CAST(1 AS REAL)", "CAST(left.i AS DOUBLE)", "CAST('2024-01-01' AS DATE)", "CAST(left.t AS INT)",
]  # fmt: skip
GOOD = [
    "left.i = right.k", "abs(left.i - right.k) <= 10 AND left.f > right.g", "left.t = right.z OR left.p",
    "left.b BETWEEN right.c - 5 AND right.c + 5", "left.ts - right.ts < INTERVAL '5' SECOND",
    "left.t LIKE '%a_b!%' ESCAPE '!' AND NOT left.t IN ('a', 'b', NULL)", "CASE WHEN p THEN left.i ELSE 3 END < k",
    "left.d * 0.5 <> right.m % 7 OR POWER(left.f, 2) < SQRT(right.g)", "left.i IS NOT DISTINCT FROM right.k",
    "COALESCE(left.p, right.q, FALSE) IS NOT TRUE", "GREATEST(left.u, right.v, 3) >= LEAST(left.b, right.c)",
    "left.day = right.at AND left.zoned >= TIMESTAMP '2024-02-29 12:00:00+00:00'", "FLOOR(left.w) = CEIL(right.m / 3)",
    "LOWER(left.t) = UPPER(right.z) || 'a' AND LENGTH(TRIM(BOTH 'x' FROM left.t)) > 2",
    "ROUND(left.f, 2) < SIN(right.g)", "DATE_TRUNC('hour', left.ts) = DATE_TRUNC('hour', right.ts)",
    "EXTRACT(HOUR FROM left.zoned) <= 12 AND EXTRACT(EPOCH FROM left.ts - right.ts) < 5.5",
    "SUBSTRING(left.t FROM 2 FOR 3) = SUBSTRING(right.z, -2) OR CONCAT(left.t, 'b') LIKE 'a%'",
    "left.e + right.h < 0.1 AND left.raw > X'00ff' -- all", "(left.i, right.k) IN ((1, 2))", "left.i = ANY(SELECT 1)",
]  # fmt: skip
# What parsers stumble over.
TEXTS = (
    "", " ", "\n", "\x00", "\x1b[2J", "\u202e", "\ud800", "\udfff", "é", "\U0001f600", "'", '"', "''", "`", "\\", ";",
    ";;", "--",
    "/*", "*/", "$", "$$", "$a$", "@", "#", "?", ":", "::", ":=", "{", "}", "{: 75 LIKE 3}", "{'a': 1}", "[", "]",
    "[1:2]", "(", ")",
    "()", "((", "))", ",", ".", "..", "...", "*", "**", "^", "~", "!", "!=", "<>", "<=>", "=>", "->", "->>", "||",
    "|", "&", "<<", ">>", "//",
    "%", "%%", "1e", "1e+", "0x1F", "0b1", "1.2.3", "1a", "9" * 5000, "0." + "9" * 5000, "1e" + "9" * 400, "a" * 5000,
    "'" + "a" * 5000 + "'",
    "(" * 40, ")" * 40, "NOT " * 40, "- " * 40, "ABS(" * 40, "CASE WHEN " * 20, "CASE " * 20,
    "POWER(" * 20, ", 2)" * 20, "INTERVAL " * 9,
    "SELECT", "(SELECT 1)", "EXISTS (SELECT 1)", "x -> x + 1", "COUNT(*)", "MAX(left.i)", "RANDOM()", "NOW()",
    "CURRENT_DATE", "OVER ()",
    "INTERVAL '1' YEAR TO MONTH", "AT TIME ZONE 'UTC'", "COLLATE x", "ILIKE", "SIMILAR TO", "GLOB", "REGEXP",
    "BETWEEN SYMMETRIC", "IS UNKNOWN",
    "ISNULL", "NOTNULL", "ESCAPE", "ESCAPE ''", "ESCAPE 'ab'", "AS", "AS DOUBLE", "::INT", "left", "right", "left.",
    ".i", "left.left.i",
    "left.*", "DATE", "TIMESTAMP", "ARRAY[1]", "STRUCT(1)", "MAP {}", "ROW(1)", "TRY_CAST(1 AS INT)",
    "EXTRACT(YEAR FROM left.ts)", "VALUES (1)",
    "IN ()", "IN (SELECT 1)", "LIKE ANY ('a')", "BETWEEN 1", "AND", "OR", "NOT", "NULL", "IS", "FROM", "WHERE",
    "GROUP BY", "UNION", "PIVOT",
    "DISTINCT", "QUALIFY", "LIMIT 1", "COLUMNS(*)", "@1", "$1", ":name", "?1", "%s", "{0}", "N'a'", "E'a'", "B'1'",
    "U&'a'", "_utf8'a'",
)  # fmt: skip
WORDS = sorted({word for text in (*GOOD, *LITERALS) for word in re.findall(r"[\w.]+|[^\w\s]+", text)})


class Grammar:
    """Predicates that are nearly right: the kinds of values need not fit."""

    def __init__(self, choose: random.Random):
        self.choose, self.numbers = choose, choose.random() < 0.8

    def condition(self, depth: int) -> str:
        kind = self.choose.randrange(12) if depth else self.choose.randrange(5)
        more = depth - 1
        if kind < 3:
            operator = self.choose.choice(["=", "<>", "<", "<=", ">", ">=", "!="])
            return f"{self.value(more)} {operator} {self.value(more)}"
        if kind == 3:
            return f"{self.value(more)} IS {self.choose.choice(['NULL', 'NOT NULL', 'TRUE', 'NOT FALSE', 'UNKNOWN'])}"
        if kind == 4:
            return self.choose.choice(["left.p", "right.q", "TRUE", "NULL", "right.z = left.t"])
        if kind < 8:
            parts = [self.condition(more) for _ in range(self.choose.choice((2, 2, 3, 30)))]
            return f"({self.choose.choice([' AND ', ' OR ']).join(parts)})"
        if kind == 8:
            return f"NOT {self.condition(more)}"
        if kind == 9:
            word = self.choose.choice(["BETWEEN", "NOT BETWEEN"])
            return f"{self.value(more)} {word} {self.value(more)} AND {self.value(more)}"
        if kind == 10:
            items = [self.value(0) for _ in range(self.choose.choice((1, 3, 60)))]
            return f"{self.value(more)} {self.choose.choice(['', 'NOT '])}IN ({', '.join(items)})"
        pattern = self.choose.choice(
            ["'a%'", "'%é_'", "'!%' ESCAPE '!'", "'a!' ESCAPE '!'", "right.z", "NULL"]
        )
        return f"{self.value(more)} LIKE {pattern}"

    def value(self, depth: int) -> str:
        kind = self.choose.randrange(10) if depth > 0 else self.choose.randrange(4)
        more = depth - 1
        if kind < 3:
            return self.choose.choice(NUMBERS if self.numbers else COLUMNS)
        if kind == 3:
            return self.choose.choice(NUMBERS if self.numbers else LITERALS)
        if kind < 7:
            parts = [self.value(more) for _ in range(self.choose.choice((2, 2, 2, 3, 40)))]
            return f"({self.choose.choice([' + ', ' - ', ' * ', ' / ', ' % ']).join(parts)})"
        if kind == 7:
            name = self.choose.choice(sorted(FUNCTIONS))
            most = min(FUNCTIONS[name][1], self.choose.choice((1, 2, 3, 30))) + (self.choose.random() < 0.02)
            return f"{name}({', '.join(self.value(more) for _ in range(max(most, FUNCTIONS[name][0])))})"
        if kind == 8:
            subject = self.value(more) if self.choose.random() < 0.5 else ""
            whens = [
                f"WHEN {self.value(more) if subject else self.condition(more)} THEN {self.value(more)}"
                for _ in range(self.choose.choice((1, 2, 12)))
            ]
            return (
                f"CASE {subject} {' '.join(whens)} {self.choose.choice(['', 'ELSE ' + self.value(more)])} END"
            )
        return f"{self.choose.choice(['-', 'ABS', '+', '- -'])}({self.value(more)})"


def changed(choose: random.Random, text: str) -> str:
    """A text with some pieces removed, doubled, moved, or something foreign put in."""
    for _ in range(choose.choice((1, 1, 2, 4, 12))):
        at, to = sorted(choose.randrange(len(text) + 1) for _ in range(2))
        to = min(to, at + choose.choice((1, 3, 20, 200)))
        match choose.randrange(5):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:to] + text[at:to] * choose.choice((1, 2, 50)) + text[to:]
            case 2:
                text = (
                    text[:at] + choose.choice(("", " ")) + choose.choice((*TEXTS, *WORDS)) + " " + text[at:]
                )
            case 3:
                text = text[:at] + chr(choose.randrange(1, 0x3000)) + text[to:]
            case _:
                other = choose.choice(GOOD)
                text = text[:at] + other[choose.randrange(len(other)) :]
    return text


def case(number: int) -> str:
    choose = random.Random(number)
    match number % 4:
        case 0:
            return Grammar(choose).condition(choose.choice((1, 2, 3, 4)))[:20_000]
        case 1:
            return changed(choose, choose.choice(GOOD))
        case 2:
            return changed(choose, Grammar(choose).condition(2)[:2_000])
        case _:
            return " ".join(choose.choice((*WORDS, *TEXTS)) for _ in range(choose.randrange(1, 25)))


def read(text: str) -> bool:
    """Whether a predicate is accepted. One that is can be analysed, shown and read again."""
    try:
        predicate = parse_predicate(text, LEFT, RIGHT)
    except sj.PredicateError as error:
        refusal = str(error)
    else:
        return understood(predicate)
    assert 0 < len(refusal) < MOST_MESSAGE
    assert not CONTROL.search(refusal.replace("\t", "").replace("\n", ""))
    return False


def understood(predicate: Expr) -> bool:
    """What else is asked of every predicate."""
    analysis = analyse(predicate)
    for path in (analysis.left, analysis.right):
        assert sum(len(clause.bands) for clause in path.clauses) <= MAX_BANDS
    assert describe(analysis)
    assert compile_cost([predicate]) > 0
    to_sql(predicate).encode()
    return True


def check(number: int) -> bool:
    text = case(number)
    began = time.process_time()
    try:
        with no_hang(lambda: f"case {number}:\n{case(number)[:2000]!r}"):
            accepted = read(text)
    except Exception as error:
        raise AssertionError(f"case {number} raises {error!r}:\n{text[:2000]!r}") from error
    if time.process_time() - began > MOST_SECONDS:
        again = time.process_time()
        read(text)
        seconds = time.process_time() - again
        assert seconds < MOST_SECONDS, f"case {number} takes {seconds:.1f} s:\n{text[:2000]!r}"
    return accepted


def check_range(first: int, count: int) -> None:
    accepted = sum(check(number) for number in range(first, first + count))
    print(f"{count} predicates, {accepted} of them accepted")
    assert accepted > count // 100, "predicates that are all refused would test little"


def test_some_predicates_are_read_or_refused_soon() -> None:
    check_range(0, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_predicate_is_read_or_refused_soon(chunk: int) -> None:
    check_range(SHORT + chunk * CHUNK, CHUNK)
