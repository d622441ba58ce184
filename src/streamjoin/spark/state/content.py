"""The decoded rows of a run and what is derived from them: event times, prepared tuples, an index.

All of it can be made again from the rows, so it may be dropped at any time; what is worth keeping is kept in
`cache`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamjoin.codegen.columns import ColumnData, to_column_data
from streamjoin.engine.rows import Held, Rows
from streamjoin.index.probing import Prober as IndexProber
from streamjoin.index.times import Reach, reach_of
from streamjoin.index.tuples import ProbingTuples, Tuples, concatenated
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.spark.join.task import BEGIN, TIE, JoinTask
from streamjoin.spark.state.run_index import IndexedTuples, Questions

PROBES = 1 << 17  # that probe at a time
MANY_PAIRS = 1 << 20  # of one round, after which the next takes fewer probes


class Content:
    """Rows of one side in the total order, as far as it is known: by time, and by `TIE` where that matters."""

    def __init__(self, task: JoinTask, side: str, batch: pa.RecordBatch):
        self.task, self.side, self.batch = task, side, batch
        self.ts = task.times(batch, side)
        self.held = Held.of(batch)
        self._batch_bytes = int(batch.nbytes)  # which takes long to find out

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def nbytes(self) -> int:
        """Memory held, an estimate: rows, and what was prepared of them to be probed."""
        return self._batch_bytes + (self.indexed.nbytes if "indexed" in vars(self) else 0)

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
    elif len(ts) > 1 and (ts[1:] < ts[:-1]).any():
        order = np.argsort(ts, kind="stable")
    else:
        return Content(task, side, batch), None
    return Content(task, side, batch.take(pa.array(order))), order


class Contents:
    """All rows of one side that a micro-batch can see, the new ones last. A row's id is its place among them."""

    def __init__(self, contents: Sequence[Content]):
        self.contents = contents
        ends = np.cumsum([0, *(len(content) for content in contents)])
        self.starts = ends[:-1]
        self.count = int(ends[-1])

    @cached_property
    def rows(self) -> Rows:
        return Rows(self.starts.tolist(), [content.held for content in self.contents])

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


class Prober:
    """Finds the pairs of probes of one side with rows of the other. Counts the pairs it compared."""

    def __init__(self, task: JoinTask, contents: dict[str, Contents]):
        self.task, self.contents = task, contents
        self.candidates = 0
        self._buffer = PairBuffer(65_536)
        self._checks = IndexProber(task.compiled.filters, self._fetch)

    def pairs(
        self, probing: str, probes: ProbingTuples, stored: Sequence[Stored]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Ids by side of the pairs that match, some probes at a time."""
        if not probes.probing.all_known():
            probes = probes.pick(np.flatnonzero(probes.probing.known))  # a NULL matches nothing
        if not len(probes):
            return
        everything = self._reach(OTHER[probing], probes.ts)
        met = [each for each in stored if len(each.indexed) and not everything.misses(*each.indexed.span)]
        expect(met, probes)
        at, size = 0, PROBES
        while at < len(probes) and met:
            some = probes.pick(slice(at, at + size))
            reach = self._reach(OTHER[probing], some.ts)
            questions: Questions = {}
            found = [self._probe(probing, some, reach, questions, each) for each in met]
            pairs = {side: np.concatenate([part[side] for part in found]) for side in SIDES}
            yield pairs
            at += size
            size = max(1, size // 4) if len(pairs["left"]) > MANY_PAIRS else min(PROBES, 2 * size)

    def _reach(self, stored: str, ts: np.ndarray) -> Reach:
        return reach_of(self.task.spec, stored, ts, self.task.settles)

    def _probe(
        self, probing: str, probes: ProbingTuples, reach: Reach, questions: Questions, stored: Stored
    ) -> dict[str, np.ndarray]:
        buffer, index = self._buffer, stored.indexed.index
        buffer.count = 0
        past = stored.past
        if past is not None and reach.low is not None and reach.low[0] <= past:
            reach = replace(reach, low=np.maximum(reach.low, past + 1))
        if not reach.misses(*stored.indexed.span):
            compared = index.comparisons
            stretches = index.probe(probes, reach, buffer, questions)
            for _ in self._checks.checked(stretches, stored.named, probing, probes.id, buffer):
                pass
            self.candidates += index.comparisons - compared
        probe, place = buffer.take()  # positions are places in the run: its rows are in the total order
        return {probing: probes.id[probe], OTHER[probing]: stored.named(place)}

    def _fetch(self, side: str, columns: tuple[Column, ...], ids: np.ndarray) -> dict[Column, ColumnData]:
        if not columns:
            return {}
        contents = self.contents[side]
        schema = contents.contents[0].batch.schema
        taken = contents.rows.take(ids, pa.schema([schema.field(column.name) for column in columns]))
        return {column: to_column_data(taken.column(column.name), column.type) for column in columns}
