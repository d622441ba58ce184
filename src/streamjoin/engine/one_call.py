"""`join` and `stream`: a join in one call, over tables of any library, without naming a `JoinSpec`."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Never, TypeVar

import pyarrow as pa

from streamjoin.engine.frames import Origin, chosen_or_read, frame_schema, index_names, kind_of, read_frame
from streamjoin.engine.join import Join
from streamjoin.engine.open import open_join
from streamjoin.engine.tables import join_tables
from streamjoin.plan.options import MAX_RESULTS, Auto, IndexName, Order, TopologyName
from streamjoin.semantics.callables import PredicateFunction
from streamjoin.semantics.durations import Duration
from streamjoin.semantics.errors import SpecError, short_repr
from streamjoin.semantics.keep import How, Keep
from streamjoin.semantics.result_columns import Columns
from streamjoin.semantics.spec import OTHER, SIDES, UNMATCHED, JoinSpec
from streamjoin.semantics.windows import WindowForm

Frame = TypeVar("Frame")

# What other libraries call an option of ours, and what to write here.
_ELSEWHERE = {
    "by": "write equalities in on, such as on='left.symbol = right.symbol'",
    "left_by": "write equalities in on, such as on='left.symbol = right.symbol'",
    "right_by": "write equalities in on, such as on='left.symbol = right.symbol'",
    "left_on": "write the condition in on, such as on='left.a = right.b', and name times in left_time",
    "right_on": "write the condition in on, such as on='left.a = right.b', and name times in right_time",
    "predicate": "write on=...",
    "condition": "write on=...",
    "tolerance": "write window=..., such as window='5 seconds'",
    "within": "write window=..., such as window='5 seconds'",
    "direction": "write keep=sj.AsOf('backward') (or 'forward', 'nearest')",
    "strategy": "write keep=sj.AsOf('backward') (or 'forward', 'nearest')",
    "allow_exact_matches": "write keep=sj.AsOf('backward', strict=True)",
    "suffixes": "write suffix=..., which is for right's columns",
    "select": "write columns=[...], such as columns=['left.price', 'right.price AS ask']",
    "timestamp": "write time=..., the name of the time column",
    "parallel": "write workers=...",
    "threads": "write workers=...",
}


def join(
    left: Frame,
    right: Any,
    on: str | PredicateFunction,
    *,
    window: WindowForm,
    time: str | None = None,
    left_time: str | None = None,
    right_time: str | None = None,
    how: How = "inner",
    keep: Keep = "all",
    left_tie: str | None = None,
    right_tie: str | None = None,
    suffix: str = "_right",
    columns: Columns | None = None,
    order: Order = "timestamp",
    index: IndexName | Auto = "auto",
    topology: TopologyName | Auto = "auto",
    workers: int | None = None,
    **unknown: Never,
) -> Frame:
    """Join two whole tables over a sliding window.

    Arguments:
        left, right: tables of pandas, Polars (lazy ones, too), DuckDB or Arrow, lists of dicts, or dicts of lists; they
            need not be of one kind, nor sorted.
        on: the predicate, as SQL over `left` and `right`, or a Python function of two rows.
        window: how far apart in time two rows may be: a duration (`"5 seconds"`, a timedelta, an int for integer
            times), a `TimeWindow`, `Interval` or `RowWindow`, or a pair (left's, right's).
        time: the column with the event times, where it has one name in both; else `left_time` and `right_time`.
        how: `inner`, `left`, `right`, `full`, `semi` or `anti`.
        keep: which matches of a left row count: `"all"`, `AsOf(...)` or `Nearest(...)`.
        left_tie, right_tie: columns that rank rows of equal time.
        suffix: appended to right columns whose name left has too.
        columns: the result's columns and their names, such as `["left.ts", "page", "right.ts AS viewed"]`, or a dict of
            new names and columns; None: all of left's, then all of right's. Columns that nothing needs are not read.
        order: `timestamp` gives the same rows in the same order on every run; with `any` they are in no particular one.
        index, topology, workers: how the join runs; see `open_join`.

    Returns a table of the same kind as `left`.

    >>> import streamjoin as sj
    >>> clicks = [{"ts": 3, "user": "ann"}, {"ts": 9, "user": "bob"}]
    >>> views = [{"ts": 1, "user": "ann", "page": "/a"}, {"ts": 8, "user": "bob", "page": "/b"}]
    >>> sj.join(clicks, views, on="left.user = right.user", window=5, time="ts")
    [{'ts': 3, 'user': 'ann', 'ts_right': 1, 'user_right': 'ann', 'page': '/a'},
     {'ts': 9, 'user': 'bob', 'ts_right': 8, 'user_right': 'bob', 'page': '/b'}]
    >>> sj.join(clicks, views, on="left.user = right.user", window=5, time="ts", columns=["page", "left.ts AS clicked"])
    [{'page': '/a', 'clicked': 3}, {'page': '/b', 'clicked': 9}]
    """
    _refuse_unknown(join, unknown)
    frames = {"left": left, "right": right}
    held = {side: chosen_or_read(frame, side) for side, frame in frames.items()}
    schemas = {side: frame_schema(each, side) for side, each in held.items()}
    times = _time_columns(schemas, time, left_time, right_time, frames)
    spec = JoinSpec(
        schemas["left"], schemas["right"], on, window, *times, how=how, suffix=suffix, keep=keep,
        left_tie=left_tie, right_tie=right_tie, columns=columns,
    )  # fmt: skip
    tables = {side: read_frame(each, side, spec.needed[side].names) for side, each in held.items()}
    result = join_tables(tables["left"], tables["right"], spec.narrowed(), topology, index, workers, order)
    given: Frame = kind_of(left, "left").give(result, _origins(spec, frames), left)
    return given


def stream(
    left: Any,
    right: Any,
    on: str | PredicateFunction,
    *,
    window: WindowForm,
    time: str | None = None,
    left_time: str | None = None,
    right_time: str | None = None,
    how: How = "inner",
    lateness: Duration | None = None,
    keep: Keep = "all",
    left_tie: str | None = None,
    right_tie: str | None = None,
    suffix: str = "_right",
    columns: Columns | None = None,
    order: Order = "any",
    index: IndexName | Auto = "auto",
    topology: TopologyName | Auto = "auto",
    workers: int | None = None,
    max_results: int = MAX_RESULTS,
    rate: float | None = None,
    latency: float | None = None,
    **unknown: Never,
) -> Join:
    """Open a join of two streams.

    `left` and `right` say which columns come: a `pyarrow.Schema`, a dict of names and Arrow types, or a sample, which
    is a table of any kind that `join` takes. Of a sample only the columns are taken; its rows are not joined, so push
    them too if they belong to the stream. `lateness` is that of `JoinSpec`, `max_results`, `rate` and `latency` are
    those of `open_join`, and the other arguments are those of `join`.

    >>> import pyarrow as pa, streamjoin as sj
    >>> columns = {"ts": pa.int64(), "user": pa.string()}
    >>> with sj.stream(columns, columns, on="left.user = right.user", window=5, time="ts") as running:
    ...     running.push("left", [{"ts": 3, "user": "ann"}])
    ...     running.push("right", [{"ts": 4, "user": "ann"}])
    ...     running.finish().to_pylist()
    [{'ts': 3, 'user': 'ann', 'ts_right': 4, 'user_right': 'ann'}]
    """
    _refuse_unknown(stream, unknown)
    schemas = {side: _stream_schema(given, side) for side, given in zip(SIDES, (left, right), strict=True)}
    times = _time_columns(schemas, time, left_time, right_time, {"left": left, "right": right})
    spec = JoinSpec(
        schemas["left"], schemas["right"], on, window, *times, how=how, lateness=lateness, suffix=suffix, keep=keep,
        left_tie=left_tie, right_tie=right_tie, columns=columns,
    )  # fmt: skip
    return open_join(spec, topology, index, workers, order, max_results, rate, latency)


def _stream_schema(given: Any, side: str) -> pa.Schema:
    """The columns of a stream, from a schema or a sample."""
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, Mapping) and given and all(isinstance(kind, pa.DataType) for kind in given.values()):
        return pa.schema(given)
    if isinstance(given, Mapping):
        _check_types(given, side)
    schema = frame_schema(given, side)
    for field in schema:
        if pa.types.is_null(field.type):
            raise SpecError(
                f"{side} column {field.name!r} has no value in the sample, so its type is unknown: give a "
                "pyarrow.Schema, or a sample with a value in every column",
                field=side,
                given=given,
                allowed="a pyarrow.Schema, or a sample with a value in every column",
            )
    return schema


def _check_types(given: Mapping[Any, Any], side: str) -> None:
    """Raise for a dict of names and types whose types are not those of Arrow."""
    for name, kind in given.items():
        if isinstance(kind, (str, bytes, type)):
            shown = kind.__name__ if isinstance(kind, type) else short_repr(kind)
            allowed = "a type of Arrow, such as pa.int64(), or a list of values"
            message = f"{side} column {name!r} is {shown}: give {allowed}"
            raise SpecError(message, field=side, given=kind, allowed=allowed)


def _time_columns(
    schemas: Mapping[str, pa.Schema],
    time: str | None,
    left_time: str | None,
    right_time: str | None,
    frames: Mapping[str, Any],
) -> tuple[str, str]:
    """The names of both time columns. `time` is the name on a side that has none of its own."""
    named = {"left": left_time or time, "right": right_time or time}
    for side, name in named.items():
        if name is not None:
            if name not in schemas[side].names and name in index_names(frames[side]):
                message = (
                    f"{side}_time is {name!r}, which is the index of {side}: call {side}.reset_index() first"
                )
                raise SpecError(message, field=f"{side}_time", given=name, allowed=schemas[side].names)
            continue
        moments = [field.name for field in schemas[side] if pa.types.is_timestamp(field.type)]
        about = (
            f"{side} has the timestamps {', '.join(moments)}"
            if moments
            else f"{side} has {schemas[side].names}"
        )
        raise SpecError(
            f"the time column of {side} is not named: write time='ts' if both sides call it ts, or left_time= and "
            f"right_time=; {about}",
            field=f"{side}_time",
            allowed=schemas[side].names,
            given=None,
        )
    left, right = named["left"], named["right"]
    assert left is not None and right is not None
    return left, right


def _origins(spec: JoinSpec, frames: Mapping[str, Any]) -> list[Origin]:
    """Where the columns of a result come from."""
    missing = {OTHER[side] for side in UNMATCHED[spec.how]}
    return [Origin(frames[side], field.name, side in missing) for side, field, _ in spec.chosen]


def _refuse_unknown(call: Callable[..., Any], unknown: Mapping[str, object]) -> None:
    """Raise for an argument that a call does not have, with the one that is meant."""
    for name, value in unknown.items():
        allowed = [
            each.name for each in inspect.signature(call).parameters.values() if each.name != "unknown"
        ]
        if name in _ELSEWHERE:
            hint = _ELSEWHERE[name]
        elif close := difflib.get_close_matches(name, allowed, n=1):
            hint = f"did you mean {close[0]}?"
        else:
            hint = "leave it out"
        words = ", ".join(allowed)
        message = (
            f"{call.__name__} has no argument {name!r} (given {short_repr(value)}): {hint}; allowed: {words}"
        )
        raise SpecError(message, field=name, given=value, allowed=allowed)
