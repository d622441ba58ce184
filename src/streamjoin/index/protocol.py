"""Tuples as kernels see them, and what every window can do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from streamjoin.kernels.pairs import PairBuffer

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MANY = 256  # times that are worth looking for the last one first


@dataclass(frozen=True)
class Tuples:
    """Tuples of one side, prepared for the kernels, in the total order.

    `ts`, `id`: int64. `source`: the number of the physical stream. `stored` and `probing`: what the programs
    prepared for their two roles. `nulls`: whether something in those may be NULL.
    """

    ts: np.ndarray
    id: np.ndarray
    source: np.ndarray
    stored: dict[str, np.ndarray]
    probing: dict[str, np.ndarray]
    nulls: bool

    def __len__(self) -> int:
        return len(self.ts)

    def pick(self, rows: slice | np.ndarray) -> Tuples:
        stored, probing = (
            {name: a[rows] for name, a in role.items()} for role in (self.stored, self.probing)
        )
        return Tuples(self.ts[rows], self.id[rows], self.source[rows], stored, probing, self.nulls)


def has_unknown(stored: Mapping[str, np.ndarray], probing: Mapping[str, np.ndarray]) -> bool:
    """Whether some key or bound is NULL: by its column, or by arithmetic, as x % 0."""
    return any(not role[ok].all() for role, ok in ((stored, "key_ok"), (probing, "probe_ok")) if ok in role)


@dataclass(frozen=True)
class Reach:
    """Which stored tuples each probe may meet, by their place in the total order.

    Those with ts <= `high` (< if `strict`) and ts >= `low`; without `low`, the last `rows` of them. Neither
    bound falls from probe to probe.
    """

    low: np.ndarray | None
    high: np.ndarray
    rows: int = 0
    strict: bool = False

    def pick(self, probes: slice | np.ndarray) -> Reach:
        return Reach(
            None if self.low is None else self.low[probes], self.high[probes], self.rows, self.strict
        )

    def misses(self, oldest: int, newest: int) -> bool:
        """Whether no probe reaches a tuple between these times. Time windows only, as `covers`."""
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
        none = self.high == INT64_MIN  # comes before it
        return np.where(none, INT64_MAX, self.low), np.where(none, self.high, self.high - 1)

    def positions(self, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The range [start, stop) of positions in a window sorted by `ts`, for each probe."""
        if len(ts) and ts[-1] < self.high[0]:  # as is usual
            stop = np.full(len(self.high), len(ts))
        else:
            stop = places(ts, self.high, "left" if self.strict else "right")
        if self.low is None:
            return np.maximum(stop - self.rows, 0), stop
        return places(ts, self.low, "left"), stop


def places(ts: np.ndarray, times: np.ndarray, side: Literal["left", "right"]) -> np.ndarray:
    """`ts.searchsorted(times, side)` of times that do not fall: the first and the last bound the others, and many are
    then searched for in what the caches hold."""
    if len(times) < MANY or len(ts) < len(times):
        return ts.searchsorted(times, side)
    first, last = ts.searchsorted(times[[0, -1]], side)
    found: np.ndarray = ts[first:last].searchsorted(times, side) + first
    return found


Part = Callable[[PairBuffer], Iterator[int]]


class Team(Protocol):
    """Who does the work of a probe, or of an insert. `workers`: into how many parts it may be cut, at most."""

    workers: int

    def share(self, parts: Sequence[Part], pairs: PairBuffer) -> Iterator[int]:
        """Append what the parts append, one after the other; they change nothing but the buffer they are given, and
        may run side by side."""


class Alone:
    """A `Team` of the caller."""

    workers = 1

    def share(self, parts: Sequence[Part], pairs: PairBuffer) -> Iterator[int]:
        for part in parts:
            yield from part(pairs)


ALONE = Alone()


def cuts(size: int, least: int, most: int) -> list[slice]:
    """Up to `most` consecutive parts of about the same size, of at least `least`; one if there is no more."""
    count = max(1, min(most, size // max(least, 1)))
    return [slice(number * size // count, (number + 1) * size // count) for number in range(count)]


class WindowIndex(Protocol):
    """The tuples of one side that still wait for partners. Positions count from the oldest one."""

    comparisons: int

    def __len__(self) -> int: ...

    def __getitem__(self, name: str) -> np.ndarray:
        """A column (`ts`, a key) of the tuples held, by position; valid until the next change."""

    def ids(self, positions: np.ndarray) -> np.ndarray:
        """The ids of the tuples at these positions."""

    def oldest_id(self) -> int:
        """The least id of all tuples held, of which there is one at least."""

    @property
    def nbytes(self) -> int: ...

    def insert(self, tuples: Tuples, rank: np.ndarray, team: Team = ALONE) -> None:
        """Add tuples, themselves in the total order; `rank[source]` orders sources. Work that is worth it is shared
        with the `team`."""

    def probe(self, probes: Tuples, reach: Reach, pairs: PairBuffer, team: Team = ALONE) -> Iterator[int]:
        """Append a pair (probe, position) for each probe and tuple in its reach that satisfy the window's program.

        Yields after each stretch of pairs the count before it: the caller may thin the stretch out,
        by lowering `pairs.count`, before the next one comes. Work that is worth it is shared with the `team`.
        """

    def expire(self, reach: Reach) -> None:
        """Drop tuples that a single probe of this reach, and so any later one, can not meet."""

    def clear(self) -> None:
        """Drop all tuples."""


class Subwindow(Protocol):
    """Some consecutive tuples of a window, found by one key (Pan & Jacobsen, section III-A).

    A window is a chain of these by arrival: only the newest takes tuples, full ones are sealed, the
    oldest goes as a whole. Made from (capacity in tuples, dtype of the key, predecessor in the chain
    or None). A tuple is known by its slot, a number from 0 below the capacity.
    """

    def __len__(self) -> int:
        """Tuples held."""

    @property
    def nbytes(self) -> int: ...

    def insert(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Add tuples; slots (int32) rise from call to call. A NaN key matches nothing."""

    def seal(self) -> None:
        """Nothing will be inserted any more: get into the shape that is fastest to probe."""

    def probe(
        self, lows: np.ndarray, highs: np.ndarray, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        """Append a pair (probe, slot) for each probe i and tuple with lows[i] <= key <= highs[i] and
        start[i] <= slot < stop[i]. An empty interval (low > high, or NaN) matches nothing.

        Yields after each stretch of pairs the count before it, as `WindowIndex.probe` does: what is
        appended may be thinned out, by lowering `pairs.count`, before the next stretch comes.
        """
