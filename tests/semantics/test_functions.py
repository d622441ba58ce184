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
        "s": pa.string(), "b": pa.binary(), "at": pa.timestamp("us"), "old": pa.timestamp("s", "Europe/Berlin"),
        "day": pa.date32(),
    }
)  # fmt: skip
ROW = {"i": 7, "u": 2, "f": 0.5, "e": 0.25, "d": 1234, "s": "Straße", "b": b"a\xff"}
# 2024-02-29 23:59:59.123456, a second before 1970 in UTC, and 2023-12-31, a Sunday
MOMENTS = {"at": 1_709_251_199_123_456, "old": -1, "day": 19_722}
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


@pytest.mark.parametrize(("text", "wanted"), [
    ("DATE_TRUNC('second', at)", "2024-02-29 23:59:59"), ("DATE_TRUNC('minute', at)", "2024-02-29 23:59:00"),
    ("DATE_TRUNC('hour', at)", "2024-02-29 23:00:00"), ("DATE_TRUNC('day', at)", "2024-02-29 00:00:00"),
    ("DATE_TRUNC('week', at)", "2024-02-26 00:00:00"), ("DATE_TRUNC('months', at)", "2024-02-01 00:00:00"),
    ("DATE_TRUNC('quarter', at)", "2024-01-01 00:00:00"), ("DATE_TRUNC('YEAR', at)", "2024-01-01 00:00:00"),
    ("DATE_TRUNC('millisecond', at)", "2024-02-29 23:59:59.123"), ("DATE_TRUNC('hour', old)", "1969-12-31 23:00:00+00:00"),
    ("DATE_TRUNC('year', old)", "1969-01-01 00:00:00+00:00"), ("DATE_TRUNC('month', day)", "2023-12-01"),
    ("DATE_TRUNC('week', day)", "2023-12-25"), ("DATE_TRUNC('hour', day)", "2023-12-31"),
    ("DATE_TRUNC('quarter', DATE '2024-11-05')", "2024-10-01"),
])  # fmt: skip
def test_date_trunc_gives_the_beginning_of_a_unit(text, wanted):
    literal = f"DATE '{wanted}'" if len(wanted) == 10 else f"TIMESTAMP '{wanted}'"
    assert value(f"{text} = {literal}", MOMENTS) is True
    assert value(f"{text} = {literal}", dict.fromkeys(MOMENTS)) in (None, True)  # a literal is not NULL


@pytest.mark.parametrize(("text", "wanted"), [
    ("YEAR FROM at", 2024), ("QUARTER FROM at", 1), ("MONTH FROM at", 2), ("WEEK FROM at", 9), ("DAY FROM at", 29),
    ("HOUR FROM at", 23), ("MINUTE FROM at", 59), ("SECOND FROM at", 59), ("MILLISECOND FROM at", 59_123),
    ("MICROSECOND FROM at", 59_123_456), ("DOW FROM at", 4), ("ISODOW FROM at", 4), ("DOY FROM at", 60),
    ("EPOCH FROM at", 1_709_251_199_123_456), ("HOUR FROM old", 23), ("SECOND FROM old", 59), ("YEAR FROM old", 1969),
    ("DOW FROM old", 3), ("EPOCH FROM old", -1), ("WEEK FROM day", 52), ("DOW FROM day", 0), ("ISODOW FROM day", 7),
    ("WEEK FROM DATE '2021-01-03'", 53), ("WEEK FROM DATE '2024-12-30'", 1), ("DOY FROM day", 365),
    ("EPOCH FROM day", 1_703_980_800), ("'minutes' FROM at", 59), ("EPOCH FROM at - at", 0), ("YEAR FROM NULL", None),
    ("DAY FROM TIMESTAMP '0001-01-01 00:00:00'", 1), ("EPOCH FROM INTERVAL '90 seconds'", 90),
])  # fmt: skip
def test_extract_gives_a_part_of_a_moment(text, wanted):
    assert value(f"EXTRACT({text})", MOMENTS) == wanted


@pytest.mark.parametrize(("text", "said"), [
    ("DATE_TRUNC('hours ago', at)", "DATE_TRUNC has no unit 'hours ago'"),
    ("DATE_TRUNC('minuet', at)", "did you mean 'minute'?; allowed: microsecond, millisecond, second"),
    ("DATE_TRUNC(at, 'hour')", "DATE_TRUNC needs its unit as a literal, such as 'hour', but left.at is timestamp[us]"),
    ("DATE_TRUNC('hour', i)", "DATE_TRUNC needs a date or timestamp, but left.i is int"),
    ("DATE_TRUNC('hour', at - at)", "is interval"),
    ("EXTRACT(CENTURY FROM at)", "EXTRACT has no unit 'CENTURY'; allowed: microsecond"),
    ("EXTRACT(HOUR FROM day)", "EXTRACT(HOUR) needs a timestamp or time, but left.day is date"),
    ("EXTRACT(DAY FROM at - at)", "EXTRACT(DAY) needs a date or timestamp"),
    ("EXTRACT(EPOCH FROM i)", "EXTRACT(EPOCH) needs a date, timestamp, time or interval, but left.i is int"),
    ("EXTRACT(YEAR FROM day + 9223372036854775807)", "needs days within 2^53 of 1970"),
    ("HOUR(at)", "there is no function HOUR; write EXTRACT(HOUR FROM x)"),
    ("DATE_PART('hour', at)", "write EXTRACT(HOUR FROM x)"),
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


# ---- times of day and durations

CLOCKS = pa.schema(
    {"t": pa.time32("s"), "u": pa.time64("us"), "d": pa.duration("ms"), "at": pa.timestamp("us")}
)
CLOCK_ROW = {"t": 3_600, "u": 3_600_500_000, "d": 90_000, "at": 0}


@pytest.mark.parametrize(("text", "wanted"), [
    ("t = TIME '01:00:00'", True), ("u = '01:00:00.5'", True), ("u - t", 500_000), ("t - u < INTERVAL '0' SECOND", True),
    ("t BETWEEN '00:30' AND TIME '01:00'", True), ("EXTRACT(HOUR FROM u)", 1), ("EXTRACT(MILLISECOND FROM u)", 500),
    ("EXTRACT(EPOCH FROM u)", 3_600_500_000), ("d = INTERVAL '90' SECOND", True), ("EXTRACT(EPOCH FROM d)", 90_000),
    ("d * 2 - INTERVAL '1' MINUTE", 120_000), ("at + d = TIMESTAMP '1970-01-01 00:01:30'", True), ("ABS(-d) > t - t", True),
    ("GREATEST(t, u)", 3_600_500_000),
])  # fmt: skip
def test_times_of_day_and_durations(text, wanted):
    assert oracle.evaluate(parse_expression(text, CLOCKS, pa.schema({})), CLOCK_ROW, {}) == wanted


@pytest.mark.parametrize(("text", "said"), [
    ("t + d", "a time of day and an interval may make no time of day; compare differences"),
    ("t < at", "they cannot be compared"), ("t + 1", "they cannot be added"), ("d < 5", "they cannot be compared"),
    ("t = '25:00:00'", "'25:00:00' is not a time of day: it goes from 00:00:00 to 23:59:59"),
    ("t = 'noon'", "write 'HH:MM[:SS[.fraction]]'"), ("EXTRACT(DAY FROM t)", "needs a date or timestamp"),
    ("EXTRACT(HOUR FROM d)", "needs a timestamp or time"), ("DATE_TRUNC('hour', t)", "needs a date or timestamp"),
])  # fmt: skip
def test_what_times_of_day_and_durations_refuse(text, said):
    with pytest.raises(PredicateError) as caught:
        parse_expression(text, CLOCKS, pa.schema({}))
    assert said in str(caught.value)
