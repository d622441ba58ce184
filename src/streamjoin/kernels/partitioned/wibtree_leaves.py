"""Leaves of a WiB+-Tree: how they are filled and cut (Pan & Jacobsen, section III-C).

The arrays are described in `kernels/partitioned/wibtree.py`.

A leaf that is full is cut in two between different keys, if each part gets at least `least` = width / (2 sigma)
tuples: at the middle key of a sample or near it, and if that fails, the leaf is sorted and cut as near the
middle as can be. (Sorting for every cut, as in the paper, makes the insertion of random keys take 1.7 times as
long.) If equal keys prevent a cut, the leaf takes a further entry, up to three. In a full leaf of three entries that
still has no such cut more than two thirds of the keys are the same: it is cut on both sides of that key, and
what remains is *pure*: its keys are all equal, and it takes any number of entries. A different key that comes to
a pure leaf gets a new leaf on its side, at most once a side.

Entries that suffice: let w be the width and let each entry be paid for by `least` = 0.4 w tuples (sigma = 1.25; a
greater `least` / w only helps). Tuples not yet spent of a leaf of n tuples and e entries are at least n - 0.6 w
for e = 1, n - w for e = 2, n - 1.4 w for e = 3, and n - (e - 0.4) w if it is pure. That holds at first, taking
a further entry keeps it (the leaf is full: n = e w, and 0.4 w are spent), and so does a cut: w tuples in parts
of 0.4 w to 0.6 w leave none unspent where none is needed; of 2 w or 3 w the parts need together, with a new
entry, at most the 1 w or 1.6 w there are; making a pure leaf pays for both its sides at once. So n tuples are never
in more than n / (0.4 w) = 2 sigma n / w = 2 P entries.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from streamjoin.jit.decorator import inner
from streamjoin.kernels.partitioned.llat import AFTER, HEAD, LAST, NEXT, NONE, take_entry
from streamjoin.kernels.partitioned.wibtree_nodes import find_leaf, replace_child
from streamjoin.kernels.scan.vector import stack_array

BEFORE, PURE = 4, 5  # columns of `entries`
LEAST = 4  # in `header`
SAMPLE = 32  # keys of a leaf looked at to cut it
GUESSES = 3
MOST_ENTRIES = 3  # of a leaf that is not pure


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
    entries[leaf, HEAD], entries[leaf, NEXT], entries[leaf, LAST], entries[leaf, PURE] = 0, NONE, leaf, 0


@inner
def new_leaf(tree):
    """A leaf without tuples or neighbours."""
    leaf = take_entry(tree.entries, tree.header)
    begin_leaf(tree.entries, leaf)
    return leaf


@inner
def link(entries, before, leaf, after):
    """Put a leaf between two neighbours, either of which may be NONE."""
    entries[leaf, BEFORE], entries[leaf, AFTER] = before, after
    if before != NONE:
        entries[before, AFTER] = leaf
    if after != NONE:
        entries[after, BEFORE] = leaf


@inner
def hold_leaf(tree, leaf):
    """Copy a leaf's tuples out; their number."""
    count, entry = 0, leaf
    while entry != NONE:
        begin = entry * tree.width
        for i in range(np.int64(tree.entries[entry, HEAD])):
            tree.held_keys[count + i] = tree.keys[begin + i]
            tree.held_slots[count + i] = tree.slots[begin + i]
        count += np.int64(tree.entries[entry, HEAD])
        entry = np.int64(tree.entries[entry, NEXT])
    return count


@inner
def refill(tree, leaf, spare, count, cut, upper_part):
    """Write the held tuples of one part of a cut into an empty leaf, taking further entries from `spare` first.

    The part is the keys above `cut`, or those up to it. Returns the spare entries left.
    """
    entries, width = tree.entries, tree.width
    entry, head = leaf, 0
    for i in range(count):
        if (tree.held_keys[i] > cut) == upper_part:
            if head == width:
                further = spare
                if spare != NONE:
                    spare = np.int64(entries[spare, NEXT])
                    entries[further, NEXT] = NONE
                else:
                    further = take_entry(entries, tree.header)
                entries[entry, HEAD], entries[entry, NEXT] = width, further
                entry, head = further, 0
            tree.keys[entry * width + head] = tree.held_keys[i]
            tree.slots[entry * width + head] = tree.held_slots[i]
            head += 1
    entries[entry, HEAD] = head
    entries[leaf, LAST] = entry
    return spare


@inner
def move_from_entry(tree, leaf, cut):
    """Move the tuples above `cut` from a leaf of one entry to a new leaf, without branches that depend on keys."""
    keys, slots, right = tree.keys, tree.slots, new_leaf(tree)
    begin, to = leaf * tree.width, right * tree.width
    stay, move = 0, 0
    for i in range(begin, begin + np.int64(tree.entries[leaf, HEAD])):
        key, slot = keys[i], slots[i]
        keys[begin + stay] = key
        slots[begin + stay] = slot
        keys[to + move] = key
        slots[to + move] = slot
        above = np.int64(key > cut)
        stay += 1 - above
        move += above
    tree.entries[leaf, HEAD], tree.entries[right, HEAD] = stay, move
    return right


@inner
def move_from_list(tree, leaf, cut):
    """As `move_from_entry`, for a leaf of any number of entries, all of which are used again."""
    entries = tree.entries
    count = hold_leaf(tree, leaf)
    spare = np.int64(entries[leaf, NEXT])
    begin_leaf(entries, leaf)
    spare = refill(tree, leaf, spare, count, cut, False)
    right = spare
    if spare != NONE:
        spare = np.int64(entries[spare, NEXT])
        begin_leaf(entries, right)
    else:
        right = new_leaf(tree)
    refill(tree, right, spare, count, cut, True)
    return right


@inner
def cut_leaf(tree, leaf, cut):
    """Give the tuples above `cut` to a new leaf, which is returned. The path leads to `leaf`; unknown afterwards."""
    if tree.entries[leaf, NEXT] == NONE:
        right = move_from_entry(tree, leaf, cut)
    else:
        right = move_from_list(tree, leaf, cut)
    link(tree.entries, leaf, right, np.int64(tree.entries[leaf, AFTER]))
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
    """Sort in place. Leaves are a few hundred keys, and few of them need this."""
    step = 1
    while step < count // 3:
        step = 3 * step + 1
    while step > 0:
        for begin in range(step):
            insertion_sort(values, begin, count, step)
        step //= 3


@inner
def sampled_cut(tree, leaf):
    """A key that cuts a full leaf of one entry in parts that are large enough, from a sample of its keys.

    Second element: whether it does. O(w).
    """
    keys, width, least = tree.keys, tree.width, tree.header[LEAST]
    begin, rank = leaf * width, SAMPLE // 2 - 1
    sample = stack_array(keys[0], SAMPLE)
    for i in range(SAMPLE):
        sample[i] = keys[begin + i * width // SAMPLE]
    insertion_sort(sample, 0, SAMPLE, 1)
    for _ in range(GUESSES):
        cut, stay = sample[rank], 0
        for i in range(begin, begin + width):
            stay += np.int32(keys[i] <= cut)
        if least <= stay and stay <= width - least:
            return cut, True
        rank = min(max(rank + SAMPLE // 2 - stay * SAMPLE // width, 0), SAMPLE - 1)
    return sample[0], False


@inner
def middle_cut(ordered, count, least):
    """Where to cut sorted keys: the place nearest the middle between different keys, or -1 if a part gets too few."""
    for distance in range(count // 2 - least + 2):
        for place in (count // 2 - distance, count // 2 + distance):
            if least <= place and place <= count - least and ordered[place - 1] < ordered[place]:
                return place
    return -1


@inner
def cut_full_leaf(tree, leaf):
    """Cut a full leaf that is not pure, to which the path leads, if its keys allow; whether. O(w), at worst w log w."""
    ordered, single, pure = tree.held_keys, tree.entries[leaf, NEXT] == NONE, False
    cut, known = ordered[0], False
    if single and tree.width >= SAMPLE:
        cut, known = sampled_cut(tree, leaf)
    lowest = common = highest = cut
    if not known:
        count = hold_leaf(tree, leaf)
        shell_sort(ordered, count)
        place = middle_cut(ordered, count, tree.header[LEAST])
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
    tree.entries[leaf, PURE] = np.int64(pure)
    return True


@inner
def leaf_beside(tree, leaf, key):
    """A new leaf for the keys on the side of a pure leaf where `key` is; the path must lead to the pure leaf."""
    entries, uppers, common = tree.entries, tree.uppers, tree.keys[leaf * tree.width]
    side = new_leaf(tree)
    if common < key:
        link(entries, leaf, side, np.int64(entries[leaf, AFTER]))
        uppers[side], uppers[leaf] = uppers[leaf], common
        left, right = leaf, side
    else:
        link(entries, np.int64(entries[leaf, BEFORE]), side, leaf)
        uppers[side] = just_below(common)
        left, right = side, leaf
    replace_child(tree, left, uppers[left], right)
    return side


@inner
def takes_at_once(tree, leaf, key):
    """Whether a tuple can be appended to its leaf with nothing else to do."""
    if tree.entries[leaf, PURE]:
        return tree.keys[leaf * tree.width] == key
    return tree.entries[tree.entries[leaf, LAST], HEAD] < tree.width


@inner
def leaf_with_room(tree, key):
    """The leaf that takes `key`, after the cuts that are due; a further entry, if it needs one, is left to `append`."""
    entries = tree.entries
    while True:
        leaf = find_leaf(tree.separators, tree.children, tree.header, tree.path, tree.bounds, key)
        if entries[leaf, PURE]:
            return leaf if tree.keys[leaf * tree.width] == key else leaf_beside(tree, leaf, key)
        if entries[entries[leaf, LAST], HEAD] < tree.width or not cut_full_leaf(tree, leaf):
            return leaf
