"""Casts that change no value: which types a column may have besides the one that the spec declares.

Within a family of types, such as numbers, each value decides: it is cast if the declared type holds exactly the same
value. Arrow's safe casts refuse overflow and most losses. Some of them round, so values are cast back and compared.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streamjoin.semantics.errors import InputError

DECIMAL256_DIGITS = 76  # the most that a decimal256 has

# Types of one family have values in common.
_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    lambda kind: types.is_integer(kind) or types.is_floating(kind),
    lambda kind: types.is_integer(kind) or types.is_decimal(kind),
    lambda kind: types.is_date(kind) or (types.is_timestamp(kind) and kind.tz is None),
    lambda kind: types.is_timestamp(kind) and kind.tz is not None,
    types.is_time,
    types.is_duration,
)


def is_castable(given: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of one type can be values of the other."""
    return any(family(given) and family(declared) for family in _FAMILIES)


def cast_exactly(
    column: pa.Array, declared: pa.DataType, side: str, name: str, advice: Callable[[], str]
) -> pa.Array:
    """The same values as `declared`, of a castable type; `InputError` reports the first that it cannot hold. `side`,
    `name`: the column, for that error; `advice`: how to cast it nevertheless. O(rows)."""
    cast = _cast_or_none(column, declared)
    if cast is not None:
        return cast
    row = _first_lost(column, declared)
    value = _shown(column.slice(row, 1))
    raise InputError(
        f"{side} column {name!r} has {value} at row {row}, which {declared}, the spec's type, cannot hold exactly: "
        f"declare the column as {column.type}, or, if values may change, cast it first, such as {advice()}",
        given=value,
        allowed=str(declared),
        field=f"{side}.{name}",
    )


def _cast_or_none(column: pa.Array, declared: pa.DataType) -> pa.Array | None:
    """The same values as `declared`; None if it cannot hold one of them."""
    if types.is_float16(column.type):
        column = column.cast(pa.float32())  # Arrow compares no half floats
    try:
        cast = _in_steps(column, declared)
        back = _in_steps(cast, column.type, safe=False)  # only to be compared
    except pa.ArrowInvalid:
        return None
    same = pc.equal(back, column)
    if types.is_floating(column.type) and types.is_floating(declared):
        same = pc.or_(same, pc.is_nan(column))
    return None if pc.all(same).as_py() is False else cast


def _in_steps(column: pa.Array, kind: pa.DataType, safe: bool = True) -> pa.Array:
    """Cast with Arrow. Half floats go through an intermediate type, because Arrow casts their bits or rounds. So do
    integers that become decimals, because Arrow demands digits for every integer of their type."""
    if types.is_float16(kind) or types.is_float16(column.type):
        column = column.cast(pa.float32(), safe=safe)
    elif types.is_integer(column.type) and types.is_decimal(kind):
        column = column.cast(pa.decimal256(DECIMAL256_DIGITS, max(kind.scale, 0)), safe=safe)
    return column.cast(kind, safe=safe)


def _first_lost(column: pa.Array, declared: pa.DataType) -> int:
    """The first row whose value `declared` cannot hold, by halving."""
    low, high = 0, len(column)  # the rows before low fit, one of those before high does not
    while high - low > 1:
        middle = (low + high) // 2
        fits = _cast_or_none(column.slice(low, middle - low), declared) is not None
        low, high = (middle, high) if fits else (low, middle)
    return low


def _shown(value: pa.Array) -> str:
    """One value as text for a message, with the digits of its unit."""
    if types.is_float16(value.type):
        value = value.cast(pa.float32())
    return str(value.cast(pa.string())[0].as_py())
