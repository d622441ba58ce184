"""What SQL predicates mean: typed trees by eye, and every refusal with its place."""

import itertools
import math
import re
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from streamjoin.kernels.values import libm
from streamjoin.semantics import oracle
from streamjoin.semantics.columns import column_type
from streamjoin.semantics.errors import PredicateError, SpecError
from streamjoin.semantics.expressions import Call, Column, Literal, walk
from streamjoin.semantics.functions import FUNCTIONS
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.sql import parse_predicate
from streamjoin.semantics.types import (
    BINARY,
    BOOL,
    DATE,
    FLOAT32,
    FLOAT64,
    NULL,
    STRING,
    Type,
    decimal,
    integer,
    interval,
    signed,
    time_of_day,
    timestamp,
    unsigned,
)

LEFT = pa.schema(
    {
        "x": pa.int32(), "n": pa.int64(), "y": pa.float32(), "f": pa.float64(), "ts": pa.timestamp("us"),
        "zoned": pa.timestamp("ms", tz="UTC"), "day": pa.date32(), "name": pa.string(), "ok": pa.bool_(),
        "price": pa.decimal128(10, 2), "big": pa.decimal128(38, 0), "blob": pa.binary(),
        "tags": pa.list_(pa.int8()), "Mixed": pa.int64(), "A b": pa.int8(),
    }
)  # fmt: skip
RIGHT = pa.schema(
    {
        "a": pa.int32(), "u": pa.uint64(), "b": pa.float32(), "g": pa.float64(), "ts": pa.timestamp("s"),
        "date": pa.date64(), "name": pa.large_string(), "flag": pa.bool_(), "bid": pa.decimal128(12, 4),
        "mixed": pa.int64(),
    }
)  # fmt: skip
X, N, Y, F = (
    Column("left", name, kind)
    for name, kind in (("x", signed(32)), ("n", signed(64)), ("y", FLOAT32), ("f", FLOAT64))
)
A, B = Column("right", "a", signed(32)), Column("right", "b", FLOAT32)
TS, DAY = Column("left", "ts", timestamp("us")), Column("left", "day", DATE)
NAME, OK = Column("left", "name", STRING), Column("left", "ok", BOOL)
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def parse(text):
    return parse_predicate(text, LEFT, RIGHT)


def sql(text):
    return to_sql(parse(text))


def exact(value, scale=0, name=None):
    return Literal(value, Type(name or ("decimal" if scale else "int"), scale, value, value))


def compared(text):
    """The two sides of the comparison `text`."""
    tree = parse(text)
    assert isinstance(tree, Call) and tree.type == BOOL
    return tree.args


def refused(text, at, *words):
    """`text` is refused at the place that reads `at`, with a message that has all `words`."""
    with pytest.raises(PredicateError) as caught:
        parse(text)
    error, message = caught.value, str(caught.value).split("\n")[0]
    for word in words:
        assert word in message
    assert error.start is not None
    assert text[error.start : error.end] == at


# --- columns


@pytest.mark.parametrize(
    ("text", "side", "name"),
    [
        ("left.x = 1", "left", "x"),
        ("LEFT.X = 1", "left", "x"),
        ('"left"."x" = 1', "left", "x"),
        ("x = 1", "left", "x"),
        ("a = 1", "right", "a"),
        ("Mixed = 1", "left", "Mixed"),
        ("mixed = 1", "right", "mixed"),
        ("right.MIXED = 1", "right", "mixed"),
        ('"A b" = 1', "left", "A b"),
        ("right.date = DATE '2020-01-01'", "right", "date"),
    ],
)
def test_columns_resolve_exactly_then_in_any_case(text, side, name):
    column = compared(text)[0]
    assert isinstance(column, Column)
    assert (column.side, column.name) == (side, name)


def test_unresolved_columns_are_refused_with_what_there_is():
    refused(
        "left.nam = 'a'", "nam", "unknown column 'nam' of table left", "x, n, y, f", "did you mean 'name'?"
    )
    refused("right.zzz = 1", "zzz", "right has a, u, b, g, ts, date, name, flag, bid, mixed")
    refused("ok AND flagg", "flagg", "unknown column 'flagg' of left or right", "did you mean 'flag'?")
    refused("ts = left.ts", "ts", "ambiguous", "left.ts or right.ts")
    refused("MIXED = 1", "MIXED", "ambiguous", "left.Mixed or right.mixed")
    refused('"MIXED" = 1', '"MIXED"', "unknown column 'MIXED'")
    refused("l.x = 1", "l", "unknown table 'l'", "left and right")
    refused("left.x.y = 1", "left.x.y", "nested names")
    refused("ok AND tags IS NULL", "tags", "left.tags", "list<item: int8>", "allowed: integers")
    refused("current_date = day", "current_date", "unknown column")
    wide = pa.schema({f"c{i}": pa.int8() for i in range(100)})
    with pytest.raises(PredicateError, match=r"c0, c1, .*, c29 and 70 more"):
        parse_predicate("left.zzz = 1", wide, wide)


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.int8(), integer(-128, 127)),
        (pa.uint64(), unsigned(64)),
        (pa.float32(), FLOAT32),
        (pa.float64(), FLOAT64),
        (pa.float16(), None),
        (pa.bool_(), BOOL),
        (pa.string(), STRING),
        (pa.large_string(), STRING),
        (pa.string_view(), STRING),
        (pa.binary(), BINARY),
        (pa.large_binary(), BINARY),
        (pa.binary_view(), BINARY),
        (pa.binary(16), BINARY),
        (pa.date32(), DATE),
        (pa.date64(), DATE),
        (pa.timestamp("ns", tz="Europe/Berlin"), timestamp("ns", tz=True)),
        (pa.decimal32(5, 1), decimal(5, 1)),
        (pa.decimal128(38, 10), decimal(38, 10)),
        (pa.decimal256(38, 2), decimal(38, 2)),
        (pa.decimal256(39, 2), None),
        (pa.decimal128(5, -2), None),
        (pa.dictionary(pa.int8(), pa.string()), STRING),
        (pa.dictionary(pa.int8(), pa.float16()), None),
        (pa.time32("s"), time_of_day("s")),
        (pa.time64("ns"), time_of_day("ns")),
        (pa.duration("s"), interval("s")),
        (pa.null(), None),
        (pa.struct({"a": pa.int8()}), None),
    ],
)
def test_column_types(arrow, expected):
    assert column_type(arrow) == expected


# --- literals


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", exact(5)),
        ("-10", exact(-10)),
        ("2 * 5", exact(10)),
        ("7 % -4", exact(3)),
        ("-7 % 4", exact(-3)),
        ("ABS(-3) + FLOOR(-0.5) - CEIL(2.1)", exact(-1)),
        ("LEAST(3, 1, 2)", exact(1)),
        ("GREATEST(3, 1, 2)", exact(3)),
        ("COALESCE(3, 1)", exact(3)),
        ("5.000", exact(5)),
        ("NULL", Literal(None, signed(32))),
        ("1 + NULL", Literal(None, signed(32))),
    ],
)
def test_integer_literals_are_folded(text, expected):
    assert compared(f"x = {text}") == (X, expected)


def test_decimals_are_exact_and_exponents_float():
    assert compared("price = 0.05")[1] == exact(5, 2)
    assert compared("price = 0.1 + 0.20")[1] == exact(30, 2)
    assert compared("f = 1e3") == (F, Literal(1000.0, FLOAT64))
    assert compared("f = -1e3") == (F, Literal(-1000.0, FLOAT64))
    assert compared("left.name = 'it''s'") == (NAME, Literal("it's", STRING))
    assert compared("blob = X'00ff'")[1] == Literal(b"\x00\xff", BINARY)
    refused("blob = X'0f0'", "X'0f0'", "two hexadecimal digits")
    refused(f"x = {10**39}", str(10**39), "more than 128 bits", "1e+39")
    refused("f < 1e999", "1e999", "range of float64")


def test_literals_take_the_float_type_they_meet_rounded_once():
    assert compared("f = 0.1") == (F, Literal(0.1, FLOAT64))
    assert compared("y = 0.1") == (Y, Literal(float(np.float32(0.1)), FLOAT32))
    assert compared("y = 1e-1") == (Y, Literal(float(np.float32(0.1)), FLOAT32))
    # Just above the middle of two float32: through float64 it would round to even, that is down.
    middle = "1.00000005960464477540"
    assert np.float32(float(middle)) == 1.0
    assert compared(f"y = {middle}")[1] == Literal(1 + 2.0**-23, FLOAT32)
    # Too large for float32: infinity would compare wrongly, so the column widens.
    assert compared("y < 1e39") == (Call("cast", (Y,), FLOAT64), Literal(1e39, FLOAT64))
    # An explicit cast keeps its type.
    assert sql("y = CAST(0.1 AS DOUBLE)") == "CAST(left.y AS DOUBLE) = CAST(0.1 AS DOUBLE)"


def test_dates_timestamps_and_intervals():
    assert compared("day = DATE '1970-01-11'") == (DAY, exact(10, name="date"))
    assert compared("day = '1970-01-11'") == (DAY, exact(10, name="date"))
    assert compared("CAST('1969-12-31' AS DATE) = day") == (exact(-1, name="date"), DAY)
    assert compared("left.ts = '1970-01-01 00:00:01.5'") == (TS, exact(1_500_000, 6, "timestamp"))
    assert compared("left.ts = TIMESTAMP '1970-01-02'") == (TS, exact(86_400_000_000, 6, "timestamp"))
    zoned = compared("zoned = TIMESTAMP '1970-01-01 02:00:00+02:00'")[1]
    assert zoned == Literal(0, Type("timestamp", 3, 0, 0, tz=True))
    assert sql("right.ts BETWEEN '2020-02-28T23:59' AND '2020-02-29 00:00:00'") == (
        "right.ts BETWEEN TIMESTAMP '2020-02-28 23:59:00' AND TIMESTAMP '2020-02-29 00:00:00'"
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("INTERVAL '5 minutes'", "300"),
        ("INTERVAL 5 MINUTES", "300"),
        ("INTERVAL '1' HOUR", "3600"),
        ("INTERVAL -1 DAY", "-86400"),
        ("INTERVAL '-1 day'", "-86400"),
        ("INTERVAL 2 WEEK", "1209600"),
        ("INTERVAL '1 day 2 hours'", "93600"),
        ("INTERVAL '00:01:30'", "90"),
        ("INTERVAL 1.5 MINUTE", "90"),
        ("INTERVAL '250 ms'", "0.250"),
        ("INTERVAL 3 MICROSECONDS", "0.000003"),
        ("3 * INTERVAL '1' SECOND + INTERVAL '1' MINUTE", "63"),
        ("-ABS(INTERVAL '-2' SECOND)", "-2"),
    ],
)
def test_interval_literals(text, seconds):
    assert to_sql(parse(f"left.n * INTERVAL '1' SECOND = {text}").args[1]) == f"INTERVAL '{seconds}' SECOND"


def test_bad_time_literals_are_refused():
    # Python says why, in other words from 3.14 on.
    refused("day = '2020-02-30'", "day = '2020-02-30'", "'2020-02-30' is not a date: day ")
    refused("day = DATE 'soon'", "'soon'", "'soon' is not a date", "YYYY-MM-DD")
    refused("left.ts = 'soon'", "left.ts = 'soon'", "not a timestamp", "HH:MM")
    refused("left.ts = '2020-01-01 24:00'", "left.ts = '2020-01-01 24:00'", "23:59:59")
    refused(
        "left.ts = '2020-01-01 00:00:00.0000000001'",
        "left.ts = '2020-01-01 00:00:00.0000000001'",
        "nanosecond",
    )
    refused("left.ts > right.ts + INTERVAL '1 month'", "INTERVAL '1 month'", "no constant length", "week")
    refused("ok AND left.ts > right.ts - INTERVAL 2 YEARS", "INTERVAL 2 YEARS", "no constant length")
    refused("left.ts > right.ts + INTERVAL '1 foo'", "INTERVAL '1 foo'", "unknown interval unit 'FOO'")
    refused("left.ts > right.ts + INTERVAL '5'", "INTERVAL '5'", "a number and one of")
    refused("left.ts > right.ts + INTERVAL (x) HOUR", "INTERVAL (x)", "INTERVAL needs a literal")
    refused("left.ts > right.ts + INTERVAL '1' DAY TO HOUR", "INTERVAL '1' DAY", "TO another")
    refused("zoned > '2020-01-01+24:00'", "zoned > '2020-01-01+24:00'", "'+24:00'", "-23:59 to +23:59")
    refused("zoned > TIMESTAMPTZ '2020-01-01'", "'2020-01-01'", "no time zone", "+00:00")


# --- numbers


def test_integer_ranges_grow_so_that_bands_can_not_wrap():
    band = compared("left.x >= right.a - 10")[1]
    assert band == Call("sub", (A, exact(10)), integer(INT32_MIN - 10, INT32_MAX - 10))
    assert compared("x + a = 0")[0].type == integer(2 * INT32_MIN, 2 * INT32_MAX)
    assert compared("x - a = 0")[0].type == integer(INT32_MIN - INT32_MAX, INT32_MAX - INT32_MIN)
    assert compared("x * a = 0")[0].type == integer(INT32_MIN * INT32_MAX, INT32_MIN**2)
    assert compared("-x = 0")[0].type == integer(-INT32_MAX, -INT32_MIN)
    assert compared("ABS(x) = 0")[0].type == integer(0, -INT32_MIN)
    assert compared("x % 10 = 0")[0].type == integer(-9, 9)
    assert compared("u % a = 0")[0].type == integer(0, -INT32_MIN - 1)
    assert compared("ABS(x) % n = 0")[0].type == integer(0, -INT32_MIN)
    assert compared("LEAST(x, 5) = 0")[0].type == signed(32)
    assert compared("COALESCE(x, n) = 0")[0].type == signed(64)


def test_a_remainder_by_a_literal_zero_stays_an_operation():
    assert compared("x = 5 % 0")[1] == Call("mod", (exact(5), exact(0)), integer(0, 0))


def test_scales_align_by_multiplication_and_products_add_them():
    price, bid = compared("price = bid")
    assert price == Call(
        "mul",
        (Column("left", "price", decimal(10, 2)), exact(100, 2)),
        Type("decimal", 4, -(10**12) + 100, 10**12 - 100),
    )
    assert bid == Column("right", "bid", decimal(12, 4))
    assert sql("x + price < 1.5") == "left.x * 1.00 + left.price < 1.50"
    assert sql("price * bid < 1.5") == "left.price * right.bid < 1.500000"
    assert compared("price * bid < 1.5")[0].type.scale == 6
    assert compared("x = 0.5")[0] == Call(
        "mul", (X, exact(10, 1)), Type("decimal", 1, 10 * INT32_MIN, 10 * INT32_MAX)
    )


def test_more_than_128_bits_is_refused():
    refused("big + big > 1", "big + big", "left.big + left.big needs more than 128 bits", "CAST", "DOUBLE")
    refused("u * u = 1", "u * u", "right.u * right.u needs more than 128 bits", str((2**64 - 1) ** 2))
    refused("big = bid", "big = bid", "left.big * 1.0000 needs more than 128 bits", "10^-4")
    assert compared("n * n = 1")[0].type.hi == 2**126
    assert sql("CAST(big AS DOUBLE) + big > 1") == "CAST(left.big AS DOUBLE) + CAST(left.big AS DOUBLE) > 1.0"


def test_floats_meet_at_float64_unless_both_are_float32():
    wide = "CAST(left.x AS DOUBLE)"
    assert compared("y + b = 0")[0] == Call("add", (Y, B), FLOAT32)
    assert sql("y + g = 0") == "CAST(left.y AS DOUBLE) + right.g = 0.0"
    assert sql("x + y = 0") == f"{wide} + CAST(left.y AS DOUBLE) = 0.0"
    assert sql("x = f") == f"{wide} = left.f"
    assert sql("price < y") == "CAST(left.price AS DOUBLE) < CAST(left.y AS DOUBLE)"
    assert compared("y / 2 = b")[0] == Call("div", (Y, Literal(2.0, FLOAT32)), FLOAT32)
    assert sql("x / a = 2") == f"{wide} / CAST(right.a AS DOUBLE) = 2.0"
    assert compared("f < 1 / 3")[1] == Call("div", (Literal(1.0, FLOAT64), Literal(3.0, FLOAT64)), FLOAT64)
    assert compared("f % 2 = 1")[0] == Call("mod", (F, Literal(2.0, FLOAT64)), FLOAT64)
    assert compared("CAST(x AS REAL) = y") == (Call("cast", (Call("cast", (X,), FLOAT64),), FLOAT32), Y)
    assert compared("CAST(f AS REAL) = y") == (Call("cast", (F,), FLOAT32), Y)
    assert compared("x::double = CAST(NULL AS FLOAT)")[1] == Literal(None, FLOAT64)
    assert compared("CAST(f AS DOUBLE) = 1")[0] == F


def test_functions():
    assert sql("SQRT(x) = 2") == "SQRT(CAST(left.x AS DOUBLE)) = 2.0"
    assert sql("POWER(x, 3) = POW(y, 0.5)") == (
        "POWER(CAST(left.x AS DOUBLE), 3.0) = POWER(CAST(left.y AS DOUBLE), 0.5)"
    )
    assert compared("POWER(f, 2) = 1")[0] == Call("mul", (F, F), FLOAT64)
    assert compared("POWER(f, 2.0) = 1")[0] == Call("mul", (F, F), FLOAT64)
    refused("f ^ 2 = 1", "^", "^ is not supported; write POWER(f, 2)")
    assert sql("POWER(y, 2) = 1") == "CAST(left.y AS DOUBLE) * CAST(left.y AS DOUBLE) = 1.0"
    assert compared("FLOOR(price) = 1")[0].type == integer(-100_000_000, 99_999_999)
    assert compared("CEILING(price) = 1")[0].type == integer(-99_999_999, 100_000_000)
    assert compared("FLOOR(y) = 1")[0] == Call("floor", (Y,), FLOAT32)
    assert compared("CEIL(x) = 1")[0] == X
    assert compared("MOD(x, 3) = 1") == compared("x % 3 = 1")
    assert compared("LEAST(x) = 1")[0] == X


def test_choices_unify_their_branches():
    choice = compared("COALESCE(x, NULL, 0.5) = price")[0]
    assert to_sql(choice) == "COALESCE(left.x * 1.0, NULL, 0.5) * 1.0"
    inner = choice.args[0]
    assert inner.args[1] == Literal(None, inner.type)
    assert inner.type == Type("decimal", 1, 10 * INT32_MIN, 10 * INT32_MAX)
    assert sql("GREATEST(y, 0.5) = b") == "GREATEST(left.y, 0.5) = right.b"
    assert sql("GREATEST(y, 0.5, x) = b") == (
        "GREATEST(CAST(left.y AS DOUBLE), 0.5, CAST(left.x AS DOUBLE)) = CAST(right.b AS DOUBLE)"
    )
    assert sql("LEAST(left.name, right.name) = 'a'") == "LEAST(left.name, right.name) = 'a'"
    assert sql("GREATEST(day, '2020-01-01') = day") == "GREATEST(left.day, DATE '2020-01-01') = left.day"
    assert sql("CASE WHEN ok THEN x WHEN NULL THEN 0.5 END > 1") == (
        "CASE WHEN left.ok THEN left.x * 1.0 WHEN NULL THEN 0.5 ELSE NULL END > 1.0"
    )
    assert sql("CASE x WHEN 1 THEN ok WHEN a THEN TRUE ELSE flag END") == (
        "CASE WHEN left.x = 1 THEN left.ok WHEN left.x = right.a THEN TRUE ELSE right.flag END"
    )
    refused("COALESCE(x, name) = 1", "name", "ambiguous")
    refused(
        "COALESCE(x, left.name) = 1", "COALESCE(x, left.name)", "arguments of one COALESCE", "int", "string"
    )
    refused("CASE WHEN ok THEN x ELSE 'a' END = 1", "ok THEN x ELSE 'a'", "results of one CASE")
    refused("CASE WHEN x THEN 1 END = 1", "x", "WHEN needs a condition, but left.x is int")


# --- time


def test_time_arithmetic():
    assert compared("day - date = 3") == (
        Call("sub", (DAY, Column("right", "date", DATE)), integer(-(2**32) + 1, 2**32 - 1)),
        exact(3),
    )
    assert sql("day + 1 = date") == "left.day + 1 = right.date"
    assert compared("1 + day = date")[0] == compared("day + 1 = date")[0]
    assert compared("day - x = date")[0].type == Type("date", 0, DATE.lo - INT32_MAX, DATE.hi - INT32_MIN)
    assert compared("day - '1970-01-11' = 3")[0] == Call(
        "sub", (DAY, exact(10, name="date")), integer(-(2**31) - 10, 2**31 - 11)
    )
    midnight = compared("day = left.ts")[0]
    ticks = 86_400_000_000
    assert midnight == Call(
        "mul", (DAY, exact(ticks, 6, "interval")), Type("timestamp", 6, DATE.lo * ticks, DATE.hi * ticks)
    )
    hour_later = compared("day + INTERVAL '1' HOUR = right.ts")[0]
    assert to_sql(hour_later) == "left.day * INTERVAL '86400' SECOND + INTERVAL '3600' SECOND"
    assert hour_later.type.name == "timestamp" and hour_later.type.scale == 0
    gap = compared("left.ts - right.ts <= INTERVAL '5 minutes'")
    assert [to_sql(side) for side in gap] == ["left.ts - right.ts * 1.000000", "INTERVAL '300.000000' SECOND"]
    assert gap[0].type.name == "interval" and gap[0].type.scale == 6
    assert sql("ABS(left.ts - right.ts) < INTERVAL 1 SECOND").startswith(
        "ABS(left.ts - right.ts * 1.000000) <"
    )
    assert sql("right.ts + INTERVAL '1.5' SECOND > right.ts") == (
        "right.ts * 1.000 + INTERVAL '1.500' SECOND > right.ts * 1.000"
    )
    assert compared("left.ts - INTERVAL '1' SECOND > right.ts")[0].type == Type(
        "timestamp", 6, -(2**63) - 10**6, 2**63 - 1 - 10**6
    )
    assert compared("INTERVAL '1' SECOND + zoned > zoned")[0].type.tz


def test_times_do_not_mix_with_numbers_or_across_time_zones():
    refused("left.ts - right.ts > 5", "left.ts - right.ts > 5", "is interval and 5 is int", "compared")
    refused("left.ts > 5", "left.ts > 5", "left.ts is timestamp[us] and 5 is int")
    refused("day = 5", "day = 5", "left.day is date and 5 is int")
    refused("left.ts + 1 > right.ts", "left.ts + 1", "added", "timestamp + interval")
    refused("left.ts + right.ts > right.ts", "left.ts + right.ts", "added")
    refused("INTERVAL '1' HOUR - day = day", "INTERVAL '1' HOUR - day", "subtracted")
    refused("day + 0.5 = day", "day + 0.5", "added", "date + int")
    refused(
        "(left.ts - right.ts) / 2 = INTERVAL 1 SECOND",
        "left.ts - right.ts) / 2",
        "divided",
        "number / number",
    )
    refused("f * INTERVAL '1' HOUR = INTERVAL 1 HOUR", "f * INTERVAL '1' HOUR", "interval * exact number")
    refused("-left.ts = left.ts", "left.ts", "number or an interval", "timestamp")
    refused("FLOOR(left.ts) = 1", "FLOOR(left.ts)", "FLOOR needs a number")
    refused("SQRT(day) = 1", "SQRT(day)", "SQRT needs a number")
    refused(
        "zoned = left.ts", "zoned = left.ts",
        "left.zoned is timestamp[ms, tz] (with a time zone)", "left.ts is timestamp[us] (without)",
    )  # fmt: skip
    refused("zoned - left.ts = INTERVAL 1 DAY", "zoned - left.ts", "time zone", "subtracted")
    refused("zoned = day", "zoned = day", "left.day is date (without)")
    refused("zoned = '2020-01-01'", "zoned = '2020-01-01'", "+00:00")
    refused("left.ts = '2020-01-01 00:00:00Z'", "left.ts = '2020-01-01 00:00:00Z'", "with a time zone")


# --- conditions


def test_conditions_become_few_operations():
    low, high = Call("ge", (X, exact(1)), BOOL), Call("le", (X, exact(5)), BOOL)
    assert parse("x BETWEEN 1 AND 5") == Call("and", (low, high), BOOL)
    assert parse("x NOT BETWEEN 1 AND 5") == Call("not", (Call("and", (low, high), BOOL),), BOOL)
    assert parse("ok AND (x BETWEEN 1 AND 5 AND ok)") == Call("and", (OK, low, high, OK), BOOL)
    equal = [Call("eq", (X, exact(i)), BOOL) for i in (1, 2)]
    assert parse("x IN (1, 2)") == Call("or", tuple(equal), BOOL)
    assert parse("x IN (1)") == equal[0]
    assert parse("x NOT IN (1, 2)") == Call("not", (Call("or", tuple(equal), BOOL),), BOOL)
    assert parse("ok OR x = 1 OR x IN (2)") == Call("or", (OK, *equal), BOOL)
    assert parse("x IN (1, NULL)").args[1] == Call("eq", (X, Literal(None, signed(32))), BOOL)
    assert parse("NOT ok") == Call("not", (OK,), BOOL)
    assert parse("x <> 1 AND x != 1").args == (Call("ne", (X, exact(1)), BOOL),) * 2
    assert parse("a < x").op == "lt" and parse("a > x").op == "gt"


def test_tests_for_null_truth_and_distinctness():
    assert parse("x IS NULL") == Call("is_null", (X,), BOOL)
    assert parse("x IS NOT NULL") == Call("not", (Call("is_null", (X,), BOOL),), BOOL)
    is_true = Call("coalesce", (OK, Literal(False, BOOL)), BOOL)
    assert parse("ok IS TRUE") == is_true
    assert parse("ok IS NOT TRUE") == Call("not", (is_true,), BOOL)
    assert parse("ok IS FALSE") == Call("coalesce", (Call("not", (OK,), BOOL), Literal(False, BOOL)), BOOL)
    assert parse("x IS DISTINCT FROM a") == Call("is_distinct", (X, A), BOOL)
    assert parse("x IS NOT DISTINCT FROM a") == Call("not", (Call("is_distinct", (X, A), BOOL),), BOOL)
    assert parse("x = a IS TRUE") == Call("coalesce", (Call("eq", (X, A), BOOL), Literal(False, BOOL)), BOOL)
    refused("x IS TRUE", "x", "needs a condition")
    refused("x IS 5", "x IS 5", "DISTINCT FROM")


def test_like():
    assert parse("left.name LIKE 'a%'") == Call("like", (NAME, Literal("a%", STRING)), BOOL)
    assert parse("left.name NOT LIKE 'a%'") == Call("not", (parse("left.name LIKE 'a%'"),), BOOL)
    escaped = (NAME, Literal("a!%", STRING), Literal("!", STRING))
    assert parse("left.name LIKE 'a!%' ESCAPE '!'") == Call("like", escaped, BOOL)
    assert parse("left.name NOT LIKE 'a!%' ESCAPE '!'") == Call("not", (Call("like", escaped, BOOL),), BOOL)
    assert parse("left.name LIKE NULL") == Literal(None, BOOL)
    refused("x LIKE 'a'", "x LIKE 'a'", "LIKE compares strings, but left.x is int")
    refused("left.name LIKE right.name", "left.name LIKE right.name", "string literals")
    refused("left.name LIKE 'a!' ESCAPE '!'", "left.name LIKE 'a!' ESCAPE '!'", "ends with its escape")
    assert parse("left.name LIKE 'a!!' ESCAPE '!'").op == "like"
    refused("left.name LIKE 'a' ESCAPE 'xy'", "left.name LIKE 'a' ESCAPE 'xy'", "one character")
    refused("left.name ILIKE 'a'", "ILIKE", "ILIKE is not supported; write LOWER(left.name) LIKE")


def test_comparisons_within_one_sort_only():
    assert compared("ok = flag") == (OK, Column("right", "flag", BOOL))
    assert compared("left.name < right.name") == (NAME, Column("right", "name", STRING))
    refused("x = 'abc'", "x = 'abc'", "left.x is int and 'abc' is string: they cannot be compared")
    refused("ok AND left.name = x", "left.name = x", "left.name is string and left.x is int")
    refused("blob = 'a'", "blob = 'a'", "left.blob is binary")
    refused("ok = 1", "ok = 1", "left.ok is bool and 1 is int")
    refused("x < a < u", "x < a < u", "left.x < right.a is bool and right.u is int")
    refused("x IN (1, 'b')", "x IN (1, 'b')", "'b' is string")
    refused("ok + 1 = 2", "ok + 1", "left.ok is bool", "added")
    refused("left.name * 2 = 2", "left.name * 2", "multiplied")
    refused("ABS(left.name) = 2", "ABS(left.name)", "ABS needs a number")
    refused("CAST(left.name AS DOUBLE) = 2", "left.name", "CAST to a float needs a number")
    refused("CAST(x AS HUGEINT) = 2", "x", "CAST to INT128 is not supported", "DOUBLE, REAL, TINYINT")


def test_nulls_and_constants():
    assert parse("TRUE") == Literal(True, BOOL)
    assert parse("NULL") == Literal(None, BOOL)
    assert parse("1 = 1.0") == Literal(True, BOOL)
    assert parse("DATE '2020-01-01' > DATE '2020-01-02'") == Literal(False, BOOL)
    assert parse("x = NULL") == Call("eq", (X, Literal(None, signed(32))), BOOL)
    assert parse("left.name = NULL").args[1] == Literal(None, STRING)
    assert parse("ok AND NULL") == Call("and", (OK, Literal(None, BOOL)), BOOL)
    every_null = (
        "NULL = NULL OR -NULL IS NULL OR LEAST(NULL, NULL) = ABS(NULL) OR CASE WHEN ok THEN NULL END IS NULL"
    )
    assert all(node.type != NULL for node in walk(parse(every_null)))


# --- errors of the text as a whole


def test_only_conditions_are_predicates():
    refused("x + 1", "x + 1", "the predicate needs a condition, but left.x + 1 is int")
    refused("ok OR x", "x", "OR needs a condition, but left.x is int")
    refused("NOT x", "x", "NOT needs a condition")


@pytest.mark.parametrize("text", ["", "  \n", "-- nothing", ";"])
def test_an_empty_predicate_is_refused(text):
    with pytest.raises(PredicateError, match="empty"):
        parse(text)


def test_syntax_errors_show_their_place():
    refused("x = = 1", "=", "not valid SQL", "something is missing at '='")
    with pytest.raises(PredicateError) as caught:
        parse("x = = 1")
    assert caught.value.start == 4
    refused("x =", "=", "missing")
    refused("(x = 1", "1", "expecting )")
    refused("x = 1 y", "y", "'y' is not expected here")
    refused("x = 1\nAND AND ok", "AND", "missing")
    with pytest.raises(PredicateError) as caught:
        parse("x = 1\nAND AND ok")
    assert caught.value.start == 10
    assert str(caught.value).endswith("\n  AND AND ok\n      ^^^")
    refused("left.name = 'abc", "'abc", "unterminated")
    refused('"a" = 1 AND "b', '"b', "unterminated")
    refused("x = 1; ok", ";", "several conditions")
    refused("SELECT 1", "SELECT", "not expected")
    assert parse("x = 1;") == parse("x = 1") == parse("x /* one */ = 1 -- two")


def test_what_sql_has_and_predicates_have_not():
    for text in ("x IN (SELECT 1)", "EXISTS (SELECT 1)", "(SELECT 1) = x", "x = ANY (SELECT 1)"):
        refused(text, "SELECT", "subqueries are not supported", "one left and one right tuple")
    refused("ok AND SUM(x) > 1", "SUM(x)", "aggregate SUM is not supported")
    refused("COUNT(*) > 1", "COUNT(*)", "aggregate COUNT is not supported")
    refused("ROW_NUMBER() OVER () > 1", "ROW_NUMBER", "window functions are not supported")
    refused("* = 1", "*", "not a column")
    refused("left.* = 1", "left.*", "not a column")
    refused("x << 1 = 1", "x << 1", "BITWISE LEFT SHIFT is not supported", "allowed: + - * / % ||")
    refused("x BETWEEN SYMMETRIC 1 AND 2", "x BETWEEN SYMMETRIC 1 AND 2", "SYMMETRIC")
    refused("x IN ()", "x", "IN needs a list")
    refused("x = ?", "x", "? is not supported")


def test_unknown_functions_and_wrong_argument_counts():
    refused("x > 1 AND foo(x) = 1", "foo(x)", "unknown function foo", *FUNCTIONS)
    refused("LOWWER(left.name) = 'a'", "LOWWER(left.name)", "unknown function LOWWER; did you mean 'LOWER'?")
    refused("LEFT(name, 2) = 'ab'", "LEFT(name, 2)", "there is no function LEFT; write SUBSTRING(x, 1, n)")
    refused("TRY_CAST(x AS INT) = 1", "TRY_CAST(x AS INT)", "unknown function TRY_CAST")
    refused("ABS(x, a) = 1", "ABS(x, a)", "ABS takes 1 argument, 2 given")
    refused("SQRT() = 1", "SQRT", "SQRT takes 1 argument, 0 given")
    refused("POWER(x) = 1", "POWER(x)", "POWER takes 2 arguments, 1 given")
    refused("COALESCE() = 1", "COALESCE", "COALESCE takes 1 argument or more, 0 given")


def test_predicate_errors_are_spec_errors():
    with pytest.raises(SpecError, match=re.escape("  left.z = 1\n       ^")):
        parse("left.z = 1")


def test_long_predicates_parse_and_deep_ones_are_refused():
    assert len(parse(" AND ".join(["x = a"] * 3000)).args) == 3000
    assert len(parse(" OR ".join(["x = a"] * 3000)).args) == 3000
    assert len(parse(f"x IN ({', '.join(map(str, range(5000)))})").args) == 5000
    with pytest.raises(PredicateError, match="nested too deeply"):
        parse("(" * 3000 + "ok" + ")" * 3000)
    with pytest.raises(PredicateError, match=r"129 operations .* at most 128"):
        parse(" + ".join(["y"] * 3000) + " = 1")


def test_float_literals_are_finite():
    for text in (
        "f = 1e308",
        "y = 3.4e38",
        "y = 3.5e38",
        "y = 0.00000000000000000000000000000000000000000000001",
    ):
        literals = [node.value for node in walk(parse(text)) if isinstance(node, Literal)]
        assert all(isinstance(value, float) and math.isfinite(value) for value in literals)


# --- properties


def sort_of(kind):
    """Arguments of one operation agree in this."""
    return ("exact", kind.scale) if kind.is_exact else kind.name


def keeps_the_contract(call):
    """Whether the arguments of a call are as `streamjoin.semantics.expressions` promises."""
    sorts = [sort_of(arg.type) for arg in call.args]
    if call.op == "mul" and call.type.is_exact:
        return call.type.scale == sum(arg.type.scale for arg in call.args)
    if call.op in ("add", "sub", "mul", "mod", "div", "neg", "abs", "least", "greatest", "coalesce"):
        return set(sorts) == {sort_of(call.type)} and (call.op != "div" or call.type.is_float)
    if call.op in ("length", "substring", "trim", "ltrim", "rtrim", "lower", "upper", "concat"):
        return sorts[0] in ("string", "binary") and (call.op == "length" or call.type.name == sorts[0])
    if call.op.startswith(("trunc_", "extract_")):
        return call.type.is_exact and call.args[0].type.is_exact
    if call.op == "rounddiv":
        return call.type.scale == call.args[0].type.scale - call.args[1].type.scale
    if call.op in ("floor", "ceil", "round"):
        return call.type.name == ("int" if call.args[0].type.is_exact else sorts[0])
    if call.op in ("sqrt", *libm.NAMES):
        return {*sorts, call.type.name} == {"float64"}
    if call.op == "cast":
        return call.type.is_float and call.args[0].type.is_number
    if call.op == "case":
        return {*sorts[1::2], sorts[-1]} == {sort_of(call.type)} and set(sorts[:-1:2]) <= {"bool"}
    if call.op in ("and", "or", "not"):
        return set(sorts) == {"bool"}
    return call.type == BOOL and "null" not in sorts and len(set(sorts)) == 1


@given(strategies.specs(min_rows=1, max_rows=3))
def test_trees_keep_their_contract_and_their_ranges(join):
    spec, left, right = join
    for node in walk(spec.predicate):
        assert not isinstance(node, Call) or keeps_the_contract(node), to_sql(node)
        for l, r in itertools.product(oracle.table_rows(left), oracle.table_rows(right)):
            value = oracle.evaluate(node, l, r)
            if node.type.is_exact and value is not None:
                assert node.type.lo <= value <= node.type.hi, to_sql(node)


@given(st.integers(-(10**30), 10**30), st.integers(0, 12))
def test_decimal_literals_round_once(value, scale):
    digits = f"{abs(value):0{scale + 1}}"
    text = (
        ("-" if value < 0 else "") + digits[: len(digits) - scale] + ("." + digits[-scale:] if scale else "")
    )
    assert compared(f"f = {text}")[1].value == float(text)
    near = compared(f"y = {text}")[1].value
    distances = [
        abs(Fraction(float(candidate)) - Fraction(text))
        for candidate in (
            np.float32(near),
            *(np.nextafter(np.float32(near), np.float32(to)) for to in (-np.inf, np.inf)),
        )
    ]
    assert distances[0] == min(distances)


@given(
    st.datetimes(timezones=st.none() | st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m))))
)
def test_timestamps_mean_what_datetime_says(moment):
    column = "left.ts" if moment.tzinfo is None else "zoned"
    literal = compared(f"{column} = '{moment.isoformat(sep=' ')}'")[1]
    since_epoch = moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo and UTC)
    assert Fraction(literal.value, 10**literal.type.scale) == Fraction(
        since_epoch // timedelta(microseconds=1), 10**6
    )
    assert literal.type.tz == (moment.tzinfo is not None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x < 1e", r"1e is not a number; write it like 5, 0.5 or 1e3"),
        ("x < 1" + "0" * 5000, r"5001 characters\) needs more than 128 bits"),
        ("x < 0." + "3" * 5000, r"5002 characters\) needs more than 128 bits; write it in floating point"),
        ("x < 1" + "0" * 5000 + "e1", r"exceeds the range of float64"),
        ("name = '\ud800'", r"contains '.ud800', half of a surrogate pair"),
        ("{: 75 LIKE 3}", r"is not valid SQL"),
        ("NOT " * 400 + "ok", r"nested too deeply; at most 32 levels"),
        ("ABS(" * 400 + "x" + ")" * 400 + " = 1", r"nested too deeply; at most 32 levels"),
        ("CASE WHEN ok THEN " * 400 + "ok" + " END" * 400, r"nested too deeply; at most 32 levels"),
        ("x = " + "- " * 400 + "1", r"operations are nested here|nested too deeply"),
    ],
)
def test_text_that_trips_parsers_is_refused_in_a_sentence(text, said):
    with pytest.raises(PredicateError, match=said) as error:
        parse(text)
    assert len(str(error.value)) < 1_200


def test_an_error_shows_the_place_and_not_a_long_text():
    text = "left.name = '" + "a" * 200_000 + "' AND x = nowhere AND left.name <> '" + "b" * 200_000 + "'"
    with pytest.raises(PredicateError, match="unknown column 'nowhere'") as error:
        parse(text)
    _, line, carets = str(error.value).split("\n")
    assert line[carets.index("^") : carets.rindex("^") + 1] == "nowhere"
    assert len(line) < 250
    assert line.startswith("  ... ")
    assert line.endswith(" ...")
    assert error.value.text == text


@pytest.mark.parametrize(
    "text", ["k + '" + "a" * 200_000 + "' < 3", "x." + "q" * 200_000 + " = 3", "q" * 200_000 + " = 3"]
)
def test_an_error_does_not_repeat_long_names_and_literals(text):
    with pytest.raises(PredicateError) as error:
        parse(text)
    assert len(str(error.value)) < 1_200


def test_a_long_sum_of_integers_is_a_shallow_tree_of_the_same_value():
    tree = parse(" - ".join(["x"] * 101) + " + a = 0")
    assert isinstance(tree, Call)
    assert tree.depth < 16
    row = {"x": 3, "a": 5, "k": None}
    assert oracle.evaluate(tree.args[0], row, row) == 3 - 100 * 3 + 5
