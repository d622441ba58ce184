"""The decoded rows of a run and what is derived from them: event times, prepared tuples, an index.

All of it can be made again from the rows, so it may be dropped at any time; what is worth keeping is kept in
`cache`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamjoin.engine.rows import Held, Rows, fields_of
from streamjoin.index.tuples import ProbingTuples, Tuples, concatenated
from streamjoin.spark.join.task import BEGIN, TIE, JoinTask
from streamjoin.spark.state import pieces
from streamjoin.spark.state.run_index import IndexedTuples

Names = tuple[str, ...]  # of columns
SIZE = pa.schema({"bytes": pa.int32()})  # of rows, in one column
LARGEST = 2**31 - 1  # bytes of a row that are counted


class Content:
    """Rows of one side in the total order, as far as it is known: by time, and by `TIE` where that matters."""

    def __init__(self, task: JoinTask, side: str, batch: pa.RecordBatch):
        self.task, self.side, self.batch = task, side, batch
        self.ts = task.times(batch, side)
        self.held = Held.of(batch)
        self._widest: dict[Names, int] = {}
        self._sizes: dict[Names, Held] = {}

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def nbytes(self) -> int:
        """Memory held, an estimate: rows, and what was prepared of them to be probed."""
        indexed = self.indexed.nbytes if "indexed" in vars(self) else 0
        return self.held.nbytes + indexed + sum(held.nbytes for held in self._sizes.values())

    @cached_property
    def stored(self) -> Tuples:
        """The rows for the kernels, to be probed; their ids are their places."""
        return self.task.prepare(self.batch, self.side, self.ts)

    @property
    def tuples(self) -> ProbingTuples:
        """The same rows, to probe with as well."""
        return self.probes(0, len(self))

    def probes(self, low: int, high: int) -> ProbingTuples:
        """Some of the rows, to probe with; O(high - low) once there is an index."""
        probing = self.task.prepare_probing(self.batch.slice(low, high - low), self.side)
        rows = self.stored.pick(slice(low, high))
        return ProbingTuples(rows.ts, rows.id, rows.source, rows.stored, rows.nulls, probing)

    def widest(self, names: Names) -> int:
        """The bytes of the largest row in these columns, about. O(rows) once."""
        if names not in self._widest:
            self._widest[names] = int(self._sizes_of(names).max())
        return self._widest[names]

    def sizes(self, names: Names) -> Held:
        """The bytes of each row in these columns, as the one column of SIZE. O(rows) once."""
        if names not in self._sizes:
            sizes = np.minimum(self._sizes_of(names), LARGEST).astype(np.int32)
            self._sizes[names] = Held.of(pa.record_batch([sizes], schema=SIZE))
        return self._sizes[names]

    def _sizes_of(self, names: Names) -> np.ndarray:
        return pieces.sizes_of([self.batch.column(name) for name in names])

    @cached_property
    def indexed(self) -> IndexedTuples:
        """The rows as they are probed."""
        return IndexedTuples(self.task.compiled.indexers[self.side], self.stored)

    def release(self) -> None:
        """Let go of what was prepared of the rows to be probed: another index has it."""
        for name in ("indexed", "stored"):
            vars(self).pop(name, None)


def in_order(
    task: JoinTask, side: str, batches: Sequence[pa.RecordBatch]
) -> tuple[Content, np.ndarray | None]:
    """The rows of all batches, of which there is at least one, in the total order; and where each of them was, None if
    they were in order."""
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    ts = task.times(batch, side)
    if TIE in batch.schema.names:
        order = np.lexsort((np.asarray(batch.column(TIE)), ts))
    elif falls(ts):
        order = np.argsort(ts, kind="stable")
    else:
        return Content(task, side, batch), None
    if not falls(order):
        return Content(task, side, batch), None
    return Content(task, side, batch.take(pa.array(order))), order


def falls(numbers: np.ndarray) -> bool:
    """Whether one of them is less than the one before."""
    return bool((numbers[1:] < numbers[:-1]).any())


class Contents:
    """All rows of one side that a micro-batch can see, the new ones last. A row's id is its place among them."""

    def __init__(self, contents: Sequence[Content]):
        self.contents = contents
        ends = np.cumsum([0, *(len(content) for content in contents)])
        self.starts = ends[:-1]
        self.count = int(ends[-1])
        self._widest: dict[Names, int] = {}

    @cached_property
    def rows(self) -> Rows:
        return Rows(self.starts.tolist(), [content.held for content in self.contents])

    def columns(self, ids: np.ndarray, names: Names) -> list[pa.Array]:
        """These columns of the rows with these ids."""
        schema = self.contents[0].batch.schema
        return self.rows.columns(ids, fields_of(pa.schema([schema.field(name) for name in names])))

    def widest(self, names: Names) -> int:
        """The bytes of the largest row in these columns; O(contents) once, O(1) if none of them varies."""
        if names not in self._widest:
            fixed, varying = self._layout(names)
            most = max(content.widest(varying) for content in self.contents) if varying else 0
            self._widest[names] = fixed + most
        return self._widest[names]

    def sizes(self, ids: np.ndarray, names: Names) -> pieces.Sizes:
        """The bytes of some rows in these columns; one number if none of them varies."""
        fixed, varying = self._layout(names)
        if not varying:
            return fixed
        rows = Rows(self.starts.tolist(), [content.sizes(varying) for content in self.contents])
        return np.asarray(rows.take(ids, SIZE).column(0)) + fixed

    def _layout(self, names: Names) -> tuple[int, Names]:
        """The bytes of a row in those of the columns that have one width, and the others."""
        schema = self.contents[0].batch.schema
        widths = {name: pieces.width(schema.field(name).type) for name in names}
        varying = tuple(name for name, width in widths.items() if width is None)
        return sum(width for width in widths.values() if width is not None), varying

    def between(self, after: int, until: int) -> ProbingTuples | None:
        """The rows with after < ts <= until, in the total order; None if there are none."""
        parts = []
        for start, content in zip(self.starts, self.contents, strict=True):
            low, high = places_between(content.ts, after, until)
            if low < high:
                part = content.probes(low, high)
                parts.append((replace(part, id=start + part.id), tie_of(content)[low:high]))
        if not parts:
            return None
        together = concatenated([tuples for tuples, _ in parts])
        return together.pick(np.lexsort((np.concatenate([tie for _, tie in parts]), together.ts)))


def places_between(ts: np.ndarray, after: int, until: int) -> tuple[int, int]:
    """Where rising times with after < ts <= until begin and end. BEGIN, though a time, is before all of them: nothing
    comes up to it, and everything comes after it."""
    if until == BEGIN:
        return 0, 0
    return 0 if after == BEGIN else int(ts.searchsorted(after, "right")), int(ts.searchsorted(until, "right"))


def tie_of(content: Content) -> np.ndarray:
    names = content.batch.schema.names
    return np.asarray(content.batch.column(TIE)) if TIE in names else np.zeros(len(content), np.int64)


def in_pieces(
    contents: Mapping[str, Contents],
    ids: Mapping[str, np.ndarray],
    names: Mapping[str, Names],
    more: int = 0,
) -> Iterator[slice]:
    """Cut rows that are made of these columns of rows of one side or both, and of `more` bytes each, into pieces of
    bounded rows and bytes."""
    count = max(map(len, ids.values()))
    sizes: pieces.Sizes = more + sum(contents[side].widest(names[side]) for side in ids)
    if count * sizes > pieces.RESULT_BYTES:
        sizes = more
        for side in ids:
            sizes = sizes + contents[side].sizes(ids[side], names[side])
    return pieces.cut(count, sizes, pieces.RESULT_ROWS, pieces.RESULT_BYTES)


class Stored(NamedTuple):
    """Tuples to be probed, with the ids of their rows or the first one. Nothing up to the time `past`, if there is one,
    may be met: it is no more in the state."""

    indexed: IndexedTuples
    ids: np.ndarray | int
    past: int | None = None

    def named(self, places: np.ndarray) -> np.ndarray:
        """The ids of the tuples at these places."""
        return self.ids[places] if isinstance(self.ids, np.ndarray) else self.ids + places


def expect(stored: Sequence[Stored], probes: ProbingTuples) -> None:
    """Make the indexes that are missing for probes like these, all alike: they share what probes ask."""
    choice = None
    for each in sorted(stored, key=lambda each: len(each.indexed), reverse=True):
        choice = each.indexed.expect(probes, choice) or choice
