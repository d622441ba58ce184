"""`how`, `keep`, intervals and ties by eye: every kind of result row, its result time, its place among the others."""

from __future__ import annotations

import datetime
import doctest
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.semantics import keep, oracle, windows
from streamjoin.semantics.oracle import END_OF_STREAMS
from streamjoin.semantics.windows import Delta, SideWindow

KEYED = pa.schema({"ts": pa.int64(), "k": pa.string()})
PRICED = pa.schema({"ts": pa.int64(), "p": pa.float64()})
CLOCK = pa.schema({"ts": pa.timestamp("ms"), "k": pa.string()})


def spec_of(
    window: Any, how: Any = "inner", on: str = "left.k = right.k", both: pa.Schema = KEYED, **more: Any
) -> sj.JoinSpec:
    return sj.JoinSpec(both, both, on, window, "ts", "ts", how=how, **more)


def table(rows: str | list[tuple[Any, ...]], schema: pa.Schema = KEYED) -> pa.Table:
    """Rows as tuples, or as text: "3a 5b" are rows at 3 and 5 with the keys a and b."""
    if isinstance(rows, str):
        rows = [(int(word[:-1]), word[-1]) for word in rows.split()]
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def result(
    left: str, right: str, window: Any, how: Any = "inner", on: str = "left.k = right.k", **more: Any
) -> str:
    """The result in its order, a row as "time:left-right" by their texts, with _ for no row."""
    found = oracle.rows(table(left), table(right), spec_of(window, how, on, **more))
    words = {"left": left.split(), "right": right.split()}
    shown = [
        (
            "end" if row.time == END_OF_STREAMS else row.time,
            "_" if row.left is None else words["left"][row.left],
            "_" if row.right is None else words["right"][row.right],
        )
        for row in found
    ]
    return " ".join(f"{time}:{l}-{r}" for time, l, r in shown)


# ---- how


LEFT, RIGHT = "1a 2b 9c", "3a 4a 5z"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", "3:1a-3a 4:1a-4a"),
        # 2b waits until 5 and 9c until 12: nothing at these times can be a partner any more.
        ("left", "3:1a-3a 4:1a-4a 5:2b-_ 12:9c-_"),
        # Right tuples wait 1, so 5z is alone from 6 on.
        ("right", "3:1a-3a 4:1a-4a 6:_-5z"),
        ("full", "3:1a-3a 4:1a-4a 5:2b-_ 6:_-5z 12:9c-_"),
        ("semi", "3:1a-_"),
        ("anti", "5:2b-_ 12:9c-_"),
    ],
)
def test_every_how_in_a_time_window(how, expected):
    assert result(LEFT, RIGHT, sj.TimeWindow(3, right=1), how) == expected


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", "3:1a-3a 4:1a-4a"),
        # Two left rows wait, so 2b and 9c do to the end. Of the right rows one waits, and 5z is the last.
        ("left", "3:1a-3a 4:1a-4a end:2b-_ end:9c-_"),
        ("right", "3:1a-3a 4:1a-4a end:_-5z"),
        ("full", "3:1a-3a 4:1a-4a end:2b-_ end:_-5z end:9c-_"),
        ("semi", "3:1a-_"),
        ("anti", "end:2b-_ end:9c-_"),
    ],
)
def test_every_how_in_a_row_window(how, expected):
    assert result(LEFT, RIGHT, sj.RowWindow(2, right=1), how) == expected


def test_a_row_alone_in_a_row_window_is_final_when_the_last_row_that_counts_has_come():
    # One row a side waits: 1a until 2b comes, 2b until 9c. Right 3a leaves with 4a, 4a with 5z.
    assert result(LEFT, RIGHT, sj.RowWindow(1), "full") == "2:1a-_ 4:_-3a 5:_-4a 9:2b-_ end:_-5z end:9c-_"
    # None waits: each is final at its own time.
    assert result(LEFT, RIGHT, sj.RowWindow(0), "anti") == "1:1a-_ 2:2b-_ 9:9c-_"


def test_every_how_in_mixed_windows():
    by_time_then_rows = (sj.TimeWindow(3), sj.RowWindow(2))
    assert result(LEFT, RIGHT, by_time_then_rows, "full") == ("3:1a-3a 4:1a-4a 5:2b-_ 12:9c-_ end:_-5z")
    by_rows_then_time = (sj.RowWindow(2), sj.TimeWindow(1))
    assert result(LEFT, RIGHT, by_rows_then_time, "full") == ("3:1a-3a 4:1a-4a 6:_-5z end:2b-_ end:9c-_")


def test_rows_of_an_empty_side():
    window = sj.TimeWindow(2)
    assert result("1a", "", window, "left") == result("1a", "", window, "full") == "3:1a-_"
    assert result("1a", "", window, "anti") == "3:1a-_"
    assert result("1a", "", window, "semi") == result("1a", "", window, "right") == ""
    assert result("", "1a", window, "full") == "3:_-1a"


def test_a_condition_that_is_null_is_no_match():
    none = [(1, None)]
    for how, count in (("left", 1), ("full", 2), ("anti", 1), ("semi", 0)):
        found = oracle.rows(table(none), table(none), spec_of(sj.TimeWindow(1), how))
        assert [(row.left, row.right) for row in found] == [(0, None), (None, 0)][:count]


def test_columns_and_what_may_be_null_in_them():
    left = pa.schema([pa.field("ts", pa.int64(), False), pa.field("k", pa.string(), False)])
    right = pa.schema([pa.field("ts", pa.int64(), False), pa.field("v", pa.int8())])
    nullable = {}
    for how in keep.HOW:
        spec = sj.JoinSpec(left, right, "TRUE", sj.TimeWindow(1), "ts", "ts", how=how)
        names = ["ts", "k"] if how in ("semi", "anti") else ["ts", "k", "ts_right", "v"]
        assert spec.schema.names == names
        nullable[how] = [field.nullable for field in spec.schema]
        given = pa.table([[1, 9], ["a", "b"]], schema=left), pa.table([[2, 20], [3, 4]], schema=right)
        assert oracle.join(*given, spec).schema == spec.schema
    assert nullable == {
        "inner": [False, False, False, True],
        "left": [False, False, True, True],
        "right": [True, True, False, True],
        "full": [True, True, True, True],
        "semi": [False, False],
        "anti": [False, False],
    }


def test_left_columns_alone_need_no_suffix():
    taken = pa.schema({"ts": pa.int64(), "ts_right": pa.int64()})
    other = pa.schema({"ts": pa.int64()})
    assert sj.JoinSpec(taken, other, "TRUE", sj.TimeWindow(1), "ts", "ts", how="anti").schema == taken
    with pytest.raises(sj.SpecError, match="taken"):
        sj.JoinSpec(taken, other, "TRUE", sj.TimeWindow(1), "ts", "ts", how="left")


@pytest.mark.parametrize("kind", [pa.list_(pa.string_view()), pa.string_view(), pa.struct({"a": pa.int8()})])
def test_a_missing_side_is_null_in_columns_of_any_type(kind):
    schema = pa.schema({"ts": pa.int64(), "payload": kind})
    rows = pa.table({"ts": [1], "payload": pa.nulls(1, kind)}, schema)
    spec = sj.JoinSpec(schema, schema, "FALSE", sj.TimeWindow(1), "ts", "ts", how="full")
    assert oracle.join(rows, rows, spec).to_pylist() == [
        {"ts": 1, "payload": None, "ts_right": None, "payload_right": None},
        {"ts": None, "payload": None, "ts_right": 1, "payload_right": None},
    ]


# ---- the order of rows with one result time


def test_at_one_result_time_pairs_come_first_then_rows_alone_in_the_total_order():
    # At 5: the pairs of left 5x and right 5a, 5y by the later tuple; left 3 and right 4 are alone since then.
    assert result("3b 5a 5y", "4c 5a 5y", sj.TimeWindow(2, right=1), "full") == (
        "5:5a-5a 5:5y-5y 5:3b-_ 5:_-4c"
    )


def test_a_left_row_of_a_semi_join_leaves_with_its_first_match():
    # 2b finds its match before 1a does; at 6 one right row is the first match of 3c and 4c.
    assert result("1a 2b 3c 4c", "5b 5a 6c 7a", sj.TimeWindow(9), "semi") == "5:2b-_ 5:1a-_ 6:3c-_ 6:4c-_"
    # The left row is the later one: it leaves at its own time.
    assert result("5a", "1a 2a 7a", sj.TimeWindow(9), "semi") == "5:5a-_"


def test_picked_rows_of_one_result_time_are_in_the_order_of_the_left_rows():
    as_of: dict[str, Any] = {"how": "left", "keep": sj.AsOf()}
    assert result("5a 5b 5c", "3c 4a 5a", sj.TimeWindow(9), **as_of) == "5:5a-5a 5:5b-_ 5:5c-3c"
    # All rows at 5 have result time 5; forward ones have that of the right row.
    forward: dict[str, Any] = {"how": "left", "keep": sj.AsOf("forward")}
    assert result("3b 4a 5a", "6a 7b", sj.TimeWindow(3), **forward) == "6:3b-_ 6:4a-6a 6:5a-6a"


# ---- as-of joins


@pytest.mark.parametrize(
    ("direction", "strict", "expected"),
    [
        ("backward", False, "5:5a-5a 9:9a-6a"),
        ("backward", True, "5:5a-4a 9:9a-6a"),
        ("forward", False, "5:5a-5a"),
        ("forward", True, "6:5a-6a"),
        ("nearest", False, "5:5a-5a 9:9a-6a"),
        ("nearest", True, "6:5a-6a 9:9a-6a"),  # 4 and 6 are equally near: the later one counts
    ],
)
def test_as_of_by_eye(direction, strict, expected):
    picked = sj.AsOf(direction, strict)
    assert result("5a 9a", "1a 4a 5b 5a 6a", sj.TimeWindow(9), keep=picked) == expected


def test_the_window_is_the_tolerance_and_the_predicate_filters_before_a_row_is_picked():
    assert result("9a", "5a 6b", sj.TimeWindow(0, right=3), "left", keep=sj.AsOf()) == "9:9a-_"
    assert result("9a", "6a 7b", sj.TimeWindow(0, right=3), "left", keep=sj.AsOf()) == "9:9a-6a"
    assert result("9a", "6a 7b", sj.TimeWindow(0, right=3), on="TRUE", keep=sj.AsOf()) == "9:9a-7b"


def test_of_right_rows_at_one_time_the_last_one_counts_and_may_serve_many():
    assert [
        row.right
        for row in oracle.rows(table("5a 6a"), table("5a 5a"), spec_of(sj.TimeWindow(3), keep=sj.AsOf()))
    ] == [1, 1]
    forward = spec_of(sj.TimeWindow(3), keep=sj.AsOf("forward"))
    assert [row.right for row in oracle.rows(table("4a 5a"), table("5a 5a"), forward)] == [1, 1]


@pytest.mark.parametrize(
    ("direction", "time"),
    [("backward", 5), ("forward", 9), ("nearest", 9)],
)
def test_as_of_cuts_the_window_of_a_row_alone_to_its_direction(direction, time):
    as_of = sj.AsOf(direction)
    assert result("5a", "", sj.TimeWindow(4, right=7), "left", keep=as_of) == f"{time}:5a-_"
    by_rows = {5: "5:5a-_", 9: "6:5a-_"}[time]  # in a window of one left row, until the next left row comes
    assert result("5a 6b", "", sj.RowWindow(1), "left", keep=as_of).split()[0] == by_rows
    assert result("5a", "", sj.RowWindow(1), "left", keep=as_of) == ("5:5a-_" if time == 5 else "end:5a-_")


def test_as_of_in_row_windows_takes_times_of_the_direction_only():
    # Right 5a comes after left 5a in the total order and is not after it in time.
    assert result("5a", "3a 5a 6a", sj.RowWindow(3), keep=sj.AsOf()) == "5:5a-5a"
    assert result("5a", "3a 5a 6a", sj.RowWindow(3), keep=sj.AsOf(strict=True)) == "5:5a-3a"
    assert result("5a", "3a 5a 6a", sj.RowWindow(3), keep=sj.AsOf("forward", strict=True)) == "6:5a-6a"
    assert result("5a", "3a 5a 6a", sj.RowWindow(3, right=0), keep=sj.AsOf(strict=True)) == ""


# ---- the nearest by an expression


def priced(left: list[Any], right: list[Any], **more: Any) -> list[tuple[Any, Any]]:
    """The (left, right) row numbers of a join in which all rows are at one time."""
    lefts, rights = (table([(0, p) for p in prices], PRICED) for prices in (left, right))
    spec = spec_of(sj.TimeWindow(0), on="TRUE", both=PRICED, **more)
    return [(row.left, row.right) for row in oracle.rows(lefts, rights, spec)]


def test_nearest_by_eye():
    near = "abs(left.p - right.p)"
    assert priced([10], [7, 9, 12], keep=sj.Nearest(near)) == [(0, 1)]
    assert priced([10], [7, 9, 12], keep=sj.Nearest(near, k=2)) == [(0, 1), (0, 2)]
    assert priced([10], [7, 9, 12], keep=sj.Nearest(near, k=9)) == [(0, 0), (0, 1), (0, 2)]
    assert priced([10], [7, 9, 12], keep=sj.Nearest(near, largest=True)) == [(0, 0)]
    assert priced([10, 7], [7, 9], keep=sj.Nearest(near)) == [(0, 1), (1, 0)]


def test_of_equal_scores_the_later_row_counts():
    assert priced([10], [9, 11, 9], keep=sj.Nearest("abs(left.p - right.p)")) == [(0, 2)]
    assert priced([10], [9, 11, 9], keep=sj.Nearest("abs(left.p - right.p)", k=2)) == [(0, 1), (0, 2)]
    assert priced([1], [0.0, -0.0], keep=sj.Nearest("right.p")) == [(0, 1)]
    assert priced([1], [-0.0, 0.0], keep=sj.Nearest("right.p", largest=True)) == [(0, 1)]


def test_scores_that_are_null_or_nan_never_count():
    picked = sj.Nearest("right.p", k=2)
    assert priced([1], [None, float("nan"), 3], keep=picked) == [(0, 2)]
    assert priced([1], [None, float("nan")], keep=picked, how="left") == [(0, None)]
    largest = sj.Nearest("right.p", largest=True)
    assert priced([1], [float("nan"), float("inf"), None], keep=largest) == [(0, 1)]
    assert priced([1], [float("-inf"), -5], keep=largest) == [(0, 1)]


def test_a_picked_pair_has_the_time_of_its_later_row_and_a_row_alone_that_of_the_windows_end():
    near = sj.Nearest("abs(left.ts - right.ts)", k=2)
    assert result("5a 6b", "4a 7a", sj.TimeWindow(4), "left", keep=near) == "5:5a-4a 7:5a-7a 10:6b-_"


def test_scores_of_times_and_intervals_are_exact():
    clock = pa.schema({"ts": pa.timestamp("ns"), "k": pa.string()})
    left, right = (table([(n, "a") for n in times], clock) for times in ([2**62], [2**62 - 1, 2**62 + 2]))
    spec = spec_of(sj.TimeWindow("1 s"), both=clock, keep=sj.Nearest("abs(left.ts - right.ts)"))
    assert [row.right for row in oracle.rows(left, right, spec)] == [0]


def test_a_callable_may_filter_what_an_expression_picks():
    both = pa.schema({"ts": pa.int64(), "p": pa.float64(), "q": pa.int64()})
    spec = sj.JoinSpec(
        both,
        both,
        lambda l, r: l.q == r.q,
        sj.TimeWindow(0),
        "ts",
        "ts",
        keep=sj.Nearest("abs(left.p - right.p)"),
    )
    left, right = table([(0, 1.0, 1)], both), table([(0, 1.0, 2), (0, 5.0, 1), (0, 4.0, 1)], both)
    assert [row.right for row in oracle.rows(left, right, spec)] == [2]


# ---- intervals


def test_an_interval_includes_the_ends_that_are_closed():
    for closed, expected in (
        ("both", "-2 -1 0 1"),
        ("left", "-2 -1 0"),
        ("right", "-1 0 1"),
        ("neither", "-1 0"),
    ):
        spec = spec_of(sj.Interval(-2, 1, closed), on="TRUE")  # type: ignore[arg-type]
        found = oracle.pairs(table("9l"), table("6r 7r 8r 9r"), spec)
        found += oracle.pairs(table("9l"), table([(10, "r"), (11, "r")]), spec)
        assert spec.delta is not None
        assert " ".join(map(str, range(spec.delta.lo, spec.delta.hi + 1))) == expected
        assert len(found) == len(expected.split())


def test_an_interval_may_lie_before_or_after():
    assert result("5l", "5a 6b 7c 8d", sj.Interval(1, 2), on="TRUE") == "6:5l-6b 7:5l-7c"
    assert result("5l", "2a 3b 4c 5d", sj.Interval(-2, -1), on="TRUE") == "5:5l-3b 5:5l-4c"


def test_a_row_alone_in_an_interval_does_not_leave_before_its_own_time():
    assert result("5l", "3r", sj.Interval(1, 2), "full") == "3:_-3r 7:5l-_"
    assert result("5l", "4r", sj.Interval(-3, -2), "full") == "5:5l-_ 7:_-4r"


def test_a_time_window_is_the_interval_that_contains_zero():
    for left, right in ((3, 1), (0, 2), (0, 0)):
        window, interval = spec_of(sj.TimeWindow(left, right)), spec_of(sj.Interval(-right, left))
        assert window.delta == interval.delta == Delta(-right, left)
        assert (window.left_window, window.right_window) == (interval.left_window, interval.right_window)
    assert spec_of(sj.Interval(2, 5)).left_window == SideWindow(False, 5)
    assert spec_of(sj.Interval(2, 5)).right_window == SideWindow(False, -2)
    assert spec_of(sj.RowWindow(2)).delta is spec_of((sj.TimeWindow(1), sj.RowWindow(2))).delta is None


@pytest.mark.parametrize(
    ("lower", "upper", "closed", "lo", "hi"),
    [
        ("-5 seconds", "2 s", "both", -5000, 2000),
        ("-5 seconds", "2 s", "neither", -4999, 1999),
        ("-1.5 ms", "1.5 ms", "both", -1, 1),  # whole ticks between the bounds, open or closed
        ("-1.5 ms", "1.5 ms", "neither", -1, 1),
        ("0.5 ms", "1 ms", "right", 1, 1),
        (0, "1 s", "left", 0, 999),
        (datetime.timedelta(seconds=-1), 0, "right", -999, 0),
        ("-1 hour 30 min", "-1 hour", "both", -5_400_000, -3_600_000),
    ],
)
def test_intervals_of_a_clock_in_ticks(lower, upper, closed, lo, hi):
    assert spec_of(sj.Interval(lower, upper, closed), both=CLOCK).delta == Delta(lo, hi)


@pytest.mark.parametrize(
    ("make", "field", "said"),
    [
        (lambda: sj.Interval(2, 1), "window", "empty: the lower bound is above"),
        (lambda: sj.Interval("1 s", "-1 s"), "window", "swap them"),
        (lambda: sj.Interval("1 s", 0), "window", "swap them"),
        (lambda: sj.Interval(1, 1, "left"), "window", "write closed='both'"),
        (lambda: sj.Interval(1, 2, "open"), "window.closed", "allowed: both, left, right, neither"),  # type: ignore[arg-type]
        (lambda: sj.Interval(1, 2.5), "window.upper", "2.5"),  # type: ignore[arg-type]
        (lambda: sj.Interval(None, 2), "window.lower", "None"),  # type: ignore[arg-type]
        (lambda: sj.Interval("soon", 2), "window.lower", "not a duration"),
        (lambda: spec_of(sj.Interval(1, 2, "neither")), "window", "none lies in it"),
        (lambda: spec_of(sj.Interval("1 us", "2 us"), both=CLOCK), "window", "whole ticks of 1 ms"),
        (lambda: spec_of(sj.Interval("1 s", "2 s")), "window.lower", "plain integers"),
        (lambda: spec_of(sj.Interval(1, 2), both=CLOCK), "window.lower", "plain number 1"),
        (lambda: spec_of(sj.Interval(-(2**63), 0)), "window.lower", "overflows"),
        (lambda: spec_of(sj.Interval(0, 2**63)), "window.upper", "overflows"),
        (lambda: spec_of((sj.Interval(0, 1), sj.RowWindow(1))), "window", "a tuple (left's, right's)"),
    ],
)  # fmt: skip
def test_intervals_that_are_refused(make, field, said):
    with pytest.raises(sj.SpecError) as caught:
        make()
    assert (type(caught.value), caught.value.field) == (sj.WindowError, field)
    assert said in str(caught.value)


# ---- ties


TIED = pa.schema({"ts": pa.int64(), "n": pa.int64()})


def test_a_tie_column_ranks_rows_of_equal_time_before_their_position():
    rows = table([(5, 3), (5, None), (5, 1), (4, 9)], TIED)
    spec = sj.JoinSpec(TIED, TIED, "TRUE", sj.RowWindow(2), "ts", "ts", left_tie="n", right_tie="n")
    # Left in order: 4, then 5 with NULL, 1 and 3. The right row at 6 meets the last two.
    assert oracle.pairs(rows, table([(6, 0)], TIED), spec) == [(2, 0), (0, 0)]
    as_of = sj.JoinSpec(TIED, TIED, "TRUE", sj.TimeWindow(9), "ts", "ts", keep=sj.AsOf(), right_tie="n")
    assert oracle.pairs(table([(6, 0)], TIED), rows, as_of) == [(0, 0)]


@pytest.mark.parametrize(
    ("kind", "rising"),
    [
        (pa.float64(), [None, float("-inf"), -1.0, 2.0, float("inf"), float("nan")]),
        (pa.string(), [None, "", "Z", "a", "é", "\uffff", "\U00010000"]),
        (pa.bool_(), [None, False, True]),
        (pa.binary(), [None, b"", b"\x00", b"a", b"\xff"]),
        (pa.timestamp("ns"), [None, -5, 0, 7]),
    ],
)
def test_ties_of_every_type_have_one_order(kind, rising):
    schema = pa.schema({"ts": pa.int64(), "n": kind})
    rows = table([(5, value) for value in reversed(rising)], schema)
    spec = sj.JoinSpec(schema, TIED, "TRUE", sj.TimeWindow(9), "ts", "ts", left_tie="n")
    found = oracle.pairs(rows, table([(6, 0)], TIED), spec)
    assert [left for left, _ in found] == list(reversed(range(len(rising))))


def test_rows_with_one_tie_keep_their_positions():
    rows = table([(5, 0.0), (5, -0.0), (5, 0.0)], PRICED)
    spec = sj.JoinSpec(PRICED, TIED, "TRUE", sj.TimeWindow(9), "ts", "ts", left_tie="p")
    assert [left for left, _ in oracle.pairs(rows, table([(6, 0)], TIED), spec)] == [0, 1, 2]


# ---- the end of time


def test_result_times_stop_at_the_end_of_time():
    late = 2**63 - 2
    found = oracle.rows(table([(late, "a"), (late - 9, "b")]), table(""), spec_of(sj.TimeWindow(9), "left"))
    assert found == [oracle.ResultRow(late, 1, None), oracle.ResultRow(END_OF_STREAMS, 0, None)]


# ---- what is refused


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("left_outer", "left"), ("LEFT OUTER JOIN", "left"), ("leftouter", "left"), ("Left", "left"),
        ("right_outer", "right"), ("rightouter", "right"), ("outer", "full"), ("full_outer", "full"),
        ("fullouter", "full"), ("FULL JOIN", "full"), ("INNER", "inner"), ("leftsemi", "semi"),
        ("left_semi", "semi"), ("left semi join", "semi"), ("leftanti", "anti"), ("left-anti", "anti"),
        ("innner", "inner"),
    ],
)  # fmt: skip
def test_words_of_other_systems_are_answered_with_the_right_word(given, word):
    with pytest.raises(sj.SpecError) as caught:
        spec_of(sj.TimeWindow(1), given)
    error = caught.value
    assert (error.field, error.given, error.allowed) == ("how", given, keep.HOW)
    assert str(error) == f"how is {given!r}: write {word!r}; allowed: inner, left, right, full, semi, anti"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("cross", "on='TRUE'"), ("asof", "keep=sj.AsOf()"), ("right_semi", "swap"), ("x", "how is 'x'; allowed"),
        (None, "None"), (["left"], "['left']"),
    ],
)  # fmt: skip
def test_other_words_for_how(given, said):
    with pytest.raises(sj.SpecError) as caught:
        spec_of(sj.TimeWindow(1), given)
    assert caught.value.field == "how"
    assert said in str(caught.value)
    assert "allowed: inner, left" in str(caught.value)


@pytest.mark.parametrize("picked", [sj.AsOf(), sj.Nearest("left.ts")])
def test_rows_are_picked_for_left_rows_only(picked):
    for how in ("inner", "left"):
        assert spec_of(sj.TimeWindow(1), how, keep=picked).keep == picked
    for how in ("right", "full", "semi", "anti"):
        with pytest.raises(sj.SpecError) as caught:
            spec_of(sj.TimeWindow(1), how, keep=picked)
        assert (caught.value.field, caught.value.given, caught.value.allowed) == (
            "how",
            how,
            ("inner", "left"),
        )


@pytest.mark.parametrize(
    ("make", "field", "said"),
    [
        (lambda: sj.AsOf("backwards"), "keep.direction", "write 'backward'; allowed: backward, forward, nearest"),  # type: ignore[arg-type]
        (lambda: sj.AsOf(None), "keep.direction", "None"),  # type: ignore[arg-type]
        (lambda: sj.AsOf(strict=1), "keep.strict", "True or False"),  # type: ignore[arg-type]
        (lambda: sj.Nearest(5), "keep.by", "5"),  # type: ignore[arg-type]
        (lambda: sj.Nearest("left.ts", k=0), "keep.k", "0"),
        (lambda: sj.Nearest("left.ts", k=True), "keep.k", "True"),
        (lambda: sj.Nearest("left.ts", k=1.0), "keep.k", "1.0"),  # type: ignore[arg-type]
        (lambda: sj.Nearest("left.ts", largest="yes"), "keep.largest", "'yes'"),  # type: ignore[arg-type]
        (lambda: spec_of(sj.TimeWindow(1), keep="first"), "keep", "allowed: 'all', sj.AsOf(...)"),
        (lambda: spec_of(sj.TimeWindow(1), keep="backward"), "keep", "write sj.AsOf('backward')"),
        (lambda: spec_of(sj.TimeWindow(1), keep=sj.AsOf), "keep", "the class AsOf"),
        (lambda: spec_of(sj.TimeWindow(1), keep=None), "keep", "None"),
        (lambda: spec_of(sj.TimeWindow(1), keep=sj.Nearest("left.nothing")), "keep.by", "unknown column"),
        (lambda: spec_of(sj.TimeWindow(1), keep=sj.Nearest("abs(left.ts")), "keep.by", "keep.by is not valid SQL"),
        (lambda: spec_of(sj.TimeWindow(1), keep=sj.Nearest("")), "keep.by", "keep.by is empty"),
        (lambda: spec_of(sj.TimeWindow(1), keep=sj.Nearest("left.k")), "keep.by", "type string"),
        (lambda: spec_of(sj.TimeWindow(1), keep=sj.Nearest("left.ts = 1")), "keep.by", "type bool"),
        (lambda: spec_of(sj.TimeWindow(1), keep=sj.Nearest("NULL")), "keep.by", "type null"),
        (lambda: spec_of(sj.TimeWindow(1), left_tie="n"), "left_tie", "['ts', 'k']"),
        (lambda: spec_of(sj.TimeWindow(1), both=pa.schema({"ts": pa.int64(), "k": pa.list_(pa.int8())}), on="TRUE",
                         right_tie="k"), "right_tie", "list"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept(make, field, said):
    with pytest.raises(sj.SpecError) as caught:
        make()
    assert caught.value.field == field
    assert said in str(caught.value)


def test_numbers_of_numpy_are_whole_numbers():
    assert sj.Nearest("left.ts", k=np.int64(3)) == sj.Nearest("left.ts", k=3)  # type: ignore[arg-type]
    assert spec_of(sj.Interval(np.int64(-3), np.int32(4))).delta == Delta(-3, 4)  # type: ignore[arg-type]


def test_examples_of_the_docstrings():
    for module in (keep, windows):
        failed, attempted = doctest.testmod(module)
        assert attempted > 0
        assert failed == 0


def test_pairs_are_asked_of_inner_joins_alone():
    with pytest.raises(sj.SpecError, match=r"call oracle\.rows"):
        oracle.pairs(table(""), table(""), spec_of(sj.TimeWindow(1), "left"))


# ---- what the engines do not run


@pytest.mark.parametrize("field", ["left_tie", "right_tie"])
def test_ties_are_refused_with_windows_of_rows(field):
    spec = spec_of(window=sj.RowWindow(1), **{field: "k"})
    with pytest.raises(sj.SpecError, match="windows of rows") as caught:
        sj.open_join(spec)
    assert caught.value.field == field


def test_engines_run_intervals_that_contain_zero():
    left, right = table("5a 6a 9a"), table("3a 4a 8a 9a")
    spec = spec_of(sj.Interval(-2, 3, closed="left"))
    expected = oracle.join(left, right, spec)
    assert expected.num_rows == 6
    assert sj.join_tables(left, right, spec, order="timestamp") == expected
    found = sj.join_tables(left, right, spec)
    assert sorted(found.to_pylist(), key=repr) == sorted(expected.to_pylist(), key=repr)
