"""Kang's three-step procedure: a new tuple scans the opposite window, enters its own, and expired tuples leave
(Kang, Naughton & Viglas 2003; Teubner & Mueller 2011, section 2.1). One thread, which shares the probes of a large
batch with a team (Pan & Jacobsen, section III-G3); the optimum of latency.

Two ways to meet, both exact:
- *at once*: a tuple probes all tuples of the other side that came before it and lie within the time windows.
  Each pair meets once, when its later arrival comes. Enough for time windows in any output order.
- *settled*: tuples wait until nothing that precedes them in the total order can still come, then probe,
  in that order, what precedes them. Row windows need it, and so does sorted output.

Invariants: a tuple leaves a window only when no tuple that can still probe has it in reach. With `settled`,
the first `inserted` of the tuples that wait are in their window already. A step that is given up in the middle, because
it finds too much or because the join is closed, has changed nothing but that.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import numpy as np

from streamjoin.index.times import Reach, ReachAround, reach_of
from streamjoin.index.tuples import ProbingTuples
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.protocol import Frontier, Matches, Task
from streamjoin.topologies.runtime.node import Bell
from streamjoin.topologies.runtime.team import ThreadTeam
from streamjoin.topologies.settling import Settling

NOTHING_FOUND = np.empty(0, np.int32), np.empty(0, np.int32)
NO_MATCHES = Matches(np.empty(0, np.int64), np.empty(0, np.int64))


class ThreeStep:
    """The procedure, driven by one thread."""

    def __init__(self, task: Task):
        self.spec, self.order = task.spec, task.order
        self.settles = task.settles
        self.windows = {side: task.make_window(side) for side in SIDES}
        self._sizes = {side: task.spec.side_window(side) for side in SIDES}
        # By side: its window, the size of that, and whether it is counted in rows.
        self._held = [(side, self.windows[side], size.size, size.rows) for side, size in self._sizes.items()]
        self._prober = task.make_prober()
        self._arrived: deque[tuple[str, ProbingTuples]] = deque()  # to be joined at once
        self._offset = 0  # how many tuples of the first arrival have probed
        self._settling = Settling() if task.settles else None
        self._ranks: Mapping[str, np.ndarray] = {side: np.zeros(0, np.int32) for side in SIDES}
        self._low: Mapping[str, float] = dict.fromkeys(
            SIDES, -math.inf
        )  # the least event time that can still come
        self._inserted = dict.fromkeys(SIDES, 0)
        self._largest_step = task.plan.tuning.caller.largest_step
        self._step = self._largest_step
        self._rest = NO_MATCHES  # matches of one tuple that exceeded a step
        self.found = Bell()
        self._pairs, self._team = (
            PairBuffer(65_536),
            ThreadTeam(task.workers, self.found, task.plan.tuning.team),
        )

    @property
    def comparisons(self) -> tuple[int, ...]:
        total = sum(window.comparisons for window in self.windows.values())
        return total - sum(self._team.compared), *self._team.compared

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        self._ranks = ranks
        if self._settling is not None:
            self._settling.ranks = ranks
            self._settling.push(side, tuples)
        elif len(tuples.ts):
            self._arrived.append((side, tuples))
        self.advance(frontier)

    def advance(self, frontier: Frontier) -> None:
        self._low = frontier.low
        if self._settling is not None:
            self._settling.advance(frontier)
        if not self._arrived:
            self._expire()

    def held(self, side: str) -> int:
        waiting = 0 if self._settling is None else len(self._settling.waiting[side])
        return len(self.windows[side]) + waiting

    def oldest_id(self, side: str) -> int | None:
        window = self.windows[side]
        oldest = [window.oldest_id()] if len(window) else []
        if self._settling is not None and len(self._settling.waiting[side]):
            oldest.append(int(self._settling.waiting[side].id.min()))
        return min(oldest, default=None)

    def clear(self) -> None:
        self._team.close()
        self._arrived.clear()
        if self._settling is not None:
            self._settling.clear()
        self._rest = NO_MATCHES
        for side in SIDES:
            self.windows[side].clear()
            self._inserted[side] = 0

    @property
    def least_result_time(self) -> float:
        """Each result to come has a tuple that is still to come or to settle."""
        return min(self._low.values()) if self._settling is None else min(map(self._settling.low, SIDES))

    def least_unjoined_time(self, side: str) -> float:
        waiting = () if self._settling is None else self._settling.waiting[side].ts[:1]
        return min(map(int, waiting), default=math.inf)

    @property
    def idle(self) -> bool:
        if self._arrived or self._rest is not NO_MATCHES:
            return False
        return self._settling is None or not self._settling.any_settled

    def step(self, most: float) -> Matches:
        found = self._rest
        if found is NO_MATCHES:
            found = self._arrival_step(most) if self._settling is None else self._settled_step(most)
        if len(found.left) <= most:
            self._rest = NO_MATCHES
            return found
        cut = int(most)
        self._rest = Matches(found.left[cut:], found.right[cut:])
        return Matches(found.left[:cut], found.right[:cut])

    # At once

    def _arrival_step(self, most: float) -> Matches:
        side, tuples = self._arrived[0]
        stored, count = OTHER[side], len(tuples.ts)
        back, ahead = self._sizes[stored].size, self._sizes[side].size
        while True:
            whole = self._offset == 0 and count <= self._step
            probes = tuples if whole else tuples.pick(slice(self._offset, self._offset + self._step))
            reach = ReachAround(probes.ts, back, ahead)
            found = self._probe(stored, probes, reach, most, len(probes.ts) > 1)
            if found is not None:
                break
            if self.found.stopped:
                return NO_MATCHES
        matches = self._matches(side, probes, found)
        self._offset += len(probes.ts)
        if self._offset >= count:
            self._arrived.popleft()
            self._offset = 0
            self.windows[side].insert(tuples, self._ranks[side], self._team)
            if not self._arrived:
                self._expire()
        return matches

    # Settled

    def _settled_step(self, most: float) -> Matches:
        """Join the next tuples of both sides in the total order with what precedes them."""
        settling = self._settling
        assert settling is not None
        counts = self._counts()
        while True:
            ends = settling.first(self._step)
            self._recount(counts)
            for side in SIDES:
                if ends[side] > self._inserted[side]:
                    settled = settling.waiting[side].between(self._inserted[side], ends[side])
                    self.windows[side].insert(settled, self._ranks[side], self._team)
                    self._inserted[side] = ends[side]
            several = sum(ends.values()) > 1
            left = self._settled_probe(settling, "left", ends["left"], most, several)
            right = left and self._settled_probe(
                settling, "right", ends["right"], most - len(left[0]), several
            )
            if left and right:
                break
            if self.found.stopped:
                return NO_MATCHES
        for side in SIDES:
            settling.drop(side, ends[side])
            self._inserted[side] -= ends[side]
        self._expire()
        return self._sorted(left, right)

    def _settled_probe(
        self, settling: Settling, side: str, end: int, most: float, several: bool
    ) -> tuple[np.ndarray, ...] | None:
        """Probe with the first `end` waiting tuples of `side`: left ids, right ids and, if the output is to be sorted,
        the keys to sort them by."""
        stored = OTHER[side]
        probes = settling.waiting[side].probing_between(0, end)
        found = self._probe(stored, probes, reach_of(self.spec, stored, probes.ts, True), most, several)
        if found is None:
            return None
        matches = self._matches(side, probes, found)
        if self.order != "timestamp":
            return matches.left, matches.right
        probe, pos = found
        return (
            matches.left,
            matches.right,
            probes.ts[probe],
            np.full(len(probe), SIDES.index(side)),
            probe,
            pos,
        )

    def _sorted(self, left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> Matches:
        """The results of both sides' probes: if asked, by the order of the later tuple, then of the earlier."""
        left_ids, right_ids, *keys = (np.concatenate(columns) for columns in zip(left, right, strict=True))
        if keys:
            order = np.lexsort(keys[::-1])
            left_ids, right_ids = left_ids[order], right_ids[order]
        return Matches(left_ids, right_ids)

    # Both

    def _probe(
        self, stored: str, probes: ProbingTuples, reach: Reach, most: float, several: bool
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Pairs (probe, position); None if there are more than `most` in a step of several tuples: the next try
        takes fewer. None, too, if the join was closed meanwhile."""
        pairs, window, team = self._pairs, self.windows[stored], self._team
        pairs.count, pairs.compared, by_team = 0, 0, team.compared.copy()
        for _ in self._prober.probe(window, OTHER[stored], probes, reach, pairs, team):
            if pairs.count > most and several:
                self._step = max(1, min(self._step, len(probes)) // 4)
            elif not self.found.stopped:
                continue
            window.comparisons -= pairs.compared  # the step is repeated later, so do not count them twice
            team.compared = by_team
            return None
        if self._step < self._largest_step and pairs.count < most / 4:
            self._step = min(2 * self._step, self._largest_step)
        return pairs.take() if pairs.count else NOTHING_FOUND

    def _counts(self) -> tuple[dict[str, int], list[int]]:
        """The comparisons in each window, and by each thread of the team."""
        return {side: window.comparisons for side, window in self.windows.items()}, self._team.compared.copy()

    def _recount(self, counts: tuple[dict[str, int], list[int]]) -> None:
        """Forget the comparisons since then."""
        for side, window in self.windows.items():
            window.comparisons = counts[0][side]
        self._team.compared = counts[1].copy()

    def _matches(self, side: str, probes: ProbingTuples, found: tuple[np.ndarray, np.ndarray]) -> Matches:
        """The pairs that probes of `side` have found, as row ids."""
        if found is NOTHING_FOUND:
            return NO_MATCHES
        probe, pos = found
        probe_ids, held_ids = probes.id.take(probe), self.windows[OTHER[side]].ids(pos)
        return Matches(probe_ids, held_ids) if side == "left" else Matches(held_ids, probe_ids)

    def _expire(self) -> None:
        """Drop what no tuple that can still probe has in reach."""
        lows = self._low
        if self._settling is not None:
            lows = {side: self._settling.low(side) for side in SIDES}
        for stored, window, size, rows in self._held:
            low = lows[OTHER[stored]]
            if low == math.inf:
                window.clear()
            elif low == -math.inf:
                continue
            elif not rows:
                before = int(low) - size
                if not INT64_MIN <= before <= INT64_MAX:
                    before = INT64_MIN if before < 0 else INT64_MAX
                window.expire(before)
            elif len(window):
                preceding = int(window.ts.searchsorted(int(low), "left" if stored == "right" else "right"))
                if preceding > size:
                    window.expire_first(preceding - size)
