"""Kernels for a column of values: text, and what NumPy rounds differently. A text is `start` and `length` in `data`."""

import math

from streamjoin.jit.decorator import jit
from streamjoin.kernels.values import text


@jit
def text_equal(data, a_start, a_length, b_start, b_length, out):
    """out[i] = 1 where texts are equal, else 0."""
    for i in range(len(out)):
        out[i] = text.equal((data, a_start[i], a_length[i]), (data, b_start[i], b_length[i]))


@jit
def text_order(data, a_start, a_length, b_start, b_length, out):
    """out[i] = -1, 0 or 1, by the order of the bytes."""
    for i in range(len(out)):
        out[i] = text.compare((data, a_start[i], a_length[i]), (data, b_start[i], b_length[i]))


@jit
def text_hash(data, start, length, out):
    for i in range(len(out)):
        out[i] = text.hash64((data, start[i], length[i]))


@jit
def text_like(data, start, length, pattern, pattern_length, escape, out):
    for i in range(len(out)):
        out[i] = text.like((data, start[i], length[i]), (pattern, 0, pattern_length), escape)


@jit
def text_member(data, start, length, starts, lengths, out):
    """Whether each text is one of those at `starts`, which are in the order of their bytes. O(log members) a text."""
    for i in range(len(out)):
        value = (data, start[i], length[i])
        low, high = 0, len(starts)
        while low < high:
            middle = (low + high) // 2
            if text.compare((data, starts[middle], lengths[middle]), value) < 0:
                low = middle + 1
            else:
                high = middle
        out[i] = low < len(starts) and text.equal((data, starts[low], lengths[low]), value)


@jit
def power_column(base, exponent, out):
    """As the C library rounds it, which NumPy's vector code need not do."""
    for i in range(len(out)):
        out[i] = math.pow(base[i], exponent[i])
