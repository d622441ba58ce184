"""LLAT, the linked list adaptive table: unsorted tuples by partition (Pan & Jacobsen, section III-B2).

Storage is cut into *entries* of `width` tuples. A partition is a linked list of entries; all but its
last are full. `keys` and `slots` hold the tuples, entry e at [e * width, (e + 1) * width), with LANES
places of scrap behind the last entry so that whole vectors can be read. `entries[e]` holds HEAD (tuples in the
entry), NEXT (the entry after it in the list, or NONE) and, of a list's first entry, LAST (its last one) and
AFTER (the first entry of the next partition by key). `header[PTR_G]` is the first entry that nobody uses.
The paper's Tail, where tuples leave, would always be 0: a subwindow expires whole (section III-G1).

Entries that suffice: a further entry is linked only when a tuple comes and the list's last one is full. With P
first entries, n tuples and width w = sigma * n / P, each further one thus has a full one of its own
before it, so there are at most n / w = P / sigma < P of them, and never more than 2 P in all.

Partitions are ordered by key: partition i takes the keys in (uppers[i - 1], uppers[i]], the first one
without that end; the last upper is the greatest value of the key's type. `fences` are the uppers and above them
the last of every FANOUT, and so on: a search tree without pointers, each node of which is compared as one vector.
*Packed* partitions lie without gaps one after the other: partition i at [offsets[i], offsets[i + 1]).
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
    trailing_zeros,
    word,
)

LANES = vector.lanes()
PACKS = vector.has_compress()
HEAD, NEXT, LAST, AFTER = 0, 1, 2, 3  # columns of `entries`
NONE = -1
PTR_G = 0  # in `header`
CHUNK = 1024  # tuples scanned between two looks at the room that is left
MIN_ROOM = CHUNK + LANES  # places a probe needs to go on
CURSOR_SIZE = 4  # where a probe goes on: probe, partition, entry, tuple
DONE = -1
MOST = 2**31 - 1  # slots are 32-bit and below
LOCKSTEP = 16  # searches that run together, so that their cache misses overlap
FETCHED = 5  # vectors of a partition asked for before it is scanned: 0.5 to 0.9 of the time beyond the caches
FANOUT = 16  # keys of a node of the fences
MAX_LEVELS = 8  # FANOUT ** 8 is beyond 2**31


@inner
def take_entry(entries, header):
    """The next unused entry, made empty."""
    entry = header[PTR_G]
    header[PTR_G] += 1
    entries[entry, HEAD] = 0
    entries[entry, NEXT] = NONE
    return entry


@inner
def append(keys, slots, entries, header, width, partition, key, slot):
    """Add a tuple to the list that begins with entry `partition`; O(1)."""
    last = np.int64(entries[partition, LAST])
    head = np.int64(entries[last, HEAD])
    if head == width:
        full, last, head = last, take_entry(entries, header), np.int64(0)
        entries[full, NEXT] = last
        entries[partition, LAST] = last
    keys[last * width + head] = key
    slots[last * width + head] = slot
    entries[last, HEAD] = head + 1


def fence_places(partitions: int) -> int:
    """Places in the fences of so many partitions."""
    total, size = 0, partitions
    while True:
        nodes = -(-size // FANOUT)
        total += nodes * FANOUT
        if nodes == 1:
            return total
        size = nodes


@jit
def fence(uppers, fences):
    """Fill the fences; O(P)."""
    size, at, below = len(uppers), 0, 0
    highest = uppers[size - 1]
    for i in range(size):
        fences[i] = uppers[i]
    while True:
        nodes = (size + FANOUT - 1) // FANOUT
        for i in range(size, nodes * FANOUT):
            fences[at + i] = highest
        if nodes == 1:
            break
        below, at = at, at + nodes * FANOUT
        for i in range(nodes):
            fences[at + i] = fences[below + i * FANOUT + FANOUT - 1]
        size = nodes


@inner
def fence_levels(partitions, levels):
    """Fill the place of each level in the fences, level 0 being the uppers; their number."""
    size, count = partitions, 1
    levels[0] = 0
    while size > FANOUT:
        size = (size + FANOUT - 1) // FANOUT
        levels[count] = levels[count - 1] + size * FANOUT
        count += 1
    return count


@inner
def locate(fences, levels, level_count, keys, found):
    """found[i] = the partition of keys[i], for LOCKSTEP keys that are searched together; O(log P) each."""
    for i in range(LOCKSTEP):
        found[i] = 0
    for level in range(level_count - 1, -1, -1):
        base = levels[level]
        for i in range(LOCKSTEP):
            node = load(fences, base + found[i] * FANOUT, FANOUT)
            not_below = bit_count(word(at_least(node, splat(keys[i], FANOUT))))
            found[i] = found[i] * FANOUT + FANOUT - not_below


@inner
def gather(values, begin, end, some_key, gathered):
    """LOCKSTEP values from `begin` on, the one before `end` repeated where there are fewer.

    NaN, which no search could place, becomes `some_key`.
    """
    for i in range(LOCKSTEP):
        value = values[min(begin + i, end - 1)]
        gathered[i] = value if value == value else some_key


@inner
def emit(bits, slots, at, probe, out_probe, out_pos, count):
    """Write a pair for each tuple `at + bit`; scrap may follow them."""
    if PACKS:
        store(splat(probe, LANES), out_probe, count)
        store_compressed(load(slots, at, LANES), bits, out_pos, count)
        return count + bit_count(bits)
    while bits:
        out_probe[count] = probe
        out_pos[count] = slots[at + trailing_zeros(bits)]
        count += 1
        bits &= bits - np.uint64(1)
    return count


@inner
def scan(keys, slots, at, end, low, high, start, stop, probe, out_probe, out_pos, count):
    """Write the pairs of one probe with the tuples at..end-1; a vector of keys costs a few instructions.

    Slots are looked at where a key matches only, since most do not.
    """
    lows, highs = splat(low, LANES), splat(high, LANES)
    starts, lasts = splat(start, LANES), splat(np.int32(stop - 1), LANES)
    while at < end:
        key = load(keys, at, LANES)
        match = both(at_least(key, lows), at_most(key, highs))
        if at + LANES > end:
            match = both(match, first(end - at, LANES))
        if word(match):
            slot = load(slots, at, LANES)
            match = both(match, both(at_least(slot, starts), at_most(slot, lasts)))
            count = emit(word(match), slots, at, probe, out_probe, out_pos, count)
        at += LANES
    return count


@inner
def scan_list(
    keys, slots, entries, width, cursor, low, high, start, stop, probe, out_probe, out_pos, room, count
):
    """As `scan`, over a list from tuple cursor[3] of entry cursor[2] on; ends with cursor[2] == NONE.

    With less than MIN_ROOM places left it returns early, and the cursor tells where to go on.
    """
    entry, at = cursor[2], cursor[3]
    while entry != NONE:
        begin, head = entry * width, np.int64(entries[entry, HEAD])
        while at < head:
            if room - count < MIN_ROOM:
                cursor[2], cursor[3] = entry, at
                return count
            end = min(at + CHUNK, head)
            count = scan(
                keys, slots, begin + at, begin + end, low, high, start, stop, probe, out_probe, out_pos, count
            )
            at = end
        entry, at = np.int64(entries[entry, NEXT]), 0
    cursor[2], cursor[3] = NONE, 0
    return count


@inner
def scan_group(
    key, slot, entries, width, upper, found, begin, end,
    lows, highs, starts, stops, cursor, out_probe, out_pos, room, count,
):  # fmt: skip
    """Write the pairs of the probes begin..end-1, whose low lies in partition found[0], ...

    cursor[2] == NONE when all is done. Otherwise room is short and the cursor tells where to go on: at probe
    cursor[0], partition cursor[1] - 1 (0: at its first one), entry cursor[2], tuple cursor[3].
    """
    for i in range(end - begin):
        for j in range(FETCHED):
            prefetch(key, found[i] * width + j * LANES)
    for i in range(end - begin):
        probe = begin + i
        low, high = lows[probe], highs[probe]
        start, stop = max(starts[probe], 0), min(stops[probe], MOST)
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
            if cursor[2] != NONE:
                cursor[0], cursor[1] = begin + i, partition + 1
                return count
            if not upper[partition] < high:
                break
            partition = np.int64(entries[partition, AFTER])
            cursor[2], cursor[3] = partition, 0
        cursor[1] = 0
    cursor[2] = NONE
    return count


@jit
def pack(keys, slots, entries, width, firsts, offsets, packed_keys, packed_slots):
    """Copy the lists that begin with the entries `firsts` one after the other; O(tuples + lists)."""
    count = 0
    for i in range(len(firsts)):
        offsets[i] = count
        entry = np.int64(firsts[i])
        while entry != NONE:
            at = entry * width
            for j in range(np.int64(entries[entry, HEAD])):
                packed_keys[count + j] = keys[at + j]
                packed_slots[count + j] = slots[at + j]
            count += np.int64(entries[entry, HEAD])
            entry = np.int64(entries[entry, NEXT])
    offsets[len(firsts)] = count


@jit
def probe_packed(
    keys, slots, fences, offsets, lows, highs, starts, stops, cursor, out_probes, out_positions, count
):
    """Append (probe, slot) pairs from packed partitions.

    Returns the new count when all is done (cursor[0] == DONE), or when fewer than MIN_ROOM places are
    left: make room and call again with the same cursor. O(log P + tuples of the partitions met) a probe.
    """
    key, slot, out_probe, out_pos = pointer(keys), pointer(slots), pointer(out_probes), pointer(out_positions)
    upper, n, room = pointer(fences), len(lows), len(out_probes)
    low, found = stack_array(lows[0], LOCKSTEP), stack_array(np.int64(0), LOCKSTEP)
    levels = stack_array(np.int64(0), MAX_LEVELS)
    level_count = fence_levels(len(offsets) - 1, levels)
    begin, resume = cursor[0], cursor[1]
    while begin < n:
        end = min(begin + LOCKSTEP, n)
        gather(lows, begin, end, upper[0], low)
        locate(upper, levels, level_count, low, found)
        for i in range(end - begin):
            for j in range(FETCHED):
                prefetch(key, offsets[found[i]] + j * LANES)
        for i in range(end - begin):
            probe = begin + i
            high, start, stop = highs[probe], max(starts[probe], 0), min(stops[probe], MOST)
            if not (lows[probe] <= high) or start >= stop:
                continue
            last = found[i]
            while upper[last] < high:
                last += 1
            at, until = max(offsets[found[i]], resume), offsets[last + 1]
            resume = 0
            while at < until:
                if room - count < MIN_ROOM:
                    cursor[0], cursor[1] = begin + i, at
                    return count
                chunk_end = min(at + CHUNK, until)
                count = scan(
                    key, slot, at, chunk_end, low[i], high,
                    np.int32(start), np.int32(stop), np.int32(probe), out_probe, out_pos, count,
                )  # fmt: skip
                at = chunk_end
        begin = end
    cursor[0] = DONE
    return count
