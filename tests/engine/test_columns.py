"""`columns=` in joins: the result has these columns alone, and what nobody reads is neither gathered nor held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from strategies import arrivals, push_all, specs

TRADES = pa.schema({"ts": pa.int64(), "k": pa.int32(), "price": pa.float64(), "note": pa.string()})
QUOTES = pa.schema({"ts": pa.int64(), "k": pa.int32(), "price": pa.float64(), "venue": pa.string()})
LEFT = pa.table({"ts": [1, 4], "k": [7, 8], "price": [1.5, 2.5], "note": ["a", "b"]}, TRADES)
RIGHT = pa.table({"ts": [2, 9], "k": [7, 8], "price": [3.5, 4.5], "venue": ["x", "y"]}, QUOTES)
ON = "left.k = right.k"
CHOSEN = ["right.venue", "left.ts", "right.price AS ask"]


def spec_of(columns: Any, **options: Any) -> sj.JoinSpec:
    return sj.JoinSpec(TRADES, QUOTES, ON, 4, "ts", "ts", columns=columns, **options)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [{"venue": "x", "ts": 1, "ask": 3.5}]),
        ("left", [{"venue": "x", "ts": 1, "ask": 3.5}, {"venue": None, "ts": 4, "ask": None}]),
        ("right", [{"venue": "x", "ts": 1, "ask": 3.5}, {"venue": "y", "ts": None, "ask": 4.5}]),
    ],
)
def test_a_result_has_the_chosen_columns_in_their_order(how, expected):
    spec = spec_of(CHOSEN, how=how)
    with sj.open_join(spec, order="timestamp") as join:
        assert join.schema.names == ["venue", "ts", "ask"]
        join.push("left", LEFT)
        join.push("right", RIGHT)
        found = join.finish()
    assert found.schema == spec.schema
    assert found.to_pylist() == expected
    assert sj.join_tables(LEFT, RIGHT, spec, order="timestamp") == found
    assert sj.oracle.join(LEFT, RIGHT, spec) == found


def test_a_side_may_have_no_column_in_the_result():
    for columns in (["left.note"], ["right.price", "right.ts"], ["left.price"]):
        spec = spec_of(columns)
        assert sj.join_tables(LEFT, RIGHT, spec) == sj.oracle.join(LEFT, RIGHT, spec)


def test_columns_that_nobody_reads_are_not_held_and_late_rows_come_back_whole():
    with sj.open_join(spec_of(CHOSEN, lateness=0)) as join:
        join.push("left", LEFT.slice(1))
        join.push("left", LEFT.slice(0, 1))
        join.push("right", RIGHT)
        for side, names in (("left", {"ts", "k"}), ("right", {"ts", "k", "price", "venue"})):
            view = join._driver.rows.stores[side].view()
            assert view.memory is not None
            held = set(view.memory.names) | {name for batch in view.batches for name in batch.schema.names}
            assert held == names
        assert join.late("left").to_pylist() == LEFT.slice(0, 1).to_pylist()


@pytest.mark.parametrize("latency", [None, 0.5], ids=["at once", "gathered"])
def test_pushes_of_one_row_give_chosen_columns(latency):
    """Their plain columns are copied by a kernel, and their results built on pages."""
    columns = ["right.price AS ask", "left.ts", "left.price", "left.ts AS again"]
    spec = sj.JoinSpec(TRADES.remove(3), QUOTES.remove(3), ON, 4, "ts", "ts", columns=columns)
    left, right = LEFT.drop_columns("note"), RIGHT.drop_columns("venue")
    with sj.open_join(spec, latency=latency) as join:
        for row in range(2):
            join.push("left", left.slice(row, 1).to_batches()[0])
            join.push("right", right.slice(row, 1).to_batches()[0])
        found = join.finish()
    assert found.to_pylist() == [{"ask": 3.5, "ts": 1, "price": 1.5, "again": 1}]


# ---- one call


@pytest.mark.parametrize(
    ("make", "rows_of"),
    [
        (lambda t: t.to_pandas(), lambda df: df.to_dict("records")),
        (pl.from_arrow, lambda df: df.to_dicts()),
        (lambda t: pl.DataFrame(t).lazy(), lambda lf: lf.collect().to_dicts()),
        (duckdb.from_arrow, lambda rel: pa.table(rel).to_pylist()),
        (lambda t: t, lambda t: t.to_pylist()),
        (lambda t: t.to_pylist(), lambda rows: rows),
        (lambda t: t.to_pydict(), lambda columns: pa.table(columns).to_pylist()),
    ],
    ids=["pandas", "polars", "lazy", "duckdb", "arrow", "dicts", "columns"],
)
@pytest.mark.parametrize("right", [lambda t: t, duckdb.from_arrow], ids=["arrow", "duckdb"])
def test_every_kind_of_table_gives_chosen_columns(make, rows_of, right):
    found = sj.join(make(LEFT), right(RIGHT), on=ON, window=4, time="ts", columns=CHOSEN)
    assert rows_of(found) == [{"venue": "x", "ts": 1, "ask": 3.5}]
    of_right = sj.join(make(LEFT), right(RIGHT), on=ON, window=4, time="ts", columns=["venue"])
    assert rows_of(of_right) == [{"venue": "x"}]


def test_one_call_reads_only_the_columns_that_it_needs():
    def fail(_values: pl.Series) -> pl.Series:
        raise AssertionError("this column is not needed")

    frame = pl.DataFrame(LEFT)
    note = pl.col("note").map_batches(fail, return_dtype=pl.String)
    result = sj.join(frame.lazy().with_columns(note), RIGHT, on=ON, window=4, time="ts", columns=CHOSEN)
    assert result.collect().to_dicts() == [{"venue": "x", "ts": 1, "ask": 3.5}]


def test_pandas_dtypes_follow_renamed_columns():
    left = pd.DataFrame({"ts": [1, 4], "k": pd.Categorical(["a", "b"]), "n": [2**60 + 1, 5]})
    right = pd.DataFrame({"ts": [2], "k": ["a"], "m": [2**60 + 1]})
    columns = {"kind": "left.k", "m": "m"}
    result = sj.join(left, right, on=ON, window=4, time="ts", how="left", columns=columns)
    assert [str(dtype) for dtype in result.dtypes] == ["category", "Int64"]
    assert result["m"].tolist() == [2**60 + 1, pd.NA]


def test_a_stream_has_chosen_columns():
    with sj.stream(LEFT, RIGHT, on=ON, window=4, time="ts", columns={"where": "venue"}) as join:
        join.push("left", LEFT)
        join.push("right", RIGHT)
        assert join.finish().to_pylist() == [{"where": "x"}]


def test_select_is_answered_with_columns():
    with pytest.raises(sj.SpecError, match=r"write columns=\[\.\.\.\], such as columns="):
        sj.join(LEFT, RIGHT, on=ON, window=4, time="ts", select=["ts"])  # type: ignore[arg-type]


# ---- against the oracle

SIDE = pa.schema(
    {
        "ts": pa.int64(), "x": pa.int32(), "n": pa.int64(), "f": pa.float64(), "s": pa.string(), "b": pa.bool_(),
        "d": pa.dictionary(pa.int32(), pa.string()), "v": pa.string_view(),
    }
)  # fmt: skip


@st.composite
def chosen(draw: Any, spec: sj.JoinSpec) -> dict[str, str]:
    """Some columns of a result, some of them twice, in any order and under new names."""
    sides = ("left",) if spec.how in ("semi", "anti") else ("left", "right")
    every = [f"{side}.{name}" for side in sides for name in SIDE.names]
    picked = draw(st.lists(st.sampled_from(every), min_size=1, max_size=5))
    return {f"c{number} of {name}": name for number, name in enumerate(picked)}


def shown(table: pa.Table) -> str:
    """Names, types and values, of which NaN is itself."""
    return repr((table.schema, table.to_pydict()))


@given(st.data())
@settings(max_examples=25)
def test_chosen_columns_are_those_of_the_whole_result(data):
    spec, left, right = data.draw(specs("left.x = right.x", (SIDE, SIDE), max_rows=8, every=True))
    columns = data.draw(chosen(spec))
    narrow = replace(spec, columns=columns)
    whole = sj.oracle.join(left, right, spec)
    names = {f"{side}.{field.name}": name for side, field, name in spec.chosen}
    expected = pa.Table.from_arrays([whole[names[old]] for old in columns.values()], schema=narrow.schema)
    assert shown(sj.oracle.join(left, right, narrow)) == shown(expected)
    with sj.open_join(replace(narrow, lateness=2**62), order="timestamp") as join:
        for side in ("left", "right"):
            join.source(side, "")
        batches = push_all(join, data.draw(arrivals(left, right)), lambda: data.draw(st.booleans()))
        found = pa.Table.from_batches([*batches, *join.finish().to_batches()], narrow.schema)
    assert shown(found) == shown(expected)
