"""Event times: which stored tuples a probe reaches, and their positions in a window sorted by time.

All arithmetic saturates at the ends of 64 bits, so a window at the beginning or end of time never wraps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamjoin.kernels.sorted.runs import rising_places
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN, reach_ends, reach_places, shifted
from streamjoin.semantics.spec import OTHER, JoinSpec

MANY_TIMES = 256  # from this many times on, search for the first and the last one before the others
SPARSE = 16  # step through a window linearly while it has fewer tuples than this per time


def saturated_sum(ts: np.ndarray, size: int) -> np.ndarray:
    """ts + size, saturating at the ends of 64 bits."""
    out = np.empty(len(ts), np.int64)
    shifted(ts, size, out)
    return out


def distances(ts: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How far apart times are, as uint64: the distance of 64-bit times may need all 64 bits."""
    apart: np.ndarray = np.where(others >= ts, others - ts, ts - others).view(np.uint64)
    return apart


@dataclass(slots=True, init=False, eq=False)
class Reach:
    """Which stored tuples each probe may meet, by their place in the total order.

    These are the tuples with ts <= `high` (< if `strict`) and ts >= `low`; without `low`, the last `rows` of them.
    Neither bound decreases from probe to probe. Treat a `Reach` as immutable. It is not a frozen dataclass, because
    every push creates some and frozen ones are slower to create.
    """

    low: np.ndarray | None
    high: np.ndarray
    rows: int
    strict: bool

    def __init__(self, low: np.ndarray | None, high: np.ndarray, rows: int = 0, strict: bool = False):
        self.low, self.high, self.rows, self.strict = low, high, rows, strict

    def pick(self, probes: slice | np.ndarray) -> Reach:
        low = None if self.low is None else self.low[probes]
        return Reach(low, self.high[probes], self.rows, self.strict)

    def misses(self, oldest: int, newest: int) -> bool:
        """Whether no probe reaches a tuple between these times. Time windows only, like `covers`."""
        return self.low is not None and bool(newest < self.low[0] or oldest > self.high[-1])

    def covers(self, oldest: int, newest: int) -> bool:
        """Whether every probe reaches all tuples between these times."""
        if self.low is None or oldest < self.low[-1]:
            return False
        return bool(newest < self.high[0] if self.strict else newest <= self.high[0])

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest time that each probe reaches. Time windows only."""
        assert self.low is not None
        if not self.strict:
            return self.low, self.high
        none = self.high == INT64_MIN  # no tuple comes before it
        return np.where(none, INT64_MAX, self.low), np.where(none, self.high, self.high - 1)

    def positions(self, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The range [start, stop) of positions in a window sorted by `ts`, for each probe."""
        if len(ts) and ts[-1] < self.high[0]:  # the usual case
            stop = np.empty(len(self.high), np.int64)
            stop.fill(len(ts))
        else:
            stop = places(ts, self.high, "left" if self.strict else "right")
        if self.low is None:
            return np.maximum(stop - self.rows, 0), stop
        if len(ts) and ts[0] >= self.low[-1]:
            return np.zeros(len(self.low), np.int64), stop
        return places(ts, self.low, "left"), stop


class ReachAround(Reach):
    """The reach of probes at `ts` that meet tuples from `back` ticks before them to `ahead` ticks after them, as
    `reach_around` gives it. A window in the order of time needs only positions, which one kernel finds: `low` and
    `high` are computed if they are asked for."""

    __slots__ = ("_ahead", "_back", "_ts")

    def __init__(self, ts: np.ndarray, back: int, ahead: int):
        self._ts, self._back, self._ahead = ts, back, ahead
        self.rows, self.strict = 0, False

    def __getattr__(self, name: str) -> Any:
        """Python calls this for `low` and `high` before they have values."""
        if name not in ("low", "high"):
            raise AttributeError(name)
        self.low, self.high = np.empty(len(self._ts), np.int64), np.empty(len(self._ts), np.int64)
        reach_ends(self._ts, self._back, self._ahead, self.low, self.high)
        return getattr(self, name)

    def pick(self, probes: slice | np.ndarray) -> Reach:
        return ReachAround(self._ts[probes], self._back, self._ahead)

    def positions(self, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = len(self._ts)
        start, stop = np.empty(count, np.int64), np.empty(count, np.int64)
        reach_places(ts, self._ts, self._back, self._ahead, start, stop)
        return start, stop


def reach_of(spec: JoinSpec, stored: str, ts: np.ndarray, settled: bool) -> Reach:
    """What probes at `ts` may meet in the window of `stored`. Settled probes meet the tuples that precede them in the
    total order; others meet earlier and later tuples, as far as both windows extend."""
    window = spec.side_window(stored)
    if window.rows:
        return Reach(None, ts, rows=window.size, strict=stored == "right")
    if settled:
        return Reach(saturated_sum(ts, -window.size), ts, strict=stored == "right")
    return reach_around(ts, window.size, spec.side_window(OTHER[stored]).size)


def reach_around(ts: np.ndarray, back: int, ahead: int) -> Reach:
    """The reach of probes at `ts` that meet tuples from `back` ticks before them to `ahead` ticks after them."""
    low, high = np.empty(len(ts), np.int64), np.empty(len(ts), np.int64)
    reach = Reach(low, high)
    reach_ends(ts, back, ahead, low, high)
    return reach


def places(
    ts: np.ndarray, times: np.ndarray, side: Literal["left", "right"], many: int = MANY_TIMES
) -> np.ndarray:
    """`ts.searchsorted(times, side)` for times that never decrease. For `many` times or more, searches between the
    places of the first and the last one, or steps through that range if it is short."""
    if len(times) < many:
        return ts.searchsorted(times, side)
    first, last = (int(place) for place in ts.searchsorted(times[[0, -1]], side))
    if last - first > SPARSE * len(times):
        found: np.ndarray = ts[first:last].searchsorted(times, side) + first
        return found
    out = np.empty(len(times), np.int64)
    rising_places(ts, times, side == "right", first, out)
    return out
