"""Where to cut result rows so that each piece is bounded, whatever matches whatever.

A few rows with a common key give millions of result rows, and each copies the strings of both sides: neither the rows
nor the bytes of a result follow from those of the input. So results are built piece by piece, and a piece is cut before
it is built, by the sizes of the rows it is made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

# The most rows and bytes of one piece; a single row may have more bytes. Two pieces, the copies made while one is
# built, and what the allocator keeps back have to stay far below the memory of a worker.
RESULT_ROWS, RESULT_BYTES = 1 << 17, 1 << 24
OFFSET = 4  # bytes that tell where a string or a list begins

Sizes = int | np.ndarray  # one size for all rows, or one for each


def width(kind: pa.DataType) -> int | None:
    """The bytes of a value of this type; None if values differ in size."""
    if pa.types.is_struct(kind):
        widths = [width(field.type) for field in kind]
        return None if None in widths else sum(filter(None, widths))
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:
        return None


def sizes_of(columns: Sequence[pa.Array]) -> np.ndarray:
    """The bytes of each row in some columns of equal length, about; O(rows), whatever they hold."""
    total = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        total += _sizes(column)
    return total


def _sizes(array: pa.Array) -> np.ndarray:
    kind = array.type
    if pa.types.is_struct(kind) and kind.num_fields:
        return sizes_of([array.field(number) for number in range(kind.num_fields)])
    if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        return np.diff(_offsets(array)) + OFFSET
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(_sizes(array.values))])
        begins: np.ndarray = ends[_offsets(array)]
        return np.diff(begins) + OFFSET
    return np.full(len(array), -(-int(array.nbytes) // max(1, len(array))))


def _offsets(array: pa.Array) -> np.ndarray:
    """Where the values of each row begin, and where the last one's end."""
    if not len(array):
        return np.zeros(1, np.int64)
    large = pa.types.is_large_list(array.type) or array.type in (pa.large_string(), pa.large_binary())
    dtype = np.dtype(np.int64 if large else np.int32)
    found = np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * dtype.itemsize)
    return found.astype(np.int64, copy=False)


def cut(count: int, sizes: Sizes, rows: int, nbytes: int) -> Iterator[slice]:
    """Consecutive pieces of `count` rows, each of so many rows and bytes at most; a row that is larger is a piece by
    itself. O(pieces), and O(count) if rows differ in size."""
    if isinstance(sizes, int):
        step = max(1, min(rows, nbytes // max(1, sizes)))
        yield from (slice(at, min(at + step, count)) for at in range(0, count, step))
        return
    ends, at = np.cumsum(sizes, dtype=np.int64), 0
    while at < count:
        before = int(ends[at - 1]) if at else 0
        fits = int(ends.searchsorted(before + nbytes, "right"))
        stop = min(at + rows, max(at + 1, fits), count)
        yield slice(at, stop)
        at = stop
