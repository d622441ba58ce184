"""Kernels that every push calls: whether times fall, how far tuples reach back, the smallest id. For a few tuples, a
call costs a fraction of the same in NumPy. They hold the GIL when called from Python."""

import numpy as np

from streamjoin.jit.decorator import inner, jit
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


@inner
def _sum(time, size):
    """time + size, stopping at the ends of 64 bits."""
    if size < 0:
        return INT64_MIN if time < INT64_MIN - size else time + size
    return INT64_MAX if time > INT64_MAX - size else time + size


@jit(nogil=False, fallback=numpy_forms.saturated)
def shifted(ts, size, out):
    """out = ts + size, stopping at the ends of 64 bits."""
    for i in range(len(ts)):
        out[i] = _sum(ts[i], size)


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


@inner
def _first_from(ts, at, time, after):
    """The first place from `at` on that has a time not below `time`, or, with `after`, above it. Steps that double,
    then halves."""
    low, step = at, 1
    while low + step <= len(ts) and (ts[low + step - 1] < time or (after and ts[low + step - 1] == time)):
        low += step
        step *= 2
    high = min(low + step - 1, len(ts))
    while low < high:
        middle = (low + high) // 2
        if ts[middle] < time or (after and ts[middle] == time):
            low = middle + 1
        else:
            high = middle
    return low


@jit(nogil=False, fallback=numpy_forms.places_around)
def reach_places(ts, times, back, ahead, start, stop):
    """Fill start[i] and stop[i]: places start[i] to stop[i] - 1 of `ts` have the times from times[i] - back to
    times[i] + ahead. Neither array decreases. O(log of each step from place to place)."""
    size, first, end = len(ts), 0, 0
    for i in range(len(times)):
        low, high = _sum(times[i], -back), _sum(times[i], ahead)
        if first < size and ts[first] < low:
            first = _first_from(ts, first, low, False)
        if end < size:
            end = size if ts[size - 1] <= high else _first_from(ts, max(first, end), high, True)
        start[i], stop[i] = first, max(first, end)


@jit(nogil=False, fallback=numpy_forms.sum_of_lengths)
def total_length(start, stop):
    """The sum of stop[i] - start[i]."""
    total = 0
    for i in range(len(start)):
        total += stop[i] - start[i]
    return total


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

    reach_places(some, some, 0, 0, some.copy(), some.copy())
    total_length(some, some)
