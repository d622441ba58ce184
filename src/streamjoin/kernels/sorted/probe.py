"""Intervals looked up in a sorted run (`kernels/sorted/runs.py`): records or pairs out (Pan & Jacobsen, III-D, E).

Bounds of GROUP probes are searched in lock step through the sampled index, one level at a time, so that their cache
misses overlap; a node is searched by one comparison of a vector. For records both bounds go down together: the cost of
a record does not depend on how many tuples it covers. For pairs, the upper bound mostly lies within a vector of the
lower one, and so do the slots; where it does not, it is searched afterwards. An empty interval, NaN as well, gives an
empty record.
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.scan import vector
from streamjoin.kernels.scan.vector import (
    at_least,
    at_most,
    bit_count,
    both,
    first,
    load,
    pointer,
    prefetch,
    splat,
    stack_array,
    store,
    store_compressed,
    word,
)
from streamjoin.kernels.sorted.runs import FANOUT, MAX_LEVELS, level_sizes

GROUP = 16  # 8 take 1.3 times as long, 32 are no faster
DONE = -1
CURSOR_SIZE = 2
MIN_ROOM = 4096  # pairs; any number above FANOUT is right, and a smaller one means more stretches
PACKS = vector.has_compress()
MOST = 2**31 - 1


@inner
def count_at_least(key, at, low):
    """How many of the FANOUT keys from `at` on are >= low."""
    return bit_count(word(at_least(load(key, at, FANOUT), splat(low, FANOUT))))


@inner
def count_at_most(key, at, high):
    """How many of the FANOUT keys from `at` on are <= high."""
    return bit_count(word(at_most(load(key, at, FANOUT), splat(high, FANOUT))))


@inner
def lower_bounds(key, slot, index, sizes, offsets, top, lows, group, most_find, found):
    """The first place whose key is >= low, of each probe; `sizes` has the count of the run at level 0.

    Padding is counted as a key; the limits correct it, level by level. What is read next is fetched for all probes
    first: the leaf and, if most of them find something, the one after it and their slots: 0.7 to 0.95 of the time
    without.
    """
    for g in range(group):
        found[g] = 0
    for level in range(top, 0, -1):
        base, last = offsets[level], sizes[level] - 1
        for g in range(group):
            at = found[g] * FANOUT
            found[g] = min(at + FANOUT - count_at_least(index, base + at, lows[g]), last)
    for g in range(group):
        at = found[g] * FANOUT
        prefetch(key, at)
        if most_find:
            prefetch(key, at + FANOUT)
            prefetch(slot, at)
            prefetch(slot, at + FANOUT)
    for g in range(group):
        at = found[g] * FANOUT
        found[g] = min(at + FANOUT - count_at_least(key, at, lows[g]), sizes[0])


@inner
def upper_bounds(key, index, sizes, offsets, top, highs, group, found):
    """The first place whose key is > high, of each probe."""
    for g in range(group):
        found[g] = 0
    for level in range(top, 0, -1):
        base, last = offsets[level], sizes[level] - 1
        for g in range(group):
            at = found[g] * FANOUT
            found[g] = min(at + count_at_most(index, base + at, highs[g]), last)
    for g in range(group):
        at = found[g] * FANOUT
        found[g] = min(at + count_at_most(key, at, highs[g]), sizes[0])


@inner
def rebound(key, count, at, low):
    """The first place from `at` on whose key is >= low: steps double forwards, then halve backwards (Figure 6).

    With a target within FANOUT keys this is a step of a merge. `low` must not be NaN.
    """
    above = count_at_least(key, at, low)
    if above == 0:
        step = FANOUT
        while at + step < count and key[at + step] < low:
            at += step
            step *= 2
        while step > FANOUT:
            step //= 2
            if at + step < count and key[at + step] < low:
                at += step
        above = count_at_least(key, at, low)
    return min(at + FANOUT - above, count)


@inner
def find_group(
    key, slot, index, sizes, offsets, top, lows, highs, probe, group, follow, most_find, begin, end
):
    """Places [begin, end) of `group` probes from `probe` on; with `follow` lows rise, from `begin[GROUP - 1]` on.

    Where few of them find something, `most_find` is false: what lies behind the first key is fetched for those alone.
    That is 0.6 of the time in a run of 10M keys.
    """
    far, ends = stack_array(np.int64(0), GROUP), stack_array(np.int64(0), GROUP)
    low, high = stack_array(lows[0], GROUP), stack_array(lows[0], GROUP)
    if follow:
        at = begin[GROUP - 1]
        for g in range(group):
            at = rebound(key, sizes[0], at, lows[probe + g])
            begin[g] = at
    else:
        for g in range(group):
            low[g] = lows[probe + g]
        lower_bounds(key, slot, index, sizes, offsets, top, low, group, most_find, begin)
    finding, some = stack_array(np.int64(0), GROUP), group
    if most_find:
        for g in range(group):
            finding[g] = g
    else:
        some = 0
        for g in range(group):
            end[g] = begin[g]
            finding[some] = g
            some += np.int64((key[begin[g]] <= highs[probe + g]) & (begin[g] < sizes[0]))
        for f in range(some):
            at = begin[finding[f]]
            prefetch(key, at + FANOUT)
            prefetch(slot, at)
            prefetch(slot, at + FANOUT)
    many = 0
    for f in range(some):
        g = finding[f]
        hits = count_at_most(key, begin[g], highs[probe + g])
        end[g] = min(begin[g] + hits, sizes[0])
        far[many] = g
        high[many] = highs[probe + g]
        many += np.int64(hits == FANOUT)
    if many:
        upper_bounds(key, index, sizes, offsets, top, high, many, ends)
        for g in range(many):
            end[far[g]] = ends[g]


@inner
def both_bounds(key, index, sizes, offsets, top, lows, highs, probe, group, begin, end):
    """As `find_group`, both bounds of each probe in one descent: with 16 keys between them and more 0.6 to 0.8 of the
    time of one after the other, with fewer at most 1.15 of it. Returns how many nodes it looked at."""
    low, high, nodes = stack_array(lows[0], GROUP), stack_array(lows[0], GROUP), 0
    for g in range(group):
        low[g], high[g] = lows[probe + g], highs[probe + g]
        begin[g], end[g] = 0, 0
    for level in range(top, 0, -1):
        base, last = offsets[level], sizes[level] - 1
        for g in range(group):
            at, to = begin[g] * FANOUT, end[g] * FANOUT
            begin[g] = min(at + FANOUT - count_at_least(index, base + at, low[g]), last)
            end[g] = min(to + count_at_most(index, base + to, high[g]), last)
            nodes += 2
    for g in range(group):
        prefetch(key, begin[g] * FANOUT)
        prefetch(key, end[g] * FANOUT)
    for g in range(group):
        at, to = begin[g] * FANOUT, end[g] * FANOUT
        begin[g] = min(at + FANOUT - count_at_least(key, at, low[g]), sizes[0])
        end[g] = max(begin[g], min(to + count_at_most(key, to, high[g]), sizes[0]))
        nodes += 2
    return nodes


@jit
def rises(values):
    """Whether no value is below the one before it, nor NaN; returns at the first that is."""
    for i in range(len(values)):
        if not values[max(i - 1, 0)] <= values[i]:
            return False
    return True


@jit
def find_records(keys, index, count, lows, highs, firsts, lasts):
    """Fill firsts[i] and lasts[i]: places [first, last) of the run hold the keys in [lows[i], highs[i]].

    Returns how many nodes were looked at: O(log count) a probe, whatever lies between the bounds.
    """
    key, tree, low, high = pointer(keys), pointer(index), pointer(lows), pointer(highs)
    begin, end = stack_array(np.int64(0), GROUP), stack_array(np.int64(0), GROUP)
    sizes, offsets = stack_array(np.int64(0), MAX_LEVELS), stack_array(np.int64(0), MAX_LEVELS)
    top, nodes = level_sizes(np.int64(count), sizes, offsets), 0
    for probe in range(0, len(lows), GROUP):
        group = min(GROUP, len(lows) - probe)
        nodes += both_bounds(key, tree, sizes, offsets, top, low, high, probe, group, begin, end)
        for g in range(group):
            firsts[probe + g] = begin[g]
            lasts[probe + g] = end[g]
    return nodes


@inner
def emit(slot, at, end, name, out_probe, out_pos, count):
    """Write a pair for each slot at places at..end-1; whole vectors, so scrap may follow."""
    names = splat(np.int32(name), FANOUT)
    for place in range(at, end, FANOUT):
        store(names, out_probe, count + place - at)
        store(load(slot, place, FANOUT), out_pos, count + place - at)
    return count + end - at


@inner
def emit_within(slot, at, end, low, high, name, out_probe, out_pos, count):
    """As `emit`, for the slots in [low, high)."""
    if PACKS:
        names, least, most = splat(np.int32(name), FANOUT), splat(np.int32(low), FANOUT), np.int32(high - 1)
        greatest = splat(most, FANOUT)
        for place in range(at, end, FANOUT):
            slots = load(slot, place, FANOUT)
            fits = both(both(at_least(slots, least), at_most(slots, greatest)), first(end - place, FANOUT))
            bits = word(fits)
            store(names, out_probe, count)
            store_compressed(slots, bits, out_pos, count)
            count += bit_count(bits)
        return count
    for place in range(at, end):
        out_probe[count] = np.int32(name)
        out_pos[count] = slot[place]
        count += np.int64((slot[place] >= low) & (slot[place] < high))
    return count


@jit
def find_pairs(
    keys,
    slots,
    index,
    count,
    oldest,
    newest,
    lows,
    highs,
    starts,
    stops,
    order,
    follow,
    cursor,
    probes,
    places,
    filled,
):
    """Append to `probes`, `places` from `filled` on a pair for each probe i and slot of the run with
    lows[i] <= key <= highs[i] and starts[i] <= slot < stops[i]; the new number of pairs.

    oldest, newest  least and greatest slot that the run may hold
    order           the numbers by which probes are known; empty if they are 0, 1, ...
    follow          whether lows rise and none is NaN, and searches had better start from the one before
    cursor          int64[CURSOR_SIZE], zeros at first; cursor[0] == DONE when all pairs are out

    Returns when done, or when room is short: drain or grow the output and call again with
    the same cursor and inputs. Scrap may follow the pairs. Pairs come probe by probe. Cost: O(log count) a probe, and
    a copy of the slots between its bounds.
    """
    key, slot, tree, low, high = pointer(keys), pointer(slots), pointer(index), pointer(lows), pointer(highs)
    start, stop, out_probe, out_pos = pointer(starts), pointer(stops), pointer(probes), pointer(places)
    begin, end = stack_array(np.int64(0), GROUP), stack_array(np.int64(0), GROUP)
    sizes, offsets = stack_array(np.int64(0), MAX_LEVELS), stack_array(np.int64(0), MAX_LEVELS)
    top, named = level_sizes(np.int64(count), sizes, offsets), len(order) > 0
    n, room, probe, emitted = len(lows), len(probes) - FANOUT, cursor[0], cursor[1]
    begin[GROUP - 1], finding = 0, GROUP
    while probe < n:
        group, most_find = min(GROUP, n - probe), 8 * finding > 3 * GROUP
        find_group(
            key, slot, tree, sizes, offsets, top, low, high, probe, group, follow, most_find, begin, end
        )
        finding = 0
        for g in range(group):
            finding += np.int64(end[g] > begin[g])
            at, i = begin[g] + emitted, probe + g
            emitted = 0
            if stop[i] <= oldest or start[i] > newest:
                continue
            name, covered = order[i] if named else i, start[i] <= oldest and stop[i] > newest
            least, most = max(start[i], 0), min(stop[i], MOST)
            while at < end[g]:
                until = min(end[g], at + room - filled)
                if until <= at:
                    cursor[0], cursor[1] = i, at - begin[g]
                    return filled
                if covered:
                    filled = emit(slot, at, until, name, out_probe, out_pos, filled)
                else:
                    filled = emit_within(slot, at, until, least, most, name, out_probe, out_pos, filled)
                at = until
        probe += group
    cursor[0] = DONE
    return filled
