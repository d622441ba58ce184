"""WiB+-Tree: a B+-tree with wide, unsorted leaves (Pan & Jacobsen, section III-C).

A leaf is a list of an LLAT (`kernels/partitioned/llat.py`), identified by its first entry. In addition to the LLAT's
columns, `entries[leaf]` holds ENTRY_BEFORE, the other neighbour by key, and PURE; `uppers[leaf]` is the greatest key
that belongs to the leaf. Internal nodes have up to FANOUT children. `separators[node]` holds the ascending uppers of
all children but the last, followed by the greatest value of the type, so the place of a key's child is the number of
separators below the key. All leaves are `header[TREE_HEIGHT]` steps below `header[ROOT]`.
`kernels/partitioned/wibtree_leaves.py` describes how leaves are cut, with a proof that 2P entries suffice.
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.cursor import DONE
from streamjoin.kernels.partitioned.llat import (
    ENTRY_AFTER,
    ENTRY_COUNT,
    ENTRY_LAST,
    LOCKSTEP,
    NEXT_UNUSED,
    NO_ENTRY,
    append_tuple,
    gather_keys,
    scan_group,
)
from streamjoin.kernels.partitioned.wibtree_leaves import ENTRY_BEFORE, leaf_with_room, takes_at_once
from streamjoin.kernels.partitioned.wibtree_nodes import (
    PATH_DEPTH,
    TREE_CHANGES,
    TREE_HEIGHT,
    Tree,
    find_leaf,
    find_leaves,
)
from streamjoin.kernels.scan.vector import pointer, prefetch, stack_array

# From this many ascending probes a leaf on, backtracking is faster than searching in lock step: 0.9 of the time.
DENSE_PROBES = 16
ENTRY_COLUMNS = 8  # columns of `entries`: half a cache line


@jit
def insert_in_tree(
    keys, slots, entries, header, width, uppers, separators, children, path, bounds, held_keys, held_slots,
    new_keys, new_slots,
):  # fmt: skip
    """Add tuples, except those whose key is NaN.

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
        gather_keys(new_keys, begin, end, bounds[0, 0], key)
        find_leaves(separators, children, header, key, found)
        for i in range(end - begin):
            last = np.int64(entries[found[i], ENTRY_LAST])
            place = last * width + entries[last, ENTRY_COUNT]
            prefetch(stored_key, place)
            prefetch(stored_slot, place)
        changes = header[TREE_CHANGES]
        for i in range(end - begin):
            if new_keys[begin + i] == new_keys[begin + i]:
                leaf = found[i]
                # A leaf that was found before another leaf was cut may be the wrong one.
                if changes != header[TREE_CHANGES] or not takes_at_once(tree, leaf, key[i]):
                    leaf = leaf_with_room(tree, key[i])
                append_tuple(keys, slots, entries, header, width, leaf, key[i], new_slots[begin + i])


@inner
def lockstep_rises(keys):
    """Whether LOCKSTEP keys never decrease."""
    falls = 0
    for i in range(1, LOCKSTEP):
        falls += np.int64(keys[i] < keys[i - 1])
    return falls == 0


@jit
def probe_tree(
    keys, slots, entries, header, width, uppers, separators, children, root_bounds,
    lows, highs, starts, stops, cursor, out_probes, out_positions, count,
):  # fmt: skip
    """Append (probe, slot) pairs; the contract is that of `llat.probe_packed`.

    Searches leaves in lock step, or from the path of the last probe if many probes ascend.
    """
    key, slot, out_probe, out_pos = pointer(keys), pointer(slots), pointer(out_probes), pointer(out_positions)
    upper, n, room = pointer(uppers), len(lows), len(out_probes)
    found = stack_array(np.int64(0), LOCKSTEP)
    wanted = stack_array(lows[0], LOCKSTEP)
    path, bounds = np.zeros((PATH_DEPTH + 1, 2), np.int64), root_bounds.copy()
    leaf, leaf_low, leaf_high = 0, bounds[0, 1], bounds[0, 1]
    begin = cursor[0]
    while begin < n:
        end = min(begin + LOCKSTEP, n)
        gather_keys(lows, begin, end, root_bounds[0, 0], wanted)
        if n >= DENSE_PROBES * header[NEXT_UNUSED] and lockstep_rises(wanted):
            for i in range(end - begin):
                if not (leaf_low < wanted[i] and wanted[i] <= leaf_high):
                    leaf = find_leaf(separators, children, header, path, bounds, wanted[i])
                    leaf_low, leaf_high = bounds[header[TREE_HEIGHT], 0], bounds[header[TREE_HEIGHT], 1]
                found[i] = leaf
        else:
            find_leaves(separators, children, header, wanted, found)
        count = scan_group(
            key, slot, entries, width, upper, found, begin, end,
            lows, highs, starts, stops, cursor, out_probe, out_pos, room, count,
        )  # fmt: skip
        if cursor[2] != NO_ENTRY:
            return count
        begin = end
    cursor[0] = DONE
    return count


@jit
def leaves(entries, uppers, firsts, ordered_uppers):
    """Fill in the first entry and the upper bound of each leaf, by key; return the number of leaves. O(leaves)."""
    leaf, count = 0, 0
    while entries[leaf, ENTRY_BEFORE] != NO_ENTRY:
        leaf = np.int64(entries[leaf, ENTRY_BEFORE])
    while leaf != NO_ENTRY:
        firsts[count], ordered_uppers[count] = leaf, uppers[leaf]
        count += 1
        leaf = np.int64(entries[leaf, ENTRY_AFTER])
    return count
