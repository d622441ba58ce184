"""Columns that slide: rows are added at the end, dropped at the front, and always contiguous in memory.

A kernel can scan the live rows of a column as one array. Every row is moved at most a constant number of times on
average, and memory stays within a constant factor of the live rows.

`RowColumns` holds, once, the data that pushed rows and their window share: event times, and keys that are unchanged
columns. The store of the side's rows owns it. Only the store appends; it drops a row once neither the window nor a
waiting result needs the row. A window reads the columns by row number, while its tuples are consecutive rows, and
never after it has dropped a tuple. Both happen in the thread that drives the join. Another thread that builds result
rows meanwhile registers in `readers`; until it has finished, rows that it may see are not moved.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Sequence

import numpy as np

from streamjoin.codegen.prepared import Stored
from streamjoin.index.tuples import FIRST_KEY, ID, NO_TUPLES, SOURCE, TS, Layout, Mark, ProbingTuples, Tuples
from streamjoin.kernels.scan.check import goes_on

SMALLEST = 1_024  # rows that the smallest memory has room for
# Memory for at most this many rows is never given back: pushes fill and empty it again and again.
KEPT_ROWS = 16_384
BORROWED = 1_024  # tuples that are worth borrowing instead of copying
LARGE = 1 << 22  # a column of at least this many bytes gets pages of its own
MOVED_AT_ONCE = 1 << 20  # rows moved before their old memory is given back


def room_for(rows: int, like: np.ndarray, large: int) -> tuple[np.ndarray, mmap.mmap | None]:
    """Uninitialised rows of the same kind; for large columns, also the separate memory that holds them."""
    shape = (rows, *like.shape[1:])
    size = rows * like.itemsize * math.prod(like.shape[1:])
    if size < large or not hasattr(mmap, "MADV_DONTNEED"):
        return np.empty(shape, like.dtype), None
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # the system has no huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, like.dtype).reshape(shape), memory


class SlidingColumns:
    """Aligned arrays of which rows `begin` to `end` are live. Rows before `kept` have no memory any more. A column
    may be absent (None) if its owner can derive its values."""

    def __init__(self, large: int = LARGE, moved_at_once: int = MOVED_AT_ONCE) -> None:
        self._large, self._moved_at_once = large, moved_at_once
        self._arrays: list[np.ndarray | None] = []
        self._memory: list[mmap.mmap | None] = []
        self._begin = self._end = self._capacity = self._kept = 0
        self._moves = 0  # how often rows or columns have got other places in memory

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, position: int) -> np.ndarray:
        """The live rows of one column, which must be present; valid until the next change."""
        array = self._arrays[position]
        assert array is not None
        return array[self._begin : self._end]

    def live(self) -> list[np.ndarray]:
        """The live rows of every present column; valid until the next change."""
        return [array[self._begin : self._end] for array in self._arrays if array is not None]

    @property
    def nbytes(self) -> int:
        """Memory allocated and not given back; of large columns, only the part used so far."""
        used = slice(self._kept, self._end)
        columns = zip(self._arrays, self._memory, strict=False)  # another thread may call this meanwhile
        return sum((a if memory is None else a[used]).nbytes for a, memory in list(columns) if a is not None)

    def append(self, rows: Sequence[np.ndarray | None], count: int | None = None) -> None:
        """Add `count` rows at the end, None for absent columns; O(rows) amortised."""
        if count is None:
            count = next(len(values) for values in rows if values is not None)
        if self._end + count > self._capacity or len(self._arrays) < len(rows):
            self._reserve(rows, count)
        begin, end = self._end, self._end + count
        for array, values in zip(self._arrays, rows, strict=True):
            if array is not None:
                array[begin:end] = values
        self._end = end

    def merge(self, rows: Sequence[np.ndarray], last: int, order: np.ndarray) -> None:
        """Add rows and rearrange them together with the `last` live rows: `order` permutes (last rows, new rows)."""
        self.append(rows)
        low, high = self._end - last - len(rows[0]), self._end
        for array in self._arrays:
            assert array is not None
            array[low:high] = array[low:high][order]

    def drop(self, count: int) -> None:
        """Remove rows at the front and give memory back when little is left; O(1) amortised."""
        self._begin += count
        if self._capacity > KEPT_ROWS and self._end - self._begin < self._capacity // 8:
            self._move(max(SMALLEST, 2 * len(self)))

    def forget_dropped(self) -> None:
        """Give back the memory of dropped rows, where they fill whole pages of large columns. Views of those rows
        become invalid."""
        for position in range(len(self._arrays)):
            self._give_back(position, self._kept, self._begin)
        self._kept = self._begin

    def add_column(self, position: int, values: np.ndarray) -> None:
        """Add the values of a column that was absent."""
        array, self._memory[position] = room_for(self._capacity, values, self._large)
        array[self._begin : self._end] = values
        self._arrays[position] = array

    def remove_column(self, position: int) -> None:
        self._arrays[position] = self._memory[position] = None

    def _reserve(self, rows: Sequence[np.ndarray | None], count: int) -> None:
        if len(self._arrays) < len(rows):
            self._make_columns(rows)
        needed = len(self) + count
        if self._end + count <= self._capacity:
            return
        # Since the last move, at least as many rows have arrived as move now.
        if needed <= self._capacity // 2 and self._movable:
            for position, array in enumerate(self._arrays):
                if array is not None:
                    self._move_rows(position, array)
            self._begin, self._end, self._kept, self._moves = 0, len(self), 0, self._moves + 1
        else:
            self._move(max(SMALLEST, 2 * needed))

    def _make_columns(self, rows: Sequence[np.ndarray | None]) -> None:
        self._moves += 1
        for values in rows[len(self._arrays) :]:
            made = (None, None) if values is None else room_for(self._capacity, values, self._large)
            self._arrays.append(made[0])
            self._memory.append(made[1])

    @property
    def _movable(self) -> bool:
        """Whether memory of moved rows can be reused."""
        return True

    def _move(self, capacity: int) -> None:
        for position, array in enumerate(self._arrays):
            if array is not None:
                moved, memory = room_for(capacity, array, self._large)
                self._move_rows(position, moved)
                self._arrays[position], self._memory[position] = moved, memory
        self._begin, self._end, self._capacity, self._kept = 0, len(self), capacity, 0
        self._moves += 1

    def _move_rows(self, position: int, to: np.ndarray) -> None:
        """Copy the live rows of a column to the front of an array. Gives their old memory back piece by piece, so
        that a large column never exists twice."""
        array = self._arrays[position]
        assert array is not None
        for first in range(self._begin, self._end, self._moved_at_once):
            last = min(first + self._moved_at_once, self._end)
            to[first - self._begin : last - self._begin] = array[first:last]
            if self._movable:
                self._give_back(position, first, last)

    def _give_back(self, position: int, first: int, last: int) -> None:
        """Give whole pages back to the system. These rows are written before they are read again."""
        memory, array = self._memory[position], self._arrays[position]
        if memory is not None and array is not None:
            width = array.strides[0]
            start = -(-first * width // mmap.PAGESIZE) * mmap.PAGESIZE
            size = last * width // mmap.PAGESIZE * mmap.PAGESIZE - start
            if size > 0:
                memory.madvise(mmap.MADV_DONTNEED, start, size)


class RowColumns(SlidingColumns):
    """Columns of the rows numbered `first` to `end` - 1, without NULLs. `shared`: which columns of a tuple these are,
    as positions in `Layout.flat`."""

    def __init__(self, shared: Sequence[int], large: int = LARGE) -> None:
        super().__init__(large)
        self.shared = tuple(shared)
        self.first = 0
        self.readers = 0  # threads that are reading rows
        self.ended = False  # no more rows will come; a reader that has copied its data drops its reference
        self._origins, self._moves_then = np.empty(0, np.int64), -1

    @property
    def end(self) -> int:
        return self.first + len(self)

    def holds(self, first: int, end: int) -> bool:
        """Whether it holds all rows numbered first..end-1."""
        return self.first <= first and end <= self.first + self._end - self._begin

    @property
    def _movable(self) -> bool:
        return not self.readers

    def between(self, shared: int, first: int, end: int) -> np.ndarray:
        """The column at position `shared` of a tuple, for the rows numbered first..end-1, which must be present;
        valid until the next change."""
        return self.column(self.shared.index(shared), first, end)

    def column(self, number: int, first: int, end: int) -> np.ndarray:
        """As `between`, for a column by its number. Columns after the shared ones are read by result rows only."""
        start, array = self._begin - self.first, self._arrays[number]
        assert array is not None
        return array[start + first : start + end]

    def memory(self) -> tuple[list[np.ndarray | None], np.ndarray]:
        """The arrays of all columns, and for each the address that row number 0 would have. Valid until the next
        change."""
        if self._moves_then != self._moves:
            start = self._begin - self.first
            self._origins = np.array(
                [0 if a is None else a.ctypes.data + start * a.itemsize for a in self._arrays], np.int64
            )
            self._moves_then = self._moves
        return self._arrays.copy(), self._origins

    def cut_off(self, number: int) -> list[np.ndarray]:
        """Remove the columns from this number on; copies of their live rows. Readers keep what they see."""
        values = [each.copy() for each in self.live()[number:]]
        del self._arrays[number:], self._memory[number:]
        self._moves += 1
        return values

    def drop(self, count: int) -> None:
        super().drop(count)
        self.first += count
        self.forget_dropped()


MOST_HELD = 2**31 - 1  # the limit of a window: positions are 32-bit


def check_room(held: int, more: int, most: int = MOST_HELD) -> None:
    """Raise if a window would hold more tuples than 32-bit positions can number."""
    if held + more > most:
        raise MemoryError(f"a window can hold {most:,} tuples; narrow it, or let the slower stream catch up")


class ArrivedTuples(SlidingColumns):
    """Tuples in order of arrival. Values that follow from the position take no memory: ids while they are
    consecutive, the source while there is only one, `known` while no key is NULL, and the data in `rows` while the
    tuples are consecutive rows."""

    def __init__(self, rows: RowColumns | None = None) -> None:
        super().__init__()
        self._rows = RowColumns(()) if rows is None else rows
        self._layout: Layout | None = None
        self._known = FIRST_KEY  # the position of the `known` column
        # The value of the first tuple, by position of the column; 0 for columns in `rows`.
        self._implied: dict[int, int] = {ID: 0}

    def _imply(self, tuples: Tuples) -> None:
        """Start again with no tuples."""
        first, count = int(tuples.id[0]), len(tuples)
        if self._layout is None:
            self._layout = Layout.of(tuples, with_probing=False)
            self._known = FIRST_KEY + len(tuples.stored.columns)
            self.append([array[:0] for array in self._layout.flat(tuples)])
        shared = self._rows.shared if self._rows.holds(first, first + count) else ()
        self._implied = dict.fromkeys(shared, 0) | {ID: first, SOURCE: int(tuples.source[0]), self._known: 1}
        for position in self._implied:
            self.remove_column(position)
        for position, array in enumerate(self._arrays):
            if array is None and position not in self._implied:
                self.add_column(position, self._layout.flat(tuples)[position][:0])

    def add(self, tuples: Tuples) -> None:
        """Add tuples that arrived after those held. Raises if there would be too many."""
        count, length = len(tuples.ts), self._end - self._begin
        check_room(length, count)
        if not length:
            self._imply(tuples)
        assert self._layout is not None
        rows: list[np.ndarray | None] = [*self._layout.flat(tuples)]
        implied = self._implied
        next_id = implied.get(ID, 0) + length
        counted, same = goes_on(tuples.id, tuples.source, next_id, implied.get(SOURCE, 0))
        held = counted and self._rows.holds(next_id, next_id + count)
        holds = {ID: counted, SOURCE: same, self._known: not tuples.nulls or tuples.stored.all_known()}
        for position in [*implied]:
            if holds.get(position, held):
                rows[position] = None
            else:  # ids come last in this loop: the columns in `rows` are found by id
                values = rows[position]
                assert values is not None
                self.add_column(position, self._written_out(position).astype(values.dtype, copy=False))
                del implied[position]
        if self._rows.ended and implied.keys().isdisjoint(self._rows.shared):
            self._rows = RowColumns(())
        self.append(rows, count)

    def _written_out(self, position: int) -> np.ndarray:
        first = self._implied.get(ID, 0)
        if position == ID:
            return np.arange(first, first + len(self))
        if position in self._rows.shared:
            return self._rows.between(position, first, first + len(self))
        kind = np.dtype(np.bool_ if position == self._known else np.int32)
        return np.broadcast_to(kind.type(self._implied[position]), len(self))

    def __getitem__(self, position: int) -> np.ndarray:
        """As for all columns; O(tuples) for values that are not stored."""
        if position in self._implied:
            return self._written_out(position)
        return super().__getitem__(position)

    @property
    def ts(self) -> np.ndarray:
        return self[TS] if self._layout is not None else np.empty(0, np.int64)

    def mark(self, name: Mark) -> np.ndarray:
        assert self._layout is not None
        return self[self._known + 1 + self._layout.marks.index(name)]

    def ids(self, positions: np.ndarray) -> np.ndarray:
        """The ids of the tuples at these positions."""
        if ID in self._implied:
            counted: np.ndarray = np.add(positions, self._implied[ID], dtype=np.int64)
            return counted
        ids: np.ndarray = super().__getitem__(ID)[positions]
        return ids

    def oldest_id(self) -> int:
        """The least id of all tuples; O(1) while ids are consecutive."""
        return self._implied[ID] if ID in self._implied else int(super().__getitem__(ID).min())

    def keys(self) -> tuple[np.ndarray, ...]:
        """The keys of all tuples; valid until the next change."""
        return tuple([self[position] for position in range(FIRST_KEY, self._known)])

    def stored(self) -> Stored:
        """The stored columns of all tuples; valid until the next change."""
        if self._layout is None:
            return Stored((), np.empty(0, np.bool_))
        return Stored(self.keys(), self[self._known])

    def tuples(self) -> Tuples:
        """All tuples in order of arrival; valid until the next change."""
        assert self._layout is not None
        stored = self.stored()
        marks = {name: self.mark(name) for name in self._layout.marks}
        return Tuples(self[TS], self[ID], self[SOURCE], stored, not stored.all_known(), marks=marks)

    def drop(self, count: int) -> None:
        super().drop(count)
        if ID in self._implied:
            self._implied[ID] += count


class SortedTuples(SlidingColumns):
    """Tuples of one side in the total order, removed from the front; with the columns for probing, if asked.

    With `borrows`, tuples that come while there are none stay in their own arrays, which are never written to: later
    tuples, and another order, move all to arrays of its own.
    """

    def __init__(self, probing: bool = False, most: int = MOST_HELD, borrows: bool = False):
        super().__init__()
        self._borrows, self._borrowed = borrows, False
        self.nulls = False
        self._probing, self._most = probing, most
        self._layout: Layout | None = None
        self._known = FIRST_KEY  # the position after the keys: that of `known`, if there is one
        self._make_columns([np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32)])

    @property
    def ts(self) -> np.ndarray:
        return self._arrays[TS][self._begin : self._end]  # type: ignore[index]  # there from the beginning

    @property
    def id(self) -> np.ndarray:
        return self._arrays[ID][self._begin : self._end]  # type: ignore[index]

    @property
    def source(self) -> np.ndarray:
        return self[SOURCE]

    def mark(self, name: Mark) -> np.ndarray:
        return self.between(0, len(self)).marks[name]

    def stored(self) -> Stored:
        """The stored columns of all tuples; valid until the next change."""
        if self._layout is None:
            return NO_TUPLES.stored
        rows, keys = slice(self._begin, self._end), self._known
        values = [array[rows] for array in self._arrays[FIRST_KEY : keys + 1] if array is not None]
        if self._layout.stored.known is None:
            return Stored(tuple(values[: keys - FIRST_KEY]))
        return Stored(tuple(values[:-1]), values[-1])

    def insert(self, tuples: Tuples, rank: np.ndarray) -> None:
        """Add tuples, themselves in order; O(tuples + held tuples that are later)."""
        count, held = len(tuples.ts), self._end - self._begin
        if not count:
            return
        if held + count > self._most:
            check_room(held, count, self._most)
        if self._layout is None:
            self._layout = Layout.of(tuples, self._probing)
            self._known = FIRST_KEY + len(tuples.stored.columns)
        rows = self._layout.flat(tuples)
        self.nulls = self.nulls or tuples.nulls
        if self._borrows and not held and count >= BORROWED:
            self._arrays, self._memory = [*rows], [None] * len(rows)
            self._begin, self._end, self._capacity, self._kept = 0, count, count, 0
            self._borrowed = True
            return
        if not held or self._come_later(tuples, rank):
            self.append(rows, count)
            return
        ts, source = self.ts, self.source
        later = len(ts) - int(ts.searchsorted(tuples.ts[0], "left"))
        last = slice(len(ts) - later, None)
        merged = np.concatenate([ts[last], tuples.ts])
        merged_rank = rank[np.concatenate([source[last], tuples.source])]
        self.merge(rows, later, np.lexsort((merged_rank, merged)))

    def expire(self, before: int) -> None:
        """Drop the tuples with a time below `before`; O(1) if there are none."""
        ts = self._arrays[TS]
        assert ts is not None
        if self._begin < self._end and ts[self._begin] < before:
            self.drop(int(self.ts.searchsorted(before)))

    def rearrange(self, order: np.ndarray) -> None:
        """Put the first tuples, as many as `order` has, into another order; the caller says it is the total one."""
        if self._borrowed:
            self._move(len(self))
        first = slice(self._begin, self._begin + len(order))
        for array in self._arrays:
            assert array is not None
            array[first] = array[first][order]

    @property
    def _movable(self) -> bool:
        return not self._borrowed

    def _move(self, capacity: int) -> None:
        super()._move(capacity)
        self._borrowed = False

    def _come_later(self, tuples: Tuples, rank: np.ndarray) -> bool:
        """Whether no held tuple comes after the first of these."""
        ts, source = self._arrays[TS], self._arrays[SOURCE]
        assert ts is not None and source is not None
        last, first = ts[self._end - 1], tuples.ts[0]
        return bool(last < first or (last == first and rank[source[self._end - 1]] <= rank[tuples.source[0]]))

    def between(self, begin: int, end: int) -> Tuples:
        """The tuples at positions begin..end-1, in the form for a window; valid until the next change."""
        if self._layout is None:
            return NO_TUPLES
        return self._layout.tuples([array[begin:end] for array in self.live()], self.nulls)

    def probing_between(self, begin: int, end: int) -> ProbingTuples:
        """The tuples at positions begin..end-1, in the form for probing; valid until the next change."""
        if self._layout is None:
            return NO_TUPLES
        return self._layout.probing_tuples([array[begin:end] for array in self.live()], self.nulls)
