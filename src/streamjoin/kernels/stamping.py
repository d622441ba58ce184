"""Kernels that every push calls: whether times fall, how far tuples reach back, the smallest id. For a few tuples, a
call costs a fraction of the same in NumPy. They hold the GIL when called from Python."""

import numpy as np

from streamjoin.jit.decorator import jit
from streamjoin.kernels import numpy_forms

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
FALLS_BLOCK = 512


@jit(nogil=False, fallback=numpy_forms.any_fall)
def falls(ts):
    """Whether a value is below the one before it. Only blocks end early, so that vector instructions compare them."""
    begin, last = 0, len(ts) - 1
    while begin < last:
        end = min(begin + FALLS_BLOCK, last)
        before, after = ts[begin:end], ts[begin + 1 : end + 1]
        found = False
        for i in range(len(before)):
            found |= after[i] < before[i]
        if found:
            return True
        begin = end
    return False


@jit(nogil=False, fallback=numpy_forms.least_of)
def least(ids):
    """The least of at least one value."""
    found = ids[0]
    for i in range(1, len(ids)):
        found = min(found, ids[i])
    return found


@jit(nogil=False, fallback=numpy_forms.saturated)
def shifted(ts, size, out):
    """out = ts + size, stopping at the ends of 64 bits."""
    for i in range(len(ts)):
        if size < 0:
            out[i] = INT64_MIN if ts[i] < INT64_MIN - size else ts[i] + size
        else:
            out[i] = INT64_MAX if ts[i] > INT64_MAX - size else ts[i] + size


@jit(nogil=False, fallback=numpy_forms.saturated_ends)
def reach_ends(ts, back, ahead, low, high):
    """low = ts - back and high = ts + ahead, stopping at the ends of 64 bits."""
    shifted(ts, -back, low)
    shifted(ts, ahead, high)


def rehearse() -> None:
    """Compile all of them, or load them from the cache: the first push should not wait for it."""
    some = np.zeros(1, np.int64)
    falls(some)
    least(some)
    shifted(some, 0, some)
    reach_ends(some, 0, 0, some.copy(), some.copy())
