"""Arrow columns become the arrays kernels read: every type, slices at odd offsets, NULLs, chunks, no copy where
the layout allows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strategies import _pools, array
from streamjoin.codegen.columns import SMALL_COPY, ColumnData, arguments, parameters, to_column_data
from streamjoin.semantics.columns import column_type
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.oracle import column_values
from streamjoin.semantics.types import STRING, Type, signed

TYPES = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.date64(),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")), pa.timestamp("us", "UTC"),
    pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.duration("s"), pa.duration("ns"),
    pa.decimal32(7, 2), pa.decimal64(15, 3), pa.decimal128(9, 2), pa.decimal128(18, 0), pa.decimal128(38, 5),
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1),
    pa.dictionary(pa.int8(), pa.int32()), pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int16(), pa.large_binary()),
]  # fmt: skip


def sample(kind: pa.DataType, nulls: bool) -> pa.Array:
    """Some 40 values: all of the type's pool, again and again, NULL in between."""
    tame, wild = _pools(kind.value_type if pa.types.is_dictionary(kind) else kind)
    pool = [value if kind != pa.binary_view() else _as_bytes(value) for value in [*tame, *wild]]
    pool += [None] if nulls else []
    if pa.types.is_dictionary(kind) and pa.types.is_large_binary(kind.value_type):
        pool = [_as_bytes(value) for value in pool]
    return array(
        [pool[(7 * k) % len(pool)] if len(pool) % 7 else pool[k % len(pool)] for k in range(40)], kind
    )


def _as_bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def logical(kind: pa.DataType) -> Type:
    found = column_type(kind)
    assert found is not None
    return found


def read(data: ColumnData, kind: Type) -> list[Any]:
    """The values as the oracle has them, from the arrays alone."""
    if kind.name in ("string", "binary"):
        offsets, content = data.parts
        raw = [bytes(content[lo:hi]) for lo, hi in itertools.pairwise(offsets)]
        found: list[Any] = [value.decode() for value in raw] if kind.name == "string" else raw
    elif data.parts[0].ndim == 2:
        found = [int.from_bytes(row.tobytes(), "little", signed=True) for row in data.parts[0]]
    else:
        found = data.parts[0].tolist()
        found = [bool(value) for value in found] if kind.name == "bool" else found
    valid = np.ones(len(found), np.bool_) if data.valid is None else data.valid
    return [value if ok else None for value, ok in zip(found, valid, strict=True)]


@pytest.mark.parametrize("nulls", [False, True], ids=["without nulls", "with nulls"])
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_columns_keep_their_values_at_any_offset(kind, nulls):
    whole = sample(kind, nulls)
    for offset, length in ((0, 40), (1, 39), (3, 11), (8, 8), (13, 1), (39, 1), (40, 0)):
        part = whole.slice(offset, length)
        data = to_column_data(part, logical(kind))
        assert len(data) == length
        assert repr(read(data, logical(kind))) == repr(column_values(pa.chunked_array([part])))
        assert data.valid is None or part.null_count
        assert part.null_count == 0 or data.valid is not None


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_chunks_are_joined_and_nothing_is_lost(kind):
    whole = sample(kind, nulls=True)
    chunks = pa.chunked_array([whole.slice(3, 5), whole.slice(0, 0), whole.slice(17, 9)], kind)
    data = to_column_data(chunks, logical(kind))
    assert repr(read(data, logical(kind))) == repr(column_values(chunks))


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_empty_and_all_null_columns(kind):
    empty = to_column_data(array([], kind), logical(kind))
    assert len(empty) == 0 and empty.valid is None
    unknown = to_column_data(array([None, None, None], kind), logical(kind))
    assert read(unknown, logical(kind)) == [None, None, None]


def many(values: pa.Array) -> pa.Array:
    """More values than are worth a copy."""
    return pa.concat_arrays([values] * (3 * SMALL_COPY // len(values)))


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.uint64(), pa.float64(), pa.timestamp("us"), pa.date32(), pa.int64()], ids=str
)
def test_fixed_width_columns_are_not_copied(kind):
    part = many(sample(kind, nulls=True)).slice(5, 2 * SMALL_COPY)
    values = to_column_data(part, logical(kind)).parts[0]
    width = kind.bit_width // 8
    assert values.ctypes.data == part.buffers()[1].address + 5 * width


def test_strings_are_not_copied():
    part = many(sample(pa.large_string(), nulls=False)).slice(5, 2 * SMALL_COPY)
    offsets, content = to_column_data(part, STRING).parts
    assert offsets.ctypes.data == part.buffers()[1].address + 5 * 8
    assert content.ctypes.data == part.buffers()[2].address


def test_arrays_outlive_the_column_they_came_from():
    data = to_column_data(pa.array(range(1000), pa.int64()), signed(64))
    pa.array(range(1000, 2000), pa.int64())
    assert data.parts[0].tolist() == list(range(1000))


def test_arguments_follow_parameters():
    columns = [Column("left", "x", signed(32)), Column("right", "t", STRING)]
    data = [
        to_column_data(pa.array([1, 2], pa.int32()), signed(32)),
        to_column_data(pa.array(["a", None]), STRING),
    ]
    names, flat = parameters(columns, nullable=True), arguments(data, nullable=True)
    assert names == ["c0", "c0_valid", "c1_offsets", "c1_bytes", "c1_valid"]
    assert [array_.tolist() for array_ in flat[:2]] == [[1, 2], [True, True]]
    assert flat[4].tolist() == [True, False]
    assert parameters(columns, nullable=False) == ["c0", "c1_offsets", "c1_bytes"]
    assert len(arguments(data, nullable=False)) == 3
