"""Result rows that wait to leave in the order of `order="timestamp"` (docs/semantics.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.topologies.outcomes.by_time import RowsByTime
from streamjoin.topologies.outcomes.rows import RowFacts
from streamjoin.topologies.protocol import Matches

# The keys that order rows of a side with equal times, the most significant last.
PlaceKeys = Callable[[str, np.ndarray], list[np.ndarray]]


class ResultQueue:
    """Rows by result time, and within one time as docs/semantics.md defines. A row number below zero stands for no
    row."""

    def __init__(self, spec: JoinSpec, facts: Mapping[str, RowFacts], place: PlaceKeys):
        self._picks, self._facts, self._place = spec.keep != "all", facts, place
        self._rows = RowsByTime()  # with left and right row numbers

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, left: np.ndarray, right: np.ndarray, times: np.ndarray | None) -> None:
        """Take rows; pairs have no times of their own."""
        if times is None:
            times = np.maximum(self._facts["left"].ts(left), self._facts["right"].ts(right))
        self._rows.add(times, left, right)

    def release(self, before: float) -> Matches | None:
        """The rows whose result time is below `before`, in order; O(n log n) for n that go."""
        taken = self._rows.take(before)
        if taken is None:
            return None
        times, left, right = taken
        order = np.lexsort([*self._keys(left, right), times])
        return Matches(left[order], right[order])

    def _keys(self, left: np.ndarray, right: np.ndarray) -> list[np.ndarray]:
        """The keys that order rows of one result time, the most significant last."""
        ids = {"left": left, "right": right}
        there = {side: ids[side] >= 0 for side in SIDES}
        places = {}
        for side in SIDES:
            if not there[side].any():
                places[side] = [np.zeros_like(left)] * 2
                continue
            # In place of a missing row, look up one that exists: any other may have been released.
            known = np.where(there[side], ids[side], ids[side][np.argmax(there[side])])
            places[side] = [*self._place(side, known), self._facts[side].ts(known)]
        if (
            self._picks
        ):  # by the left tuple, then the right one; a row without a partner is the only one of its left tuple
            return [*places["right"], *places["left"]]
        pairs = there["left"] & there["right"]
        ts = {side: places[side][-1] for side in SIDES}
        left_later = np.where(pairs, ts["left"] > ts["right"], there["left"])
        later, earlier = (self._chosen(chosen, places) for chosen in (left_later, ~left_later))
        earlier = [np.where(pairs, key, 0) for key in earlier]
        return [*earlier, *later, ~pairs]

    def _chosen(self, left: np.ndarray, places: Mapping[str, list[np.ndarray]]) -> list[np.ndarray]:
        """The place of the left or the right tuple of each row."""
        count = max(map(len, places.values()))
        keys = [
            np.where(left, a, b)
            for a, b in zip(*(_padded(places[side], count) for side in SIDES), strict=True)
        ]
        return [*keys[:-1], ~left, keys[-1]]  # left before right at equal times

    def oldest_id(self, side: str) -> int | None:
        """The least row number of a side among the rows that wait; O(waiting)."""
        parts = self._rows.column(1 + SIDES.index(side))
        return min((int(ids[ids >= 0].min()) for ids in parts if (ids >= 0).any()), default=None)

    def clear(self) -> None:
        self._rows.clear()


def _padded(keys: list[np.ndarray], count: int) -> list[np.ndarray]:
    """As many keys; those of less weight than the source, if any, are the same for all."""
    return [*keys[:-1], *[np.zeros_like(keys[0])] * (count - len(keys)), keys[-1]]
