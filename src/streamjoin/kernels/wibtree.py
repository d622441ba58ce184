"""WiB+-Tree: a B+-tree with wide, unsorted leaves (Pan & Jacobsen, section III-C).

A leaf is a list of an LLAT (`kernels/llat.py`), known by its first entry. Beside the LLAT's columns
`entries[leaf]` holds BEFORE, its other neighbour by key, and PURE; `uppers[leaf]` is the greatest key that
belongs to it. Internal nodes have up to FANOUT children; `separators[node]` are the uppers of all but
the last, rising, the rest being the greatest value of the type, so that the child of a key is the number
of separators below it. All leaves are `header[HEIGHT]` steps below `header[ROOT]`.

A leaf that is full is sorted and cut in two between different keys, the parts as equal as can be, if each gets
at least `least` = width / (2 sigma) tuples. If equal keys prevent that, it takes a further entry, up to
three. In a full leaf of three entries that still has no such cut more than two thirds of the keys are the same: it is
cut on both sides of that key, and what remains is *pure*: its keys are all equal, and it takes any number of
entries. A different key that comes to a pure leaf gets a new leaf on its side, at most once a side.

Entries that suffice: let w be the width and let each entry be paid for by `least` = 0.4 w tuples (sigma = 1.25; a
greater `least` / w only helps). Tuples not yet spent of a leaf of n tuples and e entries are at least n - 0.6 w
for e = 1, n - w for e = 2, n - 1.4 w for e = 3, and n - (e - 0.4) w if it is pure. That holds at first, taking
a further entry keeps it (the leaf is full: n = e w, and 0.4 w are spent), and so does a cut: w tuples in parts
of 0.4 w to 0.6 w leave none unspent where none is needed; of 2 w or 3 w the parts need together, with a new
entry, at most the 1 w or 1.6 w there are; making a pure leaf pays for both its sides at once. So n tuples are never
in more than n / (0.4 w) = 2 sigma n / w = 2 P entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from streamjoin.kernels.jit import inner, jit
from streamjoin.kernels.llat import (
    AFTER,
    DONE,
    HEAD,
    LANES,
    LAST,
    LOCKSTEP,
    NEXT,
    NONE,
    PTR_G,
    append,
    gather,
    prefetch,
    scan_group,
    take_entry,
)
from streamjoin.kernels.vector import at_least, bit_count, load, pointer, splat, stack_array, word

BEFORE, PURE = 4, 5  # columns of `entries`
COLUMNS = 8  # half a cache line
ROOT, HEIGHT, NODES, LEAST = 1, 2, 3, 4  # in `header`
FANOUT = 64  # children of a node
MAX_HEIGHT = 8  # nodes have FANOUT // 2 children at least, but for the root
SAMPLE = 32  # keys of a leaf looked at to cut it
GUESSES = 3
DENSE = 4  # rising probes a leaf from which on backtracking beats searching in lock step
MOST_ENTRIES = 3  # of a leaf that is not pure
DEPTH = MAX_HEIGHT  # path[DEPTH, 0]: levels of the path that are known


class Tree(NamedTuple):
    """The arrays of a tree. `bounds` and `path` belong to `find_leaf`; `held_*` have room for a leaf being cut."""

    keys: np.ndarray
    slots: np.ndarray
    entries: np.ndarray
    header: np.ndarray
    width: int
    uppers: np.ndarray
    separators: np.ndarray
    children: np.ndarray
    path: np.ndarray
    bounds: np.ndarray
    held_keys: np.ndarray
    held_slots: np.ndarray


def node_count(entries: int) -> int:
    """Internal nodes that suffice for so many leaves: all but the root have at least FANOUT // 2 children."""
    return entries // (FANOUT // 2 - 1) + MAX_HEIGHT


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
def child_place(separators, node, key):
    """The place of a key's child: the number of separators below it. A NaN gets some place."""
    wanted, not_below = splat(key, LANES), 1
    for i in range(0, FANOUT, LANES):
        not_below += bit_count(word(at_least(load(separators, node * FANOUT + i, LANES), wanted)))
    return min(FANOUT + 1 - not_below, FANOUT - 1)


@inner
def find_leaf(separators, children, header, path, bounds, key):
    """The leaf of `key`, and the path to it; O(log P).

    `path[level]` is a node and the place of its child, `bounds[level + 1]` the keys (low, high] of that
    child; `bounds[0]` those of the root. Backtracks from the path of the call before, as far as needed only.
    """
    level, height = path[DEPTH, 0], header[HEIGHT]
    while level > 0 and not (bounds[level, 0] < key and key <= bounds[level, 1]):
        level -= 1
    node = header[ROOT] if level == 0 else np.int64(children[path[level - 1, 0], path[level - 1, 1]])
    separator = pointer(separators)
    while level < height:
        place = child_place(separator, node, key)
        path[level, 0], path[level, 1] = node, place
        bounds[level + 1, 0] = separator[node * FANOUT + place - 1] if place else bounds[level, 0]
        bounds[level + 1, 1] = min(separator[node * FANOUT + place], bounds[level, 1])
        node = np.int64(children[node, place])
        level += 1
    path[DEPTH, 0] = height
    return node


@inner
def find_leaves(separators, children, header, keys, found):
    """found[i] = the leaf of keys[i], for LOCKSTEP keys that are searched together; O(log P) each."""
    separator = pointer(separators)
    for i in range(LOCKSTEP):
        found[i] = header[ROOT]
    for _ in range(header[HEIGHT]):
        for i in range(LOCKSTEP):
            found[i] = np.int64(children[found[i], child_place(separator, found[i], keys[i])])


@inner
def open_gap(separators, children, node, place, used):
    """Make room for a separator at `place` and a child behind it, in a node of `used` children."""
    for i in range(used - 1, place, -1):
        children[node, i + 1] = children[node, i]
    for i in range(used - 2, place - 1, -1):
        separators[node * FANOUT + i + 1] = separators[node * FANOUT + i]


@inner
def new_node(tree):
    """An internal node without children."""
    node = tree.header[NODES]
    tree.header[NODES] += 1
    tree.separators[node * FANOUT : (node + 1) * FANOUT] = tree.bounds[0, 1]
    tree.children[node, :] = NONE
    return node


@inner
def child_count(children, node):
    used = 0
    for i in range(FANOUT):
        used += np.int64(children[node, i] != NONE)
    return used


@inner
def split_node(tree, node):
    """Move the upper half of a full node to a new one, which is returned; the separator between them is dropped."""
    half = FANOUT // 2
    separators, children = tree.separators, tree.children
    right = new_node(tree)
    for i in range(half):
        children[right, i] = children[node, half + i]
        children[node, half + i] = NONE
    for i in range(half - 1):
        separators[right * FANOUT + i] = separators[node * FANOUT + half + i]
    for i in range(half - 1, FANOUT):
        separators[node * FANOUT + i] = tree.bounds[0, 1]
    return right


@inner
def replace_child(tree, left, separator, right):
    """Put `left`, `separator`, `right` in the place of the child the path leads to; nodes that are full are split.

    The path is unknown afterwards. O(FANOUT) a level.
    """
    header, path, separators, children = tree.header, tree.path, tree.separators, tree.children
    path[DEPTH, 0] = 0
    half = FANOUT // 2
    for level in range(header[HEIGHT] - 1, -1, -1):
        node, place = path[level, 0], path[level, 1]
        children[node, place] = left
        used = child_count(children, node)
        if used < FANOUT:
            open_gap(separators, children, node, place, used)
            separators[node * FANOUT + place], children[node, place + 1] = separator, right
            return
        middle = separators[node * FANOUT + half - 1]
        sibling = split_node(tree, node)
        target = node
        if place >= half:
            target, place = sibling, place - half
        open_gap(separators, children, target, place, half)
        separators[target * FANOUT + place], children[target, place + 1] = separator, right
        left, separator, right = node, middle, sibling
    root = new_node(tree)
    children[root, 0], children[root, 1], separators[root * FANOUT] = left, right, separator
    header[ROOT] = root
    header[HEIGHT] += 1


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
def leaf_with_room(tree, key):
    """The leaf that takes `key`, after the cuts that are due; a further entry, if it needs one, is left to `append`."""
    entries = tree.entries
    while True:
        leaf = find_leaf(tree.separators, tree.children, tree.header, tree.path, tree.bounds, key)
        if entries[leaf, PURE]:
            return leaf if tree.keys[leaf * tree.width] == key else leaf_beside(tree, leaf, key)
        if entries[entries[leaf, LAST], HEAD] < tree.width or not cut_full_leaf(tree, leaf):
            return leaf


@jit
def insert(
    keys, slots, entries, header, width, uppers, separators, children, path, bounds, held_keys, held_slots,
    new_keys, new_slots,
):  # fmt: skip
    """Add tuples, without those whose key is NaN.

    O(log P) each, and O(log w) more for cutting leaves of w tuples.
    """
    tree = Tree(
        keys, slots, entries, header, width, uppers, separators, children, path, bounds, held_keys, held_slots
    )
    stored_key, stored_slot = pointer(keys), pointer(slots)
    key, found = stack_array(new_keys[0], LOCKSTEP), stack_array(np.int64(0), LOCKSTEP)
    n = len(new_keys)
    for begin in range(0, n, LOCKSTEP):
        end = min(begin + LOCKSTEP, n)
        gather(new_keys, begin, end, bounds[0, 0], key)
        find_leaves(separators, children, header, key, found)
        for i in range(end - begin):
            last = np.int64(entries[found[i], LAST])
            place = last * width + entries[last, HEAD]
            prefetch(stored_key, place)
            prefetch(stored_slot, place)
        known = header[PTR_G]
        for i in range(end - begin):
            if new_keys[begin + i] == new_keys[begin + i]:
                leaf = found[i]
                # A leaf found before another one was cut may be the wrong one.
                if (
                    known != header[PTR_G]
                    or entries[entries[leaf, LAST], HEAD] == width
                    or entries[leaf, PURE]
                ):
                    leaf = leaf_with_room(tree, key[i])
                append(keys, slots, entries, header, width, leaf, key[i], new_slots[begin + i])


@inner
def rises(keys):
    """Whether LOCKSTEP keys never fall."""
    falls = 0
    for i in range(1, LOCKSTEP):
        falls += np.int64(keys[i] < keys[i - 1])
    return falls == 0


@jit
def probe(
    keys, slots, entries, header, width, uppers, separators, children, root_bounds,
    lows, highs, starts, stops, cursor, out_probes, out_positions, count,
):  # fmt: skip
    """Append (probe, slot) pairs; the contract is that of `llat.probe_packed`.

    Each leaf is searched from the path of the probe before: quick if probes come in the order of their keys.
    """
    key, slot, out_probe, out_pos = pointer(keys), pointer(slots), pointer(out_probes), pointer(out_positions)
    upper, n, room = pointer(uppers), len(lows), len(out_probes)
    found = stack_array(np.int64(0), LOCKSTEP)
    wanted = stack_array(lows[0], LOCKSTEP)
    path, bounds = np.zeros((DEPTH + 1, 2), np.int64), root_bounds.copy()
    begin = cursor[0]
    while begin < n:
        end = min(begin + LOCKSTEP, n)
        gather(lows, begin, end, root_bounds[0, 0], wanted)
        if n >= DENSE * header[PTR_G] and rises(wanted):
            for i in range(end - begin):
                found[i] = find_leaf(separators, children, header, path, bounds, wanted[i])
        else:
            find_leaves(separators, children, header, wanted, found)
        count = scan_group(
            key, slot, entries, width, upper, found, begin, end,
            lows, highs, starts, stops, cursor, out_probe, out_pos, room, count,
        )  # fmt: skip
        if cursor[2] != NONE:
            return count
        begin = end
    cursor[0] = DONE
    return count


@jit
def leaves(entries, uppers, firsts, ordered_uppers):
    """Fill first entry and upper of each leaf, by key; their number. O(leaves)."""
    leaf, count = 0, 0
    while entries[leaf, BEFORE] != NONE:
        leaf = np.int64(entries[leaf, BEFORE])
    while leaf != NONE:
        firsts[count], ordered_uppers[count] = leaf, uppers[leaf]
        count += 1
        leaf = np.int64(entries[leaf, AFTER])
    return count
