"""Internal nodes of a WiB+-Tree: small, sorted, without duplicates (Pan & Jacobsen, section III-C).

`kernels/partitioned/wibtree.py` describes the arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamjoin.jit.decorator import inner
from streamjoin.kernels.partitioned.llat import LANES, LOCKSTEP, NO_ENTRY
from streamjoin.kernels.scan.vector import at_least, bit_count, load_vector, pointer, splat, word

# Words of `header`. TREE_CHANGES counts changes after which a key may belong to another leaf.
TREE_ROOT, TREE_HEIGHT, TREE_NODES, TREE_CHANGES = 1, 2, 3, 5
NODE_FANOUT = 64  # children of a node
MAX_HEIGHT = 8  # enough, since every node except the root has at least NODE_FANOUT // 2 children
PATH_DEPTH = MAX_HEIGHT  # path[PATH_DEPTH, 0] is the number of valid levels of the path


def node_count(entries: int) -> int:
    """The number of internal nodes that this number of leaves needs at most: all except the root have at least
    NODE_FANOUT // 2 children."""
    return entries // (NODE_FANOUT // 2 - 1) + MAX_HEIGHT


class Tree(NamedTuple):
    """The arrays of a tree. `bounds` and `path` belong to `find_leaf`; `held_*` have room for a leaf that is being
    cut."""

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
    """The place of a key's child: the number of separators below the key. A NaN gets an arbitrary place."""
    wanted, not_below = splat(key, LANES), 1
    for i in range(0, NODE_FANOUT, LANES):
        not_below += bit_count(word(at_least(load_vector(separators, node * NODE_FANOUT + i, LANES), wanted)))
    return min(NODE_FANOUT + 1 - not_below, NODE_FANOUT - 1)


@inner
def find_leaf(separators, children, header, path, bounds, key):
    """Find the leaf of `key`, and the path to it; O(log P).

    `path[level]` is a node and the place of its child, `bounds[level + 1]` are the keys (low, high] of that child,
    and `bounds[0]` those of the root. Backtracks from the path of the last call, only as far as needed.
    """
    level, height = path[PATH_DEPTH, 0], header[TREE_HEIGHT]
    while level > 0 and not (bounds[level, 0] < key and key <= bounds[level, 1]):
        level -= 1
    node = header[TREE_ROOT] if level == 0 else np.int64(children[path[level - 1, 0], path[level - 1, 1]])
    separator = pointer(separators)
    while level < height:
        place = child_place(separator, node, key)
        path[level, 0], path[level, 1] = node, place
        bounds[level + 1, 0] = separator[node * NODE_FANOUT + place - 1] if place else bounds[level, 0]
        bounds[level + 1, 1] = min(separator[node * NODE_FANOUT + place], bounds[level, 1])
        node = np.int64(children[node, place])
        level += 1
    path[PATH_DEPTH, 0] = height
    return node


@inner
def find_leaves(separators, children, header, keys, found):
    """Set found[i] to the leaf of keys[i], for LOCKSTEP keys that are searched together; O(log P) each."""
    separator = pointer(separators)
    for i in range(LOCKSTEP):
        found[i] = header[TREE_ROOT]
    for _ in range(header[TREE_HEIGHT]):
        for i in range(LOCKSTEP):
            found[i] = np.int64(children[found[i], child_place(separator, found[i], keys[i])])


@inner
def open_gap(separators, children, node, place, used):
    """Make room for a separator at `place` and a child after it, in a node of `used` children."""
    for i in range(used - 1, place, -1):
        children[node, i + 1] = children[node, i]
    for i in range(used - 2, place - 1, -1):
        separators[node * NODE_FANOUT + i + 1] = separators[node * NODE_FANOUT + i]


@inner
def new_node(tree):
    """An internal node without children."""
    node = tree.header[TREE_NODES]
    tree.header[TREE_NODES] += 1
    tree.separators[node * NODE_FANOUT : (node + 1) * NODE_FANOUT] = tree.bounds[0, 1]
    tree.children[node, :] = NO_ENTRY
    return node


@inner
def child_count(children, node):
    used = 0
    for i in range(NODE_FANOUT):
        used += np.int64(children[node, i] != NO_ENTRY)
    return used


@inner
def split_node(tree, node):
    """Move the upper half of a full node to a new node and return it; the separator between them is dropped."""
    half = NODE_FANOUT // 2
    separators, children = tree.separators, tree.children
    right = new_node(tree)
    for i in range(half):
        children[right, i] = children[node, half + i]
        children[node, half + i] = NO_ENTRY
    for i in range(half - 1):
        separators[right * NODE_FANOUT + i] = separators[node * NODE_FANOUT + half + i]
    for i in range(half - 1, NODE_FANOUT):
        separators[node * NODE_FANOUT + i] = tree.bounds[0, 1]
    return right


@inner
def replace_child(tree, left, separator, right):
    """Replace the child that the path leads to with `left`, `separator`, `right`; full nodes are split.

    The path is invalid afterwards. O(NODE_FANOUT) a level.
    """
    header, path, separators, children = tree.header, tree.path, tree.separators, tree.children
    path[PATH_DEPTH, 0] = 0
    header[TREE_CHANGES] += 1
    half = NODE_FANOUT // 2
    for level in range(header[TREE_HEIGHT] - 1, -1, -1):
        node, place = path[level, 0], path[level, 1]
        children[node, place] = left
        used = child_count(children, node)
        if used < NODE_FANOUT:
            open_gap(separators, children, node, place, used)
            separators[node * NODE_FANOUT + place], children[node, place + 1] = separator, right
            return
        middle = separators[node * NODE_FANOUT + half - 1]
        sibling = split_node(tree, node)
        target = node
        if place >= half:
            target, place = sibling, place - half
        open_gap(separators, children, target, place, half)
        separators[target * NODE_FANOUT + place], children[target, place + 1] = separator, right
        left, separator, right = node, middle, sibling
    root = new_node(tree)
    children[root, 0], children[root, 1], separators[root * NODE_FANOUT] = left, right, separator
    header[TREE_ROOT] = root
    header[TREE_HEIGHT] += 1
