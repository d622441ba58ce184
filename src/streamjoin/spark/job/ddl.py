"""Schemas as Spark writes them, `ts TIMESTAMP, x INT, tags ARRAY<STRING>`, read without a running Spark.

Spark's own parser lives in the JVM, and a job file is checked before a JVM is started. This parser returns the
same `StructType` as Spark's (a test compares the two).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types

from streamjoin.semantics.column_lists import (
    DeclaredColumn,
    DeclaredType,
    decimal_digits,
    parse_columns,
    unknown_type,
)

ATOMIC: dict[str, types.DataType] = {
    "boolean": types.BooleanType(),
    "tinyint": types.ByteType(),
    "byte": types.ByteType(),
    "smallint": types.ShortType(),
    "short": types.ShortType(),
    "int": types.IntegerType(),
    "integer": types.IntegerType(),
    "bigint": types.LongType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "real": types.FloatType(),
    "double": types.DoubleType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
    "timestamp_ltz": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "variant": types.VariantType(),
}
SPARK_TYPE_NAMES = f"{', '.join(ATOMIC)}, decimal(p, s), array<t>, map<k, v>, struct<name: t, ...>"


def parse_ddl(text: str) -> types.StructType:
    """The columns that `name TYPE [NOT NULL], ...` declares; a `SpecError` names the place that is not a column."""
    return struct_type(parse_columns(text))


def struct_type(columns: Sequence[DeclaredColumn]) -> types.StructType:
    return types.StructType(
        [types.StructField(column.name, spark_type(column.type), column.nullable) for column in columns]
    )


def spark_type(kind: DeclaredType) -> types.DataType:
    """The type that Spark makes of a declaration."""
    if kind.name == "decimal":
        return types.DecimalType(*decimal_digits(kind, default=(10, 0)))
    if kind.name in ATOMIC and not kind.sizes:
        return ATOMIC[kind.name]
    match kind.name, kind.parameters:
        case "struct", _:
            return struct_type(kind.fields)
        case "array", [element]:
            return types.ArrayType(spark_type(element))
        case "map", [key, value]:
            return types.MapType(spark_type(key), spark_type(value))
    count = len(kind.sizes or kind.parameters)
    raise unknown_type(f"{kind.name} of {count}" if count else kind.name, SPARK_TYPE_NAMES)
