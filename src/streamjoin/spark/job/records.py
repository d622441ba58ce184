"""Parses records into columns, and handles records that cannot be joined.

A record is malformed if it cannot be parsed, if it has NULL in a column that the schema declares NOT NULL, or if the
row that `select` makes of it has no time. `malformed = "fail"` stops the query with a message that names the record's
file or offset, which Spark knows only next to the source. `malformed = "drop"` drops the record and counts it in an
observed metric; `window_join` drops and counts rows without a time, at no extra cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from streamjoin.spark.join.metrics import MALFORMED, OBSERVATION, malformed_name
from streamjoin.spark.window_join import quoted

CORRUPT = "_streamjoin_corrupt"  # a column with the text of a record that cannot be parsed, else NULL
ORIGIN = "streamjoin origin"  # a temporary column that describes where a row comes from
PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
WHOLE, HEADER_BYTES = (
    "streamjoin_whole",
    5,
)  # an Avro record with its header: the name, and the header's bytes
_REMEDY = 'Repair it, or set malformed = "drop" to leave such rows out and count them'


def with_corrupt(columns: types.StructType) -> types.StructType:
    """The columns and CORRUPT."""
    return types.StructType([*columns.fields, types.StructField(CORRUPT, types.StringType())])


def parse_records(rows: DataFrame, form: str, columns: types.StructType) -> DataFrame:
    """Parse `value`, one JSON or CSV record per row, into `columns` and CORRUPT; keep the other columns of `rows`."""
    if form == "text":
        return rows
    others = [name for name in rows.columns if name != "value"]
    # from_csv needs its schema as text; from_json accepts text as well.
    parse = F.from_json if form == "json" else F.from_csv
    parsed = parse("value", with_corrupt(columns).toDDL(), PERMISSIVE)
    return rows.select(parsed.alias("record"), *others).select("record.*", *others)


def parse_avro(rows: DataFrame, schema: Any, confluent: bool, ids: Sequence[int]) -> DataFrame:
    """Decode `value`, an Avro record with this schema, and set CORRUPT; keep the other columns of `rows`. `confluent`:
    the record has a header with the id of its schema, which must be one of `ids` if there are any.

    The record is decoded as the last part of a larger one, whose first part is the header. Without a header, that is a
    value of no bytes. If a value cannot be decoded, all parts are NULL: a NULL header tells it from a record of NULLs.
    """
    header = {"type": "fixed", "name": f"{WHOLE}_header", "size": HEADER_BYTES if confluent else 0}
    parts = [{"name": "header", "type": header}, {"name": "record", "type": schema}]
    whole = json.dumps({"type": "record", "name": WHOLE, "fields": parts})
    others = [name for name in rows.columns if name != "value"]
    found = from_avro("value", whole, {"mode": "PERMISSIVE"})
    digits = F.hex("found.header")
    fits = (
        digits.isin(*(f"00{id:08X}" for id in ids)) if ids else digits.startswith("00" if confluent else "")
    )
    wrong = F.when(~F.coalesce(fits, F.lit(False)), F.lit("avro"))
    return rows.select(found.alias("found"), *others).select("found.record.*", wrong.alias(CORRUPT), *others)


def mistakes_of_records(rows: DataFrame, columns: types.StructType) -> dict[str, Column]:
    """The possible mistakes of a record before `select`: a description and a condition, which is never NULL."""
    found = {}
    if CORRUPT in rows.columns:
        found["a record that cannot be parsed with the schema"] = F.col(CORRUPT).isNotNull()
    for column in columns:
        if not column.nullable:
            description = f"a record with NULL in {column.name!r}, which the schema declares NOT NULL"
            found[description] = F.col(quoted(column.name)).isNull()
    return found


def reported(rows: DataFrame, mistakes: Mapping[str, Column], key: str, origin: Column) -> DataFrame:
    """The rows; a row with a mistake stops the query with a message that names its source and origin."""
    verdict = F.lit(True)
    for description, condition in reversed(list(mistakes.items())):  # the first mistake is checked first
        sentence = F.concat(F.lit(f"{key}: "), origin, F.lit(f" has {description}. {_REMEDY}"))
        verdict = F.when(condition, F.raise_error(sentence)).otherwise(verdict)
    return rows.where(verdict) if mistakes else rows


def dropped(rows: DataFrame, mistakes: Mapping[str, Column], key: str) -> DataFrame:
    """The rows without mistakes; a metric named after the source's key counts the others."""
    if not mistakes:
        return rows
    wrong = reduce(Column.__or__, mistakes.values())
    name = malformed_name(f"{OBSERVATION}_{key}")
    return rows.observe(name, F.count_if(wrong).alias(MALFORMED)).where(~wrong)


def nullable(rows: DataFrame) -> DataFrame:
    """The rows, with all columns declared nullable. `select` may change between runs on one checkpoint, and whether its
    columns can be NULL may change with it; rows must have the same type before and after."""
    if all(field.nullable for field in rows.schema):
        return rows
    nothing = F.when(F.lit(False), F.lit(None))  # the optimizer removes it
    return rows.select(*(nothing.otherwise(F.col(quoted(name))).alias(name) for name in rows.columns))
