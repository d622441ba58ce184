"""From matches to result rows: what `how` and `keep` make of the matches that a topology finds.

`Outcomes` wraps a topology and has its interface. The topology finds every match exactly once, as for an inner
join, and reports what can still come. Which rows follow is decided here, in the thread that drives the join, never on
a worker: so it is the same for every topology, and no flag is shared between threads.

A row is *decided* once no match to come can have it (`Undecided`). An unmatched row of an outer or anti join leaves
then, and so do the matches that `keep` picked. Nothing that left is taken back. Where the topology does not sort the
rows, they wait here until nothing before them can come (docs/semantics.md has the order).

Memory: a few numbers for each row that is undecided, and the rows that wait to be sorted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from streamjoin.index.tuples import ProbingTuples
from streamjoin.plan.choose import TRAITS
from streamjoin.semantics.keep import AsOf
from streamjoin.semantics.spec import OTHER, SIDES, UNMATCHED, JoinSpec
from streamjoin.semantics.windows import Delta, SideWindow
from streamjoin.topologies.matching import take_first
from streamjoin.topologies.outcomes.queue import ResultQueue
from streamjoin.topologies.outcomes.rows import (
    ENDED,
    FINAL,
    HAS_MATCH,
    NO_MATCH,
    NO_ROW,
    NO_ROWS,
    MatchBounds,
    RowFacts,
    Undecided,
)
from streamjoin.topologies.outcomes.ties import tie_column, tie_ranks
from streamjoin.topologies.protocol import Frontier, Matches, Task, Topology, WindowSize

NOTHING = Matches(NO_ROWS, NO_ROWS)
FEW_MATCHES = 65_536  # taken from the topology at a time where they are not results themselves


class Outcomes:
    """Wraps a topology for the engine. `kept`: the sides whose rows without a match must be known."""

    def __init__(self, task: Task, topology: Topology, kept: Sequence[str]):
        self.spec: JoinSpec = task.plan.spec
        self.settles, self.found = topology.settles, topology.found
        self._topology, self._fetch = topology, task.fetch
        timed = (
            self.spec.keep != "all" or task.plan.options.order == "timestamp" or task.plan.delta is not None
        )
        self._facts = {side: RowFacts(timed) for side in SIDES}
        self._delta = task.plan.delta
        timed = task.plan.options.order == "timestamp"
        self._undecided = {side: Undecided(_window(task, side), timed) for side in kept}
        self._ranks: Mapping[str, np.ndarray] = {side: np.zeros(0, np.int32) for side in SIDES}
        self._ties = {side: tie_column(self.spec, side) for side in SIDES}
        self._queue: ResultQueue | None = None
        if task.plan.options.order == "timestamp":
            self._queue = ResultQueue(self.spec, self._facts, self._place)
        self._ready: deque[Matches] = deque()
        self._seen: tuple[object, ...] = ()  # the bounds that rows were last decided by
        # Without threads nothing changes between calls, so rows are decided once after each.
        self._on_threads = TRAITS[task.plan.topology].on_threads and task.plan.nodes.kind != "searching"
        self._looked = False
        self._matches_are_sorted = task.order == "timestamp"
        self._frontier = Frontier((-math.inf, 0, 0), dict.fromkeys(SIDES, -math.inf))

    # What becomes of matches

    def take_matches(self, matches: Matches) -> None:
        """Take matches from the topology."""
        raise NotImplementedError

    def decide(self, side: str, ids: np.ndarray, times: np.ndarray) -> None:
        """Note that no later match can contain these rows, which are in the total order."""
        raise NotImplementedError

    def decide_early(self, side: str, bounds: MatchBounds) -> None:
        """Look for rows that are decided before the end of their window."""

    def give(self, left: np.ndarray, right: np.ndarray, times: np.ndarray | None = None) -> None:
        """Output result rows, in the order of `times` if results are sorted. By default the time of a row is the later
        one of its event times."""
        if not len(left):
            return
        if self._queue is None:
            self._ready.append(Matches(left, right))
        else:
            self._queue.add(left, right, times)

    def give_alone(self, side: str, ids: np.ndarray, times: np.ndarray) -> None:
        """Output rows of a side without a partner."""
        none = np.full(len(ids), NO_ROW)
        left, right = (ids, none) if side == "left" else (none, ids)
        self.give(left, right, times)

    def check_undecided(self, state: np.ndarray) -> None:
        """Raise if a row is already decided: its result has left, so a further match is an error of the topology."""
        if len(state) and state.max() == ENDED:
            raise RuntimeError(FINAL)

    def _place(self, side: str, ids: np.ndarray) -> list[np.ndarray]:
        """The keys that order rows of equal time, the most significant last, as for np.lexsort."""
        keys = [ids, self._ranks[side][self._facts[side].source(ids)]]
        tie = self._ties[side]
        return keys if tie is None else [*keys, tie_ranks(self._fetch, side, tie, ids)]

    # What the engine asks

    @property
    def windows(self) -> Mapping[str, WindowSize]:
        return self._topology.windows

    @property
    def comparisons(self) -> tuple[int, ...]:
        return self._topology.comparisons

    def held(self, side: str) -> int:
        undecided = self._undecided.get(side)
        return max(self._topology.held(side), 0 if undecided is None else len(undecided))

    def clear(self) -> None:
        self._topology.clear()
        self._ready.clear()
        self._looked = False
        for undecided in self._undecided.values():
            undecided.clear()
        if self._queue is not None:
            self._queue.clear()

    def oldest_id(self, side: str) -> int | None:
        """As the topology's. The facts of older rows are forgotten."""
        oldest = min((each for each in self._needed(side) if each is not None), default=None)
        self._forget(side, self._facts[side].end if oldest is None else oldest)
        return oldest

    def _needed(self, side: str) -> list[int | None]:
        """The oldest rows that are still needed."""
        undecided = self._undecided.get(side)
        needed = [self._topology.oldest_id(side), undecided.oldest_id if undecided is not None else None]
        if self._queue is not None:
            needed.append(self._queue.oldest_id(side))
        for rows in self._ready:
            ids = rows.by_side()[side]
            needed.append(int(ids[ids >= 0].min()) if (ids >= 0).any() else None)
        return needed

    def _forget(self, side: str, before: int) -> None:
        self._facts[side].release(before)

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        self._ranks, self._frontier, self._looked = ranks, frontier, False
        if len(tuples):
            self._note(side, tuples)
        self._topology.push(side, tuples, ranks, frontier)

    def _note(self, side: str, tuples: ProbingTuples) -> None:
        if side in self._undecided or self._facts[side].timed:
            self._facts[side].append(tuples)
        if side in self._undecided:
            self._undecided[side].append(tuples, self._ranks[side])
            self._seen = ()  # where the other side has passed them, they are decided already

    def advance(self, frontier: Frontier) -> None:
        self._frontier, self._looked = frontier, False
        self._topology.advance(frontier)

    @property
    def idle(self) -> bool:
        """Whether the topology is idle and no result row is ready. Decides every row that can be decided."""
        if self._ready or not self._topology.idle:
            return False
        if self._looked and not self._on_threads:
            return True
        bounds = {side: self._bounds(side) for side in self._undecided}
        seen = (self._topology.least_result_time, *bounds.values())
        if seen != self._seen:
            self._decide_rows(bounds)
            self._release(self.least_result_time)
            self._seen = seen
        self._looked = True
        return not self._ready

    def _decide_rows(self, bounds: Mapping[str, MatchBounds]) -> None:
        for side, undecided in self._undecided.items():
            self.decide_early(side, bounds[side])
            ids, times = undecided.take(bounds[side])
            if len(ids):
                self.decide(side, ids, times)

    def _bounds(self, side: str) -> MatchBounds:
        """Bounds on the matches to come that contain rows of a side."""
        placed = self._topology.least_result_time
        if self._matches_are_sorted:  # those that are found wait for it, too
            return MatchBounds(placed, placed, placed)
        other = OTHER[side]
        partner = min(self._frontier.low[other], self._topology.least_unjoined_time(other))
        return MatchBounds(self._topology.least_unjoined_time(side), partner, placed)

    def _release(self, before: float) -> None:
        """Release sorted rows with an earlier result time: no row to come precedes them."""
        if self._queue is not None:
            rows = self._queue.release(before)
            if rows is not None and len(rows := self.sorted_rows(rows)):
                self._ready.append(rows)

    def sorted_rows(self, rows: Matches) -> Matches:
        """The result rows for rows that leave in order."""
        return rows

    def step(self, most: float) -> Matches:
        if not self._ready:
            self._looked = False
            matches = self._topology.step(max(most, FEW_MATCHES))
            if self._delta is not None:
                matches = self._counting(matches, self._delta)
            if len(matches):
                self.take_matches(matches)
        return take_first(self._ready, most)

    def _counting(self, matches: Matches, delta: Delta) -> Matches:
        """The matches that are within the spec's window."""
        apart = self._facts["right"].ts(matches.right) - self._facts["left"].ts(matches.left)
        counts = (apart >= delta.lo) & (apart <= delta.hi)
        return Matches(matches.left[counts], matches.right[counts])

    @property
    def least_result_time(self) -> float:
        return self._topology.least_result_time

    def least_unjoined_time(self, side: str) -> float:
        return self._topology.least_unjoined_time(side)


def _window(task: Task, side: str) -> SideWindow:
    """How long rows of a side wait for matches that count."""
    delta, keep = task.plan.delta, task.plan.spec.keep
    window = task.spec.side_window(side)
    if delta is not None:
        window = SideWindow(False, delta.hi if side == "left" else -delta.lo)
    if isinstance(keep, AsOf) and keep.direction == "backward":  # no later row is picked
        last = -int(keep.strict)
        return SideWindow(False, last if window.rows else min(window.size, last))
    return window


def those(matches: Matches, which: np.ndarray) -> Matches:
    """Some of the matches."""
    return matches if which.all() else Matches(matches.left[which], matches.right[which])


class AllMatches(Outcomes):
    """Outer, semi and anti joins: every match counts."""

    def __init__(self, task: Task, topology: Topology):
        how = task.plan.spec.how
        self._alone = UNMATCHED[how]
        self._found_in_order = task.order == "timestamp" and not task.plan.sorts_results
        super().__init__(task, topology, ("left",) if how == "semi" else self._alone)

    def take_matches(self, matches: Matches) -> None:
        if self.spec.how == "semi":
            self.check_undecided(self._facts["left"].state(matches.left))
        else:
            for side in self._undecided:
                self._facts[side].mark(matches.left if side == "left" else matches.right, HAS_MATCH)
        if self.spec.how == "semi":
            rows = self._first_found(matches)  # the right row only sets the time
        else:
            rows = NOTHING if self.spec.how == "anti" else matches
        if self._queue is not None and self._matches_are_sorted:
            self._give_in_order(rows, self._last_time(matches))
        else:
            self.give(rows.left, rows.right)

    def _last_time(self, matches: Matches) -> int:
        """The result time of the last match."""
        return max(int(self._facts[side].ts(ids[-1:])[0]) for side, ids in matches.by_side().items())

    def _give_in_order(self, rows: Matches, last: int) -> None:
        """Let rows leave before all matches of a push are found, which may be many: no match to come is earlier than
        `last`, and rows without a partner come after pairs of the same time."""
        assert self._queue is not None
        self._decide_rows(dict.fromkeys(self._undecided, MatchBounds(last, last, last)))
        cut = len(rows)
        if self._found_in_order:
            times = [self._facts[side].ts(ids) for side, ids in rows.by_side().items()]
            cut = int(np.maximum(*times).searchsorted(last))
        self.give(rows.left[:cut], rows.right[:cut])
        self._release(last)
        if cut < len(rows):
            self._ready.append(Matches(rows.left[cut:], rows.right[cut:]))

    def decide(self, side: str, ids: np.ndarray, times: np.ndarray) -> None:
        unmatched = self._facts[side].close(ids, self.spec.how == "semi")
        if side in self._alone and len(unmatched):
            self.give_alone(side, ids[unmatched], times[unmatched])

    def _first_found(self, matches: Matches) -> Matches:
        """Matches that include the first one of each left row in order."""
        if self._queue is None or self._found_in_order:
            return self._first_of_each(matches)
        # All matches wait to be sorted, but for those of rows that have left.
        return those(matches, self._facts["left"].state(matches.left) == NO_MATCH)

    def sorted_rows(self, rows: Matches) -> Matches:
        return self._first_of_each(rows) if self.spec.how == "semi" and not self._found_in_order else rows

    def _first_of_each(self, matches: Matches) -> Matches:
        """The first match of each left row that had none; O(matches + rows between the least and the greatest)."""
        new = np.flatnonzero(self._facts["left"].state(matches.left) != HAS_MATCH)
        if not len(new):
            return NOTHING
        ids, order = matches.left[new], np.arange(len(new))
        at = ids - ids.min()
        first = np.empty(int(at.max()) + 1, np.int64)
        first[at[::-1]] = order[::-1]  # where several are written to one place, the last one stays
        chosen = new[first[at] == order]
        self._facts["left"].set_state(matches.left[chosen], HAS_MATCH)
        return Matches(matches.left[chosen], matches.right[chosen])
