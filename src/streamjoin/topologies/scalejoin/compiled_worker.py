"""A compiled worker of ScaleJoin, for windows that are scanned and tuples that join at once
(`kernels/concurrent/scalejoin_worker.py`). It calls Python only to make room, and to follow the gate and the shared
rows to new arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamjoin.codegen.prepared import Stored
from streamjoin.codegen.programs import WindowProgram, new_cursor
from streamjoin.index.tuples import ID, TS
from streamjoin.kernels.concurrent import atomics
from streamjoin.kernels.concurrent import scalejoin_worker as kernel
from streamjoin.kernels.concurrent.scanning_node import (
    CALL_OPERANDS,
    CALL_ROOM,
    CALL_STARTS,
    scan_address,
)
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.stamping import INT64_MIN
from streamjoin.plan.physical import Plan
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.pair_ring import PairRing
from streamjoin.topologies.runtime.node import PATIENCE, Bell
from streamjoin.topologies.runtime.placement import usable_cores
from streamjoin.topologies.scalejoin.worker import (
    PIECE_TUPLES,
    ScaleJoinContext,
    SharedRows,
    WorkerProgress,
)

SCAN_PAIRS = 65_536  # A scan stops once it has found this many pairs.
NO_TIMES, NO_FLAGS = np.zeros(0, np.int64), np.zeros(0, np.bool_)
Operand = tuple[int, int, int]


def least_progress(notes: np.ndarray) -> WorkerProgress:
    """What all compiled workers have reached."""
    floors = np.empty(2, np.int64)
    done = int(kernel.least_joined(notes))  # first: the floors are at least as recent
    kernel.least_floors(notes, floors)
    return WorkerProgress(done, done, dict(zip(SIDES, floors.tolist(), strict=True)))


class WorkerRows:
    """What a worker stores of one side. The words hold where the rows begin and end."""

    def __init__(self, number: int, words: np.ndarray, program: WindowProgram, fewest_rows: int):
        self.rows, self.columns = np.zeros((2, 0), np.int64), Stored()
        self._number, self._words, self._program, self._fewest_rows = number, words, program, fewest_rows

    def __len__(self) -> int:
        live = self._live()
        held: int = live.stop - live.start
        return max(0, held)  # the worker may change both between the two reads

    @property
    def nbytes(self) -> int:
        size: int = self.rows.nbytes + sum(column.nbytes for column in self.columns.columns)
        return size

    def ids(self, positions: np.ndarray) -> np.ndarray:
        """The ids of the rows at these positions; 0 is the oldest."""
        ids: np.ndarray = self.rows[kernel.HELD_ID, self._live()][positions]
        return ids

    def _live(self) -> slice:
        return slice(*(int(self._words[word + self._number]) for word in (kernel.HELD_FROM, kernel.HELD_TO)))

    def rehearse(self) -> None:
        scan_address(self._program.shapes)

    def resize(self, more: int, shared: SharedBlock) -> None:
        """Make room for `more` rows: at least twice the rows then held."""
        live = self._live()
        held = live.stop - live.start
        capacity = max(self._fewest_rows, 2 * (held + more))
        rows = np.zeros((2, capacity), np.int64)
        rows[:, :held] = self.rows[:, live]
        columns = [np.zeros(capacity, key.dtype) for key in shared.keys]
        for column, old in zip(columns, self.columns.columns, strict=False):  # at first there are none
            column[:held] = old[live]
        self.rows, self.columns = rows, Stored(tuple(columns))
        self._words[kernel.HELD_FROM + self._number], self._words[kernel.HELD_TO + self._number] = 0, held

    def places(self, shared: SharedBlock) -> list[Operand]:
        """The location of each key: the size of a value, and the addresses among the shared rows and here."""
        return [
            (key.strides[0], key.ctypes.data, held.ctypes.data)
            for key, held in zip(shared.keys, self.columns.columns, strict=False)
        ]

    def operands(self, asking: SharedBlock) -> list[Operand]:
        """The kernel that compares, and the locations of its arguments: keys here, lows and highs among the shared
        rows of the other side. All zero while either side has no rows."""
        keys = self.columns.columns
        if not (keys and asking.has_rows):
            return [(0, 0, 0)]
        bounds = [keys[0][:0] if end is None else end for end in (*asking.lows, *asking.highs)]
        return [
            (0, scan_address(self._program.shapes), 0),
            *((key.strides[0], key.ctypes.data, 0) for key in keys),
            *((end.strides[0] if len(end) else 0, end.ctypes.data, 1) for end in bounds),
        ]


class SharedBlock:
    """The arrays of a side's shared rows at some moment. They stay valid, though the driver may replace them."""

    def __init__(self, shared: SharedRows | None = None):
        self.base, self.has_rows = 0, False
        self.times = self.ids = NO_TIMES
        self.known = self.asks = NO_FLAGS
        self.keys: tuple[np.ndarray, ...] = ()
        self.lows: tuple[np.ndarray | None, ...] = ()
        self.highs: tuple[np.ndarray | None, ...] = ()
        if shared is None or (block := shared.block()) is None:
            return
        self.base, arrays, tuples = block
        assert tuples.stored.known is not None
        self.has_rows = True
        self.times, self.ids, self.keys = arrays[TS], arrays[ID], tuples.stored.columns
        self.known, self.asks = tuples.stored.known, tuples.probing.known
        self.lows, self.highs = tuples.probing.lows, tuples.probing.highs

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.times, self.ids, self.known, self.asks


class CompiledWorker:
    """A worker: its part of both windows, and the words that compiled code works on."""

    def __init__(self, number: int, shared: ScaleJoinContext, plan: Plan):
        self.name, self.number, self._shared = f"scalejoin {number}", number, shared
        self.bell = shared.bell
        self.outbox = PairRing(shared.tuning.compiled_waiting_pairs, self.bell, places=False)
        self._words = words = np.zeros(kernel.WORKER_WORDS, np.int64)
        words[[kernel.OWN_TURN, kernel.ALL_TURNS]] = number, shared.count
        words[kernel.FLOORS : kernel.FLOORS + 2] = INT64_MIN
        mine = (kernel.WORKER_NOTES + number) * atomics.LINE_PAIR + kernel.JOINED_FLOORS
        shared.notes[mine : mine + 2] = INT64_MIN
        words[kernel.SPINS_FIRST] = shared.count < len(usable_cores())  # the driver needs one, too
        self.reach_as_planned()
        self._held = [
            WorkerRows(side, words, plan.programs[name], shared.tuning.fewest_rows)
            for side, name in enumerate(SIDES)
        ]
        self.windows = dict(zip(SIDES, self._held, strict=True))
        self._blocks = [SharedBlock(), SharedBlock()]
        self._piece = np.zeros((2, PIECE_TUPLES), np.int64)
        self._pairs, self._cursor = PairBuffer(SCAN_PAIRS), new_cursor()
        self._reach = np.zeros((2, 2, kernel.MOST_PROBES), np.int64)
        self._arguments: tuple[Any, ...] = ()

    def reach_as_planned(self) -> None:
        """Let tuples meet those in their windows."""
        sizes = [self._shared.spec.side_window(side).size for side in SIDES]
        self._words[kernel.WINDOW_SIZES : kernel.WINDOW_SIZES + 2] = sizes

    def reach_nothing(self) -> None:
        """Store tuples, and compare none: windows fill faster."""
        self._words[kernel.WINDOW_SIZES : kernel.WINDOW_SIZES + 2] = -(2**62)

    def __str__(self) -> str:
        held = ", ".join(f"{len(self.windows[side])} {side}" for side in SIDES)
        return f"{self._joined} done, holds {held}, {self.outbox.rows} pairs wait"

    @property
    def comparisons(self) -> int:
        return int(self._words[kernel.PAIRS_COMPARED])

    @property
    def _joined(self) -> int:
        line = (kernel.WORKER_NOTES + self.number) * atomics.LINE_PAIR
        return int(self._shared.notes[line + kernel.JOINED])

    def step(self, most: int) -> bool:
        busy = False
        self._words[[kernel.CHUNKS_LEFT, kernel.ENTRIES_MOST]] = 1, most
        while True:
            why, did = kernel.advance_scalejoin_worker(*self._gathered())
            busy |= bool(did)
            if not self._help(why):
                return busy

    def work(self) -> None:
        self._words[kernel.ENTRIES_MOST] = PIECE_TUPLES
        while self._help(kernel.run_scalejoin_worker(self.bell.words, PATIENCE, self._gathered())):
            if self.bell.stopped:
                break

    def rehearse(self) -> None:
        """Compile the code that a thread will run, or load it from the cache."""
        stopped = Bell()
        stopped.stop()
        for held in self._held:
            held.rehearse()
        kernel.run_scalejoin_worker(stopped.words, 0, self._gathered())
        notes = self._shared.notes.copy()
        least_progress(notes)
        kernel.note_wanted(notes, 0)

    def _help(self, why: int) -> bool:
        """Do what compiled code asks for, and return whether it asked."""
        if why < kernel.NEEDS_GATE:
            return False
        if why == kernel.NEEDS_ROWS:
            self._follow_rows()
        elif why == kernel.NEEDS_STORE:
            for held, block in zip(self._held, self._blocks, strict=True):
                held.resize(PIECE_TUPLES, block)
        self._arguments = ()
        return True

    def _follow_rows(self) -> None:
        for side, name in enumerate(SIDES):
            # The version first: the arrays are at least as new.
            version = atomics.read(self._shared.notes, side * atomics.LINE_PAIR)
            block = self._blocks[side] = SharedBlock(self._shared.rows[name])
            self._words[kernel.ROWS_VERSION + side] = version
            self._words[kernel.ROWS_BASE + side] = block.base
            if len(self._held[side].columns.columns) < len(block.keys):  # these are the side's first rows
                self._held[side].resize(0, block)

    def _gathered(self) -> tuple[Any, ...]:
        if not self._arguments:
            shared = self._shared
            columns = padded_table(
                [held.places(block) for held, block in zip(self._held, self._blocks, strict=True)]
            )
            operands = padded_table(
                [held.operands(block) for held, block in zip(self._held[::-1], self._blocks, strict=True)]
            )
            self._arguments = (
                self._words, *shared.gate.current, shared.gate.table, self._piece, shared.notes, shared.driver.words,
                tuple(block.arrays() for block in self._blocks), tuple(held.rows for held in self._held), columns,
                self._reach, self._pairs.probe, self._pairs.pos, self.outbox.ring, self._calls(operands), operands,
            )  # fmt: skip
        return self._arguments

    def _calls(self, operands: np.ndarray) -> np.ndarray:
        """The arguments of the scans by left and by right tuples, without those that differ from scan to scan."""
        calls = np.zeros((2, CALL_OPERANDS + operands.shape[1]), np.int64)
        for call, reach in zip(calls, self._reach, strict=True):
            buffers = (*reach, self._cursor, self._pairs.probe, self._pairs.pos)
            call[CALL_STARTS:CALL_ROOM] = [array.ctypes.data for array in buffers]
            call[CALL_ROOM] = len(self._pairs.probe)
        return calls

    def clear(self) -> None:
        """Drop all tuples. Call this when no thread steps the worker any more."""
        self._words[kernel.HELD_FROM : kernel.SCANNED_FROM] = 0
        for held in self._held:
            held.rows, held.columns = np.zeros((2, 0), np.int64), Stored()
        self._arguments = ()


def padded_table(lists: list[list[Operand]]) -> np.ndarray:
    """An array with a row for each triple of each list, padded with zeros."""
    table = np.zeros((len(lists), max(1, *map(len, lists)), 3), np.int64)
    for lines, triples in zip(table, lists, strict=True):
        lines[: len(triples)] = np.array(triples, np.int64).reshape(-1, 3)
    return table
