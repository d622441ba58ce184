"""Kernels for a column of texts. A text is `start` and `length` in `data`."""

from streamjoin.jit.decorator import jit
from streamjoin.kernels import numpy_forms
from streamjoin.kernels.values import text


@jit(fallback=numpy_forms.equal_texts)
def text_equal(data, a_start, a_length, b_start, b_length, out):
    """out[i] = 1 where texts are equal, else 0."""
    for i in range(len(out)):
        out[i] = text.equal((data, a_start[i], a_length[i]), (data, b_start[i], b_length[i]))


@jit
def text_order(data, a_start, a_length, b_start, b_length, out):
    """out[i] = -1, 0 or 1, by the order of the bytes."""
    for i in range(len(out)):
        out[i] = text.compare((data, a_start[i], a_length[i]), (data, b_start[i], b_length[i]))


@jit(fallback=numpy_forms.hashed_texts)
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
def text_length(data, start, length, out):
    """out[i] = the number of code points."""
    for i in range(len(out)):
        out[i] = text.characters((data, start[i], length[i]))


@jit
def text_substring(data, start, length, first, count, out_start, out_length):
    """The place of each substring; see `text.substring`."""
    for i in range(len(out_start)):
        _, out_start[i], out_length[i] = text.substring((data, start[i], length[i]), first[i], count[i])


@jit
def text_trim(
    data, start, length, characters_start, characters_length, leading, trailing, out_start, out_length
):
    """The place of each text without the given characters at its ends."""
    for i in range(len(out_start)):
        characters = (data, characters_start[i], characters_length[i])
        _, out_start[i], out_length[i] = text.trim((data, start[i], length[i]), characters, leading, trailing)


@jit
def text_gather(data, start, length, out):
    """Copy the texts, one after the other."""
    at = 0
    for i in range(len(start)):
        for k in range(length[i]):
            out[at + k] = data[start[i] + k]
        at += length[i]


@jit
def text_number(data, start, length, scale, lo, hi, out, beyond):
    """out[i] = the number that text i spells, in units of 10**-scale; beyond[i]: not a number, or not in lo..hi."""
    for i in range(len(out)):
        out[i], known = text.number((data, start[i], length[i]), scale)
        beyond[i] = not known or out[i] < lo or out[i] > hi
