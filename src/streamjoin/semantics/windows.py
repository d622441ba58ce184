"""Windows: how long, or for how many rows, a tuple waits for partners.

Whatever window a user gives, the engines get it as one `SideWindow` a side. Windows of time can also be read from
their `Delta`: two closed bounds, in ticks, of `r.ts - l.ts`.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Literal, get_args

import numpy as np

from streamjoin.semantics.durations import (
    MAX_TICKS,
    Duration,
    check_duration,
    duration_length,
    exact_ticks,
    overflow,
    ticks,
)
from streamjoin.semantics.errors import WindowError, short_repr

Closed = Literal["both", "left", "right", "neither"]
CLOSED: tuple[Closed, ...] = get_args(Closed)


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
class Interval:
    """(l, r) is a candidate iff lower <= r.ts - l.ts <= upper. Either bound may be negative.

    `closed` names the ends that belong to the interval: "left" is the lower one, "right" the upper one.
    `TimeWindow(left, right)` is `Interval(-right, left)`.

    >>> Interval("-5 seconds", "-1 second", closed="left")
    Interval(lower='-5 seconds', upper='-1 second', closed='left')
    """

    lower: Duration
    upper: Duration
    closed: Closed = "both"

    def __post_init__(self) -> None:
        lower, upper = (duration_length(getattr(self, end), f"window.{end}") for end in ("lower", "upper"))
        if self.closed not in CLOSED:
            message = f"window.closed is {short_repr(self.closed)}; allowed: {', '.join(CLOSED)}"
            raise WindowError(message, field="window.closed", given=self.closed, allowed=CLOSED)
        numbers = [isinstance(length, int) for length in (lower, upper) if length]
        if all(numbers) or not any(numbers):  # otherwise the time columns can fit only one of the bounds
            if lower > upper:
                raise self._empty("the lower bound is above the upper one: swap them")
            if lower == upper and self.closed != "both":
                raise self._empty(
                    f"both bounds are the same and closed is {self.closed!r}: write closed='both'"
                )

    def _empty(self, why: str) -> WindowError:
        bounds = f"lower={short_repr(self.lower)}, upper={short_repr(self.upper)}, closed={self.closed!r}"
        return WindowError(
            f"window is Interval({bounds}), which is empty: {why}",
            field="window",
            given=self,
            allowed="bounds that include at least one difference of times",
        )

    def delta(self, unit: str | None) -> Delta:
        """The interval in whole ticks of the time columns, both ends included."""
        lower, upper = self._exact("lower", unit), self._exact("upper", unit)
        lo = ceil(lower) if self.closed in ("both", "left") else floor(lower) + 1
        hi = floor(upper) if self.closed in ("both", "right") else ceil(upper) - 1
        if lo > hi:
            tick = f"1 {unit}" if unit else "1"
            raise self._empty(f"times differ by whole ticks of {tick}, and none lies in it: make it wider")
        return Delta(lo, hi)

    def _exact(self, end: str, unit: str | None) -> Fraction:
        bound: Duration = getattr(self, end)
        exact = Fraction(0) if bound == 0 else exact_ticks(bound, unit, f"window.{end}")
        if not -MAX_TICKS <= exact <= MAX_TICKS:
            raise overflow(bound, unit, f"window.{end}")
        return exact


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
            elif rows > MAX_TICKS:
                told = ", which overflows 64 bits"
            if told is not None:
                message = f"{field} is {short_repr(rows)}{told}"
                raise WindowError(message, field=field, given=rows, allowed=allowed)
            object.__setattr__(self, side, int(rows))


@dataclass(frozen=True)
class SideWindow:
    """One side's window as the engine uses it: `size` ticks (`rows=False`) or rows.

    In ticks, a tuple at `ts` meets tuples of the other side up to `ts + size`, both sides' windows holding together:
    -right.size <= r.ts - l.ts <= left.size. Intervals that do not contain zero have one negative size: all partners
    are at least that much older.
    """

    rows: bool
    size: int

    def __str__(self) -> str:
        return f"{self.size} {'rows' if self.rows else 'ticks'}"


@dataclass(frozen=True)
class Delta:
    """The differences of time that may be joined: lo <= r.ts - l.ts <= hi, in ticks, ends included."""

    lo: int
    hi: int

    @property
    def contains_zero(self) -> bool:
        return self.lo <= 0 <= self.hi


Window = TimeWindow | RowWindow | Interval
Windows = Window | tuple[Window, Window]  # one for both sides, or left's and right's
WindowForm = Window | Duration | tuple[Window | Duration, Window | Duration]  # as a user may write them

_FORMS = (
    'a duration such as "15 minutes", a timedelta, an int for integer time columns, a TimeWindow, an Interval, a '
    "RowWindow, or a tuple (left's, right's) of durations, TimeWindow and RowWindow"
)


def read_window(given: object, unit: str | None) -> Windows:
    """The window that a user means, for time columns of `unit`. A duration stands for a `TimeWindow`.

    >>> read_window("15 minutes", "ms")
    TimeWindow(left='15 minutes', right='15 minutes')
    >>> read_window(("10 minutes", RowWindow(3)), "ms")
    (TimeWindow(left='10 minutes', right='10 minutes'), RowWindow(left=3, right=3))
    """
    if isinstance(given, (TimeWindow, RowWindow, Interval)):
        return given
    if _is_duration(given):
        check_duration(given, "window")
        if given != 0:
            ticks(given, unit, "window")  # type: ignore[arg-type]
        return TimeWindow(given)  # type: ignore[arg-type]
    if isinstance(given, tuple) and len(given) == 2 and all(map(_is_of_a_pair, given)):
        left, right = (
            _one_of_a_pair(each, side) for side, each in zip(("left", "right"), given, strict=True)
        )
        return left, right
    message = f"window is {short_repr(given)}: give {_FORMS}"
    raise WindowError(message, field="window", given=given, allowed=_FORMS)


def _is_duration(given: object) -> bool:
    return isinstance(given, (str, datetime.timedelta, int, np.integer)) and not isinstance(given, bool)


def _is_of_a_pair(given: object) -> bool:
    """Whether one side alone can have this window; an `Interval` is always a window for both."""
    return isinstance(given, (TimeWindow, RowWindow)) or _is_duration(given)


def _one_of_a_pair(given: object, side: str) -> Window:
    if isinstance(given, (TimeWindow, RowWindow)):
        return given
    check_duration(given, f"window.{side}")
    return TimeWindow(given)  # type: ignore[arg-type]


def side_window(window: Windows, side: str, unit: str | None) -> SideWindow:
    """The part of `window` that says how long tuples of `side` wait; a zero needs no unit."""
    if isinstance(window, tuple):
        window = window[0 if side == "left" else 1]
    if isinstance(window, Interval):
        delta = window.delta(unit)
        return SideWindow(False, delta.hi if side == "left" else -delta.lo)
    size = getattr(window, side)
    if isinstance(window, RowWindow):
        return SideWindow(True, size)
    return SideWindow(False, 0 if size == 0 else ticks(size, unit, f"window.{side}"))
