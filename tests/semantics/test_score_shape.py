"""Which scores of nearest joins can be searched, and by which keys."""

from __future__ import annotations

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.score_shape import ScoreShape, shape_of

SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us"), "i": pa.int32(), "n": pa.int64(), "u": pa.uint64(), "f": pa.float64(),
        "g": pa.float32(), "d": pa.decimal128(9, 2),
    }
)  # fmt: skip


def shape(by: str, largest: bool = False) -> ScoreShape | None:
    keep = sj.Nearest(by, largest=largest)
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "TRUE", sj.TimeWindow("1 s"), "ts", "ts", keep=keep)
    assert spec.score is not None
    return shape_of(spec.score, largest)


def text(by: str, largest: bool = False) -> tuple[str, str | None, bool, int, int]:
    found = shape(by, largest)
    assert found is not None
    target = None if found.target is None else to_sql(found.target)
    return to_sql(found.key), target, found.turns, found.key_sign, found.target_sign


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("abs(left.i - right.i)", ("right.i", "left.i", True, 1, 1)),
        ("abs(right.i - left.i)", ("right.i", "left.i", True, 1, 1)),
        ("abs(left.i + right.i)", ("right.i", "-left.i", True, 1, 1)),
        ("3 * abs(left.i - right.i) - 5", ("right.i", "left.i", True, 1, 1)),
        ("abs(left.f - right.f)", ("right.f", "left.f", True, 1, 1)),
        ("abs(right.f - left.f)", ("right.f", "left.f", True, 1, 1)),
        ("abs(left.f + right.f)", ("right.f", "left.f", True, -1, 1)),
        ("abs(-(right.f + left.f))", ("right.f", "left.f", True, -1, 1)),
        ("right.f", ("right.f", None, False, 1, 1)),
        ("-right.f", ("right.f", None, False, -1, 1)),
        ("left.f - right.f", ("right.f", "left.f", False, -1, 1)),
        ("right.f - left.f", ("right.f", "left.f", False, 1, -1)),
        ("left.n - right.n", ("right.n", "left.n", False, -1, 0)),
        ("right.n - left.n", ("right.n", "left.n", False, 1, 0)),
    ],
)
def test_scores_that_turn_or_rise(by, expected):
    assert text(by) == expected


def test_the_largest_score_reverses_keys():
    assert text("right.n", True) == ("right.n", None, False, -1, 1)
    assert text("-right.n", True) == ("right.n", None, False, 1, 1)
    assert text("-abs(left.i - right.i)", True) == ("right.i", "left.i", True, 1, 1)
    assert text("left.g - right.g", True) == ("right.g", "left.g", False, 1, -1)


@pytest.mark.parametrize(
    "by",
    [
        "abs(left.i - right.i + 7)", "abs(left.ts - right.ts)", "abs(left.d - right.i)", "abs(left.i - right.d)",
        "abs(left.n - right.i)", "abs(left.i - 2 * right.i)", "abs(right.i - 5)", "abs(left.i - right.f)",
    ],
)  # fmt: skip
def test_constants_scales_and_types_may_differ(by):
    assert shape(by) is not None


@pytest.mark.parametrize(
    "by",
    [
        "left.i * right.i", "abs(left.f - right.f + 1)", "abs(left.f - right.f) * 2", "left.f", "abs(left.i)",
        "abs(left.u - right.u)", "abs(left.i - right.i) + right.n", "abs(abs(left.i - right.i) - 3)",
        "greatest(left.i, right.i)", "abs(left.i - right.i + left.n - left.n)",
    ],
)  # fmt: skip
def test_other_scores_are_scored(by):
    assert shape(by) is None


@pytest.mark.parametrize("by", ["abs(left.i - right.i)", "abs(left.f - right.f)"])
def test_the_farthest_rows_are_not_searched(by):
    assert shape(by, largest=True) is None
