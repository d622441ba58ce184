"""Internal nodes of a WiB+-Tree: small, sorted, without duplicates (Pan & Jacobsen, section III-C).

The arrays are described in `kernels/partitioned/wibtree.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamjoin.jit.decorator import inner
from streamjoin.kernels.partitioned.llat import LANES, LOCKSTEP, NONE
from streamjoin.kernels.scan.vector import at_least, bit_count, load, pointer, splat, word

ROOT, HEIGHT, NODES, CHANGES = 1, 2, 3, 5  # in `header`; CHANGES counts what may lead a key to another leaf
FANOUT = 64  # children of a node
MAX_HEIGHT = 8  # nodes have FANOUT // 2 children at least, but for the root
DEPTH = MAX_HEIGHT  # path[DEPTH, 0]: levels of the path that are known


def node_count(entries: int) -> int:
    """Internal nodes that suffice for so many leaves: all but the root have at least FANOUT // 2 children."""
    return entries // (FANOUT // 2 - 1) + MAX_HEIGHT


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
    header[CHANGES] += 1
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
