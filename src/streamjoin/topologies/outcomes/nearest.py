"""Nearest joins by searches: each left row is searched for once, when all right rows of its window are there.

Both sides wait in the total order. Once right has passed the end of a left row's window, a sorted list is slid over the
rows of that window, and searched outward from the left row's target for the best k (`kernels/sorted/blocks.py`). As the
windows of left rows in order follow each other, a right row enters and leaves the list about once; left rows that come
out of order slide it back. So a left row costs O(log rows + k), and a right row O(log rows), if few scores tie.

If pairs have to satisfy a residual condition, searches give more rows than k, and more again for left rows of which too
few satisfy it.

It takes the place of a topology, and gives only matches that count; `AllMatches` makes result rows of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from streamjoin.codegen.columns import ColumnData
from streamjoin.codegen.evaluate import Filter
from streamjoin.codegen.prepared import Stored
from streamjoin.codegen.searched import search_columns, searched_dtype
from streamjoin.index.sliding import SortedTuples
from streamjoin.index.stats import IndexStats
from streamjoin.index.times import saturated_sum
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.kernels.sorted.block_lists import (
    END_PLACE,
    FIRST_PLACE,
    ROOM,
    VISITED,
    Blocks,
    KeyedRows,
    Searches,
    emptied,
    enlarged,
    is_full,
    is_sparse,
    make_blocks,
)
from streamjoin.kernels.sorted.blocks import search_rows, slide
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.keep import Nearest
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.outcomes.rows import NO_ROWS, count_before
from streamjoin.topologies.protocol import Frontier, Matches, Task, WindowSize
from streamjoin.topologies.runtime.node import Bell

FIRST_BLOCKS = 16
# Entries visited in one call of the kernel: a fraction of a second. A row that moves takes as long as ROOM visits.
VISITS_A_CALL = 1 << 24
RING, WIDER = 4, 4  # with a residual, look at first for RING * k + RING rows, then for WIDER times as many


class NearestSearch:
    """Gives the matches that `Nearest` picks, without looking at the others."""

    settles = False

    def __init__(self, task: Task):
        spec, search = task.plan.spec, task.plan.search
        assert isinstance(spec.keep, Nearest) and spec.delta is not None and search is not None
        self._tuning = task.plan.tuning.nearest
        self.found = Bell()
        self._lo, self._hi = spec.delta.lo, spec.delta.hi
        self._k, self._turns = spec.keep.k, search.shape.turns
        self._columns = search_columns(search.shape, search.equalities, search.conditions)
        self._dtype = searched_dtype(search.shape.key.type)
        self._lowest = self._dtype.type(-math.inf if self._dtype.kind == "f" else 0)
        self._residual = None if search.residual is None else Filter(search.residual)
        self._fetch = task.fetch
        self._blocks = make_blocks(FIRST_BLOCKS, self._dtype)
        self._rows = {side: SortedTuples() for side in SIDES}
        self._base = 0  # the place of the first right row
        self._frontier = Frontier((-math.inf, 0, 0), dict.fromkeys(SIDES, -math.inf))
        self._rest = Matches(NO_ROWS, NO_ROWS)

    @property
    def windows(self) -> Mapping[str, WindowSize]:
        return {
            "left": ListedRows(self._rows["left"]),
            "right": ListedRows(self._rows["right"], self._blocks),
        }

    @property
    def comparisons(self) -> tuple[int, ...]:
        return (int(self._blocks.state[VISITED]),)

    def held(self, side: str) -> int:
        return len(self._rows[side])

    def oldest_id(self, side: str) -> int | None:
        rows, rest = self._rows[side].id, self._rest.by_side()[side]
        return min((int(ids.min()) for ids in (rows, rest) if len(ids)), default=None)

    def clear(self) -> None:
        for rows in self._rows.values():
            rows.drop(len(rows))
        self._blocks, self._rest = make_blocks(FIRST_BLOCKS, self._dtype), Matches(NO_ROWS, NO_ROWS)

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        if len(tuples):
            columns = self._columns[side]
            words, numbers, known = columns(self._fetch(side, columns.columns, tuples.id), len(tuples))
            stored = Stored((words, numbers), known)
            bare = Tuples(tuples.ts, tuples.id, tuples.source, stored, tuples.nulls)
            self._rows[side].insert(bare, ranks[side])
        self.advance(frontier)

    def advance(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._release()

    @property
    def _complete(self) -> int:
        """How many left rows have all right rows of their windows."""
        return count_before(self._rows["left"].ts, self._frontier.low["right"] - self._hi)

    @property
    def idle(self) -> bool:
        return not len(self._rest) and not self._complete

    def step(self, most: float) -> Matches:
        found = self._rest
        if not len(found):
            most_rows = max(1, self._tuning.step_places // self._k)
            found = self._answer(min(self._complete, self._tuning.largest_step, most_rows))
        cut = int(min(most, len(found)))
        self._rest = Matches(found.left[cut:], found.right[cut:])
        return Matches(found.left[:cut], found.right[:cut])

    @property
    def least_result_time(self) -> float:
        """No result is earlier than its left row, and this is the first one that waits or is to come."""
        return min(self._frontier.low["left"], self.least_unjoined_time("left"))

    def least_unjoined_time(self, side: str) -> float:
        ts = self._rows["left"].ts
        return int(ts[0]) if side == "left" and len(ts) else math.inf

    def _release(self) -> None:
        """Forget the right rows that are before the window of every left row that waits or is to come."""
        right, blocks = self._rows["right"], self._blocks
        count = count_before(right.ts, self.least_result_time + self._lo)
        if not count:
            return
        first, end = self._base + count, int(blocks.state[END_PLACE])
        if blocks.state[FIRST_PLACE] < first:
            while not slide(blocks, self._keyed(), first, max(first, end), VISITS_A_CALL // ROOM):
                pass  # here an interrupt can stop the join
        right.drop(count)
        self._base = first
        if is_sparse(blocks, self._tuning.kept_blocks):
            self._blocks = emptied(blocks, FIRST_BLOCKS)

    def _keyed(self) -> KeyedRows:
        """The right rows as the list reads them; valid until the next change."""
        rows = self._rows["right"]
        if not len(rows):
            return KeyedRows(NO_ROWS, np.empty(0, self._dtype), np.empty(0, np.bool_), self._base)
        stored = rows.stored()
        assert stored.known is not None
        words, numbers = stored.columns
        return KeyedRows(words, numbers, stored.known, self._base)

    # Searches

    def _answer(self, count: int) -> Matches:
        """Search for the first `count` left rows; they stay if the join is closed meanwhile."""
        left = self._rows["left"]
        searches = self._searches(count)
        number, place = self._best(searches) if self._residual is None else self._satisfying(searches)
        if self.found.stopped:
            return Matches(NO_ROWS, NO_ROWS)
        found = Matches(left.id[number], self._rows["right"].id[place - self._base])
        left.drop(count)
        self._release()
        return found

    def _searches(self, count: int) -> Searches:
        """What the first `count` left rows look for."""
        left, right = self._rows["left"], self._rows["right"].ts
        stored, ts = left.stored(), left.ts[:count]
        assert stored.known is not None
        begins = right.searchsorted(saturated_sum(ts, self._lo), "left")
        ends = right.searchsorted(saturated_sum(ts, self._hi), "right")
        if self._lo > 0:  # no time is so late
            ends = np.where(ts > INT64_MAX - self._lo, begins, ends)
        if self._hi < 0:  # or so early
            ends = np.where(ts < INT64_MIN - self._hi, begins, ends)
        words, targets = (column[:count] for column in stored.columns)
        return Searches(words, targets, stored.known[:count], begins + self._base, ends + self._base)

    def _best(self, searches: Searches) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of searches, and the places of their best k rows."""
        return found_beyond(0, *self._search(searches, min(self._k, widest(searches))))

    def _search(self, searches: Searches, most: int) -> tuple[np.ndarray, np.ndarray]:
        """The places of the best `most` rows of each search, and their number; garbage once the join is closed."""
        count, right = len(searches.words), self._keyed()
        places, counts = np.empty((count, most), np.int64), np.zeros(count, np.int64)
        costs, done = np.empty(most, self._dtype), 0
        while most and done < count and not self.found.stopped:
            rest = Searches(*(column[done:] for column in searches))
            done += search_rows(
                self._blocks,
                right,
                rest,
                self._turns,
                self._lowest,
                VISITS_A_CALL,
                costs,
                places[done:],
                counts[done:],
            )
            if is_full(self._blocks):
                self._blocks = enlarged(self._blocks)
        return places, counts

    def _satisfying(self, searches: Searches) -> tuple[np.ndarray, np.ndarray]:
        """As `_best`, of the rows that satisfy the residual condition."""
        open_, taken = np.arange(len(searches.words)), np.zeros(len(searches.words), np.int64)
        parts, seen, all_rows = [(NO_ROWS, NO_ROWS)], 0, widest(searches)
        size = min(RING * self._k + RING, all_rows)
        while len(open_):
            still: list[np.ndarray] = []
            pieces = max(1, self._tuning.step_places // max(size, 1))
            for at in range(0, len(open_), pieces):
                if self.found.stopped:
                    return NO_ROWS, NO_ROWS
                some = open_[at : at + pieces]
                places, counts = self._search(Searches(*(column[some] for column in searches)), size)
                number, place = found_beyond(seen, places, counts)
                number = some[number]
                holds = self._holds(number, place)
                number, place = number[holds], place[holds]
                best = nth_of_each(number) + taken[number] < self._k
                parts.append((number[best], place[best]))
                taken += np.bincount(number[best], minlength=len(taken))
                still.append(some[(counts == size) & (taken[some] < self._k)])
            open_ = np.concatenate(still) if size < all_rows else NO_ROWS
            seen, size = size, min(WIDER * size, all_rows)
        numbers, found = zip(*parts, strict=True)
        return np.concatenate(numbers), np.concatenate(found)

    def _holds(self, number: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Whether pairs of waiting left rows and right rows satisfy the residual condition."""
        assert self._residual is not None
        ids = {"left": self._rows["left"].id[number], "right": self._rows["right"].id[place - self._base]}
        data: dict[Column, ColumnData] = {}
        for side, rows in ids.items():
            read = tuple(column for column in self._residual.columns if column.side == side)
            data |= self._fetch(side, read, rows)
        return self._residual(data, len(number))


class ListedRows:
    """What a side holds, for `stats`."""

    def __init__(self, rows: SortedTuples, blocks: Blocks | None = None):
        self._rows, self._blocks = rows, blocks

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + sum(array.nbytes for array in self._blocks or ())

    def stats(self) -> IndexStats:
        return IndexStats()


def widest(searches: Searches) -> int:
    """The most rows that a search can find."""
    return int((searches.ends - searches.begins).max(initial=0))


def found_beyond(seen: int, places: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of searches, ascending, and what each has found after the first `seen` places, the best first."""
    ranks = np.arange(places.shape[1])
    fresh = (ranks >= seen) & (ranks < counts[:, None])
    return np.nonzero(fresh)[0], places[fresh]


def nth_of_each(numbers: np.ndarray) -> np.ndarray:
    """How many equal numbers are before each of these, which never fall."""
    first = np.searchsorted(numbers, numbers, "left")
    return np.arange(len(numbers)) - first
