"""Scans by any condition: how far one call proceeds, and how it adapts that."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from streamjoin.codegen.blocks import LONG, SHORT, Pace
from streamjoin.codegen.columns import to_column_data
from streamjoin.codegen.programs import WindowProgram, is_done, new_cursor
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan.bands import MIN_SCAN_ROOM

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})


def below(left, right):
    return left.x < right.x


def program_of(function):
    spec = sj.JoinSpec(SCHEMA, SCHEMA, function, sj.TimeWindow(1), "ts", "ts")
    return WindowProgram(spec.predicate, None, "left")


def prepared(program):
    """Stored tuples with x from 0 to 9, and probes with 4 and 9."""
    x = {side: pa.array(values, pa.int32()) for side, values in {"left": range(10), "right": [4, 9]}.items()}
    ts = pa.array([0] * 10)
    data = {
        column: to_column_data(x[column.side] if column.name == "x" else ts, column.type)
        for column in program.block_columns
    }
    return program.prepare_stored(data, 10), program.prepare_probe(data, 2)


def test_a_call_makes_no_more_comparisons_than_it_may_and_the_next_goes_on():
    program = program_of(below)
    scan = program.scanner(*prepared(program), False)
    start, stop, cursor, pairs = (
        np.array([0, 2]),
        np.array([10, 7]),
        new_cursor(),
        PairBuffer(2 * MIN_SCAN_ROOM),
    )
    counts = []
    while not is_done(cursor):
        program._pace.comparisons = 4
        pairs.count = scan(start, stop, cursor, pairs)
        counts.append(pairs.count)
    # Of the 15 comparisons, those of the first probe with 0 to 3, 4 to 7, 8 and 9; of the second with 2 and 3, 4 to 6.
    assert counts == [4, 4, 6, 9]
    found = list(zip(pairs.probe[:9].tolist(), pairs.pos[:9].tolist(), strict=True))
    assert found == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6)]


def test_waiting_for_the_interpreter_does_not_slow_a_scan_down(monkeypatch):
    """The pace gets the time that the thread worked, not the time that it waited for others afterwards."""
    program = program_of(below)
    clock = iter([1.0, 1.0])
    monkeypatch.setattr("time.thread_time", lambda: next(clock))
    monkeypatch.setattr("time.perf_counter", itertools.count().__next__)
    scan = program.scanner(*prepared(program), False)
    scan(np.array([0]), np.array([10]), new_cursor(), PairBuffer(2 * MIN_SCAN_ROOM))
    assert program._pace.comparisons == 4


def test_a_pace_grows_by_what_was_quick_and_falls_to_what_a_moment_allows():
    pace = Pace()
    assert pace.comparisons == 1
    for _ in range(3):
        pace.took(SHORT / 2, left=0)
    assert pace.comparisons == 64
    pace.took(SHORT / 2, left=1)  # it was done before: that says nothing about 64
    pace.took((SHORT + LONG) / 2, left=0)
    assert pace.comparisons == 64
    pace.took(8 * SHORT, left=0)
    assert pace.comparisons == 8
    pace.comparisons = 1000
    pace.took(10 * SHORT, left=200)
    assert pace.comparisons == 80
    pace.took(1e6, left=0)
    assert pace.comparisons == 1


def reciprocal(left, right):
    return left.y**-1 > right.y


def quotient(left, right):
    return 1 / left.y > right.y


def refused(left, right):
    if left.y == right.y:
        raise ValueError("alike")
    return True


FLOATS = pa.schema({"ts": pa.int64(), "y": pa.float64()})


@pytest.mark.parametrize("join", [sj.oracle.join, sj.join_tables])
def test_a_function_that_raises_is_a_predicate_without_a_value(join):
    spec = sj.JoinSpec(FLOATS, FLOATS, refused, sj.TimeWindow(1), "ts", "ts")
    rows = pa.table({"ts": [0], "y": [0.0]}, schema=FLOATS)
    with pytest.raises(
        sj.PredicateError, match=r"the predicate refused has no value for .*ValueError.*alike"
    ):
        join(rows, rows, spec)
    other = pa.table({"ts": [0], "y": [1.0]}, schema=FLOATS)
    assert join(rows, other, spec).num_rows == 1


@pytest.mark.parametrize("function", [reciprocal, quotient])
def test_a_function_has_the_same_value_everywhere_or_none(function):
    """A division by zero is infinite. For a power, where compiled code has no value, it is reported."""
    spec = sj.JoinSpec(FLOATS, FLOATS, function, sj.TimeWindow(1), "ts", "ts")
    left = pa.table({"ts": [0, 0], "y": [0.0, 2.0]}, schema=FLOATS)
    right = pa.table({"ts": [0, 0], "y": [0.4, 9.0]}, schema=FLOATS)
    expected = sj.oracle.join(left, right, spec)
    assert expected.num_rows == 3
    if function is reciprocal:
        with pytest.raises(
            sj.PredicateError, match="reciprocal has no value for some pair: ZeroDivisionError"
        ):
            sj.join_tables(left, right, spec)
        left, expected = left.slice(1), expected.filter(pc.greater(expected["y"], 0.0))
    assert sj.join_tables(left, right, spec, order="timestamp").equals(expected)
