"""The last minutes of a join, and its rates: differences of the totals of two snapshots.

A snapshot counts when its figures are news: those of a Spark query change with a micro-batch, and so does its rate.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from streamjoin.page.model import Snapshot

POINTS = 180
OVER = 5.0  # seconds that a rate is taken over, at least: one push is no rate


@dataclass(frozen=True)
class Point:
    """The totals at a moment."""

    at: float
    rows: int
    matches: int
    comparisons: dict[str, int]  # by worker


class History:
    """What was counted at the last moments, the oldest first."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS)

    def add(self, snapshot: Snapshot) -> None:
        """Note the totals of a snapshot, if it is newer than the last one."""
        if self._points and snapshot.at <= self._points[-1].at:
            return
        comparisons = {worker.name: worker.comparisons for worker in snapshot.workers}
        self._points.append(Point(snapshot.at, snapshot.taken, snapshot.matches, comparisons))

    def rates(self) -> dict[str, float]:
        """Rows, matches and comparisons a second, of late; zero before anything is known."""
        since, now = self._span()
        seconds = now.at - since.at if now is not since else 1.0
        compared = sum(now.comparisons.values()) - sum(since.comparisons.values())
        return {
            "rows": (now.rows - since.rows) / seconds,
            "matches": (now.matches - since.matches) / seconds,
            "comparisons": compared / seconds,
        }

    def loads(self) -> dict[str, float]:
        """The comparisons of each worker of late, as a share of those of the busiest; all zero if there were none."""
        since, now = self._span()
        made = {name: count - since.comparisons.get(name, 0) for name, count in now.comparisons.items()}
        most = max(made.values(), default=0)
        return {name: count / most if most else 0.0 for name, count in made.items()}

    def _span(self) -> tuple[Point, Point]:
        """The points that rates are of: the last one, and the newest that is OVER before it."""
        if not self._points:
            nothing = Point(0.0, 0, 0, {})
            return nothing, nothing
        now = self._points[-1]
        earlier = (point for point in reversed(self._points) if point.at <= now.at - OVER)
        return next(earlier, self._points[0]), now

    def lines(self) -> dict[str, list[Any]]:
        """For charts: moments, and rows and matches a second since the moment before."""
        points = list(self._points)
        pairs = list(pairwise(points))
        return {
            "at": [now.at for _, now in pairs],
            "rows": [(now.rows - before.rows) / (now.at - before.at) for before, now in pairs],
            "matches": [(now.matches - before.matches) / (now.at - before.at) for before, now in pairs],
        }
