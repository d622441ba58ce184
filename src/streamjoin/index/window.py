"""The protocols of windows, of the subwindows they consist of, and of teams that share their work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.index.stats import IndexStats
from streamjoin.index.times import Reach
from streamjoin.index.tuples import Mark, ProbingTuples, Tuples
from streamjoin.kernels.pairs import PairBuffer

ProbePart = Callable[[PairBuffer], Iterator[int]]


class Team(Protocol):
    """Does the work of a probe or an insert, in at most `workers` parts."""

    workers: int

    def share(self, parts: Sequence[ProbePart], pairs: PairBuffer) -> Iterator[int]:
        """Append the pairs of all parts, part after part. Parts may run in parallel, and change only the buffer they
        are given."""


class Alone:
    """A `Team` of the calling thread only."""

    workers = 1

    def share(self, parts: Sequence[ProbePart], pairs: PairBuffer) -> Iterator[int]:
        for part in parts:
            yield from part(pairs)


ALONE = Alone()
KEY_DTYPES = ("int32", "int64", "float32", "float64")  # types of the keys of subwindows
ONE_SOURCE = np.zeros(1, np.int32)  # the rank of sources when all tuples count as coming from one


def cuts(size: int, least: int, most: int) -> list[slice]:
    """At most `most` consecutive parts of similar size, each of at least `least`; a single one if `size` is too
    small."""
    count = max(1, min(most, size // max(least, 1)))
    return [slice(number * size // count, (number + 1) * size // count) for number in range(count)]


class WindowIndex(Protocol):
    """The tuples of one side that still wait for partners. Position 0 is the oldest tuple."""

    comparisons: int

    def __len__(self) -> int: ...

    @property
    def ts(self) -> np.ndarray:
        """The event times (or places) of the tuples held, by position; valid until the next change."""

    def mark(self, name: Mark) -> np.ndarray:
        """A mark of all tuples held, by position; valid until the next change."""

    def stored(self) -> Stored:
        """The stored columns of all tuples held, by position; valid until the next change."""

    def ids(self, positions: np.ndarray) -> np.ndarray:
        """The ids of the tuples at these positions."""

    def oldest_id(self) -> int:
        """The least id of all tuples held; there must be at least one."""

    @property
    def nbytes(self) -> int: ...

    def insert(self, tuples: Tuples, rank: np.ndarray, team: Team = ALONE) -> None:
        """Add tuples, themselves in the total order; `rank[source]` orders sources. A `team` shares the work if there
        is enough."""

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, team: Team = ALONE
    ) -> Iterator[int]:
        """Append a pair (probe, position) for each probe and each tuple in its reach that satisfies the window's
        program.

        Yields after each stretch of pairs, with the count before the stretch. The caller may remove pairs of the
        stretch, by lowering `pairs.count`, before it asks for the next one. A `team` shares the work if there is
        enough.
        """

    def tuples(self) -> Tuples:
        """All tuples held, by position; valid until the next change."""

    def observe(self, probing: Probing) -> None:
        """Note what probes ask for, if the window's structure depends on it; `probe` does this itself."""

    @property
    def links(self) -> Sequence[Any]:
        """The subwindows, oldest first, if the window has some."""

    def stats(self) -> IndexStats:
        """The structure of the window; changes nothing."""

    def expire(self, before: int) -> None:
        """Drop tuples with a time (or place) below `before`, which no later probe can meet. May keep some of them."""

    def expire_first(self, count: int) -> None:
        """Drop the first `count` tuples by position, which no later probe can meet. May keep some of them."""

    def clear(self) -> None:
        """Drop all tuples."""


class Subwindow(Protocol):
    """Consecutive tuples of a window that are found by one key (Pan & Jacobsen, section III-A).

    A window is a chain of these in order of arrival: only the newest takes tuples, full ones are sealed, the oldest
    is dropped as a whole. The constructor takes (capacity in tuples, dtype of the key, predecessor in the chain or
    None). A tuple is identified by its slot, a number from 0 to the capacity - 1.
    """

    def __len__(self) -> int:
        """Tuples held."""

    @property
    def nbytes(self) -> int: ...

    def insert(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Add tuples; slots (int32) ascend from call to call. A NaN key matches nothing."""

    def seal(self) -> None:
        """Finish the subwindow: nothing will be inserted any more, so take the form that is fastest to probe."""

    def probe(
        self, lows: np.ndarray, highs: np.ndarray, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        """Append a pair (probe, slot) for each probe i and tuple with lows[i] <= key <= highs[i] and start[i] <= slot
        < stop[i]. An empty interval (low > high, or NaN) matches nothing.

        Yields after each stretch of pairs, with the count before the stretch, as `WindowIndex.probe` does. The caller
        may remove pairs of the stretch, by lowering `pairs.count`, before it asks for the next one.
        """

    @property
    def parts(self) -> np.ndarray | None:
        """What it consists of, as rows for `probe_all`, with 0 in the last column. None if the class has no
        `probe_all`."""


class Together(Protocol):
    """A `Subwindow` of a class that can ask several with one call. A push of few tuples would spend most of its time
    on asking them one by one."""

    @property
    def parts(self) -> np.ndarray: ...

    @staticmethod
    def probe_all(
        parts: np.ndarray,
        gone: int,
        lows: np.ndarray,
        highs: np.ndarray,
        start: np.ndarray,
        stop: np.ndarray,
        pairs: PairBuffer,
    ) -> Iterator[int]:
        """As `probe`, for the subwindows with these parts, one after the other, and for positions instead of slots: the
        position of a tuple is its slot, plus the last number of its part's row, minus `gone`."""
