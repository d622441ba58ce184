"""The decoded rows of a run and what is derived from them: event times, prepared tuples, an index.

All of it can be derived again from the rows, so it may be dropped at any time. `cache` keeps what is worth keeping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamjoin.engine.rows import Held, HeldRows, fields_of
from streamjoin.index.tuples import ProbingTuples, Tuples, concatenated
from streamjoin.plan.spark_tuning import SparkTuning
from streamjoin.spark.join.task import BEGIN_OF_TIME, TIE, JoinTask
from streamjoin.spark.state import pieces
from streamjoin.spark.state.run_index import IndexedTuples
from streamjoin.spark.state.runs import StoredRun

Names = tuple[str, ...]  # column names
SIZE_SCHEMA = pa.schema({"bytes": pa.int32()})  # the schema of row sizes
MOST_COUNTED_BYTES = 2**31 - 1  # a larger row counts as this size


class Content:
    """Rows of one side, sorted by time, and by `TIE` if rows have that column."""

    def __init__(self, task: JoinTask, side: str, batch: pa.RecordBatch):
        self.task, self.side, self.batch = task, side, batch
        self.ts = task.times(batch, side)
        self.held = Held(batch)
        self._widest: dict[Names, int] = {}
        self._sizes: dict[Names, Held] = {}

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def nbytes(self) -> int:
        """An estimate of the memory held: rows, their sizes, and the index if there is one."""
        indexed = self.indexed.nbytes if "indexed" in vars(self) else 0
        return self.held.nbytes + indexed + sum(held.nbytes for held in self._sizes.values())

    @cached_property
    def stored(self) -> Tuples:
        """The rows as stored tuples, to be probed; a row's id is its place."""
        return self.task.prepare(self.batch, self.side, self.ts)

    @property
    def tuples(self) -> ProbingTuples:
        """All rows as tuples that probe."""
        return self.probes(0, len(self))

    def probes(self, low: int, high: int) -> ProbingTuples:
        """The rows from `low` to `high` as tuples that probe; O(high - low) once `stored` is made."""
        probing = self.task.prepare_probing(self.batch.slice(low, high - low), self.side)
        rows = self.stored.pick(slice(low, high))
        return ProbingTuples(rows.ts, rows.id, rows.source, rows.stored, rows.nulls, probing)

    def widest(self, names: Names) -> int:
        """About how many bytes the largest row has in these columns. O(rows) on the first call."""
        if names not in self._widest:
            self._widest[names] = int(self._sizes_of(names).max())
        return self._widest[names]

    def sizes(self, names: Names) -> Held:
        """The bytes of each row in these columns, with SIZE_SCHEMA. O(rows) on the first call."""
        if names not in self._sizes:
            sizes = np.minimum(self._sizes_of(names), MOST_COUNTED_BYTES).astype(np.int32)
            self._sizes[names] = Held(pa.record_batch([sizes], schema=SIZE_SCHEMA))
        return self._sizes[names]

    def _sizes_of(self, names: Names) -> np.ndarray:
        return pieces.sizes_of([self.batch.column(name) for name in names])

    @cached_property
    def indexed(self) -> IndexedTuples:
        """The rows with the index that probes use."""
        return IndexedTuples(self.task.compiled.indexers[self.side], self.stored)

    def places(self, after: int, until: int) -> tuple[int, int]:
        """The first place and the end of the rows with after < ts <= until."""
        return places_between(self.ts, after, until)

    def next_after(self, mark: int) -> list[int]:
        """The first time after `mark`, if there is one."""
        return [int(t) for t in self.ts[self.ts.searchsorted(mark, "right") :][:1]]

    def release(self) -> None:
        """Drop the index and the stored tuples, because a layer contains these rows now."""
        for name in ("indexed", "stored"):
            vars(self).pop(name, None)


class UnloadedContent:
    """A run whose rows are read again whenever they are asked for, because the state does not fit in memory. What the
    manifest says about the run is known without reading it. `read`: gives the rows, perhaps from a cache."""

    def __init__(self, run: StoredRun, read: Callable[[], Content]):
        self.run, self._read = run, read

    def __len__(self) -> int:
        return self.run.rows

    def __getattr__(self, name: str) -> Any:
        """As `Content`; holds nothing."""
        return getattr(self._read(), name)

    @property
    def ts(self) -> np.ndarray:
        """As `Content`: a copy, which keeps no other column in memory."""
        return self._read().ts.copy()

    def places(self, after: int, until: int) -> tuple[int, int]:
        """As `Content`; reads the rows only if some of them and not all are between."""
        oldest, newest = self.run.oldest, self.run.newest
        if until < oldest or (newest <= after and after != BEGIN_OF_TIME):
            return 0, 0
        if (after < oldest or after == BEGIN_OF_TIME) and newest <= until and until != BEGIN_OF_TIME:
            return 0, len(self)
        return self._read().places(after, until)

    def next_after(self, mark: int) -> list[int]:
        """As `Content`; reads the rows only if some of them are after `mark` and not all."""
        if mark < self.run.oldest:
            return [self.run.oldest]
        return [] if self.run.newest <= mark else self._read().next_after(mark)


AnyContent = Content | UnloadedContent


def in_order(
    task: JoinTask, side: str, batches: Sequence[pa.RecordBatch]
) -> tuple[Content, np.ndarray | None]:
    """Sort the rows of all batches, at least one, into the total order. Returns them, and the previous place of each
    row; None if they were in order."""
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    ts = task.times(batch, side)
    if TIE in batch.schema.names:
        order = np.lexsort((np.asarray(batch.column(TIE)), ts))
    elif has_descent(ts):
        order = np.argsort(ts, kind="stable")
    else:
        return Content(task, side, batch), None
    if not has_descent(order):
        return Content(task, side, batch), None
    return Content(task, side, batch.take(pa.array(order))), order


def has_descent(numbers: np.ndarray) -> bool:
    """Whether any number is less than the one before it."""
    return bool((numbers[1:] < numbers[:-1]).any())


class Contents:
    """All rows of one side that a micro-batch can see; the new rows come last. A row's id is its place here."""

    def __init__(self, contents: Sequence[AnyContent]):
        self.contents = contents
        self.unloaded = any(isinstance(content, UnloadedContent) for content in contents)
        ends = np.cumsum([0, *(len(content) for content in contents)])
        self.starts = ends[:-1]
        self.count = int(ends[-1])
        self._widest: dict[Names, int] = {}

    @cached_property
    def rows(self) -> HeldRows:
        return self._held(range(len(self.contents)), lambda content: content.held)

    def _held(self, numbers: Sequence[int], of: Callable[[AnyContent], Held]) -> HeldRows:
        """A view of the rows of these contents."""
        return HeldRows(self.starts[numbers].tolist(), [of(self.contents[number]) for number in numbers])

    def _with(self, ids: np.ndarray) -> list[int]:
        """The numbers of the contents that have these rows; of all, unless some are unloaded."""
        if not self.unloaded:
            return list(range(len(self.contents)))
        found: list[int] = (np.unique(self.starts.searchsorted(ids, "right")) - 1).tolist()
        return found

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows, of which there must be some."""
        loaded = (content for content in reversed(self.contents) if isinstance(content, Content))
        return next(loaded, self.contents[0]).batch.schema

    def columns(self, ids: np.ndarray, names: Names) -> list[pa.Array]:
        """These columns of the rows with these ids."""
        rows = self._held(self._with(ids), lambda content: content.held) if self.unloaded else self.rows
        return rows.columns(ids, fields_of(pa.schema([self.schema.field(name) for name in names])))

    def widest(self, names: Names) -> int:
        """About how many bytes the largest row has in these columns, at most. O(contents) on the first call, O(1) if
        all columns have a fixed width."""
        if names not in self._widest:
            fixed, varying = self._layout(names)
            if varying and self.unloaded:
                return MOST_COUNTED_BYTES
            most = max(content.widest(varying) for content in self.contents) if varying else 0
            self._widest[names] = fixed + most
        return self._widest[names]

    def sizes(self, ids: np.ndarray, names: Names) -> pieces.Sizes:
        """The bytes of these rows in these columns; a single number if all columns have a fixed width."""
        fixed, varying = self._layout(names)
        if not varying:
            return fixed
        rows = self._held(self._with(ids), lambda content: content.sizes(varying))
        return np.asarray(rows.take(ids, SIZE_SCHEMA).column(0)) + fixed

    def _layout(self, names: Names) -> tuple[int, Names]:
        """The bytes of a row in the columns of fixed width, and the names of the other columns."""
        widths = {name: pieces.width(self.schema.field(name).type) for name in names}
        varying = tuple(name for name, width in widths.items() if width is None)
        return sum(width for width in widths.values() if width is not None), varying

    def times(self, ids: np.ndarray) -> np.ndarray:
        """The event times of the rows with these ids."""
        first = self.contents[0]
        name = first.task.spec.side_time(first.side)
        return first.task.times(pa.record_batch(self.columns(ids, (name,)), [name]), first.side)

    def between(self, after: int, until: int) -> list[tuple[int, int]]:
        """The first place and the end of the rows with after < ts <= until, in each content."""
        return [content.places(after, until) for content in self.contents]

    def probe_groups(self, places: Sequence[tuple[int, int]]) -> Iterator[ProbingTuples]:
        """The rows between two places of each content, as tuples that probe: all at once, or those of one content after
        the other if some are unloaded."""
        groups = [(0, places)] if not self.unloaded else [(n, [each]) for n, each in enumerate(places)]
        for first, some in groups:
            probes = self.probes(some, first)
            if probes is not None:
                yield probes

    def probes(self, places: Sequence[tuple[int, int]], first: int = 0) -> ProbingTuples | None:
        """The rows between two places of consecutive contents from number `first` on, as tuples that probe, in the
        total order; None if there are none."""
        parts = []
        for start, content, (low, high) in zip(
            self.starts[first:], self.contents[first:], places, strict=False
        ):
            if low < high:
                part = content.probes(low, high)
                parts.append((replace(part, id=start + part.id), tie_of(content)[low:high]))
        if not parts:
            return None
        together = concatenated([tuples for tuples, _ in parts])
        return together.pick(np.lexsort((np.concatenate([tie for _, tie in parts]), together.ts)))


def places_between(ts: np.ndarray, after: int, until: int) -> tuple[int, int]:
    """The first place and the end of the times with after < ts <= until, in an ascending array. BEGIN_OF_TIME counts as
    before all times, even before rows of that very time."""
    if until == BEGIN_OF_TIME:
        return 0, 0
    return 0 if after == BEGIN_OF_TIME else int(ts.searchsorted(after, "right")), int(
        ts.searchsorted(until, "right")
    )


def tie_of(content: AnyContent) -> np.ndarray:
    batch = content.batch
    if TIE not in batch.schema.names:
        return np.zeros(len(content), np.int64)
    found = np.asarray(batch.column(TIE))
    return found.copy() if isinstance(content, UnloadedContent) else found


def in_pieces(
    contents: Mapping[str, Contents],
    ids: Mapping[str, np.ndarray],
    names: Mapping[str, Names],
    tuning: SparkTuning,
    more: int = 0,
) -> Iterator[slice]:
    """Cut result rows into pieces of bounded rows and bytes. A result row has these columns of the rows `ids`, of one
    side or both, and `more` bytes."""
    count = max(map(len, ids.values()))
    sizes: pieces.Sizes = more + sum(contents[side].widest(names[side]) for side in ids)
    if count * sizes > tuning.result_bytes:
        sizes = more
        for side in ids:
            sizes = sizes + contents[side].sizes(ids[side], names[side])
    return pieces.cut(count, sizes, tuning.result_rows, tuning.result_bytes)


class StoredRows(NamedTuple):
    """Tuples to be probed. `ids`: the ids of their rows, or the first one if they are consecutive. `past`: rows up to
    this time have left the state, so probes must skip them; None if there are no such rows."""

    indexed: IndexedTuples
    ids: np.ndarray | int
    past: int | None = None

    def named(self, places: np.ndarray) -> np.ndarray:
        """The ids of the tuples at these places."""
        return self.ids[places] if isinstance(self.ids, np.ndarray) else self.ids + places


# The stored rows that probes meet, in groups that fit in memory one at a time. A group is made when it is asked for, of
# the runs whose oldest and newest time are not missed.
Misses = Callable[[int, int], bool]
StoredGroups = Sequence[Callable[[Misses], Sequence[StoredRows]]]


def all_at_once(stored: Sequence[StoredRows]) -> StoredGroups:
    """One group of stored rows that are in memory."""
    return [lambda _: stored]


def expect(stored: Sequence[StoredRows], probes: ProbingTuples) -> None:
    """Make the indexes that these probes need and that are missing. All use the same keys, so that probe keys are
    computed once."""
    choice = None
    for each in sorted(stored, key=lambda each: len(each.indexed), reverse=True):
        choice = each.indexed.expect(probes, choice) or choice
