"""Sorted runs of (key, slot): sort a batch, merge it in place, sample the index (Pan & Jacobsen, section III-D).

A run is `keys` and `slots`, sorted by key from place 0 to `count`, in arrays with room for PAD more. The PAD keys
from `count` on are the greatest of their type, so that whole vectors can be read anywhere in the run. Its `index`
samples the last key of every INDEX_FANOUT keys, then the last of every INDEX_FANOUT samples, and so on: a tree
without pointers, whose nodes are one cache line of 32-bit keys. Keys are never NaN.
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels import numpy_forms
from streamjoin.kernels.scan.vector import (
    at_most,
    bit_count,
    load_vector,
    pointer,
    splat,
    stack_array,
    store_vector,
    word,
)

INDEX_FANOUT = 16  # keys in a node
PAD = 16  # places after a run that are read and written as part of vectors
MAX_INDEX_LEVELS = 9  # enough, since INDEX_FANOUT ** 8 is more than 2**31
# Up to this many tuples, `merge_short` is faster than radix sort and `merge`: 1.6 against 6.4 us for 16 tuples.
SHORT_BATCH = 192
RADIX_BITS = 8  # bits sorted by one pass of the radix sort
RADIX_BUCKETS = 1 << RADIX_BITS


def index_size(capacity: int) -> int:
    """The size of the index of a run of up to `capacity` keys: about a 15th of them."""
    total, size = INDEX_FANOUT, capacity
    while size > INDEX_FANOUT:
        size = -(-size // INDEX_FANOUT)
        total += -(-size // INDEX_FANOUT) * INDEX_FANOUT
    return total


@inner
def level_sizes(count, sizes, offsets):
    """Fill in the number of keys of each level and its place in the index; return the highest level. Level 0 is the
    run."""
    top, at = 0, 0
    sizes[0] = count
    offsets[0] = 0
    while sizes[top] > INDEX_FANOUT:
        sizes[top + 1] = (sizes[top] + INDEX_FANOUT - 1) // INDEX_FANOUT
        offsets[top + 1] = at
        at += (sizes[top + 1] + INDEX_FANOUT - 1) // INDEX_FANOUT * INDEX_FANOUT
        top += 1
    return top


@inner
def finish_run(keys, before, count, changed, index, highest):
    """Pad a run that has grown from `before` keys and update its index; keys at places before `changed` have not
    changed.

    O(count / INDEX_FANOUT).
    """
    sizes, offsets = stack_array(np.int64(0), MAX_INDEX_LEVELS), stack_array(np.int64(0), MAX_INDEX_LEVELS)
    for i in range(count, count + PAD):
        keys[i] = highest
    top = level_sizes(count, sizes, offsets)
    for level in range(1, top + 1):
        at, size, below, last = offsets[level], sizes[level], offsets[level - 1], sizes[level - 1] - 1
        # Level 1 never moves. Each other level begins where the one below ends, which depends on the count.
        kept = changed // INDEX_FANOUT if level == 1 and before > INDEX_FANOUT else 0
        for i in range(kept, size):
            place = min(i * INDEX_FANOUT + INDEX_FANOUT - 1, last)
            index[at + i] = keys[place] if level == 1 else index[below + place]
        for i in range(size, (size + INDEX_FANOUT - 1) // INDEX_FANOUT * INDEX_FANOUT):
            index[at + i] = highest


@inner
def merge_backwards(key, slot, count, new_key, new_slot, new_count):
    """Merge sorted new tuples into a run, after tuples of the same key; return the place of the lowest new one.

    Tuples move up by the number of new ones still to come, 16 at a time. The comparison that finds the place of a new
    tuple is part of the move. Speed: nearly that of copying for few new tuples, 4 ns a tuple for as many as held.
    """
    hi, left = count, new_count
    while left > 0 and hi >= 16:
        value = new_key[left - 1]
        values = splat(value, 16)
        while hi >= 16:
            moved, moved_slots = load_vector(key, hi - 16, 16), load_vector(slot, hi - 16, 16)
            above = 16 - bit_count(word(at_most(moved, values)))
            # Scrap of a whole vector is overwritten later, unless it would overwrite tuples that have not moved yet.
            if above == 16 or left >= 16:
                store_vector(moved, key, hi - 16 + left)
                store_vector(moved_slots, slot, hi - 16 + left)
            else:
                for i in range(hi - 1, hi - 1 - above, -1):
                    key[i + left] = key[i]
                    slot[i + left] = slot[i]
            hi -= above
            if above < 16:
                left -= 1
                key[hi + left] = value
                slot[hi + left] = new_slot[left]
                break
    while left > 0:
        if hi > 0 and key[hi - 1] > new_key[left - 1]:
            hi -= 1
            key[hi + left] = key[hi]
            slot[hi + left] = slot[hi]
        else:
            left -= 1
            key[hi + left] = new_key[left]
            slot[hi + left] = new_slot[left]
    return hi


@jit
def merge(keys, slots, index, count, new_keys, new_slots, new_count, highest):
    """Merge the first `new_count` tuples of a sorted batch into a run in place; return its new count.

    `highest` is the greatest value of the key's type. Cost: O(tuples from the lowest new one on).
    """
    key = pointer(keys)
    changed = merge_backwards(
        key, pointer(slots), count, pointer(new_keys), pointer(new_slots), np.int64(new_count)
    )
    finish_run(key, count, count + new_count, changed, pointer(index), highest)
    return count + new_count


@jit
def merge_some(
    keys, slots, count, later_keys, later_slots, later_count, shift, at, many, out_keys, out_slots
):
    """Merge up to `many` more tuples of two runs into a third array. `at` holds how many tuples of each run are done,
    and is updated.

    Slots of the later run are raised by `shift`; its tuples come after those of the same key. Cost: O(many).
    """
    key, slot, later_key, later_slot = (
        pointer(keys),
        pointer(slots),
        pointer(later_keys),
        pointer(later_slots),
    )
    out_key, out_slot, i, j = pointer(out_keys), pointer(out_slots), at[0], at[1]
    end = min(i + j + many, count + later_count)
    while i < count and j < later_count and i + j < end:
        earlier = key[i] <= later_key[j]
        out_key[i + j] = key[i] if earlier else later_key[j]
        out_slot[i + j] = slot[i] if earlier else later_slot[j] + np.int32(shift)
        i, j = i + np.int64(earlier), j + np.int64(not earlier)
    while i < count and i + j < end:
        out_key[i + j] = key[i]
        out_slot[i + j] = slot[i]
        i += 1
    while j < later_count and i + j < end:
        out_key[i + j] = later_key[j]
        out_slot[i + j] = later_slot[j] + np.int32(shift)
        j += 1
    at[0], at[1] = i, j


@jit
def close_run(keys, index, count, highest):
    """Pad a run whose keys were written by other code, and build its index. O(count / INDEX_FANOUT)."""
    finish_run(pointer(keys), np.int64(0), np.int64(count), np.int64(0), pointer(index), highest)


@jit
def merge_short(keys, slots, index, count, new_keys, new_slots, highest):
    """As `merge`, for up to SHORT_BATCH tuples in any order; tuples with a NaN key are left out."""
    key = pointer(keys)
    sorted_keys, sorted_slots = stack_array(new_keys[0], SHORT_BATCH), stack_array(new_slots[0], SHORT_BATCH)
    kept = 0
    for i in range(len(new_keys)):
        value = new_keys[i]
        if value == value:
            place = kept
            while place > 0 and sorted_keys[place - 1] > value:
                sorted_keys[place] = sorted_keys[place - 1]
                sorted_slots[place] = sorted_slots[place - 1]
                place -= 1
            sorted_keys[place] = value
            sorted_slots[place] = new_slots[i]
            kept += 1
    changed = merge_backwards(key, pointer(slots), count, sorted_keys, sorted_slots, kept)
    finish_run(key, count, count + kept, changed, pointer(index), highest)
    return count + kept


@jit(fallback=numpy_forms.places_sought)
def rising_places(values, sought, after, at, out):
    """Fill out[i] with how many of `values` are below sought[i] (with `after`: not above it), but at least `at`.
    Neither array decreases, so one pass over both suffices: 1 to 2 ns for each value of either."""
    for i in range(len(sought)):
        while at < len(values) and (values[at] < sought[i] or (after and values[at] == sought[i])):
            at += 1
        out[i] = at


@inner
def to_digits(bits, floats, sign):
    """A key's bits as a number whose unsigned order is that of the keys: all bits except the sign of negative floats
    are inverted."""
    if floats and bits < 0:
        bits ^= ~sign
    return bits ^ sign


@inner
def from_digits(digits, floats, sign):
    bits = digits ^ sign
    if floats and bits < 0:
        bits ^= ~sign
    return bits


@inner
def spread(counts, shift, bits, slots, out_bits, out_slots):
    """One pass: copy tuples to the current ends of their digits' buckets; `counts` has the sizes of the buckets."""
    place = 0
    for bucket in range(RADIX_BUCKETS):
        place, counts[bucket] = place + counts[bucket], place
    for i in range(len(bits)):
        bucket = (bits[i] >> shift) & (RADIX_BUCKETS - 1)
        place = counts[bucket]
        counts[bucket] = place + 1
        out_bits[place] = bits[i]
        out_slots[place] = slots[i]


@jit
def radix_sort(bits, slots, floats, sign, out_bits, out_slots, spare_bits, spare_slots):
    """Sort a batch by key, stably. `bits` are the keys viewed as signed integers, `floats` says whether they are
    floats, and `sign` is the least of those integers. The result is in `out_*`; `spare_*` are as long.

    Cost: one pass for each byte in which keys differ; 10 ns a tuple for 32-bit keys, 17 ns for 64-bit keys.
    """
    n, passes = len(bits), bits.itemsize
    counts = np.zeros((passes, RADIX_BUCKETS), np.int64)
    for i in range(n):
        digits = to_digits(bits[i], floats, sign)
        out_bits[i] = digits
        out_slots[i] = slots[i]
        for number in range(passes):
            counts[number, (digits >> (number * RADIX_BITS)) & (RADIX_BUCKETS - 1)] += 1
    here, here_slots, there, there_slots = out_bits, out_slots, spare_bits, spare_slots
    for number in range(passes):
        if counts[number, (here[0] >> (number * RADIX_BITS)) & (RADIX_BUCKETS - 1)] < n:
            spread(counts[number], number * RADIX_BITS, here, here_slots, there, there_slots)
            here, here_slots, there, there_slots = there, there_slots, here, here_slots
    for i in range(n):
        out_bits[i] = from_digits(here[i], floats, sign)
        out_slots[i] = here_slots[i]
