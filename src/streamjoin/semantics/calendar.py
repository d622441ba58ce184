"""What DATE_TRUNC and EXTRACT mean, in Python's integers: the proleptic Gregorian calendar without end, in UTC.

Values are those of exact types: days of a date, ticks of 10**-scale seconds of a timestamp, a time or an interval.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from streamjoin.semantics.temporal import EPOCH_ORDINAL
from streamjoin.semantics.types import SECONDS_PER_DAY, Type

DAYS_OF_400_YEARS = 146_097
# Units of constant length: how many there are in a second, or seconds in one.
PER_SECOND = {"microsecond": 1_000_000, "millisecond": 1_000}
CLOCK = {"second": 1, "minute": 60, "hour": 3_600}
_DAYS: dict[str, Callable[[int], int]] = {
    "day": lambda days: days,
    "week": lambda days: days - (days + 3) % 7,  # 1970-01-01 was a Thursday; weeks begin on Mondays
    "month": lambda days: day_number(*year_and_month(days)),
    "quarter": lambda days: day_number(*_quarter(days)),
    "year": lambda days: day_number(year_and_month(days)[0], 1),
}
_PARTS_OF_DAYS: dict[str, Callable[[int], int]] = {
    "year": lambda days: year_and_month(days)[0],
    "quarter": lambda days: (year_and_month(days)[1] + 2) // 3,
    "month": lambda days: year_and_month(days)[1],
    "week": lambda days: (days + 3 - (days + 3) % 7 - _DAYS["year"](days + 3 - (days + 3) % 7)) // 7 + 1,
    "day": lambda days: days - _DAYS["month"](days) + 1,
    "doy": lambda days: days - _DAYS["year"](days) + 1,
    "dow": lambda days: (days + 4) % 7,
    "isodow": lambda days: (days + 3) % 7 + 1,
}
TRUNCATED = (*PER_SECOND, *CLOCK, *_DAYS)
CLOCK_PARTS = (*PER_SECOND, *CLOCK)
PARTS = (*CLOCK_PARTS, *_PARTS_OF_DAYS, "epoch")


def year_and_month(days: int) -> tuple[int, int]:
    """The year and month of a day, given as days after 1970-01-01.

    >>> year_and_month(0), year_and_month(-1), year_and_month(10**9)
    ((1970, 1), (1969, 12), (2739877, 3))
    """
    periods, rest = divmod(days + EPOCH_ORDINAL - 1, DAYS_OF_400_YEARS)
    found = date.fromordinal(rest + 1)
    return found.year + 400 * periods, found.month


def day_number(year: int, month: int) -> int:
    """The first day of a month, as days after 1970-01-01."""
    periods, rest = divmod(year - 1, 400)
    return date(rest + 1, month, 1).toordinal() - EPOCH_ORDINAL + periods * DAYS_OF_400_YEARS


def _quarter(days: int) -> tuple[int, int]:
    year, month = year_and_month(days)
    return year, month - (month - 1) % 3


def truncated(unit: str, value: int, kind: Type) -> int:
    """The beginning of the unit that `value` lies in."""
    if kind.name == "date":
        return _DAYS[unit](value) if unit in _DAYS else value
    ticks: int = 10**kind.scale
    if unit in _DAYS:
        day = SECONDS_PER_DAY * ticks
        return _DAYS[unit](value // day) * day
    step = CLOCK[unit] * ticks if unit in CLOCK else max(ticks // PER_SECOND[unit], 1)
    return value - value % step


def part(unit: str, value: int, kind: Type) -> int:
    """What EXTRACT gives; an epoch in units of the scale of `kind`."""
    ticks: int = 10**kind.scale
    if unit == "epoch":
        return value * SECONDS_PER_DAY if kind.name == "date" else value
    if unit in _PARTS_OF_DAYS:
        return _PARTS_OF_DAYS[unit](value if kind.name == "date" else value // (SECONDS_PER_DAY * ticks))
    if unit in PER_SECOND:
        return value % (60 * ticks) * PER_SECOND[unit] // ticks
    above = {"second": 60, "minute": 3_600, "hour": SECONDS_PER_DAY}[unit]
    return value % (above * ticks) // (CLOCK[unit] * ticks)
