"""A compiled node of low-latency handshake join whose windows are scanned (`kernels/concurrent/scanning_node.py`).
Python is asked only to start a scan by a predicate without a kernel of bands, and to make room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import WindowProgram, is_done, new_cursor
from streamjoin.kernels.concurrent import scanning_node as kernel
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.handshake.chain_node import Shared
from streamjoin.topologies.handshake.record_node import WAITING_PAIRS, RecordNode

SMALLEST = 1024  # rows of a store
NOTHING_STORED = np.zeros((4, 1), np.int64)


class Stage:
    """Rows of one side's arrivals while they are on their way; the driver writes, nodes read. As many arrivals as the
    driver lets in have room."""

    def __init__(self, arrivals: int, most: int):
        self.rows = np.zeros((4, arrivals * most), np.int64)
        self.stored = Stored()
        self.probing: Probing | None = None  # until the first arrival
        self.nulls = False
        self._most, self._at = most, 0

    def write(self, arrival: Any) -> int:
        """Stage an arrival; the number of its first row."""
        tuples, first = arrival.tuples, self._at
        self._at = (first + self._most) % self.rows.shape[1]
        here = slice(first, first + len(tuples))
        stamps = (tuples.ts, tuples.since, tuples.id, arrival.home)
        for row, values in zip(self.rows, stamps, strict=True):
            row[here] = values
        if self.probing is None:  # each whole at once: nodes may be looking
            self.stored = tuples.stored.with_arrays(self._columns_like(tuples.stored.arrays()))
            self.probing = tuples.probing.with_arrays(self._columns_like(tuples.probing.arrays()))
        for staged, given in ((self.stored, tuples.stored), (self.probing, tuples.probing)):
            for column, values in zip(staged.arrays(), given.arrays(), strict=True):
                column[here] = values
        self.nulls |= tuples.nulls
        return first

    def _columns_like(self, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        count = self.rows.shape[1]
        return [np.zeros((count, *values.shape[1:]), values.dtype) for values in given]


class Store:
    """Rows that rest on a node, and how probes are compared with them. The words say where they begin and end."""

    def __init__(self, number: int, words: np.ndarray, program: WindowProgram, stage: Stage):
        self.rows = NOTHING_STORED
        self.columns = Stored()
        self._number, self._words, self._program, self.stage = number, words, program, stage

    @property
    def has_bands(self) -> bool:
        """Whether the predicate has a kernel that compiled code can call."""
        return self._program.block is None and bool(self._program.shapes)

    def rehearse(self) -> None:
        if self.has_bands:
            kernel.scan_address(self._program.shapes)

    def __len__(self) -> int:
        begin, end = self._ends()
        return max(0, end - begin)  # the node may move both between two looks

    @property
    def held_ids(self) -> np.ndarray:
        return self.rows[kernel.ID, self._live()]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in [self.rows, *self.columns.arrays()])

    def _ends(self) -> tuple[int, int]:
        return int(self._words[kernel.BEGIN + self._number]), int(self._words[kernel.VISIBLE + self._number])

    def _live(self) -> slice:
        return slice(*self._ends())

    def scanner(self, probes: Stage, chosen: slice) -> Callable[..., int]:
        """The scan of what can be found by some staged rows."""
        assert probes.probing is not None
        window, probing = self.columns.pick(self._live()), probes.probing.pick(chosen)
        nulls = self.stage.nulls or probes.nulls
        scan = self._program.scanner(window, probing, nulls)
        if not nulls:
            return scan

        def scan_with_nulls(start: Any, stop: Any, cursor: Any, pairs: PairBuffer) -> int:
            pairs.count = scan(start, stop, cursor, pairs)
            known = probing.known[pairs.probe[: pairs.count]]
            if window.known is not None:
                known &= window.known[pairs.pos[: pairs.count]]
            pairs.keep(0, known)
            return pairs.count

        return scan_with_nulls

    def resize(self, more: int) -> None:
        """Make room for `more` rows, twice over, and one in between."""
        words, number = self._words, self._number
        begin, end = int(words[kernel.BEGIN + number]), int(words[kernel.END + number])
        held, capacity = slice(begin, end), max(SMALLEST, 4 * (end - begin + more)) + 1
        rows = np.zeros((4, capacity), np.int64)
        rows[:, : end - begin] = self.rows[:, held]
        staged = self.stage.stored
        columns = [np.zeros((capacity, *column.shape[1:]), column.dtype) for column in staged.arrays()]
        for column, old in zip(columns, self.columns.arrays(), strict=False):  # none before the first row
            column[: end - begin] = old[held]
        self.rows, self.columns = rows, staged.with_arrays(columns)
        words[[which + number for which in (kernel.BEGIN, kernel.VISIBLE, kernel.END)]] -= begin

    def places(self) -> list[tuple[int, int, int]]:
        """Where the columns are: the size of a value, and its address on the stage and here."""
        return [
            (column.strides[0], staged.ctypes.data, column.ctypes.data)
            for staged, column in zip(self.stage.stored.arrays(), self.columns.arrays(), strict=False)
        ]

    def operands(self, probes: Stage) -> list[tuple[int, int, int]]:
        """The kernel that compares, and where its arguments are: keys here, lows and highs on the stage of the probes.
        Nothing while there is nothing to point at."""
        program = self._program
        keys, asked = self.columns.columns, probes.probing
        if not (self.has_bands and keys and asked):
            return [(0, 0, 0)]
        bounds = [keys[0][:0] if end is None else end for end in (*asked.lows, *asked.highs)]
        return [
            (0, kernel.scan_address(program.shapes), 0),
            *((key.strides[0], key.ctypes.data, 0) for key in keys),
            *((bound.strides[0] if len(bound) else 0, bound.ctypes.data, 1) for bound in bounds),
        ]


def as_table(lists: list[list[tuple[int, int, int]]]) -> np.ndarray:
    """A line for each triple of each list, filled up with zeros."""
    table = np.zeros((len(lists), max(map(len, lists)), 3), np.int64)
    for lines, triples in zip(table, lists, strict=True):
        lines[: len(triples)] = np.array(triples, np.int64).reshape(-1, 3)
    return table


class ScanningNode(RecordNode):
    """One node: its part of both windows, and what is between two states."""

    advance, wait_and_advance = staticmethod(kernel.advance), staticmethod(kernel.work)

    def __init__(self, number: int, shared: Shared, stages: Sequence[Stage], waiting: int):
        super().__init__(number, shared, stages, waiting, kernel.WORDS)
        self._stages = stages
        programs = [shared.plan.programs[side] for side in SIDES]
        self._stores = [
            Store(which, self._words, programs[side], stages[side])
            for which, side in ((kernel.LEFT, 0), (kernel.RIGHT, 1), (kernel.FORWARDED, 1))
        ]
        self.windows = dict(zip(SIDES, self._stores, strict=False))
        self._pairs, self._cursor = PairBuffer(WAITING_PAIRS), new_cursor()
        self._reach = np.zeros((2, stages[0].rows.shape[1]), np.int64)

    def rehearse(self) -> None:
        super().rehearse()
        for store in self._stores:
            store.rehearse()

    def help(self, why: int) -> bool:
        if why == kernel.SCAN:
            self._compare()
        elif why == kernel.RESIZE:
            self._make_room()
        return why in (kernel.SCAN, kernel.RESIZE)

    def _compare(self) -> None:
        """Find pairs, as many as the buffer has room for."""
        words, pairs = self._words, self._pairs
        first, count = int(words[kernel.FIRST]), int(words[kernel.COUNT])
        store, stage = self._stores[words[kernel.STORE]], self._stages[words[kernel.SIDE]]
        scan = store.scanner(stage, slice(first, first + count))
        pairs.count = 0
        pairs.count = scan(self._reach[0, :count], self._reach[1, :count], self._cursor, pairs)
        words[kernel.PAIRS], words[kernel.HANDED] = pairs.count, 0
        words[kernel.SCANNED] = is_done(self._cursor)
        if store.has_bands and not words[kernel.SEEN_NULLS]:
            self._arguments = ()  # now there is something to point at

    def _make_room(self) -> None:
        more, side = int(self._words[kernel.COUNT]), int(self._words[kernel.SIDE])
        for store in self._stores[side:] if side else self._stores[:1]:
            store.resize(more)
        self._arguments = ()

    def gather(self) -> tuple[Any, ...]:
        stages = self._stages
        columns = as_table([store.places() for store in self._stores])
        operands = as_table(
            [store.operands(stages[1 - side]) for store, side in zip(self._stores, (0, 1, 1), strict=True)]
        )
        self._call = np.zeros(kernel.OPERANDS + operands.shape[1], np.int64)
        buffers = (*self._reach, self._cursor, self._pairs.probe, self._pairs.pos)
        self._call[kernel.STARTS : kernel.ROOM] = [array.ctypes.data for array in buffers]
        self._call[kernel.ROOM] = len(self._pairs.probe)
        return (
            tuple(store.rows for store in self._stores), columns, self._reach, self._pairs.probe, self._pairs.pos,
            self.outbox.ring, self._call, operands,
        )  # fmt: skip

    def clear(self) -> None:
        for store in self._stores:
            store.rows, store.columns = NOTHING_STORED, Stored()
        super().clear()
