"""Typical mistakes of a first hour: every message says what was given, what is allowed, and the fix."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streamjoin as sj

TRADES = [{"ts": 2, "symbol": "ACME", "price": 10.0}]
QUOTES = [{"ts": 1, "symbol": "ACME", "bid": 9.5}]
CLOCK = pd.DataFrame({"ts": pd.to_datetime(["2026-01-01"]), "symbol": ["ACME"]})
ZONED = CLOCK.assign(ts=CLOCK.ts.dt.tz_localize("UTC"))
CLOCKS = {"left": CLOCK, "right": CLOCK, "window": "5 seconds"}

# ruff: noqa: E501  # one mistake a line
# What is given instead of a right call; the field of the error; and what its message says.
MISTAKES: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    # columns
    ({"on": "left.symbol = right.symbl"}, "on", ("unknown column 'symbl'", "right has ts, symbol, bid", "did you mean 'symbol'?", "^^^^^")),
    ({"on": "symbol"}, "on", ("on is 'symbol'", "'left.symbol = right.symbol'")),
    ({"on": ["symbol"]}, "on", ("on is a list", "'left.x = right.x'")),
    ({"on": "symbol = 'ACME'"}, "on", ("'symbol' is ambiguous", "left.symbol or right.symbol")),
    ({"on": "left.price"}, "on", ("needs a condition", "left.price is float64")),
    ({"on": "left.price = right.symbol"}, "on", ("left.price is float64 and right.symbol is string",)),
    ({"on": "left.symbol = right.symbol && left.price > 1"}, "on", ("&& is not supported; write AND between conditions", f"\n{' ' * 29}^^")),
    ({"on": "left.symbol = right.symbol || left.price > 1"}, "on", ("|| joins strings, but left.price is float64; write OR between conditions", f"\n{' ' * 29}^^")),
    ({"on": "(left.symbol = right.symbol) & (left.price > 1)"}, "on", ("& is not supported; write AND between conditions",)),
    ({"on": "left.price ^ 2 = 4"}, "on", ("^ is not supported; write POWER(left.price, 2)",)),
    ({"on": "left.price // 2 = right.bid"}, "on", ("// is not supported; write FLOOR(left.price / 2)",)),
    ({"on": "left.symbol ILIKE 'A%'"}, "on", ("ILIKE is not supported; write LOWER(left.symbol) LIKE",)),
    ({"on": "1 < left.price < 5"}, "on", ("cannot be compared", "write AND between comparisons")),
    ({"on": "LOWCASE(left.symbol) = right.symbol"}, "on", ("unknown function LOWCASE", "LOWER")),
    ({"on": "IFNULL(left.price, 0) = right.bid"}, "on", ("write COALESCE(x, y)",)),
    ({"left_tie": "sequence"}, "left_tie", ("'sequence'", "not a column of left", "['ts', 'symbol', 'price']")),
    ({"right": [{"ts": 1, "symbol": "ACME", "ts_right": 3}]}, "suffix", ("'ts_right'", "taken", "choose another suffix")),
    # how and keep
    ({"how": "left_outer"}, "how", ("how is 'left_outer'", "write 'left'", "inner, left, right, full, semi, anti")),
    ({"how": "INNER"}, "how", ("write 'inner'",)),
    ({"how": "outer"}, "how", ("write 'full'",)),
    ({"how": "asof"}, "how", ("keep=sj.AsOf()",)),
    ({"keep": "backward"}, "keep", ("write sj.AsOf('backward')",)),
    ({"keep": sj.AsOf, "how": "left"}, "keep", ("the class AsOf", "sj.AsOf('backward')")),
    ({"keep": sj.AsOf(), "how": "full"}, "how", ("how='inner' or how='left'",)),
    # windows
    ({"window": "5 seconds"}, "window", ("'5 seconds'", "plain integers", "give an int")),
    ({**CLOCKS, "window": 5}, "window", ("plain number 5", "timestamps[ns]", '"15 minutes"')),
    ({**CLOCKS, "window": "5 secnds"}, "window", ("'5 secnds'", "not a duration", '"15 minutes"')),
    ({"window": 2.5}, "window", ("window is 2.5", "a timedelta", "TimeWindow", "RowWindow")),
    ({"window": -1}, "window", ("window is -1", "cannot be negative")),
    ({"window": [5, 5]}, "window", ("window is [5, 5]", "a tuple (left's, right's)")),
    ({**CLOCKS, "window": "1 month"}, "window", ("not a duration", "months and years have no constant length, so write days")),
    # times
    ({"time": None}, "left_time", ("not named", "time='ts'", "left_time= and right_time=", "['ts', 'symbol', 'price']")),
    ({**CLOCKS, "time": None}, "left_time", ("left has the timestamps ts",)),
    ({"time": "tss"}, "left_time", ("left_time is 'tss'", "did you mean 'ts'?")),
    ({"left": [{"ts": "2026-01-01", "symbol": "ACME"}]}, "left_time", ("type string", "a timestamp or an integer", "pandas.to_datetime")),
    ({"left": [{"ts": 0.5, "symbol": "ACME"}]}, "left_time", ("type double", "whole milliseconds", 'unit="s"')),
    ({"left": [{"ts": date(2026, 1, 1), "symbol": "ACME"}]}, "left_time", ("type date32[day]", "datetime.combine")),
    ({**CLOCKS, "right": ZONED}, "right_time", ("timestamp[ns]", "timestamp[ns, tz=UTC]", "tz_localize")),
    ({**CLOCKS, "right": QUOTES}, "right_time", ("timestamp[ns]", "int64", "both must be timestamps, or both integers")),
    ({**CLOCKS, "left": CLOCK.set_index("ts")}, "left_time", ("'ts', which is the index of left", "left.reset_index()")),
    # arguments that are not there
    ({"windows": "5 s"}, "windows", ("no argument 'windows'", "did you mean window?", "allowed: left, right, on")),
    ({"by": "symbol"}, "by", ("on='left.symbol = right.symbol'",)),
    ({"tolerance": "5 s"}, "tolerance", ("window='5 seconds'",)),
    ({"direction": "forward"}, "direction", ("keep=sj.AsOf(",)),
    ({"order": "sorted"}, "order", ("order is 'sorted'", "any, punctuated, timestamp")),
    ({"index": "btree"}, "index", ("'btree'", "bisort")),
    ({"topology": "scalejion"}, "topology", ("topology is 'scalejion'", "three_step", "did you mean 'scalejoin'?")),
    ({"workers": 0}, "workers", ("workers is 0", "from 1 to 64")),
    # tables
    ({"left": "trades.csv"}, "left", ("left data is a str", "pandas.read_csv")),
    ({"left": iter(TRADES)}, "left", ("list(rows)",)),
    ({"left": CLOCK.ts}, "left", ("left data is a Series", "DataFrame")),
    ({"right": None}, "right", ("right data is a NoneType", "DataFrame")),
    ({"left": []}, "left", ("empty list", "pyarrow.Table with a schema")),
    ({"left": [(2, "ACME")]}, "left", ("row 0 of left is a tuple", "dict")),
    ({"left": [{"ts": 1, "symbol": "A"}, {"ts": 2, "symbol": 5}]}, "left", ("left column 'symbol'", "row 1 is 5", "rows before it have str")),
    ({"left": {"ts": [1, 2], "symbol": ["A"]}}, "left", ("different lengths", "{'ts': 2, 'symbol': 1}")),
    ({"left": pd.DataFrame([[1, 2]], columns=["ts", "ts"])}, "left", ("several columns named 'ts'", "rename")),
    ({"left": pd.DataFrame({0: [1]})}, "left", ("a column named 0", "must be strings")),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "field", "said"), MISTAKES, ids=[mistake[1] for mistake in MISTAKES])
def test_a_mistake_is_told_with_its_fix(changed, field, said):
    given = {
        "left": TRADES, "right": QUOTES, "on": "left.symbol = right.symbol", "window": 5, "time": "ts"
    }  # fmt: skip
    with pytest.raises(sj.StreamJoinError) as caught:
        sj.join(**(given | changed))
    message = str(caught.value)
    assert caught.value.field == field, message
    assert [words for words in said if words not in message] == [], message


NOON = datetime(2026, 1, 1, 12)
TIMES = {"ts": pa.int64(), "symbol": pa.string()}
# What is pushed to a stream of TIMES, and what the message says.
PUSHES: list[tuple[Any, Any, tuple[str, ...]]] = [
    ("left", pl.LazyFrame({"ts": [1], "symbol": ["A"]}), ("left data is a LazyFrame: collect it first", "a list of dicts")),
    ("left", {"ts": 1, "symbol": "A"}, ("left data is a dict: push one row as [row]",)),
    ("left", {"ts": [1], "symbol": ["A"]}, ("left data is a dict: make it a table with pyarrow.table(columns)",)),
    ("left", None, ("left data is a NoneType: give a pyarrow RecordBatch",)),
    ("left", iter([]), ("list(rows)", "allowed: a pyarrow RecordBatch")),
    ("left", [{"ts": 1, "symbol": 5}], ("left column 'symbol' has type int64, the spec says string", 'str(row["symbol"])')),
    ([{"ts": 1, "symbol": "A"}], "left", ("allowed: left, right", "the side comes first, as in push('left', rows)")),
    ("Left", [], ("side is 'Left'; allowed: left, right",)),
]  # fmt: skip


@pytest.mark.parametrize(("side", "data", "said"), PUSHES)
def test_a_push_of_something_else_is_refused_with_the_fix(side, data, said):
    with sj.stream(TIMES, TIMES, on="left.symbol = right.symbol", window=5, time="ts") as join:
        with pytest.raises(sj.InputError) as caught:
            join.push(side, data)
        assert [words for words in said if words not in str(caught.value)] == [], str(caught.value)
        join.push("left", [{"ts": 1, "symbol": "A"}])
        join.push("right", [{"ts": 2, "symbol": "A"}])
        assert join.finish().num_rows == 1


def test_a_push_of_no_rows_is_allowed():
    with sj.stream(TIMES, TIMES, on="left.symbol = right.symbol", window=5, time="ts") as join:
        join.push("left", [])
        join.push("left", [{"ts": 1, "symbol": "A"}])
        join.push("right", [])
        assert join.stats().left_window == 1
        assert join.finish().num_rows == 0


@pytest.mark.parametrize("times", [[NOON, NOON.replace(tzinfo=UTC)], [None, NOON.replace(tzinfo=UTC), NOON]])
def test_datetimes_with_and_without_a_zone_do_not_mix(times):
    rows = [{"ts": each, "symbol": "A"} for each in times]
    with pytest.raises(sj.InputError, match="'ts' has datetimes with a time zone and without") as caught:
        sj.join(rows, rows, on="left.symbol = right.symbol", window="5 s", time="ts")
    assert caught.value.field == "left"


@pytest.mark.parametrize(("kind", "shown"), [("int64", "'int64'"), (int, "int")])
def test_types_of_columns_are_those_of_arrow(kind, shown):
    with pytest.raises(
        sj.SpecError, match=rf"left column 'ts' is {shown}: give a type of Arrow, such as pa\.int64"
    ):
        sj.stream({**TIMES, "ts": kind}, TIMES, on="left.symbol = right.symbol", window=5, time="ts")


def test_a_row_without_a_time_is_named():
    rows = [{"ts": 1, "symbol": "A"}, {"ts": None, "symbol": "B"}]
    with pytest.raises(sj.InputError, match=r"left time column 'ts' is null at row 1.*leave such rows out"):
        sj.join(rows, QUOTES, on="left.symbol = right.symbol", window=5, time="ts")


def test_a_sample_without_values_has_no_types():
    schema = pa.schema({"ts": pa.int64(), "symbol": pa.string()})
    with pytest.raises(
        sj.SpecError, match=r"left column 'symbol' has no value in the sample.*pyarrow\.Schema"
    ):
        sj.stream([{"ts": 1, "symbol": None}], schema, on="left.symbol = right.symbol", window=5, time="ts")


@pytest.mark.parametrize("call", [sj.join, sj.stream])
def test_both_calls_know_their_arguments(call):
    with pytest.raises(sj.SpecError, match=f"{call.__name__} has no argument 'colums'"):
        call(TRADES, QUOTES, on="left.symbol = right.symbol", window=5, time="ts", colums=["ts"])


STATED = {"field", "given", "allowed"}
# Classes whose constructor states them from its own arguments.
STATED_BY_CLASS = {"PredicateError", "JobError", "SideError"}
# Classes of errors that are not about a value which the caller gave.
NOT_ABOUT_INPUT = {
    "Backpressure",  # the join is full
    "ClosedError",  # the join or the source has ended
    "MissingPackageError",  # the environment
    "RunFailed",  # a query of Spark's failed
    "SparkStartError",  # the environment
    "StateError",  # raised in Spark's workers, from where only the message arrives
    "ToolError",  # the environment
    "UnsupportedVersionError",  # the environment
}
# Functions whose errors are not about a value which the caller gave, or do not know its name.
NOT_STATED = {
    "cli/bench.py": {"find_harness"},  # the environment
    "cli/jobs.py": {"job_module"},  # the environment
    "engine/driver.py": {"check"},  # the join has failed before
    "engine/forks.py": {"copy_error"},  # a call in the wrong process
    "engine/join.py": {"serve_page", "__reduce__"},  # the join has a page; no process could use a copy
    "engine/reading.py": {"_hold_next"},  # a loop that would never end
    "engine/work.py": {"reentrant_error"},  # a call at the wrong time
    "hardware/bisort/simulate.py": {"_run", "_check_open"},  # the circuit failed; a call at the wrong time
    "hardware/interpret.py": {"run"},  # the circuit failed
    "hardware/simulate.py": {"run"},  # the circuit failed
    "index/structures/hash.py": {"insert"},  # a sealed subwindow
    "page/open.py": {"open_page"},  # the environment
    "spark/checkpoint/held.py": {"read_state"},  # the environment
    "spark/checkpoint/rescale.py": {"rescale", "_check_stopped"},  # the environment; the query runs
    "spark/job/database.py": {"move", "write"},  # another process writes, too; the database failed
    # Checks of a table in a job file do not know its key: `JobError.problems` has it.
    "spark/job/avro.py": {
        "avro_columns", "read", "_file_text", "_known", "_named_type", "_record", "_fixed", "_union", "_decimal_type"
    },
    "spark/job/join_table.py": {"_check_how", "_read_keep", "_interval"},
    "spark/job/kafka_source.py": {
        "check_server", "check_pattern", "_check_topics", "_read_columns", "_check_header", "_check_id", "_check_ids"
    },
    "spark/job/other_sinks.py": {"_check_url"},
    "spark/job/paths.py": {"local_path", "parquet_columns"},
    "spark/job/run_tables.py": {"_check_trigger", "_check_checkpoint", "_check_package", "_check_settings"},
    "spark/job/sides.py": {"_check_columns", "check_time"},
    "spark/job/sinks.py": {"_check_table"},
    "spark/job/source_table.py": {"no_schema"},
    "spark/job/sources.py": {"_check_path", "_check_header"},
    "spark/job/tables.py": {"check_text", "_without_control", "_as_settings"},
}  # fmt: skip


def error_classes(trees: dict[str, ast.Module]) -> set[str]:
    """The names of `StreamJoinError` and of all classes of the package that inherit from it."""
    bases = {
        node.name: {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"StreamJoinError"}
    while more := {name for name, of in bases.items() if of & found} - found:
        found |= more
    return found


def calls_within(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.Call]]:
    """All calls, each with the name of the innermost function that makes it."""
    for inner in ast.iter_child_nodes(node):
        name = inner.name if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(inner, ast.Call):
            yield function, inner
        yield from calls_within(inner, name)


def unstated(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """By module, the functions that make an error without `field`, `given` or `allowed`."""
    classes = error_classes(trees) - STATED_BY_CLASS - NOT_ABOUT_INPUT
    found: dict[str, set[str]] = {}
    for module, tree in trees.items():
        for function, call in calls_within(tree):
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            if name in classes and not {keyword.arg for keyword in call.keywords} >= STATED:
                found.setdefault(module, set()).add(function)
    return found


def test_every_error_about_an_input_has_it_as_data():
    package = Path(sj.__file__).parent
    trees = {
        path.relative_to(package).as_posix(): ast.parse(path.read_text()) for path in package.rglob("*.py")
    }
    assert unstated(trees) == NOT_STATED
    assert error_classes(trees) >= STATED_BY_CLASS | NOT_ABOUT_INPUT


def test_an_error_without_its_data_is_found():
    source = "class Odd(SpecError): ...\nclass SpecError(StreamJoinError): ...\ndef f(x):\n    raise Odd('x', field='x')"
    assert unstated({"m.py": ast.parse(source)}) == {"m.py": {"f"}}


def push(left: Any) -> None:
    schema = pa.schema({"ts": pa.int64(), "k": pa.int32()})
    spec = sj.JoinSpec(schema, schema, "left.k = right.k", sj.TimeWindow(5), "ts", "ts")
    with sj.open_join(spec) as join:
        join.push("left", left)


@pytest.mark.parametrize(
    ("rows", "field", "given", "allowed"),
    [
        ({"ts": [1]}, "left", ["ts"], ["ts", "k"]),
        ({"ts": [1], "k": [2**40]}, "left.k", str(2**40), "int32"),
        ({"ts": [1], "k": [b"x"]}, "left.k", "binary", "int32"),
        ({"ts": pa.array([1, None]), "k": [1, 2]}, "left_time", None, "an event time"),
        ({"ts": [5, 3], "k": [1, 2]}, "left_time", "3", "5 or later"),
    ],
    ids=["columns", "value", "type", "null", "falling"],
)
def test_refused_rows_are_described_as_data(rows, field, given, allowed):
    with pytest.raises(sj.InputError) as caught:
        push(pa.table(rows))
    error = caught.value
    assert (error.field, error.given, error.allowed) == (field, given, allowed)


@pytest.mark.parametrize(
    ("call", "field", "given"),
    [
        (lambda join: join.push("middle", None), "side", "middle"),
        (lambda join: join.poll(timeout=-1), "timeout", -1),
        (lambda join: join.source("left", name=5), "name", 5),
        (lambda join: join.source("left", name="a").advance("late"), "ts", "late"),
        (lambda join: join.serve_page(port=1 << 16), "port", 1 << 16),
    ],
)
def test_refused_arguments_are_described_as_data(call, field, given):
    schema = pa.schema({"ts": pa.int64(), "k": pa.int32()})
    spec = sj.JoinSpec(schema, schema, "left.k = right.k", sj.TimeWindow(5), "ts", "ts")
    with sj.open_join(spec) as join, pytest.raises(sj.StreamJoinError) as caught:
        call(join)
    assert (caught.value.field, caught.value.given) == (field, given)
    assert caught.value.allowed
