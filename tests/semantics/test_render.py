"""Expressions as text: by eye, and back through the parser to the same tree."""

import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.expressions import Call, Column, Literal, Solve
from streamjoin.semantics.render import column_name, to_sql
from streamjoin.semantics.sql import parse_predicate
from streamjoin.semantics.types import (
    BINARY,
    BOOL,
    DATE,
    FLOAT32,
    FLOAT64,
    STRING,
    Type,
    integer,
    signed,
    timestamp,
)

LEFT = pa.schema(
    {
        "x": pa.int32(), "n": pa.int64(), "y": pa.float32(), "f": pa.float64(), "ts": pa.timestamp("us"),
        "day": pa.date32(), "name": pa.string(), "ok": pa.bool_(), "price": pa.decimal128(10, 2),
        "blob": pa.binary(), "Odd name": pa.int8(), "select": pa.int8(),
    }
)  # fmt: skip
RIGHT = pa.schema(
    {
        "a": pa.int32(), "u": pa.uint16(), "b": pa.float32(), "g": pa.float64(), "ts": pa.timestamp("us"),
        "day": pa.date32(), "name": pa.string(), "flag": pa.bool_(), "bid": pa.decimal128(12, 4),
    }
)  # fmt: skip
X, A = Column("left", "x", signed(32)), Column("right", "a", signed(32))
Y = Column("left", "y", FLOAT32)
OK = Column("left", "ok", BOOL)


def call(op, *args, kind=None):
    return Call(op, args, kind or args[0].type)


def test_parentheses_only_where_the_tree_needs_them():
    product = call("mul", X, A)
    assert to_sql(call("add", product, X)) == "left.x * right.a + left.x"
    assert to_sql(call("mul", call("add", X, A), X)) == "(left.x + right.a) * left.x"
    assert to_sql(call("sub", X, call("sub", A, X))) == "left.x - (right.a - left.x)"
    assert to_sql(call("sub", call("sub", X, A), X)) == "left.x - right.a - left.x"
    assert to_sql(call("neg", call("neg", X))) == "-(-left.x)"
    assert to_sql(call("neg", Literal(-5, integer(-5, -5)))) == "-(-5)"
    equal = call("eq", X, A, kind=BOOL)
    assert to_sql(call("eq", equal, OK)) == "(left.x = right.a) = left.ok"
    assert to_sql(call("or", call("and", OK, equal), OK)) == "left.ok AND left.x = right.a OR left.ok"
    assert to_sql(call("and", call("or", OK, equal), OK)) == "(left.ok OR left.x = right.a) AND left.ok"
    assert to_sql(call("not", call("not", equal))) == "NOT NOT (left.x = right.a)"
    assert to_sql(call("is_null", equal, kind=BOOL)) == "(left.x = right.a) IS NULL"


def test_bounds_of_one_value_print_as_between():
    low, high = call("ge", X, A, kind=BOOL), call("le", X, call("add", A, A), kind=BOOL)
    assert to_sql(call("and", OK, low, high)) == "left.ok AND left.x BETWEEN right.a AND right.a + right.a"
    assert to_sql(call("and", high, low)) == "left.x <= right.a + right.a AND left.x >= right.a"


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (Literal(-5, integer(-5, -5)), "-5"),
        (Literal(-5, Type("decimal", 2, -5, -5)), "-0.05"),
        (Literal(500, Type("decimal", 2, 500, 500)), "5.00"),
        (Literal(0.5, FLOAT64), "0.5e0"),
        (Literal(1e30, FLOAT64), "1e+30"),
        (Literal(None, FLOAT64), "NULL"),
        (Literal(True, BOOL), "TRUE"),
        (Literal("it's", STRING), "'it''s'"),
        (Literal(b"\x00\xff", BINARY), "X'00ff'"),
        (Literal(-1, DATE), "DATE '1969-12-31'"),
        (Literal(2**31 - 1, DATE), "(DATE '1970-01-01' + 2147483647)"),
        (Literal(-1, timestamp("ms")), "TIMESTAMP '1969-12-31 23:59:59.999'"),
        (Literal(0, timestamp("s", tz=True)), "TIMESTAMP '1970-01-01 00:00:00+00:00'"),
        (Literal(2**62, timestamp("s")), f"(TIMESTAMP '1970-01-01' + INTERVAL '{2**62}' SECOND)"),
        (Literal(-1500, Type("interval", 3, -1500, -1500)), "INTERVAL '-1.500' SECOND"),
    ],
)
def test_literals(literal, text):
    assert to_sql(literal) == text


def test_float_literals_are_plain_beside_a_float():
    assert to_sql(call("lt", Y, Literal(float.fromhex("0x1.99999a0000000p-4"), FLOAT32))) == "left.y < 0.1"


def test_names_are_quoted_where_sql_asks_for_it():
    assert [column_name(n) for n in ("x", "order", "a b", 'q"q', "1x", "Select", "not", "é")] == [
        "x", "order", '"a b"', '"q""q"', '"1x"', '"Select"', '"not"', '"é"',
    ]  # fmt: skip


def test_operations_of_the_analysis_print_as_functions():
    three = Literal(3, integer(3, 3))
    assert to_sql(call("floordiv", call("sub", X, A), three)) == "FLOORDIV(left.x - right.a, 3)"
    assert (
        to_sql(call("nan_to", call("next_up", Y), Literal(float("inf"), FLOAT32)))
        == "NAN_TO(NEXT_UP(left.y), inf)"
    )
    condition = call("le", Y, Column("right", "b", FLOAT32), kind=BOOL)
    assert to_sql(Solve(Y, condition, "hi")) == "greatest left.y with (left.y <= right.b)"
    assert (
        to_sql(call("add", Solve(Y, condition, "lo"), Y))
        == "(least left.y with (left.y <= right.b)) + left.y"
    )


@pytest.mark.parametrize(
    "text",
    [
        "left.x BETWEEN right.a - 10 AND right.a + 10 AND left.y BETWEEN right.b - 0.5 AND right.b + 0.5",
        "ABS(left.x - right.a) <= 10",
        "left.price * 1.00 < right.bid",
        "left.ts - right.ts <= INTERVAL '300.000000' SECOND",
        "left.ts > TIMESTAMP '2020-01-01 00:00:00.000000'",
        "left.x = 1 OR left.x = 2 OR left.x = NULL",
        "left.x IS NOT DISTINCT FROM right.a AND left.name IS NOT NULL",
        "CASE WHEN left.ok THEN left.y ELSE 0.5 END < right.b",
        "NOT COALESCE(left.ok, FALSE) AND left.name LIKE 'a!%' ESCAPE '!'",
        'left."Odd name" = left."select" + 1',
        "left.f = 1000.0e0 + 2.0e0",
        "left.blob = X'00ff'",
    ],
)
def test_rendered_text_is_a_fixed_point(text):
    assert to_sql(parse_predicate(text, LEFT, RIGHT)) == text


NUMBERS = st.recursive(
    st.sampled_from(
        [
            "left.x",
            "left.n",
            "left.y",
            "left.f",
            "left.price",
            "right.a",
            "right.u",
            "right.b",
            "right.g",
            "right.bid",
        ]
    )
    | st.integers(-(10**6), 10**6).map(str)
    | st.decimals(-100, 100, places=3, allow_nan=False).map(str)
    | st.floats(-1e6, 1e6).map(lambda f: f"{f!r}e0" if "e" not in repr(f) else repr(f)),
    lambda number: (
        st.tuples(number, st.sampled_from("+-*/%"), number).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | number.map(lambda t: f"(- {t})")
        | st.tuples(st.sampled_from(["ABS", "FLOOR", "CEIL", "SQRT"]), number).map(
            lambda t: f"{t[0]}({t[1]})"
        )
        | number.map(lambda t: f"CAST({t} AS DOUBLE)")
        | st.tuples(st.sampled_from(["LEAST", "GREATEST", "COALESCE", "POWER"]), number, number).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        )
        | st.tuples(number, number).map(lambda t: f"CASE WHEN left.ok THEN {t[0]} ELSE {t[1]} END")
    ),
    max_leaves=6,
)
TIMES = st.sampled_from(["left.ts", "right.ts", "TIMESTAMP '2020-01-01 00:00:00.25'"])
GAPS = st.sampled_from(["INTERVAL '5 minutes'", "INTERVAL 250 MILLISECONDS", "(left.ts - right.ts)"])
MOMENTS = TIMES | st.tuples(TIMES, st.sampled_from("+-"), GAPS).map(" ".join)
STRINGS = st.sampled_from(["left.name", "right.name"]) | st.text("a'%\"\\é", max_size=3).map(
    lambda s: "'" + s.replace("'", "''") + "'"
)
COMPARISON = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
CONDITIONS = st.recursive(
    st.one_of(
        *(st.tuples(side, COMPARISON, side).map(" ".join) for side in (NUMBERS, MOMENTS, STRINGS)),
        st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda t: f"{t[0]} BETWEEN {t[1]} AND {t[2]}"),
        st.tuples(NUMBERS, st.lists(NUMBERS, min_size=1, max_size=3)).map(
            lambda t: f"{t[0]} IN ({', '.join(t[1])})"
        ),
        NUMBERS.map(lambda t: f"{t} IS NOT NULL"),
        st.sampled_from(
            [
                "left.ok",
                "right.flag",
                "left.name LIKE '%a_'",
                "(left.name || 'a') LIKE 'b' AND NOT left.name || 'a' < 'b'",
                "CONCAT(left.name, right.name) BETWEEN TRIM(left.name) AND LTRIM(right.name, 'a')",
                "ROUND(left.price, 1) > ROUND(left.price) + 0.5",
                "SIN(0.5) < LN(ROUND(2.5e0, 1))",
                "right.day - left.day < 3",
                "TRUE",
            ]
        ),
    ),
    lambda condition: (
        st.tuples(condition, st.sampled_from(["AND", "OR"]), condition).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        )
        | condition.map(lambda t: f"(NOT {t})")
        | condition.map(lambda t: f"(({t}) IS TRUE)")
        | condition.map(lambda t: f"(({t}) IS NULL)")
    ),
    max_leaves=4,
)


@given(CONDITIONS)
def test_rendered_predicates_parse_to_the_same_tree(text):
    try:
        tree = parse_predicate(text, LEFT, RIGHT)
    except PredicateError as error:
        if "128 bits" not in str(error):
            raise
        reject()  # a random product may exceed what is exact
    assert parse_predicate(to_sql(tree), LEFT, RIGHT) == tree
