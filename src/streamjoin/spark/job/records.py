"""Records parsed into columns, and what happens to those that cannot be joined.

A record is malformed if it cannot be parsed, if it has NULL in a column that the schema declares NOT NULL, or if the
row that `select` makes of it has no time. `malformed = "fail"` stops the query with a message that names the record's
file or offset, which Spark knows only here, next to the source. `malformed = "drop"` leaves the record out and counts
it: records here, as an observed metric; rows without a time in `window_join`, where counting costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F

from streamjoin.spark.join.metrics import MALFORMED, OBSERVATION, malformed_name
from streamjoin.spark.window_join import quoted

CORRUPT = "_streamjoin_corrupt"  # the text of a record that cannot be parsed, else NULL
ORIGIN = "streamjoin origin"  # a temporary column: where a row comes from, in words
PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
_REMEDY = 'Repair it, or set malformed = "drop" to leave such rows out and count them'


def with_corrupt(columns: types.StructType) -> types.StructType:
    """The columns, and CORRUPT for records that cannot be parsed."""
    return types.StructType([*columns.fields, types.StructField(CORRUPT, types.StringType())])


def parse_records(rows: DataFrame, form: str, columns: types.StructType) -> DataFrame:
    """`value`, one record of JSON or CSV per row, parsed into `columns` and CORRUPT; other columns of `rows` follow."""
    if form == "text":
        return rows
    others = [name for name in rows.columns if name != "value"]
    # from_csv takes a schema as text, and so does from_json.
    parse = F.from_json if form == "json" else F.from_csv
    parsed = parse("value", with_corrupt(columns).toDDL(), PERMISSIVE)
    return rows.select(parsed.alias("record"), *others).select("record.*", *others)


def mistakes_of_records(rows: DataFrame, columns: types.StructType) -> dict[str, Column]:
    """What can be wrong with a record before `select`: the words, and the condition, which is never NULL."""
    found = {}
    if CORRUPT in rows.columns:
        found["a record that cannot be parsed with the schema"] = F.col(CORRUPT).isNotNull()
    for column in columns:
        if not column.nullable:
            told = f"a record with NULL in {column.name!r}, which the schema declares NOT NULL"
            found[told] = F.col(quoted(column.name)).isNull()
    return found


def reported(rows: DataFrame, mistakes: Mapping[str, Column], key: str, origin: Column) -> DataFrame:
    """The rows; one with a mistake stops the query with a message that names the source and the row's origin."""
    verdict = F.lit(True)
    for told, condition in reversed(list(mistakes.items())):  # the first mistake is the outermost condition
        sentence = F.concat(F.lit(f"{key}: "), origin, F.lit(f" has {told}. {_REMEDY}"))
        verdict = F.when(condition, F.raise_error(sentence)).otherwise(verdict)
    return rows.where(verdict) if mistakes else rows


def dropped(rows: DataFrame, mistakes: Mapping[str, Column], key: str) -> DataFrame:
    """The rows without mistakes; the others are counted in a metric named after the source's key."""
    if not mistakes:
        return rows
    wrong = reduce(Column.__or__, mistakes.values())
    name = malformed_name(f"{OBSERVATION}_{key}")
    return rows.observe(name, F.count_if(wrong).alias(MALFORMED)).where(~wrong)


def nullable(rows: DataFrame) -> DataFrame:
    """The rows, with every column declared nullable. `select` may change while a checkpoint is used, and with it what
    Spark knows about NULL; the rows before and after the change must have one type."""
    if all(field.nullable for field in rows.schema):
        return rows
    nothing = F.when(F.lit(False), F.lit(None))  # which the optimizer removes
    return rows.select(*(nothing.otherwise(F.col(quoted(name))).alias(name) for name in rows.columns))
