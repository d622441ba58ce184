"""Result rows on their way to Spark: pandas holds them, and neither it nor Spark touches a value."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from streamjoin.spark import window_join
from streamjoin.spark.join.frames import output_frame, result_values
from streamjoin.spark.join.pack import COUNTS_COLUMN, ROWS_COLUMN

FAR = 10**18  # microseconds: the year 33658, which Python's own datetimes do not reach
INSTANT = pa.timestamp("us", "UTC")
COLUMNS = {
    "number": pa.array([1, None, 3], pa.int32()),
    "text": pa.array(["a", None, "ccc"]),
    "bytes": pa.array([b"a", None, b"ccc"]),
    "flag": pa.array([True, None, False]),
    "amount": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(10, 2)),
    "day": pa.array([1, None, 3], pa.int32()).cast(pa.date32()),
    "instant": pa.array([FAR, None, 3], INSTANT),
    "moment": pa.array([FAR, None, 3], pa.timestamp("us")),
    "lasts": pa.array([FAR, None, 3], pa.duration("us")),
    "instants": pa.array([[FAR, None], None, []], pa.list_(INSTANT)),
    "place": pa.array(
        [{"x": 1, "at": FAR}, None, {"x": None, "at": 3}], pa.struct({"x": pa.int64(), "at": INSTANT})
    ),
    "named": pa.array([[("a", FAR)], None, []], pa.map_(pa.string(), INSTANT)),
}


def through_spark(frame, schema, timezone="UTC"):
    """What Spark makes of a DataFrame that a stateful operator gives: its two columns."""
    rows = StructField(ROWS_COLUMN, ArrayType(from_arrow_schema(schema), containsNull=False))
    output = StructType(
        [StructField("_0", StructType([rows, StructField(COUNTS_COLUMN, ArrayType(LongType()))]))]
    )
    made = PandasToArrowConversion.convert(
        [frame], output, timezone=timezone, arrow_cast=True, assign_cols_by_name=True
    )
    return made.column(0).flatten()


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin"])
def test_results_of_any_type_reach_spark_as_they_are(name, timezone):
    schema = pa.schema([pa.field("first", pa.int64(), nullable=False), pa.field(name, COLUMNS[name].type)])
    given = pa.record_batch([pa.array([1, 2, 3]), COLUMNS[name]], names=schema.names)
    rows, told = through_spark(output_frame(result_values(schema, given, 1 << 18)), schema, timezone)
    assert (len(rows), told.null_count) == (1, 1)
    made = pa.RecordBatch.from_struct_array(rows.flatten()).column(name)
    assert made.cast(COLUMNS[name].type).equals(COLUMNS[name])
    assert made.buffers()[-1].address == COLUMNS[name].buffers()[-1].address  # without a copy


def test_many_results_are_cut_into_values_that_follow_each_other():
    schema = pa.schema({"x": pa.int64()})
    given = pa.record_batch([pa.array(range(25))], schema=schema)
    rows, told = through_spark(output_frame(result_values(schema, given, 80), [7, 8]), schema)
    assert [len(value) for value in rows] == [10, 10, 5]
    assert told.to_pylist() == [None, None, [7, 8]]  # with the last of them
    assert [row["x"] for value in rows.to_pylist() for row in value] == list(range(25))


def test_what_a_worker_tells_comes_without_rows_if_there_are_none():
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    rows, told = through_spark(output_frame(result_values(schema, None, 1 << 18), [7, 8]), schema)
    assert (rows.to_pylist(), told.to_pylist()) == ([None], [[7, 8]])


def test_results_have_the_types_of_their_sides_to_the_last_nullability(spark):
    """A plan of streams that is not run."""
    exact = ArrayType(StructType([StructField("a", LongType(), False)]), containsNull=False)
    fields = [
        StructField("ts", LongType(), False),
        StructField("x", LongType()),
        StructField("n", exact, False),
    ]
    schema = StructType(fields)
    side = spark.readStream.format("rate").load().mapInArrow(lambda batches: batches, schema)
    joined = window_join(
        side, side, "left.x = right.x", window=5, left_time="ts", right_time="ts", how="left", lateness=0
    )
    others = [StructField(f"{field.name}_right", field.dataType) for field in fields]
    assert joined.schema == StructType([*fields, *others])
