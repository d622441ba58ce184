"""The physical sources of a join: what each has pushed and promised, which rows are late, and what can still come."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush, heapreplace
from typing import Any, Protocol

import numpy as np

from streamjoin.engine.async_calls import in_thread
from streamjoin.kernels.stamping import INT64_MIN, falls
from streamjoin.semantics.durations import nanoseconds
from streamjoin.semantics.errors import InputError, short_repr
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.protocol import Frontier

SHOWN_SOURCES = 10  # names of sources in a message


class SourceOwner(Protocol):
    """The calls that a source makes to its join."""

    def push_from(self, source: Source, data: Any, timeout: float | None) -> None: ...

    def advance_source(self, source: Source, ts: int | datetime) -> None: ...

    def close_source(self, source: Source) -> None: ...


@dataclass
class Source:
    """One physical stream of a side. `push` may be called from a thread of its own."""

    join: SourceOwner
    side: str
    name: str
    lateness: int | None
    newest: float = -math.inf  # the greatest ts seen
    promised: float = -math.inf  # by `advance`
    closed: bool = False
    number: int = -1  # from 0 on, once the join knows it
    show: Callable[[int], str] = str  # ticks as a time, for messages
    idle_after: float = math.inf  # seconds without data or `advance` after which it is idle
    active_at: float = (
        -math.inf
    )  # the last push or `advance`, in seconds of the clock; only with `idle_after`
    idle: bool = False  # does not hold the others back

    def push(self, data: Any, timeout: float | None = None) -> None:
        """Push Arrow data of this source; as `Join.push`."""
        self.join.push_from(self, data, timeout)

    async def push_async(self, data: Any, timeout: float | None = None) -> None:
        """As `Join.push_async`."""
        await in_thread(self.push, data, timeout)

    def advance(self, ts: int | datetime) -> None:
        """Promise that no tuple before `ts` will come, so that an idle source does not hold the others back.

        `ts` is in ticks of the finer unit of the two time columns, or a datetime if they are timestamps.
        """
        self.join.advance_source(self, ts)

    def close(self) -> None:
        """No more tuples will come from this source."""
        self.join.close_source(self)

    @property
    def watermark(self) -> float:
        """No tuple below this will be taken; minus infinity, or within 64 bits."""
        mark = self.newest - self.lateness if self.lateness else self.newest
        if mark < self.promised:
            mark = self.promised
        return INT64_MIN if -math.inf < mark < INT64_MIN else mark

    def late(self, ts: np.ndarray) -> np.ndarray:
        """Which of the next tuples come too late for this source. Without `lateness`, a fall is an error."""
        before = np.maximum.accumulate(np.concatenate([[self._floor(self.newest)], ts]))[:-1]
        if self.lateness is None:
            falling = np.flatnonzero((ts < before) | (ts < self._floor(self.promised)))
            if len(falling):
                row = int(falling[0])
                reached = max(int(before[row]), self._floor(self.promised))
                raise InputError(
                    f"{self.side} time falls from {self.show(reached)} to {self.show(int(ts[row]))} "
                    f"at row {row}{f' of source {self.name!r}' if self.name else ''}: "
                    "within a source time must not fall, unless the spec's lateness allows it",
                    field=f"{self.side}_time",
                    given=self.show(int(ts[row])),
                    allowed=f"{self.show(reached)} or later",
                )
            return np.zeros(len(ts), np.bool_)
        least = np.where(before < -(2**63) + self.lateness, -(2**63), before - self.lateness)
        return (ts < least) | (ts < self._floor(self.promised))

    @staticmethod
    def _floor(value: float) -> int:
        return -(2**63) if value == -math.inf else int(value)


class Sources:
    """All physical streams of a join: their order, and what can still come from them.

    Announcements to the topology never go back: tuples of a new source from before that point are late.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Source]] = {side: {} for side in SIDES}
        # Order by name, for each source's number; as of the last frontier. An array is never changed, but replaced.
        self.ranks = {side: np.zeros(0, np.int32) for side in SIDES}
        self._by_name = {side: (np.empty(0, object), np.empty(0, np.int32)) for side in SIDES}  # and numbers
        self._unranked: dict[str, list[Source]] = {side: [] for side in SIDES}
        self._opened = False  # sources, since the last frontier
        self.ended: set[str] = set()
        # Heaps of (watermark, name) of the open sources. Watermarks only grow, so one may be out of date until it is
        # the least.
        self._marks: dict[str, list[tuple[float, str]]] = {side: [] for side in SIDES}
        self._low: dict[str, float] = dict.fromkeys(SIDES, -math.inf)
        # By side, the first source that has this watermark: "" if a new one may come, None if the side has ended.
        self._first: dict[str, str | None] = dict.fromkeys(SIDES, "")
        # No tuple with a smaller (ts, number of the side, name of the source) can come.
        self._bound: tuple[float, int, str] = (-math.inf, 0, "")
        # A heap of (when it may be idle, side, name), with an entry for each source that may become idle. An entry is
        # too early if the source was active since; it is corrected once it is the first.
        self._silences: list[tuple[float, str, str]] = []
        self._idle = 0  # sources

    # Silence

    @property
    def next_silence(self) -> float:
        """The earliest time at which a source may become idle, in seconds of the clock."""
        return self._silences[0][0] if self._silences else math.inf

    def watch(self, source: Source, idle_after: float, now: float) -> None:
        """Treat a source as idle after `idle_after` seconds without a push or `advance`."""
        source.active_at, known = now, source.idle_after < math.inf
        source.idle_after = idle_after
        if not known:
            heappush(self._silences, (now + idle_after, source.side, source.name))

    def note_active(self, source: Source, now: float) -> bool:
        """Note a push or `advance` of a source that may be idle. Return whether it was idle."""
        source.active_at, was_idle = now, source.idle
        if was_idle:
            source.idle = False
            self._idle -= 1
            self._opened = True
            heappush(self._marks[source.side], (max(source.watermark, self._low[source.side]), source.name))
            heappush(self._silences, (now + source.idle_after, source.side, source.name))
        return was_idle

    def note_silence(self, now: float) -> list[Source]:
        """Return the sources that become idle now; O(log sources) for each that may."""
        found = []
        while self._silences and self._silences[0][0] <= now:
            _, side, name = heappop(self._silences)
            source = self._of[side][name]
            if source.closed:
                continue
            due = source.active_at + source.idle_after
            if due > now:
                heappush(self._silences, (due, side, name))
            else:
                source.idle = True
                self._idle += 1
                found.append(source)
        return found

    def reached(self, side: str) -> float:
        """The watermark of a side that was announced last: infinity once it has ended, minus infinity before anything
        is known. Any thread may ask."""
        return self._low[side]

    def newest(self, side: str) -> float:
        """The greatest time that a side has brought. Any thread may ask; O(sources)."""
        return max((source.newest for source in list(self._of[side].values())), default=-math.inf)

    def find(self, side: str, name: str) -> Source | None:
        return self._of[side].get(name)

    def add(self, source: Source) -> Source:
        side, known = source.side, self._of[source.side]
        if source.name in known:
            names = sorted(known)
            others = "" if len(names) <= SHOWN_SOURCES else f" and {len(names) - SHOWN_SOURCES:,} more"
            raise InputError(
                f"{side} has a source named {source.name!r} already; its sources are {names[:SHOWN_SOURCES]}{others}",
                field="name",
                given=source.name,
                allowed="a name that no source of the side has",
            )
        source.number = len(known)
        known[source.name] = source
        heappush(self._marks[side], (-math.inf, source.name))
        self._unranked[side].append(source)
        self._opened = True
        return source

    def _rank(self, side: str) -> None:
        """Insert the new sources of a side into the order of names: O(log sources) comparisons for each, and one copy
        of the arrays for all of them."""
        new = sorted(self._unranked[side], key=lambda source: source.name)
        names, numbers = self._by_name[side]
        at = np.searchsorted(names, np.array([source.name for source in new], object))
        names = np.insert(names, at, [source.name for source in new])
        numbers = np.insert(numbers, at, [source.number for source in new])
        ranks = np.empty(len(numbers), np.int32)
        ranks[numbers] = np.arange(len(numbers))
        self.ranks[side], self._by_name[side], self._unranked[side] = ranks, (names, numbers), []

    def end(self, side: str) -> None:
        self.ended.add(side)
        for source in self._of[side].values():
            source.closed = True

    def late(self, source: Source, ts: np.ndarray, settles: bool) -> np.ndarray | None:
        """Return which tuples are late, for their source or for what was announced; None if none is late and `ts`
        rises."""
        count = len(ts)
        if not count:
            return None
        first, low = int(ts[0]), self._low[source.side]
        in_order = first >= source.newest and first >= source.promised and (count == 1 or not falls(ts))
        if in_order and first >= low and not (settles and first <= self._bound[0]):
            return None
        late = np.zeros(count, np.bool_) if in_order else source.late(ts)
        if low > -math.inf:
            late |= ts < low
        bound, *name = self._bound
        if settles and math.isfinite(bound):
            late |= (ts < bound) | ((ts == bound) & ([SIDES.index(source.side), source.name] < name))
        return late

    def frontier(self) -> Frontier:
        """Announce what can still come, from the watermarks of all open sources; O(log sources) for each source that
        was the last one and has advanced."""
        for side in SIDES:
            self._look(side)
        if self._idle:
            self._follow()
        self._opened = False
        return self._announce()

    def frontier_after(self, source: Source) -> Frontier:
        """As `frontier`, if only this source has advanced since the last call."""
        if self._opened or self._idle:
            return self.frontier()
        self._look(source.side)
        return self._announce()

    def _look(self, side: str) -> None:
        """Note the least watermark of a side, and the first source that has it."""
        if side in self.ended:
            self._low[side], self._first[side] = math.inf, None
        else:
            self._low[side], self._first[side] = self._least(side)

    def _follow(self) -> None:
        """Advance a side whose sources are all idle to the low of the other side; if no source is active, advance each
        silent side to the highest watermark."""
        silent = [side for side in SIDES if self._is_silent(side)]
        lows = [self._low[side] for side in SIDES if side not in silent and side not in self.ended]
        if silent and not lows:
            lows = [max(s.watermark for side in SIDES for s in self._of[side].values())]
        for side in silent:
            if lows[0] > self._low[side]:
                self._low[side], self._first[side] = lows[0], ""

    def _is_silent(self, side: str) -> bool:
        """Whether there are open sources, and all of them are idle."""
        idle = self._idle and not self._marks[side] and side not in self.ended
        return bool(idle and any(source.idle and not source.closed for source in self._of[side].values()))

    def _announce(self) -> Frontier:
        low, left, right = self._low, self._first["left"], self._first["right"]
        bound = (math.inf, 0, "")
        if left is not None and (right is None or low["left"] <= low["right"]):
            bound = (low["left"], 0, left)
        elif right is not None:
            bound = (low["right"], 1, right)
        if bound > self._bound:
            self._bound = bound
        return self.announced()

    def announced(self) -> Frontier:
        """The last announcement, with ranks that include sources opened since."""
        if self._unranked["left"] or self._unranked["right"]:
            for side in SIDES:
                if self._unranked[side]:
                    self._rank(side)
        ts, number, name = self._bound
        first = self._of[SIDES[number]].get(name)
        rank = -1 if first is None else int(self.ranks[SIDES[number]][first.number])
        return Frontier((ts, number, rank), self._low.copy())

    def _least(self, side: str) -> tuple[float, str]:
        """The least watermark of an open source, not below what was announced, and the first source that has it."""
        marks, known, low = self._marks[side], self._of[side], self._low[side]
        while marks:
            mark, name = marks[0]
            source = known[name]
            now = source.watermark
            if now < low:
                now = low
            if source.closed or source.idle:
                heappop(marks)
            elif now <= mark:
                return mark, name
            elif len(marks) == 1:
                marks[0] = now, name
                return now, name
            else:
                heapreplace(marks, (now, name))
        return low, ""  # without an open source, one of any name may come


def seconds_of_silence(idle_after: str | timedelta | None) -> float:
    """`idle_after` in seconds; infinity if it is None."""
    if idle_after is None:
        return math.inf
    allowed = 'a duration such as "10 seconds", a timedelta, or None'
    seconds = (
        float(nanoseconds(idle_after, "idle_after")) / 1e9
        if isinstance(idle_after, (str, timedelta))
        else 0.0
    )
    if seconds <= 0:
        raise InputError(
            f"idle_after is {short_repr(idle_after)}: give {allowed}, longer than zero",
            field="idle_after",
            given=idle_after,
            allowed=allowed,
        )
    return seconds
