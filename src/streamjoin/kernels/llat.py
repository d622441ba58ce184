"""LLAT, the linked list adaptive table: unsorted tuples by partition (Pan & Jacobsen, section III-B2).

Storage is cut into *entries* of `width` tuples. A partition is a linked list of entries; all but its
last are full. `keys` and `slots` hold the tuples, entry e at [e * width, (e + 1) * width), with LANES
places of scrap behind the last entry so that whole vectors can be read. `entries[e]` holds HEAD (tuples in the entry),
NEXT (the entry after it in the list, or NONE) and, of a list's first entry, LAST (its last one).
`header[PTR_G]` is the first entry that nobody uses. The paper's Tail, where tuples leave, would always
be 0: a subwindow expires whole (section III-G1).

Entries that suffice: a further entry is linked only when a tuple comes and the list's last one is full. With P
first entries, n tuples and width w = sigma * n / P, each further one thus has a full one of its own
before it, so there are at most n / w = P / sigma < P of them, and never more than 2 P in all.

Partitions are ordered by key: partition i takes the keys in (splitters[i - 1], splitters[i]], the first and
the last one without that end. *Packed* partitions lie without gaps one after the other:
partition i at [offsets[i], offsets[i + 1]).
"""

from __future__ import annotations

import numpy as np

from streamjoin.kernels import vector
from streamjoin.kernels.jit import inner, jit
from streamjoin.kernels.vector import (
    at_least,
    at_most,
    bit_count,
    both,
    first,
    load,
    pointer,
    splat,
    stack_array,
    store,
    store_compressed,
    trailing_zeros,
    word,
)

LANES = vector.lanes()
PACKS = vector.has_compress()
HEAD, NEXT, LAST = 0, 1, 2  # columns of `entries`
NONE = -1
PTR_G = 0  # in `header`
CHUNK = 1024  # tuples scanned between two looks at the room that is left
MIN_ROOM = CHUNK + LANES  # places a probe needs to go on
CURSOR_SIZE = 4  # where a probe goes on: probe, partition, entry, tuple
DONE = -1
LOCKSTEP = 16  # searches that run together, so that their cache misses overlap


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


@inner
def gather(values, order, begin, end, gathered):
    """LOCKSTEP values from place `begin` of the order on, the one before `end` repeated where there are fewer."""
    for i in range(LOCKSTEP):
        place = min(begin + i, end - 1)
        gathered[i] = values[order[place] if len(order) else place]


@inner
def locate(splitters, keys, found):
    """found[i] = the partition of keys[i], for LOCKSTEP keys that are searched together; O(log P) each."""
    count = len(splitters)
    for i in range(LOCKSTEP):
        found[i] = 0
    while count > 1:
        half = count >> 1
        for i in range(LOCKSTEP):
            found[i] += half * np.int64(splitters[found[i] + half - 1] < keys[i])
        count -= half
    if count:
        for i in range(LOCKSTEP):
            found[i] += np.int64(splitters[found[i]] < keys[i])


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
    keys,
    slots,
    splitters,
    offsets,
    order,
    lows,
    highs,
    starts,
    stops,
    cursor,
    out_probes,
    out_positions,
    count,
):
    """Append (probe, slot) pairs from packed partitions, probes in the order `order` (as given if that is empty).

    Returns the new count when all is done (cursor[0] == DONE), or when fewer than MIN_ROOM places are
    left: make room and call again with the same cursor. O(log P + tuples of the partitions met) a probe.
    """
    key, slot, out_probe, out_pos = pointer(keys), pointer(slots), pointer(out_probes), pointer(out_positions)
    n, room = len(lows), len(out_probes)
    low = stack_array(lows[0], LOCKSTEP)
    found = stack_array(np.int64(0), LOCKSTEP)
    begin, resume = cursor[0], cursor[1]
    while begin < n:
        end = min(begin + LOCKSTEP, n)
        gather(lows, order, begin, end, low)
        locate(splitters, low, found)
        for i in range(end - begin):
            probe = order[begin + i] if len(order) else begin + i
            if not (low[i] <= highs[probe]) or starts[probe] >= stops[probe]:
                continue
            last = found[i]
            while last < len(splitters) and splitters[last] < highs[probe]:
                last += 1
            at, until = max(offsets[found[i]], resume), offsets[last + 1]
            resume = 0
            while at < until:
                if room - count < MIN_ROOM:
                    cursor[0], cursor[1] = begin + i, at
                    return count
                chunk_end = min(at + CHUNK, until)
                count = scan(
                    key, slot, at, chunk_end, low[i], highs[probe],
                    np.int32(starts[probe]), np.int32(stops[probe]), np.int32(probe), out_probe, out_pos, count,
                )  # fmt: skip
                at = chunk_end
        begin = end
    cursor[0] = DONE
    return count
