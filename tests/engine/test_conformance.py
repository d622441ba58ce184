"""The engine gives the oracle's result: by eye on a few tuples, then for every class of predicate on random
tables, cut and interleaved at random, in every output order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import streamjoin as sj
from strategies import (
    INT64_MAX,
    INT64_MIN,
    arrivals,
    numbered,
    pairs_of,
    push_all,
    schemas,
    specs,
    tables,
)
from streamjoin.plan.options import ORDERS
from streamjoin.semantics.oracle import column_values
from streamjoin.semantics.types import TIME_SCALE

TIMES = pa.schema([("ts", pa.int64())])
Window = Any


# ---- by eye


def times(*values: int) -> pa.Table:
    return pa.table({"ts": values}, schema=TIMES)


def met(left: list[int], right: list[int], window: Window, order: Any = "any") -> list[tuple[int, int]]:
    """The (left ts, right ts) of all pairs, in their order, left pushed before right."""
    spec = sj.JoinSpec(TIMES, TIMES, "TRUE", window, "ts", "ts")
    with sj.open_join(spec, order=order) as join:
        join.push("left", times(*left))
        join.push("right", times(*right))
        found = join.finish()
    return list(zip(found["ts"].to_pylist(), found["ts_right"].to_pylist(), strict=True))


@pytest.mark.parametrize("order", ORDERS)
def test_time_window_includes_both_its_ends(order):
    assert sorted(met([10], [6, 7, 13, 14], sj.TimeWindow(3), order)) == [(10, 7), (10, 13)]
    assert sorted(met([6, 7, 13, 14], [10], sj.TimeWindow(3), order)) == [(7, 10), (13, 10)]


@pytest.mark.parametrize("order", ORDERS)
def test_each_side_waits_as_long_as_its_own_window(order):
    assert sorted(met([10], [8, 9, 14, 15], sj.TimeWindow(left=4, right=1), order)) == [(10, 9), (10, 14)]
    assert sorted(met([10], [9, 10, 12, 13], sj.TimeWindow(left=2, right=0), order)) == [(10, 10), (10, 12)]


@pytest.mark.parametrize("order", ORDERS)
def test_zero_window_joins_equal_times_only(order):
    assert sorted(met([5, 5, 6], [5, 7], sj.TimeWindow(0), order)) == [(5, 5), (5, 5)]


@pytest.mark.parametrize("order", ORDERS)
def test_row_windows_hold_the_last_rows_before_the_probe(order):
    assert sorted(met([1, 2, 3], [4, 9], sj.RowWindow(2), order)) == [(2, 4), (2, 9), (3, 4), (3, 9)]
    both = sj.RowWindow(left=2, right=1)
    assert sorted(met([1, 2, 5], [3, 4], both, order)) == [(1, 3), (1, 4), (2, 3), (2, 4), (5, 4)]
    assert met([1, 2], [1, 2], sj.RowWindow(0), order) == []


@pytest.mark.parametrize("order", ORDERS)
def test_in_row_windows_left_comes_first_at_equal_times(order):
    assert met([5], [5], sj.RowWindow(left=1, right=0), order) == [(5, 5)]
    assert met([5], [5], sj.RowWindow(left=0, right=1), order) == []


@pytest.mark.parametrize("order", ORDERS)
def test_mixed_windows_ask_the_window_of_the_earlier_tuple(order):
    found = met([10], [1, 2, 12, 13], (sj.TimeWindow(2), sj.RowWindow(1)), order)
    assert sorted(found) == [(10, 2), (10, 12)]
    found = met([1, 10], [7, 8, 99], (sj.RowWindow(1), sj.TimeWindow(2)), order)
    assert sorted(found) == [(1, 7), (1, 8), (10, 8), (10, 99)]


def test_timestamp_order_is_by_result_time_then_later_then_earlier_tuple():
    found = met([1, 4, 4], [2, 4, 5], sj.TimeWindow(9), "timestamp")
    assert found == [(1, 2), (4, 2), (4, 2), (1, 4), (4, 4), (4, 4), (1, 5), (4, 5), (4, 5)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", [sj.TimeWindow(0), sj.RowWindow(1)], ids=str)
def test_equal_timestamps_join_in_both_arrival_orders(window, order):
    spec = sj.JoinSpec(TIMES, TIMES, "TRUE", window, "ts", "ts")
    for first, second in (("left", "right"), ("right", "left")):
        with sj.open_join(spec, order=order) as join:
            join.push(first, times(5))
            join.push(second, times(5))
            assert join.finish().num_rows == 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("slow", ["left", "right"])
def test_a_slow_side_finds_everything_that_waits_for_it(slow, order):
    fast = "right" if slow == "left" else "left"
    spec = sj.JoinSpec(TIMES, TIMES, "TRUE", sj.TimeWindow(1), "ts", "ts")
    with sj.open_join(spec, order=order) as join:
        join.push(fast, times(1, 2, 3, 1000))
        join.push(fast, times(2000))
        join.push(slow, times(2))
        join.push(slow, times(1999))
        found = join.finish()
    fast_column, slow_column = ("ts", "ts_right") if fast == "left" else ("ts_right", "ts")
    met_by = zip(found[slow_column].to_pylist(), found[fast_column].to_pylist(), strict=True)
    assert sorted(met_by) == [(2, 1), (2, 2), (2, 3), (1999, 2000)]


@pytest.mark.parametrize("order", ORDERS)
def test_rows_pushed_one_at_a_time_from_both_sides(order):
    spec = sj.JoinSpec(TIMES, TIMES, "TRUE", sj.TimeWindow(left=2, right=1), "ts", "ts")
    with sj.open_join(spec, order=order) as join:
        for ts in (1, 2, 3, 4):
            join.push("right", times(ts))
            join.push("left", times(ts))
        found = join.finish()
    expected = [(l, r) for l in range(1, 5) for r in range(1, 5) if -1 <= r - l <= 2]
    assert sorted(zip(found["ts"].to_pylist(), found["ts_right"].to_pylist(), strict=True)) == expected


def test_results_come_at_once_when_order_is_any():
    spec = sj.JoinSpec(TIMES, TIMES, "TRUE", sj.TimeWindow(5), "ts", "ts")
    with sj.open_join(spec, order="any") as join:
        join.push("left", times(1))
        join.push("right", times(3))
        assert sum(batch.num_rows for batch in join.poll()) == 1
        assert join.poll() == []
        assert join.finish().num_rows == 0


def test_windows_hold_only_what_can_still_meet():
    spec = sj.JoinSpec(TIMES, TIMES, "TRUE", sj.TimeWindow(left=2, right=0), "ts", "ts")
    with sj.open_join(spec) as join:
        join.push("left", times(1, 5, 8))
        join.push("right", times(1, 6, 7))
        stats = join.stats()
    # Right is at 7, so left 5 and 8 can still be met; left is at 8, and right tuples do not wait.
    assert (stats.left_window, stats.right_window) == (2, 0)


# ---- against the oracle


def check(
    spec: sj.JoinSpec, left: pa.Table, right: pa.Table, run: Callable[..., pa.Table], order: Any
) -> None:
    """`run` on numbered tables gives the oracle's pairs, each with its own payload."""
    spec, left, right = numbered(spec, left, right)
    expected = sj.oracle.pairs(left, right, spec)
    found = run(spec, left, right)
    assert found.schema.equals(spec.schema)
    met = pairs_of(found)
    assert (met if order == "timestamp" else sorted(met)) == (
        expected if order == "timestamp" else sorted(expected)
    )
    for side, row, names in (
        (left, "l", spec.left.names),
        (right, "r", spec.schema.names[len(spec.left.names) :]),
    ):
        for column, name in zip(side.columns, names, strict=True):
            values = column_values(column)
            rows = [values[at] for at in found[row].to_pylist()]
            assert repr(column_values(found[name])) == repr(rows), name


@st.composite
def streamed(draw, both: tuple[pa.Schema, pa.Schema], on: Any):
    """(order, spec, left, right, how it runs): a join over in-order tables, cut and interleaved at random."""
    order = draw(st.sampled_from(ORDERS))
    spec, left, right = draw(specs(on=on, both=both, in_order=True))
    room = draw(st.sampled_from([1_000_000, 1, 3]))
    latency = draw(st.sampled_from([None, 1.0]))  # with one, pushes wait for each other
    polls = itertools.cycle(draw(st.lists(st.booleans(), min_size=1, max_size=4)))

    def run(spec: sj.JoinSpec, left: pa.Table, right: pa.Table) -> pa.Table:
        with sj.open_join(spec, order=order, max_results=room, latency=latency) as join:
            batches = push_all(join, draw(arrivals(left, right)), lambda: next(polls))
            batches += join.finish().to_batches()
        check_punctuations(spec, batches, order)
        plain = [batch.replace_schema_metadata(None) for batch in batches]
        return pa.Table.from_batches(plain, spec.schema)

    return order, spec, left, right, run


def check_punctuations(spec: sj.JoinSpec, batches: list[pa.RecordBatch], order: Any) -> None:
    """No result that comes after a punctuation is below it; other orders have none."""
    promised = -math.inf
    for batch in batches:
        for l, r in zip(*(in_ticks(batch, spec, side) for side in ("left", "right")), strict=True):
            assert max(l, r) >= promised
        mark = sj.punctuation(batch)
        assert order == "punctuated" or mark is None
        promised = max(promised, -math.inf if mark is None else mark)


def in_ticks(batch: pa.RecordBatch, spec: sj.JoinSpec, side: str) -> list[int]:
    at = 0 if side == "left" else len(spec.left.names)
    at += spec.side_schema(side).names.index("ts")
    column = batch.column(at)
    coarser = TIME_SCALE[spec.time_unit] - TIME_SCALE[column.type.unit] if spec.time_unit else 0
    return [value * 10**coarser for value in column_values(pa.chunked_array([column]))]


INT, LONG, SMALL, UNSIGNED = pa.int32(), pa.int64(), pa.int8(), pa.uint64()
FLOAT, DOUBLE, TEXT, BOOLEAN = pa.float32(), pa.float64(), pa.string(), pa.bool_()


@dataclass(frozen=True)
class Case:
    """A predicate and the columns it reads, by side."""

    on: Any
    left: tuple[pa.DataType, ...]
    right: tuple[pa.DataType, ...]
    time: pa.DataType = LONG

    @property
    def both(self) -> tuple[pa.Schema, pa.Schema]:
        """Columns `x0`, `x1` ... on the left, `y0`, `y1` ... on the right."""
        left, right = (
            pa.schema([("ts", self.time), *((f"{letter}{n}", kind) for n, kind in enumerate(kinds))])
            for letter, kinds in (("x", self.left), ("y", self.right))
        )
        return left, right


def close_or_flagged(l: Any, r: Any) -> bool:
    return bool(abs(l.x0 - r.y0) <= 1 or l.x1)


CASES = {
    "equality": Case("x0 = y0", (INT,), (LONG,)),
    "two equalities": Case("x0 = y0 AND x1 = y1", (INT, pa.int16()), (INT, SMALL)),
    "band": Case("x0 BETWEEN y0 - 1 AND y0 + 2", (INT,), (INT,)),
    "wide band": Case("y0 >= x0 - 10 AND y0 < x0 + 9223372036854775807", (LONG,), (LONG,)),
    "two-dimensional band": Case("ABS(x0 - y0) <= 1 AND x1 BETWEEN y1 - 2 AND y1", (INT, INT), (INT, LONG)),
    "one-sided": Case("x0 > y0 + 1", (LONG,), (INT,)),
    "unequal": Case("x0 <> y0", (INT,), (LONG,)),
    "union of bands": Case("x0 BETWEEN y0 - 1 AND y0 OR x0 = y0 + 2 OR x0 > y0 + 9", (INT,), (INT,)),
    "union over keys": Case("x0 = y0 OR x1 BETWEEN y1 AND y1 + 1", (INT, LONG), (INT, LONG)),
    "scaled": Case("2 * x0 - 3 < 3 * y0 + 1 AND 5 * x0 >= 2 * y0", (INT,), (SMALL,)),
    "decimal": Case("ABS(x0 - y0) <= 0.5", (pa.decimal128(9, 2),), (pa.decimal128(5, 5),)),
    "wide decimal": Case("x0 - 0.25 <= y0 AND x0 % 3 = y0 % 2", (pa.decimal128(30, 2),), (pa.decimal128(35, 0),)),
    "unsigned": Case("x0 BETWEEN y0 - 1 AND y0 + 1", (UNSIGNED,), (UNSIGNED,)),
    "unsigned with signed": Case("x0 - y0 <= 2 AND x0 >= y0", (UNSIGNED,), (LONG,)),
    "floats": Case("ABS(x0 - y0) <= 0.5", (DOUBLE,), (DOUBLE,)),
    "single floats": Case("x0 BETWEEN y0 - 0.1 AND y0 + 0.1", (FLOAT,), (FLOAT,)),
    "float with integer": Case("x0 * 0.1 <= y0 AND x0 + 1e0 > y0", (DOUBLE,), (LONG,)),
    "negated float comparison": Case("NOT (x0 < y0) AND x0 <> y1", (FLOAT,), (DOUBLE, DOUBLE)),
    "timestamps": Case(
        "x0 BETWEEN y0 - INTERVAL '1' SECOND AND y0 + INTERVAL '1 millisecond'",
        (pa.timestamp("us"),), (pa.timestamp("ns"),), pa.timestamp("ms"),
    ),
    "dates": Case("x0 - y0 BETWEEN 0 AND 1", (pa.date32(),), (pa.date64(),)),
    "strings": Case("x0 = y0", (TEXT,), (pa.dictionary(pa.int32(), TEXT),)),
    "string order": Case("x0 < y0 AND x0 <> 'ab'", (pa.string_view(),), (pa.large_string(),)),
    "pattern": Case("x0 LIKE 'a%' AND y0 NOT LIKE '_'", (TEXT,), (TEXT,)),
    "binaries": Case("x0 = y0 OR x0 = X'ff'", (pa.binary(),), (pa.binary(1),)),
    "band and text": Case("x0 BETWEEN y0 - 1 AND y0 + 1 AND (x1 = y1 OR x1 LIKE '%b')", (INT, TEXT), (INT, TEXT)),
    "residual": Case("x0 = y0 AND x1 * y1 > 1 AND x0 + y1 <> 3", (INT, LONG), (INT, INT)),
    "choices": Case(
        "CASE WHEN x0 > y0 THEN COALESCE(x1, 0) ELSE LEAST(y1, x1) END = 1 OR x0 IS NULL",
        (INT, LONG), (INT, SMALL),
    ),
    "distinct": Case("x0 IS NOT DISTINCT FROM y0", (INT,), (LONG,)),
    "booleans": Case("x0 = y0 OR (x0 AND x1) IS NULL", (BOOLEAN, BOOLEAN), (BOOLEAN,)),
    "one side only": Case("x0 > 1", (INT,), ()),
    "everything": Case("TRUE", (), ()),
    "nothing": Case("x0 = y0 AND FALSE", (INT,), (INT,)),
    "callable": Case(close_or_flagged, (INT, BOOLEAN), (DOUBLE,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=50)
@given(data=st.data())
def test_streamed_tables_give_the_oracles_result(name, data):
    order, spec, left, right, run = data.draw(streamed(CASES[name].both, CASES[name].on))
    check(spec, left, right, run, order)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10)
@given(data=st.data())
def test_whole_tables_in_any_row_order_give_the_oracles_result(name, data):
    case = CASES[name]
    order = data.draw(st.sampled_from(ORDERS))
    spec, left, right = data.draw(specs(on=case.on, both=case.both))
    check(spec, left, right, lambda s, l, r: sj.join_tables(l, r, s, order=order), order)


@settings(max_examples=60)
@given(data=st.data())
def test_event_times_and_windows_at_the_ends_of_64_bits(data):
    ends = [INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX]
    some = st.lists(st.sampled_from(ends), max_size=8)
    left, right = times(*sorted(data.draw(some))), times(*sorted(data.draw(some)))
    size = st.sampled_from([0, 1, 2**62, INT64_MAX - 1, INT64_MAX])
    window = st.one_of(st.builds(sj.TimeWindow, size, size), st.builds(sj.RowWindow, size, size))
    spec = sj.JoinSpec(TIMES, TIMES, "TRUE", data.draw(window | st.tuples(window, window)), "ts", "ts")
    order = data.draw(st.sampled_from(ORDERS))

    def run(spec: sj.JoinSpec, left: pa.Table, right: pa.Table) -> pa.Table:
        with sj.open_join(spec, order=order) as join:
            batches = push_all(join, data.draw(arrivals(left, right)), lambda: True)
            batches += join.finish().to_batches()
        check_punctuations(spec, batches, order)
        return pa.Table.from_batches([b.replace_schema_metadata(None) for b in batches], spec.schema)

    check(spec, left, right, run, order)


def check_random_predicate(data: st.DataObject, examples: int) -> None:
    """Draw one predicate, which is compiled once, and join several pairs of tables with it."""
    both = data.draw(schemas())
    spec, _, _ = data.draw(specs(both=both, max_rows=0))
    for _ in range(examples):
        order, spec, left, right, run = data.draw(streamed(both, spec.on))
        check(spec, left, right, run, order)


@settings(max_examples=8)
@given(data=st.data())
def test_random_predicates_give_the_oracles_result(data):
    check_random_predicate(data, 3)


@pytest.mark.slow
@settings(max_examples=300)
@given(data=st.data())
def test_many_random_predicates_give_the_oracles_result(data):
    check_random_predicate(data, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=500)
@given(data=st.data())
def test_many_streamed_tables_give_the_oracles_result(name, data):
    order, spec, left, right, run = data.draw(streamed(CASES[name].both, CASES[name].on))
    check(spec, left, right, run, order)


@settings(max_examples=15)
@given(data=st.data())
def test_result_does_not_depend_on_who_is_polled_when(data):
    """The same pushes with and without polling in between give the same sequence of timestamps."""
    case = CASES["band"]
    left, right = (data.draw(tables(schema, "ts", in_order=True)) for schema in case.both)
    assume(left.num_rows and right.num_rows)
    spec = sj.JoinSpec(*case.both, case.on, sj.RowWindow(3), "ts", "ts")
    pushes = data.draw(arrivals(left, right))
    results = []
    for polled in (True, False):
        with sj.open_join(spec, order="timestamp") as join:
            batches = push_all(join, pushes, lambda polled=polled: polled)
            results.append(pa.Table.from_batches([*batches, *join.finish().to_batches()], spec.schema))
    assert results[0].equals(results[1])
