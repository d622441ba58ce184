"""Reads small record batches by the Arrow C data interface: one call copies all columns that a push needs.

For a few rows, Arrow takes longer to make Python objects of columns and buffers than all other work on them takes. An
`ArrowArray` is ten words. A batch is one, and each of its columns is a child of it.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels import numpy_forms
from streamjoin.kernels.gather import value_at

ARROW_WORDS = 10  # of an `ArrowArray`
LENGTH, NULL_COUNT, OFFSET, BUFFER_COUNT, BUFFERS, CHILDREN, RELEASE = (
    0,
    1,
    2,
    3,
    5,
    6,
    8,
)  # places of its words


@intrinsic
def _call_with(_typing, function, argument):
    """Call the C function at an address, which takes a pointer and returns nothing."""

    def call(context, builder, _signature, args):
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(builder.inttoptr(args[0], ir.PointerType(kind)), [args[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), call


@inner
def _has_nulls(column, words, octets):
    """Whether a column, an `ArrowArray` at an address, has a NULL. Its count of them may be unknown, below zero."""
    nulls = value_at(column + 8 * NULL_COUNT, words)
    if nulls >= 0 or value_at(column + 8 * BUFFER_COUNT, words) == 0:
        return nulls > 0
    bits = value_at(value_at(column + 8 * BUFFERS, words), words)
    if bits == 0:
        return False
    first = value_at(column + 8 * OFFSET, words)
    for i in range(first, first + value_at(column + 8 * LENGTH, words)):
        if not (value_at(bits + (i >> 3), octets) >> np.uint8(i & 7)) & np.uint8(1):
            return True
    return False


@inner
def _first_value(column, width, words):
    """The address of the values of a plain column; 0 if it has no memory for them."""
    values = value_at(value_at(column + 8 * BUFFERS, words) + 8, words)
    return values + value_at(column + 8 * OFFSET, words) * width if values else 0


@inner
def _copy_values(source, width, count, at, eights, fours, twos, ones):
    """Copy values of `width` bytes from an address to byte `at` of the output, a multiple of 8."""
    for i in range(count):
        value = source + i * width
        if width == 8:
            eights[at // 8 + i] = value_at(value, eights)
        elif width == 4:
            fours[at // 4 + i] = value_at(value, fours)
        elif width == 2:
            twos[at // 2 + i] = value_at(value, twos)
        else:
            ones[at + i] = value_at(value, ones)


def _copy_nothing(array, columns, widths, required, out):
    return numpy_forms.release_batch(array, RELEASE)


@jit(nogil=False, fallback=_copy_nothing)
def read_columns(array, columns, widths, required, out):
    """Copy some columns of the batch whose `ArrowArray` is at an address, and release it. Return whether it was
    possible.

        columns   numbers of the columns to copy: plain values of 1, 2, 4 or 8 bytes
        widths    their sizes in bytes
        required  numbers of further columns, of any type that may have NULLs, but must not
        out       a multiple of 8 bytes, for all columns one after the other, each from a multiple of 8 on

    False if one of them has a NULL. The caller holds the batch, so its memory outlives the release. Called from
    Python, it keeps the GIL, since Arrow may need it there. O(values).
    """
    eights, fours, twos, ones = out.view(np.int64), out.view(np.int32), out.view(np.int16), out.view(np.int8)
    children = value_at(array + 8 * CHILDREN, eights)
    whole = True
    for number in required:
        whole &= not _has_nulls(value_at(children + 8 * number, eights), eights, out)
    for c in range(len(columns)):
        column = value_at(children + 8 * columns[c], eights)
        whole &= not _has_nulls(column, eights, out) and _first_value(column, widths[c], eights) != 0
    count, at = value_at(array + 8 * LENGTH, eights), 0
    for c in range(len(columns) if whole else 0):
        values = _first_value(value_at(children + 8 * columns[c], eights), widths[c], eights)
        _copy_values(values, widths[c], count, at, eights, fours, twos, ones)
        at += (count * widths[c] + 7) // 8 * 8
    _call_with(value_at(array + 8 * RELEASE, eights), array)
    return whole
