"""Windows: how long, or for how many rows, a tuple waits for partners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamjoin.semantics.durations import INT64_MAX, Duration, check_duration, ticks
from streamjoin.semantics.errors import WindowError, short_repr


@dataclass(frozen=True)
class TimeWindow:
    """A left tuple waits `left` for right tuples, a right tuple `right` for left ones, ends included.

    One value means both: (l, r) is a candidate iff -right <= r.ts - l.ts <= left.

    >>> TimeWindow("10 minutes", right=0)
    TimeWindow(left='10 minutes', right=0)
    """

    left: Duration
    right: Duration | None = None

    def __post_init__(self) -> None:
        if self.right is None:
            object.__setattr__(self, "right", self.left)
        for side in ("left", "right"):
            check_duration(getattr(self, side), f"window.{side}")


@dataclass(frozen=True)
class RowWindow:
    """A right tuple meets the last `left` left tuples before it in the total order, and mirrored.

    One value means both.
    """

    left: int
    right: int | None = None

    def __post_init__(self) -> None:
        if self.right is None:
            object.__setattr__(self, "right", self.left)
        for side in ("left", "right"):
            rows, field, allowed = getattr(self, side), f"window.{side}", "a whole number of rows"
            told = None
            if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)):
                told = f": give {allowed}"
            elif rows < 0:
                told = ": it cannot be negative, zero is the smallest"
            elif rows > INT64_MAX:
                told = ", which overflows 64 bits"
            if told is not None:
                message = f"{field} is {short_repr(rows)}{told}"
                raise WindowError(message, field=field, given=rows, allowed=allowed)
            object.__setattr__(self, side, int(rows))


@dataclass(frozen=True)
class SideWindow:
    """One side's window in the engine's terms: `size` ticks (`rows=False`) or rows."""

    rows: bool
    size: int

    def __str__(self) -> str:
        return f"{self.size} {'rows' if self.rows else 'ticks'}"


Window = TimeWindow | RowWindow


def side_window(window: Window | tuple[Window, Window], side: str, unit: str | None) -> SideWindow:
    """The part of `window` that says how long tuples of `side` wait; a zero needs no unit."""
    if isinstance(window, tuple):
        window = window[0 if side == "left" else 1]
    size = getattr(window, side)
    if isinstance(window, RowWindow):
        return SideWindow(True, size)
    return SideWindow(False, 0 if size == 0 else ticks(size, unit, f"window.{side}"))
