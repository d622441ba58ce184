"""As-of and nearest joins: which matches of a left row count, once the watermark has decided it.

A left row waits in the state until no match to come can count. Then it probes the right rows that are kept for it,
once, and its best matches leave. So the state holds rows alone, and nothing about matches.

An as-of join searches outward from a left row's time, in *rings* of the window, and stops at the first ring with a
match: of a long window only the part up to about the distance of the match is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.codegen.columns import to_column_data
from streamjoin.index.times import Reach, distances, reach_around, saturated_sum
from streamjoin.index.tuples import ProbingTuples
from streamjoin.plan.matching import can_pick
from streamjoin.semantics.keep import AsOf, Nearest
from streamjoin.semantics.spec import SIDES
from streamjoin.semantics.windows import Delta
from streamjoin.spark.join.prober import Ids, SparkProber
from streamjoin.spark.join.step import StepRows, moved_back
from streamjoin.spark.join.task import BEGIN_OF_TIME, END_OF_TIME, TIE
from streamjoin.spark.state.content import StoredGroups, StoredRows, all_at_once, in_pieces, tie_of
from streamjoin.topologies.outcomes.best import BestMatches

RINGS = (512, 64, 8, 1)  # the outer ends of the rings are these parts of the window

Picked = tuple[Ids, np.ndarray]  # picked pairs, and the ids of the left rows that pick none
Rings = Iterable[Sequence[Reach]]  # what the probes reach, the nearest first


class Picker:
    """Picks among the matches of left rows. `stored`: gives the right rows for these probes, in windows of time."""

    def __init__(
        self,
        rows: StepRows,
        prober: SparkProber,
        stored: Callable[[ProbingTuples], StoredGroups],
    ):
        self._rows, self._prober, self._stored = rows, prober, stored
        self._task, self._contents, self._acted = rows.task, rows.contents, rows.state.acted
        self._keep, self._tie = self._task.spec.keep, self._task.spec.right_tie
        self._k = self._keep.k if isinstance(self._keep, Nearest) else 1
        self._undecided = END_OF_TIME  # the time of the first left row that waits, in windows of rows

    def picked(self, watermark: int) -> Iterator[Picked]:
        """What the left rows pick that this watermark decides, some rows at a time."""
        return self._by_place(watermark) if self._task.spec.delta is None else self._by_time(watermark)

    def _by_time(self, watermark: int) -> Iterator[Picked]:
        delta, leaving = self._task.matching.delta, self._leaving(watermark)
        assert delta is not None
        for probes in self._contents["left"].probe_groups(self._rows.decided_places("left", watermark)):
            stored = self._stored(probes)
            for some in self._parts(len(probes)):
                part = probes.pick(some)
                pairs, alone = self._best_of(part, self._rings(part.ts, delta), stored)
                yield leaving(pairs), leaving({"left": alone})["left"]

    def _leaving(self, watermark: int) -> Callable[[Ids], Ids]:
        """What of picked rows leaves now. Where results leave in order, a left row is decided as much as `ahead` after
        its time, so a result waits until the watermark has passed its time by as much."""
        waits = self._task.waits["left"]
        assert waits.decided is not None and waits.kept is not None
        ahead = waits.kept - waits.decided
        after, until = (moved_back(mark, ahead) for mark in (self._acted, watermark))

        def leaving(rows: Ids) -> Ids:
            if not ahead or not len(rows["left"]):
                return rows
            times = self._contents["left"].times(rows["left"])
            if "right" in rows:
                times = np.maximum(times, self._contents["right"].times(rows["right"]))
            else:
                times = saturated_sum(times, ahead)
            goes = ((times > after) | (after == BEGIN_OF_TIME)) & (times <= until)
            return {side: ids[goes] for side, ids in rows.items()}

        return leaving

    def _by_place(self, watermark: int) -> Iterator[Picked]:
        """The same in windows of rows. All right rows that a left row may pick are adjacent in the total order."""
        if not self._contents["left"].contents:
            return
        left, ids = self._rows.total_order("left")
        low, high = self._rows.decided_by_order("left", left, watermark)
        self._undecided = int(left.ts[high]) if high < len(left) else END_OF_TIME
        rows = low + self._rows.owned(tie_of(left)[low:high])
        if not len(rows):
            return
        if not self._contents["right"].contents:
            yield {"left": ids[:0], "right": ids[:0]}, ids[rows]
            return
        right, right_ids = self._rows.total_order("right")
        probes = replace(left.probes(low, high).pick(rows - low), id=ids[rows])
        start, stop = self._reached(left.ts, right.ts, rows)
        for some in self._parts(len(rows)):
            reach = PlacesReach(start[some], stop[some])
            met = [StoredRows(right.indexed, right_ids)]
            yield self._best_of(probes.pick(some), [[reach]], all_at_once(met))

    def _reached(
        self, left: np.ndarray, right: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The places, from the first to the end, of the right rows in the window with these rows of left. All times are
        in the total order."""
        window, start = self._task.spec.left_window, self._first_reached(right, left[rows])
        if not window.rows:
            return start, right.searchsorted(saturated_sum(left[rows], window.size), "right")
        pushing = rows + window.size  # the row whose arrival drops this one from the window
        stop, there = np.full(len(rows), len(right)), pushing < len(left)
        stop[there] = right.searchsorted(left[pushing[there]], "left")
        return start, np.maximum(stop, start)

    def _first_reached(self, right: np.ndarray, ts: np.ndarray) -> np.ndarray:
        """The place of the first right row that is in the window when left rows come at these times."""
        window = self._task.spec.right_window
        if window.rows:
            return np.maximum(right.searchsorted(ts, "left") - window.size, 0)
        return right.searchsorted(saturated_sum(ts, -window.size), "left")

    def first_needed(self, right: np.ndarray, watermark: int) -> int:
        """The place of the first right row that left rows need which are not decided, or still to come, given all times
        of right. Windows of rows only."""
        least = min(self._undecided, watermark + 1)
        return int(self._first_reached(right, np.array([least]))[0])

    def _parts(self, count: int) -> Iterator[slice]:
        step = max(1, self._task.tuning.probes_at_once // min(self._k, self._task.tuning.probes_at_once))
        return (slice(at, at + step) for at in range(0, count, step))

    def _rings(self, ts: np.ndarray, delta: Delta) -> Rings:
        if not isinstance(self._keep, AsOf):
            return [[reach_around(ts, -delta.lo, delta.hi)]]
        return ([reach_around(ts, -lo, hi) for lo, hi in ring] for ring in rings_of(delta))

    def _best_of(self, probes: ProbingTuples, rings: Rings, stored: StoredGroups) -> Picked:
        """The best matches of these probes."""
        best = BestMatches(self._k, self._dtypes, self._lateness)
        best.append(len(probes))
        by_id = np.argsort(probes.id)
        sorted_ids = probes.id[by_id]
        waits = np.arange(len(probes))  # the probes without a match so far
        found = np.zeros(len(probes), np.bool_)
        for reaches in rings:
            some = probes if len(waits) == len(probes) else probes.pick(waits)
            for reach in reaches:
                for pairs in self._pieces(self._prober.pairs("left", some, stored, reach.pick(waits))):
                    places = by_id[sorted_ids.searchsorted(pairs["left"])]
                    scores, counts = self._scored(pairs)
                    best.add(places[counts], pairs["right"][counts], [part[counts] for part in scores])
                    found[places[counts]] = True
            waits = np.flatnonzero(~found)
            if not len(waits):
                break
        places, right = best.of(np.arange(len(probes)))
        return {"left": probes.id[places], "right": right}, probes.id[~found]

    def _pieces(self, found: Iterable[Ids]) -> Iterator[Ids]:
        """The same pairs in pieces, because a score may copy long strings of their rows."""
        scores = self._task.compiled.scores
        if scores is None:
            yield from found
            return
        names = {side: tuple(c.name for c in scores.columns if c.side == side) for side in SIDES}
        for pairs in found:
            for piece in in_pieces(self._contents, pairs, names, self._task.tuning):
                yield {side: ids[piece] for side, ids in pairs.items()}

    @property
    def _dtypes(self) -> list[np.dtype]:
        scores = self._task.compiled.scores
        return [np.dtype(np.uint64)] if scores is None else scores.dtypes

    def _scored(self, pairs: Ids) -> tuple[list[np.ndarray], np.ndarray]:
        """The scores of pairs, the smaller the better, and which pairs count."""
        scores, keep = self._task.compiled.scores, self._keep
        if scores is None:
            assert isinstance(keep, AsOf)
            left, right = (self._contents[side].times(pairs[side]) for side in SIDES)
            return [distances(left, right)], can_pick(keep, left, right)
        data = {}
        for column in scores.columns:
            (values,) = self._contents[column.side].columns(pairs[column.side], (column.name,))
            data[column] = to_column_data(values, column.type)
        return scores(data, len(pairs["left"]))

    def _lateness(self, right: np.ndarray) -> list[np.ndarray]:
        """What orders right rows, the most significant last."""
        contents = self._contents["right"]
        if not len(right):
            return [right]
        keys = [np.asarray(contents.columns(right, (TIE,))[0])]
        if self._tie is not None:
            keys.append(ranks(contents.columns(right, (self._tie,))[0]))
        return [*keys, contents.times(right)]


def rings_of(delta: Delta) -> Iterator[list[tuple[int, int]]]:
    """Cut a window into rings: the differences of time that each has, on one side of zero or on both."""
    widest, reached = max(delta.hi, -delta.lo, 0), -1
    for part in RINGS:
        end = widest // part
        if end <= reached:
            continue
        if reached < 0:
            sides = [(-end, end)]
        else:
            sides = [(-end, -reached - 1), (reached + 1, end)]
        within = [(max(lo, delta.lo), min(hi, delta.hi)) for lo, hi in sides]
        if within := [(lo, hi) for lo, hi in within if lo <= hi]:
            yield within
        reached = end


def ranks(values: pa.Array) -> np.ndarray:
    """The order of values: NULL first, NaN last, the same number for equal ones."""
    if pa.types.is_floating(values.type):
        found: np.ndarray = np.unique(values.to_numpy(zero_copy_only=False), return_inverse=True)[1]
    else:
        found = np.asarray(pc.rank(values, tiebreaker="dense")).astype(np.int64)
    return np.where(np.asarray(values.is_null()), -1, found)


class PlacesReach(Reach):
    """The reach of probes of rows that are counted: places from `start` to `stop` in the total order."""

    __slots__ = ("start", "stop")

    def __init__(self, start: np.ndarray, stop: np.ndarray):
        super().__init__(None, stop)
        self.start, self.stop = start, stop

    def pick(self, probes: slice | np.ndarray) -> PlacesReach:
        return PlacesReach(self.start[probes], self.stop[probes])

    def positions(self, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.start, self.stop
