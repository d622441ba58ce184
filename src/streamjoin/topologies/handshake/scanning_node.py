"""A compiled node of low-latency handshake join that scans its windows (`kernels/concurrent/scanning_node.py`). It
calls Python only to make room, and to start a scan for a predicate without a band kernel. What it has in common with
other compiled nodes that scan is in `ScannedRows` and `ComparingNode`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import WindowProgram, is_done, new_cursor
from streamjoin.kernels.concurrent import scanning_node as kernel
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.handshake.chain_node import ChainContext
from streamjoin.topologies.handshake.record_node import FOUND_PAIRS, RecordNode

NO_SCANNED_ROWS = np.zeros((4, 1), np.int64)


class Stage:
    """Rows of one side's arrivals that are on their way. The driver writes them, nodes read them. There is room for
    as many arrivals as the driver admits."""

    def __init__(self, arrivals: int, most: int):
        self.rows = np.zeros((4, arrivals * most), np.int64)
        self.stored = Stored()
        self.probing: Probing | None = None  # None until the first arrival
        self.nulls = False
        self._most, self._at = most, 0

    def write(self, arrival: Any) -> int:
        """Stage an arrival and return the number of its first row."""
        tuples, first = arrival.tuples, self._at
        self._at = (first + self._most) % self.rows.shape[1]
        here = slice(first, first + len(tuples))
        stamps = (tuples.ts, tuples.since, tuples.id, arrival.home)
        for row, values in zip(self.rows, stamps, strict=True):
            row[here] = values
        if self.probing is None:  # Assign each as a whole: nodes may be reading.
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


class ProbingRows(Protocol):
    """Rows that messages name, in the form in which they probe the other side's windows."""

    nulls: bool

    @property
    def probing(self) -> Probing | None: ...


class ScannedRows:
    """Rows that rest on a node, and how to compare probes with them. The words hold where they begin and end."""

    rows: np.ndarray
    stage: Any  # the rows of this side that messages name

    def __init__(self, number: int, words: np.ndarray, program: WindowProgram):
        self.columns = Stored()
        self._number, self._words, self._program = number, words, program

    @property
    def has_bands(self) -> bool:
        """Whether the predicate has a kernel that compiled code can call."""
        return self._program.block is None and bool(self._program.shapes)

    def rehearse(self) -> None:
        if self.has_bands:
            kernel.scan_address(self._program.shapes)

    def __len__(self) -> int:
        begin, end = self._ends()
        return max(0, end - begin)  # the node may change both between the two reads

    @property
    def held_ids(self) -> np.ndarray:
        return self.rows[kernel.ROW_ID, self._live()]

    def _ends(self) -> tuple[int, int]:
        return int(self._words[kernel.STORE_BEGIN + self._number]), int(
            self._words[kernel.STORE_VISIBLE + self._number]
        )

    def _live(self) -> slice:
        return slice(*self._ends())

    def scanner(self, probes: ProbingRows, chosen: slice) -> Callable[..., int]:
        """The scan of the visible rows by some of the rows that messages name."""
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

    def operands(self, probes: ProbingRows | None) -> list[tuple[int, int, int]]:
        """The kernel that compares, and the locations of its arguments: keys here, lows and highs among the
        probes. All zero while either side has no columns."""
        program = self._program
        keys, asked = self.columns.columns, probes.probing if probes else None
        if not (self.has_bands and keys and asked):
            return [(0, 0, 0)]
        bounds = [keys[0][:0] if end is None else end for end in (*asked.lows, *asked.highs)]
        return [
            (0, kernel.scan_address(program.shapes), 0),
            *((key.strides[0], key.ctypes.data, 0) for key in keys),
            *((bound.strides[0] if len(bound) else 0, bound.ctypes.data, 1) for bound in bounds),
        ]


class ScannedStore(ScannedRows):
    """Rows that a node has copied from the stage of their side."""

    def __init__(
        self, number: int, words: np.ndarray, program: WindowProgram, stage: Stage, fewest_rows: int
    ):
        super().__init__(number, words, program)
        self.rows, self.stage = NO_SCANNED_ROWS, stage
        self._fewest_rows = fewest_rows

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in [self.rows, *self.columns.arrays()])

    def resize(self, more: int) -> None:
        """Make room for `more` rows: at least four times the rows then held, and one row more."""
        words, number = self._words, self._number
        begin, end = int(words[kernel.STORE_BEGIN + number]), int(words[kernel.STORE_END + number])
        held, capacity = slice(begin, end), max(self._fewest_rows, 4 * (end - begin + more)) + 1
        rows = np.zeros((4, capacity), np.int64)
        rows[:, : end - begin] = self.rows[:, held]
        staged = self.stage.stored
        columns = [np.zeros((capacity, *column.shape[1:]), column.dtype) for column in staged.arrays()]
        for column, old in zip(
            columns, self.columns.arrays(), strict=False
        ):  # no columns exist before the first row
            column[: end - begin] = old[held]
        self.rows, self.columns = rows, staged.with_arrays(columns)
        words[[which + number for which in (kernel.STORE_BEGIN, kernel.STORE_VISIBLE, kernel.STORE_END)]] -= (
            begin
        )

    def places(self) -> list[tuple[int, int, int]]:
        """The location of each column: the size of a value, and the addresses on the stage and here."""
        return [
            (column.strides[0], staged.ctypes.data, column.ctypes.data)
            for staged, column in zip(self.stage.stored.arrays(), self.columns.arrays(), strict=False)
        ]


def as_table(lists: list[list[tuple[int, int, int]]]) -> np.ndarray:
    """An array with a row for each triple of each list, padded with zeros."""
    table = np.zeros((len(lists), max(map(len, lists)), 3), np.int64)
    for lines, triples in zip(table, lists, strict=True):
        lines[: len(triples)] = np.array(triples, np.int64).reshape(-1, 3)
    return table


class ComparingNode(RecordNode):
    """A compiled node that scans. `most`: the most rows of a message; `words`: the number of its words."""

    def __init__(
        self, number: int, shared: ChainContext, staging: Sequence[Any], waiting: int, words: int, most: int
    ):
        super().__init__(number, shared, staging, waiting, words)
        self._pairs, self._cursor = PairBuffer(FOUND_PAIRS), new_cursor()
        self._reach = np.zeros((2, most), np.int64)

    @property
    def stores(self) -> Sequence[ScannedRows]:
        """What is scanned, by number."""
        raise NotImplementedError

    def probes(self, side: int) -> ProbingRows | None:
        """The rows of a side that messages name; None while there are none."""
        raise NotImplementedError

    def make_room(self) -> None:
        """Make room for the current message, or find its rows."""
        raise NotImplementedError

    def rehearse(self) -> None:
        super().rehearse()
        for store in self.stores:
            store.rehearse()

    def help(self, why: int) -> bool:
        if why == kernel.NEEDS_SCAN:
            self._compare()
        elif why == kernel.NEEDS_RESIZE:
            self.make_room()
            self._arguments = ()
        return why in (kernel.NEEDS_SCAN, kernel.NEEDS_RESIZE)

    def _compare(self) -> None:
        """Find as many pairs as the buffer has room for."""
        words, pairs = self._words, self._pairs
        first, count = int(words[kernel.MESSAGE_FIRST]), int(words[kernel.MESSAGE_COUNT])
        store, probes = self.stores[words[kernel.PROBED_STORE]], self.probes(words[kernel.MESSAGE_SIDE])
        assert probes is not None
        scan = store.scanner(probes, slice(first, first + count))
        pairs.count = 0
        pairs.count = scan(self._reach[0, :count], self._reach[1, :count], self._cursor, pairs)
        words[kernel.PAIR_COUNT], words[kernel.PAIRS_HANDED] = pairs.count, 0
        words[kernel.SCAN_FINISHED] = is_done(self._cursor)
        if store.has_bands and not words[kernel.SEEN_NULLS]:
            self._arguments = ()  # from now on, the arguments have locations

    def scan_arguments(self, sides: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The arguments of scans by band kernels, and where their operands lie. `sides`: which side probes each
        store."""
        operands = as_table(
            [store.operands(self.probes(side)) for store, side in zip(self.stores, sides, strict=True)]
        )
        self._call = np.zeros(kernel.CALL_OPERANDS + operands.shape[1], np.int64)
        buffers = (*self._reach, self._cursor, self._pairs.probe, self._pairs.pos)
        self._call[kernel.CALL_STARTS : kernel.CALL_ROOM] = [array.ctypes.data for array in buffers]
        self._call[kernel.CALL_ROOM] = len(self._pairs.probe)
        return self._call, operands


class ScanningNode(ComparingNode):
    """One node: its part of both windows, and the tuples between two states."""

    advance, wait_and_advance = (
        staticmethod(kernel.advance_scanning_node),
        staticmethod(kernel.run_scanning_node),
    )

    def __init__(self, number: int, shared: ChainContext, stages: Sequence[Stage], waiting: int):
        super().__init__(number, shared, stages, waiting, kernel.NODE_WORDS, stages[0].rows.shape[1])
        self._stages = stages
        programs = [shared.plan.programs[side] for side in SIDES]
        fewest = shared.plan.tuning.handshake.fewest_rows
        self._stores = [
            ScannedStore(which, self._words, programs[side], stages[side], fewest)
            for which, side in ((kernel.LEFT_SIDE, 0), (kernel.RIGHT_SIDE, 1), (kernel.FORWARDED_RIGHT, 1))
        ]
        self.windows = dict(zip(SIDES, self._stores, strict=False))

    @property
    def stores(self) -> Sequence[ScannedStore]:
        return self._stores

    def probes(self, side: int) -> Stage:
        return self._stages[side]

    def make_room(self) -> None:
        more, side = int(self._words[kernel.MESSAGE_COUNT]), int(self._words[kernel.MESSAGE_SIDE])
        for store in self._stores[side:] if side else self._stores[:1]:
            store.resize(more)

    def gather(self) -> tuple[Any, ...]:
        columns = as_table([store.places() for store in self._stores])
        call, operands = self.scan_arguments((1, 0, 0))
        return (
            tuple(store.rows for store in self._stores), columns, self._reach, self._pairs.probe, self._pairs.pos,
            self.outbox.ring, call, operands,
        )  # fmt: skip

    def clear(self) -> None:
        for store in self._stores:
            store.rows, store.columns = NO_SCANNED_ROWS, Stored()
        super().clear()
