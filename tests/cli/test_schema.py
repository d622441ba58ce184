"""Columns and windows as they are written in a command."""

from __future__ import annotations

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.cli.schema import parse_schema, parse_window, with_time


def test_a_schema_is_written_in_sql_names():
    schema = parse_schema("x int, y float , p decimal(10, 2), s varchar(20), t timestamp, w BIGINT")
    assert schema == pa.schema(
        {
            "x": pa.int32(),
            "y": pa.float32(),
            "p": pa.decimal128(10, 2),
            "s": pa.string(),
            "t": pa.timestamp("us"),
            "w": pa.int64(),
        }
    )


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "",
        "x int,",
        "x int y",
        "x decimal(50, 2)",
        "x decimal(3, 5)",
        "x money",
        "x int(3)",
        "x array<int>",
    ],
)
def test_a_wrong_schema_is_refused(text):
    with pytest.raises(sj.SpecError, match=r"not a list of columns|unknown type|1 to 38"):
        parse_schema(text)


def test_every_type_name_has_its_arrow_type():
    types = parse_schema("a timestamp_ns, b timestamptz, c numeric, d char, e uint8, f int8 NOT NULL").types
    assert types == [
        pa.timestamp("ns"),
        pa.timestamp("us", "UTC"),
        pa.decimal128(38, 0),
        pa.string(),
        pa.uint8(),
        pa.int8(),
    ]
    assert not parse_schema("f int8 NOT NULL").field("f").nullable


def test_the_time_column_is_named_or_ts_or_the_only_timestamp_or_added():
    assert with_time(parse_schema("at timestamp, x int"), None)[1] == "at"
    assert with_time(parse_schema("at timestamp, ts bigint"), None)[1] == "ts"
    assert with_time(parse_schema("at timestamp, x int"), "x")[1] == "x"
    added, name = with_time(parse_schema("x int"), None)
    assert (added.names, name) == (["ts", "x"], "ts")


def test_windows_are_one_value_or_two():
    assert parse_window("15 minutes", None) == sj.TimeWindow("15 minutes")
    assert parse_window("10 minutes, 0", None) == sj.TimeWindow("10 minutes", 0)
    assert parse_window(None, "100, 50") == sj.RowWindow(100, 50)


@pytest.mark.parametrize(
    ("window", "rows"), [(None, None), ("1 s", "5"), (None, "many"), ("1 s, 2 s, 3 s", None)]
)
def test_wrong_windows_are_refused(window, rows):
    with pytest.raises(sj.WindowError):
        parse_window(window, rows)
