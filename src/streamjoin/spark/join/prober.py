"""Probing: which rows of one side match which of the other, as pairs of ids, some at a time.

What a few probes match is not bounded by what they are, so nothing here holds all of it: an index fills a buffer
stretch by stretch, and goes on when it was emptied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from streamjoin.codegen.columns import ColumnData, to_column_data
from streamjoin.index.probing import Prober as IndexProber
from streamjoin.index.times import Reach, reach_of
from streamjoin.index.tuples import ProbingTuples
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.state import pieces
from streamjoin.spark.state.content import Contents, Stored, expect, in_pieces
from streamjoin.spark.state.run_index import Questions

PROBES = 1 << 17  # that probe at a time
STRETCH = 1 << 16  # pairs that the buffer has room for; it is emptied when half of it is full

Ids = dict[str, np.ndarray]  # by side, the rows of pairs


class Prober:
    """Finds the pairs of probes of one side with rows of the other. Counts the pairs it compared."""

    def __init__(self, task: JoinTask, contents: dict[str, Contents]):
        self.task, self.contents = task, contents
        self.candidates = 0
        self._buffer = PairBuffer(STRETCH)
        self._checks = IndexProber(task.compiled.filters, self._fetch, self._pieces)

    def pairs(self, probing: str, probes: ProbingTuples, stored: Sequence[Stored]) -> Iterator[Ids]:
        """Ids by side of the pairs that match, at most RESULT_ROWS and a STRETCH at a time: a probe with more
        partners is in several of these."""
        found: list[Ids] = []
        count = 0
        for pairs in self._stretches(probing, probes, stored):
            found.append(pairs)
            count += len(pairs["left"])
            if count >= pieces.RESULT_ROWS:
                yield together(found)
                found, count = [], 0
        if found:
            yield together(found)

    def _stretches(self, probing: str, probes: ProbingTuples, stored: Sequence[Stored]) -> Iterator[Ids]:
        """The same, as they are found."""
        if not probes.probing.all_known():
            probes = probes.pick(np.flatnonzero(probes.probing.known))  # a NULL matches nothing
        if not len(probes):
            return
        everything = self._reach(OTHER[probing], probes.ts)
        met = [each for each in stored if len(each.indexed) and not everything.misses(*each.indexed.span)]
        expect(met, probes)
        for at in range(0, len(probes), PROBES):
            some = probes.pick(slice(at, at + PROBES))
            reach = self._reach(OTHER[probing], some.ts)
            questions: Questions = {}
            for each in met:
                yield from self._probe(probing, some, reach, questions, each)

    def _reach(self, stored: str, ts: np.ndarray) -> Reach:
        return reach_of(self.task.spec, stored, ts, self.task.settles)

    def _probe(
        self, probing: str, probes: ProbingTuples, reach: Reach, questions: Questions, stored: Stored
    ) -> Iterator[Ids]:
        buffer, index = self._buffer, stored.indexed.index
        past = stored.past
        if past is not None and reach.low is not None and reach.low[0] <= past:
            reach = replace(reach, low=np.maximum(reach.low, past + 1))
        if reach.misses(*stored.indexed.span):
            return
        compared = index.comparisons
        stretches = index.probe(probes, reach, buffer, questions)
        for _ in self._checks.checked(stretches, stored.named, probing, probes.id, buffer):
            if buffer.count >= STRETCH // 2:
                yield self._taken(probing, probes, stored)
        self.candidates += index.comparisons - compared
        if buffer.count:
            yield self._taken(probing, probes, stored)

    def _taken(self, probing: str, probes: ProbingTuples, stored: Stored) -> Ids:
        """The pairs in the buffer, which is empty then."""
        probe, place = self._buffer.take()  # positions are places in the run: its rows are in the total order
        return {probing: probes.id[probe], OTHER[probing]: stored.named(place)}

    def _fetch(self, side: str, columns: tuple[Column, ...], ids: np.ndarray) -> dict[Column, ColumnData]:
        if not columns:
            return {}
        taken = self.contents[side].columns(ids, tuple(column.name for column in columns))
        return {
            column: to_column_data(array, column.type) for column, array in zip(columns, taken, strict=True)
        }

    def _pieces(
        self, ids: Mapping[str, np.ndarray], columns: Mapping[str, tuple[Column, ...]]
    ) -> Iterator[slice]:
        """In which pieces pairs are checked: their rows are copied for that."""
        names = {side: tuple(column.name for column in columns[side]) for side in SIDES}
        return in_pieces(self.contents, ids, names)


def together(found: Sequence[Ids]) -> Ids:
    """All pairs of several stretches, of which there is one at least."""
    return {side: np.concatenate([pairs[side] for pairs in found]) for side in SIDES}
