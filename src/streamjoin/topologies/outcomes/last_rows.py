"""The last right row of each key, and earlier ones that a left row to come may still need; the arrays are those of
kernels/hash/last_rows.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamjoin.kernels.hash.last_rows import count_needed, find_last, move_earlier, move_last
from streamjoin.kernels.hash.last_rows_forms import (
    BEGINS,
    COLUMNS,
    ENDS,
    FREE,
    KEYS_FROM,
    PAST_ROWS,
    PAST_TIMES,
    PAST_USED,
    PLACES_USED,
    REPLACED,
    ROWS,
    TIMES,
    Rows,
)

# Tables of up to this many places have four times as many as they need: a search that does not end at its first place
# costs as much as the rest of the work, because that cannot be predicted.
LOOSE = 16_384


class LastRows:
    """Right rows by key. Memory grows with the rows that left rows to come may need, and shrinks with them."""

    def __init__(self, smallest: int):
        """`smallest`: the places of the smallest table."""
        self._smallest = smallest
        self._make(smallest, 0, 0)

    def _make(self, places: int, size: int, earlier: int) -> None:
        self._table = np.zeros((places, COLUMNS), np.int64)
        self._table[:, ROWS] = FREE
        self._arena = np.empty(size, np.uint8)
        # As much room as in the table, so that a table is not moved for a few earlier rows.
        self._earlier = np.empty((max(places // 2, earlier), COLUMNS), np.int64)
        self._used = np.zeros(KEYS_FROM + places // 2 + 1, np.int64)

    def __len__(self) -> int:
        return int(self._used[PLACES_USED] + self._used[PAST_USED])

    @property
    def nbytes(self) -> int:
        return self._arena.nbytes + self._table.nbytes + self._earlier.nbytes

    def find(
        self,
        left: Rows,
        right: Rows,
        right_rows: np.ndarray,
        source: np.ndarray | None,
        reach: tuple[int, int],
        passed: int,
        needed: int,
        out: np.ndarray,
    ) -> tuple[int, int]:
        """`find_last`: answer left rows and take right rows, until a row might find no room. `source`: the bytes of
        their keys, None if words are enough. `reach`: the least and the greatest difference of time."""
        args = passed, needed, self._table, self._arena, self._earlier, self._used, out
        answered, taken = find_last(left, right, right_rows, source, *reach, *args)
        return int(answered), int(taken)

    def make_room(self, needed: int, oldest: int, size: int) -> None:
        """Drop what no left row to come needs, and enlarge what stays more than half full; `size`: bytes of the next
        key. O(places + earlier rows)."""
        table, arena, earlier = self._table, self._arena, self._earlier
        live, past = self._live(oldest), self._live_past(needed, oldest)
        count, kept = int(self._used[PAST_USED]), int((table[live, ENDS] - table[live, BEGINS]).sum())
        places = max(self._smallest, 1 << (4 * len(live)).bit_length())
        places = max(places, min(4 * places, LOOSE))
        self._make(places, 2 * kept + size, 2 * len(past))
        moved = np.empty(count, np.int64)
        move_earlier(earlier, count, needed, oldest, self._earlier, self._used, moved)
        move_last(table, arena, live, moved, self._table, self._arena, self._used)

    def _live(self, oldest: int) -> np.ndarray:
        """The places of last rows from the time `oldest` on."""
        places = self._used[KEYS_FROM : KEYS_FROM + self._used[PLACES_USED]]
        live: np.ndarray = places[self._table[places, TIMES] >= oldest]
        return live

    def _live_past(self, needed: int, oldest: int) -> np.ndarray:
        """The places of earlier rows that a left row to come may need."""
        past = self._earlier[: self._used[PAST_USED]]
        times, replaced = past[:, PAST_TIMES], past[:, REPLACED]
        return np.flatnonzero((replaced > needed) & (times >= oldest))

    def count_and_least(self, needed: int, oldest: int) -> tuple[int, int]:
        """How many rows a left row to come may need, and the least of their numbers; O(rows)."""
        count, least = count_needed(self._table, self._earlier, self._used, needed, oldest)
        return int(count), int(least)

    def rows(self, needed: int, oldest: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The arrays of row numbers, and the places in them of the rows that a left row to come may need."""
        return [
            (self._table[:, ROWS], self._live(oldest)),
            (self._earlier[:, PAST_ROWS], self._live_past(needed, oldest)),
        ]


def numbers_of(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The row numbers themselves."""
    return np.concatenate([numbers[places] for numbers, places in rows])
