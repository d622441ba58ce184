"""Arrow columns as the arrays that kernels read, without a copy wherever the layout allows.

Integers, floats, dates, timestamps, times and durations keep their Arrow buffer. Booleans become bytes, decimals of
up to 18 digits int64, wider ones two limbs, strings and binaries 64-bit offsets and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.semantics.expressions import Column
from streamjoin.semantics.types import Type

Arrays = tuple[np.ndarray, ...]


@dataclass(slots=True, init=False, eq=False)
class ColumnData:
    """`parts`: (values,), or (offsets, bytes) for text. `valid`: False where NULL; None if no value is NULL.

    Treat it as immutable. It is not frozen because every push makes some, and frozen classes take three times as long.
    """

    parts: Arrays
    valid: np.ndarray | None

    def __init__(self, parts: Arrays, valid: np.ndarray | None = None):
        self.parts, self.valid = parts, valid

    def __len__(self) -> int:
        return len(self.parts[0]) - (len(self.parts) == 2)


class _BufferView:
    """An Arrow buffer that NumPy regards as writable, so that kernels need no second compiled form for read-only
    arrays. Kernels never write to their inputs."""

    def __init__(self, buffer: pa.Buffer, dtype: np.dtype, offset: int, count: int):
        self.buffer = buffer  # keeps the memory alive
        address = buffer.address + offset * dtype.itemsize
        self.__array_interface__ = {
            "shape": (count,), "typestr": dtype.str, "data": (address, False), "version": 3,
        }  # fmt: skip


SMALL_COPY = 256  # values; copying so few takes less time than making a view that looks writable


def _view(buffer: pa.Buffer | None, dtype: np.dtype, offset: int, count: int) -> np.ndarray:
    """The values in an Arrow buffer; a few of them as a copy, more in place."""
    if buffer is None or count == 0:
        return np.empty(count, dtype)
    if count <= SMALL_COPY:
        return np.frombuffer(buffer, dtype, count, offset * dtype.itemsize).copy()
    return np.asarray(_BufferView(buffer, dtype, offset, count))


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A single chunk, dictionaries decoded."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # combine_chunks keeps what exceeds 32-bit offsets in chunks
            column = pa.concat_arrays([chunk.cast(_large(chunk.type)) for chunk in column.chunks])
    if not pa.types.is_dictionary(column.type):
        return column
    values = column.dictionary
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(
        values.type
    ):  # which Arrow cannot decode
        values = values.cast(_large(values.type))
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    return column.dictionary_decode()


def _large(kind: pa.DataType) -> pa.DataType:
    return (
        pa.large_string() if pa.types.is_string(kind) or pa.types.is_string_view(kind) else pa.large_binary()
    )


def to_column_data(column: pa.Array | pa.ChunkedArray, kind: Type) -> ColumnData:
    """The arrays of one column. NULL slots hold arbitrary values; `valid` is False there."""
    plain = _PLAIN.get(column.type.id)
    if plain is not None and isinstance(column, pa.Array) and not column.null_count:
        return ColumnData((_view(column.buffers()[1], plain, column.offset, len(column)),))
    array = one_array(column)
    valid = None if array.null_count == 0 else np.asarray(array.is_valid())
    return ColumnData(_parts(array, kind), valid)


# Types whose Arrow buffer has the layout that kernels read, by Arrow's type id.
_PLAIN = {
    arrow.id: np.dtype(name)
    for arrow, name in (
        *((getattr(pa, name)(), name) for name in ("int8", "int16", "int32", "int64")),
        *((getattr(pa, name)(), name) for name in ("uint8", "uint16", "uint32", "uint64")),
        *((pa.float32(), "float32"), (pa.float64(), "float64"), (pa.date32(), "int32")),
        *((pa.timestamp("us"), "int64"), (pa.duration("us"), "int64")),
        *((pa.time32("s"), "int32"), (pa.time64("us"), "int64")),
    )
}


def plain_dtype(kind: pa.DataType) -> np.dtype | None:
    """The dtype of a column whose Arrow buffer has the layout that kernels read; None for other types."""
    return _PLAIN.get(kind.id)


def _parts(array: pa.Array, kind: Type) -> Arrays:
    count, offset = len(array), array.offset
    plain = _PLAIN.get(array.type.id)
    if plain is not None:
        return (_view(array.buffers()[1], plain, offset, count),)
    if kind.name == "bool":
        return (pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(np.uint8),)
    if kind.name in ("string", "binary"):
        return _text_parts(array)
    if kind.name == "decimal":
        array = array.cast(pa.decimal128(38, array.type.scale)) if array.type.bit_width != 128 else array
        limbs = _view(array.buffers()[1], np.dtype(np.int64), 2 * array.offset, 2 * count).reshape(-1, 2)
        return (limbs if kind.bits > 64 else np.ascontiguousarray(limbs[:, 0]),)
    if kind.name == "date":  # date64: milliseconds
        return (np.floor_divide(_view(array.buffers()[1], np.dtype(np.int64), offset, count), 86_400_000),)
    return (_view(array.buffers()[1], np.dtype(array.type.to_pandas_dtype()), offset, count),)


def _text_parts(array: pa.Array) -> Arrays:
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        offsets = np.arange(array.offset, array.offset + len(array) + 1, dtype=np.int64) * kind.byte_width
        return offsets, _bytes(array.buffers()[1])
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    offsets = _view(
        array.buffers()[1], np.dtype(np.int64 if wide else np.int32), array.offset, len(array) + 1
    )
    if array.buffers()[1] is None or len(array) == 0:
        offsets = np.zeros(len(array) + 1, np.int64)
    return offsets.astype(np.int64, copy=False), _bytes(array.buffers()[2])


def _bytes(buffer: pa.Buffer | None) -> np.ndarray:
    return _view(buffer, np.dtype(np.uint8), 0, 0 if buffer is None else buffer.size)


def arguments(data: Sequence[ColumnData], nullable: bool) -> list[np.ndarray]:
    """The arrays in the order generated functions take them: parts, then validity if `nullable`."""
    flat: list[np.ndarray] = []
    for column in data:
        flat.extend(column.parts)
        if nullable:
            flat.append(np.ones(len(column), np.bool_) if column.valid is None else column.valid)
    return flat


def parameters(columns: Sequence[Column], nullable: bool) -> list[str]:
    """The parameter names that match `arguments`."""
    names: list[str] = []
    for number, column in enumerate(columns):
        text = column.type.name in ("string", "binary")
        names += [f"c{number}_offsets", f"c{number}_bytes"] if text else [f"c{number}"]
        if nullable:
            names.append(f"c{number}_valid")
    return names
