"""Copies the columns of small pushes that are needed at once: the event times, what the predicate reads, and what is
kept by row number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamjoin.kernels.arrow import ARROW_WORDS, read_columns

MOST_COPIED = 256  # rows; longer columns are read where they are


class ColumnCopier:
    """Copies some columns of batches of one schema. Threads may share it."""

    def __init__(self, columns: Sequence[tuple[int, np.dtype]], required: Sequence[int]):
        """`columns`: the number of each, and the dtype in which Arrow holds it. `required`: the numbers of further
        columns that must not have NULLs."""
        self._dtypes = [dtype for _, dtype in columns]
        numbers, widths = [number for number, _ in columns], [dtype.itemsize for dtype in self._dtypes]
        self._read = tuple(np.array(each, np.int64) for each in (numbers, widths, required))
        self._row_bytes = sum(widths)
        self._free: list[tuple[np.ndarray, int]] = []  # memory for an `ArrowArray` each, and its address

    def values(self, batch: pa.RecordBatch) -> list[np.ndarray] | None:
        """The values of the columns; None if one has a NULL, or if the batch is empty or not small. O(rows)."""
        count = batch.num_rows
        if not 0 < count <= MOST_COPIED:
            return None
        try:
            memory = self._free.pop()
        except IndexError:
            words = np.zeros(ARROW_WORDS, np.int64)
            memory = words, words.ctypes.data
        out = np.empty((self._row_bytes * count + 8 * len(self._dtypes)) // 8 * 8, np.uint8)
        batch._export_to_c(memory[1])
        copied = read_columns(memory[1], *self._read, out)
        self._free.append(memory)
        if not copied:
            return None
        values, at = [], 0
        for dtype in self._dtypes:
            values.append(np.frombuffer(out, dtype, count, at))
            at += -(-count * dtype.itemsize // 8) * 8
        return values


def rehearse_copies() -> None:
    """Compile the kernel, or load it from the cache."""
    # Not from a list or an array: for these pyarrow imports pandas, if it is installed.
    column = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(8))])
    ColumnCopier([(0, np.dtype(np.int64))], []).values(pa.RecordBatch.from_arrays([column], ["ts"]))
