"""Columns that slide: rows come at the end, leave at the front, and always lie contiguous in memory.

A kernel can scan the live rows of a column as one array. Every row is moved at most a constant number of times
on average, and memory stays within a constant factor of the live rows.

What a pushed row and its window have in common, event time and keys that are columns as they came, is held once, in
`RowColumns`. The store of the side's rows owns them: it alone appends, and drops a row once neither the window nor a
result that waits needs it. A window reads them by row number, as long as its tuples are consecutive rows, and never
longer than it holds the tuple. Both happen in the thread that works; whoever builds result rows meanwhile, in another
one, says so (`readers`), and until he is done rows that he may see stay where they are.
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

SMALLEST = 1024  # rows of capacity below which memory is not given back
LARGE = 1 << 22  # bytes of a column from which it has pages of its own
PIECE = 1 << 20  # rows that are moved before their old memory is given back


def room_for(rows: int, like: np.ndarray) -> tuple[np.ndarray, mmap.mmap | None]:
    """Uninitialised rows of the same kind; if they are many, the memory of their own that they lie in."""
    shape = (rows, *like.shape[1:])
    size = rows * like.itemsize * math.prod(like.shape[1:])
    if size < LARGE or not hasattr(mmap, "MADV_DONTNEED"):
        return np.empty(shape, like.dtype), None
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel that has none
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, like.dtype).reshape(shape), memory


class SlidingColumns:
    """Aligned arrays, by position, of which rows `begin` to `end` are live. Rows before `kept` have no memory any more.
    A column may be absent (None): its owner knows its values otherwise."""

    def __init__(self) -> None:
        self._arrays: list[np.ndarray | None] = []
        self._memory: list[mmap.mmap | None] = []
        self._begin = self._end = self._capacity = self._kept = 0

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, position: int) -> np.ndarray:
        """The live rows of one column, which is there; valid until the next change."""
        array = self._arrays[position]
        assert array is not None
        return array[self._begin : self._end]

    def live(self) -> list[np.ndarray]:
        """The live rows of every column that is there; valid until the next change."""
        return [array[self._begin : self._end] for array in self._arrays if array is not None]

    @property
    def nbytes(self) -> int:
        """What was asked for, less what was given back; of large columns, what was ever used."""
        used = slice(self._kept, self._end)
        columns = zip(self._arrays, self._memory, strict=False)  # other threads may ask meanwhile
        return sum((a if memory is None else a[used]).nbytes for a, memory in list(columns) if a is not None)

    def append(self, rows: Sequence[np.ndarray | None]) -> None:
        """Add rows at the end, None for columns that are absent; O(rows) amortised."""
        self._append(rows, next(len(values) for values in rows if values is not None))

    def _append(self, rows: Sequence[np.ndarray | None], count: int) -> None:
        self._reserve(rows, count)
        end = self._end + count
        for array, values in zip(self._arrays, rows, strict=True):
            if array is not None:
                array[self._end : end] = values
        self._end = end

    def merge(self, rows: Sequence[np.ndarray], last: int, order: np.ndarray) -> None:
        """Add rows and rearrange them with the `last` live rows: `order` permutes (last rows, new rows)."""
        self.append(rows)
        low, high = self._end - last - len(rows[0]), self._end
        for array in self._arrays:
            assert array is not None
            array[low:high] = array[low:high][order]

    def drop(self, count: int) -> None:
        """Remove rows at the front and give memory back when little is left; O(1) amortised."""
        self._begin += count
        if self._capacity > SMALLEST and len(self) < self._capacity // 8:
            self._move(max(SMALLEST, 2 * len(self)))

    def forget_dropped(self) -> None:
        """Give the memory of dropped rows back, as far as they fill pages of large columns: what `live` or a column
        showed of them is not valid any more."""
        for position in range(len(self._arrays)):
            self._give_back(position, self._kept, self._begin)
        self._kept = self._begin

    def add_column(self, position: int, values: np.ndarray) -> None:
        """Give the live rows a column that was absent."""
        array, self._memory[position] = room_for(self._capacity, values)
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
        # At least as many rows came since the last move as are moved now.
        if needed <= self._capacity // 2 and self._movable:
            for position, array in enumerate(self._arrays):
                if array is not None:
                    self._move_rows(position, array)
            self._begin, self._end, self._kept = 0, len(self), 0
        else:
            self._move(max(SMALLEST, 2 * needed))

    def _make_columns(self, rows: Sequence[np.ndarray | None]) -> None:
        for values in rows[len(self._arrays) :]:
            made = (None, None) if values is None else room_for(self._capacity, values)
            self._arrays.append(made[0])
            self._memory.append(made[1])

    @property
    def _movable(self) -> bool:
        """Whether the memory that rows leave can be used for others."""
        return True

    def _move(self, capacity: int) -> None:
        for position, array in enumerate(self._arrays):
            if array is not None:
                moved, memory = room_for(capacity, array)
                self._move_rows(position, moved)
                self._arrays[position], self._memory[position] = moved, memory
        self._begin, self._end, self._capacity, self._kept = 0, len(self), capacity, 0

    def _move_rows(self, position: int, to: np.ndarray) -> None:
        """Copy the live rows of a column to the front of an array. The memory they had goes piece by piece, so that
        large columns are never there twice."""
        array = self._arrays[position]
        assert array is not None
        for first in range(self._begin, self._end, PIECE):
            last = min(first + PIECE, self._end)
            to[first - self._begin : last - self._begin] = array[first:last]
            if self._movable:
                self._give_back(position, first, last)

    def _give_back(self, position: int, first: int, last: int) -> None:
        """Let the system have the whole pages of rows that nobody will read before they are written again."""
        memory, array = self._memory[position], self._arrays[position]
        if memory is not None and array is not None:
            width = array.strides[0]
            start = -(-first * width // mmap.PAGESIZE) * mmap.PAGESIZE
            size = last * width // mmap.PAGESIZE * mmap.PAGESIZE - start
            if size > 0:
                memory.madvise(mmap.MADV_DONTNEED, start, size)


class RowColumns(SlidingColumns):
    """Columns of rows by their numbers, from `first` up to `end`, which are not NULL. `shared`: which columns of a
    tuple these are, as positions in `Layout.flat`."""

    def __init__(self, shared: Sequence[int]) -> None:
        super().__init__()
        self.shared = tuple(shared)
        self.first = 0
        self.readers = 0  # that look at rows in threads of their own
        self.ended = False  # no more rows come; who has copied what he needs lets go of them

    @property
    def end(self) -> int:
        return self.first + len(self)

    def holds(self, first: int, end: int) -> bool:
        """Whether all rows numbered first..end-1 are there."""
        return self.first <= first and end <= self.end

    @property
    def _movable(self) -> bool:
        return not self.readers

    def between(self, shared: int, first: int, end: int) -> np.ndarray:
        """The column at position `shared` of a tuple, of the rows numbered first..end-1, which must be there; valid
        until the next change."""
        start, array = self._begin - self.first, self._arrays[self.shared.index(shared)]
        assert array is not None
        return array[start + first : start + end]

    def drop(self, count: int) -> None:
        super().drop(count)
        self.first += count
        self.forget_dropped()


MOST_TUPLES = 2**31 - 1  # of a window: positions are 32-bit


def check_room(held: int, more: int) -> None:
    """Raise if a window would hold more tuples than positions can number."""
    if held + more > MOST_TUPLES:
        raise MemoryError(
            f"a window can hold {MOST_TUPLES:,} tuples; narrow it, or let the slower stream catch up"
        )


class ArrivedTuples(SlidingColumns):
    """Tuples in the order they came. What follows from the position takes no memory: ids as long as they count on, the
    source as long as there is one, that keys are not NULL as long as none is, and what `rows` hold as long as the
    tuples are consecutive ones of those."""

    def __init__(self, rows: RowColumns | None = None) -> None:
        super().__init__()
        self._rows = RowColumns(()) if rows is None else rows
        self._layout: Layout | None = None
        self._known = FIRST_KEY  # the position of `known`
        # By position, the value of the first tuple; 0 of what is in `rows`.
        self._implied: dict[int, int] = {ID: 0}

    def _imply(self, tuples: Tuples) -> None:
        """Begin anew, without tuples."""
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
        """Take tuples that came later than those held; raises if they are too many."""
        count = len(tuples.ts)
        check_room(len(self), count)
        if not len(self):
            self._imply(tuples)
        assert self._layout is not None
        rows: list[np.ndarray | None] = [*self._layout.flat(tuples)]
        implied = self._implied
        next_id = implied.get(ID, 0) + len(self)
        counted, same = goes_on(tuples.id, tuples.source, next_id, implied.get(SOURCE, 0))
        held = counted and self._rows.holds(next_id, next_id + count)
        holds = {ID: counted, SOURCE: same, self._known: tuples.stored.all_known()}
        for position in [*implied]:
            if holds.get(position, held):
                rows[position] = None
            else:  # ids after what is found by them
                values = rows[position]
                assert values is not None
                self.add_column(position, self._written_out(position).astype(values.dtype, copy=False))
                del implied[position]
        if self._rows.ended and implied.keys().isdisjoint(self._rows.shared):
            self._rows = RowColumns(())
        self._append(rows, count)

    def _written_out(self, position: int) -> np.ndarray:
        first = self._implied.get(ID, 0)
        if position == ID:
            return np.arange(first, first + len(self))
        if position in self._rows.shared:
            return self._rows.between(position, first, first + len(self))
        kind = np.dtype(np.bool_ if position == self._known else np.int32)
        return np.broadcast_to(kind.type(self._implied[position]), len(self))

    def __getitem__(self, position: int) -> np.ndarray:
        """As of all columns; O(tuples) of ids that are not held."""
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
        """The least id of all tuples; O(1) while ids count on."""
        return self._implied[ID] if ID in self._implied else int(super().__getitem__(ID).min())

    def keys(self) -> tuple[np.ndarray, ...]:
        """Valid until the next change."""
        return tuple([self[position] for position in range(FIRST_KEY, self._known)])

    def stored(self) -> Stored:
        """Valid until the next change."""
        if self._layout is None:
            return Stored((), np.empty(0, np.bool_))
        return Stored(self.keys(), self[self._known])

    def tuples(self) -> Tuples:
        """All of them, in the order they came; valid until the next change."""
        assert self._layout is not None
        stored = self.stored()
        marks = {name: self.mark(name) for name in self._layout.marks}
        return Tuples(self[TS], self[ID], self[SOURCE], stored, not stored.all_known(), marks=marks)

    def drop(self, count: int) -> None:
        super().drop(count)
        if ID in self._implied:
            self._implied[ID] += count


class SortedTuples:
    """Tuples of one side in the total order, taken from the front; with what they need to probe, if asked."""

    def __init__(self, probing: bool = False):
        self.nulls = False
        self._probing = probing
        self._layout: Layout | None = None
        self._rows = SlidingColumns()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def ts(self) -> np.ndarray:
        return self._column(TS, np.int64)

    @property
    def id(self) -> np.ndarray:
        return self._column(ID, np.int64)

    @property
    def source(self) -> np.ndarray:
        return self._column(SOURCE, np.int32)

    def _column(self, position: int, kind: type) -> np.ndarray:
        return np.empty(0, kind) if self._layout is None else self._rows[position]

    def mark(self, name: Mark) -> np.ndarray:
        return self.between(0, len(self)).marks[name]

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def stored(self) -> Stored:
        """Valid until the next change."""
        return self.between(0, len(self)).stored

    def insert(self, tuples: Tuples, rank: np.ndarray) -> None:
        """Add tuples, themselves in order; O(tuples + those held that come later)."""
        count = len(tuples.ts)
        if not count:
            return
        check_room(len(self), count)
        if self._layout is None:
            self._layout = Layout.of(tuples, self._probing)
            self._rows.append([array[:0] for array in self._layout.flat(tuples)])
        rows = self._layout.flat(tuples)
        self.nulls |= tuples.nulls
        ts, source = self.ts, self.source
        if not len(ts) or (ts[-1], rank[source[-1]]) <= (tuples.ts[0], rank[tuples.source[0]]):
            self._rows.append(rows)
            return
        later = len(ts) - int(ts.searchsorted(tuples.ts[0], "left"))
        last = slice(len(ts) - later, None)
        merged = np.concatenate([ts[last], tuples.ts])
        merged_rank = rank[np.concatenate([source[last], tuples.source])]
        self._rows.merge(rows, later, np.lexsort((merged_rank, merged)))

    def between(self, begin: int, end: int) -> Tuples:
        """The tuples at positions begin..end-1, as a window keeps them; valid until the next change."""
        if self._layout is None:
            return NO_TUPLES
        return self._layout.tuples([array[begin:end] for array in self._rows.live()], self.nulls)

    def probing_between(self, begin: int, end: int) -> ProbingTuples:
        """The tuples at positions begin..end-1, which may probe; valid until the next change."""
        if self._layout is None:
            return NO_TUPLES
        return self._layout.probing_tuples([array[begin:end] for array in self._rows.live()], self.nulls)

    def drop(self, count: int) -> None:
        self._rows.drop(count)
