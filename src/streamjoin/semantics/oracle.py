"""The definition of a window join, executed: nested loops over two whole tables in plain Python.

Every engine is judged by this module, so it is written to be read, not to be fast: it shares no
code with them, looks at all O(left rows x right rows) pairs, and interprets the typed predicate
tree with a three-valued logic of its own (`None` is SQL's unknown).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.errors import InputError, PredicateError, SpecError
from streamjoin.semantics.expressions import Call, Column, Expr, Literal, columns
from streamjoin.semantics.spec import JoinSpec
from streamjoin.semantics.types import TIME_SCALE, Type

# The value of an expression: a bool, the integer of an exact type, a float, str or bytes; None is NULL.
Value = Any
Row = Mapping[str, Value]

MILLISECONDS_PER_DAY = 86_400_000


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
    found = pairs(left, right, spec)
    left_rows = pa.array([row for row, _ in found], pa.int64())
    right_rows = pa.array([row for _, row in found], pa.int64())
    left_part = [_take(column, left_rows) for column in _declared(left, spec, "left").columns]
    right_part = [_take(column, right_rows) for column in _declared(right, spec, "right").columns]
    return pa.Table.from_arrays(left_part + right_part, schema=spec.schema)


def pairs(left: pa.Table, right: pa.Table, spec: JoinSpec) -> list[tuple[int, int]]:
    """The result as row numbers (of `left`, of `right`), by the later tuple of each pair, then the earlier.

    A tuple meets every tuple of the other side that is before it in the total order, and pairs with
    those that are still in their side's window and satisfy the predicate.
    """
    tables = {"left": _declared(left, spec, "left"), "right": _declared(right, spec, "right")}
    rows = {side: _read_rows(table, spec, side) for side, table in tables.items()}
    before: dict[str, list[tuple[int, int]]] = {"left": [], "right": []}
    found = []
    for ts, side, row in _total_order(tables, spec):
        other = "right" if side == "left" else "left"
        window = spec.side_window(other)
        for at, (other_ts, other_row) in enumerate(before[other]):
            rank = len(before[other]) - at  # 1 is the newest tuple of the other side
            in_window = rank <= window.size if window.rows else ts - other_ts <= window.size
            l, r = (row, other_row) if side == "left" else (other_row, row)
            if in_window and _holds(spec.predicate, rows["left"][l], rows["right"][r]):
                found.append((l, r))
        before[side].append((ts, row))
    return found


def _total_order(tables: Mapping[str, pa.Table], spec: JoinSpec) -> list[tuple[int, str, int]]:
    """All tuples as (ts, side, row number). Each table is one source, so its rows give `seq`;
    ts is in `spec.time_unit`; "left" sorts before "right"."""
    stamped = []
    for side, table in tables.items():
        name = spec.side_time(side)
        kind = table.schema.field(name).type
        factor = 10 ** (TIME_SCALE[spec.time_unit] - TIME_SCALE[kind.unit]) if spec.time_unit else 1
        for row, ts in enumerate(column_values(table.column(name))):
            if ts is None:
                raise InputError(
                    f"{side} row {row} has NULL in its time column {name!r}: every row needs a time"
                )
            stamped.append((ts * factor, side, row))
    return sorted(stamped)


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
    if not isinstance(spec, JoinSpec):
        raise SpecError(f"spec is a {type(spec).__name__}: give a JoinSpec")
    if not isinstance(table, pa.Table):
        try:
            table = pa.table(table)
        except (TypeError, pa.ArrowInvalid) as error:
            raise InputError(
                f"{side} data is a {type(table).__name__}: give a pyarrow Table ({error})"
            ) from error
    schema = spec.side_schema(side)
    given = {field.name: _without_layout(field.type) for field in table.schema}
    declared = {field.name: _without_layout(field.type) for field in schema}
    if given != declared or len(table.column_names) != len(given):
        raise InputError(f"the {side} table has the columns {given}, but the spec declares {declared}")
    arrays = [table.column(name) for name in schema.names]
    for at, field in enumerate(schema):
        if arrays[at].type != field.type:
            arrays[at] = arrays[at].cast(declared[field.name]).cast(field.type)
    return pa.Table.from_arrays(arrays, names=schema.names)


def _without_layout(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _without_layout(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) else kind


def _take(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    if column.type in (pa.string_view(), pa.binary_view()):  # which Arrow can not take from
        return _take(column.cast(_without_layout(column.type)), rows).cast(column.type)
    try:
        return column.take(rows)
    except pa.ArrowNotImplementedError:  # views inside lists, structs or maps
        values = column.to_pylist()
        return pa.chunked_array([pa.array([values[row] for row in rows.to_pylist()], column.type)])


def _read_rows(table: pa.Table, spec: JoinSpec, side: str) -> list[dict[str, Value]]:
    """The columns the predicate reads; the others may be of any type."""
    predicate = spec.predicate
    read = predicate.columns if isinstance(predicate, CallablePredicate) else columns(predicate)
    return table_rows(table.select([column.name for column in read if column.side == side]))


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
        return [None if value is None else _scaled(value, kind.scale) for value in column.to_pylist()]
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date64(kind):
        millis = column.cast(pa.int64()).to_pylist()
        return [None if value is None else value // MILLISECONDS_PER_DAY for value in millis]
    return column.to_pylist()  # type: ignore[no-any-return]


def _scaled(value: Any, scale: int) -> int:
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
        raise TypeError(f"{type(expr).__name__} is no part of a SQL predicate")
    if expr.op == "case":
        return _case(expr, left, right)
    values = [evaluate(argument, left, right) for argument in expr.args]
    if expr.op in NULL_AWARE:
        return NULL_AWARE[expr.op](values)
    if None in values:
        return None
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


def _to_float(value: Value, kind: Type) -> float:
    return float(value) / 10.0**kind.scale if kind.is_exact else float(value)


def like(text: str, pattern: str, escape: str | None = None) -> bool:
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
    "sqrt": lambda values, _: math.sqrt(values[0]) if values[0] >= 0 else math.nan,
    "power": lambda values, _: _power(values[0], values[1]),
    "cast": lambda values, kind: _to_float(values[0], kind),
    "not": lambda values, _: not values[0],
    "like": lambda values, _: like(*values),
    "eq": lambda values, _: _compare("eq", *values),
    "ne": lambda values, _: _compare("ne", *values),
    "lt": lambda values, _: _compare("lt", *values),
    "le": lambda values, _: _compare("le", *values),
    "gt": lambda values, _: _compare("gt", *values),
    "ge": lambda values, _: _compare("ge", *values),
}
