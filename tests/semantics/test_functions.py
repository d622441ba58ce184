"""Functions of predicates by eye: what the oracle gives, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from streamjoin.semantics import oracle
from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.sql import parse_expression

# ruff: noqa: E501  # several cases a line
SCHEMA = pa.schema(
    {
        "i": pa.int32(), "u": pa.uint64(), "f": pa.float64(), "e": pa.float32(), "d": pa.decimal128(9, 2),
        "s": pa.string(), "b": pa.binary(),
    }
)  # fmt: skip
ROW = {"i": 7, "u": 2, "f": 0.5, "e": 0.25, "d": 1234, "s": "Straße", "b": b"a\xff"}
NOTHING = dict.fromkeys(ROW)


def value(text: str, row: dict[str, Any] = ROW) -> Any:
    """The oracle's value of an expression over a left row. Its text as SQL has the same meaning."""
    expr = parse_expression(text, SCHEMA, pa.schema({}))
    again = parse_expression(to_sql(expr), SCHEMA, pa.schema({}))
    assert again == expr, to_sql(expr)
    return oracle.evaluate(expr, row, {})


@pytest.mark.parametrize(("text", "wanted"), [
    ("LN(f)", math.log(0.5)), ("EXP(f)", math.exp(0.5)), ("SIN(f)", math.sin(0.5)), ("COS(e)", math.cos(0.25)),
    ("TAN(i)", math.tan(7)), ("ASIN(f)", math.asin(0.5)), ("ACOS(f)", math.acos(0.5)), ("ATAN(d)", math.atan(12.34)),
    ("ATAN2(f, -e)", math.atan2(0.5, -0.25)), ("RADIANS(d)", math.radians(12.34)), ("DEGREES(f)", math.degrees(0.5)),
    ("LN(0)", math.nan), ("LN(-f)", math.nan), ("ASIN(i)", math.nan), ("ACOS(1.001)", math.nan), ("EXP(1000)", math.inf),
    ("EXP(-1000)", 0.0), ("SIN(EXP(1000))", math.nan), ("LN(EXP(1000))", math.inf), ("ATAN2(0, -1)", math.pi),
])  # fmt: skip
def test_functions_of_floats_are_those_of_math(text, wanted):
    found = value(text)
    assert found == wanted or (math.isnan(found) and math.isnan(wanted))
    if parse_expression(text, SCHEMA, pa.schema({})).reads:
        assert value(text, NOTHING) is None


@pytest.mark.parametrize(("text", "wanted"), [
    ("ROUND(2.5e0)", 3.0), ("ROUND(-2.5e0)", -3.0), ("ROUND(0.49999999999999994e0)", 0.0), ("ROUND(f)", 1.0),
    ("ROUND(f * 0.25, 1)", 0.1), ("ROUND(f * 0.3, 1)", 0.2), ("ROUND(EXP(1000))", math.inf), ("ROUND(e)", 0.0),
    ("ROUND(4503599627370497e0)", 4503599627370497.0), ("ROUND(i)", 7), ("ROUND(i, 3)", 7), ("ROUND(d)", 12),
    ("ROUND(d, 1)", 123), ("ROUND(d + 0.16, 0)", 13), ("ROUND(-d - 0.16)", -13), ("ROUND(d, 2)", 1234),
    ("ROUND(2.5)", 3), ("ROUND(-2.5)", -3), ("ROUND(0.125, 2)", 13), ("ROUND(-0.125, 2)", -13), ("ROUND(NULL)", None),
])  # fmt: skip
def test_round_goes_away_from_zero_at_halves(text, wanted):
    assert value(text) == wanted


def test_round_keeps_the_sign_of_zero():
    assert math.copysign(1, value("ROUND(-0.3e0)")) == -1


@pytest.mark.parametrize(("text", "wanted"), [
    ("LOWER(s)", "straße"), ("UPPER(s)", "STRAßE"), ("LOWER('ΣΑΣ')", "\u03c3\u03b1\u03c3"), ("LOWER('İ')", "İ"),
    ("UPPER('ǆ')", "Ǆ"), ("UPPER('ﬁn')", "ﬁN"), ("LENGTH(s)", 6), ("LENGTH(b)", 2), ("LENGTH('😀é')", 2), ("LENGTH('')", 0),
    ("SUBSTRING(s, 2)", "traße"), ("SUBSTRING(s, 2, 3)", "tra"), ("SUBSTRING(s FROM 5 FOR 9)", "ße"), ("SUBSTR(s, 7)", ""),
    ("SUBSTRING(s, 0, 2)", "S"), ("SUBSTRING(s, -2)", "ße"), ("SUBSTRING(s, -2, 1)", "ß"), ("SUBSTRING(s, -9, 4)", "S"),
    ("SUBSTRING(s, 1, 0)", ""), ("SUBSTRING(s, 1, -1)", ""), ("SUBSTRING(s, i - 3, u - 1)", None),
    ("TRIM('  a b ')", "a b"), ("LTRIM('  a ')", "a "), ("RTRIM('  a ')", "  a"), ("TRIM('\ta\n')", "\ta\n"),
    ("TRIM(s, 'Se')", "traß"), ("TRIM(BOTH 'eS' FROM s)", "traß"), ("TRIM(LEADING 'Se' FROM s)", "traße"),
    ("TRIM(TRAILING 'ße' FROM s)", "Stra"), ("RTRIM(s, '')", "Straße"), ("TRIM('aaa', 'a')", ""),
    ("s || '!'", "Straße!"), ("s || NULL", None), ("CONCAT(s, NULL, '!')", "Straße!"), ("CONCAT(NULL, NULL)", ""),
    ("b || X'00'", b"a\xff\x00"), ("s || s || s", "Straße" * 3), ("LOWER(NULL)", None), ("SUBSTRING(s, NULL)", None),
])  # fmt: skip
def test_functions_of_text(text, wanted):
    if wanted is None and "u - 1" in text:
        with pytest.raises(PredicateError, match="at most 64 bits"):
            value(text)
    else:
        assert value(text) == wanted


def test_concat_skips_null_and_two_bars_do_not():
    assert value("CONCAT(s, '!')", NOTHING) == "!"
    assert value("s || '!'", NOTHING) is None


@pytest.mark.parametrize(("text", "said"), [
    ("LOWER(i)", "LOWER needs a string, but left.i is int"),
    ("LENGTH(f)", "LENGTH needs a string, but left.f is float64"),
    ("s || b", "|| joins strings, but left.b is binary"),
    ("i || s", "|| joins strings, but left.i is int; write OR between conditions"),
    ("SIN(s)", "SIN needs a number, but left.s is string"),
    ("ATAN2(1, s)", "ATAN2 needs a number, but left.s is string"),
    ("ROUND(f, i)", "ROUND needs its digits as a whole number literal, but left.i is int"),
    ("ROUND(f, -2)", "write ROUND(x / 100) * 100"),
    ("ROUND(f, 23)", "allowed: 0 to 22"),
    ("ROUND(s)", "ROUND needs a number"),
    ("SUBSTRING(s, 1.5)", "whole numbers of at most 64 bits, but 1.5 is decimal(scale 1)"),
    ("SUBSTRING(s, 1, u)", "left.u"),
    ("SUBSTRING(s)", "SUBSTRING takes 2 or 3 arguments, 1 given"),
    ("ATAN2(f)", "ATAN2 takes 2 arguments, 1 given"),
    ("CONCAT()", "CONCAT takes 1 argument or more, 0 given"),
    ("TRIM(s, 5)", "TRIM needs a string, but 5 is int"),
])  # fmt: skip
def test_what_functions_refuse(text, said):
    with pytest.raises(PredicateError) as caught:
        value(text)
    assert said in str(caught.value)
