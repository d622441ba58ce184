"""Columns of the two schemas: which one a name means, and the type it has in a predicate."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from streamjoin.semantics.errors import PredicateError, did_you_mean
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.syntax import PredicateText
from streamjoin.semantics.types import (
    BINARY,
    BOOL,
    DATE,
    FLOAT32,
    FLOAT64,
    NULL,
    STRING,
    Type,
    decimal,
    interval,
    signed,
    time_of_day,
    timestamp,
    unsigned,
)


def column_type(data_type: pa.DataType) -> Type | None:
    """The type a column of Arrow type `data_type` has in a predicate; None if it can only be payload."""
    is_a = pa.types
    if is_a.is_dictionary(data_type):
        return column_type(data_type.value_type)
    if is_a.is_integer(data_type):
        return (signed if is_a.is_signed_integer(data_type) else unsigned)(data_type.bit_width)
    if is_a.is_decimal(data_type):
        fits = data_type.precision <= 38 and data_type.scale >= 0
        return decimal(data_type.precision, data_type.scale) if fits else None
    if is_a.is_timestamp(data_type):
        return timestamp(data_type.unit, data_type.tz is not None)
    if is_a.is_time(data_type) or is_a.is_duration(data_type):
        return (time_of_day if is_a.is_time(data_type) else interval)(data_type.unit)
    kinds = (
        (is_a.is_boolean, BOOL), (is_a.is_float32, FLOAT32), (is_a.is_float64, FLOAT64), (is_a.is_date, DATE),
        (is_a.is_string, STRING), (is_a.is_large_string, STRING), (is_a.is_string_view, STRING),
        (is_a.is_binary, BINARY), (is_a.is_large_binary, BINARY), (is_a.is_binary_view, BINARY),
        (is_a.is_fixed_size_binary, BINARY),
    )  # fmt: skip
    return next((kind for test, kind in kinds if test(data_type)), None)


def resolve(source: PredicateText, node: exp.Column, schemas: Mapping[str, pa.Schema]) -> Column:
    """The column that `node` names in the two `schemas`, or a `PredicateError` at its place."""
    if isinstance(node.this, exp.Star):
        raise source.error("* is not a column; name one", node)
    if node.args.get("db"):
        raise source.error("nested names are not supported; write left.column or right.column", node)
    sides = _sides(source, node, schemas)
    name, quoted = node.name, node.this.args.get("quoted")
    everywhere = [(side, field) for side in sides for field in schemas[side]]
    found = [(side, field) for side, field in everywhere if field.name == name]
    if not found and not quoted:
        found = [(side, field) for side, field in everywhere if field.name.lower() == name.lower()]
    if not found:
        raise _unknown(source, node, {side: schemas[side] for side in sides})
    if len(found) > 1:
        choices = " or ".join(to_sql(Column(side, field.name, NULL)) for side, field in found)
        raise source.error(f"column {name!r} is ambiguous: it can be {choices}", node)
    side, field = found[0]
    kind = column_type(field.type)
    if kind is None:
        raise source.error(
            f"{side}.{field.name} has type {field.type}, which a predicate cannot use; allowed: "
            "integers, float32, float64, bool, string, binary, date, timestamp, time, duration, "
            "decimal of up to 38 digits",
            node,
        )
    return Column(side, field.name, kind)


def _sides(source: PredicateText, node: exp.Column, schemas: Mapping[str, pa.Schema]) -> tuple[str, ...]:
    if not node.table:
        return ("left", "right")
    if node.table.lower() not in schemas:
        message = f"unknown table {node.table!r}; the tables are left and right"
        raise source.error(message, node.args["table"])
    return (node.table.lower(),)


def _unknown(source: PredicateText, node: exp.Column, schemas: dict[str, pa.Schema]) -> PredicateError:
    hint = did_you_mean(node.name, [name for schema in schemas.values() for name in schema.names])
    where = " and ".join(f"{side} has {_listing(schema.names)}" for side, schema in schemas.items())
    owner = f"table {next(iter(schemas))}" if len(schemas) == 1 else "left or right"
    return source.error(f"unknown column {node.name!r} of {owner}: {where}{hint}", node.this)


def _listing(names: list[str], most: int = 30) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "no columns"
