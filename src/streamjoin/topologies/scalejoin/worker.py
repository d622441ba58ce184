"""A worker of ScaleJoin: takes every ready tuple, probes its own windows, stores every n-th tuple of each side
(Gulisano et al. 2015, Algorithm 1). `scalejoin.py` describes the whole.

Only the driver writes what workers share: rows and the gate in. A worker reports its progress in one object,
`WorkerProgress`, which it replaces when it has finished a piece and the piece's pairs have left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from streamjoin.index.probing import Prober
from streamjoin.index.times import saturated_sum
from streamjoin.index.tuples import NO_TUPLES, SOURCE, TS, Layout, Mark, ProbingTuples
from streamjoin.index.window import ONE_SOURCE
from streamjoin.kernels.concurrent.gate import Gate
from streamjoin.kernels.concurrent.scalejoin_worker import NEWS
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.plan.tuning import ScaleJoinTuning
from streamjoin.semantics.spec import OTHER, SIDES, JoinSpec
from streamjoin.topologies.matching import Found, Matcher
from streamjoin.topologies.protocol import MakeWindow
from streamjoin.topologies.runtime.node import Bell, Outbox

PIECE_TUPLES = 4_096  # A worker joins at most this many tuples at a time.
FIRST_SORTED_PIECE = 64
NO_PAIRS = np.zeros(0, np.int64)
SORTED_PAIRS = 1 << 16  # A sorted piece should have about this many pairs.


@dataclass(frozen=True)
class WorkerProgress:
    """The progress of a worker, replaced as a whole when a piece is finished.

    `done`: the number of entries joined: tuples and news. `reached`: all tuples of smaller event time, or of smaller
    number of arrival, are finished. `floors`: finished tuples of a side with a smaller event time are in no later pair.
    """

    done: int = 0
    reached: int = INT64_MIN
    floors: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, INT64_MIN))


class SharedRows:
    """Tuples of one side by position. The driver appends and releases; workers read the positions that the gate gives
    them.

    A full block is replaced, never changed, so arrays read from it stay valid.
    """

    def __init__(self) -> None:
        self.nulls = False
        self._layout: Layout | None = None
        self._block: tuple[int, list[np.ndarray]] = (0, [])  # position of the first row; columns
        self._begin = self._end = 0
        self.version = 0  # of the block

    def append(self, tuples: ProbingTuples) -> int:
        """Add tuples and return the position of the first; O(tuples) amortised."""
        self._layout = self._layout or Layout.of(tuples)
        self.nulls = self.nulls or tuples.nulls
        columns, first, count = self._layout.flat(tuples), self._end, len(tuples)
        columns[SOURCE] = np.zeros(count, np.int32)  # the gate has merged the sources
        base, arrays = self._block
        if not arrays or first + count - base > len(arrays[TS]):
            base, arrays = self._moved(columns, count)
            self.version += 1
        for array, values in zip(arrays, columns, strict=True):
            array[first - base : first - base + count] = values
        self._block, self._end = (base, arrays), first + count
        return first

    def _moved(self, columns: Sequence[np.ndarray], count: int) -> tuple[int, list[np.ndarray]]:
        base, old = self._block
        live, held = slice(self._begin - base, self._end - base), self._end - self._begin
        size = max(1024, 2 * (held + count))
        arrays = [np.empty((size, *values.shape[1:]), values.dtype) for values in columns]
        for array, before in zip(arrays, old, strict=False):  # at first there is none
            array[:held] = before[live]
        return self._begin, arrays

    def pick(self, positions: np.ndarray) -> ProbingTuples:
        """Tuples by position; a view if they are consecutive."""
        assert self._layout is not None
        base, arrays = self._block
        rows: slice | np.ndarray = positions - base
        if (np.diff(positions) == 1).all():
            rows = slice(int(positions[0]) - base, int(positions[-1]) - base + 1)
        return self._layout.probing_tuples([array[rows] for array in arrays], self.nulls)

    def block(self) -> tuple[int, list[np.ndarray], ProbingTuples] | None:
        """The current block: the position of its first row, its columns, and all of it as tuples; None before the first
        row."""
        base, arrays = self._block
        if self._layout is None or not arrays:
            return None
        return base, arrays, self._layout.probing_tuples(arrays, self.nulls)

    def release(self, before: int) -> None:
        """No worker will read positions before this one any more."""
        self._begin = max(self._begin, before)


class PieceTuples(NamedTuple):
    """Tuples of one side of a piece, and which of the piece's tuples they are."""

    rows: np.ndarray
    tuples: ProbingTuples


def least_later_ids(part: PieceTuples, others: PieceTuples) -> np.ndarray | None:
    """For each tuple of a piece, the least id of those of the other side that arrived later in the piece; INT64_MAX if
    there is none. None if no tuple has one. Ids rise from push to push, and a push is of one side: so the tuples of the
    other side with smaller ids are those that arrived before."""
    if not len(others.rows) or others.rows.max() < part.rows.min():
        return None
    order = np.argsort(others.rows)
    least = np.append(np.minimum.accumulate(others.tuples.id[order][::-1])[::-1], INT64_MAX)
    later: np.ndarray = least[others.rows[order].searchsorted(part.rows)]
    return later


def without_later(part: PieceTuples, others: PieceTuples, newest: int) -> ProbingTuples:
    """The tuples, reaching no further than the newest tuple of the other side that arrived before them in the piece, or
    before the piece (`newest`). Where times rise, no tuple is compared with one that arrived later."""
    order = np.argsort(others.rows)
    before = np.maximum.accumulate(np.append(newest, others.tuples.ts[order]))
    ends = before[others.rows[order].searchsorted(part.rows)]
    tuples = part.tuples
    assert tuples.since is not None and tuples.until is not None
    until = np.minimum(tuples.until, np.maximum.accumulate(ends))
    # A reach of nothing must stay one: its least place may be `until` + 1, never `until` itself.
    return replace(tuples, since=np.minimum(tuples.since, saturated_sum(until, 1)), until=until)


@dataclass(frozen=True)
class ScaleJoinContext:
    """What all workers share."""

    count: int
    spec: JoinSpec
    settled: bool
    make_window: MakeWindow
    prober: Prober
    gate: Gate
    rows: Mapping[str, SharedRows]
    out: Gate | None  # for sorted output only
    driver: Bell
    tuning: ScaleJoinTuning
    # For compiled workers: what they and the driver publish (`kernels/concurrent/scalejoin_worker.py`), and a bell
    # that wakes them all.
    notes: np.ndarray
    bell: Bell


class ScaleJoinWorker:
    """A processing thread: takes all tuples and stores every n-th of each side."""

    def __init__(self, number: int, shared: ScaleJoinContext):
        self.name, self.number, self._shared = f"scalejoin {number}", number, shared
        self.bell = Bell()
        # For the driver; where a piece is sorted before it leaves, for this worker.
        most = shared.tuning.waiting_pairs if shared.out is None else INT64_MAX
        self.outbox: Outbox[Found] = Outbox(most, self.bell, shared.driver)
        self.windows = {side: shared.make_window(side) for side in SIDES}
        self.progress = WorkerProgress()
        self._match = Matcher(shared.prober, self.outbox).match
        self._sizes = {side: shared.spec.side_window(side) for side in SIDES}
        self._positions, self._sides = np.empty(PIECE_TUPLES, np.int64), np.empty(PIECE_TUPLES, np.int64)
        self._piece = PIECE_TUPLES if shared.out is None else FIRST_SORTED_PIECE
        self._work: Iterator[bool | None] | None = None
        self._done = 0
        self._seen = dict.fromkeys(SIDES, 0)  # tuples taken
        self._newest = dict.fromkeys(SIDES, INT64_MIN)  # event times of tuples that joined at once
        # Row number and event time of the first tuple of a piece, for the floors of row windows.
        self._history: dict[str, deque[tuple[int, int]]] = {side: deque() for side in SIDES}

    def __str__(self) -> str:
        held = ", ".join(f"{len(self.windows[side])} {side}" for side in SIDES)
        return f"{self._done} done, holds {held}, {self.outbox.rows} pairs wait"

    @property
    def comparisons(self) -> int:
        return sum(window.comparisons for window in self.windows.values())

    def step(self, most: int) -> bool:
        if self._work is None:
            size = min(most, self._piece)
            count = self._shared.gate.next_ready(self.number, self._positions[:size], self._sides[:size])
            if not count:
                return False
            self._work = self._join(self._positions[:count].copy(), self._sides[:count].copy())
        if self.outbox.room <= 0:
            return False
        state = next(self._work, self)
        if state is self:
            self._work = None
        return state is not False

    def _join(self, positions: np.ndarray, sides: np.ndarray) -> Iterator[bool | None]:
        """Join a piece. Yields wherever it may stop, and False where it must stop until its bell rings."""
        if self._shared.settled:
            yield from self._join_settled(positions, sides)
        else:
            yield from self._join_arrivals(positions, sides)

    def _store(self, side: str, tuples: ProbingTuples, positions: np.ndarray) -> None:
        """Store those of the next tuples of a side that are this worker's turn. Turns follow from positions, on which
        all workers agree, however their pieces are cut."""
        self._seen[side] += len(tuples)
        own = np.flatnonzero(positions % self._shared.count == self.number)
        if len(own):
            self.windows[side].insert(tuples.kept(own), ONE_SOURCE)

    # Tuples join at once

    def _join_arrivals(self, positions: np.ndarray, sides: np.ndarray) -> Iterator[None]:
        """Store this worker's tuples of the piece, then let all of its tuples probe. Of a pair within the piece, the
        tuple that arrived later finds the other. So a worker may cut the arrivals into other pieces than the others do,
        and one that is behind takes all that waits at once."""
        parts = {side: self._arrived(side, positions, sides) for side in SIDES}
        for side, part in parts.items():
            if len(part.rows):
                self._store(side, part.tuples, positions[part.rows])
        for side, part in parts.items():
            if len(part.rows):
                others, newest = parts[OTHER[side]], self._newest[OTHER[side]]
                probes, later = part.tuples, least_later_ids(part, others)
                if later is not None:
                    probes = without_later(part, others, newest)
                yield from self._match(self.windows[OTHER[side]], side, probes, later=later)
        for side, part in parts.items():
            if len(part.rows):
                self._newest[side] = max(self._newest[side], int(part.tuples.ts[-1]))
        self._done += len(sides)
        self._publish(self._done, self._expire_arrived(positions, sides))

    def _arrived(self, side: str, positions: np.ndarray, sides: np.ndarray) -> PieceTuples:
        """The tuples of one side of a piece, by event time, with the places that they reach."""
        rows = np.flatnonzero(sides == SIDES.index(side))
        if not len(rows):
            return PieceTuples(rows, NO_TUPLES)
        tuples = self._shared.rows[side].pick(positions[rows])
        if (tuples.ts[1:] < tuples.ts[:-1]).any():  # tuples of several sources, or late ones
            order = np.argsort(tuples.ts, kind="stable")
            tuples, rows = tuples.pick(order), rows[order]
        since = saturated_sum(tuples.ts, -self._sizes[OTHER[side]].size)
        until = saturated_sum(tuples.ts, self._sizes[side].size)
        return PieceTuples(rows, replace(tuples, since=since, until=until))

    def _expire_arrived(self, floors: np.ndarray, sides: np.ndarray) -> Mapping[str, int]:
        """Drop the tuples below the last floors that a piece brought; return the floors."""
        found = dict(self.progress.floors)
        for number, side in enumerate(SIDES):
            brought = floors[sides == NEWS + number]
            if len(brought):
                found[side] = int(brought[-1])
                if found[side] == INT64_MAX:
                    self.windows[side].clear()
                self.windows[side].expire(found[side])
        return found

    # Tuples join settled

    def _join_settled(self, positions: np.ndarray, sides: np.ndarray) -> Iterator[bool | None]:
        """Join both sides together: places show which tuples precede a probe."""
        tuples, preceding = {}, {}
        for number, side in enumerate(SIDES):
            rows = np.flatnonzero(sides == number)
            before = np.cumsum(sides != number)[rows] + self._seen[OTHER[side]]
            tuples[side], preceding[side] = self._placed(side, positions, rows), before
        for number, side in enumerate(SIDES):
            self._store(side, tuples[side], positions[sides == number])
        last = max(int(part.marks["time"][-1]) for part in tuples.values() if len(part))
        for side in SIDES:
            since = self._since(OTHER[side], tuples[side], preceding[side])
            places = tuples[side].ts
            probes = replace(tuples[side], since=np.minimum(since, places), until=places)
            yield from self._match(self.windows[OTHER[side]], side, probes)
        self._done += len(sides)
        if self._shared.out is not None:
            yield from self._hand_over(self._shared.out, len(sides))
        floors = {side: self._expire_settled(side, last) for side in SIDES}
        self._publish(last, floors)

    def _placed(self, side: str, positions: np.ndarray, rows: np.ndarray) -> ProbingTuples:
        """Some tuples of this piece. Their place in the total order replaces the event time, which moves to a column
        of its own. Where the window counts rows, they also get their row number."""
        if not len(rows):
            return NO_TUPLES
        tuples = self._shared.rows[side].pick(positions[rows])
        marks: dict[Mark, np.ndarray] = {"time": tuples.ts}
        if self._sizes[side].rows:
            first = self._seen[side]
            marks["row"] = np.arange(first, first + len(rows))
            self._history[side].append((first, int(tuples.ts[0])))
        return replace(tuples, ts=self._done + rows, marks=marks)

    def _since(self, stored: str, probes: ProbingTuples, preceding: np.ndarray) -> np.ndarray:
        """The least place in the window of `stored` that each probe reaches."""
        size = self._sizes[stored]
        if not len(probes):
            return preceding
        if size.rows:
            return self._place_of(stored, "row", preceding - size.size)
        return self._place_of(stored, "time", saturated_sum(probes.marks["time"], -size.size))

    def _place_of(self, stored: str, mark: Mark, least: np.ndarray) -> np.ndarray:
        """The place of the first tuple in a window with at least this row number or event time."""
        window = self.windows[stored]
        if not len(window):
            return np.full(len(least), INT64_MAX)
        at = window.mark(mark).searchsorted(least)
        places = window.ts[np.minimum(at, len(window) - 1)]
        return np.where(at < len(window), places, INT64_MAX)

    def _expire_settled(self, side: str, last: int) -> int:
        """Drop tuples that no tuple after event time `last` reaches; return the floor of the side."""
        size = self._sizes[side]
        if not size.rows:
            floor = max(INT64_MIN, last - size.size)
            if len(self.windows[side]):
                place = self._place_of(side, "time", np.array([floor]))[0]
                self.windows[side].expire(min(place, self._done))
            return floor
        row, history = self._seen[side] - size.size, self._history[side]
        if len(self.windows[side]):
            place = self._place_of(side, "row", np.array([row]))[0]
            self.windows[side].expire(min(place, self._done))
        while len(history) > 1 and history[1][0] <= row:
            history.popleft()
        return history[0][1] if history else INT64_MIN

    def _hand_over(self, out: Gate, tuples: int) -> Iterator[bool]:
        """Put the pairs of a piece into the gate out, in order, then mark the piece as finished."""
        later, earlier, left, right = self._sorted_pairs()
        done, count = 0, len(later)
        while (added := out.add(self.number, later, earlier, left, right, done)) < count:
            out.promise(self.number, int(later[added]), int(earlier[added]))
            self._shared.driver.ring()
            yield added > done
            done = added
        out.promise(self.number, self._done, INT64_MIN)
        if count > SORTED_PAIRS:
            self._piece = max(1, min(self._piece, tuples) // 4)
        elif count < SORTED_PAIRS // 4:
            self._piece = min(2 * self._piece, PIECE_TUPLES)

    def _sorted_pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Places of the later and of the earlier tuples, in this order; left and right ids."""
        found = []
        while (stretch := self.outbox.take()) is not None:
            found.append([what[side] for what in (stretch.places, stretch.ids) for side in SIDES])
        if not found:
            return NO_PAIRS, NO_PAIRS, NO_PAIRS, NO_PAIRS
        left_place, right_place, left, right = (
            np.concatenate(columns) for columns in zip(*found, strict=True)
        )
        later, earlier = np.maximum(left_place, right_place), np.minimum(left_place, right_place)
        order = np.lexsort((earlier, later))
        return later[order], earlier[order], left[order], right[order]

    # In both cases

    def _publish(self, reached: int, floors: Mapping[str, int]) -> None:
        self.progress = WorkerProgress(self._done, reached, floors)
        self._shared.driver.ring()

    def clear(self) -> None:
        """Drop all tuples. Call this when no thread steps the node any more."""
        self._work = None
        for window in self.windows.values():
            window.clear()
        self._publish(self._done, self.progress.floors)
