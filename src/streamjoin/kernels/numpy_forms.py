"""NumPy forms of kernels that a push calls. They give the same results, and run while the kernels are being compiled.

Arguments are those of the kernels, which say what they mean.
"""

from __future__ import annotations

import ctypes

import numpy as np

LEAST_TIME, MOST_TIME = -(2**63), 2**63 - 1


class _Memory:
    """`count` items at an address, which the caller keeps alive, as an array."""

    def __init__(self, address: int, count: int, dtype: np.dtype):
        self.__array_interface__ = {
            "shape": (count,), "typestr": dtype.str, "data": (address, False), "version": 3,
        }  # fmt: skip


def items_at(address: int, places: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The items at some places of a buffer. Only memory between the least and the greatest place is touched."""
    if not len(places):
        return np.empty(0, dtype)
    first, last = int(places.min()), int(places.max())
    memory = _Memory(int(address) + first * dtype.itemsize, last - first + 1, dtype)
    found: np.ndarray = np.asarray(memory)[places - first]
    return found


# `stamping`


def any_fall(ts: np.ndarray) -> bool:
    return bool((ts[1:] < ts[:-1]).any())


def least_of(ids: np.ndarray) -> int:
    return int(ids.min())


def saturated(ts: np.ndarray, size: int, out: np.ndarray) -> None:
    size = int(size)
    np.add(np.maximum(ts, LEAST_TIME - size) if size < 0 else np.minimum(ts, MOST_TIME - size), size, out=out)


def saturated_ends(ts: np.ndarray, back: int, ahead: int, low: np.ndarray, high: np.ndarray) -> None:
    saturated(ts, -int(back), low)
    saturated(ts, ahead, high)


def marked(states: np.ndarray, rows: np.ndarray, first: int, state: int) -> int:
    at = rows - first
    if at.min(initial=0) < 0:
        return -1
    greatest = int(states[at].max(initial=0))
    states[at] = state
    return greatest


def ended(
    states: np.ndarray, rows: np.ndarray, first: int, state: int, zeros_only: bool, out: np.ndarray
) -> int:
    zeros = np.flatnonzero(states[rows - first] == 0)
    out[: len(zeros)] = zeros
    states[(rows[zeros] if zeros_only else rows) - first] = state
    return len(zeros)


def places_around(
    ts: np.ndarray, times: np.ndarray, back: int, ahead: int, start: np.ndarray, stop: np.ndarray
) -> None:
    low, high = np.empty_like(times), np.empty_like(times)
    saturated_ends(times, back, ahead, low, high)
    start[:] = ts.searchsorted(low, "left")
    stop[:] = np.maximum(ts.searchsorted(high, "right"), start)


def sum_of_lengths(start: np.ndarray, stop: np.ndarray) -> int:
    return int((stop - start).sum())


# `sorted.runs`, `scan.check`


def places_sought(values: np.ndarray, sought: np.ndarray, after: bool, at: int, out: np.ndarray) -> None:
    np.maximum(values.searchsorted(sought, "right" if after else "left"), at, out=out)


def continues(ids: np.ndarray, sources: np.ndarray, next_id: int, source: int) -> tuple[bool, bool]:
    return bool((ids == np.arange(len(ids)) + next_id).all()), bool((sources == source).all())


# `values.tiles`


def hashed_texts(data: np.ndarray, start: np.ndarray, length: np.ndarray, out: np.ndarray) -> None:
    state, half = np.full(len(start), 0xCBF29CE484222325, np.uint64), np.uint64(32)
    for i in range(int(length.max(initial=0))):
        on = np.flatnonzero(length > i)
        state[on] = (state[on] ^ data[start[on] + i]) * np.uint64(0x100000001B3)
    state = (state ^ (state >> half)) * np.uint64(0xD6E8FEB86659FD93)
    out[:] = (state ^ (state >> half)).view(np.int64)


def equal_texts(
    data: np.ndarray, a_start: np.ndarray, a_length: np.ndarray, b_start: np.ndarray, b_length: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    same = a_length == b_length
    for i in range(int(a_length.max(initial=0, where=same))):
        on = np.flatnonzero(same & (a_length > i))
        same[on] = data[a_start[on] + i] == data[b_start[on] + i]
    out[:] = same


# `gather`


def gathered_items(addresses: np.ndarray, buffers: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    for buffer in np.unique(buffers):
        chosen = np.flatnonzero(buffers == buffer)
        out[chosen] = items_at(addresses[buffer], places[chosen], out.dtype)


def gathered_numbered(origin: int, rows: np.ndarray, out: np.ndarray) -> None:
    out[:] = items_at(origin, rows, out.dtype)


def gathered_columns(
    addresses: np.ndarray, buffers: np.ndarray, places: np.ndarray, widths: np.ndarray, offsets: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    for column, (width, first) in enumerate(zip(widths, offsets, strict=True)):
        part = out[first : first + len(places) * width].view(f"i{width}")
        gathered_items(addresses[column], buffers, places, part)


def gathered_rows(
    left: np.ndarray, left_rows: np.ndarray, right: np.ndarray, right_rows: np.ndarray, places: np.ndarray,
    left_columns: int, widths: np.ndarray, begins: np.ndarray, at: int, out: np.ndarray,
) -> None:  # fmt: skip
    for column, (place, width, begin) in enumerate(zip(places, widths, begins, strict=True)):
        rows, origins = (left_rows, left) if column < left_columns else (right_rows, right)
        first = begin + at * width
        part = out[first : first + len(rows) * width].view(f"i{width}")
        part[:] = items_at(origins[place], rows, part.dtype)


# `arrow`


def release_batch(array: int, release: int) -> bool:
    """Release the batch whose `ArrowArray` is at an address; word number `release` of it is the address of the function
    to call. Returns False: nothing was copied, so the caller reads column by column."""
    function = items_at(array, np.array([release]), np.dtype(np.int64))[0]
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(int(function))(array)
    return False
