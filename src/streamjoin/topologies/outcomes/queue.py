"""Result rows that wait to leave in the order of `order="timestamp"` (docs/semantics.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.topologies.outcomes.rows import RowFacts
from streamjoin.topologies.protocol import Matches

# By which rows of a side with equal times are ordered, the most significant last.
PlaceKeys = Callable[[str, np.ndarray], list[np.ndarray]]


class ResultQueue:
    """Rows by result time; those of one time as the semantics says. A row number below zero stands for no row."""

    def __init__(self, spec: JoinSpec, facts: Mapping[str, RowFacts], place: PlaceKeys):
        self._picks, self._facts, self._place = spec.keep != "all", facts, place
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # left, right, result times
        self._least: float = math.inf

    def add(self, left: np.ndarray, right: np.ndarray, times: np.ndarray | None) -> None:
        """Take rows; pairs have no times of their own."""
        if times is None:
            times = np.maximum(self._facts["left"].ts(left), self._facts["right"].ts(right))
        self._parts.append((left, right, times))
        self._least = min(self._least, int(times.min()))

    def release(self, before: float) -> Matches | None:
        """The rows whose result time is below `before`, in order; O(waiting + n log n) for n that go."""
        if before <= self._least:
            return None
        left, right, times = (np.concatenate(columns) for columns in zip(*self._parts, strict=True))
        goes = times < before if before < math.inf else np.ones(len(times), np.bool_)
        rest = ~goes
        self._parts = [(left[rest], right[rest], times[rest])] if rest.any() else []
        self._least = int(times[rest].min()) if rest.any() else math.inf
        left, right = left[goes], right[goes]
        order = np.lexsort([*self._keys(left, right), times[goes]])
        return Matches(left[order], right[order])

    def _keys(self, left: np.ndarray, right: np.ndarray) -> list[np.ndarray]:
        """What orders rows of one result time, the most significant last."""
        ids = {"left": left, "right": right}
        there = {side: ids[side] >= 0 for side in SIDES}
        places = {}
        for side in SIDES:
            if not there[side].any():
                places[side] = [np.zeros_like(left)] * 2
                continue
            # Where no row is, one that is there: any other may be gone.
            known = np.where(there[side], ids[side], ids[side][np.argmax(there[side])])
            places[side] = [*self._place(side, known), self._facts[side].ts(known)]
        if (
            self._picks
        ):  # by the left tuple, then the right one; a row without partner has no other of its left tuple
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
        number = SIDES.index(side)
        ids = np.concatenate([part[number] for part in self._parts] or [np.empty(0, np.int64)])
        ids = ids[ids >= 0]
        return int(ids.min()) if len(ids) else None

    def clear(self) -> None:
        self._parts, self._least = [], math.inf


def _padded(keys: list[np.ndarray], count: int) -> list[np.ndarray]:
    """As many keys; those of less weight than the source, if any, are the same for all."""
    return [*keys[:-1], *[np.zeros_like(keys[0])] * (count - len(keys)), keys[-1]]
