"""Facts about rows that decide the outcome of a join: event times, sources, and which rows are undecided."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamjoin.codegen.prepared import Stored
from streamjoin.index.sliding import SlidingColumns, SortedTuples
from streamjoin.index.times import saturated_sum
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN, end_states, mark_states
from streamjoin.semantics.windows import SideWindow

TIMES_AT, SOURCES_AT, STATES_AT = 0, 1, 2  # columns of `RowFacts`
NO_ROW = -1  # in place of a row number: this row has no partner, or no match
NO_ROWS = np.empty(0, np.int64)
FINAL = "internal error: a match came for a row that was already final"
NO_MATCH, HAS_MATCH, ENDED = 0, 1, 2  # values of STATES_AT; ENDED: no further match may come


class RowFacts:
    """Facts about the pushed rows of one side, by row number, from the oldest that a result may still need."""

    def __init__(self, timed: bool = True) -> None:
        """`timed`: whether times and sources are asked for."""
        self.timed, self._columns = timed, SlidingColumns()
        states = np.empty(0, np.uint8)
        self._columns.append(
            [np.empty(0, np.int64), np.empty(0, np.int32), states] if timed else [None, None, states]
        )
        self.first = 0  # the number of the oldest row

    @property
    def end(self) -> int:
        """The number of the row after the newest."""
        return self.first + len(self._columns)

    def append(self, tuples: Tuples) -> None:
        """Take rows, whose numbers continue those held, in any order."""
        count = len(tuples)
        ts = source = None
        if self.timed:
            ts, source = tuples.ts, tuples.source
            at = tuples.id - self.end
            if not (at[1:] > at[:-1]).all():
                ts, source = np.empty(count, np.int64), np.empty(count, np.int32)
                ts[at], source[at] = tuples.ts, tuples.source
        self._columns.append([ts, source, np.zeros(count, np.uint8)])

    def ts(self, ids: np.ndarray) -> np.ndarray:
        """Event times of rows."""
        found: np.ndarray = self._columns[TIMES_AT][ids - self.first]
        return found

    def source(self, ids: np.ndarray) -> np.ndarray:
        """The numbers of the sources that rows came from."""
        found: np.ndarray = self._columns[SOURCES_AT][ids - self.first]
        return found

    def state(self, ids: np.ndarray) -> np.ndarray:
        """NO_MATCH, HAS_MATCH or ENDED, for each row; raises for rows that are forgotten."""
        at = ids - self.first
        if len(at) and at.min() < 0:
            raise RuntimeError(FINAL)
        found: np.ndarray = self._columns[STATES_AT][at]
        return found

    def mark(self, ids: np.ndarray, state: int) -> None:
        """Set the state of rows that a match has come for; raises if one is decided already, as its result has left."""
        before = mark_states(self._columns[STATES_AT], ids, self.first, state)
        if not NO_MATCH <= before < ENDED:
            raise RuntimeError(FINAL)

    def close(self, ids: np.ndarray, unmatched_only: bool) -> np.ndarray:
        """No match to come has these rows: set the state of all of them, or only of those without a match; returns the
        places of the latter in `ids`."""
        places = np.empty(len(ids), np.int64)
        count = end_states(self._columns[STATES_AT], ids, self.first, ENDED, unmatched_only, places)
        return places[:count]

    def set_state(self, ids: np.ndarray, state: int) -> None:
        self._columns[STATES_AT][ids - self.first] = state

    def release(self, before: int) -> None:
        """Forget the rows numbered below `before`."""
        if before > self.first:
            self._columns.drop(min(before - self.first, len(self._columns)))
            self.first = before

    @property
    def nbytes(self) -> int:
        return self._columns.nbytes


class MatchBounds(NamedTuple):
    """Bounds on matches to come. `own`, `partner`: if a later match contains a row of the side from before `own`, its
    partner is not before `partner`. `placed`: all rows of both sides before this time have been joined."""

    own: float
    partner: float
    placed: float


class Undecided:
    """The rows of one side that a later match may still contain, in the total order.

    A row is decided once no later match can contain it. In a time window that is when the row itself has been joined,
    and all partners to come are after the end of its window. Its *last time* is the latest result time that a match of
    it can have: the end of its window, but no earlier than its own time. In a window of n rows that is the time of the
    n-th row of its side after it, and unknown until that row is there.
    """

    def __init__(self, window: SideWindow, timed: bool):
        """`timed`: whether last times matter, so that a row waits until its last time is known."""
        self._window, self._timed = window, timed
        self._rows = SortedTuples()

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, tuples: ProbingTuples, ranks: np.ndarray) -> None:
        """Take new rows; O(rows + those held that come later)."""
        bare = Tuples(tuples.ts, tuples.id, tuples.source, Stored(), False)
        self._rows.insert(bare, ranks)

    @property
    def least_time(self) -> float:
        """The event time of the first row; infinity if there is none."""
        return int(self._rows.ts[0]) if len(self._rows) else math.inf

    @property
    def ids(self) -> np.ndarray:
        """The row numbers; valid until the next change."""
        return self._rows.id

    @property
    def oldest_id(self) -> int | None:
        """The least row number; O(rows)."""
        return int(self._rows.id.min()) if len(self._rows) else None

    def take(self, bounds: MatchBounds) -> tuple[np.ndarray, np.ndarray]:
        """The rows that are decided now, and their last times."""
        count = self._decided(bounds)
        if not count:
            return NO_ROWS, NO_ROWS
        ids, times = self._rows.id[:count].copy(), self._last_times(count)
        self._rows.drop(count)
        return ids, times

    def drop(self, count: int) -> None:
        """Forget the first rows."""
        self._rows.drop(count)

    def joined(self, after: float, before: float) -> np.ndarray:
        """The numbers of the rows with event times from `after` to less than `before`; valid until the next change."""
        ts = self._rows.ts
        return self._rows.id[count_before(ts, after) : count_before(ts, before)]

    def least_time_from(self, time: float) -> float:
        """The event time of the first row that is not before `time`; infinity if there is none."""
        ts = self._rows.ts
        at = count_before(ts, time)
        return int(ts[at]) if at < len(ts) else math.inf

    def _decided(self, bounds: MatchBounds) -> int:
        ts, size = self._rows.ts, self._window.size
        joined = count_before(ts, bounds.own)
        if not self._window.rows:
            return min(joined, count_before(ts, bounds.partner - size))
        if min(bounds.partner, bounds.placed if self._timed else math.inf) == math.inf:
            return joined
        return min(joined, max(0, count_before(ts, bounds.placed) - size))

    def _last_times(self, count: int) -> np.ndarray:
        ts, size = self._rows.ts, self._window.size
        if not self._window.rows:
            return saturated_sum(ts[:count], max(size, 0))
        times = np.full(count, INT64_MAX)
        later = ts[size : size + count]
        times[: len(later)] = later
        return times

    def clear(self) -> None:
        self._rows.drop(len(self._rows))


def count_before(ts: np.ndarray, bound: float) -> int:
    """How many of these times, which rise, are before a bound: an integer of any size, or infinite."""
    if bound > INT64_MAX:
        return len(ts)
    return 0 if bound <= INT64_MIN else int(ts.searchsorted(int(bound)))
