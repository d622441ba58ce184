"""A compiled node of low-latency handshake join that keeps hash tables and whose home nodes follow from a key
(`kernels/concurrent/hashing_node.py`; Roy, Teubner & Gemulla 2014, section 7.6). It calls Python only to make room.

Assumed: the predicate consists of equalities only, so nodes need nothing but keys, stamps and ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamjoin.index.structures.hash import FULL_LOAD, HashSubwindow
from streamjoin.kernels.concurrent import hashing_node as kernel
from streamjoin.kernels.concurrent import scanning_node as expedition
from streamjoin.kernels.cursor import CURSOR_SIZE
from streamjoin.kernels.hash import tables as hashing
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.tuning import Tuning
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.handshake.chain_node import ChainContext
from streamjoin.topologies.handshake.record_node import FOUND_PAIRS, RecordNode

STAMP_COLUMNS = 3  # place, since and id
NO_KEYED_ROWS = np.zeros((STAMP_COLUMNS, 1), np.int64)
WORD = np.dtype(np.int64)  # Keys of any type have this type in a node.
NO_COLUMNS = np.zeros((len(SIDES), 0, 3), np.int64)  # a hashing node has no columns besides those


class KeyedStage:
    """Rows of one side's arrivals that are on their way, each arrival sorted by home, and their keys, which have type
    `dtype` when they arrive."""

    def __init__(self, arrivals: int, most: int, nodes: int, dtype: np.dtype):
        self.rows = np.zeros((STAMP_COLUMNS + 1, arrivals * most), np.int64)
        self.keys = np.zeros(arrivals * most, WORD)
        self.most, self._nodes, self._at = most, nodes, 0
        none = np.empty(0, np.int64)  # compiles the call now, not when tuples arrive
        kernel.stage_by_home(none, none, none, none, none.astype(dtype), nodes, 0, self.rows, self.keys)

    def write(self, arrival: Any) -> int:
        """Stage an arrival and return the number of its first row; O(tuples + nodes)."""
        tuples, first = arrival.tuples, self._at
        self._at = (first + self.most) % len(self.keys)
        stamps = tuples.ts, tuples.since, tuples.id
        kernel.stage_by_home(*stamps, arrival.home, arrival.keys, self._nodes, first, self.rows, self.keys)
        return first


class NodeTable(HashSubwindow):
    """A hash subwindow that compiled code fills and probes by itself. `first_row` is the number of its first row."""

    def __init__(self, capacity: int, first_row: int):
        super().__init__(capacity, WORD)
        self.first_row = first_row

    @property
    def end(self) -> int:
        """The number of the row after its last one."""
        return self.first_row + len(self)

    def places(self) -> list[int]:
        """What compiled code needs to know of the table, in the order that `kernels/concurrent/hashing_node.py`
        defines."""
        cells, pool, most = self._table, self._pool, int(self._lines * hashing.WAYS * FULL_LOAD)
        return [
            self.first_row, self.capacity, self._lines, most, cells.ctypes.data, len(cells),
            pool.ctypes.data, len(pool), self._counters.ctypes.data,
        ]  # fmt: skip

    def grow(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Make room, by adding rows of which compiled code could add only some."""
        done = len(self) - int(slots[0])
        self.insert(keys[done:], slots[done:])


class KeyedStore:
    """Rows of one side that rest on a node, in order of arrival, and the tables that find them."""

    def __init__(self, number: int, words: np.ndarray, tuning: Tuning):
        self.rows = NO_KEYED_ROWS
        self.tables: tuple[NodeTable, ...] = ()
        self._number, self._words, self._tuning = number, words, tuning

    def __len__(self) -> int:
        begin, end = self._ends()
        return max(0, end - begin)  # the node may change both between the two reads

    @property
    def held_ids(self) -> np.ndarray:
        return self.rows[expedition.ROW_ID, slice(*self._ends())]

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + sum(table.nbytes for table in self.tables)

    def _ends(self) -> tuple[int, int]:
        return int(self._words[expedition.STORE_BEGIN + self._number]), int(
            self._words[expedition.STORE_END + self._number]
        )

    def make_room(self, count: int) -> None:
        """Make room for `count` more rows, in the store and in a table; O(rows held)."""
        begin, end = self._ends()
        if end + count >= self.rows.shape[1]:
            self._move(begin, end, max(self._tuning.handshake.fewest_rows, 4 * (end - begin + count)) + 1)
        begin, end = self._ends()
        first = int(self._words[kernel.NUMBER_OF_FIRST + self._number])
        self.tables = tuple(table for table in self.tables if table.end > first + begin)
        if not self.tables or self.tables[-1].capacity - len(self.tables[-1]) < count:
            capacity = self._tuning.window.capacity(len(self))
            self.tables += (NodeTable(max(capacity, count), first + end),)

    def _move(self, begin: int, end: int, capacity: int) -> None:
        """Move the rows to the front of new memory."""
        rows, words, number = np.zeros((STAMP_COLUMNS, capacity), np.int64), self._words, self._number
        rows[:, : end - begin] = self.rows[:, begin:end]
        self.rows = rows
        words[
            [at + number for at in (expedition.STORE_BEGIN, expedition.STORE_VISIBLE, expedition.STORE_END)]
        ] -= begin
        words[kernel.NUMBER_OF_FIRST + number] += begin

    def clear(self) -> None:
        self.rows, self.tables = NO_KEYED_ROWS, ()


class HashingNode(RecordNode):
    """One node: its part of both windows."""

    advance, wait_and_advance = (
        staticmethod(kernel.advance_hashing_node),
        staticmethod(kernel.run_hashing_node),
    )

    def __init__(self, number: int, shared: ChainContext, stages: Sequence[KeyedStage], waiting: int):
        super().__init__(number, shared, stages, waiting, kernel.KEYED_WORDS)
        self._stages = stages
        self._stores = [KeyedStore(side, self._words, shared.plan.tuning) for side in range(len(SIDES))]
        self.windows = dict(zip(SIDES, self._stores, strict=True))
        self._pairs, self._cursor = PairBuffer(FOUND_PAIRS), np.zeros(CURSOR_SIZE, np.int64)
        self._reach = np.zeros((2, stages[0].most), np.int64)
        self._slots = np.zeros(stages[0].most, np.int32)

    def help(self, why: int) -> bool:
        if why not in (kernel.NEEDS_ROOM, kernel.NEEDS_LARGER_TABLE):
            return False
        side, own, count = (
            int(self._words[at]) for at in (expedition.MESSAGE_SIDE, kernel.OWN_FIRST, kernel.OWN_COUNT)
        )
        if why == kernel.NEEDS_ROOM:
            self._stores[side].make_room(count)
        else:
            keys = self._stages[side].keys[own : own + count]
            self._stores[side].tables[-1].grow(keys, self._slots[:count])
        self._arguments = ()
        return True

    def gather(self) -> tuple[Any, ...]:
        most = max(1, *(len(store.tables) for store in self._stores))
        tables = np.zeros((len(SIDES), most, kernel.TABLE_COUNTERS + 1), np.int64)
        for places, store in zip(tables, self._stores, strict=True):
            for place, table in zip(places, store.tables, strict=False):
                place[:] = table.places()
        return (
            tuple(stage.keys for stage in self._stages), tuple(store.rows for store in self._stores), tables,
            NO_COLUMNS, self._reach, self._slots, self._cursor, self._pairs.probe, self._pairs.pos,
            self.outbox.ring,
        )  # fmt: skip

    def clear(self) -> None:
        for store in self._stores:
            store.clear()
        super().clear()
