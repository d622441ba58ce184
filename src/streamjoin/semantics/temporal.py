"""Dates, timestamps, times of day and intervals as text: proleptic Gregorian calendar, days of 86,400 seconds."""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction

from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.expressions import Literal
from streamjoin.semantics.types import SECONDS_PER_DAY, TIME_SCALE, Type

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
DATE_FORM = "'YYYY-MM-DD'"
TIMESTAMP_FORM = "'YYYY-MM-DD[ HH:MM[:SS[.fraction]]][+HH:MM]'"
TIME_FORM = "'HH:MM[:SS[.fraction]]'"
INTERVAL_UNITS = "nanosecond, microsecond, millisecond, second, minute, hour, day, week"

_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_TIMESTAMP = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?)?"
    r"\s*(Z|UTC|[+-]\d{2}(?::?\d{2})?)?",
    re.IGNORECASE,
)
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?")
_INTERVAL_PART = re.compile(r"\s*([+-]?\s*\d+(?:\.\d*)?|[+-]?\s*\.\d+)\s*([a-zµ]+)\s*", re.IGNORECASE)
_CLOCK = re.compile(r"\s*([+-]?)(\d+):(\d{2})(?::(\d{2}(?:\.\d+)?))?\s*")
_SECONDS = {
    Fraction(1, 10**9): ("nanosecond", "ns"),
    Fraction(1, 10**6): ("microsecond", "us", "µs", "usec"),
    Fraction(1, 1000): ("millisecond", "ms", "msec"),
    Fraction(1): ("second", "s", "sec"),
    Fraction(60): ("minute", "m", "min"),
    Fraction(3600): ("hour", "h", "hr"),
    Fraction(SECONDS_PER_DAY): ("day", "d"),
    Fraction(7 * SECONDS_PER_DAY): ("week", "w"),
}
_UNITS = {name + s: seconds for seconds, names in _SECONDS.items() for name in names for s in ("", "s")}
_VARYING = re.compile(
    r"(mon|month|quarter|year|yr|y|decade|century|centurie|millenni(um|a))s?", re.IGNORECASE
)


def date_literal(text: str) -> Literal:
    """A DATE literal; raise `PredicateError` if `text` is not a day of the calendar."""
    match = _DATE.fullmatch(text.strip())
    if not match:
        raise PredicateError(f"{text!r} is not a date; write {DATE_FORM}")
    try:
        days = date(*map(int, match.groups())).toordinal() - EPOCH_ORDINAL
    except ValueError as error:
        raise PredicateError(f"{text!r} is not a date: {error}") from None
    return Literal(days, Type("date", 0, days, days))


def timestamp_literal(text: str) -> Literal:
    """A TIMESTAMP literal of the coarsest unit that holds it; with a time zone iff the text has an offset."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if not match:
        raise PredicateError(f"{text!r} is not a timestamp; write {TIMESTAMP_FORM}")
    day, hour, minute, second, fraction, zone = match.groups()
    clock = [int(part or 0) for part in (hour, minute, second)]
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        raise PredicateError(f"{text!r} is not a timestamp: the time of day goes from 00:00:00 to 23:59:59")
    seconds = int(date_literal(day).value or 0) * SECONDS_PER_DAY + clock[0] * 3600 + clock[1] * 60 + clock[2]
    exact = seconds - _offset(zone) + Fraction(int(fraction or 0), 10 ** len(fraction or ""))
    return _scaled_literal(exact, "timestamp", text, tz=zone is not None)


def time_literal(text: str) -> Literal:
    """A TIME literal, a time of day, of the coarsest unit that holds it."""
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise PredicateError(f"{text!r} is not a time of day; write {TIME_FORM}")
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise PredicateError(f"{text!r} is not a time of day: it goes from 00:00:00 to 23:59:59")
    fraction = Fraction(int(match[4] or 0), 10 ** len(match[4] or ""))
    return _scaled_literal(hour * 3600 + minute * 60 + second + fraction, "time", text)


def interval_literal(text: str) -> Literal:
    """An INTERVAL of constant length, as '90 minutes', '1 day 2 hours' or '01:30:00'."""
    clock = _CLOCK.fullmatch(text)
    if clock:
        sign, hours, minutes, seconds = clock.groups()
        total = int(hours) * 3600 + int(minutes) * 60 + Fraction(seconds or 0)
        return _scaled_literal(-total if sign == "-" else total, "interval", text)
    total, end = Fraction(0), 0
    while end < len(text):
        part = _INTERVAL_PART.match(text, end)
        if not part:
            raise PredicateError(f"{text!r} is not an interval; write a number and one of {INTERVAL_UNITS}")
        total += Fraction(part[1].replace(" ", "")) * _unit(part[2])
        end = part.end()
    return _scaled_literal(total, "interval", text)


def date_text(days: int) -> str | None:
    """`YYYY-MM-DD`, or None for a day outside the years 1 to 9999."""
    ordinal = days + EPOCH_ORDINAL
    return date.fromordinal(ordinal).isoformat() if 1 <= ordinal <= date.max.toordinal() else None


def timestamp_text(value: int, scale: int, tz: bool) -> str | None:
    """`YYYY-MM-DD HH:MM:SS[.fraction][+00:00]`, or None outside the years 1 to 9999."""
    days = value // (SECONDS_PER_DAY * 10**scale)
    day = date_text(days)
    if day is None:
        return None
    return f"{day} {clock_text(value - days * SECONDS_PER_DAY * 10**scale, scale)}{'+00:00' if tz else ''}"


def clock_text(value: int, scale: int) -> str:
    """`HH:MM:SS[.fraction]`."""
    seconds, fraction = divmod(value, 10**scale)
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{time}.{fraction:0{scale}}" if scale else time


def time_text(ticks: int, unit: str | None, tz: bool = False) -> str:
    """A time of a time column, for messages: as `timestamp_text` where the column has a unit, without zeros at the end
    of the fraction.

    >>> time_text(1_500, "ms"), time_text(1_500, None)
    ('1970-01-01 00:00:01.5', '1500')
    """
    text = None if unit is None else timestamp_text(ticks, TIME_SCALE[unit], False)
    if text is None:
        return str(ticks) if unit is None else f"{ticks} {unit} after 1970-01-01"
    whole, point, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}{point if fraction else ''}{fraction}{'+00:00' if tz else ''}"


def _unit(name: str) -> Fraction:
    if _VARYING.fullmatch(name):
        raise PredicateError(
            f"an interval in {name.lower()} has no constant length (months and years differ in days); "
            f"allowed units: {INTERVAL_UNITS}"
        )
    if name.lower() not in _UNITS:
        raise PredicateError(f"unknown interval unit {name!r}; allowed units: {INTERVAL_UNITS}")
    return _UNITS[name.lower()]


def _offset(zone: str | None) -> int:
    if zone is None or zone.upper() in ("Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise PredicateError(f"{zone!r} is not a time zone offset; allowed: -23:59 to +23:59")
    seconds = hours * 3600 + minutes * 60
    return -seconds if zone[0] == "-" else seconds


def _scaled_literal(exact: Fraction, name: str, text: str, tz: bool = False) -> Literal:
    for scale in TIME_SCALE.values():
        if (exact * 10**scale).denominator == 1:
            value = int(exact * 10**scale)
            return Literal(value, Type(name, scale, value, value, tz))
    raise PredicateError(f"{text!r} is finer than a nanosecond, the finest unit allowed")
