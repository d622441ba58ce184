"""Columns of every Arrow type, nested in every other: the join refuses them when it opens, or returns them
unchanged."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.engine.row_types import check_columns

LONG = "a word longer than a view holds"
ROWS = 18  # so many single rows are copied together more than once

VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.null(), [None, None, None]),
    (pa.bool_(), [True, None, False]),
    (pa.int8(), [1, None, -3]),
    (pa.uint64(), [2**64 - 1, None, 3]),
    (pa.float16(), [np.float16(1), None, np.float16(0.5)]),
    (pa.float64(), [1.5, None, -0.0]),
    (pa.decimal32(5, 2), [Decimal("1.23"), None, Decimal("2.00")]),
    (pa.decimal128(30, 2), [Decimal("1.23"), None, Decimal("2.00")]),
    (pa.decimal256(50, 2), [Decimal("1.23"), None, Decimal("2.00")]),
    (pa.date32(), [datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1)]),
    (pa.date64(), [datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1)]),
    (pa.time32("s"), [datetime.time(1), None, datetime.time(2)]),
    (pa.timestamp("us", "UTC"), [datetime.datetime(2020, 1, day, tzinfo=datetime.UTC) for day in (1, 2, 3)]),
    (pa.duration("us"), [datetime.timedelta(1), None, datetime.timedelta(2)]),
    (pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3]), None, pa.MonthDayNano([4, 5, 6])]),
    (pa.string(), [LONG, None, ""]),
    (pa.large_string(), [LONG, None, ""]),
    (pa.string_view(), [LONG, None, ""]),
    (pa.binary(), [b"x", None, b""]),
    (pa.binary(2), [b"xy", None, b"ab"]),
    (pa.large_binary(), [b"x", None, b""]),
    (pa.binary_view(), [LONG.encode(), None, b""]),
    (pa.uuid(), [b"0" * 16, None, b"1" * 16]),
    (pa.json_(), ["1", None, "{}"]),
    (pa.bool8(), [1, None, 0]),
    (pa.fixed_shape_tensor(pa.int8(), [2]), [[1, 2], None, [3, 4]]),
    (pa.opaque(pa.int8(), "kind", "vendor"), [1, None, 2]),
]
FEW = [pa.int8(), pa.string(), pa.string_view()]  # which are nested twice


def offsets(count: int, kind: pa.DataType) -> pa.Array:
    return pa.array(range(count), kind)


def encoded(values: pa.Array, ordered: bool) -> pa.Array:
    """The second row is NULL by its index, another value in the dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array([0, None, 2], pa.int8()), values, ordered=ordered)


WRAP: dict[str, Callable[[pa.Array], pa.Array]] = {
    "list": lambda a: pa.ListArray.from_arrays(offsets(4, pa.int32()), a),
    "large list": lambda a: pa.LargeListArray.from_arrays(offsets(4, pa.int64()), a),
    "list view": lambda a: pa.ListViewArray.from_arrays(
        offsets(3, pa.int32()), pa.array([1] * 3, pa.int32()), a
    ),
    "large list view": lambda a: pa.LargeListViewArray.from_arrays(
        offsets(3, pa.int64()), pa.array([1] * 3, pa.int64()), a
    ),
    "fixed-size list": lambda a: pa.FixedSizeListArray.from_arrays(a, 1),
    "struct": lambda a: pa.StructArray.from_arrays([a], ["f"]),
    "map": lambda a: pa.MapArray.from_arrays(offsets(4, pa.int32()), pa.array(["k", "l", "m"]), a),
    "dictionary": lambda a: encoded(a, ordered=False),
    "ordered dictionary": lambda a: encoded(a, ordered=True),
    "run-end encoded": lambda a: pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), a),
    "dense union": lambda a: pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [a, pa.array([5])]
    ),
    "sparse union": lambda a: pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [a, pa.array([5, 6, 7])]
    ),
}


def plain(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def wrapped(columns: list[tuple[str, list[pa.Array]]]) -> Iterator[tuple[str, list[pa.Array]]]:
    for name, arrays in columns:
        for outer, wrap in WRAP.items():
            try:
                yield f"{outer} of {name}", [wrap(array) for array in arrays]
            except pa.ArrowException:
                continue  # Arrow itself has no such type


@cache
def every_type() -> list[tuple[str, list[pa.Array]]]:
    """By name, two arrays of three rows each, with different dictionaries where they have any."""
    once = [(str(kind), [plain(kind, values), plain(kind, values[::-1])]) for kind, values in VALUES]
    few = [column for column, (kind, _) in zip(once, VALUES, strict=True) if kind in FEW]
    return [*once, *wrapped(once), *wrapped(list(wrapped(few)))]


def spec_of(columns: list[tuple[str, list[pa.Array]]]) -> sj.JoinSpec:
    schema = pa.schema([("ts", pa.int64()), *((name, arrays[0].type) for name, arrays in columns)])
    return sj.JoinSpec(schema, schema, "left.ts = right.ts", sj.TimeWindow(100), "ts", "ts", lateness=0)


def is_held(column: tuple[str, list[pa.Array]]) -> bool:
    try:
        check_columns(spec_of([column]))
    except sj.SpecError:
        return False
    return True


@cache
def held() -> list[tuple[str, list[pa.Array]]]:
    return [column for column in every_type() if is_held(column)]


def row(spec: sj.JoinSpec, number: int) -> pa.Table:
    """A row whose dictionaries are those of its half of the rows."""
    columns = [arrays[number >= ROWS // 2].slice(number % 3, 1) for _, arrays in held()]
    return pa.table([pa.array([number]), *columns], schema=spec.left)


def test_every_type_that_is_not_refused_comes_out_right():
    """Row by row, and with other dictionaries in the second half of the rows."""
    spec = spec_of(held())
    with sj.open_join(spec) as join:
        for number in range(ROWS):
            join.push("left", row(spec, number))
        join.push("left", row(spec, 0))  # which is late now
        for number in range(ROWS):
            join.push("right", row(spec, number))
        late, found = join.late("left"), join.finish()
    for table in (late, found):
        table.validate(full=True)
    assert (late.schema, found.schema) == (spec.left, spec.schema)
    assert late.to_pylist() == row(spec, 0).to_pylist()
    expected = [row(spec, number).to_pylist()[0] for number in range(ROWS)]
    rows = sorted(found.to_pylist(), key=lambda each: each["ts"])
    for name in spec.left.names:
        values = [each[name] for each in expected]
        assert [each[name] for each in rows] == values, name
        assert [each[f"{name}_right"] for each in rows] == values, name


def test_no_rows_of_every_type():
    spec = spec_of(held())
    none = row(spec, 0).slice(0, 0)
    assert sj.join_tables(none, none, spec).schema == spec.schema
    with sj.open_join(spec, order="punctuated") as join:  # a promise may travel without rows
        for side in ("left", "right"):
            join.source(side, "").advance(5)
        (promise,) = join.poll()
    assert promise.num_rows == 0
    assert promise.schema == spec.schema
    assert sj.punctuation(promise) == 5


def test_only_what_arrow_can_not_copy_is_refused():
    names = {name for name, _ in held()}
    refused = [name for name, _ in every_type() if name not in names]
    assert len(names) > 500
    assert all("dictionary" in name or "run-end" in name or "union" in name for name in refused)
    for name in (
        "dictionary of timestamp[us, tz=UTC]",
        "dictionary of decimal128(30, 2)",
        "ordered dictionary of string",
        "dictionary of string_view",
        "list of dictionary of string",
        "dense union of int8",
        "struct of extension<arrow.uuid>",
    ):
        assert name not in refused


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.list_(pa.int8())),
        pa.list_(pa.dictionary(pa.int8(), pa.struct({"a": pa.int8()}))),
        pa.dictionary(pa.int8(), pa.dictionary(pa.int8(), pa.string())),
        pa.struct({"a": pa.run_end_encoded(pa.int32(), pa.int8())}),
        pa.dense_union([pa.field("a", pa.string_view())]),
    ],
    ids=str,
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_type_that_arrow_can_not_copy_is_refused_when_the_join_is_opened(kind, side):
    schema = pa.schema({"ts": pa.int64()})
    schemas = {"left": schema, "right": schema, side: schema.append(pa.field("odd", kind))}
    spec = sj.JoinSpec(
        **schemas, on="left.ts = right.ts", window=sj.TimeWindow(1), left_time="ts", right_time="ts"
    )
    with pytest.raises(sj.SpecError, match=rf"{side} column 'odd' has type .*convert the column"):
        sj.open_join(spec)
