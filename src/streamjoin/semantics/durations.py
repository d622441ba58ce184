"""Durations: windows, lateness and intervals of a clock, parsed in one place for specs, Spark and job files.

A duration is text such as "1 hour 30 min" or "-5 seconds", a `timedelta`, or an int where the time columns are
integers. It is computed exactly, and becomes whole *ticks*: the unit of the time columns, or 1 for integer columns.
`what` is the field that has the duration: messages begin with it, and errors have it as `field`.
"""

from __future__ import annotations

import datetime
import re
from fractions import Fraction

import numpy as np

from streamjoin.semantics.errors import WindowError, short_repr
from streamjoin.semantics.types import TIME_SCALE

Duration = str | datetime.timedelta | int

MAX_TICKS = 2**63 - 1  # the longest duration; also the most rows of a row window and of `k`
MAX_DURATION_CHARACTERS = 200

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
_MONTHS = re.compile(r"\b(months?|quarters?|years?)\b", re.IGNORECASE)
_EXAMPLE = 'write it like "15 minutes", "1 hour 30 min" or "250 ms"'


def nanoseconds(duration: str | datetime.timedelta, what: str) -> Fraction:
    """The duration in nanoseconds, exactly.

    >>> nanoseconds("1.5 ms", "lateness")
    Fraction(1500000, 1)
    """
    if isinstance(duration, datetime.timedelta):
        micros = (duration.days * 86_400 + duration.seconds) * 10**6 + duration.microseconds
        return Fraction(micros * 1000 + getattr(duration, "nanoseconds", 0))
    if len(duration) > MAX_DURATION_CHARACTERS:
        raise WindowError(
            f"{what} is {short_repr(duration)}, a text of {len(duration)} characters: a duration has at most "
            f"{MAX_DURATION_CHARACTERS}; {_EXAMPLE}",
            field=what,
            given=duration,
            allowed=_EXAMPLE,
        )
    text, negative = duration.strip(), duration.strip().startswith("-")
    total, at = Fraction(0), 1 if negative else 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2].lower() not in _NANOSECONDS:
            raise _no_duration(duration, what)
        total += Fraction(part[1]) * _NANOSECONDS[part[2].lower()]
        at = part.end()
    if at <= (1 if negative else 0):
        raise _no_duration(duration, what)
    return -total if negative else total


def _no_duration(duration: str, what: str) -> WindowError:
    months = "; months and years have no constant length, so write days" if _MONTHS.search(duration) else ""
    message = f"{what} is {short_repr(duration)}, which is not a duration: {_EXAMPLE}{months}"
    return WindowError(message, field=what, given=duration, allowed=_EXAMPLE)


def ticks(duration: Duration, unit: str | None, what: str) -> int:
    """The duration in whole ticks of a time column: its `unit`, or None for integer columns.

    Time differences are whole ticks, so rounding down changes no comparison.

    >>> ticks("1.9999 s", "ms", "window")
    1999
    """
    count = exact_ticks(duration, unit, what).__floor__()
    if count > MAX_TICKS:
        raise overflow(duration, unit, what)
    return count


def exact_ticks(duration: Duration, unit: str | None, what: str) -> Fraction:
    """The duration in ticks, not rounded and of any sign.

    >>> exact_ticks("-1.5 ms", "ms", "lower")
    Fraction(-3, 2)
    """
    if isinstance(duration, (int, np.integer)):
        if unit is not None:
            raise WindowError(
                f"{what} is the plain number {short_repr(duration)}, but the time columns are timestamps[{unit}]: "
                f"{_EXAMPLE}",
                field=what,
                given=duration,
                allowed=_EXAMPLE,
            )
        return Fraction(int(duration))
    if unit is None:
        raise WindowError(
            f"{what} is {short_repr(duration)}, but the time columns are plain integers: give an int, or convert them "
            "to timestamps",
            field=what,
            given=duration,
            allowed="an int",
        )
    return nanoseconds(duration, what) * Fraction(10 ** TIME_SCALE[unit], 10**9)


def duration_text(count: int, unit: str | None) -> str:
    """A number of ticks as a duration, for people; `unit` is that of the time columns.

    >>> duration_text(5_400_000, "ms"), duration_text(-1_500, "ms"), duration_text(1_500, "us"), duration_text(7, None)
    ('1 hour 30 minutes', '-1.5 seconds', '1.5 ms', '7 ticks')
    """
    if unit is None:
        return f"{count:,} tick{'s' * (abs(count) != 1)}"
    rest, parts = abs(count) * 10 ** (9 - TIME_SCALE[unit]), []
    for name in ("day", "hour", "minute"):
        number, rest = divmod(rest, _NANOSECONDS[name])
        if number:
            parts.append(f"{number:,} {name}{'s' * (number != 1)}")
    if rest or not parts:
        small = not parts and rest < 10**9
        name = (
            "second"
            if not small
            else next((u for u in ("ms", "us", "ns") if rest >= _NANOSECONDS[u]), "second")
        )
        whole, fraction = divmod(rest, _NANOSECONDS[name])
        digits = f"{fraction:0{len(str(_NANOSECONDS[name])) - 1}}".rstrip("0") if fraction else ""
        number_text = f"{whole}.{digits}" if digits else str(whole)
        parts.append(f"{number_text} {name}{'s' * (name == 'second' and number_text != '1')}")
    return "-" * (count < 0) + " ".join(parts)


def overflow(duration: Duration, unit: str | None, what: str) -> WindowError:
    """The error about a duration of too many ticks for 64 bits."""
    return WindowError(
        f"{what} is {short_repr(duration)}, which overflows 64-bit time[{unit or 'integer'}]",
        field=what,
        given=duration,
        allowed="durations of up to 2**63 ticks",
    )


def duration_length(
    duration: object, what: str, allowed: str = "an int for integer time columns"
) -> int | Fraction:
    """The number itself, or nanoseconds, of any sign; raises a `WindowError` if this is not a duration. `allowed` ends
    the list of allowed values."""
    if isinstance(duration, bool) or not isinstance(duration, (int, np.integer, str, datetime.timedelta)):
        allowed = f"a string, a timedelta, or {allowed}"
        raise WindowError(
            f"{what} is {short_repr(duration)}: give {allowed}", field=what, given=duration, allowed=allowed
        )
    return int(duration) if isinstance(duration, (int, np.integer)) else nanoseconds(duration, what)


def check_duration(duration: object, what: str, allowed: str = "an int for integer time columns") -> None:
    """Raise a `WindowError` unless this is a duration and not negative. `allowed` ends the list of allowed values."""
    if duration_length(duration, what, allowed) < 0:
        message = f"{what} is {short_repr(duration)}: it cannot be negative, zero is the smallest"
        raise WindowError(message, field=what, given=duration, allowed="zero or more")


def lateness_ticks(lateness: object, unit: str | None) -> int:
    """How far an event time may fall, in whole ticks of the time columns; 0 needs no unit.

    >>> lateness_ticks("250 ms", "us"), lateness_ticks(0, "us"), lateness_ticks(7, None)
    (250000, 0, 7)
    """
    check_duration(lateness, "lateness", "an int for integer time columns, or None")
    assert isinstance(lateness, (int, np.integer, str, datetime.timedelta))
    if isinstance(lateness, (int, np.integer)) and lateness == 0:
        return 0
    return ticks(lateness, unit, "lateness")  # type: ignore[arg-type]  # an np.integer is an int here
