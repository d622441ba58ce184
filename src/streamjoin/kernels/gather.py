"""Gathers values from many buffers by address, without copying anything else, whatever the number of buffers."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from streamjoin.jit.decorator import jit
from streamjoin.kernels import numpy_forms

BITS = (8, 16, 32, 64)  # sizes of the values that can be gathered


@intrinsic
def value_at(_typing, address, like):
    """The value of `like`'s dtype at an address."""

    def load(context, builder, _signature, args):
        kind = context.get_value_type(like.dtype)
        return builder.load(builder.inttoptr(args[0], ir.PointerType(kind)))

    return like.dtype(types.int64, like), load


@jit(fallback=numpy_forms.gathered_items)
def gather(addresses, buffers, places, out):
    """out[i] = item places[i] of the buffer at addresses[buffers[i]]; items have out's dtype.

    The caller keeps the buffers alive, and the places within them.
    """
    for i in range(len(out)):
        out[i] = value_at(addresses[buffers[i]] + places[i] * out.itemsize, out)


@jit(fallback=numpy_forms.gathered_numbered)
def gather_numbered(origin, rows, out):
    """out[i] = the item of row number rows[i] of a column that has row number 0 at the address `origin`; items have
    out's dtype. The caller keeps that memory alive."""
    for i in range(len(rows)):
        out[i] = value_at(origin + rows[i] * out.itemsize, out)


@jit(nogil=False, fallback=numpy_forms.gathered_columns)
def gather_columns(addresses, buffers, places, widths, offsets, out):
    """As `gather`, for several columns and few rows: column c of row i, widths[c] bytes, goes to out[offsets[c] + i *
    widths[c]]. `addresses` has a row for each column and an item for each buffer, `out` holds bytes, and offsets are
    multiples of 8. Called from Python, it keeps the GIL."""
    ones, twos, fours, eights = out.view(np.int8), out.view(np.int16), out.view(np.int32), out.view(np.int64)
    for column in range(len(widths)):
        width = widths[column]
        first = offsets[column] // width
        for i in range(len(places)):
            address = addresses[column, buffers[i]] + places[i] * width
            if width == 8:
                eights[first + i] = value_at(address, eights)
            elif width == 4:
                fours[first + i] = value_at(address, fours)
            elif width == 2:
                twos[first + i] = value_at(address, twos)
            else:
                ones[first + i] = value_at(address, ones)


@jit(nogil=False, fallback=numpy_forms.gathered_rows)
def gather_rows(left, left_rows, right, right_rows, places, left_columns, widths, begins, at, out):
    """Write pairs of rows to a page, a column after the other: column c begins at out[begins[c]] and gets the values of
    pair i at place at + i, of widths[c] bytes.

    The first `left_columns` columns are those of left rows: column c has the value of row r at the address
    left[places[c]] + r * widths[c]. The others are those of right rows. The caller keeps that memory alive. Begins are
    multiples of 8. Called from Python, it keeps the GIL. O(values).
    """
    ones, twos, fours, eights = out.view(np.int8), out.view(np.int16), out.view(np.int32), out.view(np.int64)
    for column in range(len(widths)):
        width = widths[column]
        first = begins[column] // width + at
        rows = left_rows if column < left_columns else right_rows
        origin = left[places[column]] if column < left_columns else right[places[column]]
        for i in range(len(rows)):
            address = origin + rows[i] * width
            if width == 8:
                eights[first + i] = value_at(address, eights)
            elif width == 4:
                fours[first + i] = value_at(address, fours)
            elif width == 2:
                twos[first + i] = value_at(address, twos)
            else:
                ones[first + i] = value_at(address, ones)
