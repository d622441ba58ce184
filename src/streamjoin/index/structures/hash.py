"""The hash subwindow: finds tuples by equality of one key, in a few cache lines a probe.

Its memory grows with the tuples held, not with the capacity: the table starts with few lines and doubles, up to the
size for as many distinct keys as the capacity. If the keys are themselves hashes (of strings, of several columns:
`kernels.hashing.combine`), it finds candidates, and the code that made the hashes compares the columns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamjoin.index.window import KEY_DTYPES, Subwindow
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.hash import tables as hashing
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.errors import IndexNotApplicableError, InputError

MOST_TUPLES = 2**29  # slots are 32-bit, as are places of the pool, which has up to four times as many
GOOD_LOAD = 0.6  # a table of this load is probed nearly as fast as an emptier one
FULL_LOAD = 0.75  # above this load, too many keys overflow into further lines
SMALLEST_LINES, SMALLEST_TAIL = 4, 4  # home lines, and lines behind the last home
SMALLEST_POOL = 64
WORTH_PACKING = 1.2  # pack if the memory is at least this many times the packed size


class HashSubwindow:
    """Consecutive tuples of a window, found by equality; `index.window.Subwindow` defines the contract.

    A tuple with a new key costs 16 bytes of table at loads of 0.375 to 0.75; a tuple with a known key costs 4 to 16
    bytes. Keys are int32, int64, float32 or float64.
    """

    def __init__(self, capacity: int, dtype: np.dtype, predecessor: Subwindow | None = None):
        self.dtype = np.dtype(dtype)
        if self.dtype.name not in KEY_DTYPES:
            raise IndexNotApplicableError(
                f"hash keys are {', '.join(KEY_DTYPES)}, not {self.dtype}",
                field="dtype",
                given=self.dtype.name,
                allowed=KEY_DTYPES,
            )
        if not 0 < capacity <= MOST_TUPLES:
            raise InputError(
                f"a hash subwindow holds 1 to {MOST_TUPLES:,} tuples, not {capacity:,}",
                field="capacity",
                given=capacity,
                allowed=f"1 to {MOST_TUPLES:,}",
            )
        self.capacity, self._sealed = capacity, False
        # How often the table for the full capacity can be halved; growth by doubling then arrives at exactly that
        # size.
        self._halvings = max(0, (_lines_for(capacity) // SMALLEST_LINES).bit_length() - 1)
        self._lines, self._tail = self._lines_after(self._halvings), SMALLEST_TAIL
        self._table = _lines_of_memory(self._lines + self._tail)
        self._table[:] = 0
        self._pool = np.zeros(SMALLEST_POOL, np.int32)
        self._counters = np.zeros(hashing.COUNTER_WORDS, np.int64)
        self._counters[[hashing.LAST_SLOT, *range(hashing.LEFT_BEHIND, hashing.COUNTER_WORDS)]] = -1
        self.parts = np.zeros((1, hashing.PART_WORDS), np.int64)
        self._note_addresses()

    def __len__(self) -> int:
        return int(self._counters[hashing.TUPLE_COUNT])

    @property
    def distinct(self) -> int:
        """The number of different keys held, without NaN."""
        return int(self._counters[hashing.DISTINCT_KEYS])

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._pool.nbytes + self._counters.nbytes

    def insert(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Add tuples with ascending slots; O(1) a tuple, amortised. A NaN key matches nothing."""
        self._check(keys)
        if self._sealed:
            raise InputError(f"a sealed subwindow takes no tuples; given: {len(keys):,}")
        before, done = len(self), 0
        while True:
            most = int(self._lines * hashing.WAYS * FULL_LOAD)
            room = self._table, self._lines, most, self._pool, self._counters
            outcome = hashing.insert_in_table(keys, slots, done, *room)
            if outcome >= 0:
                return
            if outcome == hashing.FALLING_SLOT:
                last = self._counters[hashing.LAST_SLOT]
                raise InputError(
                    f"slots must ascend, but {slots[done:]} follow {last}",
                    field="slots",
                    given=int(slots[done]),
                    allowed=f"above {last}",
                )
            self._make_room(outcome)
            done = len(self) - before

    def seal(self) -> None:
        """Give unused memory back, if that is worth a rebuild; O(tuples).

        This does not change the speed of probes: the tuples of a key are always contiguous.
        """
        self._sealed = True
        lines, places = _lines_for(self.distinct), hashing.pooled(self._table) + hashing.COPY_OVERSHOOT
        packed_size = (lines + self._tail) * hashing.LINE_WORDS * 8 + places * 4
        if self.nbytes > WORTH_PACKING * packed_size:
            self._rebuild(lines, np.zeros(places, np.int32))

    def probe(
        self, lows: np.ndarray, highs: np.ndarray, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        """Append a pair (probe, slot) for each probe i and tuple with key == lows[i] == highs[i] and start[i] <= slot
        < stop[i]; slots ascend for each probe. O(probes + pairs).

        Yields the count before each stretch of pairs. Raises `IndexNotApplicableError` for an interval of more than
        one number. An empty interval (low > high, or NaN) matches nothing.
        """
        self._check(lows)
        check_equalities(lows, highs)
        contiguous = np.ascontiguousarray
        return self._pairs(contiguous(lows), contiguous(highs), contiguous(start), contiguous(stop), pairs)

    def _pairs(
        self, lows: np.ndarray, highs: np.ndarray, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        cursor = np.zeros(CURSOR_SIZE, np.int64)
        probes = lows, highs, start, stop, self._table, self._lines, self._pool, cursor
        while cursor[0] != DONE:
            pairs.reserve(hashing.MIN_TABLE_ROOM)
            before = pairs.count
            pairs.count = hashing.probe_table(*probes, pairs.probe, pairs.pos, before)
            if pairs.count > before:
                yield before

    @staticmethod
    def probe_all(
        parts: np.ndarray,
        gone: int,
        lows: np.ndarray,
        highs: np.ndarray,
        start: np.ndarray,
        stop: np.ndarray,
        pairs: PairBuffer,
    ) -> Iterator[int]:
        """As `Subwindow.probe_all`."""
        check_equalities(lows, highs)
        cursor = np.zeros(CURSOR_SIZE, np.int64)
        while cursor[0] != DONE:
            pairs.reserve(hashing.MIN_TABLE_ROOM)
            before = pairs.count
            pairs.count = hashing.probe_all_tables(
                parts, gone, lows, highs, start, stop, cursor, pairs.probe, pairs.pos, before
            )
            if pairs.count > before:
                yield before

    def _check(self, keys: np.ndarray) -> None:
        if keys.dtype != self.dtype:
            raise InputError(
                f"keys of this subwindow are {self.dtype}, not {keys.dtype}",
                field="keys",
                given=str(keys.dtype),
                allowed=str(self.dtype),
            )

    def _make_room(self, reason: int) -> None:
        if reason == hashing.POOL_FULL:
            grown = np.empty(2 * len(self._pool), np.int32)
            grown[: len(self._pool)] = self._pool
            self._pool = grown
            self._note_addresses()
        elif reason == hashing.TAIL_FULL:
            self._tail *= 2
            self._rebuild(self._lines)
        else:
            self._halvings -= 1
            self._rebuild(self._lines_after(self._halvings))

    def _lines_after(self, halvings: int) -> int:
        return -int(-_lines_for(self.capacity) // 2.0**halvings)

    def _rebuild(self, lines: int, pool: np.ndarray | None = None) -> None:
        """Move to a table of `lines` lines, and, if one is given, to a packed pool."""
        packed, target = pool is not None, self._pool if pool is None else pool
        while True:
            table = _lines_of_memory(lines + self._tail)
            if hashing.rebuild(self._table, self._pool, table, lines, target, packed):
                break
            self._tail *= 2
        self._table, self._lines, self._pool = table, lines, target
        self._note_addresses()

    def _note_addresses(self) -> None:
        """Bring `parts` up to date after the table or the pool was replaced."""
        row = self.parts[0]
        row[hashing.PART_TABLE], row[hashing.PART_POOL] = self._table.ctypes.data, self._pool.ctypes.data
        row[hashing.PART_LINES] = self._lines


def check_equalities(lows: np.ndarray, highs: np.ndarray) -> None:
    """Raise if an interval has room for two different keys."""
    if lows is not highs and not hashing.all_equalities(lows, highs):
        wide = int(np.flatnonzero(lows < highs)[0])
        raise IndexNotApplicableError(
            f"a hash index finds equal keys only; probe {wide} asks for {lows[wide]} to {highs[wide]}",
            field="highs",
            given=highs[wide],
            allowed=f"{lows[wide]}, as in lows",
        )


def _lines_for(keys: int) -> int:
    """The number of lines at a good load."""
    return max(1, int(keys / (hashing.WAYS * GOOD_LOAD)) + 1)


def _lines_of_memory(lines: int) -> np.ndarray:
    """Uninitialised lines, each within one cache line."""
    size = hashing.LINE_WORDS * lines
    memory = np.empty(size + hashing.LINE_WORDS, np.int64)
    skipped = -(memory.ctypes.data // 8) % hashing.LINE_WORDS
    return memory[skipped : skipped + size]
