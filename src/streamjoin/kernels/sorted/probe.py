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
    pointer_at,
    prefetch,
    splat,
    stack_array,
    store_compressed,
    store_vector,
    word,
    wrapping_sub,
)
from streamjoin.kernels.sorted.runs import INDEX_FANOUT, MAX_INDEX_LEVELS, level_sizes

PROBE_GROUP = 16  # 8 take 1.3 times as long, 32 are no faster
MIN_RUN_ROOM = (
    4096  # room for pairs: any number above INDEX_FANOUT is correct, a smaller one causes more stretches
)
# A run as a row of a table: the addresses of its keys, slots and index; how many keys it has; the least and the
# greatest slot that it may have; the number of the row at slot 0.
RUN_KEYS, RUN_SLOTS, RUN_INDEX, RUN_COUNT, RUN_OLDEST, RUN_NEWEST, RUN_FIRST = range(7)
RUN_WORDS = 7
CURRENT_RUN = 2  # the word of a cursor with the run that was being searched


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
def emit_slots(slot, at, end, base, name, out_probe, out_pos, count):
    """Write a pair for each slot at places at..end-1; slot 0 has position `base`. Writes whole vectors, so scrap may
    follow."""
    names, zero = splat(np.int32(name), INDEX_FANOUT), splat(np.int32(-base), INDEX_FANOUT)
    for place in range(at, end, INDEX_FANOUT):
        store_vector(names, out_probe, count + place - at)
        slots = load_vector(slot, place, INDEX_FANOUT)
        store_vector(wrapping_sub(slots, zero), out_pos, count + place - at)
    return count + end - at


@inner
def emit_within(slot, at, end, base, low, high, name, out_probe, out_pos, count):
    """As `emit_slots`, for the slots in [low, high)."""
    if HAS_COMPRESS:
        names, zero = splat(np.int32(name), INDEX_FANOUT), splat(np.int32(-base), INDEX_FANOUT)
        least, greatest = splat(np.int32(low), INDEX_FANOUT), splat(np.int32(high - 1), INDEX_FANOUT)
        for place in range(at, end, INDEX_FANOUT):
            slots = load_vector(slot, place, INDEX_FANOUT)
            fits = both(
                both(at_least(slots, least), at_most(slots, greatest)), first(end - place, INDEX_FANOUT)
            )
            bits = word(fits)
            store_vector(names, out_probe, count)
            store_compressed(wrapping_sub(slots, zero), bits, out_pos, count)
            count += bit_count(bits)
        return count
    for place in range(at, end):
        out_probe[count] = np.int32(name)
        out_pos[count] = np.int32(slot[place] + base)
        count += np.int64((slot[place] >= low) & (slot[place] < high))
    return count


@inner
def find_in_run(
    run, base, low, high, start, stop, order, n, follow, cursor, probes, places, keys, room, filled
):
    """As `find_pairs`, for one run, a row of the table, whose slot 0 has position `base`. `keys`: an array of the
    type of its keys."""
    key, slot = pointer_at(run[RUN_KEYS], keys), pointer_at(run[RUN_SLOTS], places)
    tree, oldest, newest = pointer_at(run[RUN_INDEX], keys), base + run[RUN_OLDEST], base + run[RUN_NEWEST]
    out_probe, out_pos = pointer(probes), pointer(places)
    begin, end = stack_array(np.int64(0), PROBE_GROUP), stack_array(np.int64(0), PROBE_GROUP)
    sizes, offsets = stack_array(np.int64(0), MAX_INDEX_LEVELS), stack_array(np.int64(0), MAX_INDEX_LEVELS)
    top, named = level_sizes(run[RUN_COUNT], sizes, offsets), len(order) > 0
    probe, emitted = cursor[0], cursor[1]
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
            least, most = max(start[i] - base, 0), min(stop[i] - base, MAX_SLOT)
            while at < end[g]:
                until = min(end[g], at + room - filled)
                if until <= at:
                    cursor[0], cursor[1] = i, at - begin[g]
                    return filled
                if covered:
                    filled = emit_slots(slot, at, until, base, name, out_probe, out_pos, filled)
                else:
                    filled = emit_within(slot, at, until, base, least, most, name, out_probe, out_pos, filled)
                at = until
        probe += group
    cursor[0] = DONE
    return filled


@jit
def find_pairs(runs, gone, lows, highs, starts, stops, order, follow, cursor, probes, places, filled):
    """Append a pair to `probes`, `places` from `filled` on for each run, each probe i and each tuple of the run with
    lows[i] <= key <= highs[i] and starts[i] <= position < stops[i]; return the new number of pairs.

        runs            int64[number of runs, RUN_WORDS]; the caller keeps the memory alive that it has addresses of.
                        A tuple's position is its slot + RUN_FIRST - gone
        lows, highs     of the type of the runs' keys
        order           the numbers of the probes; empty if they are 0, 1, ...
        follow          whether lows ascend without NaN, and each search should start where the last one ended
        cursor          int64[CURSOR_SIZE], zeros at first; cursor[0] == DONE when all pairs are written

    Returns when done, or when room is short: then drain or grow the output and call again with the same cursor and
    inputs. Scrap may follow the pairs. Pairs come run by run, then probe by probe. Cost: O(log count) a run and probe,
    and a copy of the slots between its bounds.
    """
    low, high, start, stop = pointer(lows), pointer(highs), pointer(starts), pointer(stops)
    n, room = len(lows), len(probes) - INDEX_FANOUT
    while cursor[CURRENT_RUN] < len(runs):
        run = runs[cursor[CURRENT_RUN]]
        if run[RUN_COUNT]:
            base = run[RUN_FIRST] - gone
            filled = find_in_run(
                run,
                base,
                low,
                high,
                start,
                stop,
                order,
                n,
                follow,
                cursor,
                probes,
                places,
                lows,
                room,
                filled,
            )
            if cursor[0] != DONE:
                return filled
        cursor[0], cursor[1] = 0, 0
        cursor[CURRENT_RUN] += 1
    cursor[0] = DONE
    return filled
