"""The session's limit on the bytes of a batch for Python: lifted where rows have a fixed width, and never otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from streamjoin.plan.options import Options
from streamjoin.plan.routing import Routing
from streamjoin.plan.spark_tuning import SparkTuning
from streamjoin.spark import window_join
from streamjoin.spark.batch_limit import BATCH_BYTES, BATCH_ROWS, NO_LIMIT, OURS, has_small_rows
from streamjoin.spark.join.pack import decode, packer
from streamjoin.spark.join.task import JoinTask

NARROW, TEXT = "timestamp AS ts, value AS x", "timestamp AS ts, value AS x, CAST(value AS STRING) AS text"
SCHEMA = pa.schema({"ts": pa.timestamp("us", "UTC"), "x": pa.int64()})


@pytest.fixture
def bare(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of the tests without settings of batches."""
    names = (BATCH_BYTES, BATCH_ROWS, OURS)
    before = {name: spark.conf.get(name, None) for name in names}
    for name in names:
        spark.conf.unset(name)
    yield spark
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def joined(spark: SparkSession, columns: str, streaming: bool = True) -> DataFrame:
    table = spark.sql("SELECT TIMESTAMP '2026-01-01 00:00:00' AS timestamp, 1L AS value")
    frame = (spark.readStream.format("rate").load() if streaming else table).selectExpr(*columns.split(", "))
    return window_join(
        *(frame, frame, "left.x = right.x"),
        window="10 seconds",
        left_time="ts",
        right_time="ts",
        lateness="1 second",
        workers=2,
    )


def limit(spark: SparkSession) -> str | None:
    value: str | None = spark.conf.get(BATCH_BYTES, None)
    return value


def test_rows_of_a_fixed_width_need_no_limit(bare: SparkSession, caplog: Any):
    joined(bare, NARROW)
    joined(bare, NARROW)
    assert limit(bare) == NO_LIMIT
    (said,) = (r.getMessage() for r in caplog.records if "no limit" in r.getMessage())
    assert BATCH_BYTES in said


def test_rows_with_text_bring_the_limit_back_for_good(bare: SparkSession):
    joined(bare, NARROW)
    joined(bare, TEXT)
    assert limit(bare) is None
    joined(bare, NARROW)
    assert limit(bare) is None, "the join with text may start after it"


def test_tables_lift_nothing_and_bring_the_limit_back(bare: SparkSession):
    joined(bare, NARROW, streaming=False)
    assert limit(bare) is None
    joined(bare, NARROW)
    joined(bare, TEXT, streaming=False)
    assert limit(bare) is None


@pytest.mark.parametrize("own", ["1048576", NO_LIMIT])
def test_a_limit_of_the_program_stays(bare: SparkSession, own: str):
    bare.conf.set(BATCH_BYTES, own)
    joined(bare, NARROW)
    joined(bare, TEXT)
    assert limit(bare) == own and bare.conf.get(OURS, None) is None


@pytest.mark.parametrize("rows", ["0", "-1", "10001"])
def test_batches_of_any_number_of_rows_keep_the_limit(bare: SparkSession, rows: str):
    bare.conf.set(BATCH_ROWS, rows)
    joined(bare, NARROW)
    assert limit(bare) is None


def task_of(right: pa.Schema, tuning: SparkTuning | None = None) -> JoinTask:
    spec = sj.JoinSpec(SCHEMA, right, "left.x = right.x", sj.TimeWindow("10 s"), "ts", "ts")
    return JoinTask(spec, Options(engine="spark"), Routing("hash", 2), tuning=tuning or SparkTuning())


@pytest.mark.parametrize(
    ("kind", "small"),
    [
        (pa.float32(), True),
        (pa.decimal128(38, 2), True),
        (pa.struct({"a": pa.int8(), "b": pa.bool_()}), True),
        (pa.string(), False),
        (pa.list_(pa.int8()), False),
        (pa.struct({"a": pa.binary()}), False),
    ],
)
def test_small_rows(kind: pa.DataType, small: bool):
    assert has_small_rows(task_of(SCHEMA.append(pa.field("more", kind))), 10_000) is small


def test_many_columns_are_not_small():
    many = [pa.field(f"c{number}", pa.int8()) for number in range(31)]
    assert not has_small_rows(task_of(pa.schema([*SCHEMA, *many])), 10_000)


def test_parcels_are_cut_and_hold_the_same_rows():
    count = 5_000
    batch = pa.record_batch(
        [pa.array(np.arange(count), pa.timestamp("us", "UTC")), np.arange(count)], schema=SCHEMA
    )
    whole, cut = (
        next(packer(task_of(SCHEMA, tuning), "left")(iter([batch])))
        for tuning in (SparkTuning(), SparkTuning(parcel_value_bytes=8_000))
    )
    assert whole.num_rows == 2 and cut.num_rows == 11  # 80,000 bytes, cut for each worker
    assert max(len(value) for value in cut.column("rows").to_pylist()) < 10_000

    def held(parcels: pa.RecordBatch) -> dict[int, list[Any]]:
        """The rows for each worker."""
        found: dict[int, list[Any]] = {}
        for worker, value in zip(parcels.column("worker").to_pylist(), parcels.column("rows"), strict=True):
            found.setdefault(worker, []).extend(decode(value.as_buffer()).to_pylist())
        return found

    assert held(cut) == held(whole)
