"""A compiled node of low-latency handshake join whose homes follow from a key, over hash tables
(`kernels/concurrent/hashing_node.py`; Roy, Teubner & Gemulla 2014, section 7.6). Python is asked only to make room.

Assumed: equal keys are all that the predicate asks for, so that nothing but keys, stamps and ids need come to a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamjoin.index.chain import LARGEST, SHARE, SMALLEST
from streamjoin.index.structures.hash import FULL_LOAD, HashSubwindow
from streamjoin.kernels.concurrent import hashing_node as kernel
from streamjoin.kernels.concurrent import scanning_node as expedition
from streamjoin.kernels.hash import tables as hashing
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.handshake.chain_node import Shared
from streamjoin.topologies.handshake.record_node import WAITING_PAIRS, RecordNode

COLUMNS = 3  # place, since and id
FEWEST_ROWS = 1024  # of a store
NOTHING_STORED = np.zeros((COLUMNS, 1), np.int64)
WORD = np.dtype(np.int64)  # what keys of any type are here
NO_COLUMNS = np.zeros((len(SIDES), 0, 3), np.int64)  # besides those


class KeyedStage:
    """Rows of one side's arrivals while they are on their way, each arrival sorted by home, and their keys, which come
    as `dtype`."""

    def __init__(self, arrivals: int, most: int, nodes: int, dtype: np.dtype):
        self.rows = np.zeros((COLUMNS + 1, arrivals * most), np.int64)
        self.keys = np.zeros(arrivals * most, WORD)
        self.most, self._nodes, self._at = most, nodes, 0
        none = np.empty(0, np.int64)  # compiled now, not when tuples come
        kernel.stage_by_home(none, none, none, none, none.astype(dtype), nodes, 0, self.rows, self.keys)

    def write(self, arrival: Any) -> int:
        """Stage an arrival; the number of its first row. O(tuples + nodes)."""
        tuples, first = arrival.tuples, self._at
        self._at = (first + self.most) % len(self.keys)
        stamps = tuples.ts, tuples.since, tuples.id
        kernel.stage_by_home(*stamps, arrival.home, arrival.keys, self._nodes, first, self.rows, self.keys)
        return first


class NodeTable(HashSubwindow):
    """A hash subwindow that compiled code fills and asks by itself. `first_row` is the number of its first row."""

    def __init__(self, capacity: int, first_row: int):
        super().__init__(capacity, WORD)
        self.first_row = first_row

    @property
    def end(self) -> int:
        """The number of the first row behind it."""
        return self.first_row + len(self)

    def places(self) -> list[int]:
        """What compiled code is told of it, in the order of `kernels/concurrent/hashing_node.py`."""
        cells, pool, most = self._table, self._pool, int(self._lines * hashing.WAYS * FULL_LOAD)
        return [
            self.first_row, self.capacity, self._lines, most, cells.ctypes.data, len(cells),
            pool.ctypes.data, len(pool), self._counters.ctypes.data,
        ]  # fmt: skip

    def grow(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Make room by adding rows of which compiled code could add some only."""
        done = len(self) - int(slots[0])
        self.insert(keys[done:], slots[done:])


class KeyedStore:
    """Rows of one side that rest on a node, in the order they came, and the tables that find them."""

    def __init__(self, number: int, words: np.ndarray):
        self.rows = NOTHING_STORED
        self.tables: tuple[NodeTable, ...] = ()
        self._number, self._words = number, words

    def __len__(self) -> int:
        begin, end = self._ends()
        return max(0, end - begin)  # the node may move both between two looks

    @property
    def held_ids(self) -> np.ndarray:
        return self.rows[expedition.ID, slice(*self._ends())]

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + sum(table.nbytes for table in self.tables)

    def _ends(self) -> tuple[int, int]:
        return int(self._words[expedition.BEGIN + self._number]), int(
            self._words[expedition.END + self._number]
        )

    def make_room(self, count: int) -> None:
        """For so many rows more, in the store and in a table. O(rows held)."""
        begin, end = self._ends()
        if end + count >= self.rows.shape[1]:
            self._move(begin, end, max(FEWEST_ROWS, 4 * (end - begin + count)) + 1)
        begin, end = self._ends()
        first = int(self._words[kernel.NUMBER_OF_FIRST + self._number])
        self.tables = tuple(table for table in self.tables if table.end > first + begin)
        if not self.tables or self.tables[-1].capacity - len(self.tables[-1]) < count:
            capacity = min(max(SMALLEST, 1 << (len(self) // SHARE).bit_length()), LARGEST)
            self.tables += (NodeTable(max(capacity, count), first + end),)

    def _move(self, begin: int, end: int, capacity: int) -> None:
        """Move the rows to the front of new memory."""
        rows, words, number = np.zeros((COLUMNS, capacity), np.int64), self._words, self._number
        rows[:, : end - begin] = self.rows[:, begin:end]
        self.rows = rows
        words[[at + number for at in (expedition.BEGIN, expedition.VISIBLE, expedition.END)]] -= begin
        words[kernel.NUMBER_OF_FIRST + number] += begin

    def clear(self) -> None:
        self.rows, self.tables = NOTHING_STORED, ()


class HashingNode(RecordNode):
    """One node: its part of both windows."""

    advance, wait_and_advance = staticmethod(kernel.advance), staticmethod(kernel.work)

    def __init__(self, number: int, shared: Shared, stages: Sequence[KeyedStage], waiting: int):
        super().__init__(number, shared, stages, waiting, kernel.KEYED_WORDS)
        self._stages = stages
        self._stores = [KeyedStore(side, self._words) for side in range(len(SIDES))]
        self.windows = dict(zip(SIDES, self._stores, strict=True))
        self._pairs, self._cursor = PairBuffer(WAITING_PAIRS), np.zeros(hashing.CURSOR_SIZE, np.int64)
        self._reach = np.zeros((2, stages[0].most), np.int64)
        self._slots = np.zeros(stages[0].most, np.int32)

    def help(self, why: int) -> bool:
        if why not in (kernel.ROOM, kernel.GROW):
            return False
        side, own, count = (int(self._words[at]) for at in (expedition.SIDE, kernel.OWN, kernel.OWN_COUNT))
        if why == kernel.ROOM:
            self._stores[side].make_room(count)
        else:
            keys = self._stages[side].keys[own : own + count]
            self._stores[side].tables[-1].grow(keys, self._slots[:count])
        self._arguments = ()
        return True

    def gather(self) -> tuple[Any, ...]:
        most = max(1, *(len(store.tables) for store in self._stores))
        tables = np.zeros((len(SIDES), most, kernel.COUNTERS + 1), np.int64)
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
