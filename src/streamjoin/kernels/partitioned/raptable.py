"""RaP-Table: tuples partitioned by splitters that follow the data (Pan & Jacobsen, section III-B).

The tuples lie in an LLAT (`kernels/partitioned/llat.py`) whose entry i begins partition i.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.partitioned.llat import (
    DONE,
    HEAD,
    LAST,
    LOCKSTEP,
    MAX_LEVELS,
    NEXT,
    NONE,
    append,
    fence_levels,
    gather,
    locate,
    scan_group,
)
from streamjoin.kernels.scan.vector import pointer, prefetch, stack_array

PARTITIONS = 1  # in `header`
# Changes of a density inside a partition, as powers of e, that count as none, and at all.
LEVEL, STEEPEST = 1e-6, 30.0


@jit
def insert(keys, slots, entries, header, width, fences, new_keys, new_slots):
    """Add tuples, without those whose key is NaN; O(log P) each."""
    upper, stored_key, stored_slot = pointer(fences), pointer(keys), pointer(slots)
    key, found = stack_array(new_keys[0], LOCKSTEP), stack_array(np.int64(0), LOCKSTEP)
    levels = stack_array(np.int64(0), MAX_LEVELS)
    level_count = fence_levels(header[PARTITIONS], levels)
    n = len(new_keys)
    for begin in range(0, n, LOCKSTEP):
        end = min(begin + LOCKSTEP, n)
        gather(new_keys, begin, end, upper[0], key)
        locate(upper, levels, level_count, key, found)
        for i in range(end - begin):
            last = np.int64(entries[found[i], LAST])
            place = last * width + entries[last, HEAD]
            prefetch(stored_key, place)
            prefetch(stored_slot, place)
        for i in range(end - begin):
            if new_keys[begin + i] == new_keys[begin + i]:
                append(keys, slots, entries, header, width, found[i], key[i], new_slots[begin + i])


@jit
def probe(
    keys, slots, entries, header, width, fences,
    lows, highs, starts, stops, cursor, out_probes, out_positions, count,
):  # fmt: skip
    """Append (probe, slot) pairs; the contract is that of `llat.probe_packed`."""
    key, slot, out_probe, out_pos = pointer(keys), pointer(slots), pointer(out_probes), pointer(out_positions)
    upper, n, room = pointer(fences), len(lows), len(out_probes)
    low, found = stack_array(lows[0], LOCKSTEP), stack_array(np.int64(0), LOCKSTEP)
    levels = stack_array(np.int64(0), MAX_LEVELS)
    level_count = fence_levels(header[PARTITIONS], levels)
    begin = cursor[0]
    while begin < n:
        end = min(begin + LOCKSTEP, n)
        gather(lows, begin, end, upper[0], low)
        locate(upper, levels, level_count, low, found)
        count = scan_group(
            key, slot, entries, width, upper, found, begin, end,
            lows, highs, starts, stops, cursor, out_probe, out_pos, room, count,
        )  # fmt: skip
        if cursor[2] != NONE:
            return count
        begin = end
    cursor[0] = DONE
    return count


@jit
def histograms(keys, entries, width, counts, lows, highs):
    """Tuples, smallest and greatest key of each partition; those of an empty one are left alone. O(tuples + P).

    Infinite keys do not count as smallest and greatest where there are others: nothing lies halfway to them.
    """
    for partition in range(len(counts)):
        count, finite, low, high = 0, False, keys[0], keys[0]
        entry = partition
        while entry != NONE:
            begin, head = entry * width, np.int64(entries[entry, HEAD])
            for i in range(begin, begin + head):
                if keys[i] - keys[i] == 0:
                    low = min(low, keys[i]) if finite else keys[i]
                    high = max(high, keys[i]) if finite else keys[i]
                    finite = True
            count += head
            entry = np.int64(entries[entry, NEXT])
        counts[partition] = count
        if count:
            lows[partition] = low if finite else keys[partition * width]
            highs[partition] = high if finite else keys[partition * width]


def between(low, high, fraction):
    """low + fraction * (high - low), within [low, high]; exact to 53 bits of the difference, never overflowing. Of
    integers, the last of the first `fraction` of those from low to high: the first one, if there are two, up to a half.
    """
    if isinstance(low, np.integer):
        count = int(high) - int(low) + 1
        return low + type(low)(min(max(math.ceil(fraction * count) - 1, 0), count - 1))
    return low if low == high else min(max(low * (1 - fraction) + high * fraction, low), high)


@overload(between)
def _between(low, high, fraction):
    if isinstance(low, types.Integer):

        def interpolate(low, high, fraction):
            # The difference of two int64 may need 64 bits without a sign.
            span = np.uint64(np.int64(high)) - np.uint64(np.int64(low))
            if fraction >= 1.0:
                return np.int64(high)
            offset = min(np.uint64(max(np.ceil(fraction * (np.float64(span) + 1.0)) - 1.0, 0.0)), span)
            return np.int64(np.uint64(np.int64(low)) + offset)

        return interpolate

    def interpolate_float(low, high, fraction):
        # Weighted ends do not overflow as a difference would; an infinite end makes the sum NaN or infinite.
        value = low * (1.0 - fraction) + high * fraction
        if not (value >= low):
            return np.float64(low)
        return np.float64(min(value, np.float64(high)))

    return interpolate_float


@inner
def half_width(lows, highs, i):
    """Half of what the keys of a partition span: all of it may be more than the greatest number."""
    return highs[i] / 2 - lows[i] / 2


@inner
def gradient(counts, lows, highs, i, after):
    """How much the logarithm of the density rises from a partition to a later one, for each unit of the key; 0 if one
    of them holds a single key."""
    half, half_after = half_width(lows, highs, i), half_width(lows, highs, after)
    if not (half > 0 and half_after > 0):
        return 0.0
    rise = np.log(counts[after] / counts[i]) - np.log(half_after) + np.log(half)
    return rise / (lows[after] / 2 + highs[after] / 2 - lows[i] / 2 - highs[i] / 2)


@inner
def part_of_way(share, change):
    """How far from its lowest towards its greatest key the first `share` of a partition's tuples lie, if their density
    changes by a factor of e ** change on the way."""
    if not abs(change) > LEVEL:
        return share
    change = min(max(change, -STEEPEST), STEEPEST)
    return min(max(np.log1p(share * np.expm1(change)) / change, 0.0), 1.0)


@jit
def adjust(counts, lows, highs, uppers):
    """Fill `uppers`, all but the last, so that each partition would get the same share of the counted tuples; O(P).

    Algorithm 1 of the paper. Splitter j is where the first bal = n * j / P tuples end: if the old partitions before i
    hold `before` tuples and before < bal <= before + count, it is low + (bal - before) / count * (high - low). The
    paper's formula leaves out the first `low`, the partition's minimum, and so is right for partitions that begin at 0
    only; its j begins with 0 where 1 is meant. The number of partitions may differ from that of the old ones.

    The paper counts on a uniform distribution inside each partition. Here the density changes there as it does towards
    both neighbours: by the lesser of the two gradients, not at all on a peak or in a valley. Skewed keys are balanced
    an adjustment sooner.
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
            uppers[j] = upper if j == 0 else max(upper, uppers[j - 1])  # rounding must not make them fall
            j += 1
        before, behind = before + counts[i], ahead
