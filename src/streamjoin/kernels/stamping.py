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


@jit(nogil=False, fallback=numpy_forms.marked)
def mark_states(states, rows, first, state):
    """Give rows a state, where `states` begins with that of row `first`. Return the greatest state that one had, or -1,
    and change nothing more, if a row is before the first."""
    greatest = 0
    for i in range(len(rows)):
        at = rows[i] - first
        if at < 0:
            return -1
        greatest = max(greatest, np.int64(states[at]))
        states[at] = state
    return greatest


@jit(nogil=False, fallback=numpy_forms.ended)
def end_states(states, rows, first, state, zeros_only, out):
    """As `mark_states`, of all rows or only of those whose state was 0. Fill `out` with the places in `rows` of these,
    and return their number."""
    count = 0
    for i in range(len(rows)):
        at = rows[i] - first
        if states[at] == 0:
            out[count] = i
            count += 1
        elif zeros_only:
            continue
        states[at] = state
    return count


def rehearse() -> None:
    """Compile all of them, or load them from the cache: the first push should not wait for it."""
    some = np.zeros(1, np.int64)
    falls(some)
    least(some)
    shifted(some, 0, some)
    reach_ends(some, 0, 0, some.copy(), some.copy())
    states = np.zeros(1, np.uint8)
    mark_states(states, some, 0, 0)
    end_states(states, some, 0, 0, False, some.copy())
