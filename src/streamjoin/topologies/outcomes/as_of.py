"""Backward as-of joins by equalities: the last right row of each key is kept, and looked up by each left row.

Both sides wait in the total order. A left row is answered once right has passed its time. A right row that a later one
of its key replaces is kept as long as a left row between them can still come. So where left rows come in order, one
right row is kept for each key, and an answer is O(1); a left row from before others is found in O(log rows of its key).
One thread.

Payload of a side is held from the oldest row on that something needs. A row of a rare key would hold that of all rows
after it, so rows that are few among those after them are *carried*: they get new numbers and a copy of their payload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from streamjoin.index.sliding import SortedTuples
from streamjoin.index.stats import IndexStats
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.kernels.hash.last_rows_forms import FREE, Rows
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.semantics.keep import AsOf
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.outcomes.last_rows import LastRows, numbers_of
from streamjoin.topologies.outcomes.row_keys import NO_BYTES, RowKeys
from streamjoin.topologies.outcomes.rows import NO_ROWS
from streamjoin.topologies.outcomes.ties import tie_column, tie_ranks
from streamjoin.topologies.protocol import Frontier, Matches, Task, WindowSize
from streamjoin.topologies.runtime.node import Bell


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
        self._fetch, self._carry = task.fetch, task.carry
        self._ties = {side: tie_column(spec, side) for side in SIDES}
        self._rows = {side: SortedTuples(borrows=True) for side in SIDES}
        self._tuning = task.plan.tuning.caller
        self._keys, self._last = (
            RowKeys(task.plan.programs["right"], task.fetch),
            LastRows(self._tuning.smallest_table),
        )
        self._ranks: Mapping[str, np.ndarray] = {side: np.zeros(0, np.int32) for side in SIDES}
        self._frontier = Frontier((-math.inf, 0, 0), dict.fromkeys(SIDES, -math.inf))
        self._newest = -1  # right row
        self._looked_up = 0
        self._ready = 0  # left rows that can be answered
        self._took_right = True  # nothing has changed since `_take_right`
        self._rest = Matches(NO_ROWS, NO_ROWS)

    @property
    def windows(self) -> Mapping[str, WindowSize]:
        return {"left": _Waiting(self._rows["left"]), "right": _Waiting(self._rows["right"], self._last)}

    @property
    def comparisons(self) -> tuple[int, ...]:
        return (self._looked_up,)

    def held(self, side: str) -> int:
        return len(self._rows[side]) + (len(self._last) if side == "right" else 0)

    def oldest_id(self, side: str) -> int | None:
        rows = self._rows[side]
        oldest = [int(rows.id.min())] if len(rows) else []
        if len(self._rest):
            oldest += [int(ids[ids >= 0].min()) for ids in (self._rest.by_side()[side],) if (ids >= 0).any()]
        if side == "right" and (kept := self._oldest_kept(min(oldest, default=self._newest))) is not None:
            oldest.append(kept)
        return min(oldest, default=None)

    def _oldest_kept(self, held: int) -> int | None:
        """The least number of the right rows that are kept, once those are carried that are few among the rows after
        them; O(kept), and a copy of each after twice as many rows or more. `held`: the rows from this number on are
        held anyhow."""
        bounds = self._needed(self._least_left), self._oldest_time
        count, least = self._last.count_and_least(*bounds)
        enough = count + self._tuning.carried_from
        if count and held - least > 4 * enough:
            return self._carry_old(held - 2 * enough, *bounds)
        return least if count else None

    def _carry_old(self, before: int, needed: int, oldest: int) -> int:
        """Carry the kept rows numbered below `before`; the least number that is kept then."""
        kept = self._last.rows(needed, oldest)
        numbers = numbers_of(kept)
        numbers[numbers < before] = self._carry("right", numbers[numbers < before])
        self._newest, at = int(numbers.max()), 0
        for rows, places in kept:
            rows[places] = numbers[at : at + len(places)]
            at += len(places)
        return int(numbers.min())

    def clear(self) -> None:
        for rows in self._rows.values():
            rows.drop(len(rows))
        self._last, self._rest = LastRows(self._tuning.smallest_table), Matches(NO_ROWS, NO_ROWS)
        self._ready, self._took_right = 0, True

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        self._ranks = ranks
        if len(tuples):
            bare = Tuples(tuples.ts, tuples.id, tuples.source, self._keys.of(side, tuples), tuples.nulls)
            self._rows[side].insert(bare, ranks[side])
            if side == "right":
                self._newest = max(self._newest, int(tuples.id[-1]))
        self.advance(frontier)

    def advance(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._ready, self._took_right = self._answerable(), False

    # What can be said now

    def _low(self, side: str) -> int:
        """No row of a side to come has an earlier time."""
        return _cut_to_int64(self._frontier.low[side])

    def _answerable(self) -> int:
        """How many left rows can be answered: right has passed them, and, where results are sorted, no left row before
        them can come."""
        ts = self._rows["left"].ts
        if self._frontier.low["right"] == math.inf:
            passed = len(ts)
        else:
            passed = int(ts.searchsorted(min(self._low("right") - self._hi, INT64_MAX), "left"))
        if not self._sorted or self._frontier.low["left"] == math.inf:
            return passed
        return min(passed, int(ts.searchsorted(self._low("left"), "left")))

    @property
    def _least_left(self) -> float:
        """No left row that waits or is to come has an earlier time."""
        ts, low = self._rows["left"].ts, self._frontier.low["left"]
        return min(low, int(ts[0])) if len(ts) else low

    @property
    def _oldest_time(self) -> int:
        """No left row looks up right rows from before this time."""
        return _cut_to_int64(self._least_left + self._lo)

    def _needed(self, left: float) -> int:
        """Left rows from the time `left` on need no right row that one up to this time has replaced."""
        return _cut_to_int64(left + self._hi)

    @property
    def idle(self) -> bool:
        if self._ready or len(self._rest):
            return False
        if not self._took_right:
            self._take_right()
            self._took_right = True
        return True

    def step(self, most: float) -> Matches:
        found = self._rest if len(self._rest) else self._answer(min(self._ready, self._tuning.largest_step))
        cut = int(min(most, len(found)))
        self._rest = Matches(found.left[cut:], found.right[cut:])
        return Matches(found.left[:cut], found.right[:cut])

    def _answer(self, count: int) -> Matches:
        """Look up the last right rows of the first `count` left rows."""
        if not count:
            return Matches(NO_ROWS, NO_ROWS)
        rows = self._rows["left"]
        if self._sorted:
            self._rank("left", count)
        left, out = rows.id[:count].copy(), np.empty(count, np.int64)
        self._merge(count, out, int(rows.ts[count - 1]) + self._hi, 0)
        rows.drop(count)
        self._ready -= count
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
            self._merge(0, NO_ROWS, bound, len(right))

    def _rank(self, side: str, count: int) -> None:
        """Put the first rows of a side, before which none can come, into the order of its tie column."""
        rows, tie = self._rows[side], self._ties[side]
        ts = rows.ts[:count]
        if tie is not None and (ts[1:] == ts[:-1]).any():
            rows.rearrange(np.lexsort((tie_ranks(self._fetch, side, tie, rows.id[:count]), ts)))

    def _merge(self, count: int, out: np.ndarray, last: float, passed: int) -> None:
        """Answer `count` left rows, for which right rows up to the time `last` count; of these, take at least `passed`
        right rows."""
        right, ends = self._rows["right"], 0
        if len(right):
            ends = int(right.ts.searchsorted(_cut_to_int64(last), "right")) if last >= INT64_MIN else 0
        self._rank("right", ends)
        passed, needed = (
            min(passed, ends),
            self._needed(self._frontier.low["left"] if count else self._least_left),
        )
        lefts, left_bytes = self._columns("left", count, 0)
        rights, right_bytes = self._columns("right", ends, len(left_bytes))
        source = None if self._keys.exact else np.concatenate([left_bytes, right_bytes])
        ids, begins, stops = right.id[:ends], *rights[-2:]
        at = taken = 0
        while True:
            answered, took = self._last.find(
                _from(lefts, at), _from(rights, taken), ids[taken:], source,
                (self._lo, self._hi), max(passed - taken, 0), needed, out[at:],
            )  # fmt: skip
            at, taken = at + answered, taken + took
            if at == count and taken >= passed:
                break
            size = int(stops[taken] - begins[taken]) if len(stops) else 0
            self._last.make_room(needed, self._oldest_time, size)
        if taken:
            right.drop(taken)

    def _columns(self, side: str, count: int, first: int) -> tuple[Rows, np.ndarray]:
        """The first rows of a side, valid until the next change, and the bytes of their keys, which are to lie from
        `first` on."""
        rows = self._rows[side]
        if not count:
            return (NO_ROWS, np.empty(0, self._keys.dtype), np.empty(0, np.bool_), NO_ROWS, NO_ROWS), NO_BYTES
        stored = rows.stored()
        assert stored.known is not None
        words, *numbers = (column[:count] for column in stored.columns)
        if self._keys.exact:
            return (rows.ts[:count], words, stored.known[:count], NO_ROWS, NO_ROWS), NO_BYTES
        ends, values = self._keys.bytes_of(side, tuple(numbers), rows.id[:count])
        if first:
            ends = ends + first
        return (rows.ts[:count], words, stored.known[:count], ends[:-1], ends[1:]), values

    @property
    def least_result_time(self) -> float:
        """The earliest time of a result to come: results have the time of their left row."""
        return self._least_left

    def least_unjoined_time(self, side: str) -> float:
        """Nothing asks: all rows of this join are results."""
        raise NotImplementedError


def _from(rows: Rows, first: int) -> Rows:
    """The rows from this one on."""
    if not first:
        return rows
    ts, keys, known, begins, ends = rows
    return ts[first:], keys[first:], known[first:], begins[first:], ends[first:]


def _cut_to_int64(time: float) -> int:
    if not math.isfinite(time):
        return INT64_MAX if time > 0 else INT64_MIN
    return max(min(int(time), INT64_MAX), INT64_MIN)
