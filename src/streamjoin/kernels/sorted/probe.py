"""Looks up intervals in a sorted run (`kernels/sorted/runs.py`) and returns records or pairs (Pan & Jacobsen, III-D,
E).

The bounds of PROBE_GROUP probes descend the sampled index in lock step, one level at a time, so that their cache
misses overlap; one vector comparison searches a node. For records, both bounds descend together, so a record costs
the same however many tuples it covers. For pairs, the upper bound is usually within a vector of the lower one, and so
are the slots; otherwise it is searched afterwards. An empty interval, or one with a NaN, gives an empty record.
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.cursor import DONE, MAX_SLOT
from streamjoin.kernels.scan.vector import (
    HAS_COMPRESS,
    at_least,
    at_most,
    bit_count,
    both,
    first,
    load_vector,
    pointer,
    prefetch,
    splat,
    stack_array,
    store_compressed,
    store_vector,
    word,
)
from streamjoin.kernels.sorted.runs import INDEX_FANOUT, MAX_INDEX_LEVELS, level_sizes

PROBE_GROUP = 16  # 8 take 1.3 times as long, 32 are no faster
MIN_RUN_ROOM = (
    4096  # room for pairs: any number above INDEX_FANOUT is correct, a smaller one causes more stretches
)


@inner
def count_at_least(key, at, low):
    """How many of the INDEX_FANOUT keys from `at` on are >= low."""
    return bit_count(word(at_least(load_vector(key, at, INDEX_FANOUT), splat(low, INDEX_FANOUT))))


@inner
def count_at_most(key, at, high):
    """How many of the INDEX_FANOUT keys from `at` on are <= high."""
    return bit_count(word(at_most(load_vector(key, at, INDEX_FANOUT), splat(high, INDEX_FANOUT))))


@inner
def lower_bounds(key, slot, index, sizes, offsets, top, lows, group, most_find, found):
    """The first place whose key is >= low, for each probe. `sizes` holds the number of keys in the run at level 0.

    Padding counts as keys; limits at each level correct that. The data to be read next is prefetched for all probes
    first: the leaf and, if most of them find something, the next leaf and their slots. This takes 0.7 to 0.95 of the
    time without.
    """
    for g in range(group):
        found[g] = 0
    for level in range(top, 0, -1):
        base, last = offsets[level], sizes[level] - 1
        for g in range(group):
            at = found[g] * INDEX_FANOUT
            found[g] = min(at + INDEX_FANOUT - count_at_least(index, base + at, lows[g]), last)
    for g in range(group):
        at = found[g] * INDEX_FANOUT
        prefetch(key, at)
        if most_find:
            prefetch(key, at + INDEX_FANOUT)
            prefetch(slot, at)
            prefetch(slot, at + INDEX_FANOUT)
    for g in range(group):
        at = found[g] * INDEX_FANOUT
        found[g] = min(at + INDEX_FANOUT - count_at_least(key, at, lows[g]), sizes[0])


@inner
def upper_bounds(key, index, sizes, offsets, top, highs, group, found):
    """The first place whose key is > high, for each probe."""
    for g in range(group):
        found[g] = 0
    for level in range(top, 0, -1):
        base, last = offsets[level], sizes[level] - 1
        for g in range(group):
            at = found[g] * INDEX_FANOUT
            found[g] = min(at + count_at_most(index, base + at, highs[g]), last)
    for g in range(group):
        at = found[g] * INDEX_FANOUT
        found[g] = min(at + count_at_most(key, at, highs[g]), sizes[0])


@inner
def rebound(key, count, at, low):
    """The first place from `at` on whose key is >= low: steps forwards that double, then backwards that halve (Figure
    6).

    If the target is within INDEX_FANOUT keys, this is a step of a merge. `low` must not be NaN.
    """
    above = count_at_least(key, at, low)
    if above == 0:
        step = INDEX_FANOUT
        while at + step < count and key[at + step] < low:
            at += step
            step *= 2
        while step > INDEX_FANOUT:
            step //= 2
            if at + step < count and key[at + step] < low:
                at += step
        above = count_at_least(key, at, low)
    return min(at + INDEX_FANOUT - above, count)


@inner
def find_group(
    key, slot, index, sizes, offsets, top, lows, highs, probe, group, follow, most_find, begin, end
):
    """Places [begin, end) of `group` probes from `probe` on. With `follow`, lows ascend, starting at place
    `begin[PROBE_GROUP - 1]`.

    If few of them find something, pass a false `most_find`: data after the first key is then prefetched only for
    those. This takes 0.6 of the time in a run of 10M keys.
    """
    far, ends = stack_array(np.int64(0), PROBE_GROUP), stack_array(np.int64(0), PROBE_GROUP)
    low, high = stack_array(lows[0], PROBE_GROUP), stack_array(lows[0], PROBE_GROUP)
    if follow:
        at = begin[PROBE_GROUP - 1]
        for g in range(group):
            at = rebound(key, sizes[0], at, lows[probe + g])
            begin[g] = at
    else:
        for g in range(group):
            low[g] = lows[probe + g]
        lower_bounds(key, slot, index, sizes, offsets, top, low, group, most_find, begin)
    finding, some = stack_array(np.int64(0), PROBE_GROUP), group
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
            prefetch(key, at + INDEX_FANOUT)
            prefetch(slot, at)
            prefetch(slot, at + INDEX_FANOUT)
    many = 0
    for f in range(some):
        g = finding[f]
        hits = count_at_most(key, begin[g], highs[probe + g])
        end[g] = min(begin[g] + hits, sizes[0])
        far[many] = g
        high[many] = highs[probe + g]
        many += np.int64(hits == INDEX_FANOUT)
    if many:
        upper_bounds(key, index, sizes, offsets, top, high, many, ends)
        for g in range(many):
            end[far[g]] = ends[g]


@inner
def both_bounds(key, index, sizes, offsets, top, lows, highs, probe, group, begin, end):
    """As `find_group`, with both bounds of each probe in one descent. It takes 0.6 to 0.8 of the time of two descents
    if at least 16 keys are between the bounds, and at most 1.15 of it otherwise. Returns the number of nodes visited.
    """
    low, high, nodes = stack_array(lows[0], PROBE_GROUP), stack_array(lows[0], PROBE_GROUP), 0
    for g in range(group):
        low[g], high[g] = lows[probe + g], highs[probe + g]
        begin[g], end[g] = 0, 0
    for level in range(top, 0, -1):
        base, last = offsets[level], sizes[level] - 1
        for g in range(group):
            at, to = begin[g] * INDEX_FANOUT, end[g] * INDEX_FANOUT
            begin[g] = min(at + INDEX_FANOUT - count_at_least(index, base + at, low[g]), last)
            end[g] = min(to + count_at_most(index, base + to, high[g]), last)
            nodes += 2
    for g in range(group):
        prefetch(key, begin[g] * INDEX_FANOUT)
        prefetch(key, end[g] * INDEX_FANOUT)
    for g in range(group):
        at, to = begin[g] * INDEX_FANOUT, end[g] * INDEX_FANOUT
        begin[g] = min(at + INDEX_FANOUT - count_at_least(key, at, low[g]), sizes[0])
        end[g] = max(begin[g], min(to + count_at_most(key, to, high[g]), sizes[0]))
        nodes += 2
    return nodes


@jit
def rises(values):
    """Whether no value is NaN or below the one before it; returns at the first that is."""
    for i in range(len(values)):
        if not values[max(i - 1, 0)] <= values[i]:
            return False
    return True


@jit
def find_records(keys, index, count, lows, highs, firsts, lasts):
    """Fill firsts[i] and lasts[i]: places [first, last) of the run hold the keys in [lows[i], highs[i]].

    Returns the number of nodes visited. O(log count) a probe, independent of the number of keys between the bounds.
    """
    key, tree, low, high = pointer(keys), pointer(index), pointer(lows), pointer(highs)
    begin, end = stack_array(np.int64(0), PROBE_GROUP), stack_array(np.int64(0), PROBE_GROUP)
    sizes, offsets = stack_array(np.int64(0), MAX_INDEX_LEVELS), stack_array(np.int64(0), MAX_INDEX_LEVELS)
    top, nodes = level_sizes(np.int64(count), sizes, offsets), 0
    for probe in range(0, len(lows), PROBE_GROUP):
        group = min(PROBE_GROUP, len(lows) - probe)
        nodes += both_bounds(key, tree, sizes, offsets, top, low, high, probe, group, begin, end)
        for g in range(group):
            firsts[probe + g] = begin[g]
            lasts[probe + g] = end[g]
    return nodes


@inner
def emit_slots(slot, at, end, name, out_probe, out_pos, count):
    """Write a pair for each slot at places at..end-1. Writes whole vectors, so scrap may follow."""
    names = splat(np.int32(name), INDEX_FANOUT)
    for place in range(at, end, INDEX_FANOUT):
        store_vector(names, out_probe, count + place - at)
        store_vector(load_vector(slot, place, INDEX_FANOUT), out_pos, count + place - at)
    return count + end - at


@inner
def emit_within(slot, at, end, low, high, name, out_probe, out_pos, count):
    """As `emit_slots`, for the slots in [low, high)."""
    if HAS_COMPRESS:
        names, least, most = (
            splat(np.int32(name), INDEX_FANOUT),
            splat(np.int32(low), INDEX_FANOUT),
            np.int32(high - 1),
        )
        greatest = splat(most, INDEX_FANOUT)
        for place in range(at, end, INDEX_FANOUT):
            slots = load_vector(slot, place, INDEX_FANOUT)
            fits = both(
                both(at_least(slots, least), at_most(slots, greatest)), first(end - place, INDEX_FANOUT)
            )
            bits = word(fits)
            store_vector(names, out_probe, count)
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
    """Append a pair to `probes`, `places` from `filled` on for each probe i and each slot of the run with lows[i] <=
    key <= highs[i] and starts[i] <= slot < stops[i]; return the new number of pairs.

        oldest, newest  least and greatest slot that the run may hold
        order           the numbers of the probes; empty if they are 0, 1, ...
        follow          whether lows ascend without NaN, and each search should start where the last one ended
        cursor          int64[CURSOR_SIZE], zeros at first; cursor[0] == DONE when all pairs are written

    Returns when done, or when room is short: then drain or grow the output and call again with the same cursor and
    inputs. Scrap may follow the pairs. Pairs come probe by probe. Cost: O(log count) a probe, and a copy of the slots
    between its bounds.
    """
    key, slot, tree, low, high = pointer(keys), pointer(slots), pointer(index), pointer(lows), pointer(highs)
    start, stop, out_probe, out_pos = pointer(starts), pointer(stops), pointer(probes), pointer(places)
    begin, end = stack_array(np.int64(0), PROBE_GROUP), stack_array(np.int64(0), PROBE_GROUP)
    sizes, offsets = stack_array(np.int64(0), MAX_INDEX_LEVELS), stack_array(np.int64(0), MAX_INDEX_LEVELS)
    top, named = level_sizes(np.int64(count), sizes, offsets), len(order) > 0
    n, room, probe, emitted = len(lows), len(probes) - INDEX_FANOUT, cursor[0], cursor[1]
    begin[PROBE_GROUP - 1], finding = 0, PROBE_GROUP
    while probe < n:
        group, most_find = min(PROBE_GROUP, n - probe), 8 * finding > 3 * PROBE_GROUP
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
            least, most = max(start[i], 0), min(stop[i], MAX_SLOT)
            while at < end[g]:
                until = min(end[g], at + room - filled)
                if until <= at:
                    cursor[0], cursor[1] = i, at - begin[g]
                    return filled
                if covered:
                    filled = emit_slots(slot, at, until, name, out_probe, out_pos, filled)
                else:
                    filled = emit_within(slot, at, until, least, most, name, out_probe, out_pos, filled)
                at = until
        probe += group
    cursor[0] = DONE
    return filled
