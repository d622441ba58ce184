"""`[join]`: what is joined, over which windows, and how it is spread."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

from streamjoin.plan.options import Auto, IndexName, Partitioning, StreamOrder
from streamjoin.semantics.durations import check_duration
from streamjoin.semantics.errors import SpecError
from streamjoin.semantics.keep import How, check_how
from streamjoin.semantics.spec import SIDES
from streamjoin.semantics.windows import RowWindow, TimeWindow, Window
from streamjoin.spark.job.shown import MAX_SHOWN
from streamjoin.spark.job.tables import Table, Text, TextLines, check_text, raise_all, wrong_kind

MAX_JOB_WORKERS = 1 << 16


def _read_lateness(value: Any) -> str | int:
    """Text or an integer, not negative. Whether it fits the time columns is checked later, with the columns."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise wrong_kind()
    if isinstance(value, str):
        check_text(value)
    check_duration(value, "lateness")
    return value


def _check_how(value: object) -> object:
    """Answer words of other systems with the right one, unless that is `keep`, which is not a key of job files."""
    if isinstance(value, str) and len(value) <= MAX_SHOWN:
        try:
            check_how(value)
        except SpecError as error:
            if "keep=" not in str(error):
                raise
    return value


def _read_window(value: Any) -> Window | tuple[Window, Window]:
    """`"15 minutes"`, `{ rows = 9 }`, or `{ left = ..., right = ... }` of these."""
    if not isinstance(value, dict) or set(value) != set(SIDES):
        return _one_window(value)
    found: dict[str, Window] = {}
    problems = []
    for side in SIDES:
        try:
            found[side] = _one_window(value[side])
        except (SpecError, PydanticCustomError) as error:
            problems.append(((side,), error))
    raise_all(problems)
    return found["left"], found["right"]


def _one_window(value: Any) -> Window:
    if isinstance(value, dict) and set(value) == {"rows"}:
        return RowWindow(value["rows"])
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise wrong_kind()
    return TimeWindow(check_text(value) if isinstance(value, str) else value)


_ONE_WINDOW: dict[str, Any] = {
    "anyOf": [
        {"type": ["string", "integer"]},
        {
            "type": "object",
            "properties": {"rows": {"type": "integer", "minimum": 0}},
            "required": ["rows"],
            "additionalProperties": False,
        },
    ]
}
_BOTH_WINDOWS: dict[str, Any] = {
    "type": "object",
    "properties": dict.fromkeys(SIDES, _ONE_WINDOW),
    "required": [*SIDES],
    "additionalProperties": False,
}


class JoinTable(Table):
    """What is joined: the arguments of `window_join`."""

    on: TextLines
    """The condition in SQL, such as 'abs(left.x - right.a) <= 10'."""
    window: Annotated[
        Window | tuple[Window, Window],
        PlainValidator(_read_window),
        WithJsonSchema({"anyOf": [*_ONE_WINDOW["anyOf"], _BOTH_WINDOWS]}),
    ]
    """A duration such as "15 minutes", { rows = 1000 }, or one of these per side: { left = "10 minutes", right = 0 }.

    An integer is a duration for integer time columns."""
    how: Annotated[How, BeforeValidator(_check_how)] = "inner"
    """Which rows come out: pairs, and of outer joins rows without a partner; semi and anti joins give left rows."""
    lateness: Annotated[
        str | int, PlainValidator(_read_lateness), WithJsonSchema({"type": ["string", "integer"]})
    ]
    """How far a row may be behind the newest one of its side, such as "10 seconds" or 0.

    Later rows are dropped and counted."""
    workers: Annotated[int, Strict(), Field(ge=1, le=MAX_JOB_WORKERS)] | None = None
    """How many parts the join is divided into; by default Spark's default parallelism.

    A checkpoint keeps the number."""
    order: StreamOrder = "any"
    """The order of results; timestamp means that no micro-batch has a pair earlier than one before it."""
    partitioning: Partitioning = "auto"
    """How rows are spread over workers: by hash (needs an equality), range (needs an interval) or matrix."""
    index: Literal[Auto, IndexName] = "auto"
    """The index of the windows."""
    suffix: Text = "_right"
    """What is appended to the name of a right column whose name is taken."""
