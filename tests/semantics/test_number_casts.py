"""CAST to integers, decimals and strings: by eye, at the ends of types, and the engines against the oracle."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.kernels.values import text
from streamjoin.semantics import oracle
from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.sql import parse_expression

# ruff: noqa: E501  # several cases a line
SCHEMA = pa.schema(
    {
        "i": pa.int32(), "u": pa.uint64(), "f": pa.float64(), "e": pa.float32(), "d": pa.decimal128(9, 2),
        "s": pa.string(), "p": pa.bool_(), "at": pa.timestamp("us"),
    }
)  # fmt: skip
ROW = {"i": -7, "u": 2**64 - 1, "f": 2.5, "e": 0.25, "d": -1250, "s": " -12.345 ", "p": True}
NOTHING = pa.schema({})


def value(written: str, **row: Any) -> Any:
    """The oracle's value of an expression over a left row. Its text as SQL has the same meaning."""
    expr = parse_expression(written, SCHEMA, NOTHING)
    if expr.reads or expr.type.name == "string":  # SQL has no word for a NULL with a type
        assert parse_expression(to_sql(expr), SCHEMA, NOTHING) == expr, to_sql(expr)
    return oracle.evaluate(expr, {**ROW, **row}, {})


@pytest.mark.parametrize(("written", "wanted"), [
    ("CAST(f AS INT)", 3), ("CAST(-f AS INT)", -3), ("CAST(e AS INT)", 0), ("CAST(d AS INT)", -13), ("d::TINYINT", -13),
    ("CAST(d AS DECIMAL(3, 1))", -125), ("CAST(d AS DECIMAL(2, 1))", None), ("CAST(i AS DECIMAL(4, 2))", -700),
    ("CAST(d AS DECIMAL(12, 4))", -125000), ("CAST(f AS DECIMAL(9, 3))", 2500), ("CAST(f / 3 AS DECIMAL(9, 3))", 833),
    ("CAST(i * 100 AS TINYINT)", None), ("CAST(i AS UTINYINT)", None), ("CAST(u AS BIGINT)", None), ("CAST(u AS UBIGINT)", 2**64 - 1),
    ("CAST(p AS INT)", 1), ("CAST(NOT p AS DECIMAL(3, 1))", 0), ("CAST(p AS VARCHAR)", "true"), ("CAST(NOT p AS TEXT)", "false"),
    ("CAST(s AS INT)", -12), ("CAST(s AS DECIMAL(5, 2))", -1235), ("CAST(s AS DECIMAL(5, 4))", None), ("CAST('1e3' AS INT)", None),
    ("CAST('' AS INT)", None), ("CAST('.' AS INT)", None), ("CAST('1.' AS INT)", 1), ("CAST('+.5' AS INT)", 1), ("CAST('- 5' AS INT)", None),
    ("CAST('9223372036854775807.4' AS BIGINT)", 2**63 - 1), ("CAST('9223372036854775807.5' AS BIGINT)", None),
    ("CAST('-9223372036854775808' AS BIGINT)", -(2**63)), ("CAST('-9223372036854775808.5' AS BIGINT)", None),
    ("CAST(9.3e18 AS BIGINT)", None), ("CAST(-9223372036854775808e0 AS BIGINT)", -(2**63)), ("CAST(LN(-f) AS INT)", None),
    ("CAST(EXP(1000) AS BIGINT)", None), ("CAST(i AS VARCHAR)", "-7"), ("CAST(u AS VARCHAR)", "18446744073709551615"),
    ("CAST(d AS VARCHAR)", "-12.50"), ("CAST(d / 1000 AS VARCHAR)", "refused"), ("CAST(d * 0.01 AS VARCHAR)", "-0.1250"),
    ("CAST(s AS VARCHAR)", " -12.345 "), ("CAST(NULL AS INT)", None),
])  # fmt: skip
def test_casts_by_eye(written, wanted):
    if wanted == "refused":
        with pytest.raises(PredicateError, match="CAST to VARCHAR needs an integer"):
            value(written)
        return
    assert value(written) == wanted


def test_a_cast_that_changes_nothing_is_no_operation():
    assert to_sql(parse_expression("CAST(i AS BIGINT)", SCHEMA, NOTHING)) == "left.i"
    assert to_sql(parse_expression("CAST(d AS DECIMAL(12, 2))", SCHEMA, NOTHING)) == "left.d"


@pytest.mark.parametrize(("written", "message"), [
    ("CAST(at AS BIGINT)", "CAST to BIGINT needs a number.*EXTRACT"), ("CAST(f AS UBIGINT)", "floats and strings, integers to BIGINT"),
    ("CAST(s AS DECIMAL(19, 2))", "at most 18 digits"), ("CAST(i AS DECIMAL(39))", "from 1 to 38"), ("CAST(i AS DECIMAL(2, 3))", "from 1 to 38"),
    ("CAST(i AS BLOB)", "not supported"), ("CAST(at AS VARCHAR)", "CAST to VARCHAR needs"), ("CAST(u AS DECIMAL(38, 30))", "more than 128 bits"),
])  # fmt: skip
def test_what_cannot_be_cast_is_refused(written, message):
    with pytest.raises(PredicateError, match=message):
        value(written)


TEXTS = ["", "-900.000", " ", "7", "-7", "+7.5", "7.49999", " 7.5 ", "007.50", "7,5", "seven", "0.005", "-0.004", "1e2", "99999.994",
         "99999.995", "-99999.995", "9" * 19, "-" + "9" * 30, ".5", "5.", "--5", "٣", "9223372036854775807", "0" * 40 + "3"]  # fmt: skip


@pytest.mark.parametrize("kind", ["DECIMAL(7, 2)", "BIGINT", "TINYINT", "DECIMAL(18, 18)"])
def test_the_kernel_reads_the_numbers_that_the_oracle_reads(kind):
    target = parse_expression(f"CAST(s AS {kind})", SCHEMA, NOTHING).type
    for written in TEXTS:
        data = np.frombuffer(written.encode() + b"\0", np.uint8)
        number, known = text.number((data, 0, len(data) - 1), target.scale)
        found = number if known and target.lo <= number <= target.hi else None
        assert found == value(f"CAST(s AS {kind})", s=written), written


NUMBERS = pa.schema(
    {
        "ts": pa.int64(),
        "f": pa.float64(),
        "d": pa.decimal128(20, 3),
        "s": pa.string(),
        "u": pa.uint64(),
        "p": pa.bool_(),
    }
)
FLOATS = [
    0.5,
    -0.5,
    1.4999,
    127.5,
    127.4,
    -128.5,
    1e19,
    -1e19,
    math.nan,
    math.inf,
    None,
    9.2233720368547748e18,
]


JOINED = ["CAST(left.d AS VARCHAR) = right.s || ''"]
JOINED_MORE = [
    "CAST(left.f AS TINYINT) = CAST(right.d AS TINYINT)",
    "CAST(left.s AS BIGINT) = CAST(right.f AS BIGINT)",
    "CAST(left.f AS DECIMAL(4, 1)) <= CAST(right.s AS DECIMAL(7, 2))",
    "CAST(left.u AS INT) + CAST(right.p AS INT) < 9",
    "CAST(left.d AS DECIMAL(25, 6)) > CAST(right.u AS DECIMAL(30, 2)) OR CAST(left.p AS VARCHAR) = 'true'",
    "CAST(left.f - right.f AS SMALLINT) IS NULL",
    "LENGTH(CAST(left.u AS VARCHAR)) < CAST(right.s AS INT)",
]


@pytest.mark.parametrize(
    ("on", "how"),
    [
        *((on, "left") for on in JOINED),
        *(pytest.param(on, "left", marks=pytest.mark.slow) for on in JOINED_MORE),
        *(pytest.param(on, "inner", marks=pytest.mark.slow) for on in (*JOINED, *JOINED_MORE)),
    ],
)
def test_engines_cast_as_the_oracle(on, how):
    count = 24
    rows = {
        "ts": list(range(count)),
        "f": [FLOATS[n % len(FLOATS)] for n in range(count)],
        "d": [None if n % 7 == 3 else Decimal(n * n * 37 - 900).scaleb(-n % 4) for n in range(count)],
        "s": [None if n == 5 else TEXTS[n] for n in range(count)],
        "u": [2**64 - 1 - n if n % 3 else n for n in range(count)],
        "p": [None if n % 5 == 0 else n % 2 == 0 for n in range(count)],
    }
    table = pa.table(rows, NUMBERS)
    spec = sj.JoinSpec(NUMBERS, NUMBERS, on, sj.TimeWindow(count), "ts", "ts", how=how)
    expected = sj.oracle.join(table, table, spec)
    assert 0 < expected.num_rows <= count * count
    found = sj.join_tables(table, table, spec, order="timestamp")
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
