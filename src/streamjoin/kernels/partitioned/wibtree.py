"""WiB+-Tree: a B+-tree with wide, unsorted leaves (Pan & Jacobsen, section III-C).

A leaf is a list of an LLAT (`kernels/partitioned/llat.py`), known by its first entry. Beside the LLAT's columns
`entries[leaf]` holds BEFORE, its other neighbour by key, and PURE; `uppers[leaf]` is the greatest key that
belongs to it. Internal nodes have up to FANOUT children; `separators[node]` are the uppers of all but
the last, rising, the rest being the greatest value of the type, so that the child of a key is the number
of separators below it. All leaves are `header[HEIGHT]` steps below `header[ROOT]`. How leaves are cut stands in
`kernels/partitioned/wibtree_leaves.py`, with a proof that 2P entries suffice.
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.partitioned.llat import (
    AFTER,
    DONE,
    HEAD,
    LAST,
    LOCKSTEP,
    NONE,
    PTR_G,
    append,
    gather,
    scan_group,
)
from streamjoin.kernels.partitioned.wibtree_leaves import BEFORE, leaf_with_room, takes_at_once
from streamjoin.kernels.partitioned.wibtree_nodes import CHANGES, DEPTH, HEIGHT, Tree, find_leaf, find_leaves
from streamjoin.kernels.scan.vector import pointer, prefetch, stack_array

DENSE = 16  # rising probes a leaf from which on backtracking beats searching in lock step: 0.9 of the time
COLUMNS = 8  # of `entries`: half a cache line


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
        changes = header[CHANGES]
        for i in range(end - begin):
            if new_keys[begin + i] == new_keys[begin + i]:
                leaf = found[i]
                # A leaf found before another one was cut may be the wrong one.
                if changes != header[CHANGES] or not takes_at_once(tree, leaf, key[i]):
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

    Leaves are searched in lock step, or from the path of the probe before where many probes rise.
    """
    key, slot, out_probe, out_pos = pointer(keys), pointer(slots), pointer(out_probes), pointer(out_positions)
    upper, n, room = pointer(uppers), len(lows), len(out_probes)
    found = stack_array(np.int64(0), LOCKSTEP)
    wanted = stack_array(lows[0], LOCKSTEP)
    path, bounds = np.zeros((DEPTH + 1, 2), np.int64), root_bounds.copy()
    leaf, leaf_low, leaf_high = 0, bounds[0, 1], bounds[0, 1]
    begin = cursor[0]
    while begin < n:
        end = min(begin + LOCKSTEP, n)
        gather(lows, begin, end, root_bounds[0, 0], wanted)
        if n >= DENSE * header[PTR_G] and rises(wanted):
            for i in range(end - begin):
                if not (leaf_low < wanted[i] and wanted[i] <= leaf_high):
                    leaf = find_leaf(separators, children, header, path, bounds, wanted[i])
                    leaf_low, leaf_high = bounds[header[HEIGHT], 0], bounds[header[HEIGHT], 1]
                found[i] = leaf
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
