"""A node of low-latency handshake join whose windows are scanned: the protocol runs as compiled code, without the GIL
(`kernels/expedition.py`); Python is asked only to start a scan, and to make room.

Messages between nodes are records in lock-free rings. Rows stay where the driver has staged them while they are on
their way; nodes copy what rests with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamjoin.codegen.programs import WindowProgram, is_done, new_cursor
from streamjoin.index.scan import ScanWindow
from streamjoin.kernels import expedition as kernel
from streamjoin.kernels import queue
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.runtime.node import PATIENCE, Bell, rehearse_channels
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.chain_node import Arrival, Message, Shared
from streamjoin.topologies.matching import Found

WAITING_PAIRS = 65_536  # of one node, before it stops for the collector
SMALLEST = 1024  # rows of a store
NOTHING_STORED = np.zeros((4, 1), np.int64)


class Stage:
    """Rows of one side's arrivals while they are on their way; the driver writes, nodes read. As many arrivals as the
    driver lets in have room."""

    def __init__(self, arrivals: int, most: int):
        self.rows = np.zeros((4, arrivals * most), np.int64)
        self.stored: dict[str, np.ndarray] = {}
        self.probing: dict[str, np.ndarray] = {}
        self.nulls = False
        self._most, self._at = most, 0

    def write(self, arrival: Any) -> int:
        """Stage an arrival; the number of its first row."""
        tuples, first = arrival.tuples, self._at
        self._at = (first + self._most) % self.rows.shape[1]
        here = slice(first, first + len(tuples))
        stamps = (tuples.ts, tuples.probing["since"], tuples.id, arrival.home)
        for row, values in zip(self.rows, stamps, strict=True):
            row[here] = values
        if not self.probing:  # each dictionary whole at once: nodes may be looking
            self.stored, self.probing = self._columns_like(tuples.stored), self._columns_like(tuples.probing)
        for staged, given in ((self.stored, tuples.stored), (self.probing, tuples.probing)):
            for name, values in given.items():
                staged[name][here] = values
        self.nulls |= tuples.nulls
        return first

    def _columns_like(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        count = self.rows.shape[1]
        return {name: np.zeros((count, *values.shape[1:]), values.dtype) for name, values in given.items()}


class Records:
    """A bounded queue of messages as records to a node, from the driver or another node. Only the driver's end is in
    Python."""

    def __init__(self, name: str, capacity: int, consumer: Bell, stage: Stage):
        self.name = name
        self.watch: Callable[[str], None] | None = None
        self.ring = queue.new_ring(capacity, kernel.MESSAGE)
        self._consumer, self._stage = consumer, stage
        self._record = np.zeros(kernel.MESSAGE, np.int64)

    def put(self, message: Message) -> None:
        """Stage a driver's message and send it; there must be room."""
        kind, first, count, nulls = kernel.PROGRESS, 0, 0, False
        if isinstance(message, Arrival):
            tuples = message.tuples
            kind, first, count, nulls = kernel.ARRIVAL, self._stage.write(message), len(tuples), tuples.nulls
        self._record[:] = kind, message.number, message.expired, first, count, nulls
        queue.put(self.ring, self._record)
        if self.watch is not None:
            self.watch(f"{self.name} <- {message}")
        self._consumer.ring()

    def __len__(self) -> int:
        return int(queue.waiting(self.ring))

    @property
    def has_room(self) -> bool:
        return bool(queue.has_room(self.ring, kernel.MESSAGE))


class PairRing:
    """Pairs of one node that wait for the driver."""

    def __init__(self, most: int, node: Bell):
        self.ring = queue.new_ring(most, 4)
        self._node = node
        kernel.take_pairs(self.ring, np.empty((4, 0), np.int64))  # compiled now, not when results wait

    @property
    def rows(self) -> int:
        return int(queue.waiting(self.ring))

    def take(self) -> Found | None:
        """What waits, or None. The driver's."""
        count = self.rows
        if not count:
            return None
        pairs = np.empty((4, count), np.int64)
        if kernel.take_pairs(self.ring, pairs):
            self._node.ring()
        return Found(dict(zip(SIDES, pairs[:2], strict=True)), dict(zip(SIDES, pairs[2:], strict=True)))


class Store:
    """Rows that rest on a node, and how probes are compared with them. The words say where they begin and end."""

    def __init__(self, number: int, words: np.ndarray, program: WindowProgram, stage: Stage):
        self.rows = NOTHING_STORED
        self.columns: dict[str, np.ndarray] = {}
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

    def __getitem__(self, name: str) -> np.ndarray:
        return self.rows[{"ts": kernel.PLACE, "id": kernel.ID}[name], self._live()]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in [self.rows, *self.columns.values()])

    def _ends(self) -> tuple[int, int]:
        return int(self._words[kernel.BEGIN + self._number]), int(self._words[kernel.VISIBLE + self._number])

    def _live(self) -> slice:
        return slice(*self._ends())

    def scanner(self, probes: Stage, chosen: slice) -> Callable[..., int]:
        """The scan of what can be found by some staged rows."""
        live = self._live()
        window = {name: column[live] for name, column in self.columns.items()}
        probing = {name: column[chosen] for name, column in probes.probing.items()}
        nulls = self.stage.nulls or probes.nulls
        scan = self._program.scanner(window, probing, nulls)
        if not nulls:
            return scan

        def scan_with_nulls(start: Any, stop: Any, cursor: Any, pairs: PairBuffer) -> int:
            pairs.count = scan(start, stop, cursor, pairs)
            known = probing["probe_ok"][pairs.probe[: pairs.count]]
            if "key_ok" in window:
                known &= window["key_ok"][pairs.pos[: pairs.count]]
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
        columns = {
            name: np.zeros((capacity, *column.shape[1:]), column.dtype)
            for name, column in self.stage.stored.items()
        }
        for name, column in self.columns.items():
            columns[name][: end - begin] = column[held]
        self.rows, self.columns = rows, columns
        words[[which + number for which in (kernel.BEGIN, kernel.VISIBLE, kernel.END)]] -= begin

    def places(self) -> list[tuple[int, int, int]]:
        """Where the columns are: the size of a value, and its address on the stage and here."""
        return [
            (column.strides[0], self.stage.stored[name].ctypes.data, column.ctypes.data)
            for name, column in self.columns.items()
        ]

    def operands(self, probes: Stage) -> list[tuple[int, int, int]]:
        """The kernel that compares, and where its arguments are: keys here, lows and highs on the stage of the probes.
        Nothing while there is nothing to point at."""
        program = self._program
        if not (self.has_bands and self.columns and probes.probing):
            return [(0, 0, 0)]
        keys = [self.columns[f"key{number}"] for number in range(len(program.keys.keys))]
        bands = range(len(program.bounds.bands))
        bounds = [
            probes.probing.get(f"{end}{band}", keys[0][:0]) for end in ("low", "high") for band in bands
        ]
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


class ScanningNode:
    """One node: its part of both windows, and what is between two states."""

    def __init__(self, number: int, shared: Shared, stages: Sequence[Stage], waiting: int):
        self.name, self.number = f"node {number}", number
        self.bell = Bell()
        self.outbox = PairRing(WAITING_PAIRS, self.bell)
        self.inlets: dict[str, Records] = {}
        self.outlets: dict[str, Records] = {}
        self._stages, self._shared = stages, shared
        self._bells = dict.fromkeys(SIDES, shared.bell)  # of who sends on the way of a side
        self._unsent = [queue.new_ring(waiting, kernel.MESSAGE) for _ in SIDES]
        self._words = np.zeros(kernel.WORDS, np.int64)
        self._words[[kernel.NODE, kernel.LAST]] = number, shared.count - 1
        programs = [
            window.program for window in map(shared.make_window, SIDES) if isinstance(window, ScanWindow)
        ]
        self._stores = [
            Store(which, self._words, programs[side], stages[side])
            for which, side in ((kernel.LEFT, 0), (kernel.RIGHT, 1), (kernel.FORWARDED, 1))
        ]
        self.windows = dict(zip(SIDES, self._stores, strict=False))
        self._pairs, self._cursor = PairBuffer(WAITING_PAIRS), new_cursor()
        self._reach = np.zeros((2, stages[0].rows.shape[1]), np.int64)
        self._arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        message = self._words[: kernel.MESSAGE].tolist()
        held = ", ".join(f"{len(store)} {side}" for side, store in self.windows.items())
        return f"was at {message} from {SIDES[self._words[kernel.SIDE]]}; holds {held}, {self.outbox.rows} pairs wait"

    @property
    def comparisons(self) -> int:
        return int(self._words[kernel.COMPARED])

    def inlet(self, side: str, name: str, capacity: int, producer: Bell) -> Records:
        """Make the channel to this node on the way of a side."""
        self._bells[side] = producer
        self.inlets[side] = Records(
            f"{name} to {self.name}", capacity, self.bell, self._stages[SIDES.index(side)]
        )
        return self.inlets[side]

    def step(self, most: int) -> bool:
        busy = False
        self._words[kernel.MOST] = most
        while True:
            why, did = kernel.advance(*self._gathered())
            busy |= bool(did)
            if not self._help(why):
                return busy

    def work(self) -> None:
        while self._help(kernel.work(self.bell.words, PATIENCE, self._gathered())) and not self.bell.stopped:
            pass

    def rehearse(self) -> None:
        rehearse_channels()
        stopped = Bell()
        stopped.stop()
        kernel.work(stopped.words, 0, self._gathered())
        queue.has_room(self._unsent[0], kernel.MESSAGE)
        for store in self._stores:
            store.rehearse()

    def _help(self, why: int) -> bool:
        """Do what compiled code asks for, if it does."""
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

    def _gathered(self) -> tuple[Any, ...]:
        """All that the compiled code works on."""
        if not self._arguments:
            self._gather()
        return self._arguments

    def _gather(self) -> None:
        stages = self._stages
        columns = as_table([store.places() for store in self._stores])
        operands = as_table(
            [store.operands(stages[1 - side]) for store, side in zip(self._stores, (0, 1, 1), strict=True)]
        )
        self._call = np.zeros(kernel.OPERANDS + operands.shape[1], np.int64)
        buffers = (*self._reach, self._cursor, self._pairs.probe, self._pairs.pos)
        self._call[kernel.STARTS : kernel.ROOM] = [array.ctypes.data for array in buffers]
        self._call[kernel.ROOM] = len(self._pairs.probe)
        nowhere = queue.new_ring(1, kernel.MESSAGE)
        rings = [self.inlets[side].ring for side in SIDES]
        rings += [self.outlets[side].ring if side in self.outlets else nowhere for side in SIDES]
        bells = [self._bells[side].words for side in SIDES]
        self._arguments = (
            self._words, (*rings, *self._unsent), (*bells, self._shared.bell.words, self._shared.found.words),
            self._shared.marks.words,
            tuple(stage.rows for stage in stages), tuple(store.rows for store in self._stores),
            columns, self._reach, self._pairs.probe, self._pairs.pos, self.outbox.ring, self._call, operands,
        )  # fmt: skip

    def clear(self) -> None:
        """Let go of all tuples; nobody steps any more."""
        for store in self._stores:
            store.rows, store.columns = NOTHING_STORED, {}
        self._words[kernel.BEGIN :] = 0
        self._arguments = ()
