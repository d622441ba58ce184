"""The best matches of each left row so far: at most k, by a score. Where scores are equal the later row is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from streamjoin.index.sliding import SlidingColumns
from streamjoin.topologies.outcomes.rows import NO_ROW

COUNT, ROW, FIRST_SCORE = 0, 1, 2  # columns: how many there are; right rows, and their scores, the best first

# Numbers by which right rows are compared where their scores are equal, the most significant last, as for np.lexsort;
# the row with the greater ones is better.
Lateness = Callable[[np.ndarray], list[np.ndarray]]


class BestMatches:
    """By left row number. Scores may have several parts, the most significant first; the smaller, the better.

    O(matches log matches) for matches that are added, and k numbers a left row once it has k matches.
    """

    def __init__(self, k: int, dtypes: Sequence[np.dtype], lateness: Lateness):
        self._k, self._dtypes, self._lateness = k, list(dtypes), lateness
        self._width = 1
        self._first = 0  # the oldest left row
        self._columns = self._made(0)

    def _made(self, rows: int) -> SlidingColumns:
        columns = SlidingColumns()
        columns.append(self._empty(rows))
        return columns

    def _empty(self, rows: int) -> list[np.ndarray]:
        shape = (rows, self._width)
        return [
            np.zeros(rows, np.int64),
            np.zeros(shape, np.int64),
            *(np.zeros(shape, d) for d in self._dtypes),
        ]

    def append(self, count: int) -> None:
        """Take the next left rows, which have no matches yet."""
        self._columns.append(self._empty(count))

    def add(self, left: np.ndarray, right: np.ndarray, scores: Sequence[np.ndarray]) -> np.ndarray:
        """Add matches, each of which comes once. Return the left rows whose best match has changed."""
        if not len(left):
            return left
        rows, group = np.unique(left, return_inverse=True)
        at = rows - self._first
        held = self._held(at)
        before = np.where(self._columns[COUNT][at] > 0, self._columns[ROW][at, 0], NO_ROW)
        groups, rights, *parts = (
            np.concatenate(both) for both in zip(held, (group, right, *scores), strict=True)
        )
        order = np.lexsort([*(~key for key in self._lateness(rights)), *parts[::-1], groups])
        groups = groups[order]
        sizes = np.bincount(groups, minlength=len(rows))
        place = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        counts = np.minimum(sizes, self._k)
        self._widen(int(counts.max()))
        best = place < self._k
        where = at[groups[best]], place[best]
        self._columns[COUNT][at] = counts
        for number, values in enumerate((rights, *parts), ROW):
            self._columns[number][where] = values[order][best]
        improved: np.ndarray = rows[self._columns[ROW][at, 0] != before]
        return improved

    def _held(self, at: np.ndarray) -> list[np.ndarray]:
        """What is held at these positions: the number of the position in `at`, then right rows and scores."""
        counts = self._columns[COUNT][at]
        there = np.arange(self._width) < counts[:, None]
        columns = [self._columns[number][at][there] for number in range(ROW, FIRST_SCORE + len(self._dtypes))]
        return [np.repeat(np.arange(len(at)), counts), *columns]

    def _widen(self, width: int) -> None:
        """Make room for `width` matches per row."""
        if width <= self._width:
            return
        old, live = self._width, [column.copy() for column in self._columns.live()]
        self._width = min(self._k, max(width, 2 * old))
        self._columns = self._made(len(live[COUNT]))
        for number, values in enumerate(live):
            column = self._columns[number]
            if number == COUNT:
                column[:] = values
            else:
                column[:, :old] = values

    def of(self, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The matches (left, right) of these left rows."""
        number, right, *_ = self._held(left - self._first)
        return left[number], right

    def first(self, left: np.ndarray) -> np.ndarray:
        """The best match of each of these left rows, which have one."""
        found: np.ndarray = self._columns[ROW][left - self._first, 0]
        return found

    def oldest_right(self, left: np.ndarray) -> int | None:
        """The least right row among the matches of these left rows; O(rows)."""
        right = self.of(left)[1]
        return int(right.min()) if len(right) else None

    def release(self, before: int) -> None:
        """Forget the left rows numbered below `before`."""
        if before > self._first:
            self._columns.drop(min(before - self._first, len(self._columns)))
            self._first = before
