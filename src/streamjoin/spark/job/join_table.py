"""`[join]`: what is joined, over which windows, and how it is spread."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

from streamjoin.plan.options import Auto, IndexName, Partitioning, StreamOrder
from streamjoin.semantics.durations import check_duration
from streamjoin.semantics.errors import SpecError
from streamjoin.semantics.keep import DIRECTIONS, HOW, AsOf, How, Keep, Nearest, check_how, check_keep
from streamjoin.semantics.spec import SIDES
from streamjoin.semantics.windows import CLOSED, Interval, RowWindow, TimeWindow, Window
from streamjoin.spark.hot_keys import SAMPLE
from streamjoin.spark.job.mistakes import suggestion, unknown_key
from streamjoin.spark.job.shown import MAX_SHOWN, shown
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
    """Answer words of other systems with the right one."""
    if isinstance(value, str) and len(value) <= MAX_SHOWN:
        try:
            check_how(value)
        except SpecError as error:
            if "keep=" not in str(error):
                raise
            told = f"is {shown(value)}: write keep = {{ as_of = 'backward' }} with how = 'inner' or 'left'"
            raise SpecError(f"{told}; allowed: {', '.join(HOW)}") from None
    return value


def _read_keep(value: Any) -> Keep:
    """`"all"`, `{ as_of = ..., strict = ... }`, or `{ nearest = ..., k = ..., largest = ... }`."""
    if isinstance(value, str):
        check_keep(value, "inner")  # raises unless it is "all"
        return "all"
    if not isinstance(value, dict):
        raise wrong_kind()
    kind = next((name for name in KEEP_KEYS if name in value), None)
    if kind is None:
        told = [f"{name} = ..." for name in KEEP_KEYS]
        near = suggestion(next(iter(map(str, value)), ""), list(KEEP_KEYS))
        raise SpecError(f"names none of its kinds: give {{ {' } or { '.join(told)} }}{near}")
    raise_all(
        ((name,), SpecError(unknown_key(name, (kind, *KEEP_KEYS[kind]))))
        for name in value
        if name not in (kind, *KEEP_KEYS[kind])
    )
    more = {name: value[name] for name in KEEP_KEYS[kind] if name in value}
    try:
        if kind == "as_of":
            return AsOf(value[kind], **more)
        return Nearest(check_text(value[kind]) if isinstance(value[kind], str) else value[kind], **more)
    except SpecError as error:
        _, _, part = (error.field or "").partition(".")
        raise_all([((part if part in more else kind,), error)])
        raise


def _read_columns(value: Any) -> tuple[str, ...] | dict[str, str] | None:
    """Names such as "left.price AS p", or new names and columns."""
    if value is None:
        return None
    texts = [*value, *value.values()] if isinstance(value, dict) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise wrong_kind()
    for text in texts:
        check_text(text)
    return value if isinstance(value, dict) else tuple(value)


def _read_hot_keys(value: Any) -> tuple[Any, ...] | Literal["sample"] | None:
    """`"sample"`, or a list of keys; a key is a value, or a list of values."""
    if value is None or value == SAMPLE:
        return value  # type: ignore[no-any-return]  # one of the two
    if not isinstance(value, (list, tuple)):
        raise wrong_kind()
    keys = [tuple(key) if isinstance(key, (list, tuple)) else (key,) for key in value]
    if any(isinstance(part, (dict, list, tuple)) for key in keys for part in key):
        raise wrong_kind()
    return tuple(keys)


def _read_window(value: Any) -> Window | tuple[Window, Window]:
    """`"15 minutes"`, `{ rows = 9 }`, `{ left = ..., right = ... }` of these, or `{ lower = ..., upper = ... }`."""
    if isinstance(value, dict) and {"lower", "upper"} & set(value):
        return _interval(value)
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


def _interval(value: dict[str, Any]) -> Interval:
    problems: list[tuple[tuple[str | int, ...], SpecError | PydanticCustomError]] = []
    for name in value:
        if name not in _INTERVAL["properties"]:
            problems.append(((name,), SpecError(unknown_key(name, _INTERVAL["properties"]))))
    for name in _INTERVAL["required"]:
        bound = value.get(name)
        if bound is None:
            problems.append(((name,), SpecError("is missing: give a duration such as '-5 seconds'")))
        elif isinstance(bound, bool) or not isinstance(bound, (str, int)):
            problems.append(((name,), SpecError(f"is {shown(bound)}: give a duration such as '-5 seconds'")))
    raise_all(problems)
    try:
        return Interval(**value)
    except SpecError as error:
        _, _, part = (error.field or "").partition(".")
        if part in value:
            raise_all([((part,), error)])
        raise


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
_INTERVAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "lower": {"type": ["string", "integer"]},
        "upper": {"type": ["string", "integer"]},
        "closed": {"enum": [*CLOSED]},
    },
    "required": ["lower", "upper"],
    "additionalProperties": False,
}
KEEP_KEYS: dict[str, dict[str, Any]] = {
    "as_of": {"strict": {"type": "boolean"}},
    "nearest": {"k": {"type": "integer", "minimum": 1}, "largest": {"type": "boolean"}},
}
_PICKS: dict[str, Any] = {"as_of": {"enum": [*DIRECTIONS]}, "nearest": {"type": "string"}}
_KEEP: dict[str, Any] = {
    "anyOf": [
        {"const": "all"},
        *(
            {
                "type": "object",
                "properties": {kind: _PICKS[kind], **more},
                "required": [kind],
                "additionalProperties": False,
            }
            for kind, more in KEEP_KEYS.items()
        ),
    ]
}


_COLUMNS: dict[str, Any] = {
    "anyOf": [
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
    ]
}


_KEY_VALUE: dict[str, Any] = {"type": ["string", "number", "boolean"]}
_HOT_KEYS: dict[str, Any] = {
    "anyOf": [
        {"const": SAMPLE},
        {"type": "array", "items": {"anyOf": [_KEY_VALUE, {"type": "array", "items": _KEY_VALUE}]}},
    ]
}


class JoinTable(Table):
    """What is joined: the arguments of `window_join`."""

    on: TextLines
    """The condition in SQL, such as 'abs(left.x - right.a) <= 10'."""
    window: Annotated[
        Window | tuple[Window, Window],
        PlainValidator(_read_window),
        WithJsonSchema({"anyOf": [*_ONE_WINDOW["anyOf"], _BOTH_WINDOWS, _INTERVAL]}),
    ]
    """A duration such as "15 minutes", { rows = 1000 }, or one of these per side: { left = "10 minutes", right = 0 }.

    Or an interval of right's time minus left's: { lower = "-10 seconds", upper = "-1 second", closed = "both" }.
    An integer is a duration for integer time columns."""
    how: Annotated[How, BeforeValidator(_check_how)] = "inner"
    """Which rows come out: pairs, and of outer joins rows without a partner; semi and anti joins give left rows."""
    keep: Annotated[Keep, PlainValidator(_read_keep), WithJsonSchema(_KEEP)] = "all"
    """The matches of a left row that count: "all", { as_of = "backward" } or { nearest = "abs(left.x - right.a)" }.

    as_of picks the one nearest in time: backward, forward or nearest; strict = true leaves out equal times. nearest
    picks the k best by an expression: k = 1, largest = false."""
    left_tie: Text | None = None
    """A column that ranks left rows of equal time; without one they are ranked by a hash of the row."""
    right_tie: Text | None = None
    """A column that ranks right rows of equal time; without one they are ranked by a hash of the row."""
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
    hot_keys: Annotated[
        tuple[Any, ...] | Literal["sample"] | None, PlainValidator(_read_hot_keys), WithJsonSchema(_HOT_KEYS)
    ] = None
    """"sample", or a list of keys of the equality such as ["AAPL", "MSFT"], whose rows go to several workers.

    "sample" finds them in a sample at the first start. A key of several columns is a list. A checkpoint keeps them."""
    index: Literal[Auto, IndexName] = "auto"
    """The index of the windows."""
    suffix: Text = "_right"
    """What is appended to the name of a right column whose name is taken."""
    columns: Annotated[
        tuple[str, ...] | dict[str, str] | None, PlainValidator(_read_columns), WithJsonSchema(_COLUMNS)
    ] = None
    """A list of the result's columns such as ["left.ts", "right.price AS ask"], or a table of new names and columns.

    By default all of left's, then all of right's. Columns that nothing needs are neither shuffled nor kept."""
