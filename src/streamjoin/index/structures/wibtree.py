"""The WiB+-Tree subwindow: partitions that split as they fill, for any pattern of keys (Pan & Jacobsen, III-C)."""

from __future__ import annotations

import numpy as np

from streamjoin.index.structures.llat import HIGHEST, SIGMA, Finder, PartitionedSubwindow
from streamjoin.kernels.partitioned import llat, wibtree, wibtree_leaves, wibtree_nodes

LEAF_SIZE = 64  # tuples aimed at by default


class WiBTreeSubwindow(PartitionedSubwindow):
    """Tuples of a subwindow in the unsorted leaves of a B+-tree. About `partitions` leaves; never more than 2P.

    It learns nothing from its predecessor: leaves split where the keys are.
    """

    def __init__(
        self,
        capacity: int,
        dtype: np.dtype,
        predecessor: object | None = None,
        partitions: int | None = None,
    ):
        columns = wibtree.COLUMNS
        super().__init__(capacity, np.dtype(dtype), partitions or max(1, capacity // LEAF_SIZE), columns)
        highest = HIGHEST[self.dtype.name]
        lowest = -highest if self.dtype.kind == "f" else -highest - 1
        entries, nodes = 2 * self.partitions, wibtree_nodes.node_count(2 * self.partitions)
        self._uppers = np.full(entries, highest, self.dtype)
        self._separators = np.full(nodes * wibtree_nodes.FANOUT, highest, self.dtype)
        self._children = np.full((nodes, wibtree_nodes.FANOUT), llat.NONE, np.int32)
        self._path = np.zeros((wibtree_nodes.DEPTH + 1, 2), np.int64)
        self._bounds = np.zeros((wibtree_nodes.DEPTH + 1, 2), self.dtype)
        self._bounds[0] = lowest, highest
        held = wibtree_leaves.MOST_ENTRIES * self.width
        self._held_keys, self._held_slots = np.empty(held, self.dtype), np.empty(held, np.int32)
        self._header[wibtree_leaves.LEAST] = int(np.ceil(self.width / (2 * SIGMA)))
        self._header[llat.PTR_G] = 1
        self._entries[0] = 0
        self._entries[0, [llat.NEXT, llat.AFTER, wibtree_leaves.BEFORE]] = llat.NONE

    @property
    def height(self) -> int:
        """Internal nodes on the way from the root to a leaf."""
        return int(self._header[wibtree_nodes.HEIGHT])

    def seal(self) -> None:
        super().seal()
        self._uppers, self._separators, self._children = (
            array[:0].copy() for array in (self._uppers, self._separators, self._children)
        )
        self._held_keys, self._held_slots = self._held_keys[:0].copy(), self._held_slots[:0].copy()

    def _insert(self, keys: np.ndarray, slots: np.ndarray) -> None:
        wibtree.insert(
            *(self._keys, self._slots, self._entries, self._header, self.width, self._uppers),
            *(self._separators, self._children, self._path, self._bounds, self._held_keys, self._held_slots),
            *(keys, slots),
        )

    def _open(self) -> Finder:
        return wibtree.probe, (
            *(self._keys, self._slots, self._entries, self._header, self.width, self._uppers),
            *(self._separators, self._children, self._bounds),
        )

    def _ordered_partitions(self) -> tuple[np.ndarray, np.ndarray]:
        firsts, uppers = np.empty(self.entries_used, np.int64), np.empty(self.entries_used, self.dtype)
        count = wibtree.leaves(self._entries, self._uppers, firsts, uppers)
        return firsts[:count], uppers[:count]
