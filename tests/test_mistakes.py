"""Typical mistakes of a first hour: every message says what was given, what is allowed, and the fix."""

from __future__ import annotations

from typing import Any

import pandas as pd
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
    ({"how": "left_outer"}, "how", ("how is 'left_outer'", "say 'left'", "inner, left, right, full, semi, anti")),
    ({"how": "INNER"}, "how", ("say 'inner'",)),
    ({"how": "outer"}, "how", ("say 'full'",)),
    ({"how": "asof"}, "how", ("keep=sj.AsOf()",)),
    ({"keep": "backward"}, "keep", ("say sj.AsOf('backward')",)),
    ({"keep": sj.AsOf, "how": "left"}, "keep", ("the class AsOf", "sj.AsOf('backward')")),
    ({"keep": sj.AsOf(), "how": "full"}, "how", ("how='inner' or how='left'",)),
    # windows
    ({"window": "5 seconds"}, "window", ("'5 seconds'", "plain integers", "give an int")),
    ({**CLOCKS, "window": 5}, "window", ("plain number 5", "timestamps[ns]", '"15 minutes"')),
    ({**CLOCKS, "window": "5 secnds"}, "window", ("'5 secnds'", "not a duration", '"15 minutes"')),
    ({"window": 2.5}, "window", ("window is 2.5", "a timedelta", "TimeWindow", "RowWindow")),
    ({"window": -1}, "window", ("window is -1", "cannot be negative")),
    ({"window": [5, 5]}, "window", ("window is [5, 5]", "a tuple (left's, right's)")),
    # times
    ({"time": None}, "left_time", ("not named", "time='ts'", "left_time= and right_time=", "['ts', 'symbol', 'price']")),
    ({**CLOCKS, "time": None}, "left_time", ("left has the timestamps ts",)),
    ({"time": "tss"}, "left_time", ("left_time is 'tss'", "did you mean 'ts'?")),
    ({"left": [{"ts": "2026-01-01", "symbol": "ACME"}]}, "left_time", ("type string", "a timestamp or an integer", "pandas.to_datetime")),
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
