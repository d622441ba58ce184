"""As-of and nearest joins: the best matches of each left row leave once no match to come can be better.

For `Nearest` that is when the left row's window has ended. In an as-of join, a left row with a match can be decided
earlier: once every later right row would be further away in time. Its *deadline* is the last time at which a later
right row would still be picked instead.
"""

from __future__ import annotations

import math

import numpy as np

from streamjoin.codegen.columns import ColumnData
from streamjoin.codegen.scores import Scores
from streamjoin.index.times import distances
from streamjoin.index.tuples import ProbingTuples
from streamjoin.kernels.stamping import INT64_MAX
from streamjoin.plan.matching import can_pick
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.keep import AsOf, Nearest
from streamjoin.topologies.outcomes.best import BestMatches
from streamjoin.topologies.outcomes.by_time import RowsByTime
from streamjoin.topologies.outcomes.outcomes import Outcomes, those
from streamjoin.topologies.outcomes.rows import ENDED, HAS_MATCH, NO_MATCH, NO_ROWS, MatchBounds
from streamjoin.topologies.protocol import Matches, Task, Topology

FIRST_LOOK = 64  # rows looked at together for those that have left; doubled while all have


class PickedMatches(Outcomes):
    """What `keep` makes of the matches of a topology."""

    def __init__(self, task: Task, topology: Topology):
        super().__init__(task, topology, ("left",))
        self._gives_alone = self.spec.how == "left"
        keep = self.spec.keep
        if isinstance(keep, Nearest):
            assert self.spec.score is not None
            self._scores = Scores(self.spec.score, keep.largest)
            self._best = BestMatches(keep.k, self._scores.dtypes, self._lateness)
        else:
            self._best = BestMatches(1, [np.dtype(np.uint64)], self._lateness)
        self._looks_ahead = isinstance(keep, AsOf) and keep.direction != "backward"
        self._deadlines = RowsByTime()  # numbers of left rows; if a row has several times, the least counts
        # Of left rows before this time, those with a match have left, since right has ended. The others wait for the
        # row of their own side that ends their window: no result of theirs is earlier than what is still to be placed.
        self._given_before = -math.inf

    def _lateness(self, right: np.ndarray) -> list[np.ndarray]:
        return [*self._place("right", right), self._facts["right"].ts(right)]

    def _note(self, side: str, tuples: ProbingTuples) -> None:
        super()._note(side, tuples)
        if side == "left":
            self._best.append(len(tuples))

    def take_matches(self, matches: Matches) -> None:
        if isinstance(self.spec.keep, AsOf):  # a window of rows has matches that cannot be picked
            matches = those(matches, can_pick(self.spec.keep, *self._times(matches)))
        state = self._facts["left"].state(matches.left)
        self.check_undecided(state)
        matches = those(matches, state == NO_MATCH)  # other rows have left with a better match
        if not len(matches):
            return
        scores, counts = self._scored(matches)
        if not counts.all():
            matches, scores = those(matches, counts), [part[counts] for part in scores]
        improved = self._best.add(matches.left, matches.right, scores)
        if self._looks_ahead and len(improved):
            self._deadlines.add(self._deadlines_of(improved), improved)
            self._seen = ()  # some may be decided already

    def _times(self, matches: Matches) -> tuple[np.ndarray, np.ndarray]:
        """The event times of the left and right rows of matches."""
        return self._facts["left"].ts(matches.left), self._facts["right"].ts(matches.right)

    def _scored(self, matches: Matches) -> tuple[list[np.ndarray], np.ndarray]:
        """The scores of matches, and which of them count."""
        if isinstance(self.spec.keep, AsOf):
            return [distances(*self._times(matches))], np.ones(len(matches), np.bool_)
        data: dict[Column, ColumnData] = {}
        for side, ids in matches.by_side().items():
            read = tuple(column for column in self._scores.columns if column.side == side)
            data |= self._fetch(side, read, ids)
        return self._scores(data, len(matches))

    def _deadlines_of(self, ids: np.ndarray) -> np.ndarray:
        """The last time at which a right row to come would be picked for left rows that have a match. At the same
        distance a later row is better."""
        ts = self._facts["left"].ts(ids)
        distance = distances(ts, self._facts["right"].ts(self._best.first(ids)))
        room = distances(ts, np.full(len(ts), INT64_MAX))
        last: np.ndarray = ts + np.minimum(distance, room).view(np.int64)  # the sum is right modulo 2**64
        return last

    def decide_early(self, side: str, bounds: MatchBounds) -> None:
        """Let rows whose deadline has passed leave with their match."""
        due = self._deadlines.take(bounds.partner)
        ids = NO_ROWS if due is None else np.unique(due[1])
        ids = ids[ids >= self._facts[side].first]
        ids = ids[self._facts[side].state(ids) == NO_MATCH]
        if bounds.own < math.inf and len(ids):  # some may not be joined themselves
            waits = self._facts[side].ts(ids) >= bounds.own
            self._deadlines.add(self._deadlines_of(ids[waits]), ids[waits])
            ids = ids[~waits]
        if len(ids):
            self._give_best(side, ids)
            self._drop_given(side)
        if bounds.partner == math.inf and self._queue is not None:
            before = min(bounds.own, bounds.placed)
            ids = self._undecided[side].joined(self._given_before, before)
            self._give_best(side, ids[self._facts[side].state(ids) == NO_MATCH])
            self._drop_given(side)
            self._given_before = before

    def _give_best(self, side: str, ids: np.ndarray) -> None:
        left, right = self._best.of(ids)
        self._facts[side].set_state(left, HAS_MATCH)
        self.give(left, right)

    def _drop_given(self, side: str) -> None:
        """Forget the leading undecided rows that have already left."""
        undecided, look = self._undecided[side], FIRST_LOOK
        while len(undecided):
            waits = self._facts[side].state(undecided.ids[:look]) == NO_MATCH
            undecided.drop(int(np.argmax(waits)) if waits.any() else len(waits))
            if waits.any():
                return
            look *= 2

    def decide(self, side: str, ids: np.ndarray, times: np.ndarray) -> None:
        waits = self._facts[side].state(ids) == NO_MATCH
        ids, times = ids[waits], times[waits]
        self._give_best(side, ids)
        if self._gives_alone:
            alone = self._facts[side].state(ids) == NO_MATCH
            self.give_alone(side, ids[alone], times[alone])
        self._facts[side].set_state(ids, ENDED)

    def _needed(self, side: str) -> list[int | None]:
        needed = super()._needed(side)
        if side == "right":
            needed.append(self._best.oldest_right(self._undecided["left"].ids))
        return needed

    def _forget(self, side: str, before: int) -> None:
        super()._forget(side, before)
        if side == "left":
            self._best.release(before)

    def clear(self) -> None:
        super().clear()
        self._deadlines.clear()

    @property
    def least_result_time(self) -> float:
        """A result is no earlier than its left row, and a forward one no earlier than the right row to come that may
        still replace it."""
        least = self._undecided["left"].least_time_from(self._given_before)
        if isinstance(self.spec.keep, AsOf) and self.spec.keep.direction == "forward":
            bounds = self._bounds("left")
            least = max(least, min(bounds.own, bounds.partner))
        return min(self._frontier.low["left"], least)
