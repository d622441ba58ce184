"""Kang's three-step procedure: a new tuple scans the opposite window, enters its own, and expired tuples leave
(Kang, Naughton & Viglas 2003; Teubner & Mueller 2011, section 2.1). One thread; the optimum of latency.

Two ways to meet, both exact:
- *at once*: a tuple probes all tuples of the other side that came before it and lie within the time windows.
  Each pair meets once, when its later arrival comes. Enough for time windows in any output order.
- *settled*: tuples wait until nothing that precedes them in the total order can still come, then probe,
  in that order, what precedes them. Row windows need it, and so does sorted output.

Invariants: each window is sorted by the total order; a tuple leaves a window only when no tuple that
can still probe it has it in range; with `settled`, positions below `probed` have probed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import numpy as np

from streamjoin.codegen.columns import ColumnData
from streamjoin.codegen.evaluate import Filter
from streamjoin.codegen.programs import WindowProgram
from streamjoin.index.protocol import Tuples
from streamjoin.index.scan import ScanWindow
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.topologies.protocol import OTHER, Fetch, Frontier, Matches

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
LARGEST_STEP = 16_384  # probes in one step


class ThreeStep:
    """The procedure on one thread. `fetch` gives payload columns of row ids, for residual conditions."""

    orders: tuple[str, ...] = ("any", "punctuated", "timestamp")
    workers = 1

    def __init__(self, spec: JoinSpec, programs: Mapping[str, WindowProgram], order: str, fetch: Fetch):
        self.spec, self.order, self._fetch = spec, order, fetch
        self.settles = order == "timestamp" or spec.left_window.rows or spec.right_window.rows
        self.windows = {side: ScanWindow(programs[side], self.settles) for side in SIDES}
        self.comparisons = 0
        self._ranks: Mapping[str, np.ndarray] = {side: np.zeros(0, np.int32) for side in SIDES}
        self._residuals = {s: None if (r := programs[s].residual) is None else Filter(r) for s in SIDES}
        self._frontier = Frontier((-math.inf, 0, 0), dict.fromkeys(SIDES, -math.inf))
        self._arrived: deque[tuple[str, Tuples]] = deque()
        self._offset = 0  # probes of the first arrival that are done
        self._probed = dict.fromkeys(SIDES, 0)
        self._settled = dict.fromkeys(SIDES, 0)
        self._step = LARGEST_STEP
        self._pairs = PairBuffer(65_536)

    def push(self, side: str, tuples: Tuples, ranks: Mapping[str, np.ndarray], frontier: Frontier) -> None:
        """Take tuples of one side, in the total order, the order of the sources by their numbers, and what is known
        to come after them."""
        self._ranks = ranks
        if self.settles:
            self.windows[side].insert(tuples, self._ranks[side])
        elif len(tuples):
            self._arrived.append((side, tuples))
        self.advance(frontier)

    def advance(self, frontier: Frontier) -> None:
        """Learn what can still come."""
        self._frontier = frontier
        if self.settles:
            self._settled = {side: self._settled_count(side) for side in SIDES}
            self._expire()
        elif not self._arrived:
            self._expire()

    @property
    def least_result_time(self) -> float:
        """Once idle: no result to come is earlier. Each has a tuple that is still to come or to settle."""
        waiting = [
            int(self.windows[side]["ts"][self._probed[side]])
            for side in SIDES
            if self.settles and self._probed[side] < len(self.windows[side])
        ]
        return min([*self._frontier.low.values(), *waiting])

    @property
    def idle(self) -> bool:
        return not self._arrived and self._probed == self._settled

    def step(self, most: float) -> Matches:
        """Do a part of the waiting work; at most `most` results, or those of a single tuple."""
        return self._settled_step(most) if self.settles else self._arrival_step(most)

    # At once

    def _arrival_step(self, most: float) -> Matches:
        side, tuples = self._arrived[0]
        stored = OTHER[side]
        while True:
            whole = self._offset == 0 and len(tuples) <= self._step
            probes = tuples if whole else tuples.pick(slice(self._offset, self._offset + self._step))
            found = self._probe(stored, probes, *self._reach(stored, probes.ts), most, len(probes) > 1)
            if found is not None:
                break
        probe, pos = found
        matches = self._matches(side, probes.id[probe], self.windows[stored]["id"][pos])
        self._offset += len(probes)
        if self._offset >= len(tuples):
            self._arrived.popleft()
            self._offset = 0
            self.windows[side].insert(tuples, self._ranks[side])
            if not self._arrived:
                self._expire()
        return matches

    def _reach(self, stored: str, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions of stored tuples within the time windows of probes at `ts`, earlier or later."""
        held = self.windows[stored]["ts"]
        start = np.searchsorted(held, minus(ts, self.spec.side_window(stored).size), "left")
        return start, np.searchsorted(held, plus(ts, self.spec.side_window(OTHER[stored]).size), "right")

    # Settled

    def _settled_count(self, side: str) -> int:
        """How many tuples of a window, from its oldest, precede everything that can still come."""
        bound, first_side, rank = self._frontier.bound
        held = self.windows[side]["ts"]
        if not math.isfinite(bound):
            return len(held) if bound > 0 else 0
        low, high = (int(np.searchsorted(held, int(bound), end)) for end in ("left", "right"))
        if SIDES.index(side) != first_side:
            return high if SIDES.index(side) < first_side else low
        return low + int(
            np.searchsorted(self._ranks[side][self.windows[side]["source"][low:high]], rank, "right")
        )

    def _settled_step(self, most: float) -> Matches:
        compared = self.comparisons
        while True:
            self.comparisons = compared
            ends = self._cut()
            several = sum(ends.values()) > sum(self._probed.values()) + 1
            left = self._settled_probe("left", ends["left"], most, several)
            right = left and self._settled_probe("right", ends["right"], most - len(left[0]), several)
            if left and right:
                break
        self._probed = ends
        matches = self._merge([left, right])
        self._expire()
        return matches

    def _cut(self) -> dict[str, int]:
        """Where the next step ends on each side: the first tuples in the total order that have not probed."""
        ends = {side: min(self._settled[side], self._probed[side] + self._step) for side in SIDES}
        times = {side: self.windows[side]["ts"] for side in SIDES}
        if self._step == 1 and all(ends[side] > self._probed[side] for side in SIDES):
            first = times["left"][self._probed["left"]] <= times["right"][self._probed["right"]]
            later = "right" if first else "left"
            return {**ends, later: self._probed[later]}
        whole = {side: ends[side] == self._settled[side] for side in SIDES}
        lasts = {s: (times[s][ends[s] - 1], SIDES.index(s)) for s in SIDES if not whole[s]}
        if lasts:
            ts, number = min(lasts.values())
            other = SIDES[1 - number]
            cut = int(np.searchsorted(times[other], ts, "left" if other == "right" else "right"))
            ends[other] = max(self._probed[other], min(ends[other], cut))
        return ends

    def _settled_probe(
        self, side: str, end: int, most: float, several: bool
    ) -> tuple[np.ndarray, ...] | None:
        """Probe with the tuples of `side` up to `end`: left ids, right ids and, if asked, the keys to sort them by."""
        begin, stored = self._probed[side], OTHER[side]
        probes = self.windows[side].rows(begin, end)
        found = self._probe(stored, probes, *self._preceding(stored, probes.ts), most, several)
        if found is None:
            return None
        probe, pos = found
        matches = self._matches(side, probes.id[probe], self.windows[stored]["id"][pos])
        if self.order != "timestamp":
            return matches.left, matches.right
        return (
            matches.left,
            matches.right,
            probes.ts[probe],
            np.full(len(probe), SIDES.index(side)),
            probe,
            pos,
        )

    def _preceding(self, stored: str, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions of stored tuples that precede probes at `ts` in the total order and are still in the window."""
        held, window = self.windows[stored]["ts"], self.spec.side_window(stored)
        stop = np.searchsorted(held, ts, "right" if stored == "left" else "left")
        if window.rows:
            return np.maximum(stop - window.size, 0), stop
        return np.searchsorted(held, minus(ts, window.size), "left"), stop

    def _merge(self, parts: list[tuple[np.ndarray, ...]]) -> Matches:
        """Both sides' results, sorted if asked: by the order of the later tuple, then of the earlier."""
        left, right, *keys = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        if keys:
            order = np.lexsort(keys[::-1])
            left, right = left[order], right[order]
        return Matches(left, right)

    # Both

    def _probe(
        self, stored: str, probes: Tuples, start: np.ndarray, stop: np.ndarray, most: float, several: bool
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Pairs (probe, position); None if there are more than `most` in a step of several tuples: the next try
        takes fewer."""
        pairs, window = self._pairs, self.windows[stored]
        pairs.count = 0
        for before in window.probe(probes, start, stop, pairs) if len(probes) else ():
            self._check_residual(stored, probes, pairs, before)
            if pairs.count > most and several:
                self._step = max(1, min(self._step, len(probes)) // 4)
                return None
        self.comparisons += int((stop - start).sum())
        if pairs.count < most / 4:
            self._step = min(2 * self._step, LARGEST_STEP)
        return pairs.take()

    def _check_residual(self, stored: str, probes: Tuples, pairs: PairBuffer, before: int) -> None:
        residual = self._residuals[stored]
        if residual is None or pairs.count == before:
            return
        fresh = slice(before, pairs.count)
        ids = {
            stored: self.windows[stored]["id"][pairs.pos[fresh]],
            OTHER[stored]: probes.id[pairs.probe[fresh]],
        }
        data: dict[Column, ColumnData] = {}
        for side in SIDES:
            data |= self._fetch(side, tuple(c for c in residual.columns if c.side == side), ids[side])
        pairs.keep(before, residual(data, pairs.count - before))

    def _matches(self, probing: str, probe_ids: np.ndarray, held_ids: np.ndarray) -> Matches:
        return Matches(probe_ids, held_ids) if probing == "left" else Matches(held_ids, probe_ids)

    def _first_in_range(self, stored: str, ts: int) -> int:
        """The first position that a probe at `ts`, or later, can reach."""
        held, window = self.windows[stored]["ts"], self.spec.side_window(stored)
        if window.rows:
            return max(int(held.searchsorted(ts, "right" if stored == "left" else "left")) - window.size, 0)
        return int(held.searchsorted(max(ts - window.size, INT64_MIN), "left"))

    def _expire(self) -> None:
        """Drop what no tuple that can still probe has in range."""
        for stored in SIDES:
            probing, window = OTHER[stored], self.windows[stored]
            low = self._frontier.low[probing]
            if self.settles and self._probed[probing] < len(self.windows[probing]):
                low = min(low, int(self.windows[probing]["ts"][self._probed[probing]]))
            if low == math.inf:
                gone = len(window)
            else:
                gone = self._first_in_range(stored, INT64_MIN if low == -math.inf else int(low))
            if self.settles:
                gone = min(gone, self._probed[stored])
                self._probed[stored] -= gone
                self._settled[stored] -= gone
            if gone:
                window.drop(gone)


def minus(ts: np.ndarray, size: int) -> np.ndarray:
    """ts - size, stopping at the smallest integer; ts does not fall."""
    return (
        ts - size
        if len(ts) and ts[0] >= INT64_MIN + size
        else np.where(ts < INT64_MIN + size, INT64_MIN, ts - size)
    )


def plus(ts: np.ndarray, size: int) -> np.ndarray:
    """ts + size, stopping at the largest integer; ts does not fall."""
    return (
        ts + size
        if len(ts) and ts[-1] <= INT64_MAX - size
        else np.where(ts > INT64_MAX - size, INT64_MAX, ts + size)
    )
