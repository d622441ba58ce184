"""Cut result rows into pieces of bounded size, however many rows match.

A few rows with a common key give millions of result rows, and each copies the strings of both sides. So the size of the
input does not bound the size of the result. We build results piece by piece, and compute the size of a piece before we
build it, from the sizes of the rows that it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

OFFSET_BYTES = 4  # bytes of the offset that a string or a list needs

Sizes = int | np.ndarray  # one size for all rows, or one for each


def width(kind: pa.DataType) -> int | None:
    """The bytes of a value of this type; None if the size varies."""
    if pa.types.is_struct(kind):
        widths = [width(field.type) for field in kind]
        return None if None in widths else sum(filter(None, widths))
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:
        return None


def sizes_of(columns: Sequence[pa.Array]) -> np.ndarray:
    """About how many bytes each row has in columns of equal length. O(rows), whatever the columns hold."""
    total = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        total += _sizes(column)
    return total


def _sizes(array: pa.Array) -> np.ndarray:
    kind = array.type
    if pa.types.is_struct(kind) and kind.num_fields:
        return sizes_of([array.field(number) for number in range(kind.num_fields)])
    if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        return np.diff(_offsets(array)) + OFFSET_BYTES
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(_sizes(array.values))])
        begins: np.ndarray = ends[_offsets(array)]
        return np.diff(begins) + OFFSET_BYTES
    return np.full(len(array), -(-int(array.nbytes) // max(1, len(array))))


def _offsets(array: pa.Array) -> np.ndarray:
    """Where the values of each row begin, and where those of the last one end."""
    if not len(array):
        return np.zeros(1, np.int64)
    large = pa.types.is_large_list(array.type) or array.type in (pa.large_string(), pa.large_binary())
    dtype = np.dtype(np.int64 if large else np.int32)
    found = np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * dtype.itemsize)
    return found.astype(np.int64, copy=False)


def cut(count: int, sizes: Sizes, rows: int, nbytes: int) -> Iterator[slice]:
    """Cut `count` rows into consecutive pieces of at most `rows` rows and `nbytes` bytes. A row that is larger than
    that is a piece by itself. O(pieces), and O(count) if rows differ in size."""
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
