"""Parses schemas and windows of the command line: `x int, y float` and `10 minutes, 0`."""

from __future__ import annotations

import re

import pyarrow as pa

import streamjoin as sj
from streamjoin.semantics.column_lists import (
    DeclaredType,
    decimal_digits,
    parse_columns,
    unknown_type,
)

ARROW_TYPES: dict[str, pa.DataType] = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "integer": pa.int32(), "bigint": pa.int64(),
    "long": pa.int64(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
    "float": pa.float32(), "real": pa.float32(), "float32": pa.float32(), "double": pa.float64(),
    "float64": pa.float64(), "bool": pa.bool_(), "boolean": pa.bool_(), "string": pa.string(),
    "text": pa.string(), "binary": pa.binary(), "blob": pa.binary(), "bytes": pa.binary(),
    "date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamp_s": pa.timestamp("s"),
    "timestamp_ms": pa.timestamp("ms"), "timestamp_us": pa.timestamp("us"), "timestamp_ns": pa.timestamp("ns"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}  # fmt: skip
SIZED_TYPES = ("varchar", "char")  # whose size is read and ignored
ARROW_TYPE_NAMES = f"{', '.join(ARROW_TYPES)}, varchar(n), decimal(p, s)"


def parse_schema(text: str) -> pa.Schema:
    """The schema that `name type, name type, ...` declares. Types are SQL's names or Arrow's."""
    return pa.schema(
        [pa.field(column.name, arrow_type(column.type), column.nullable) for column in parse_columns(text)]
    )


def arrow_type(kind: DeclaredType) -> pa.DataType:
    """The Arrow type of a declaration."""
    if kind.name == "decimal":
        return pa.decimal128(*decimal_digits(kind, default=(38, 0)))
    if kind.name in SIZED_TYPES and len(kind.sizes) <= 1:
        return pa.string()
    if kind.name not in ARROW_TYPES or kind.sizes:
        raise unknown_type(kind.name, ARROW_TYPE_NAMES)
    return ARROW_TYPES[kind.name]


def with_time(schema: pa.Schema, time: str | None) -> tuple[pa.Schema, str]:
    """The schema and its time column: the one named, else `ts`, else the only timestamp, else an added `ts`."""
    if time is not None:
        return schema, time
    timestamps = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    if "ts" in schema.names or len(timestamps) != 1:
        time = "ts"
    else:
        time = timestamps[0]
    if time not in schema.names:
        schema = schema.insert(0, pa.field("ts", pa.timestamp("us")))
    return schema, time


def parse_window(window: str | None, rows: str | None) -> sj.TimeWindow | sj.RowWindow:
    """`15 minutes` for both sides, `10 minutes, 0` for left and right; `rows` counts tuples instead."""
    if (window is None) == (rows is None):
        raise sj.WindowError(
            "give either --window (such as '15 minutes') or --rows (such as 1000)",
            field="--window",
            given=(window, rows),
            allowed="--window or --rows",
        )
    text = window if rows is None else rows
    assert text is not None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 2:
        raise sj.WindowError(
            f"{text!r} has {len(parts)} parts: give one for both sides, or left's and right's",
            field="--window" if rows is None else "--rows",
            given=text,
            allowed="one part or two",
        )
    values = [int(part) if re.fullmatch(r"[+-]?\d+", part) else part for part in parts]
    if rows is None:
        return sj.TimeWindow(*values)
    counts = [value for value in values if isinstance(value, int)]
    if len(counts) < len(values):
        raise sj.WindowError(
            f"--rows is {rows!r}: give a whole number of tuples, or left's and right's: '100, 50'",
            field="--rows",
            given=rows,
            allowed="a whole number of tuples, or two: '100, 50'",
        )
    return sj.RowWindow(*counts)
