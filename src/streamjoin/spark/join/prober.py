"""Probing: find which rows of one side match which rows of the other, as pairs of ids.

A few probes can have any number of matches, so nothing here holds all of them. An index fills a buffer, and continues
when the caller has emptied it.
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
from streamjoin.semantics.windows import Delta
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.state.content import Contents, StoredGroups, StoredRows, expect, in_pieces
from streamjoin.spark.state.run_index import Questions

Ids = dict[str, np.ndarray]  # by side, the row ids of pairs


class SparkProber:
    """Finds which probes of one side match which rows of the other. `candidates` counts the pairs that it compared."""

    def __init__(self, task: JoinTask, contents: dict[str, Contents]):
        self.task, self.contents = task, contents
        self.candidates = 0
        self._delta = task.compiled.plan.delta
        self._buffer = PairBuffer(task.tuning.pair_room)
        self._checks = IndexProber(task.compiled.filters, self._fetch, self._pieces)

    def pairs(
        self,
        probing: str,
        probes: ProbingTuples,
        stored: StoredGroups,
        reach: Reach | None = None,
    ) -> Iterator[Ids]:
        """Ids by side of the pairs that match, about `result_rows` at a time, group by group. A probe with more
        partners is in several of these. `reach`: what the probes may meet; None for all that is in the window with
        them."""
        if reach is None:
            reach = self._reach(OTHER[probing], probes.ts)
        if not probes.probing.all_known():
            known = np.flatnonzero(probes.probing.known)  # a NULL matches nothing
            probes, reach = probes.pick(known), reach.pick(known)
        for group in stored if len(probes) else ():
            yield from self._pairs(probing, probes, group(reach.misses), reach)

    def _pairs(
        self, probing: str, probes: ProbingTuples, stored: Sequence[StoredRows], reach: Reach
    ) -> Iterator[Ids]:
        """The same for one group."""
        found: list[Ids] = []
        count = 0
        for pairs in self._stretches(probing, probes, stored, reach):
            if self._delta is not None and not len((pairs := self._counting(pairs, self._delta))["left"]):
                continue
            found.append(pairs)
            count += len(pairs["left"])
            if count >= self.task.tuning.result_rows:
                yield joined_pairs(found)
                found, count = [], 0
        if found:
            yield joined_pairs(found)

    def _stretches(
        self, probing: str, probes: ProbingTuples, stored: Sequence[StoredRows], everything: Reach
    ) -> Iterator[Ids]:
        """The same pairs, as the buffer gives them."""
        met = [each for each in stored if len(each.indexed) and not everything.misses(*each.indexed.span)]
        expect(met, probes)
        step = self.task.tuning.probes_at_once
        for at in range(0, len(probes), step):
            some, reach = probes.pick(slice(at, at + step)), everything.pick(slice(at, at + step))
            questions: Questions = {}
            for each in met:
                yield from self._probe(probing, some, reach, questions, each)

    def _reach(self, stored: str, ts: np.ndarray) -> Reach:
        return reach_of(self.task.matching, stored, ts, self.task.settles and self._delta is None)

    def _counting(self, pairs: Ids, delta: Delta) -> Ids:
        """The pairs in a window without zero, whose bounds saturate at the ends of 64 bits."""
        apart = self.contents["right"].times(pairs["right"]) - self.contents["left"].times(pairs["left"])
        counts = (apart >= delta.lo) & (apart <= delta.hi)
        return pairs if counts.all() else {side: ids[counts] for side, ids in pairs.items()}

    def _probe(
        self, probing: str, probes: ProbingTuples, reach: Reach, questions: Questions, stored: StoredRows
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
            if buffer.count >= self.task.tuning.pair_room // 2:
                yield self._taken(probing, probes, stored)
        self.candidates += index.comparisons - compared
        if buffer.count:
            yield self._taken(probing, probes, stored)

    def _taken(self, probing: str, probes: ProbingTuples, stored: StoredRows) -> Ids:
        """Take the pairs out of the buffer."""
        # Positions are places in the run, whose rows are in the total order.
        probe, place = self._buffer.take()
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
        """Cut pairs into pieces for the check of residuals, which copies their rows."""
        names = {side: tuple(column.name for column in columns[side]) for side in SIDES}
        return in_pieces(self.contents, ids, names, self.task.tuning)


def joined_pairs(found: Sequence[Ids]) -> Ids:
    """All these pairs together; there must be at least one group."""
    return {side: np.concatenate([pairs[side] for pairs in found]) for side in SIDES}
