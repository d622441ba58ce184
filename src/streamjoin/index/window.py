"""What a window can do: the protocols of whole windows, of the subwindows they are made of, and of shared work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.index.stats import IndexStats
from streamjoin.index.times import Reach
from streamjoin.index.tuples import Mark, ProbingTuples, Tuples
from streamjoin.kernels.pairs import PairBuffer

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

    @property
    def ts(self) -> np.ndarray:
        """The event times (or places) of the tuples held, by position; valid until the next change."""

    def mark(self, name: Mark) -> np.ndarray:
        """A mark of the tuples held, by position; valid until the next change."""

    def stored(self) -> Stored:
        """What is kept of the tuples held, by position; valid until the next change."""

    def ids(self, positions: np.ndarray) -> np.ndarray:
        """The ids of the tuples at these positions."""

    def oldest_id(self) -> int:
        """The least id of all tuples held, of which there is one at least."""

    @property
    def nbytes(self) -> int: ...

    def insert(self, tuples: Tuples, rank: np.ndarray, team: Team = ALONE) -> None:
        """Add tuples, themselves in the total order; `rank[source]` orders sources. Work that is worth it is shared
        with the `team`."""

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, team: Team = ALONE
    ) -> Iterator[int]:
        """Append a pair (probe, position) for each probe and tuple in its reach that satisfy the window's program.

        Yields after each stretch of pairs the count before it: the caller may thin the stretch out,
        by lowering `pairs.count`, before the next one comes. Work that is worth it is shared with the `team`.
        """

    def tuples(self) -> Tuples:
        """All tuples held, by position; valid until the next change."""

    def observe(self, probing: Probing) -> None:
        """Note what is asked, where that decides what the window becomes; `probe` does so itself."""

    @property
    def links(self) -> Sequence[Any]:
        """The subwindows, oldest first, where there are some."""

    def stats(self) -> IndexStats:
        """What the window is made of; nothing changes it meanwhile."""

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
