"""RaP-Table: tuples partitioned by splitters that adapt to the data (Pan & Jacobsen, section III-B).

The tuples are in an LLAT (`kernels/partitioned/llat.py`) whose entry i begins partition i.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.cursor import DONE
from streamjoin.kernels.partitioned.llat import (
    ENTRY_COUNT,
    ENTRY_LAST,
    ENTRY_NEXT,
    LOCKSTEP,
    MAX_FENCE_LEVELS,
    NO_ENTRY,
    append_tuple,
    fence_levels,
    gather_keys,
    locate_partitions,
    scan_group,
)
from streamjoin.kernels.scan.vector import pointer, prefetch, stack_array

PARTITION_COUNT = 1  # a word of `header`
# The density within a partition changes by a factor of e ** change. Smaller changes than FLAT count as none; changes
# are limited to STEEPEST.
FLAT, STEEPEST = 1e-6, 30.0


@jit
def insert_in_partitions(keys, slots, entries, header, width, fences, new_keys, new_slots):
    """Add tuples, except those whose key is NaN; O(log P) each."""
    upper, stored_key, stored_slot = pointer(fences), pointer(keys), pointer(slots)
    key, found = stack_array(new_keys[0], LOCKSTEP), stack_array(np.int64(0), LOCKSTEP)
    levels = stack_array(np.int64(0), MAX_FENCE_LEVELS)
    level_count = fence_levels(header[PARTITION_COUNT], levels)
    n = len(new_keys)
    for begin in range(0, n, LOCKSTEP):
        end = min(begin + LOCKSTEP, n)
        gather_keys(new_keys, begin, end, upper[0], key)
        locate_partitions(upper, levels, level_count, key, found)
        for i in range(end - begin):
            last = np.int64(entries[found[i], ENTRY_LAST])
            place = last * width + entries[last, ENTRY_COUNT]
            prefetch(stored_key, place)
            prefetch(stored_slot, place)
        for i in range(end - begin):
            if new_keys[begin + i] == new_keys[begin + i]:
                append_tuple(keys, slots, entries, header, width, found[i], key[i], new_slots[begin + i])


@jit
def probe_partitions(
    keys, slots, entries, header, width, fences,
    lows, highs, starts, stops, cursor, out_probes, out_positions, count,
):  # fmt: skip
    """Append (probe, slot) pairs; the contract is that of `llat.probe_packed`."""
    key, slot, out_probe, out_pos = pointer(keys), pointer(slots), pointer(out_probes), pointer(out_positions)
    upper, n, room = pointer(fences), len(lows), len(out_probes)
    low, found = stack_array(lows[0], LOCKSTEP), stack_array(np.int64(0), LOCKSTEP)
    levels = stack_array(np.int64(0), MAX_FENCE_LEVELS)
    level_count = fence_levels(header[PARTITION_COUNT], levels)
    begin = cursor[0]
    while begin < n:
        end = min(begin + LOCKSTEP, n)
        gather_keys(lows, begin, end, upper[0], low)
        locate_partitions(upper, levels, level_count, low, found)
        count = scan_group(
            key, slot, entries, width, upper, found, begin, end,
            lows, highs, starts, stops, cursor, out_probe, out_pos, room, count,
        )  # fmt: skip
        if cursor[2] != NO_ENTRY:
            return count
        begin = end
    cursor[0] = DONE
    return count


@jit
def histograms(keys, entries, width, counts, lows, highs):
    """The number of tuples and the smallest and greatest key of each partition; keys of empty partitions are left
    unchanged. O(tuples + P).

    Infinite keys count as smallest and greatest only where there are no others, because no key is halfway to
    infinity.
    """
    for partition in range(len(counts)):
        count, finite, low, high = 0, False, keys[0], keys[0]
        entry = partition
        while entry != NO_ENTRY:
            begin, head = entry * width, np.int64(entries[entry, ENTRY_COUNT])
            for i in range(begin, begin + head):
                if keys[i] - keys[i] == 0:
                    low = min(low, keys[i]) if finite else keys[i]
                    high = max(high, keys[i]) if finite else keys[i]
                    finite = True
            count += head
            entry = np.int64(entries[entry, ENTRY_NEXT])
        counts[partition] = count
        if count:
            lows[partition] = low if finite else keys[partition * width]
            highs[partition] = high if finite else keys[partition * width]


def between(low, high, fraction):
    """low + fraction * (high - low), within [low, high]; exact to 53 bits of the difference, without overflow. For
    integers: the last of the first `fraction` of the integers from low to high; of two integers the first, for
    fractions up to a half.
    """
    if isinstance(low, np.integer):
        count = int(high) - int(low) + 1
        return low + type(low)(min(max(math.ceil(fraction * count) - 1, 0), count - 1))
    return low if low == high else min(max(low * (1 - fraction) + high * fraction, low), high)


@overload(between)
def _compile_between(low, high, fraction):
    if isinstance(low, types.Integer):

        def interpolate(low, high, fraction):
            # The difference of two int64 may need 64 unsigned bits.
            span = np.uint64(np.int64(high)) - np.uint64(np.int64(low))
            if fraction >= 1.0:
                return np.int64(high)
            offset = min(np.uint64(max(np.ceil(fraction * (np.float64(span) + 1.0)) - 1.0, 0.0)), span)
            return np.int64(np.uint64(np.int64(low)) + offset)

        return interpolate

    def interpolate_float(low, high, fraction):
        # A weighted mean of the ends cannot overflow, as a difference could; an infinite end makes the sum NaN or
        # infinite.
        value = low * (1.0 - fraction) + high * fraction
        if not (value >= low):
            return np.float64(low)
        return np.float64(min(value, np.float64(high)))

    return interpolate_float


@inner
def half_width(lows, highs, i):
    """Half of the range of a partition's keys; the whole range may exceed the greatest number."""
    return highs[i] / 2 - lows[i] / 2


@inner
def gradient(counts, lows, highs, i, after):
    """By how much the logarithm of the density rises from a partition to a later one, per unit of the key; 0 if one
    of them holds a single key."""
    half, half_after = half_width(lows, highs, i), half_width(lows, highs, after)
    if not (half > 0 and half_after > 0):
        return 0.0
    rise = np.log(counts[after] / counts[i]) - np.log(half_after) + np.log(half)
    return rise / (lows[after] / 2 + highs[after] / 2 - lows[i] / 2 - highs[i] / 2)


@inner
def part_of_way(share, change):
    """Where the first `share` of a partition's tuples end, as a part of the way from its lowest to its greatest key,
    if their density changes by a factor of e ** change on the way."""
    if not abs(change) > FLAT:
        return share
    change = min(max(change, -STEEPEST), STEEPEST)
    return min(max(np.log1p(share * np.expm1(change)) / change, 0.0), 1.0)


@jit
def adjust(counts, lows, highs, uppers):
    """Fill `uppers`, all but the last, so that each partition would get the same share of the counted tuples; O(P).

    Algorithm 1 of the paper. Splitter j is where the first bal = n * j / P tuples end: if the old partitions before i
    hold `before` tuples and before < bal <= before + count, it is low + (bal - before) / count * (high - low). The
    paper's formula omits the first `low`, the partition's minimum, so it is correct only for partitions that begin at
    0; its j starts at 0 where it should start at 1. The number of partitions may differ from the old number.

    The paper assumes a uniform distribution within each partition. Here the density changes within it as it does
    towards both neighbours: by the lesser of the two gradients, and not at all on a peak or in a valley. This
    balances skewed keys one adjustment earlier.
    """
    share, before, j, final = counts.sum() / len(uppers), 0, 0, len(uppers) - 1
    filled = np.flatnonzero(counts)
    behind = ahead = 0.0
    for at in range(len(filled)):
        i = filled[at]
        if at + 1 < len(filled):
            ahead = gradient(counts, lows, highs, i, filled[at + 1])
        if at == 0:
            behind = ahead
        lesser = behind if abs(behind) < abs(ahead) else ahead
        change = 2 * half_width(lows, highs, i) * lesser if (behind > 0) == (ahead > 0) else 0.0
        while j < final and share * (j + 1) <= before + counts[i]:
            part = part_of_way((share * (j + 1) - before) / counts[i], change)
            upper = between(lows[i], highs[i], part)
            uppers[j] = upper if j == 0 else max(upper, uppers[j - 1])  # rounding must not make them decrease
            j += 1
        before, behind = before + counts[i], ahead
