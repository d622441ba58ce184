"""The split of a predicate: one band for all spellings, and never a pair gained or lost."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamjoin.semantics.analysis import AccessPath, Band, analyse, describe
from streamjoin.semantics.expressions import Call, Column, Expr, Literal, Solve
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.sql import parse_predicate
from streamjoin.semantics.types import (
    BOOL,
    FLOAT64,
    signed,
)

LEFT = pa.schema(
    [
        ("x", pa.int32()), ("y", pa.int32()), ("big", pa.int64()), ("price", pa.decimal128(10, 2)),
        ("huge", pa.decimal128(38, 0)), ("ts", pa.timestamp("ms")), ("day", pa.date32()),
        ("f", pa.float64()), ("f4", pa.float32()), ("sym", pa.string()), ("flag", pa.bool_()),
    ]
)  # fmt: skip
RIGHT = pa.schema(
    [
        ("a", pa.int32()), ("b", pa.int32()), ("wide", pa.int64()), ("cost", pa.decimal128(10, 3)),
        ("tol", pa.int16()), ("at", pa.timestamp("us")), ("g", pa.float64()), ("h", pa.float64()),
        ("g4", pa.float32()), ("name", pa.string()), ("on_", pa.bool_()),
        ("m", pa.decimal128(38, 0)), ("n", pa.decimal128(38, 0)),
    ]
)  # fmt: skip


def split(text: str, stored: str = "left") -> AccessPath:
    return analyse(parse_predicate(text, LEFT, RIGHT)).for_window(stored)


def shown(path: AccessPath) -> list[str]:
    """Clauses as text, key first, then lo and hi; the residual comes last."""

    def bound(expr: Expr | None) -> str:
        return "-" if expr is None else to_sql(expr)

    lines = [
        " | ".join(f"{to_sql(band.key)} in [{bound(band.lo)}, {bound(band.hi)}]" for band in clause.bands)
        for clause in path.clauses
    ]
    return lines + ([f"residual {to_sql(path.residual)}"] if path.residual is not None else [])


# ---- literal cases


BAND_SPELLINGS = [
    "left.x BETWEEN right.a - 10 AND right.a + 10",
    "right.a BETWEEN left.x - 10 AND left.x + 10",
    "abs(left.x - right.a) <= 10",
    "abs(right.a - left.x) < 11",
    "10 >= abs(left.x - right.a)",
    "NOT (abs(left.x - right.a) > 10)",
    "right.a >= left.x - 10 AND left.x >= right.a - 10",
    "NOT (left.x < right.a - 10) AND NOT (left.x > right.a + 10)",
    "NOT (left.x < right.a - 10 OR left.x > 10 + right.a)",
    "left.x > right.a - 11 AND left.x < right.a + 11",
    "-left.x <= 10 - right.a AND -10 <= right.a - left.x",
    "2 * left.x <= 2 * right.a + 21 AND 3 * left.x - 3 * right.a >= -32",
    "2 * abs(left.x - right.a) + 5 <= 25",
    "abs(left.x - right.a) - 10 <= 0 AND left.x <= right.a + 10",
    "abs(left.x * 1.0 - right.a) <= 10.05",
    "left.x - right.a BETWEEN -10 AND 10",
]


@pytest.mark.parametrize("text", BAND_SPELLINGS)
def test_every_spelling_of_a_band_gives_the_same_band(text):
    assert shown(split(text)) == ["left.x in [right.a - 10, right.a + 10]"]
    assert shown(split(text, "right")) == ["right.a in [left.x - 10, left.x + 10]"]
    assert split(text) == split(BAND_SPELLINGS[0])
    assert split(text, "right") == split(BAND_SPELLINGS[0], "right")


def test_the_key_of_one_column_is_that_column():
    (clause,) = split("2 * left.x <= right.a").clauses
    assert clause.bands[0].key == Column("left", "x", signed(32))


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("left.x < right.a", "left.x in [-, right.a - 1]", "right.a in [left.x + 1, -]"),
        ("left.x = right.a", "left.x in [right.a, right.a]", "right.a in [left.x, left.x]"),
        (
            "left.x <= right.a AND right.a <= left.x",
            "left.x in [right.a, right.a]",
            "right.a in [left.x, left.x]",
        ),
        (
            "NOT left.x <> right.a + 1",
            "left.x in [right.a + 1, right.a + 1]",
            "right.a in [left.x - 1, left.x - 1]",
        ),
        (
            "left.x <> right.a",
            "left.x in [-, right.a - 1] | left.x in [right.a + 1, -]",
            "right.a in [left.x + 1, -] | right.a in [-, left.x - 1]",
        ),
        ("2 * left.x <= right.a", "left.x in [-, FLOORDIV(right.a, 2)]", "right.a in [left.x * 2, -]"),
        ("right.a < 3 * left.x", "left.x in [CEILDIV(right.a + 1, 3), -]", "right.a in [-, left.x * 3 - 1]"),
        (
            "2 * left.x = right.a",
            "left.x in [{0}, {0}]".format(
                "CASE WHEN right.a % 2 = 0 THEN FLOORDIV(right.a, 2) ELSE NULL END"
            ),
            "right.a in [left.x * 2, left.x * 2]",
        ),
        ("left.x + left.y <= right.a", "left.x + left.y in [-, right.a]", "right.a in [left.x + left.y, -]"),
        ("right.a >= 2 * left.y - 2 * left.x", "left.x - left.y in [CEILDIV(-right.a, 2), -]", None),
        (
            "left.x + right.a = 5",
            "left.x in [5 - right.a, 5 - right.a]",
            "right.a in [5 - left.x, 5 - left.x]",
        ),
        ("abs(left.x) <= right.a", "ABS(left.x) in [-, right.a]", "right.a in [ABS(left.x), -]"),
        (
            "abs(left.x - right.a) >= 10",
            "left.x in [right.a + 10, -] | left.x in [-, right.a - 10]",
            "right.a in [-, left.x - 10] | right.a in [left.x + 10, -]",
        ),
        (
            "abs(left.x - right.a) <= right.tol",
            "left.x in [right.a - right.tol, right.a + right.tol]",
            "right.a + right.tol in [left.x, -]",
        ),
        (
            "left.x IN (right.a, right.b)",
            "left.x in [right.a, right.a] | left.x in [right.b, right.b]",
            "right.a in [left.x, left.x] | right.b in [left.x, left.x]",
        ),
        (
            "left.x BETWEEN right.a - 1 AND right.a + 1 OR left.y = right.b OR left.x <> right.b",
            "left.x in [right.a - 1, right.a + 1] | left.y in [right.b, right.b]"
            " | left.x in [-, right.b - 1] | left.x in [right.b + 1, -]",
            None,
        ),
        ("left.x >= right.a AND left.x >= right.b", "left.x in [MAX(right.a, right.b), -]", None),
        ("left.price <= right.cost", "left.price in [-, FLOORDIV(right.cost, 1.0)]", None),
        (
            "left.price <= right.a",
            "left.price in [-, right.a * 1.00]",
            "right.a in [CEILDIV(left.price, 1.00), -]",
        ),
        (
            "left.ts BETWEEN right.at - INTERVAL '5' SECOND AND right.at",
            "left.ts in [CEILDIV(right.at - INTERVAL '5.000000' SECOND, 1.000), FLOORDIV(right.at, 1.000)]",
            "right.at in [left.ts * 1.000, left.ts * 1.000 + INTERVAL '5.000000' SECOND]",
        ),
    ],
)
def test_atoms(text, left, right):
    path = split(text)
    assert path.residual is None
    assert shown(path)[0] == left
    if right is not None:
        assert shown(split(text, "right"))[0] == right


def test_two_dimensions_give_two_bands():
    path = split("abs(left.x - right.a) <= 10 AND left.y BETWEEN right.b - 10 AND right.b + 10")
    assert shown(path) == ["left.x in [right.a - 10, right.a + 10]", "left.y in [right.b - 10, right.b + 10]"]


def test_manhattan_distance_gives_the_two_diagonals():
    path = split("abs(left.x - right.a) + abs(left.y - right.b) <= 10")
    assert shown(path) == [
        "left.x + left.y in [right.a + right.b - 10, right.a + right.b + 10]",
        "left.x - left.y in [right.a - right.b - 10, right.a - right.b + 10]",
    ]


def test_abs_equal_is_a_band_and_its_outside():
    assert shown(split("abs(left.x - right.a) = 10")) == [
        "left.x in [right.a - 10, right.a + 10]",
        "left.x in [right.a + 10, -] | left.x in [-, right.a - 10]",
    ]
    assert len(split("abs(left.x - right.a) <> 10").clauses[0].bands) == 3


def test_equalities_come_first_and_survive_other_conditions_on_their_key():
    path = split("left.y < right.b AND left.x <= right.b AND left.x = right.a AND left.x = right.a")
    assert shown(path) == [
        "left.x in [right.a, right.a]",
        "left.y in [-, right.b - 1]",
        "left.x in [-, right.b]",
    ]
    assert [clause.is_equality for clause in path.clauses] == [True, False, False]


def test_dates_compare_as_days():
    text = "left.day = right.at"
    assert shown(split(text))[0].endswith("FLOORDIV(right.at, 86400.000000) ELSE NULL END]")
    assert shown(split(text, "right")) == ["right.at in [{0}, {0}]".format("left.day * 86400.000000")]


def test_strings_are_hashed_and_compared_again():
    path = split("left.sym = right.name AND left.x = right.a")
    assert shown(path) == [
        "HASH64(left.sym) in [HASH64(right.name), HASH64(right.name)]",
        "left.x in [right.a, right.a]",
        "residual left.sym = right.name",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "left.x = 5",
        "right.a > 3 AND left.x < 7",
        "left.x * right.a <= 10",
        "left.x IS NOT DISTINCT FROM right.a",
        "left.flag = right.on_",
        "left.sym < right.name",
        "left.huge = right.a",
        "left.x - left.x <= right.a",
        "0 * left.x + left.x - right.a - left.x + right.a <= 3",
        "left.x = right.a OR left.y = 3",
        "NOT (left.f = right.g)",
        "left.f * right.g <= 3e0",
        "left.f + right.g - left.f4 <= 3e0",
        "left.f - coalesce(right.g, 0e0) <= 3e0",
        "greatest(left.x, right.a) <= 3",
    ],
)
def test_what_has_no_key_is_residual(text):
    predicate = parse_predicate(text, LEFT, RIGHT)
    assert analyse(predicate).left == AccessPath("left", (), predicate)


def test_a_key_wider_than_64_bits_is_residual_for_its_own_window_only():
    text = "left.big + left.x <= right.wide"
    assert split(text).clauses == ()
    assert shown(split(text, "right")) == ["right.wide in [left.big + left.x, -]"]


def test_bounds_beyond_128_bits_are_residual():
    assert shown(split("left.x <= right.m")) == ["left.x in [-, right.m]"]
    assert split("left.x + right.n <= right.m").clauses == ()


def test_a_disjunct_with_more_than_a_band_leaves_the_whole_as_residual():
    text = "left.x = right.a AND left.y = right.b OR left.x = right.b"
    assert shown(split(text)) == [
        "left.x in [right.a, right.a] | left.x in [right.b, right.b]",
        f"residual {text}",
    ]
    text = "left.x = right.a AND left.f * right.g < 1.0 OR left.x = right.b"
    assert shown(split(text)) == [
        "left.x in [right.a, right.a] | left.x in [right.b, right.b]",
        f"residual {text}",
    ]


def test_separated_floats_need_no_search():
    assert shown(split("left.f <= right.g AND left.f > right.h")) == ["left.f in [NEXT_UP(right.h), right.g]"]
    assert shown(split("left.f = right.g")) == ["left.f in [right.g, right.g]"]
    assert shown(split("left.f <> right.g")) == [
        "left.f in [-, NEXT_DOWN(right.g)] | left.f in [NEXT_UP(right.g), -]"
    ]
    assert shown(split("NOT (left.f < right.g)")) == ["NAN_TO(left.f, inf) in [NAN_TO(right.g, -inf), -]"]


@pytest.mark.parametrize("text", ["abs(left.f - right.g) <= 10", "left.f - right.g BETWEEN -10 AND 10"])
def test_float_differences_are_solved_by_search(text):
    path = split(text)
    (clause,) = path.clauses
    (band,) = clause.bands
    variable = Column("left", "<key>", FLOAT64)
    difference = Call("sub", (variable, Column("right", "g", FLOAT64)), FLOAT64)
    at_least, at_most = (
        Call(op, (difference, Literal(v, FLOAT64)), BOOL) for op, v in (("ge", -10.0), ("le", 10.0))
    )
    assert band == Band(
        Column("left", "f", FLOAT64), Solve(variable, at_least, "lo"), Solve(variable, at_most, "hi")
    )
    assert path.residual is None


def test_float_bounds_with_constants_share_the_key_below_them():
    (clause,) = split("left.f BETWEEN right.g - 10 AND right.g + 10", "right").clauses
    (band,) = clause.bands
    assert band.key == Column("right", "g", FLOAT64)
    assert isinstance(band.lo, Solve)
    assert isinstance(band.hi, Solve)


@pytest.mark.parametrize("text", ["left.f4 = right.g", "left.f + 1 = right.g", "right.g = 2 * left.f"])
def test_separated_float_equalities_stay_equalities_in_both_windows(text):
    for stored in ("left", "right"):
        path = split(text, stored)
        assert [clause.is_equality for clause in path.clauses] == [True]
        assert path.residual is None


def test_a_negated_float_band_keeps_nan_at_both_ends():
    path = split("NOT abs(left.f - right.g) > 10")
    keys = {
        to_sql(band.key): (band.lo is None, band.hi is None)
        for clause in path.clauses
        for band in clause.bands
    }
    assert keys == {"NAN_TO(left.f, -inf)": (True, False), "NAN_TO(left.f, inf)": (False, True)}
    assert path.residual is None


def test_a_float_limit_that_may_be_infinite_is_checked_again():
    assert split("left.f - right.g <= right.h").residual is not None
    assert split("left.f - right.g < right.h").residual is None
    assert split("left.f - right.g <= right.a").residual is None
    assert split("left.f - right.a <= right.h").residual is None
    assert split("left.f4 - right.g4 <= CAST(1e300 AS REAL)").residual is not None


def test_describe_says_it_in_sql():
    predicate = parse_predicate(
        "left.sym = right.name AND abs(left.x - right.a) <= 10 AND left.f - right.g < 2 AND left.f > right.h",
        LEFT,
        RIGHT,
    )
    assert describe(analyse(predicate)) == [
        "left window:",
        "  equality: HASH64(left.sym) = HASH64(right.name)",
        "  interval: left.x BETWEEN right.a - 10 AND right.a + 10",
        "  interval: left.f > right.h AND left.f - right.g < 2.0",
        "  residual: left.sym = right.name",
        "right window:",
        "  equality: HASH64(right.name) = HASH64(left.sym)",
        "  interval: right.a BETWEEN left.x - 10 AND left.x + 10",
        "  interval: left.f - right.g < 2.0",
        "  interval: right.h < left.f",
        "  residual: left.sym = right.name",
    ]


def test_describe_tells_why_a_wide_key_is_no_key():
    schema = pa.schema({"d": pa.decimal128(19, 0), "n": pa.decimal128(18, 0), "u": pa.uint64()})
    said = describe(analyse(parse_predicate("left.d = right.d", schema, schema)))
    assert (
        said[1] == "  residual: left.d = right.d (left.d, right.d: more than 64 bits, which no index holds)"
    )
    for name in "nu":
        analysis = analyse(parse_predicate(f"left.{name} = right.{name}", schema, schema))
        assert describe(analysis)[1:3] == [f"  equality: left.{name} = right.{name}", "  residual: none"]
