"""`sj.join` and `sj.stream`: tables of every library, with columns, types and results as their users expect."""

from __future__ import annotations

import datetime
import doctest
import subprocess
import sys
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.engine import one_call

TRADES: list[dict[str, Any]] = [
    {"ts": 20, "symbol": "ACME", "price": 10.1},
    {"ts": 2, "symbol": "ACME", "price": 10.0},
    {"ts": 5, "symbol": "BOLT", "price": 7.5},
]
QUOTES: list[dict[str, Any]] = [
    {"ts": 4, "symbol": "BOLT", "bid": 7},
    {"ts": 1, "symbol": "ACME", "bid": 9},
]
# As the definition orders them: by the later of the two times.
MATCHES: list[dict[str, Any]] = [
    {"ts": 2, "symbol": "ACME", "price": 10.0, "ts_right": 1, "symbol_right": "ACME", "bid": 9},
    {"ts": 5, "symbol": "BOLT", "price": 7.5, "ts_right": 4, "symbol_right": "BOLT", "bid": 7},
]
UNMATCHED_TRADE = {**TRADES[0], "ts_right": None, "symbol_right": None, "bid": None}
ON = "left.symbol = right.symbol"


class Capsule:
    """A table of an unknown library: nothing but the PyCapsule interface."""

    def __init__(self, table: pa.Table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


# How a table of each kind is made of an Arrow table, and read back as one.
KINDS: dict[str, tuple[Any, Any]] = {
    "arrow": (lambda t: t, lambda t: t),
    "batch": (lambda t: t.combine_chunks().to_batches()[0], lambda b: pa.Table.from_batches([b])),
    "reader": (lambda t: t.to_reader(), lambda r: r.read_all()),
    "capsule": (Capsule, lambda t: t),
    "pandas": (lambda t: t.to_pandas(), lambda df: pa.Table.from_pandas(df, preserve_index=False)),
    "polars": (pl.from_arrow, lambda df: df.to_arrow()),
    "lazy": (lambda t: pl.from_arrow(t).lazy(), lambda lf: lf.collect().to_arrow()),  # type: ignore[union-attr]
    "duckdb": (duckdb.from_arrow, lambda rel: pa.table(rel)),
    "dicts": (lambda t: t.to_pylist(), lambda rows: pa.Table.from_pylist(rows)),
    "columns": (lambda t: t.to_pydict(), lambda columns: pa.table(columns)),
}
TYPES = {
    "arrow": pa.Table, "batch": pa.RecordBatch, "reader": pa.RecordBatchReader, "capsule": pa.Table,
    "pandas": pd.DataFrame, "polars": pl.DataFrame, "lazy": pl.LazyFrame, "duckdb": duckdb.DuckDBPyRelation,
    "dicts": list, "columns": dict,
}  # fmt: skip


def of_kind(kind: str, rows: list[dict[str, Any]]) -> Any:
    return KINDS[kind][0](pa.Table.from_pylist(rows))


def as_rows(kind: str, result: Any) -> list[dict[str, Any]]:
    assert isinstance(result, TYPES[kind])
    rows: list[dict[str, Any]] = KINDS[kind][1](result).to_pylist()
    return rows


# ---- sj.join


def test_the_examples_of_the_docstrings():
    failed, attempted = doctest.testmod(one_call, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert attempted > 0
    assert failed == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_any_kind_in_any_row_order_gives_a_result_of_its_kind(kind):
    left, right = of_kind(kind, TRADES), of_kind(kind, QUOTES)
    assert as_rows(kind, sj.join(left, right, on=ON, window=10, time="ts")) == MATCHES


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_without_rows_has_the_columns(kind):
    result = sj.join(of_kind(kind, TRADES), of_kind(kind, QUOTES), on=ON, window=0, time="ts")
    if kind == "dicts":
        assert result == []
    else:
        assert KINDS[kind][1](result).column_names == list(MATCHES[0])


@pytest.mark.parametrize(
    ("left", "right"), [("pandas", "polars"), ("dicts", "duckdb"), ("duckdb", "columns")]
)
def test_two_kinds_give_the_kind_of_left(left, right):
    result = sj.join(of_kind(left, TRADES), of_kind(right, QUOTES), on=ON, window=10, time="ts", how="left")
    assert as_rows(left, result) == [*MATCHES, UNMATCHED_TRADE]


def test_time_columns_of_two_names():
    quotes = [{"at": row["ts"], "symbol": row["symbol"], "bid": row["bid"]} for row in QUOTES]
    given = {"on": ON, "window": 10, "right_time": "at"}
    matches = [(2, 1), (5, 4)]
    for times in ({"left_time": "ts"}, {"time": "ts"}):  # `time` is for sides without a name of their own
        found = sj.join(TRADES, quotes, **given, **times)  # type: ignore[arg-type]
        assert [(row["ts"], row["at"]) for row in found] == matches


def test_every_option_of_a_spec_reaches_the_join():
    last = sj.join(
        TRADES, QUOTES, on=ON, window=10, time="ts", how="left", keep=sj.AsOf("forward"), suffix="_q"
    )
    assert [(row["ts"], row["ts_q"]) for row in last] == [(2, None), (5, None), (20, None)]
    tied = [
        {"ts": 4, "symbol": "BOLT", "bid": 7, "rank": 2},
        {"ts": 4, "symbol": "BOLT", "bid": 8, "rank": 1},
    ]
    best = sj.join(TRADES, tied, on=ON, window=10, time="ts", keep=sj.AsOf(), right_tie="rank")
    assert [row["bid"] for row in best] == [7]
    assert sj.join(TRADES, QUOTES, on=ON, window=10, time="ts", how="anti") == [TRADES[0]]
    threads = sj.join(
        TRADES, QUOTES, on=ON, window=10, time="ts", topology="scalejoin", workers=2, index="scan"
    )
    assert threads == MATCHES


def test_a_python_function_as_predicate():
    found = sj.join(TRADES, QUOTES, on=lambda l, r: l.price > r.bid, window=3, time="ts")
    assert [(row["ts"], row["ts_right"]) for row in found] == [(2, 1), (2, 4), (5, 4)]


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars", "duckdb"])
def test_times_of_every_unit_and_zone(kind):
    def table(unit: str, times: list[int], name: str) -> pa.Table:
        column = pa.array(times, pa.timestamp(unit, tz="UTC"))
        return pa.table({"ts": column, name: list(range(len(times)))})

    left = KINDS[kind][0](table("ns", [10**9, 5 * 10**9], "a"))
    right = KINDS[kind][0](table("ms", [2000, 9000], "b"))
    found = KINDS[kind][1](sj.join(left, right, on="TRUE", window="1 second", time="ts"))
    assert found.select(["a", "b"]).to_pylist() == [{"a": 0, "b": 0}]


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_every_kind_gives_the_rows_of_the_oracle(data):
    """One compiled predicate, so that examples take no time to compile."""
    row = st.fixed_dictionaries({
        "ts": st.integers(0, 20), "k": st.integers(0, 3) | st.none(), "x": st.sampled_from([0.5, 2.0, None]),
        "name": st.sampled_from(["", "a", "é"]),
    })  # fmt: skip
    schema = pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.float64(), "name": pa.string()})
    left, right = (
        pa.Table.from_pylist(data.draw(st.lists(row, min_size=1, max_size=8)), schema) for _ in range(2)
    )
    how = data.draw(st.sampled_from(["inner", "left", "full", "semi"]))
    spec = sj.JoinSpec(schema, schema, "left.k = right.k", sj.TimeWindow(5), "ts", "ts", how=how)
    expected = sj.oracle.join(left, right, spec).to_pylist()
    kind = data.draw(st.sampled_from(sorted(set(KINDS) - {"dicts", "columns"})))
    made = {"left": KINDS[kind][0](left), "right": KINDS[kind][0](right)}
    found = sj.join(made["left"], made["right"], on="left.k = right.k", window=5, time="ts", how=how)
    assert list(map(_plain, as_rows(kind, found))) == list(map(_plain, expected))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as pandas can hold it: its NULLs among numbers are NaN."""
    return {name: None if value != value else value for name, value in row.items()}


# ---- pandas


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"ts": pd.to_datetime(["2026-01-01 10:00:00", "2026-01-01 10:00:05"]), **columns})


def test_the_index_of_pandas_is_no_column():
    left = frame(x=[1, 2])
    left.index = pd.Index([7, 8], name="label")
    result = sj.join(
        left, frame(y=[1, 2]).set_index("y", drop=False), on="left.x = right.y", window=0, time="ts"
    )
    assert list(result.columns) == ["ts", "x", "ts_right", "y"]
    assert list(result.index) == [0, 1]


def test_pandas_keeps_its_dtypes():
    left = frame(
        text=["a", "b"],
        kind=pd.Categorical(["u", "v"], categories=["u", "v", "w"]),
        whole=pd.array([1, None], dtype="Int64"),
        string=pd.array(["s", None], dtype="string"),
        flag=[True, False],
        small=np.array([1, 2], np.int8),
    )
    result = sj.join(left, left, on="left.small = right.small", window="1 second", time="ts", suffix="2")
    for name in left.columns:
        assert result[name].dtype == left[name].dtype == result[f"{name}2"].dtype


def test_integers_of_pandas_that_can_be_missing_stay_exact():
    big = 2**60 + 1
    result = sj.join(
        frame(x=[big, 2]), frame(x=[big, 3]), on="left.x = right.x", window=0, time="ts", how="left"
    )
    assert str(result["x_right"].dtype) == "Int64"
    assert result["x_right"].tolist() == [big, pd.NA]
    assert str(result["x"].dtype) == "int64"


# ---- Polars, DuckDB


def test_categories_of_polars_come_back():
    left = pl.DataFrame({"ts": [1], "k": pl.Series(["a"], dtype=pl.Categorical), "s": ["x"]})
    result = sj.join(left, left, on="left.k = right.k", window=0, time="ts")
    assert result.schema["k"] == pl.Categorical
    assert result.schema["s_right"] == pl.String


def test_a_result_of_duckdb_belongs_to_the_connection_of_left():
    with duckdb.connect() as connection:
        left, right = (connection.from_arrow(pa.Table.from_pylist(rows)) for rows in (TRADES, QUOTES))
        result = sj.join(left, right, on=ON, window=10, time="ts")
        assert result.join(left.set_alias("other"), "symbol").aggregate("count(*)").fetchall() == [(3,)]
        assert connection.sql("SHOW TABLES").fetchall() == []


def test_no_library_is_imported_for_a_caller_who_has_not():
    # pyarrow imports pandas by itself where it is installed.
    code = (
        "import sys, streamjoin as sj\n"
        "rows = [{'ts': 1, 'x': 2}]\n"
        "sj.join(rows, rows, on='left.x = right.x', window=0, time='ts')\n"
        "print([name for name in ('polars', 'duckdb', 'pyspark') if name in sys.modules])\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


# ---- lists of dicts


def test_keys_that_a_row_lacks_are_null():
    left = [{"ts": 1, "a": 1}, {"ts": 2, "b": "x"}]
    assert sj.join(left, [{"ts": 1}], on="TRUE", window=5, time="ts") == [
        {"ts": 1, "a": 1, "b": None, "ts_right": 1},
        {"ts": 2, "a": None, "b": "x", "ts_right": 1},
    ]


def test_python_times_join_as_timestamps():
    noon = datetime.datetime(2026, 1, 1, 12)
    left: dict[str, Any] = {"ts": [noon], "x": np.array([1])}
    right = {"ts": [noon + datetime.timedelta(seconds=3)], "y": np.array([1])}
    result = sj.join(left, right, on="left.x = right.y", window=datetime.timedelta(seconds=3), time="ts")
    assert result["ts_right"] == [noon + datetime.timedelta(seconds=3)]


# ---- sj.stream


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_takes_its_columns_from_a_sample_and_not_its_rows(kind):
    sample = of_kind(kind, TRADES)
    with sj.stream(
        left=sample, right=of_kind(kind, QUOTES), on=ON, window=10, time="ts", lateness=30
    ) as running:
        assert running.stats().left_tuples == 0
        pushed = "dicts" if kind in ("lazy", "columns") else kind
        running.push("left", of_kind(pushed, TRADES))
        running.push("right", of_kind(pushed, QUOTES))
        found = running.finish().to_pylist()
    assert sorted(found, key=lambda row: row["ts"]) == MATCHES


def test_a_stream_by_schemas_and_by_types():
    schema = pa.schema({"ts": pa.timestamp("ms"), "x": pa.int32()})
    for left, right in ((schema, schema), ({"ts": pa.timestamp("ms"), "x": pa.int32()}, schema)):
        options = {
            "order": "timestamp",
            "max_results": 5,
            "topology": "scalejoin",
            "workers": 1,
            "lateness": "1 s",
        }
        with sj.stream(left, right, "left.x = right.x", window="5 seconds", time="ts", **options) as running:  # type: ignore[arg-type]
            assert isinstance(running, sj.Join)
            assert (running.spec.left, running.spec.lateness_ticks) == (schema, 1000)
            assert running.plan.options.max_results == 5


def test_a_reader_as_a_sample_is_not_read():
    reader = pa.Table.from_pylist(TRADES).to_reader()
    with sj.stream(reader, QUOTES, on=ON, window=10, time="ts") as running:
        running.push("left", pa.Table.from_pylist(sorted(TRADES, key=lambda row: row["ts"])))
    assert reader.read_all().num_rows == len(TRADES)
