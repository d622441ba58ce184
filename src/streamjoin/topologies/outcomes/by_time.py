"""Rows that wait for a time, the earliest first: what adding or taking costs does not depend on how many wait."""

from __future__ import annotations

import math

import numpy as np

from streamjoin.kernels.stamping import INT64_MAX

Run = list[np.ndarray]  # times, which never fall, then other columns of the same rows


class RowsByTime:
    """Columns of rows, with a time for each. They are kept in sorted runs, each more than twice as long as the next, so
    that a row is moved O(log rows) times."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return sum(len(run[0]) for run in self._runs)

    @property
    def least(self) -> float:
        """The earliest time; infinity if no row waits. O(runs)."""
        return min((int(run[0][0]) for run in self._runs), default=math.inf)

    def add(self, times: np.ndarray, *columns: np.ndarray) -> None:
        """Take rows, in any order of time."""
        if len(times):
            self._runs.append(_in_order([times, *columns]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            last, before = self._runs.pop(), self._runs.pop()
            both = [np.concatenate(parts) for parts in zip(before, last, strict=True)]
            self._runs.append(_in_order(both))

    def take(self, before: float) -> Run | None:
        """Remove the rows whose time is below `before`, in no particular order: their times and columns, or None if
        there are none."""
        taken, rest = [], []
        for run in self._runs:
            times = run[0]
            count = len(times) if before > INT64_MAX else int(times.searchsorted(max(before, times[0])))
            if count:
                taken.append([column[:count] for column in run])
            if count < len(times):
                rest.append(_without_first(run, count) if count else run)
        self._runs = rest
        return [np.concatenate(parts) for parts in zip(*taken, strict=True)] if taken else None

    def column(self, number: int) -> list[np.ndarray]:
        """The parts of a column, of all rows."""
        return [run[number] for run in self._runs]

    def clear(self) -> None:
        self._runs = []


def _in_order(run: Run) -> Run:
    times = run[0]
    if (times[1:] >= times[:-1]).all():
        return run
    order = np.argsort(times, kind="stable")
    return [column[order] for column in run]


def _without_first(run: Run, count: int) -> Run:
    """The run without its first rows. Their memory is given back once they are most of it."""
    rest = [column[count:] for column in run]
    whole = rest[0].base
    if whole is None or len(rest[0]) >= len(whole) // 2:
        return rest
    return [column.copy() for column in rest]
