"""`JoinSpec`: what to join, checked on creation. It does not say how the join runs.

The total order of all tuples is (ts, side, tie, source, seq): left before right at equal `ts`, then by the side's tie
column if it has one, sources of a side by name, `seq` the position within the source. Two tuples match iff the
predicate is true and the one that comes first in this order is still in its side's window when the other one comes
(see `TimeWindow`, `RowWindow`, `Interval`). `how` and `keep` make result rows of the matches (see `keep`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property

import pyarrow as pa

from streamjoin.semantics.callables import CallablePredicate, PredicateFunction, inspect_callable
from streamjoin.semantics.columns import column_type
from streamjoin.semantics.durations import Duration, lateness_ticks
from streamjoin.semantics.errors import PredicateError, SpecError, did_you_mean, short_repr, without_middle
from streamjoin.semantics.expressions import Expr
from streamjoin.semantics.expressions import columns as columns_of
from streamjoin.semantics.html import html_table
from streamjoin.semantics.keep import How, Keep, Nearest, check_how, check_keep
from streamjoin.semantics.result_columns import ColumnChoice, Columns, ResultColumn, all_columns
from streamjoin.semantics.sql import parse_expression, parse_predicate
from streamjoin.semantics.temporal import time_text
from streamjoin.semantics.types import TIME_SCALE
from streamjoin.semantics.windows import (
    Delta,
    SideWindow,
    WindowForm,
    Windows,
    read_window,
    side_window,
)

SIDES = ("left", "right")
OTHER = {"left": "right", "right": "left"}
# The sides whose rows come out without a partner if they have no match.
UNMATCHED: dict[How, tuple[str, ...]] = {
    "inner": (), "left": ("left",), "right": ("right",), "full": SIDES, "semi": (), "anti": ("left",),
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class JoinSpec:
    """A sliding-window join of two streams.

    `on` is SQL text over the tables `left` and `right`, or a callable `f(left_row, right_row)`.
    `window` is a duration, a `TimeWindow`, an `Interval`, a `RowWindow`, or a pair (left's, right's) of durations,
    `TimeWindow` and `RowWindow`. `lateness` is how far `ts` may fall within one source; None means it must not fall.
    `keep` picks among the matches of a left row: `"all"`, `AsOf(...)` or `Nearest(...)`; only with how inner or left.
    `left_tie`, `right_tie`: columns that rank rows of equal time, before source and position.
    `columns` chooses and names the result's columns, by a list such as `["left.price", "bid AS paid"]` or a dict of new
    names and columns; None: all. The spec keeps it as pairs of new name and `side.column`.

    >>> schema = pa.schema({"ts": pa.int64(), "price": pa.float64()})
    >>> spec = JoinSpec(
    ...     schema, schema, "left.price < right.price", 5, "ts", "ts", columns=["left.ts", "right.price AS ask"]
    ... )
    >>> spec.schema.names
    ['ts', 'ask']
    """

    left: pa.Schema
    right: pa.Schema
    on: str | PredicateFunction
    window: WindowForm
    left_time: str
    right_time: str
    how: How = "inner"
    lateness: Duration | None = None
    suffix: str = "_right"
    keep: Keep = "all"
    left_tie: str | None = None
    right_tie: str | None = None
    columns: Columns | None = None

    def __post_init__(self) -> None:
        for side in SIDES:
            self._check_schema(side)
        if not isinstance(self.suffix, str):
            raise SpecError(
                f"suffix is {self.suffix!r}: give a string, such as '_right'",
                field="suffix",
                given=self.suffix,
                allowed="a string",
            )
        check_how(self.how)
        check_keep(self.keep, self.how)
        if (
            self.columns is not None
        ):  # as pairs, which can be compared and hashed, and mean the same on fewer columns
            object.__setattr__(self, "columns", tuple((each.name, each.source) for each in self.chosen))
        object.__setattr__(self, "window", read_window(self.window, self.time_unit))
        # Computing the derived parts checks them.
        _ = (
            self.time_unit,
            self.left_window,
            self.right_window,
            self.lateness_ticks,
            self.schema,
            self.predicate,
            self.score,
        )

    def __repr__(self) -> str:
        return f"JoinSpec({', '.join(f'{name}={text}' for name, text in self._parts())})"

    def _repr_html_(self) -> str:
        return html_table("JoinSpec", self._parts())

    def _parts(self) -> list[tuple[str, str]]:
        """Names and texts of the fields, schemas on one line; without fields that have their default."""
        parts = []
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, pa.Schema):
                columns = [f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in value]
                parts.append((part.name, without_middle(f"({', '.join(columns)})")))
            elif part.default is MISSING or value != part.default:
                callable_name = getattr(value, "__name__", None) if callable(value) else None
                parts.append((part.name, callable_name or short_repr(value)))
        return parts

    def _check_schema(self, side: str) -> None:
        schema, time = getattr(self, side), getattr(self, f"{side}_time")
        if not isinstance(schema, pa.Schema):
            message = f"{side} is a {type(schema).__name__}: give a pyarrow.Schema"
            raise SpecError(message, field=side, given=schema, allowed="a pyarrow.Schema")
        repeated = sorted(name for name, times in Counter(schema.names).items() if times > 1)
        if repeated:
            raise SpecError(
                f"the {side} schema has several columns named {repeated[0]!r}: names must be unique",
                field=side,
                given=schema,
                allowed="columns with unique names",
            )
        encoded = [field for field in schema if pa.types.is_run_end_encoded(field.type)]
        if encoded:
            field = encoded[0]
            raise SpecError(
                f"{side} column {field.name!r} has type {field.type}: decode run-end encoding first",
                field=side,
                given=schema,
                allowed="columns without run-end encoding",
            )
        if time not in schema.names:
            message = (
                f"{side}_time is {time!r}, which is not a column of {side}: it has {schema.names}"
                f"{did_you_mean(time, schema.names)}"
            )
            raise SpecError(message, field=f"{side}_time", given=time, allowed=schema.names)
        kind = schema.field(time).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
            message = (
                f"{side}_time {time!r} has type {kind}: a time column is a timestamp or an integer; convert it first, "
                f"such as {_time_conversion(kind)}"
            )
            raise SpecError(message, field=f"{side}_time", given=time, allowed="a timestamp or an integer")
        self._check_tie(side, schema)

    def _check_tie(self, side: str, schema: pa.Schema) -> None:
        tie, field = self.side_tie(side), f"{side}_tie"
        if tie is None:
            return
        if tie not in schema.names:
            message = (
                f"{field} is {tie!r}, which is not a column of {side}: it has {schema.names}"
                f"{did_you_mean(tie, schema.names)}"
            )
            raise SpecError(message, field=field, given=tie, allowed=schema.names)
        kind = schema.field(tie).type
        if column_type(kind) is None:
            allowed = "a column of numbers, times, strings, binary or bool"
            message = f"{field} {tie!r} has type {kind}, which has no order here: name {allowed}"
            raise SpecError(message, field=field, given=tie, allowed=allowed)

    @cached_property
    def predicate(self) -> Expr | CallablePredicate:
        """The predicate as a typed tree, or the callable with the columns it reads."""
        try:
            return self._read_predicate()
        except PredicateError as error:
            error.given = self.on
            raise

    def _read_predicate(self) -> Expr | CallablePredicate:
        if isinstance(self.on, str):
            if self.on in self.left.names and self.on in self.right.names:
                raise PredicateError(
                    f"on is {self.on!r}, the name of a column of both sides: write the condition, such as "
                    f"'left.{self.on} = right.{self.on}'"
                )
            return parse_predicate(self.on, self.left, self.right)
        if callable(self.on):
            return inspect_callable(self.on, self.left, self.right)
        raise SpecError(
            f"on is a {type(self.on).__name__}: give SQL text, such as 'left.x = right.x', or a callable "
            "f(left_row, right_row)",
            field="on",
            given=self.on,
            allowed="SQL text or a callable f(left_row, right_row)",
        )

    @cached_property
    def score(self) -> Expr | None:
        """The expression by which `Nearest` picks, typed; None for another `keep`."""
        if not isinstance(self.keep, Nearest):
            return None
        try:
            score = parse_expression(self.keep.by, self.left, self.right)
        except PredicateError as error:
            error.field, error.given = "keep.by", self.keep.by
            error.allowed = "an expression in SQL over columns of left and right"
            error.args = (str(error).replace("the predicate", "keep.by", 1),)
            raise
        if not (score.type.is_exact or score.type.is_float):
            allowed = "a number, a date, a timestamp or an interval"
            message = f"keep.by is {self.keep.by!r}, which is of type {score.type}: give {allowed}"
            raise SpecError(message, field="keep.by", given=self.keep.by, allowed=allowed)
        return score

    @cached_property
    def time_unit(self) -> str | None:
        """The finer unit of the two time columns, in which all times are kept; None for integers."""
        left, right = self.left.field(self.left_time).type, self.right.field(self.right_time).type
        if pa.types.is_timestamp(left) != pa.types.is_timestamp(right):
            raise SpecError(
                f"the time column of left is {left} and that of right is {right}: both must be timestamps, "
                "or both integers; convert one of them",
                field="right_time",
                given=self.right_time,
                allowed="two timestamps, or two integers",
            )
        if not pa.types.is_timestamp(left):
            return None
        if (left.tz is None) != (right.tz is None):
            raise SpecError(
                f"the time column of left is {left} and that of right is {right}: both must have a time zone or "
                "neither; give the other one its zone, such as with pandas' dt.tz_localize('UTC') or polars' "
                "dt.replace_time_zone('UTC')",
                field="right_time",
                given=self.right_time,
                allowed="two timestamps with a time zone, or two without",
            )
        units: list[str] = [left.unit, right.unit]
        return max(units, key=TIME_SCALE.__getitem__)

    def time_text(self, ticks: int) -> str:
        """Ticks of the time columns as a time, for messages; in UTC if they have a time zone."""
        zone = self.time_unit is not None and self.left.field(self.left_time).type.tz is not None
        return time_text(ticks, self.time_unit, zone)

    @property
    def _windows(self) -> Windows:
        """`window`. A spec replaces a plain duration on creation."""
        return self.window  # type: ignore[return-value]

    @cached_property
    def left_window(self) -> SideWindow:
        return side_window(self._windows, "left", self.time_unit)

    @cached_property
    def right_window(self) -> SideWindow:
        return side_window(self._windows, "right", self.time_unit)

    @cached_property
    def lateness_ticks(self) -> int | None:
        return None if self.lateness is None else lateness_ticks(self.lateness, self.time_unit)

    @cached_property
    def delta(self) -> Delta | None:
        """The differences of time that may be joined; None where a side's window counts rows."""
        if self.left_window.rows or self.right_window.rows:
            return None
        return Delta(-self.right_window.size, self.left_window.size)

    @cached_property
    def chosen(self) -> tuple[ResultColumn, ...]:
        """The result's columns, in their order."""
        schemas = {side: self.side_schema(side) for side in SIDES}
        if self.columns is not None:
            return ColumnChoice(self.columns, schemas, self.how, self.suffix).columns()
        return all_columns({"left": self.left} if self.how in ("semi", "anti") else schemas, self.suffix)

    @cached_property
    def schema(self) -> pa.Schema:
        """The result's columns and their types. Those of a side that can be missing may be NULL."""
        missing = {OTHER[side] for side in UNMATCHED[self.how]}
        return pa.schema(
            [
                field.with_name(name).with_nullable(field.nullable or side in missing)
                for side, field, name in self.chosen
            ]
        )

    @cached_property
    def needed(self) -> Mapping[str, pa.Schema]:
        """By side, the columns that a join needs: those of the result, the time and the tie, and what the predicate
        and the score read."""
        predicate = self.predicate
        read = predicate.columns if isinstance(predicate, CallablePredicate) else columns_of(predicate)
        if self.score is not None:
            read += columns_of(self.score)
        names: set[tuple[str, str | None]] = {(column.side, column.name) for column in read}
        names |= {(side, field.name) for side, field, _ in self.chosen}
        for side in SIDES:
            names |= {(side, self.side_time(side)), (side, self.side_tie(side))}
        return {
            side: pa.schema([field for field in self.side_schema(side) if (side, field.name) in names])
            for side in SIDES
        }

    def narrowed(self) -> JoinSpec:
        """The same join of tables that have only the needed columns."""
        return replace(self, left=self.needed["left"], right=self.needed["right"])

    def side_schema(self, side: str) -> pa.Schema:
        return self.left if side == "left" else self.right

    def side_time(self, side: str) -> str:
        return self.left_time if side == "left" else self.right_time

    def side_window(self, side: str) -> SideWindow:
        """How long tuples of `side` wait for partners."""
        return self.left_window if side == "left" else self.right_window

    def side_tie(self, side: str) -> str | None:
        """The column that ranks rows of `side` at equal times, if there is one."""
        return self.left_tie if side == "left" else self.right_tie


def _time_conversion(kind: pa.DataType) -> str:
    """How to make times of a column of another type."""
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return 'to whole milliseconds, int(1000 * ts), or with pandas.to_datetime(ts, unit="s")'
    if pa.types.is_date(kind):
        return "with pandas.to_datetime, polars' cast(pl.Datetime) or datetime.combine(day, time())"
    return "with pandas.to_datetime, polars' str.to_datetime or datetime.fromisoformat"


def check_spec(given: object) -> JoinSpec:
    """The spec; raises for anything else."""
    if not isinstance(given, JoinSpec):
        raise SpecError(
            f"spec is a {type(given).__name__}: give a JoinSpec",
            field="spec",
            given=given,
            allowed="a JoinSpec",
        )
    return given
