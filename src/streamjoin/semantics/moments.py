"""DATE_TRUNC and EXTRACT as typed expressions, and in terms of simpler operations.

A tree from SQL has one operation a unit, `trunc_hour` or `extract_year`. Engines and the analysis take them apart with
`expanded`: most are divisions by a constant, so `DATE_TRUNC('minute', left.ts) = DATE_TRUNC('minute', right.ts)` is an
equality of two integers. `calendar` defines what the units mean.
Every function raises a `PredicateError` without a place; the caller knows the place.
"""

from __future__ import annotations

from streamjoin.semantics import calendar
from streamjoin.semantics.conversion import described, exact_call
from streamjoin.semantics.errors import PredicateError, did_you_mean
from streamjoin.semantics.expressions import Call, Expr, Literal
from streamjoin.semantics.types import NULL, SECONDS_PER_DAY, STRING, Type, integer

EXPANDED = frozenset(
    [f"trunc_{unit}" for unit in calendar.TRUNCATED] + [f"extract_{unit}" for unit in calendar.PARTS]
)
LINEAR = frozenset([*(f"trunc_{unit}" for unit in calendar.TRUNCATED), "extract_epoch"])
MOST_DAYS = 2**53  # days before or after 1970 that have a calendar

# The least and greatest value of parts that repeat.
_CYCLES = {
    "quarter": (1, 4), "month": (1, 12), "week": (1, 53), "day": (1, 31), "doy": (1, 366), "dow": (0, 6),
    "isodow": (1, 7), "hour": (0, 23), "minute": (0, 59), "second": (0, 59), "millisecond": (0, 59_999),
    "microsecond": (0, 59_999_999),
}  # fmt: skip


def date_trunc(unit: Expr, a: Expr) -> Expr:
    """The beginning of a unit; a date stays a date, a timestamp keeps its unit and time zone."""
    if not isinstance(unit, Literal) or unit.type != STRING:
        raise PredicateError(f"DATE_TRUNC needs its unit as a literal, such as 'hour', but {described(unit)}")
    name = _known("DATE_TRUNC", str(unit.value), calendar.TRUNCATED)
    if a.type == NULL:
        return a
    _require("DATE_TRUNC", a, ("date", "timestamp"))
    kind = a.type
    lo, hi = (calendar.truncated(name, value, kind) for value in (kind.lo, kind.hi))
    if calendar.truncated(name, 1, kind) == 1 and name not in ("week", "month", "quarter", "year"):
        return a  # a unit that is not longer than the type's own
    return exact_call(f"trunc_{name}", (a,), kind.name, kind.scale, (lo, hi), kind.tz)


def extract(unit: str, a: Expr) -> Expr:
    """A part of a date, a timestamp or a time; the epoch also of an interval."""
    name = _known("EXTRACT", unit, calendar.PARTS)
    if a.type == NULL:
        return a
    _require(f"EXTRACT({name.upper()})", a, _having(name))
    kind = a.type
    lo, hi = (calendar.part(name, value, kind) for value in (kind.lo, kind.hi))
    scale = kind.scale if name == "epoch" and kind.name != "date" else 0
    if kind.lo != kind.hi and name in _CYCLES:
        lo, hi = _CYCLES[name]
    return exact_call(f"extract_{name}", (a,), "decimal" if scale else "int", scale, (lo, hi))


def _having(part: str) -> tuple[str, ...]:
    """The types that have a part."""
    if part == "epoch":
        return ("date", "timestamp", "time", "interval")
    return ("timestamp", "time") if part in calendar.CLOCK_PARTS else ("date", "timestamp")


def _known(function: str, unit: str, units: tuple[str, ...]) -> str:
    name = unit.strip().lower()
    name = name[:-1] if name[:-1] in units else name
    if name not in units:
        hint = did_you_mean(name, units)
        raise PredicateError(f"{function} has no unit {unit!r}{hint}; allowed: {', '.join(units)}")
    return name


def _require(what: str, a: Expr, names: tuple[str, ...]) -> None:
    if a.type.name not in names:
        raise PredicateError(f"{what} needs a {', '.join(names[:-1])} or {names[-1]}, but {described(a)}")
    if a.type.name in ("date", "timestamp"):
        days = SECONDS_PER_DAY * 10**a.type.scale if a.type.name == "timestamp" else 1
        if max(-a.type.lo, a.type.hi) // days > MOST_DAYS:
            raise PredicateError(f"{what} needs days within 2^53 of 1970; {described(a)} and may be any day")


# ---- in terms of simpler operations


def expanded(call: Call) -> Expr:
    """A call of `EXPANDED` as operations that engines have. Its type can have another label or a wider range."""
    operation, unit = call.op.split("_")
    (a,) = call.args
    if operation == "extract":
        return _part(unit, a, call.type)
    if unit in calendar.CLOCK_PARTS:
        step = 10**a.type.scale * calendar.CLOCK.get(unit, 1) // calendar.PER_SECOND.get(unit, 1)
        return _scaled_ticks(_over(a, step), step, call.type)
    begin = _beginning(unit, _days(a))
    return (
        begin
        if a.type.name == "date"
        else _scaled_ticks(begin, SECONDS_PER_DAY * 10**a.type.scale, call.type)
    )


def _beginning(unit: str, days: Expr) -> Expr:
    """The first day of the unit that a day lies in."""
    if unit == "day":
        return days
    if unit == "week":
        return _plus(_times(_over(_plus(days, 3), 7), 7), -3)
    months = {"month": 1, "quarter": 3, "year": 12}[unit]
    return _month_start(_times(_over(_month_number(days), months), months))


def _part(unit: str, a: Expr, kind: Type) -> Expr:
    second = 10**a.type.scale
    if unit == "epoch":
        return _scaled_ticks(a, SECONDS_PER_DAY if a.type.name == "date" else 1, kind)
    if unit in calendar.PER_SECOND:
        rest, finer = _rest(a, 60 * second), calendar.PER_SECOND[unit]
        return _over(rest, second // finer) if second > finer else _times(rest, finer // second)
    if unit in calendar.CLOCK:
        above = {"second": 60, "minute": 3_600, "hour": SECONDS_PER_DAY}[unit]
        return _over(_rest(a, above * second), calendar.CLOCK[unit] * second)
    return _part_of_days(unit, _days(a))


def _part_of_days(unit: str, days: Expr) -> Expr:
    match unit:
        case "dow":
            return _rest(_plus(days, 4), 7)
        case "isodow":
            return _plus(_rest(_plus(days, 3), 7), 1)
        case "year":
            return _plus(_over(_month_number(days), 12), 1970)
        case "month":
            return _plus(_rest(_month_number(days), 12), 1)
        case "quarter":
            return _plus(_over(_rest(_month_number(days), 12), 3), 1)
        case "week":  # that of the Thursday: the first week of a year has its first Thursday
            thursday = _times(_over(_plus(days, 3), 7), 7)
            return _plus(_over(_since(_beginning("year", thursday), thursday), 7), 1)
        case _:
            return _plus(_since(_beginning({"day": "month", "doy": "year"}[unit], days), days), 1)


def _days(a: Expr) -> Expr:
    return a if a.type.name == "date" else _over(a, SECONDS_PER_DAY * 10**a.type.scale)


def _exact(value: int, scale: int = 0) -> Literal:
    return Literal(value, Type("interval" if scale else "int", scale, value, value))


def _scaled_ticks(a: Expr, step: int, kind: Type) -> Expr:
    return Call("mul", (a, _exact(step, kind.scale - a.type.scale)), kind)


def _plus(a: Expr, number: int) -> Expr:
    return Call("add", (a, _exact(number)), integer(a.type.lo + number, a.type.hi + number))


def _times(a: Expr, number: int) -> Expr:
    return Call("mul", (a, _exact(number)), integer(a.type.lo * number, a.type.hi * number))


def _over(a: Expr, number: int) -> Expr:
    return Call("floordiv", (a, _exact(number)), integer(a.type.lo // number, a.type.hi // number))


def _rest(a: Expr, number: int) -> Expr:
    return Call("floormod", (a, _exact(number)), integer(0, number - 1))


def _since(begin: Expr, days: Expr) -> Expr:
    """Days since the beginning of their month or year."""
    return Call("sub", (days, begin), integer(0, 365))


def _month_number(days: Expr) -> Expr:
    ends = (calendar.year_and_month(day) for day in (days.type.lo, days.type.hi))
    lo, hi = ((year - 1970) * 12 + month - 1 for year, month in ends)
    return Call("month_number", (days,), integer(lo, hi))


def _month_start(months: Expr) -> Expr:
    ends = (divmod(month, 12) for month in (months.type.lo, months.type.hi))
    lo, hi = (calendar.day_number(year + 1970, month + 1) for year, month in ends)
    return Call("month_start", (months,), integer(lo, hi))
