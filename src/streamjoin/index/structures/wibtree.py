"""The WiB+-Tree subwindow: partitions that split as they fill, for any distribution of keys (Pan & Jacobsen,
III-C)."""

from __future__ import annotations

import numpy as np

from streamjoin.index.structures.llat import HIGHEST, SIGMA, Finder, PartitionedSubwindow
from streamjoin.kernels.partitioned import llat, wibtree, wibtree_leaves, wibtree_nodes

LEAF_SIZE = 64  # the default number of tuples in a leaf


class WiBTreeSubwindow(PartitionedSubwindow):
    """Tuples of a subwindow in the unsorted leaves of a B+-tree. It has about `partitions` leaves, never more than
    2P.

    It learns nothing from its predecessor: leaves split where the keys are.
    """

    def __init__(
        self,
        capacity: int,
        dtype: np.dtype,
        predecessor: object | None = None,
        partitions: int | None = None,
    ):
        columns = wibtree.ENTRY_COLUMNS
        super().__init__(capacity, np.dtype(dtype), partitions or max(1, capacity // LEAF_SIZE), columns)
        highest = HIGHEST[self.dtype.name]
        lowest = -highest if self.dtype.kind == "f" else -highest - 1
        entries, nodes = 2 * self.partitions, wibtree_nodes.node_count(2 * self.partitions)
        self._uppers = np.full(entries, highest, self.dtype)
        self._separators = np.full(nodes * wibtree_nodes.NODE_FANOUT, highest, self.dtype)
        self._children = np.full((nodes, wibtree_nodes.NODE_FANOUT), llat.NO_ENTRY, np.int32)
        self._path = np.zeros((wibtree_nodes.PATH_DEPTH + 1, 2), np.int64)
        self._bounds = np.zeros((wibtree_nodes.PATH_DEPTH + 1, 2), self.dtype)
        self._bounds[0] = lowest, highest
        held = wibtree_leaves.MOST_ENTRIES * self.width
        self._held_keys, self._held_slots = np.empty(held, self.dtype), np.empty(held, np.int32)
        self._header[wibtree_leaves.LEAST_PART] = int(np.ceil(self.width / (2 * SIGMA)))
        self._header[llat.NEXT_UNUSED] = 1
        self._entries[0] = 0
        self._entries[0, [llat.ENTRY_NEXT, llat.ENTRY_AFTER, wibtree_leaves.ENTRY_BEFORE]] = llat.NO_ENTRY

    @property
    def height(self) -> int:
        """The number of internal nodes between the root and a leaf, root included."""
        return int(self._header[wibtree_nodes.TREE_HEIGHT])

    def seal(self) -> None:
        super().seal()
        self._uppers, self._separators, self._children = (
            array[:0].copy() for array in (self._uppers, self._separators, self._children)
        )
        self._held_keys, self._held_slots = self._held_keys[:0].copy(), self._held_slots[:0].copy()

    def _insert(self, keys: np.ndarray, slots: np.ndarray) -> None:
        wibtree.insert_in_tree(
            *(self._keys, self._slots, self._entries, self._header, self.width, self._uppers),
            *(self._separators, self._children, self._path, self._bounds, self._held_keys, self._held_slots),
            *(keys, slots),
        )

    def _open(self) -> Finder:
        return wibtree.probe_tree, (
            *(self._keys, self._slots, self._entries, self._header, self.width, self._uppers),
            *(self._separators, self._children, self._bounds),
        )

    def _ordered_partitions(self) -> tuple[np.ndarray, np.ndarray]:
        firsts, uppers = np.empty(self.entries_used, np.int64), np.empty(self.entries_used, self.dtype)
        count = wibtree.leaves(self._entries, self._uppers, firsts, uppers)
        return firsts[:count], uppers[:count]
