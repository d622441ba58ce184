"""Leaves of a WiB+-Tree: how they are filled and cut (Pan & Jacobsen, section III-C).

`kernels/partitioned/wibtree.py` describes the arrays.

A full leaf is cut in two between different keys, if each part gets at least `least` = width / (2 sigma) tuples. The
cut is at the middle key of a sample or near it; if that fails, the leaf is sorted and cut as near the middle as
possible. (Sorting for every cut, as in the paper, makes the insertion of random keys take 1.7 times as long.) If
equal keys prevent a cut, the leaf takes a further entry, up to three. In a full leaf of three entries without such a
cut, more than two thirds of the keys are equal. It is cut on both sides of that key, and the rest is *pure*: all its
keys are equal, and it takes any number of entries. If a different key arrives at a pure leaf, it gets a new leaf on
its side; this happens at most once a side.

Why 2 P entries suffice: let w be the width, and let `least` = 0.4 w tuples pay for each entry (sigma = 1.25; a
greater `least` / w only helps). A leaf of n tuples and e entries then has at least n - 0.6 w unspent tuples for e =
1, n - w for e = 2, n - 1.4 w for e = 3, and n - (e - 0.4) w if it is pure. This holds at first. Taking a further
entry keeps it: the leaf is full, n = e w, and 0.4 w are spent. A cut keeps it too: w tuples in parts of 0.4 w to 0.6
w leave none unspent where none is needed; parts of 2 w or 3 w need together, with a new entry, at most the 1 w or 1.6
w that exist; and making a pure leaf pays for both its sides at once. So n tuples are never in more than n / (0.4 w) =
2 sigma n / w = 2 P entries.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from streamjoin.jit.decorator import inner
from streamjoin.kernels.partitioned.llat import (
    ENTRY_AFTER,
    ENTRY_COUNT,
    ENTRY_LAST,
    ENTRY_NEXT,
    NO_ENTRY,
    take_entry,
)
from streamjoin.kernels.partitioned.wibtree_nodes import find_leaf, replace_child
from streamjoin.kernels.scan.vector import stack_array

ENTRY_BEFORE, ENTRY_PURE = 4, 5  # columns of `entries`
LEAST_PART = 4  # a word of `header`
CUT_SAMPLE = 32  # sample this many keys of a leaf to find a cut
GUESSES = 3
MOST_ENTRIES = 3  # a leaf that is not pure has at most this many entries


def just_below(key):
    """The greatest value of the type that is less than `key`."""
    return key - 1 if isinstance(key, np.integer) else np.nextafter(key, type(key)(-np.inf))


@overload(just_below)
def _just_below(key):
    if isinstance(key, types.Integer):
        kind = np.int32 if key == types.int32 else np.int64
        return lambda key: kind(key - 1)
    if key == types.float32:
        return lambda key: np.nextafter(key, np.float32(-np.inf))
    return lambda key: np.nextafter(key, -np.inf)


@inner
def begin_leaf(entries, leaf):
    entries[leaf, ENTRY_COUNT], entries[leaf, ENTRY_NEXT] = 0, NO_ENTRY
    entries[leaf, ENTRY_LAST], entries[leaf, ENTRY_PURE] = leaf, 0


@inner
def new_leaf(tree):
    """A new leaf without tuples or neighbours."""
    leaf = take_entry(tree.entries, tree.header)
    begin_leaf(tree.entries, leaf)
    return leaf


@inner
def link_leaf(entries, before, leaf, after):
    """Link a leaf between two neighbours, either of which may be NO_ENTRY."""
    entries[leaf, ENTRY_BEFORE], entries[leaf, ENTRY_AFTER] = before, after
    if before != NO_ENTRY:
        entries[before, ENTRY_AFTER] = leaf
    if after != NO_ENTRY:
        entries[after, ENTRY_BEFORE] = leaf


@inner
def hold_leaf(tree, leaf):
    """Copy the tuples of a leaf out; return their number."""
    count, entry = 0, leaf
    while entry != NO_ENTRY:
        begin = entry * tree.width
        for i in range(np.int64(tree.entries[entry, ENTRY_COUNT])):
            tree.held_keys[count + i] = tree.keys[begin + i]
            tree.held_slots[count + i] = tree.slots[begin + i]
        count += np.int64(tree.entries[entry, ENTRY_COUNT])
        entry = np.int64(tree.entries[entry, ENTRY_NEXT])
    return count


@inner
def refill(tree, leaf, spare, count, cut, upper_part):
    """Write the held tuples of one part of a cut into an empty leaf, taking further entries from `spare` first.

    The part is the keys above `cut`, or those up to it. Returns the remaining spare entries.
    """
    entries, width = tree.entries, tree.width
    entry, head = leaf, 0
    for i in range(count):
        if (tree.held_keys[i] > cut) == upper_part:
            if head == width:
                further = spare
                if spare != NO_ENTRY:
                    spare = np.int64(entries[spare, ENTRY_NEXT])
                    entries[further, ENTRY_NEXT] = NO_ENTRY
                else:
                    further = take_entry(entries, tree.header)
                entries[entry, ENTRY_COUNT], entries[entry, ENTRY_NEXT] = width, further
                entry, head = further, 0
            tree.keys[entry * width + head] = tree.held_keys[i]
            tree.slots[entry * width + head] = tree.held_slots[i]
            head += 1
    entries[entry, ENTRY_COUNT] = head
    entries[leaf, ENTRY_LAST] = entry
    return spare


@inner
def move_from_entry(tree, leaf, cut):
    """Move the tuples above `cut` from a leaf of one entry to a new leaf, without branches that depend on keys."""
    keys, slots, right = tree.keys, tree.slots, new_leaf(tree)
    begin, to = leaf * tree.width, right * tree.width
    stay, move = 0, 0
    for i in range(begin, begin + np.int64(tree.entries[leaf, ENTRY_COUNT])):
        key, slot = keys[i], slots[i]
        keys[begin + stay] = key
        slots[begin + stay] = slot
        keys[to + move] = key
        slots[to + move] = slot
        above = np.int64(key > cut)
        stay += 1 - above
        move += above
    tree.entries[leaf, ENTRY_COUNT], tree.entries[right, ENTRY_COUNT] = stay, move
    return right


@inner
def move_from_list(tree, leaf, cut):
    """As `move_from_entry`, for a leaf of any number of entries, all of which are reused."""
    entries = tree.entries
    count = hold_leaf(tree, leaf)
    spare = np.int64(entries[leaf, ENTRY_NEXT])
    begin_leaf(entries, leaf)
    spare = refill(tree, leaf, spare, count, cut, False)
    right = spare
    if spare != NO_ENTRY:
        spare = np.int64(entries[spare, ENTRY_NEXT])
        begin_leaf(entries, right)
    else:
        right = new_leaf(tree)
    refill(tree, right, spare, count, cut, True)
    return right


@inner
def cut_leaf(tree, leaf, cut):
    """Move the tuples above `cut` to a new leaf and return it. The path must lead to `leaf`, and is invalid
    afterwards."""
    if tree.entries[leaf, ENTRY_NEXT] == NO_ENTRY:
        right = move_from_entry(tree, leaf, cut)
    else:
        right = move_from_list(tree, leaf, cut)
    link_leaf(tree.entries, leaf, right, np.int64(tree.entries[leaf, ENTRY_AFTER]))
    tree.uppers[right], tree.uppers[leaf] = tree.uppers[leaf], cut
    replace_child(tree, leaf, cut, right)
    return right


@inner
def insertion_sort(values, begin, count, step):
    """Sort values[begin], values[begin + step], ... in place."""
    for i in range(begin + step, count, step):
        value, place = values[i], i
        while place >= begin + step and values[place - step] > value:
            values[place] = values[place - step]
            place -= step
        values[place] = value


@inner
def shell_sort(values, count):
    """Sort in place. Leaves have a few hundred keys, and few leaves need this."""
    step = 1
    while step < count // 3:
        step = 3 * step + 1
    while step > 0:
        for begin in range(step):
            insertion_sort(values, begin, count, step)
        step //= 3


@inner
def sampled_cut(tree, leaf):
    """A key that cuts a full leaf of one entry into parts that are large enough, from a sample of its keys.

    The second element says whether it does. O(w).
    """
    keys, width, least = tree.keys, tree.width, tree.header[LEAST_PART]
    begin, rank = leaf * width, CUT_SAMPLE // 2 - 1
    sample = stack_array(keys[0], CUT_SAMPLE)
    for i in range(CUT_SAMPLE):
        sample[i] = keys[begin + i * width // CUT_SAMPLE]
    insertion_sort(sample, 0, CUT_SAMPLE, 1)
    for _ in range(GUESSES):
        cut, stay = sample[rank], 0
        for i in range(begin, begin + width):
            stay += np.int32(keys[i] <= cut)
        if least <= stay and stay <= width - least:
            return cut, True
        rank = min(max(rank + CUT_SAMPLE // 2 - stay * CUT_SAMPLE // width, 0), CUT_SAMPLE - 1)
    return sample[0], False


@inner
def middle_cut(ordered, count, least):
    """Where to cut sorted keys: the place nearest the middle between different keys, or -1 if a part would be too
    small."""
    for distance in range(count // 2 - least + 2):
        for place in (count // 2 - distance, count // 2 + distance):
            if least <= place and place <= count - least and ordered[place - 1] < ordered[place]:
                return place
    return -1


@inner
def cut_full_leaf(tree, leaf):
    """Cut a full leaf that is not pure, if its keys allow it; return whether it was cut. The path must lead to the
    leaf. O(w), at worst O(w log w)."""
    ordered, single, pure = tree.held_keys, tree.entries[leaf, ENTRY_NEXT] == NO_ENTRY, False
    cut, known = ordered[0], False
    if single and tree.width >= CUT_SAMPLE:
        cut, known = sampled_cut(tree, leaf)
    lowest = common = highest = cut
    if not known:
        count = hold_leaf(tree, leaf)
        shell_sort(ordered, count)
        place = middle_cut(ordered, count, tree.header[LEAST_PART])
        if place < 0 and count < MOST_ENTRIES * tree.width:
            return False
        pure = place < 0
        cut = ordered[max(place - 1, 0)]
        lowest, common, highest = ordered[0], ordered[count // 2], ordered[count - 1]
    for above in range(2):
        if pure:
            cut = common if above else just_below(common)
        if (common < highest if above else lowest < common) if pure else above == 0:
            find_leaf(tree.separators, tree.children, tree.header, tree.path, tree.bounds, common)
            right = cut_leaf(tree, leaf, cut)
            if pure and above == 0:
                leaf = right
    tree.entries[leaf, ENTRY_PURE] = np.int64(pure)
    return True


@inner
def leaf_beside(tree, leaf, key):
    """A new leaf for the keys on the side of a pure leaf where `key` is. The path must lead to the pure leaf."""
    entries, uppers, common = tree.entries, tree.uppers, tree.keys[leaf * tree.width]
    side = new_leaf(tree)
    if common < key:
        link_leaf(entries, leaf, side, np.int64(entries[leaf, ENTRY_AFTER]))
        uppers[side], uppers[leaf] = uppers[leaf], common
        left, right = leaf, side
    else:
        link_leaf(entries, np.int64(entries[leaf, ENTRY_BEFORE]), side, leaf)
        uppers[side] = just_below(common)
        left, right = side, leaf
    replace_child(tree, left, uppers[left], right)
    return side


@inner
def takes_at_once(tree, leaf, key):
    """Whether a tuple can be appended to its leaf with no other changes."""
    if tree.entries[leaf, ENTRY_PURE]:
        return tree.keys[leaf * tree.width] == key
    return tree.entries[tree.entries[leaf, ENTRY_LAST], ENTRY_COUNT] < tree.width


@inner
def leaf_with_room(tree, key):
    """The leaf that takes `key`, after cuts that are due. If it needs a further entry, `append` takes it."""
    entries = tree.entries
    while True:
        leaf = find_leaf(tree.separators, tree.children, tree.header, tree.path, tree.bounds, key)
        if entries[leaf, ENTRY_PURE]:
            return leaf if tree.keys[leaf * tree.width] == key else leaf_beside(tree, leaf, key)
        if entries[entries[leaf, ENTRY_LAST], ENTRY_COUNT] < tree.width or not cut_full_leaf(tree, leaf):
            return leaf
