"""The definition of a window join, executed: nested loops over two whole tables in plain Python.

Every engine is judged by this module, so it is written to be read, not to be fast: it shares no
code with them but the casts of input columns, looks at all O(left rows x right rows) pairs, and interprets the
typed predicate tree with a three-valued logic of its own (`None` is SQL's unknown).

In four steps: all tuples in one total order; the matches, which are the pairs that are in the window and satisfy the
predicate; `keep` and `how`, which make result rows of them; the result times, which order the rows.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamjoin.semantics import calendar
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.casts import cast_exactly, is_castable
from streamjoin.semantics.errors import InputError, PredicateError, SpecError
from streamjoin.semantics.expressions import Call, Column, Expr, Literal, columns
from streamjoin.semantics.keep import AsOf, Nearest
from streamjoin.semantics.spec import OTHER, SIDES, UNMATCHED, JoinSpec, check_spec
from streamjoin.semantics.types import TIME_SCALE, Type

# The value of an expression: a bool, the integer of an exact type, a float, str or bytes; None is NULL.
Value = Any
Row = Mapping[str, Value]
RowsBySide = Mapping[str, Sequence[Row]]  # by side

MILLISECONDS_PER_DAY = 86_400_000
END_OF_STREAMS = 2**63 - 1  # the result time of rows that only the end of the streams decides


class Tuple(NamedTuple):
    """A row of one side: its place in the total order, its time in ticks, and its number in its table."""

    place: int
    ts: int
    side: str
    row: int


class ResultRow(NamedTuple):
    """A row of the result: its result time, and the row numbers it is made of, None for a side it does not have."""

    time: int
    left: int | None
    right: int | None


def join(left: pa.Table, right: pa.Table, spec: JoinSpec) -> pa.Table:
    """Join two whole tables, each in any row order; the result has the order of `order="timestamp"`.

    >>> from streamjoin.semantics.windows import TimeWindow
    >>> schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
    >>> spec = JoinSpec(schema, schema, "left.x = right.x", TimeWindow(2), "ts", "ts")
    >>> left = pa.table({"ts": [0, 1], "x": [7, 8]}, schema)
    >>> right = pa.table({"ts": [2, 4], "x": [7, 8]}, schema)
    >>> join(left, right, spec).to_pylist()
    [{'ts': 0, 'x': 7, 'ts_right': 2, 'x_right': 7}]
    """
    found = rows(left, right, spec)
    numbers = {"left": [row.left for row in found], "right": [row.right for row in found]}
    tables = {"left": _declared(left, spec, "left"), "right": _declared(right, spec, "right")}
    columns = [
        _take(tables[side].column(field.name), pa.array(numbers[side], pa.int64()))
        for side, field, _ in spec.chosen
    ]
    return pa.Table.from_arrays(columns, schema=spec.schema)


def pairs(left: pa.Table, right: pa.Table, spec: JoinSpec) -> list[tuple[int, int]]:
    """The result of an inner join as row numbers (of `left`, of `right`), in the order of `rows`."""
    if spec.how != "inner":
        raise SpecError(
            f"how is {spec.how!r}: its rows are not all pairs; call oracle.rows",
            field="how",
            given=spec.how,
            allowed="inner",
        )
    return [(row.left, row.right) for row in rows(left, right, spec)]  # type: ignore[misc]  # both are there


def rows(left: pa.Table, right: pa.Table, spec: JoinSpec) -> list[ResultRow]:
    """The result as row numbers and result times, in the order of `order="timestamp"`."""
    tables = {side: _declared(table, spec, side) for side, table in zip(SIDES, (left, right), strict=True)}
    values = {side: _read_rows(table, spec, side) for side, table in tables.items()}
    order = _total_order(tables, spec)
    found = _matching_pairs(order, values, spec)
    if spec.keep != "all":
        found = _picked(found, values, spec)
    matched = {t for pair in found for t in pair}
    alone = [t for t in order if t.side in UNMATCHED[spec.how] and t not in matched]
    if spec.how == "semi":
        found = list({l: (l, r) for l, r in reversed(found)}.values())  # the first match of each left tuple
    elif spec.how == "anti":
        found = []
    # Each row with what orders it: its result time, and then by `_sequence`.
    keyed: list[tuple[tuple[int, ...], Tuple | None, Tuple | None]]
    keyed = [((max(l.ts, r.ts), *_sequence(l, r, spec)), l, r) for l, r in found]
    for t in alone:
        l, r = (t, None) if t.side == "left" else (None, t)
        keyed.append(((_time_alone(t, order, spec), *_sequence(l, r, spec)), l, r))
    keyed.sort(key=lambda entry: entry[0])
    if spec.how == "semi":
        keyed = [(key, l, None) for key, l, _ in keyed]
    return [ResultRow(key[0], _row(l), _row(r)) for key, l, r in keyed]


def _row(t: Tuple | None) -> int | None:
    return None if t is None else t.row


def _sequence(l: Tuple | None, r: Tuple | None, spec: JoinSpec) -> tuple[int, ...]:
    """The order of rows of one result time: picked rows by the left tuple, then the right one; others with pairs first,
    by the later tuple and then the earlier, and then the rows without partner by their tuple."""
    places = [t.place for t in (l, r) if t is not None]
    if spec.keep != "all":
        return tuple(places)
    return (2 - len(places), *sorted(places, reverse=True))


def _total_order(tables: Mapping[str, pa.Table], spec: JoinSpec) -> list[Tuple]:
    """All tuples in the total order. Each table is one source, so its rows give `seq`; ts is in `spec.time_unit`;
    "left" sorts before "right"."""
    stamped = []
    for side, table in tables.items():
        name, tie = spec.side_time(side), spec.side_tie(side)
        kind = table.schema.field(name).type
        factor = 10 ** (TIME_SCALE[spec.time_unit] - TIME_SCALE[kind.unit]) if spec.time_unit else 1
        ranks = [_rank(value) for value in column_values(table.column(tie))] if tie else [()] * len(table)
        for row, ts in enumerate(column_values(table.column(name))):
            if ts is None:
                raise InputError(
                    f"{side} row {row} has NULL in its time column {name!r}: every row needs a time",
                    field=f"{side}.{name}",
                    given=None,
                    allowed="a time",
                )
            stamped.append((ts * factor, side, ranks[row], row))
    return [Tuple(place, ts, side, row) for place, (ts, side, _, row) in enumerate(sorted(stamped))]


def _rank(value: Value) -> tuple[Value, ...]:
    """Sort key for the tie columns of rows of equal time: NULL is the least value, NaN the greatest."""
    return (False,) if value is None else (True, *_with_nan_largest(value))


# ---- which pairs match, and which of them count


def _matching_pairs(order: list[Tuple], values: RowsBySide, spec: JoinSpec) -> list[tuple[Tuple, Tuple]]:
    """The pairs (left, right) that match, by the later tuple of each pair, then the earlier.

    A tuple meets every tuple of the other side that is before it in the total order, and matches
    those that are still in their side's window and satisfy the predicate.
    """
    before: dict[str, list[Tuple]] = {"left": [], "right": []}
    found = []
    for later in order:
        waiting = before[OTHER[later.side]]
        for at, earlier in enumerate(waiting):
            l, r = (later, earlier) if later.side == "left" else (earlier, later)
            rank = len(waiting) - at  # 1 is the newest tuple of the other side
            if _in_window(l, r, rank, spec) and _holds(
                spec.predicate, values["left"][l.row], values["right"][r.row]
            ):
                found.append((l, r))
        before[later.side].append(later)
    return found


def _in_window(l: Tuple, r: Tuple, rank: int, spec: JoinSpec) -> bool:
    """Whether the earlier tuple, the `rank`-th newest of its side, is in its side's window when the later one comes."""
    if spec.delta is not None:
        return spec.delta.lo <= r.ts - l.ts <= spec.delta.hi
    earlier, later = sorted((l, r))
    window = spec.side_window(earlier.side)
    return rank <= window.size if window.rows else later.ts - earlier.ts <= window.size


def _picked(
    found: list[tuple[Tuple, Tuple]], values: RowsBySide, spec: JoinSpec
) -> list[tuple[Tuple, Tuple]]:
    """The matches that `keep` picks for each left tuple. Of rows that are equally good the later one is better."""
    scored: dict[Tuple, list[tuple[Value, int, Tuple]]] = {}
    for l, r in found:
        score = _badness(l, r, values, spec)
        if score is not None and not _is_nan(score):
            scored.setdefault(l, []).append((score, -r.place, r))
    count = spec.keep.k if isinstance(spec.keep, Nearest) else 1
    return [(l, r) for l, candidates in scored.items() for _, _, r in sorted(candidates)[:count]]


def _badness(l: Tuple, r: Tuple, values: RowsBySide, spec: JoinSpec) -> Value:
    """Smaller is better; NULL or NaN for a right tuple that cannot be picked."""
    if isinstance(spec.keep, AsOf):
        return abs(r.ts - l.ts) if spec.keep.allows(r.ts - l.ts) else None
    assert isinstance(spec.keep, Nearest) and spec.score is not None
    score = evaluate(spec.score, values["left"][l.row], values["right"][r.row])
    return -score if spec.keep.largest and score is not None else score


# ---- when a row without a partner is final


def _time_alone(t: Tuple, order: list[Tuple], spec: JoinSpec) -> int:
    """The result time of a tuple without partner: the later of its own time and the end of its window."""
    end = _window_end(t, order, spec)
    if isinstance(spec.keep, AsOf) and spec.keep.direction == "backward":
        end = min(end, t.ts)  # no later tuple can be picked
    return min(max(t.ts, end), END_OF_STREAMS)


def _window_end(t: Tuple, order: list[Tuple], spec: JoinSpec) -> int:
    """The last time at which a partner of a tuple can come. In a row window of n rows that is the time of the n-th
    tuple of its side after it, or the end of the streams if fewer follow."""
    window = spec.side_window(t.side)
    if not window.rows:
        return t.ts + window.size
    same_side = [t, *(later for later in order[t.place + 1 :] if later.side == t.side)]
    return same_side[window.size].ts if window.size < len(same_side) else END_OF_STREAMS


# ---- the predicate


def _holds(predicate: Expr | CallablePredicate, left: Row, right: Row) -> bool:
    """Whether the predicate is true: neither false nor NULL."""
    if isinstance(predicate, CallablePredicate):
        return _call(predicate, left, right)
    return evaluate(predicate, left, right) is True


def _call(predicate: CallablePredicate, left: Row, right: Row) -> bool:
    left_values = {column.name: left[column.name] for column in predicate.left}
    right_values = {column.name: right[column.name] for column in predicate.right}
    if None in (*left_values.values(), *right_values.values()):
        return False
    try:
        with np.errstate(all="ignore"):  # machine numbers wrap and give inf, as in the compiled predicate
            return bool(predicate.function(_machine_row(left_values), _machine_row(right_values)))
    except (ArithmeticError, ValueError) as error:
        name = getattr(predicate.function, "__name__", "callable")
        raise PredicateError(
            f"the predicate {name} has no value for left {left_values} and right {right_values}: {error!r}"
        ) from error


def _machine_row(values: Row) -> SimpleNamespace:
    machine = {bool: np.bool_, int: np.int64, float: np.float64}
    return SimpleNamespace(**{name: machine[type(value)](value) for name, value in values.items()})


# ---- Arrow columns as Python values


def _declared(table: pa.Table, spec: JoinSpec, side: str) -> pa.Table:
    """The table as the spec declares it: the same columns, in whatever order and layout of their type."""
    check_spec(spec)
    if not isinstance(table, pa.Table):
        try:
            table = pa.table(table)
        except (TypeError, pa.ArrowInvalid) as error:
            raise InputError(
                f"{side} data is a {type(table).__name__}: give a pyarrow Table ({error})",
                field=side,
                given=table,
                allowed="a pyarrow Table",
            ) from error
    schema = spec.side_schema(side)
    given = {field.name: _without_layout(field.type) for field in table.schema}
    declared = {field.name: _without_layout(field.type) for field in schema}
    fit = given.keys() == declared.keys() and len(table.column_names) == len(given)
    if not fit or not all(_is_readable(given[name], kind) for name, kind in declared.items()):
        raise InputError(
            f"the {side} table has the columns {given}, but the spec declares {declared}",
            field=side,
            given=given,
            allowed=str(declared),
        )
    arrays = [_read_as(table.column(field.name), declared[field.name], field, side) for field in schema]
    return pa.Table.from_arrays(arrays, names=schema.names)


def _is_readable(given: pa.DataType, declared: pa.DataType) -> bool:
    return given == declared or pa.types.is_null(given) or is_castable(given, declared)


def _read_as(column: pa.ChunkedArray, plain: pa.DataType, field: pa.Field, side: str) -> pa.ChunkedArray:
    """The column in the spec's type. `plain`: that type without its layout."""
    if column.type == field.type:
        return column
    decoded = column.cast(_without_layout(column.type))
    if is_castable(decoded.type, plain) and decoded.type != plain:
        whole = pa.concat_arrays([pa.nulls(0, decoded.type), *decoded.chunks])
        name = field.name
        decoded = pa.chunked_array(
            [cast_exactly(whole, plain, side, name, lambda: f'pc.cast(table["{name}"], ...)')]
        )
    return decoded.cast(plain).cast(field.type)


def _without_layout(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _without_layout(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) else kind


def _take(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    if column.type in (pa.string_view(), pa.binary_view()):  # Arrow's take() does not support them
        return _take(column.cast(_without_layout(column.type)), rows).cast(column.type)
    try:
        return column.take(rows)
    except pa.ArrowNotImplementedError:  # views inside lists, structs or maps
        values = [*column.to_pylist(), None]
        numbers = [-1 if row is None else row for row in rows.to_pylist()]
        return pa.chunked_array([pa.array([values[number] for number in numbers], column.type)])


def _read_rows(table: pa.Table, spec: JoinSpec, side: str) -> list[dict[str, Value]]:
    """The columns that the predicate and the score read; the others may be of any type."""
    predicate = spec.predicate
    read = predicate.columns if isinstance(predicate, CallablePredicate) else columns(predicate)
    if spec.score is not None:
        read += columns(spec.score)
    return table_rows(table.select(list(dict.fromkeys(c.name for c in read if c.side == side))))


def table_rows(table: pa.Table) -> list[dict[str, Value]]:
    """The rows of a table as `evaluate` takes them."""
    values = {name: column_values(table.column(name)) for name in table.column_names}
    return [{name: column[row] for name, column in values.items()} for row in range(table.num_rows)]


def column_values(column: pa.ChunkedArray) -> list[Value]:
    """A column as Python values: exact types as their integers, dates as days, dictionaries decoded."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column_values(column.cast(kind.value_type))
    if pa.types.is_decimal(kind):
        return [None if value is None else _scaled_decimal(value, kind.scale) for value in column.to_pylist()]
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date64(kind):
        millis = column.cast(pa.int64()).to_pylist()
        return [None if value is None else value // MILLISECONDS_PER_DAY for value in millis]
    return column.to_pylist()  # type: ignore[no-any-return]


def _scaled_decimal(value: Any, scale: int) -> int:
    """The integer of units of 10**-scale; Arrow's decimals never have more digits than that."""
    sign, digits, exponent = value.as_tuple()
    unsigned = int("".join(map(str, digits))) * int(10 ** (exponent + scale))
    return -unsigned if sign else unsigned


# ---- the predicate interpreter


def evaluate(expr: Expr, left: Row, right: Row) -> Value:
    """The value of a typed expression for one pair of rows; None is NULL."""
    if isinstance(expr, Column):
        return left[expr.name] if expr.side == "left" else right[expr.name]
    if isinstance(expr, Literal):
        return expr.value
    if not isinstance(expr, Call):
        raise TypeError(f"{type(expr).__name__} is not part of a SQL predicate")
    if expr.op == "case":
        return _case(expr, left, right)
    values = [evaluate(argument, left, right) for argument in expr.args]
    if expr.op in NULL_AWARE:
        return NULL_AWARE[expr.op](values)
    if None in values:
        return None
    if expr.op == "to_exact":
        return _to_exact(values[0], expr.args[0].type, expr.type)
    result = STRICT[expr.op](values, expr.args[0].type)
    return _binary32(result) if expr.type.name == "float32" and result is not None else result


def _case(expr: Call, left: Row, right: Row) -> Value:
    *branches, otherwise = expr.args
    for condition, value in zip(branches[::2], branches[1::2], strict=True):
        if evaluate(condition, left, right) is True:
            return evaluate(value, left, right)
    return evaluate(otherwise, left, right)


def _binary32(value: float) -> float:
    """Round to the nearest binary32. Rounding the binary64 result of one + - * / or sqrt again gives
    the correctly rounded binary32 result, as 53 >= 2 * 24 + 2 bits."""
    return ctypes.c_float(value).value


def _and(values: list[Value]) -> Value:
    if False in values:
        return False
    return None if None in values else True


def _or(values: list[Value]) -> Value:
    if True in values:
        return True
    return None if None in values else False


def _is_distinct(values: list[Value]) -> bool:
    a, b = values
    if a is None or b is None:
        return (a is None) != (b is None)
    return not _compare("eq", a, b)


def _coalesce(values: list[Value]) -> Value:
    return next((value for value in values if value is not None), None)


def _least(values: list[Value]) -> Value:
    return min((value for value in values if value is not None), key=_with_nan_largest, default=None)


def _greatest(values: list[Value]) -> Value:
    return max((value for value in values if value is not None), key=_with_nan_largest, default=None)


def _with_nan_largest(value: Value) -> tuple[bool, Value]:
    return (True, 0.0) if _is_nan(value) else (False, _by_bytes(value))


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _by_bytes(value: Value) -> Value:
    return value.encode() if isinstance(value, str) else value


def _compare(op: str, a: Value, b: Value) -> bool:
    if _is_nan(a) or _is_nan(b):
        return False
    a, b = _by_bytes(a), _by_bytes(b)
    return bool({"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[op])


def _modulo(a: Value, b: Value) -> Value:
    """The remainder with the sign of the dividend; NULL for a zero divisor."""
    if b == 0:
        return None
    if isinstance(a, float):
        return math.nan if math.isinf(a) else math.fmod(a, b)
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _round_down(value: Value, kind: Type) -> Value:
    if kind.is_exact:
        return value // 10**kind.scale
    return float(np.floor(value))  # unlike math.floor it keeps infinities, NaN and -0.0


def _round_up(value: Value, kind: Type) -> Value:
    return -_round_down(-value, kind)


def _power(base: float, exponent: float) -> float:
    with np.errstate(all="ignore"):  # C's pow: inf and NaN instead of an exception
        return float(np.float64(base) ** np.float64(exponent))


def _round(value: float) -> float:
    """The nearest whole number, away from zero if two are equally near."""
    if not math.isfinite(value):
        return value
    nearest = _round_exact(Fraction(value), 1)
    return math.copysign(float(nearest), value)


def _round_exact(value: Fraction, unit: int) -> int:
    nearest = math.floor(abs(value) / unit + Fraction(1, 2))
    return -nearest if value < 0 else nearest


def _of_math(function: Callable[..., float]) -> Callable[[list[Value], Type], Value]:
    """A function of `math`: NaN outside of its domain, infinity if the result is too large."""

    def apply(values: list[Value], _: Type) -> float:
        try:
            return function(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return apply


def _of_moment(function: Callable[[str, int, Type], int], unit: str) -> Callable[[list[Value], Type], Value]:
    return lambda values, kind: function(unit, values[0], kind)


def _to_float(value: Value, kind: Type) -> float:
    return float(value) / 10.0**kind.scale if kind.is_exact else float(value)


NUMBER = re.compile(r" *([+-]?)(?=[0-9.]*[0-9])([0-9]*)(?:\.([0-9]*))? *")


def _to_exact(value: Value, kind: Type, target: Type) -> int | None:
    """CAST to an integer or a decimal: rounded half away from zero, None where the target does not hold the value."""
    if kind.name == "string":
        if (found := NUMBER.fullmatch(value)) is None:
            return None
        sign, whole, fraction = (part or "" for part in found.groups())
        exact = Fraction(int(whole + fraction or "0"), 10 ** len(fraction)) * (-1 if sign == "-" else 1)
    elif kind.is_float:
        exact = value * 10.0**target.scale if target.scale else value
        if not math.isfinite(exact):
            return None
        exact = Fraction(exact) / 10**target.scale
    else:
        exact = Fraction(int(value), 10**kind.scale)
    units = _round_exact(exact * 10**target.scale, 1)
    return units if target.lo <= units <= target.hi else None


def _to_text(value: Value, kind: Type) -> str:
    if kind.name == "bool":
        return "true" if value else "false"
    if not kind.scale:
        return str(value)
    whole, fraction = divmod(abs(value), 10**kind.scale)
    return f"{'-' * (value < 0)}{whole}.{fraction:0{kind.scale}}"


def is_like(text: str, pattern: str, escape: str | None = None) -> bool:
    """SQL's LIKE on code points: `%` is any run of characters, `_` any one, `escape` makes the next literal."""
    reached = {0}  # lengths of the beginnings of `text` that the pattern read so far matches
    characters = iter(pattern)
    for character in characters:
        literal = next(characters, character) if character == escape else None
        if literal is None and character == "%":
            reached = set(range(min(reached), len(text) + 1)) if reached else set()
        elif literal is None and character == "_":
            reached = {at + 1 for at in reached if at < len(text)}
        else:
            reached = {at + 1 for at in reached if text[at : at + 1] == (literal or character)}
    return len(text) in reached


def _with_case(change: Callable[[str], str], text: str) -> str:
    """Change each code point by itself, by Unicode's tables. One whose other case is several code points is kept."""
    return "".join(changed if len(changed := change(each)) == 1 else each for each in text)


def _substring(text: str, start: int, length: int | None = None) -> str:
    """Positions count from 1, and from the end if `start` is negative; there may be none at some of them."""
    first = start if start >= 0 else len(text) + 1 + start
    end = len(text) + 1 if length is None else first + length
    return "".join(each for position, each in enumerate(text, 1) if first <= position < end)


NULL_AWARE: dict[str, Callable[[list[Value]], Value]] = {
    "and": _and,
    "or": _or,
    "is_null": lambda values: values[0] is None,
    "is_distinct": _is_distinct,
    "coalesce": _coalesce,
    "least": _least,
    "greatest": _greatest,
}

# Operations that give NULL if any argument is. They take the values and the first argument's type.
STRICT: dict[str, Callable[[list[Value], Type], Value]] = {
    "add": lambda values, _: values[0] + values[1],
    "sub": lambda values, _: values[0] - values[1],
    "mul": lambda values, _: values[0] * values[1],
    "div": lambda values, _: None if values[1] == 0 else values[0] / values[1],
    "mod": lambda values, _: _modulo(values[0], values[1]),
    "neg": lambda values, _: -values[0],
    "abs": lambda values, _: abs(values[0]),
    "floor": lambda values, kind: _round_down(values[0], kind),
    "ceil": lambda values, kind: _round_up(values[0], kind),
    "round": lambda values, _: _round(values[0]),
    "rounddiv": lambda values, _: _round_exact(Fraction(values[0]), values[1]),
    **{
        name: _of_math(getattr(math, name))
        for name in ("exp", "sin", "cos", "tan", "asin", "acos", "atan", "atan2")
    },
    "ln": _of_math(math.log),
    "sqrt": lambda values, _: math.sqrt(values[0]) if values[0] >= 0 else math.nan,
    "power": lambda values, _: _power(values[0], values[1]),
    "cast": lambda values, kind: _to_float(values[0], kind),
    "to_text": lambda values, kind: _to_text(values[0], kind),
    "not": lambda values, _: not values[0],
    "like": lambda values, _: is_like(*values),
    "lower": lambda values, _: _with_case(str.lower, values[0]),
    "upper": lambda values, _: _with_case(str.upper, values[0]),
    "length": lambda values, _: len(values[0]),
    "substring": lambda values, _: _substring(*values),
    "trim": lambda values, _: values[0].strip(values[1]),
    "ltrim": lambda values, _: values[0].lstrip(values[1]),
    "rtrim": lambda values, _: values[0].rstrip(values[1]),
    "concat": lambda values, _: functools.reduce(operator.add, values),
    **{f"trunc_{unit}": _of_moment(calendar.truncated, unit) for unit in calendar.TRUNCATED},
    **{f"extract_{unit}": _of_moment(calendar.part, unit) for unit in calendar.PARTS},
    "eq": lambda values, _: _compare("eq", *values),
    "ne": lambda values, _: _compare("ne", *values),
    "lt": lambda values, _: _compare("lt", *values),
    "le": lambda values, _: _compare("le", *values),
    "gt": lambda values, _: _compare("gt", *values),
    "ge": lambda values, _: _compare("ge", *values),
}
