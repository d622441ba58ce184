"""Backward as-of joins by an equality: the last right row of each key is kept, and looked up by each left row.

Both sides wait in the total order. A left row is answered once right has passed its time and no left row before it can
come: a right row that replaces another one of its key is then later than it and not after any left row to come. One
thread, O(1) a row, and of right rows that were passed one is kept for each key.

Where left rows come out of order, a row waits for its own side as well as for the other one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from streamjoin.codegen.prepared import Stored
from streamjoin.index.sliding import SortedTuples
from streamjoin.index.stats import IndexStats
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.kernels.hash.last_rows import FREE, find_last, move_rows
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.semantics.keep import AsOf
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.outcomes.rows import NO_ROWS
from streamjoin.topologies.protocol import Frontier, Matches, Task, WindowSize
from streamjoin.topologies.runtime.node import Bell

SMALLEST_TABLE = 1024  # places
LARGEST_STEP = 131_072  # left rows in one step


class LastRows:
    """The last right row of each key, by a time. Grows with the keys that are live."""

    def __init__(self) -> None:
        self._make(SMALLEST_TABLE)
        self.used = 0

    def _make(self, places: int) -> None:
        self.words, self.times = np.zeros(places, np.int64), np.zeros(places, np.int64)
        self.rows = np.full(places, FREE, np.int64)

    def __len__(self) -> int:
        return self.used

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.times.nbytes + self.rows.nbytes

    def make_room(self, oldest: int) -> None:
        """Drop rows from before `oldest`, and enlarge the table if more than a quarter of it stays; O(places)."""
        words, times, rows = self.words, self.times, self.rows
        live = int(np.count_nonzero((rows != FREE) & (times >= oldest)))
        self._make(max(SMALLEST_TABLE, 1 << (4 * live).bit_length()))
        self.used = move_rows(words, times, rows, oldest, self.words, self.times, self.rows)

    def oldest_row(self, oldest: int) -> int | None:
        """The least row number of those from the time `oldest` on; O(places)."""
        live = self.rows[(self.rows != FREE) & (self.times >= oldest)]
        return int(live.min()) if len(live) else None


class _Waiting:
    """What a side holds, for `stats`."""

    def __init__(self, rows: SortedTuples, last: LastRows | None = None):
        self._rows, self._last = rows, last

    def __len__(self) -> int:
        return len(self._rows) + (0 if self._last is None else len(self._last))

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + (0 if self._last is None else self._last.nbytes)

    def stats(self) -> IndexStats:
        return IndexStats()


class AsOfJoin:
    """Gives what `PickedMatches` over `ThreeStep` gives, without looking for all matches."""

    settles = False

    def __init__(self, task: Task):
        spec = task.plan.spec
        assert isinstance(spec.keep, AsOf) and task.spec.delta is not None
        self.found = Bell()
        # The differences of time of matches that can be picked; there are none if `lo` is above `hi`.
        self._lo, self._hi = task.spec.delta.lo, min(task.spec.delta.hi, -int(spec.keep.strict))
        self._gives_alone = spec.how == "left"
        self._sorted = task.plan.options.order == "timestamp"
        self._rows = {side: SortedTuples() for side in SIDES}
        self._last, self._key = LastRows(), task.plan.programs["right"].keys.dtypes[0]
        self._ranks: Mapping[str, np.ndarray] = {side: np.zeros(0, np.int32) for side in SIDES}
        self._frontier = Frontier((-math.inf, 0, 0), dict.fromkeys(SIDES, -math.inf))
        self._looked_up = 0
        self._rest = Matches(NO_ROWS, NO_ROWS)

    @property
    def windows(self) -> Mapping[str, WindowSize]:
        return {"left": _Waiting(self._rows["left"]), "right": _Waiting(self._rows["right"], self._last)}

    @property
    def comparisons(self) -> tuple[int, ...]:
        return (self._looked_up,)

    def held(self, side: str) -> int:
        return len(self.windows[side])

    def oldest_id(self, side: str) -> int | None:
        rows = self._rows[side]
        oldest = [int(rows.id.min())] if len(rows) else []
        oldest += [int(ids[ids >= 0].min()) for ids in (self._rest.by_side()[side],) if (ids >= 0).any()]
        if side == "right" and (kept := self._last.oldest_row(self._oldest_time)) is not None:
            oldest.append(kept)
        return min(oldest, default=None)

    def clear(self) -> None:
        for rows in self._rows.values():
            rows.drop(len(rows))
        self._last, self._rest = LastRows(), Matches(NO_ROWS, NO_ROWS)

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        self._ranks = ranks
        if len(tuples):
            key, known = _key_of(side, tuples)
            stored = Stored((key,), known)
            bare = Tuples(tuples.ts, tuples.id, tuples.source, stored, tuples.nulls)
            self._rows[side].insert(bare, ranks[side])
        self.advance(frontier)

    def advance(self, frontier: Frontier) -> None:
        self._frontier = frontier

    # What can be said now

    def _low(self, side: str) -> int:
        """No row of a side to come has an earlier time."""
        low = self._frontier.low[side]
        return INT64_MAX if low == math.inf else INT64_MIN if low == -math.inf else int(low)

    def _answerable(self) -> int:
        """How many left rows can be answered: right has passed them, and no left row before them can come."""
        ts = self._rows["left"].ts
        if self._frontier.low["right"] == math.inf:
            passed = len(ts)
        else:
            passed = int(ts.searchsorted(min(self._low("right") - self._hi, INT64_MAX), "left"))
        if self._frontier.low["left"] == math.inf:
            return passed
        return min(passed, int(ts.searchsorted(self._low("left"), "left" if self._sorted else "right")))

    @property
    def _least_left(self) -> float:
        """No left row that waits or is to come has an earlier time."""
        ts, low = self._rows["left"].ts, self._frontier.low["left"]
        return min(low, int(ts[0])) if len(ts) else low

    @property
    def _oldest_time(self) -> int:
        """Right rows from before this time are looked for by no left row."""
        least = self._least_left
        if not math.isfinite(least):
            return INT64_MAX if least > 0 else INT64_MIN
        return max(min(int(least) + self._lo, INT64_MAX), INT64_MIN)

    @property
    def idle(self) -> bool:
        if len(self._rest) or self._answerable():
            return False
        self._take_right()
        return True

    def step(self, most: float) -> Matches:
        found = self._rest if len(self._rest) else self._answer(min(self._answerable(), LARGEST_STEP))
        cut = int(min(most, len(found)))
        self._rest = Matches(found.left[cut:], found.right[cut:])
        return Matches(found.left[:cut], found.right[:cut])

    def _answer(self, count: int) -> Matches:
        """Look up the last right rows of the first `count` left rows."""
        rows = self._rows["left"]
        left, out = rows.id[:count].copy(), np.empty(count, np.int64)
        self._merge(count, out, 0)
        rows.drop(count)
        self._looked_up += count
        if self._gives_alone:
            return Matches(left, out)
        there = out != FREE
        return Matches(left[there], out[there])

    def _take_right(self) -> None:
        """Take the right rows that every left row to come is later than, so that of each key one is kept."""
        right = self._rows["right"].ts
        bound = min(self._least_left + self._hi, self._frontier.low["right"] - 1)
        if len(right) and right[0] <= bound:
            self._merge(
                0, NO_ROWS, len(right) if bound == math.inf else int(right.searchsorted(int(bound), "right"))
            )

    def _merge(self, count: int, out: np.ndarray, passed: int) -> None:
        """Answer `count` left rows, and take at least the first `passed` right rows."""
        right, last = self._rows["right"], self._last
        lefts, rights = (self._columns(side) for side in SIDES)
        at = taken = 0
        while True:
            answered, took, last.used = find_last(
                *(column[at:count] for column in lefts),
                *(column[taken:] for column in rights),
                right.id[taken:],
                self._lo, self._hi, max(passed - taken, 0),
                last.words, last.times, last.rows, last.used, len(last.rows) // 2, out[at:],
            )  # fmt: skip
            at, taken = at + answered, taken + took
            full = last.used >= len(last.rows) // 2
            if at == count and not (full and taken < passed):
                break
            last.make_room(self._oldest_time)
        if taken:
            right.drop(taken)

    def _columns(self, side: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Times, keys, and which keys are not NULL, of the rows that wait; valid until the next change."""
        rows = self._rows[side]
        if not len(rows):
            return NO_ROWS, np.empty(0, self._key), np.empty(0, np.bool_)
        stored = rows.stored()
        assert stored.known is not None
        return rows.ts, stored.columns[0], stored.known

    @property
    def least_result_time(self) -> float:
        """A result has the time of its left row."""
        return self._least_left

    def least_unjoined_time(self, side: str) -> float:
        """Nothing asks: all rows of this join are results."""
        raise NotImplementedError


def _key_of(side: str, tuples: ProbingTuples) -> tuple[np.ndarray, np.ndarray]:
    """The key that rows of both sides compare by, and whether it is not NULL: what the right window stores of its rows,
    and what a left row asks it for."""
    if side == "right":
        known = tuples.stored.known
        assert known is not None
        return tuples.stored.columns[0], known
    low = tuples.probing.lows[0]
    assert low is not None
    return low, tuples.probing.known
