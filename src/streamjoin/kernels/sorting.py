"""Sorted runs of (key, slot): sort a batch, merge it in place, sample the index (Pan & Jacobsen, section III-D).

A run is `keys` and `slots`, sorted by key from place 0 to `count`, in arrays with room for PAD more; from
`count` on, PAD keys are the greatest of their type, so that whole vectors can be read anywhere in the run. Its
`index` samples the last key of every FANOUT keys, then the last of every FANOUT samples, and so
on: a tree without pointers, whose node is one cache line of 32-bit keys. Keys are never NaN.
"""

from __future__ import annotations

import numpy as np

from streamjoin.kernels.jit import inner, jit
from streamjoin.kernels.vector import at_most, bit_count, load, pointer, splat, stack_array, store, word

FANOUT = 16  # keys of a node
PAD = 16
MAX_LEVELS = 9  # FANOUT ** 8 is beyond 2**31
DIGIT = 8  # bits that one pass of the radix sort handles
BUCKETS = 1 << DIGIT
SHORT = 48  # tuples below which insertion sort wins: 0.4 of the radix sort's time at 16, the same at 48


def index_size(capacity: int) -> int:
    """Places in the index of a run of up to `capacity` keys."""
    total, size = 0, capacity
    while size > FANOUT:
        size = -(-size // FANOUT)
        total += -(-size // FANOUT) * FANOUT
    return total


@inner
def level_sizes(count, sizes, offsets):
    """Fill the number of keys of each level and its place in the index; the highest level. Level 0 is the run."""
    top, at = 0, 0
    sizes[0] = count
    offsets[0] = 0
    while sizes[top] > FANOUT:
        sizes[top + 1] = (sizes[top] + FANOUT - 1) // FANOUT
        offsets[top + 1] = at
        at += (sizes[top + 1] + FANOUT - 1) // FANOUT * FANOUT
        top += 1
    return top


@inner
def pad(keys, count, highest):
    for i in range(count, count + PAD):
        keys[i] = highest


@inner
def sample(keys, count, changed, highest, index):
    """Renew the index of a run whose keys before `changed` are the old ones, as long as it had as many levels."""
    sizes, offsets = stack_array(np.int64(0), MAX_LEVELS), stack_array(np.int64(0), MAX_LEVELS)
    top = level_sizes(count, sizes, offsets)
    for level in range(1, top + 1):
        at, below = offsets[level], offsets[level - 1]
        size, last = sizes[level], sizes[level - 1] - 1
        for i in range(changed // FANOUT if level == 1 else 0, size):
            place = min(i * FANOUT + FANOUT - 1, last)
            index[at + i] = keys[place] if level == 1 else index[below + place]
        for i in range(size, (size + FANOUT - 1) // FANOUT * FANOUT):
            index[at + i] = highest


@jit
def merge(keys, slots, count, new_keys, new_slots, new_count, highest, index):
    """Merge a sorted run into another in place, new tuples after old ones of the same key; the new count.

    Works backwards: tuples move up by the number of new ones still to come, 16 at a time, and the comparison
    that finds where a new one goes rides on the move. Cost: O(tuples from the lowest new one on).
    """
    key, slot, new_key, new_slot = pointer(keys), pointer(slots), pointer(new_keys), pointer(new_slots)
    hi, left = count, new_count
    while left > 0 and hi >= 16:
        value = new_key[left - 1]
        values = splat(value, 16)
        while hi >= 16:
            moved, moved_slots = load(key, hi - 16, 16), load(slot, hi - 16, 16)
            above = 16 - bit_count(word(at_most(moved, values)))
            # What a whole vector writes too much is overwritten later, unless it hits tuples not yet moved.
            if above == 16 or left >= 16:
                store(moved, key, hi - 16 + left)
                store(moved_slots, slot, hi - 16 + left)
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
    pad(key, count + new_count, highest)
    sample(key, count + new_count, 0, highest, pointer(index))
    return count + new_count


@inner
def insertion_sort(bits, slots, out_bits, out_slots):
    for i in range(len(bits)):
        value, place = bits[i], i
        while place > 0 and out_bits[place - 1] > value:
            out_bits[place] = out_bits[place - 1]
            out_slots[place] = out_slots[place - 1]
            place -= 1
        out_bits[place] = value
        out_slots[place] = slots[i]


@inner
def flip(value, floats, sign):
    """Integer bits of a key as a number that sorts, unsigned, as the key does; floats have all but the sign inverted
    where they are negative. It is its own inverse up to the order of its two steps, see `unflip`."""
    if floats and value < 0:
        value ^= ~sign
    return value ^ sign


@inner
def unflip(value, floats, sign):
    value ^= sign
    if floats and value < 0:
        value ^= ~sign
    return value


@jit
def radix_sort(bits, slots, floats, sign, passes, out_bits, out_slots, spare_bits, spare_slots):
    """Sort a batch by key, stably: `bits` are the keys viewed as signed integers, `floats` says that they are floats.

    `sign` is the least integer of their type, `passes` its bytes. Digits that all keys share cost nothing. The
    result is in `out_*`; `spare_*` are as long.
    """
    n = len(bits)
    counts = np.zeros((passes, BUCKETS), np.int64)
    for i in range(n):
        value = flip(bits[i], floats, sign)
        out_bits[i] = value
        for digit in range(passes):
            counts[digit, (value >> (digit * DIGIT)) & (BUCKETS - 1)] += 1
    out_slots[:n] = slots
    here, here_slots, there, there_slots = out_bits, out_slots, spare_bits, spare_slots
    for digit in range(passes):
        shift = digit * DIGIT
        if counts[digit, (here[0] >> shift) & (BUCKETS - 1)] == n:
            continue
        place = 0
        for bucket in range(BUCKETS):
            place, counts[digit, bucket] = place + counts[digit, bucket], place
        for i in range(n):
            bucket = (here[i] >> shift) & (BUCKETS - 1)
            at = counts[digit, bucket]
            counts[digit, bucket] = at + 1
            there[at] = here[i]
            there_slots[at] = here_slots[i]
        here, here_slots, there, there_slots = there, there_slots, here, here_slots
    for i in range(n):
        out_bits[i] = unflip(here[i], floats, sign)
        out_slots[i] = here_slots[i]
