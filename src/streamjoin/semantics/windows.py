"""Windows and durations: how long, or for how many rows, a tuple waits for partners."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from streamjoin.semantics.errors import WindowError
from streamjoin.semantics.types import TIME_SCALE

INT64_MAX = 2**63 - 1

Duration = str | datetime.timedelta | int

_NANOSECONDS = {
    "ns": 1, "nanosecond": 1, "nanoseconds": 1,
    "us": 10**3, "microsecond": 10**3, "microseconds": 10**3,
    "ms": 10**6, "millisecond": 10**6, "milliseconds": 10**6,
    "s": 10**9, "sec": 10**9, "secs": 10**9, "second": 10**9, "seconds": 10**9,
    "m": 60 * 10**9, "min": 60 * 10**9, "mins": 60 * 10**9, "minute": 60 * 10**9, "minutes": 60 * 10**9,
    "h": 3600 * 10**9, "hour": 3600 * 10**9, "hours": 3600 * 10**9,
    "d": 86_400 * 10**9, "day": 86_400 * 10**9, "days": 86_400 * 10**9,
    "w": 604_800 * 10**9, "week": 604_800 * 10**9, "weeks": 604_800 * 10**9,
}  # fmt: skip
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]+)\s*,?")
_EXAMPLE = 'write it like "15 minutes", "1 hour 30 min" or "250 ms"'


def nanoseconds(duration: str | datetime.timedelta, what: str) -> Fraction:
    """A duration in nanoseconds, exactly. `what` names it in error messages."""
    if isinstance(duration, datetime.timedelta):
        micros = (duration.days * 86_400 + duration.seconds) * 10**6 + duration.microseconds
        return Fraction(micros * 1000 + getattr(duration, "nanoseconds", 0))
    text, negative = duration.strip(), duration.strip().startswith("-")
    total, at = Fraction(0), 1 if negative else 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2].lower() not in _NANOSECONDS:
            raise WindowError(f"{what} is {duration!r}, which is not a duration: {_EXAMPLE}")
        total += Fraction(part[1]) * _NANOSECONDS[part[2].lower()]
        at = part.end()
    if at <= (1 if negative else 0):
        raise WindowError(f"{what} is {duration!r}, which is not a duration: {_EXAMPLE}")
    return -total if negative else total


def ticks(duration: Duration, unit: str | None, what: str) -> int:
    """The duration in whole ticks of a time column: its `unit`, or None for integer columns.

    Time differences are whole ticks, so rounding down changes no comparison.
    """
    if isinstance(duration, (int, np.integer)):
        if unit is not None:
            raise WindowError(
                f"{what} is the plain number {duration}, but the time columns are timestamps[{unit}]: {_EXAMPLE}"
            )
        count = int(duration)
    else:
        if unit is None:
            raise WindowError(f"{what} is {duration!r}, but the time columns are plain integers: give an int")
        count = nanoseconds(duration, what) * 10 ** TIME_SCALE[unit] // 10**9
    if count > INT64_MAX:
        raise WindowError(f"{what} is {duration!r}, which overflows 64-bit time[{unit or 'integer'}]")
    return count


def _check_duration(duration: Duration, what: str) -> None:
    if isinstance(duration, bool) or not isinstance(duration, (int, np.integer, str, datetime.timedelta)):
        raise WindowError(
            f"{what} is {duration!r}: give a string, a timedelta, or an int for integer time columns"
        )
    length = duration if isinstance(duration, (int, np.integer)) else nanoseconds(duration, what)
    if length < 0:
        raise WindowError(f"{what} is {duration!r}: a window can not be negative, zero is the smallest")


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
            _check_duration(getattr(self, side), f"TimeWindow {side}")


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
            rows = getattr(self, side)
            if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)):
                raise WindowError(f"RowWindow {side} is {rows!r}: give a whole number of rows")
            if rows < 0:
                raise WindowError(
                    f"RowWindow {side} is {rows}: a window can not be negative, zero is the smallest"
                )
            if rows > INT64_MAX:
                raise WindowError(f"RowWindow {side} is {rows}, which overflows 64 bits")
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
    return SideWindow(False, 0 if size == 0 else ticks(size, unit, f"TimeWindow {side}"))
