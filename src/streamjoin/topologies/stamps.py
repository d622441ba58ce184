"""Stamps decide which tuples meet before work is spread: each gets a `place` and a `since`, so workers need no window.

Two tuples of different sides are in each other's window iff the intervals [since, place] of both overlap:
`place` orders tuples, and `since` is the least place of the other side that a tuple reaches back to. Whichever
of the two finds the other, the same test decides, so a topology may let them meet in any order and anywhere.

- `ArrivalStamps`: a place is an event time. Tuples proceed at once; enough for time windows in any output order.
- `OrderStamps`: a place is the number in the total order. Tuples wait until nothing that precedes them can
  still come. Row windows and sorted output need it.

Stamped tuples have their place for a `ts`, and `since` beside it; `until`, the greatest place in reach, where that is
known beforehand, and else `since` among the marks that windows keep.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from streamjoin.index.sliding import SlidingColumns
from streamjoin.index.times import Reach, saturated_sum
from streamjoin.index.tuples import ProbingTuples
from streamjoin.index.window import WindowIndex
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.semantics.spec import OTHER, SIDES, JoinSpec
from streamjoin.topologies.protocol import Frontier
from streamjoin.topologies.settling import Settling

EVENT_TIMES, PLACES = 0, 1  # columns of `OrderStamps._taken`


def in_reach(window: WindowIndex, probes: ProbingTuples, floor: int = INT64_MIN) -> Reach:
    """What stamped probes may meet in a window of stamped tuples, from the place `floor` on."""
    assert probes.since is not None
    since, until = np.maximum(probes.since, floor), probes.until
    if until is None:
        count = window.mark("since").searchsorted(probes.ts, "right")
        until = np.full(len(probes), INT64_MIN)
        until[count > 0] = window.ts[count[count > 0] - 1]
    return Reach(since, until)


class ArrivalStamps:
    """Stamps of time windows, in the order of arrival."""

    settles = False

    def __init__(self, spec: JoinSpec):
        self._sizes = {side: spec.side_window(side).size for side in SIDES}
        self._frontier = Frontier((-math.inf, 0, 0), dict.fromkeys(SIDES, -math.inf))
        self._arrived: deque[tuple[str, ProbingTuples]] = deque()
        self.ended = False  # nothing can still come

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        if len(tuples):
            stamped = replace(
                tuples,
                source=np.zeros(len(tuples), np.int32),  # among equal event times the order does not matter
                since=saturated_sum(tuples.ts, -self._sizes[OTHER[side]]),
                until=saturated_sum(tuples.ts, self._sizes[side]),
            )
            self._arrived.append((side, stamped))
        self.advance(frontier)

    def advance(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self.ended = min(frontier.low.values()) == math.inf

    def held(self, side: str) -> list[ProbingTuples]:
        """Those of a side that are still to be taken."""
        return [tuples for at, tuples in self._arrived if at == side]

    @property
    def ready(self) -> bool:
        return bool(self._arrived)

    def take(self, most: int) -> tuple[str, ProbingTuples, int]:
        """The next tuples, at most `most`, of one side, and the first of their event times."""
        side, tuples = self._arrived.popleft()
        if len(tuples) > most:
            self._arrived.appendleft((side, tuples.pick(slice(most, None))))
            tuples = tuples.pick(slice(0, most))
        return side, tuples, int(tuples.ts[0])

    def expired(self, side: str) -> int:
        """No tuple of the other side that is still to be taken reaches a place of `side` below this."""
        low = self._frontier.low[OTHER[side]]
        if self._arrived:
            low = min([low, *(int(tuples.ts[0]) for tuples in self.held(OTHER[side]))])
        if not math.isfinite(low):
            return INT64_MAX if low > 0 else INT64_MIN
        return min(max(int(low) - self._sizes[side], INT64_MIN), INT64_MAX)

    @property
    def place(self) -> int:
        """Every tuple still to be taken has at least this place."""
        return int(max(min(self.low, INT64_MAX), INT64_MIN))

    @property
    def low(self) -> float:
        """No tuple that is still to be taken has an earlier event time."""
        return min([*self._frontier.low.values(), *(int(tuples.ts[0]) for _, tuples in self._arrived)])

    def least_waiting_time(self, side: str) -> float:
        """The least event time of the tuples of a side that are still to be taken; infinity if there is none."""
        return min((int(tuples.ts[0]) for tuples in self.held(side)), default=math.inf)

    def clear(self) -> None:
        self._arrived.clear()


class OrderStamps:
    """Stamps of any windows, in the total order."""

    settles = True

    def __init__(self, spec: JoinSpec):
        self._windows = {side: spec.side_window(side) for side in SIDES}
        self._settling = Settling()
        self._next = 0  # place
        # Event times and places of those taken that can still be in reach, by number of the side.
        self._taken = {side: SlidingColumns() for side in SIDES}
        self._first = dict.fromkeys(SIDES, 0)  # number of the oldest in `_taken`
        for taken in self._taken.values():
            taken.append([np.empty(0, np.int64), np.empty(0, np.int64)])
        self._stamped: deque[tuple[str, ProbingTuples, int]] = deque()
        self.ended = False  # nothing can still come

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        self._settling.ranks = ranks
        self._settling.push(side, tuples)
        self.advance(frontier)

    def advance(self, frontier: Frontier) -> None:
        self._settling.advance(frontier)
        self.ended = min(frontier.low.values()) == math.inf

    def held(self, side: str) -> list[ProbingTuples]:
        """Those of a side that are still to be taken."""
        pending = self._settling.waiting[side]
        waiting = [pending.probing_between(0, len(pending))] if len(pending) else []
        return waiting + [tuples for at, tuples, _ in self._stamped if at == side]

    @property
    def ready(self) -> bool:
        return bool(self._stamped) or any(self._settling.settled.values())

    def fewer_than(self, count: int) -> bool:
        """Whether none is stamped, and fewer than `count` of either side are ready to be."""
        return not self._stamped and max(self._settling.settled.values()) < count

    def take(self, most: int) -> tuple[str, ProbingTuples, int]:
        """The next tuples, at most `most`, of one side, and the first of their event times."""
        if not self._stamped:
            self._stamp(most)
        return self._stamped.popleft()

    def _stamp(self, most: int) -> None:
        """Give the next settled tuples of both sides, at most `most` of each, their places and reach."""
        counts = self._settling.first(most)
        parts = {side: self._settling.waiting[side].probing_between(0, counts[side]) for side in SIDES}
        # Left precedes right at equal event times. How many of the other side, of these and of all, precede each:
        before = {
            "left": np.searchsorted(parts["right"].ts, parts["left"].ts, "left"),
            "right": np.searchsorted(parts["left"].ts, parts["right"].ts, "right"),
        }
        places, preceding = {}, {}
        for side in SIDES:
            places[side] = self._next + np.arange(counts[side]) + before[side]
            preceding[side] = self._first[OTHER[side]] + len(self._taken[OTHER[side]]) + before[side]
        for side in SIDES:
            self._taken[side].append([parts[side].ts, places[side]])
        self._next += sum(counts.values())
        for side in SIDES:
            if counts[side]:
                since = self._since(OTHER[side], parts[side].ts, preceding[side], places[side])
                self._stamped.append(
                    (side, _placed(parts[side], places[side], since), int(parts[side].ts[0]))
                )
            self._settling.drop(side, counts[side])
        for side in SIDES:
            self._forget(side)

    def _since(self, stored: str, ts: np.ndarray, preceding: np.ndarray, places: np.ndarray) -> np.ndarray:
        """The least place of `stored` that each tuple reaches; its own if it reaches none."""
        first = self._oldest_in_reach(stored, ts, preceding) - self._first[stored]
        held = self._taken[stored][PLACES]
        since = places.copy()
        reaches = first < preceding - self._first[stored]
        since[reaches] = held[first[reaches]]
        return since

    def _oldest_in_reach(self, stored: str, ts: np.ndarray, preceding: np.ndarray) -> np.ndarray:
        """The number of the oldest tuple of `stored` in the window of tuples at `ts` with that many before them."""
        window = self._windows[stored]
        oldest: np.ndarray
        if window.rows:
            oldest = np.maximum(preceding - window.size, 0)
        else:
            oldest = self._taken[stored][EVENT_TIMES].searchsorted(saturated_sum(ts, -window.size))
            oldest += self._first[stored]
        return oldest

    def _oldest_ahead(self, side: str) -> int:
        """The number of the oldest tuple of `side` that tuples still to be stamped can reach."""
        count = self._first[side] + len(self._taken[side])
        low = self._settling.low(OTHER[side])
        if low == math.inf:
            return count
        if low == -math.inf and not self._windows[side].rows:
            return self._first[side]
        at = np.array([0 if low == -math.inf else int(low)])
        return int(self._oldest_in_reach(side, at, np.array([count]))[0])

    def _forget(self, side: str) -> None:
        gone = min(self._oldest_ahead(side) - self._first[side], len(self._taken[side]))
        if gone > 0:
            self._taken[side].drop(gone)
            self._first[side] += gone

    def expired(self, side: str) -> int:
        """No tuple of the other side that is still to be taken reaches a place of `side` below this."""
        waiting = [least_since(tuples) for at, tuples, _ in self._stamped if at != side]
        if waiting:
            return min(waiting)
        ahead = self._oldest_ahead(side) - self._first[side]
        held = self._taken[side][PLACES]
        return int(held[max(ahead, 0)]) if ahead < len(held) else self._next

    @property
    def place(self) -> int:
        """Every tuple still to be taken has at least this place."""
        return min([self._next, *(int(tuples.ts[0]) for _, tuples, _ in self._stamped)])

    @property
    def low(self) -> float:
        """No tuple that is still to be taken has an earlier event time."""
        return min([*map(self._settling.low, SIDES), *(ts for _, _, ts in self._stamped)])

    def least_waiting_time(self, side: str) -> float:
        """The least event time of the tuples of a side that are still to be taken; infinity if there is none."""
        times = [int(ts) for ts in self._settling.waiting[side].ts[:1]]
        return min([*times, *(ts for at, _, ts in self._stamped if at == side)], default=math.inf)

    def clear(self) -> None:
        self._stamped.clear()
        self._settling.clear()


def make_stamps(spec: JoinSpec, settles: bool) -> ArrivalStamps | OrderStamps:
    """The stamps for tuples that settle, or for tuples that are joined at once."""
    return OrderStamps(spec) if settles else ArrivalStamps(spec)


def least_since(tuples: ProbingTuples) -> int:
    """The least place that stamped tuples reach: that of the first."""
    assert tuples.since is not None
    return int(tuples.since[0])


def _placed(tuples: ProbingTuples, places: np.ndarray, since: np.ndarray) -> ProbingTuples:
    """The tuples with their stamps, in memory of their own: what they came from changes."""
    return replace(
        tuples,
        ts=places,
        id=tuples.id.copy(),
        source=np.zeros(len(tuples), np.int32),  # places are unique
        stored=tuples.stored.with_arrays([array.copy() for array in tuples.stored.arrays()]),
        probing=tuples.probing.with_arrays([array.copy() for array in tuples.probing.arrays()]),
        marks={"since": since},
        since=since,
    )
