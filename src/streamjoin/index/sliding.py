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
from collections.abc import Mapping, Sequence

import numpy as np

from streamjoin.index.protocol import Tuples
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
    """Aligned arrays, by name, of which rows `begin` to `end` are live. Rows before `kept` have no memory any more."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        self._memory: dict[str, mmap.mmap | None] = {}
        self._begin = self._end = self._capacity = self._kept = 0

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, name: str) -> np.ndarray:
        """The live rows of one column; valid until the next change."""
        return self._arrays[name][self._begin : self._end]

    def live(self) -> dict[str, np.ndarray]:
        """The live rows of every column; valid until the next change."""
        return {name: array[self._begin : self._end] for name, array in self._arrays.items()}

    @property
    def nbytes(self) -> int:
        """What was asked for, less what was given back; of large columns, what was ever used."""
        used = slice(self._kept, self._end)
        columns = list(self._arrays.items())  # other threads may ask meanwhile
        return sum(a.nbytes if self._memory.get(name) is None else a[used].nbytes for name, a in columns)

    def append(self, rows: Mapping[str, np.ndarray]) -> None:
        """Add rows at the end; O(rows) amortised."""
        self._append(rows, len(next(iter(rows.values()))))

    def _append(self, rows: Mapping[str, np.ndarray], count: int) -> None:
        self._reserve(rows, count)
        for name, values in rows.items():
            self._arrays[name][self._end : self._end + count] = values
        self._end += count

    def merge(self, rows: Mapping[str, np.ndarray], last: int, order: np.ndarray) -> None:
        """Add rows and rearrange them with the `last` live rows: `order` permutes (last rows, new rows)."""
        self.append(rows)
        low, high = self._end - last - len(next(iter(rows.values()))), self._end
        for array in self._arrays.values():
            array[low:high] = array[low:high][order]

    def drop(self, count: int) -> None:
        """Remove rows at the front and give memory back when little is left; O(1) amortised."""
        self._begin += count
        if self._capacity > SMALLEST and len(self) < self._capacity // 8:
            self._move(max(SMALLEST, 2 * len(self)))

    def forget_dropped(self) -> None:
        """Give the memory of dropped rows back, as far as they fill pages of large columns: what `live` or a column
        showed of them is not valid any more."""
        for name in self._arrays:
            self._give_back(name, self._kept, self._begin)
        self._kept = self._begin

    def add_column(self, name: str, values: np.ndarray) -> None:
        """Give the live rows one more column."""
        self._arrays[name], self._memory[name] = room_for(self._capacity, values)
        self._arrays[name][self._begin : self._end] = values

    def remove_column(self, name: str) -> None:
        del self._arrays[name], self._memory[name]

    def _reserve(self, rows: Mapping[str, np.ndarray], count: int) -> None:
        for name, values in rows.items():
            if name not in self._arrays:
                self._arrays[name], self._memory[name] = room_for(self._capacity, values)
        needed = len(self) + count
        if self._end + count <= self._capacity:
            return
        if (
            needed <= self._capacity // 2 and self._movable
        ):  # at least as many rows came since the last move as are moved now
            for name, array in self._arrays.items():
                self._move_rows(name, array)
            self._begin, self._end, self._kept = 0, len(self), 0
        else:
            self._move(max(SMALLEST, 2 * needed))

    @property
    def _movable(self) -> bool:
        """Whether the memory that rows leave can be used for others."""
        return True

    def _move(self, capacity: int) -> None:
        for name, array in self._arrays.items():
            moved, memory = room_for(capacity, array)
            self._move_rows(name, moved)
            self._arrays[name], self._memory[name] = moved, memory
        self._begin, self._end, self._capacity, self._kept = 0, len(self), capacity, 0

    def _move_rows(self, name: str, to: np.ndarray) -> None:
        """Copy the live rows of a column to the front of an array. The memory they had goes piece by piece, so that
        large columns are never there twice."""
        for first in range(self._begin, self._end, PIECE):
            last = min(first + PIECE, self._end)
            to[first - self._begin : last - self._begin] = self._arrays[name][first:last]
            if self._movable:
                self._give_back(name, first, last)

    def _give_back(self, name: str, first: int, last: int) -> None:
        """Let the system have the whole pages of rows that nobody will read before they are written again."""
        memory = self._memory[name]
        if memory is not None:
            width = self._arrays[name].strides[0]
            start = -(-first * width // mmap.PAGESIZE) * mmap.PAGESIZE
            size = last * width // mmap.PAGESIZE * mmap.PAGESIZE - start
            if size > 0:
                memory.madvise(mmap.MADV_DONTNEED, start, size)


class RowColumns(SlidingColumns):
    """Columns `names` of rows by their numbers, from `first` up to `end`, which are not NULL."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
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

    def between(self, name: str, first: int, end: int) -> np.ndarray:
        """A column of the rows numbered first..end-1, which must be there; valid until the next change."""
        start = self._begin - self.first
        return self._arrays[name][start + first : start + end]

    def drop(self, count: int) -> None:
        super().drop(count)
        self.first += count
        self.forget_dropped()


class TupleColumns(SlidingColumns):
    """Columns of tuples: `ts`, `id`, `source`, and those of their roles."""

    MOST = 2**31 - 1  # positions are 32-bit

    def __init__(self) -> None:
        super().__init__()
        none = np.empty(0, np.int64)
        self.append({"ts": none, "id": none, "source": none.astype(np.int32)})

    def with_header(self, tuples: Tuples, *roles: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Tuples as rows that can be added; raises if they are too many."""
        if len(self) + len(tuples) > self.MOST:
            raise MemoryError(
                f"a window can hold {self.MOST:,} tuples; narrow it, or let the slower stream catch up"
            )
        rows = {"ts": tuples.ts, "id": tuples.id, "source": tuples.source}
        for role in roles:
            rows |= role
        return rows


class ArrivedTuples(TupleColumns):
    """Tuples in the order they came. What follows from the position takes no memory: ids as long as they count on, the
    source as long as there is one, that keys are not NULL as long as none is, and what `rows` hold as long as the
    tuples are consecutive ones of those."""

    def __init__(self, rows: RowColumns | None = None) -> None:
        super().__init__()
        self._rows = RowColumns(()) if rows is None else rows
        self._implied: dict[str, int] = {}  # the value of the first tuple; 0 of what is in `rows`
        self._imply((), 0, 0)

    def _imply(self, names: Sequence[str], first_id: int, source: int) -> None:
        """Begin anew, without tuples; columns `names` are in `rows`."""
        self._implied = dict.fromkeys(names, 0) | {"id": first_id, "source": source, "key_ok": 1}
        for name in self._implied:
            if name in self._arrays:
                self.remove_column(name)

    def add(self, tuples: Tuples) -> None:
        """Take tuples that came later than those held; raises if they are too many."""
        rows, count = self.with_header(tuples, tuples.stored), len(tuples)
        if not len(self):
            first = int(tuples.id[0])
            names = self._rows.names if self._rows.holds(first, first + count) else ()
            self._imply(names, first, int(tuples.source[0]))
        implied = self._implied
        next_id = implied.get("id", 0) + len(self)
        counted, same = goes_on(tuples.id, tuples.source, next_id, implied.get("source", 0))
        held = counted and self._rows.holds(next_id, next_id + count)
        known = np.count_nonzero(rows["key_ok"]) == count
        holds = dict.fromkeys(self._rows.names, held) | {"id": counted, "source": same, "key_ok": known}
        for name in [*implied]:
            if holds[name]:
                del rows[name]
            else:  # ids after what is found by them
                self.add_column(name, self._written_out(name).astype(rows[name].dtype, copy=False))
                del implied[name]
        if self._rows.ended and implied.keys().isdisjoint(self._rows.names):
            self._rows = RowColumns(())
        self._append(rows, count)

    def _written_out(self, name: str) -> np.ndarray:
        first = self._implied.get("id", 0)
        if name == "id":
            return np.arange(first, first + len(self))
        if name in self._rows.names:
            return self._rows.between(name, first, first + len(self))
        kind = np.dtype(np.bool_ if name == "key_ok" else np.int32)
        return np.broadcast_to(kind.type(self._implied[name]), len(self))

    def __getitem__(self, name: str) -> np.ndarray:
        """As of all columns; O(tuples) of ids that are not held."""
        return self._written_out(name) if name in self._implied else super().__getitem__(name)

    def ids(self, positions: np.ndarray) -> np.ndarray:
        """The ids of the tuples at these positions."""
        if "id" in self._implied:
            counted: np.ndarray = np.add(positions, self._implied["id"], dtype=np.int64)
            return counted
        ids: np.ndarray = super().__getitem__("id")[positions]
        return ids

    def oldest_id(self) -> int:
        """The least id of all tuples; O(1) while ids count on."""
        return self._implied["id"] if "id" in self._implied else int(super().__getitem__("id").min())

    def stored(self) -> dict[str, np.ndarray]:
        """The columns of their stored role; valid until the next change."""
        names = dict.fromkeys([*self._arrays, *self._rows.names, "key_ok"])
        return {name: self[name] for name in names if name not in ("ts", "id", "source")}

    def drop(self, count: int) -> None:
        super().drop(count)
        if "id" in self._implied:
            self._implied["id"] += count


class SortedTuples:
    """Tuples of one side in the total order, taken from the front. Keeps what they need in one role or both."""

    def __init__(self, *roles: str):
        self.nulls = False
        self._roles = roles  # of "stored", "probing"
        self._names: dict[str, list[str]] = {role: [] for role in roles}
        self._rows = TupleColumns()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._rows[name]

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def live(self) -> dict[str, np.ndarray]:
        return self._rows.live()

    def insert(self, tuples: Tuples, rank: np.ndarray) -> None:
        """Add tuples, themselves in order; O(tuples + those held that come later)."""
        if not len(tuples):
            return
        roles: list[Mapping[str, np.ndarray]] = [getattr(tuples, role) for role in self._roles]
        rows = self._rows.with_header(tuples, *roles)
        self.nulls |= tuples.nulls
        self._names = {name: list(role) for name, role in zip(self._roles, roles, strict=True)}
        ts = self["ts"]
        if not len(ts) or (ts[-1], rank[self["source"][-1]]) <= (tuples.ts[0], rank[tuples.source[0]]):
            self._rows.append(rows)
            return
        later = len(ts) - int(ts.searchsorted(tuples.ts[0], "left"))
        last = slice(len(ts) - later, None)
        merged = np.concatenate([ts[last], tuples.ts])
        merged_rank = rank[np.concatenate([self["source"][last], tuples.source])]
        self._rows.merge(rows, later, np.lexsort((merged_rank, merged)))

    def between(self, begin: int, end: int) -> Tuples:
        """The tuples at positions begin..end-1; valid until the next change."""
        rows = {name: array[begin:end] for name, array in self._rows.live().items()}
        roles = {role: {name: rows[name] for name in names} for role, names in self._names.items()}
        return Tuples(
            rows["ts"],
            rows["id"],
            rows["source"],
            roles.get("stored", {}),
            roles.get("probing", {}),
            self.nulls,
        )

    def drop(self, count: int) -> None:
        self._rows.drop(count)
