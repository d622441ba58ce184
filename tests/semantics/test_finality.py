"""What is final when (docs/semantics.md, docs/decisions/0014): engines may let a row leave on the strength of these.

`low` is a side's lower bound of what can still come: rows at or after it are unknown. A rule is right if the rows that
leave by it are the same whatever is unknown, and complete if no row that the rule says may leave is missing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamjoin as sj
from finality import KEYED, ON, leaves, rows_of_a_side
from strategies import intervals, keeps, outcomes, time_windows, windows
from streamjoin.semantics import oracle
from streamjoin.semantics.keep import PICKING
from streamjoin.semantics.oracle import END_OF_STREAMS, ResultRow
from streamjoin.semantics.spec import UNMATCHED

# How far the two sides can be while times are from 0 to 4; the end of time is the end of a side.
LOWS = [{"left": l, "right": r} for l in (0, 2, 4, END_OF_STREAMS) for r in (*range(9), END_OF_STREAMS)]


def before(table: pa.Table, low: int) -> pa.Table:
    """The rows that are known when nothing before `low` can come. Tables are in order of time, so rows keep their
    numbers."""
    return table.slice(0, sum(ts < low for ts in table["ts"].to_pylist()))


def looks_ahead(keep: Any) -> bool:
    """Whether a picked pair can be older than what decides it."""
    return isinstance(keep, sj.Nearest) or (isinstance(keep, sj.AsOf) and keep.direction == "nearest")


@given(
    rows_of_a_side(),
    rows_of_a_side(),
    windows(None) | intervals(None),
    outcomes(),
    st.sampled_from(ON),
)
def test_a_row_is_decided_by_the_tuples_up_to_its_result_time(left, right, window, outcome, on):
    how, keep = outcome
    if looks_ahead(keep):
        return
    spec = sj.JoinSpec(KEYED, KEYED, on, window, "ts", "ts", how=how, keep=keep)
    every = oracle.rows(left, right, spec)
    for time in range(-1, 8):
        known = oracle.rows(before(left, time + 1), before(right, time + 1), spec)
        assert [row for row in known if row.time <= time] == [row for row in every if row.time <= time]


@given(
    rows_of_a_side(),
    rows_of_a_side(),
    time_windows(None) | intervals(None),
    outcomes(),
    st.sampled_from(ON),
)
def test_what_leaves_by_the_rules_is_final_and_nothing_is_missing(left, right, window, outcome, on):
    how, keep = outcome
    spec = sj.JoinSpec(KEYED, KEYED, on, window, "ts", "ts", how=how, keep=keep)
    every = oracle.rows(left, right, spec)
    sides = {"left": left, "right": right}
    for lows in LOWS:
        known = {side: before(sides[side], low) for side, low in lows.items()}
        found = oracle.rows(known["left"], known["right"], spec)
        left_rows, right_rows = (range(known[side].num_rows) for side in sides)
        here = [  # a row can leave only if its own tuples have come
            row
            for row in every
            if (row.left is None or row.left in left_rows) and (row.right is None or row.right in right_rows)
        ]
        may, must = ([row for row in rows if leaves(row, spec, left, right, lows)] for rows in (found, here))
        if (
            how == "semi"
        ):  # it leaves with its first match to come: which rows leave is final, not their times
            assert {row.left for row in may} <= {row.left for row in must}
        else:
            assert may == must


@given(
    rows_of_a_side(),
    rows_of_a_side(),
    time_windows(None) | intervals(None),
    outcomes(),
    st.sampled_from(ON),
)
def test_rows_that_the_other_side_has_passed_can_be_released(left, right, window, outcome, on):
    """No left row after r.ts - lo needs the right row r (mirrored: no right row after l.ts + hi needs l)."""
    how, keep = outcome
    spec = sj.JoinSpec(KEYED, KEYED, on, window, "ts", "ts", how=how, keep=keep)
    assert spec.delta is not None
    for low in range(7):
        kept = right.filter(
            pa.array([ts - spec.delta.lo >= low for ts in right["ts"].to_pylist()], pa.bool_())
        )
        coming = left.filter(pa.array([ts >= low for ts in left["ts"].to_pylist()], pa.bool_()))
        if "right" not in UNMATCHED[how]:
            assert oracle.join(coming, kept, spec) == oracle.join(coming, right, spec)


@given(rows_of_a_side(), rows_of_a_side(), st.booleans(), time_windows(None) | intervals(None))
def test_backward_as_of_needs_the_last_right_row_of_each_key_alone(left, right, strict, window):
    """Once a right row of a key can be picked by all left rows to come, as far as they are in its window, older ones of
    that key are picked no more, if the keys are all that the predicate looks at."""
    keep = sj.AsOf(strict=strict)
    spec = sj.JoinSpec(KEYED, KEYED, ON[0], window, "ts", "ts", how="left", keep=keep)
    assert spec.delta is not None
    ahead = min(spec.delta.hi, -1 if strict else 0)
    for low in range(7):
        coming = left.filter(pa.array([ts >= low for ts in left["ts"].to_pylist()], pa.bool_()))
        passed = [ts - ahead <= low for ts in right["ts"].to_pylist()]
        last = {k: at for at, k in enumerate(right["k"].to_pylist()) if passed[at]}
        needed = [not passed[at] or last[k] == at for at, k in enumerate(right["k"].to_pylist())]
        kept = right.filter(pa.array(needed, pa.bool_()))
        assert oracle.join(coming, kept, spec) == oracle.join(coming, right, spec)


@given(rows_of_a_side(), rows_of_a_side(), windows(None) | intervals(None), keeps(), st.sampled_from(ON))
def test_result_times_never_precede_the_rows(left, right, window, keep, on):
    for how in PICKING:
        spec = sj.JoinSpec(KEYED, KEYED, on, window, "ts", "ts", how=how, keep=keep)
        for row in oracle.rows(left, right, spec):
            times = [t["ts"][n].as_py() for t, n in ((left, row.left), (right, row.right)) if n is not None]
            assert row.time == max(times) if None not in (row.left, row.right) else row.time >= max(times)


@given(rows_of_a_side(), rows_of_a_side(), windows(None) | intervals(None), st.sampled_from(ON))
def test_every_how_is_made_of_the_inner_result(left, right, window, on):
    """`full` is inner and what `left` and `right` add; semi and anti divide left's rows; each row comes once."""
    by_how = {
        how: oracle.rows(left, right, sj.JoinSpec(KEYED, KEYED, on, window, "ts", "ts", how=how))
        for how in ("inner", "left", "right", "full", "semi", "anti")
    }
    assert all(len(set(rows)) == len(rows) for rows in by_how.values())
    sets = {how: {(row.left, row.right) for row in rows} for how, rows in by_how.items()}
    assert sets["full"] == sets["left"] | sets["right"]
    assert sets["inner"] == sets["left"] & sets["right"]
    assert sets["left"] - sets["inner"] == sets["anti"]
    assert {l for l, _ in sets["semi"]} == {l for l, _ in sets["inner"]}
    assert len(by_how["semi"]) + len(by_how["anti"]) == left.num_rows
    firsts = list(dict.fromkeys(row.left for row in by_how["inner"]))
    assert [row.left for row in by_how["semi"]] == firsts


def test_a_backward_row_does_not_wait_for_the_end_of_its_window():
    spec = sj.JoinSpec(KEYED, KEYED, ON[0], sj.TimeWindow(100), "ts", "ts", how="left", keep=sj.AsOf())
    left, right = pa.table([[5], [1]], schema=KEYED), pa.table([[3, 6], [1, 2]], schema=KEYED)
    (row,) = oracle.rows(left, right, spec)
    assert row == ResultRow(5, 0, 0)
    assert leaves(row, spec, left, right, {"left": 5, "right": 6})
    assert not leaves(row, spec, left, right, {"left": 5, "right": 5})  # a right row at 5 would be nearer
    strict = replace(spec, keep=sj.AsOf(strict=True))
    assert leaves(row, strict, left, right, {"left": 5, "right": 5})


@pytest.mark.parametrize("how", ["left", "anti"])
def test_a_row_alone_waits_for_the_other_side_alone(how):
    spec = sj.JoinSpec(KEYED, KEYED, ON[0], sj.TimeWindow(2), "ts", "ts", how=how)
    left, right = pa.table([[5], [1]], schema=KEYED), KEYED.empty_table()
    (row,) = oracle.rows(left, right, spec)
    assert row == ResultRow(7, 0, None)
    assert leaves(row, spec, left, right, {"left": 6, "right": 8})
    assert not leaves(row, spec, left, right, {"left": 100, "right": 7})


@pytest.mark.parametrize(
    ("keep", "window", "right", "low"),
    [
        (sj.AsOf(), sj.TimeWindow(9), 3, 6),
        (sj.AsOf(strict=True), sj.TimeWindow(9), 3, 5),
        (sj.AsOf(), sj.Interval(-9, -1), 3, 5),  # the window ends before the left row
        (sj.AsOf("forward"), sj.TimeWindow(9), 7, 8),
        (sj.AsOf("nearest"), sj.TimeWindow(9), 4, 7),  # a row at 6 would be as near, and later
        (sj.AsOf("nearest"), sj.TimeWindow(9), 7, 8),
        (sj.AsOf("nearest"), sj.TimeWindow(9), 5, 6),
        (sj.AsOf("nearest"), sj.TimeWindow(1, 9), 2, 7),  # no row after 6 is in the window
        (sj.Nearest("right.k"), sj.TimeWindow(2), 4, 8),
    ],
)
def test_a_picked_row_leaves_as_soon_as_no_row_to_come_is_better(keep, window, right, low):
    """The left row is at 5. A right row that comes just before the low would be picked instead."""
    spec = sj.JoinSpec(KEYED, KEYED, ON[0], window, "ts", "ts", keep=keep)
    lefts = pa.table([[5], [1]], schema=KEYED)
    rights = pa.table([[right, low - 1], [1, 1]], schema=KEYED)
    (picked,) = oracle.rows(lefts, rights.slice(0, 1), spec)
    for far in range(right + 1, 12):
        lows = {"left": 6, "right": far}
        assert leaves(picked, spec, lefts, rights, lows) == (far >= low)
    assert oracle.pairs(lefts, rights, spec) == [(0, 1)]
