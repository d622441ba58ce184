"""Avro schemas in a job file: given as JSON or as a file, checked, and turned into the columns that Spark makes of
them.

Spark decodes the values; the types here are those of its own conversion, so that a predicate can be checked before
Spark runs. A registry of schemas is never asked.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import types

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.paths import is_remote, local_path
from streamjoin.spark.job.shown import shown

AvroHeader = Literal["none", "confluent"]
MAX_ID = 2**31 - 1  # of a schema in such a header
MAX_SCHEMA = 1 << 20  # bytes of a file
MAX_LEVELS = 64  # levels of types in types
FORM = "an Avro schema of a record as JSON, or a file of this machine that holds one"
PRIMITIVES: Mapping[str, types.DataType] = {
    "null": types.NullType(),
    "boolean": types.BooleanType(),
    "int": types.IntegerType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "bytes": types.BinaryType(),
    "string": types.StringType(),
}
LOGICAL: Mapping[tuple[str, str], types.DataType] = {
    ("int", "date"): types.DateType(),
    ("long", "timestamp-millis"): types.TimestampType(),
    ("long", "timestamp-micros"): types.TimestampType(),
    ("long", "local-timestamp-millis"): types.TimestampNTZType(),
    ("long", "local-timestamp-micros"): types.TimestampNTZType(),
}
# Unions of two numbers that Spark reads as one type.
ONE_NUMBER: Mapping[frozenset[str], types.DataType] = {
    frozenset({"int", "long"}): types.LongType(),
    frozenset({"float", "double"}): types.DoubleType(),
}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_PRECISION = 38  # digits of a decimal in Spark


class AvroColumns(types.StructType):
    """The columns of a record, and the schema that Spark decodes it with."""

    def __init__(self, fields: list[types.StructField], schema: Any):
        super().__init__(fields)
        self.schema = schema


def avro_columns(given: str, folder: Path | None) -> AvroColumns:
    """The columns of a schema: JSON, or the path of a file, relative to the folder."""
    text = given if given.lstrip()[:1] in ("{", "[", '"') else _file_text(given, folder)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"is {shown(given)}, which is not JSON ({error}): give {FORM}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SpecError(f"is {shown(given)}, which is not a record: give {FORM}")
    try:
        record = _Reader().read(schema, "", 0)
    except SpecError as error:
        raise SpecError(f"is {shown(given)}, in which {error}") from None
    assert isinstance(record, types.StructType)
    return AvroColumns(record.fields, schema)


def _file_text(given: str, folder: Path | None) -> str:
    """The text of a schema's file."""
    if is_remote(given):
        raise SpecError(f"is {shown(given)}, which cannot be read before Spark runs: give {FORM}")
    path = local_path(given, folder) if folder is not None else given
    try:
        if os.path.getsize(path) > MAX_SCHEMA:
            raise SpecError(f"is {shown(given)}, which has over {MAX_SCHEMA:,} bytes: give {FORM}")
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SpecError(f"is {shown(given)}, which cannot be read ({why}): give {FORM}") from None


class _Reader:
    """Reads types, and knows the names that were defined on the way."""

    def __init__(self) -> None:
        self._named: dict[str, types.DataType | None] = {}  # None while a record is read
        self._kinds: Mapping[str, Callable[[dict[str, Any], str, int], types.DataType]] = {
            "record": self._record,
            "enum": self._enum,
            "fixed": self._fixed,
            "array": self._array,
            "map": self._map,
        }

    def read(self, schema: Any, space: str, depth: int) -> types.DataType:
        """The type of a schema; names without a dot belong to the namespace `space`."""
        if depth > MAX_LEVELS:
            raise SpecError(f"types have more than {MAX_LEVELS} levels")
        if isinstance(schema, list):
            return self._union(schema, space, depth)
        if isinstance(schema, str):
            return PRIMITIVES[schema] if schema in PRIMITIVES else self._known(schema, space)
        if not isinstance(schema, dict):
            raise SpecError(f"{shown(schema)} is not a type")
        kind = schema.get("type")
        if isinstance(kind, str) and kind in self._kinds:
            return self._kinds[kind](schema, space, depth + 1)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return _decimal_type(schema) or LOGICAL.get((kind, _logical(schema)), PRIMITIVES[kind])
        if not isinstance(kind, str):
            raise SpecError(f"{shown(schema)} has no type")
        return self._known(kind, space)

    def _known(self, name: str, space: str) -> types.DataType:
        for full in (_full(name, space), name):
            if full in self._named:
                if (found := self._named[full]) is None:
                    raise SpecError(f"the record {name!r} contains itself, which Spark has no type for")
                return found
        allowed = ", ".join([*PRIMITIVES, *self._kinds])
        raise SpecError(f"{name!r} is neither a type nor the name of one; types: {allowed}")

    def _named_type(self, schema: dict[str, Any], space: str) -> tuple[str, str]:
        """The full name that a schema defines, and the namespace of names in it."""
        name = schema.get("name")
        if not isinstance(name, str) or not all(map(NAME.fullmatch, name.split("."))):
            raise SpecError(f"a {schema['type']} has the name {shown(name)}; allowed: letters, digits and _")
        full = _full(name, schema.get("namespace", space) or "")
        if full in self._named:
            raise SpecError(f"{full!r} is defined twice")
        return full, full.rpartition(".")[0]

    def _record(self, schema: dict[str, Any], space: str, depth: int) -> types.DataType:
        full, inner = self._named_type(schema, space)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            raise SpecError(f"the record {full!r} has no fields")
        self._named[full] = None
        columns: list[types.StructField] = []
        for each in fields:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise SpecError(f"a field of {full!r} has the name {shown(name)}")
            if any(name == column.name for column in columns):
                raise SpecError(f"{full!r} has two fields {name!r}")
            columns.append(types.StructField(name, self.read(each.get("type"), inner, depth)))
        made = self._named[full] = types.StructType(columns)
        return made

    def _enum(self, schema: dict[str, Any], space: str, depth: int) -> types.DataType:
        full, _ = self._named_type(schema, space)
        self._named[full] = PRIMITIVES["string"]
        return PRIMITIVES["string"]

    def _fixed(self, schema: dict[str, Any], space: str, depth: int) -> types.DataType:
        full, _ = self._named_type(schema, space)
        if not isinstance(schema.get("size"), int):
            raise SpecError(f"the fixed {full!r} has no size")
        made = self._named[full] = _decimal_type(schema) or PRIMITIVES["bytes"]
        return made

    def _array(self, schema: dict[str, Any], space: str, depth: int) -> types.DataType:
        return types.ArrayType(self.read(schema.get("items"), space, depth))

    def _map(self, schema: dict[str, Any], space: str, depth: int) -> types.DataType:
        return types.MapType(PRIMITIVES["string"], self.read(schema.get("values"), space, depth))

    def _union(self, members: list[Any], space: str, depth: int) -> types.DataType:
        """Of one type and null that type; of several a struct with a field for each, as Spark has it."""
        others = [each for each in members if each != "null"]
        if any(isinstance(each, list) for each in others) or not members:
            raise SpecError(f"the union {shown(members)} is empty or has a union in it")
        found = [self.read(each, space, depth + 1) for each in others]
        if len(found) == 1:
            return found[0]
        kinds = frozenset(each if isinstance(each, str) else "" for each in others)
        if kinds in ONE_NUMBER:
            return ONE_NUMBER[kinds]
        return types.StructType([types.StructField(f"member{at}", kind) for at, kind in enumerate(found)])


def _full(name: str, space: Any) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _logical(schema: dict[str, Any]) -> str:
    return str(schema.get("logicalType", ""))


def _decimal_type(schema: dict[str, Any]) -> types.DataType | None:
    """The type of a decimal, which bytes and fixed can be."""
    if _logical(schema) != "decimal" or schema["type"] not in ("bytes", "fixed"):
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        raise SpecError(f"a decimal has the precision {shown(precision)} and the scale {shown(scale)}")
    if not 0 < precision <= MAX_PRECISION:
        raise SpecError(f"a decimal has {precision} digits; allowed: {MAX_PRECISION}")
    return types.DecimalType(precision, scale)
