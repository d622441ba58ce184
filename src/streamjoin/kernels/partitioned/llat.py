"""LLAT, the linked list adaptive table: unsorted tuples by partition (Pan & Jacobsen, section III-B2).

Storage is cut into *entries* of `width` tuples. A partition is a linked list of entries; all but its last are full.
`keys` and `slots` hold the tuples, entry e at [e * width, (e + 1) * width). LANES places of scrap behind the last entry
allow whole vectors to be read. `entries[e]` holds ENTRY_COUNT (the number of tuples in the entry, the paper's Head) and
ENTRY_NEXT (the next entry of the list, or NO_ENTRY). A list's first entry also holds ENTRY_LAST (its last entry) and
ENTRY_AFTER (the first entry of the next partition by key). `header[NEXT_UNUSED]` is the first unused entry, the paper's
ptr_g. The paper's Tail, where tuples leave, would always be 0: a subwindow expires as a whole (section III-G1).

Why 2 P entries suffice: a further entry is linked only when a tuple comes and the list's last entry is full. With P
first entries, n tuples and width w = sigma * n / P, each further entry thus has a full one of its own before it. So
there are at most n / w = P / sigma < P further entries.

Partitions are ordered by key: partition i takes the keys in (uppers[i - 1], uppers[i]], and the first one has no lower
end; the last upper is the greatest value of the key's type. `fences` hold the uppers, above them the last of every
FENCE_FANOUT uppers, and so on: a search tree without pointers, each node of which is compared as one vector. *Packed*
partitions lie one after the other without gaps, partition i at [offsets[i], offsets[i + 1]).
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.cursor import DONE, MAX_SLOT
from streamjoin.kernels.scan import vector
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
    trailing_zeros,
    word,
)

LANES = vector.lanes()
ENTRY_COUNT, ENTRY_NEXT, ENTRY_LAST, ENTRY_AFTER = 0, 1, 2, 3  # columns of `entries`
NO_ENTRY = -1
NEXT_UNUSED = 0  # a word of `header`
CHUNK = 1024  # tuples scanned before a probe checks the room in its output again
MIN_PARTITION_ROOM = CHUNK + LANES  # the free places in the output that a probe needs to continue
LOCKSTEP = 16  # this many searches run together, so that their cache misses overlap
# Vectors of a partition that are prefetched before it is scanned; in tables beyond the caches this takes 0.5 to 0.9 of
# the time of a scan without.
FETCHED = 5
FENCE_FANOUT = 16  # keys of a node of the fences
MAX_FENCE_LEVELS = 8  # enough, since FENCE_FANOUT ** 8 is more than 2**31


@inner
def take_entry(entries, header):
    """Take the next unused entry, and make it empty."""
    entry = header[NEXT_UNUSED]
    header[NEXT_UNUSED] += 1
    entries[entry, ENTRY_COUNT] = 0
    entries[entry, ENTRY_NEXT] = NO_ENTRY
    return entry


@inner
def append_tuple(keys, slots, entries, header, width, partition, key, slot):
    """Add a tuple to the list that begins with entry `partition`; O(1)."""
    last = np.int64(entries[partition, ENTRY_LAST])
    head = np.int64(entries[last, ENTRY_COUNT])
    if head == width:
        full, last, head = last, take_entry(entries, header), np.int64(0)
        entries[full, ENTRY_NEXT] = last
        entries[partition, ENTRY_LAST] = last
    keys[last * width + head] = key
    slots[last * width + head] = slot
    entries[last, ENTRY_COUNT] = head + 1


def fence_places(partitions: int) -> int:
    """The number of places in the fences of this many partitions."""
    total, size = 0, partitions
    while True:
        nodes = -(-size // FENCE_FANOUT)
        total += nodes * FENCE_FANOUT
        if nodes == 1:
            return total
        size = nodes


@jit
def fill_fences(uppers, fences):
    """Fill the fences; O(P)."""
    size, at, below = len(uppers), 0, 0
    highest = uppers[size - 1]
    for i in range(size):
        fences[i] = uppers[i]
    while True:
        nodes = (size + FENCE_FANOUT - 1) // FENCE_FANOUT
        for i in range(size, nodes * FENCE_FANOUT):
            fences[at + i] = highest
        if nodes == 1:
            break
        below, at = at, at + nodes * FENCE_FANOUT
        for i in range(nodes):
            fences[at + i] = fences[below + i * FENCE_FANOUT + FENCE_FANOUT - 1]
        size = nodes


@inner
def fence_levels(partitions, levels):
    """Fill in where each level begins in the fences, level 0 being the uppers; return the number of levels."""
    size, count = partitions, 1
    levels[0] = 0
    while size > FENCE_FANOUT:
        size = (size + FENCE_FANOUT - 1) // FENCE_FANOUT
        levels[count] = levels[count - 1] + size * FENCE_FANOUT
        count += 1
    return count


@inner
def locate_partitions(fences, levels, level_count, keys, found):
    """Set found[i] to the partition of keys[i], for LOCKSTEP keys that are searched together; O(log P) each."""
    for i in range(LOCKSTEP):
        found[i] = 0
    for level in range(level_count - 1, -1, -1):
        base = levels[level]
        for i in range(LOCKSTEP):
            node = load_vector(fences, base + found[i] * FENCE_FANOUT, FENCE_FANOUT)
            not_below = bit_count(word(at_least(node, splat(keys[i], FENCE_FANOUT))))
            found[i] = found[i] * FENCE_FANOUT + FENCE_FANOUT - not_below


@inner
def gather_keys(values, begin, end, some_key, gathered):
    """Copy LOCKSTEP values from `begin` on; where there are fewer, repeat the one before `end`.

    NaN, which no search could place, becomes `some_key`.
    """
    for i in range(LOCKSTEP):
        value = values[min(begin + i, end - 1)]
        gathered[i] = value if value == value else some_key


@inner
def emit_matches(bits, slots, at, probe, out_probe, out_pos, count):
    """Write a pair for each set bit: the tuple at `at` + its number. Scrap may follow the pairs."""
    if HAS_COMPRESS:
        store_vector(splat(probe, LANES), out_probe, count)
        store_compressed(load_vector(slots, at, LANES), bits, out_pos, count)
        return count + bit_count(bits)
    while bits:
        out_probe[count] = probe
        out_pos[count] = slots[at + trailing_zeros(bits)]
        count += 1
        bits &= bits - np.uint64(1)
    return count


@inner
def scan_tuples(keys, slots, at, end, low, high, start, stop, probe, out_probe, out_pos, count):
    """Write the pairs of one probe with the tuples at..end-1; a vector of keys costs a few instructions.

    Slots are read only where a key matches, since most keys do not.
    """
    lows, highs = splat(low, LANES), splat(high, LANES)
    starts, lasts = splat(start, LANES), splat(np.int32(stop - 1), LANES)
    while at < end:
        key = load_vector(keys, at, LANES)
        match = both(at_least(key, lows), at_most(key, highs))
        if at + LANES > end:
            match = both(match, first(end - at, LANES))
        if word(match):
            slot = load_vector(slots, at, LANES)
            match = both(match, both(at_least(slot, starts), at_most(slot, lasts)))
            count = emit_matches(word(match), slots, at, probe, out_probe, out_pos, count)
        at += LANES
    return count


@inner
def scan_list(
    keys, slots, entries, width, cursor, low, high, start, stop, probe, out_probe, out_pos, room, count
):
    """As `scan_tuples`, over a list from tuple cursor[3] of entry cursor[2] on; sets cursor[2] = NO_ENTRY at its end.

    Returns early when fewer than MIN_PARTITION_ROOM places are left; the cursor then says where to continue.
    """
    entry, at = cursor[2], cursor[3]
    while entry != NO_ENTRY:
        begin, head = entry * width, np.int64(entries[entry, ENTRY_COUNT])
        while at < head:
            if room - count < MIN_PARTITION_ROOM:
                cursor[2], cursor[3] = entry, at
                return count
            end = min(at + CHUNK, head)
            count = scan_tuples(
                keys, slots, begin + at, begin + end, low, high, start, stop, probe, out_probe, out_pos, count
            )
            at = end
        entry, at = np.int64(entries[entry, ENTRY_NEXT]), 0
    cursor[2], cursor[3] = NO_ENTRY, 0
    return count


@inner
def scan_group(
    key, slot, entries, width, upper, found, begin, end,
    lows, highs, starts, stops, cursor, out_probe, out_pos, room, count,
):  # fmt: skip
    """Write the pairs of the probes begin..end-1, whose lower bounds lie in the partitions found[0], found[1] and so
    on.

    cursor[2] == NO_ENTRY once all is done. Otherwise room is short and the cursor says where to continue: at probe
    cursor[0], partition cursor[1] - 1 (0: its first one), entry cursor[2], tuple cursor[3].
    """
    for i in range(end - begin):
        for j in range(FETCHED):
            prefetch(key, found[i] * width + j * LANES)
    for i in range(end - begin):
        probe = begin + i
        low, high = lows[probe], highs[probe]
        start, stop = max(starts[probe], 0), min(stops[probe], MAX_SLOT)
        if not (low <= high) or start >= stop:
            continue
        partition = found[i]
        if cursor[1]:
            partition = cursor[1] - 1
        else:
            cursor[2], cursor[3] = partition, 0
        while True:
            count = scan_list(
                key, slot, entries, width, cursor, low, high,
                np.int32(start), np.int32(stop), np.int32(probe), out_probe, out_pos, room, count,
            )  # fmt: skip
            if cursor[2] != NO_ENTRY:
                cursor[0], cursor[1] = begin + i, partition + 1
                return count
            if not upper[partition] < high:
                break
            partition = np.int64(entries[partition, ENTRY_AFTER])
            cursor[2], cursor[3] = partition, 0
        cursor[1] = 0
    cursor[2] = NO_ENTRY
    return count


@jit
def pack(keys, slots, entries, width, firsts, offsets, packed_keys, packed_slots):
    """Copy the lists that begin with the entries `firsts` one after the other; O(tuples + lists)."""
    count = 0
    for i in range(len(firsts)):
        offsets[i] = count
        entry = np.int64(firsts[i])
        while entry != NO_ENTRY:
            at = entry * width
            for j in range(np.int64(entries[entry, ENTRY_COUNT])):
                packed_keys[count + j] = keys[at + j]
                packed_slots[count + j] = slots[at + j]
            count += np.int64(entries[entry, ENTRY_COUNT])
            entry = np.int64(entries[entry, ENTRY_NEXT])
    offsets[len(firsts)] = count


@jit
def probe_packed(
    keys, slots, fences, offsets, lows, highs, starts, stops, cursor, out_probes, out_positions, count
):
    """Append (probe, slot) pairs from packed partitions.

    Returns the new count when all is done (cursor[0] == DONE), or when fewer than MIN_PARTITION_ROOM places are
    left: make room and call again with the same cursor. O(log P + tuples of the partitions met) a probe.
    """
    key, slot, out_probe, out_pos = pointer(keys), pointer(slots), pointer(out_probes), pointer(out_positions)
    upper, n, room = pointer(fences), len(lows), len(out_probes)
    low, found = stack_array(lows[0], LOCKSTEP), stack_array(np.int64(0), LOCKSTEP)
    levels = stack_array(np.int64(0), MAX_FENCE_LEVELS)
    level_count = fence_levels(len(offsets) - 1, levels)
    begin, resume = cursor[0], cursor[1]
    while begin < n:
        end = min(begin + LOCKSTEP, n)
        gather_keys(lows, begin, end, upper[0], low)
        locate_partitions(upper, levels, level_count, low, found)
        for i in range(end - begin):
            for j in range(FETCHED):
                prefetch(key, offsets[found[i]] + j * LANES)
        for i in range(end - begin):
            probe = begin + i
            high, start, stop = highs[probe], max(starts[probe], 0), min(stops[probe], MAX_SLOT)
            if not (lows[probe] <= high) or start >= stop:
                continue
            last = found[i]
            while upper[last] < high:
                last += 1
            at, until = max(offsets[found[i]], resume), offsets[last + 1]
            resume = 0
            while at < until:
                if room - count < MIN_PARTITION_ROOM:
                    cursor[0], cursor[1] = begin + i, at
                    return count
                chunk_end = min(at + CHUNK, until)
                count = scan_tuples(
                    key, slot, at, chunk_end, low[i], high,
                    np.int32(start), np.int32(stop), np.int32(probe), out_probe, out_pos, count,
                )  # fmt: skip
                at = chunk_end
        begin = end
    cursor[0] = DONE
    return count
