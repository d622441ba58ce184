"""Expands index records, <first, last> in an array of slots sorted by key, to the pairs they stand for (Pan &
Jacobsen, section III-D)."""

import numpy as np

from streamjoin.jit.decorator import inner, jit


@inner
def copy_range(slots, begin, end, value, by_slot, of_probe, of_slot, filled):
    """Write a pair for each place from `begin` to `end`; return the new number of pairs."""
    for place in range(np.uint64(begin), np.uint64(end)):
        at = np.uint64(filled) + place - np.uint64(begin)
        of_probe[at] = value
        of_slot[at] = by_slot[np.uint64(slots[place])]
    return filled + end - begin


@jit
def expand(firsts, lasts, asking, outside, slots, by_probe, by_slot, of_probe, of_slot):
    """Fill of_probe and of_slot with by_probe[asking[i]] and by_slot[slot] for every record i and every slot that it
    covers: those at places firsts[i] to lasts[i] - 1, or all others if `outside`. Return the number of pairs.

    The caller provides room for all of them. O(records + pairs).
    """
    filled = np.int64(0)
    for i in range(len(firsts)):
        value, first, last = by_probe[asking[i]], np.int64(firsts[i]), np.int64(lasts[i])
        if outside:
            filled = copy_range(slots, np.int64(0), first, value, by_slot, of_probe, of_slot, filled)
            filled = copy_range(slots, last, np.int64(len(slots)), value, by_slot, of_probe, of_slot, filled)
        else:
            filled = copy_range(slots, first, last, value, by_slot, of_probe, of_slot, filled)
    return filled
