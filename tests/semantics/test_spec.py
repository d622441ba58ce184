"""`JoinSpec`, windows and durations: what they mean, and what is refused on creation."""

from __future__ import annotations

import dataclasses
import datetime
import doctest
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.semantics import durations, windows
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.durations import lateness_ticks, ticks
from streamjoin.semantics.windows import SideWindow

INTS = pa.schema([("ts", pa.int64()), ("x", pa.int32())])
DAY = 86_400


def times(unit: str, tz: str | None = None) -> pa.Schema:
    return pa.schema([("ts", pa.timestamp(unit, tz)), ("x", pa.int32())])


def spec_of(**changed: Any) -> sj.JoinSpec:
    given: dict[str, Any] = {
        "left": INTS, "right": INTS, "on": "left.x = right.x", "window": sj.TimeWindow(10),
        "left_time": "ts", "right_time": "ts",
    }  # fmt: skip
    return sj.JoinSpec(**(given | changed))


def refused(given: Callable[[], object], error: type[sj.StreamJoinError], *said: str) -> None:
    """`given` raises exactly `error`, and the message says all of `said`."""
    with pytest.raises(sj.StreamJoinError) as caught:
        given()
    assert type(caught.value) is error
    for words in said:
        assert words in str(caught.value)


# ---- durations


@pytest.mark.parametrize(
    ("duration", "unit", "expected"),
    [
        ("15 minutes", "s", 900),
        ("1 hour 30 min", "s", 5400),
        ("1h30m", "s", 5400),
        ("250 ms", "us", 250_000),
        ("1.5 s", "ms", 1500),
        ("0.1 s", "ns", 100_000_000),
        ("2 days, 1 hour", "s", 2 * DAY + 3600),
        ("1 week", "s", 7 * DAY),
        ("1 Second", "ns", 10**9),
        ("999 ms", "s", 0),  # whole ticks: differences of seconds within 999 ms are 0
        ("1999 us", "ms", 1),
        ("0 s", "us", 0),
        (datetime.timedelta(minutes=1, microseconds=5), "us", 60_000_005),
        (datetime.timedelta(microseconds=999), "ms", 0),
        (pd.Timedelta("1 s") + pd.Timedelta(7, "ns"), "ns", 1_000_000_007),
        (17, None, 17),
    ],
)
def test_durations_in_ticks(duration, unit, expected):
    assert ticks(duration, unit, "it") == expected


@pytest.mark.parametrize(
    "text", ["", "  ", "15", "minutes", "15 parsecs", "1 hour and 2 min", "5 min x", "1e3 s", "-"]
)
def test_text_that_is_no_duration(text):
    refused(lambda: sj.TimeWindow(text), sj.WindowError, "window.left", repr(text), "15 minutes")


@pytest.mark.parametrize("module", [durations, windows], ids=["durations", "windows"])
def test_examples_of_the_docstrings(module):
    failed, attempted = doctest.testmod(module)
    assert attempted > 0
    assert failed == 0


@pytest.mark.parametrize(
    ("lateness", "unit", "expected"),
    [
        (0, "us", 0),
        (0, None, 0),
        (7, None, 7),
        ("1500 ns", "us", 1),
        (datetime.timedelta(seconds=2), "ms", 2000),
    ],
)
def test_lateness_in_ticks(lateness, unit, expected):
    assert lateness_ticks(lateness, unit) == expected


@pytest.mark.parametrize(
    "duration", ["9" * 5000 + " s", "1 s " * 100, "x" * 10**6], ids=["digits", "parts", "text"]
)
def test_a_text_that_is_too_long_for_a_duration_is_refused_in_a_short_message(duration):
    for given in (lambda: sj.TimeWindow(duration), lambda: lateness_ticks(duration, "us")):
        refused(given, sj.WindowError, f"{len(duration)} characters", "at most 200")
        with pytest.raises(sj.WindowError) as caught:
            given()
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("number", [10**5000, -(10**5000)], ids=["large", "negative"])
def test_integers_that_python_does_not_print_are_refused(number):
    said = "an integer of about 5001 digits"
    refused(lambda: spec_of(window=sj.TimeWindow(number)), sj.WindowError, "window.left", said)
    refused(lambda: sj.RowWindow(number), sj.WindowError, "window.left", said)
    refused(lambda: spec_of(lateness=number), sj.WindowError, "lateness", said)


# ---- windows


def test_one_value_means_both_sides():
    assert sj.TimeWindow("1 s") == sj.TimeWindow("1 s", right="1 s")
    assert sj.RowWindow(5) == sj.RowWindow(5, 5)
    spec = spec_of(window=sj.TimeWindow(10, right=3))
    assert (spec.left_window, spec.right_window) == (SideWindow(False, 10), SideWindow(False, 3))
    assert spec.side_window("right") is spec.right_window


def test_windows_of_two_kinds():
    spec = spec_of(window=(sj.TimeWindow(10, 3), sj.RowWindow(7, 5)))
    assert (spec.left_window, spec.right_window) == (SideWindow(False, 10), SideWindow(True, 5))
    assert (str(spec.left_window), str(spec.right_window)) == ("10 ticks", "5 rows")


def test_windows_are_in_the_finer_unit_of_both_time_columns():
    spec = spec_of(left=times("s"), right=times("us"), window=sj.TimeWindow("1.5 s", 0))
    assert spec.time_unit == "us"
    assert (spec.left_window.size, spec.right_window.size) == (1_500_000, 0)
    assert spec_of().time_unit is None


@pytest.mark.parametrize("side", ["left", "right"])
def test_negative_windows(side):
    for length in (-1, "-1 s", datetime.timedelta(seconds=-1)):
        refused(
            lambda length=length: sj.TimeWindow(**({"left": 0} | {side: length})),  # type: ignore[misc]
            sj.WindowError, f"window.{side}", repr(length), "negative",
        )  # fmt: skip
    refused(
        lambda: sj.RowWindow(**({"left": 0} | {side: -1})),
        sj.WindowError,
        f"window.{side} is -1",
        "negative",
    )


def test_windows_that_overflow():
    refused(
        lambda: spec_of(left=times("ns"), right=times("ns"), window=sj.TimeWindow("200000 days")),
        sj.WindowError, "window.left", "'200000 days'", "overflows", "ns",
    )  # fmt: skip
    refused(
        lambda: spec_of(left=times("s"), right=times("ns"), window=sj.TimeWindow(0, datetime.timedelta(200_000))),
        sj.WindowError, "window.right", "overflows",
    )  # fmt: skip
    refused(lambda: spec_of(window=sj.TimeWindow(2**63)), sj.WindowError, str(2**63), "overflows")
    refused(lambda: sj.RowWindow(2**63), sj.WindowError, str(2**63), "overflows")
    assert spec_of(window=sj.TimeWindow(2**63 - 1)).left_window.size == 2**63 - 1
    long = spec_of(left=times("us"), right=times("us"), window=sj.TimeWindow("200000 days"))
    assert long.left_window.size == 200_000 * DAY * 10**6


def test_windows_that_do_not_fit_the_time_columns():
    refused(
        lambda: spec_of(window=sj.TimeWindow("1 s")), sj.WindowError, "'1 s'", "plain integers", "give an int"
    )
    refused(
        lambda: spec_of(left=times("us"), right=times("us")),
        sj.WindowError, "plain number 10", "timestamps[us]", "15 minutes",
    )  # fmt: skip
    # Zero needs no unit.
    assert spec_of(left=times("us"), right=times("us"), window=sj.TimeWindow(0)).left_window.size == 0


@pytest.mark.parametrize("given", [None, 1.5, True, b"1 s", [1]])
def test_lengths_of_the_wrong_type(given):
    refused(lambda: sj.TimeWindow(given), sj.WindowError, "window.left", repr(given))
    refused(lambda: sj.RowWindow(given), sj.WindowError, "window.left", repr(given), "whole number")


@pytest.mark.parametrize(
    "given",
    [None, 1.5, True, (sj.TimeWindow(1),), (1, 2, 3), (sj.TimeWindow(1), 0.5), [sj.TimeWindow(1)] * 2],
)
def test_windows_of_the_wrong_type(given):
    refused(lambda: spec_of(window=given), sj.WindowError, "window is", "TimeWindow", "RowWindow")


@pytest.mark.parametrize(
    ("unit", "given", "meant"),
    [
        (None, 10, sj.TimeWindow(10)),
        (None, np.int64(10), sj.TimeWindow(10)),
        ("ms", "5 seconds", sj.TimeWindow("5 seconds")),
        ("ms", datetime.timedelta(seconds=5), sj.TimeWindow("5 seconds")),
        ("ms", 0, sj.TimeWindow(0)),
        ("ms", ("5 seconds", "1 min"), sj.TimeWindow("5 seconds", "1 min")),
        ("ms", (0, "1 min"), sj.TimeWindow(0, "1 min")),
        ("ms", ("5 seconds", sj.RowWindow(3)), (sj.TimeWindow("5 seconds"), sj.RowWindow(3))),
        (None, (sj.RowWindow(3), 5), (sj.RowWindow(3), sj.TimeWindow(5))),
    ],
)
def test_a_duration_stands_for_a_window_of_time(unit, given, meant):
    schema = times(unit) if unit else pa.schema({"ts": pa.int64(), "x": pa.int64()})
    given, meant = (spec_of(left=schema, right=schema, window=each) for each in (given, meant))
    assert (given.left_window, given.right_window) == (meant.left_window, meant.right_window)


@pytest.mark.parametrize(
    ("unit", "given", "field", "said"),
    [
        (None, "5 seconds", "window", "the time columns are plain integers: give an int"),
        ("ms", 5, "window", "window is the plain number 5, but the time columns are timestamps[ms]"),
        ("ms", "5 parsecs", "window", "window is '5 parsecs', which is not a duration"),
        ("ms", "-5 seconds", "window", "cannot be negative"),
        ("ns", "200000 days", "window", "overflows"),
        ("ms", ("5 seconds", "soon"), "window.right", "not a duration"),
        ("ms", ("5 seconds", 7), "window.right", "plain number 7"),
        ("ms", (-1, "1 s"), "window.left", "cannot be negative"),
    ],
)
def test_durations_that_are_no_window_here(unit, given, field, said):
    schema = times(unit) if unit else pa.schema({"ts": pa.int64(), "x": pa.int64()})
    with pytest.raises(sj.WindowError) as caught:
        spec_of(left=schema, right=schema, window=given)
    assert caught.value.field == field
    assert said in str(caught.value)


def test_lateness():
    assert spec_of().lateness_ticks is None
    assert spec_of(lateness=0).lateness_ticks == 0
    assert spec_of(lateness=5).lateness_ticks == 5
    clocks = {"left": times("ms"), "right": times("ms"), "window": sj.TimeWindow("1 s")}
    assert spec_of(lateness="2 s", **clocks).lateness_ticks == 2000
    refused(lambda: spec_of(lateness=-1), sj.WindowError, "lateness is -1", "negative")
    refused(lambda: spec_of(lateness="-1 s", **clocks), sj.WindowError, "lateness is '-1 s'", "negative")
    refused(lambda: spec_of(lateness="1 s"), sj.WindowError, "lateness is '1 s'", "integers")
    refused(lambda: spec_of(lateness=3, **clocks), sj.WindowError, "lateness", "3", "ms")
    for given in (True, 1.5):
        refused(lambda given=given: spec_of(lateness=given), sj.WindowError, f"lateness is {given!r}")  # type: ignore[misc]


# ---- schemas


def test_schemas_and_time_columns():
    refused(lambda: spec_of(left={"ts": "int"}), sj.SpecError, "left is a dict", "pyarrow.Schema")
    refused(lambda: spec_of(right_time="time"), sj.SpecError, "right_time is 'time'", "['ts', 'x']")
    twice = pa.schema([("ts", pa.int64()), ("x", pa.int32()), ("x", pa.int32())])
    refused(lambda: spec_of(left=twice), sj.SpecError, "left schema", "several columns named 'x'")
    floats = pa.schema([("ts", pa.float64()), ("x", pa.int32())])
    refused(
        lambda: spec_of(left=floats),
        sj.SpecError,
        "left_time 'ts' has type double",
        "timestamp or an integer",
    )
    refused(lambda: spec_of(right=times("us")), sj.SpecError, "int64", "timestamp[us]", "both")
    clocks = {"left": times("us"), "right": times("us", "UTC"), "window": sj.TimeWindow("1 s")}
    refused(lambda: spec_of(**clocks), sj.SpecError, "time zone", "timestamp[us, tz=UTC]")
    encoded = INTS.append(pa.field("e", pa.run_end_encoded(pa.int32(), pa.int8())))
    refused(lambda: spec_of(right=encoded), sj.SpecError, "right column 'e'", "run-end")


def test_names_of_the_result():
    left = pa.schema([("ts", pa.int64()), ("x", pa.int32()), ("a", pa.int8())])
    right = pa.schema([("ts", pa.int64()), ("x", pa.string()), ("b", pa.int8())])
    spec = spec_of(left=left, right=right, on="a = b")
    assert spec.schema.names == ["ts", "x", "a", "ts_right", "x_right", "b"]
    assert spec.schema.field("x_right").type == pa.string()
    assert spec_of(left=left, right=right, on="a = b", suffix="2").schema.names[3:] == ["ts2", "x2", "b"]
    for taken in (left.append(pa.field("x_right", pa.int8())), left.append(pa.field("ts_right", pa.int8()))):
        refused(lambda taken=taken: spec_of(left=taken), sj.SpecError, "_right'", "taken", "suffix")  # type: ignore[misc]
    refused(lambda: spec_of(suffix=""), sj.SpecError, "taken", "suffix")


def test_unknown_how():
    refused(lambda: spec_of(how="outer-ish"), sj.SpecError, "how is 'outer-ish'", "allowed", "inner")


def test_a_spec_can_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec_of().how = "left"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        sj.TimeWindow(1).left = 2  # type: ignore[misc]
    assert spec_of() == spec_of()


# ---- predicates


def test_what_is_no_predicate():
    refused(lambda: spec_of(on=7), sj.SpecError, "on is a int", "SQL text", "callable")
    refused(lambda: spec_of(on="left.y = right.x"), sj.PredicateError, "y", "^")


def test_callables_tell_the_columns_they_read():
    schema = pa.schema([("ts", pa.int64()), ("b", pa.bool_()), ("f", pa.float32()), ("d", pa.date32())])

    def near(l, r):
        close = abs(l.f - r.f) < 1
        return close and (l.b or r.d > 5) and l.f > 0

    predicate = spec_of(left=schema, right=schema, on=near).predicate
    assert isinstance(predicate, CallablePredicate)
    assert [column.name for column in predicate.left] == ["b", "f"]
    assert [column.name for column in predicate.right] == ["f", "d"]
    always = spec_of(on=lambda l, r: True).predicate
    assert isinstance(always, CallablePredicate) and always.columns == ()


def test_callables_that_can_not_be_given_their_columns():
    schema = INTS.append(pa.field("s", pa.string())).append(pa.field("u", pa.uint64()))
    both = {"left": schema, "right": schema}
    refused(
        lambda: spec_of(on=lambda l, r: l.nothing == r.x, **both),
        sj.PredicateError, "left column 'nothing'", "does not exist", "['ts', 'x', 's', 'u']",
    )  # fmt: skip
    for name, kind in (("s", "string"), ("u", "uint64")):
        function = eval(f"lambda l, r: l.x == r.{name}")
        said = (f"right column '{name}' of type {kind}", "SQL")
        refused(lambda f=function: spec_of(on=f, **both), sj.PredicateError, *said)  # type: ignore[misc]


def test_callables_that_use_a_row_as_a_whole():
    def compares(l, r):
        return l == r

    def passes(l, r):
        x = l.x
        return hash(r) == x

    def renames(l, r):
        row = l
        return row.x == r.x

    def nests(l, r):
        return any(l.x == n for n in range(3)) and r.x == 1

    for function, row, offset in ((compares, "l", 1), (passes, "r", 2), (renames, "l", 1)):
        line = function.__code__.co_firstlineno + offset
        said = (f"{function.__name__} (line {line})", f"row '{row}' as a whole", f"{row}.x")
        refused(lambda f=function: spec_of(on=f), sj.PredicateError, *said)  # type: ignore[misc]
    refused(lambda: spec_of(on=nests), sj.PredicateError, "nests", "'l'", "nested function")


@pytest.mark.parametrize(
    "function",
    [lambda l: True, lambda l, r, more: True, lambda *rows: True, lambda l, *, r: True, len, print, int],
    ids=["one", "three", "any number", "keyword", "len", "print", "int"],
)
def test_callables_that_do_not_take_two_rows(function):
    refused(lambda: spec_of(on=function), sj.PredicateError, "two rows", "f(left, right)")


@pytest.mark.parametrize(
    ("make", "field", "given"),
    [
        (lambda: sj.TimeWindow("1 s", "soon"), "window.right", "soon"),
        (lambda: sj.RowWindow(-1), "window.left", -1),
        (lambda: spec_of(lateness="-1 s"), "lateness", "-1 s"),
        (lambda: spec_of(window=5.5), "window", 5.5),
        (lambda: spec_of(how="outer"), "how", "outer"),
        (lambda: spec_of(left_time="at"), "left_time", "at"),
        (lambda: spec_of(on="left.nothing = 1"), "on", "left.nothing = 1"),
        (lambda: sj.explain(spec_of(), index="btree"), "index", "btree"),  # type: ignore[arg-type]
        (lambda: sj.explain(spec_of(), workers=0), "workers", 0),
        (lambda: sj.explain(spec_of(on="left.x < right.x"), index="hash"), "index", "hash"),
    ],
)  # fmt: skip
def test_an_error_about_an_argument_has_it_as_data(make, field, given):
    with pytest.raises(sj.StreamJoinError) as caught:
        make()
    copy = pickle.loads(pickle.dumps(caught.value))
    for error in (caught.value, copy):
        assert (error.field, error.given, str(error)) == (field, given, str(caught.value))


@pytest.mark.parametrize("on", ["left.x =", "x", lambda left, right: left.nothing == right.x])
def test_an_error_about_a_predicate_has_the_predicate_as_data(on):
    with pytest.raises(sj.PredicateError) as caught:
        spec_of(on=on)
    assert (caught.value.field, caught.value.given) == ("on", on)
    assert "a condition in SQL" in str(caught.value.allowed)


def test_an_error_about_nothing_by_name_has_no_field():
    for error in (sj.Backpressure("full"), sj.InputError("no rows")):
        assert (error.given, error.allowed) == (None, None)
    assert sj.Backpressure("full").field is None


def counted(statements: int) -> Any:
    space: dict[str, Any] = {}
    exec("def f(l, r):\n    s = 0\n" + "    s = s * 3 + l.x\n" * statements + "    return s > r.x", space)
    return space["f"]


def test_functions_that_would_compile_for_long_are_refused():
    schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})

    def spec(on):
        return sj.JoinSpec(schema, schema, on, sj.TimeWindow(1), "ts", "ts")

    spec(counted(100))
    refused(
        lambda: spec(counted(1_000)),
        sj.PredicateError,
        "byte code instructions",
        "at most 1,500",
        "write SQL",
    )
    inner = counted(1_000)
    refused(lambda: spec(lambda l, r: inner(l.x, r.x)), sj.PredicateError, "byte code instructions")
    table = "lambda l, r: l.x - r.x in (" + "1, " * 1_000 + ")"
    refused(lambda: spec(eval(table)), sj.PredicateError, "byte code instructions and constants")
