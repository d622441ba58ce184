"""Sources that generate rows: Spark's counter, and the papers' benchmark."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, Strict
from pyspark.sql import DataFrame, SparkSession, types

from streamjoin.spark.job.ddl import parse_ddl
from streamjoin.spark.job.source_table import SourceTable
from streamjoin.spark.job.tables import MAX_WHOLE, Whole

# Uniform values of 1..10000 by a hash of the row's number: the same rows on every run and after every restart.
_INTEGER = "CAST(1 + pmod(xxhash64(value, {seed}L, '{name}'), 10000) AS INT) AS {name}"
_REAL = (
    "CAST(1 + 9999 * (pmod(xxhash64(value, {seed}L, '{name}'), 9007199254740992L) / 9007199254740992D)"
    " AS {type}) AS {name}"
)
_WORD = (
    "left(translate(md5(concat_ws('-', value, {seed}, '{name}')), '0123456789', 'ghijklmnop'), 20) AS {name}"
)
_COIN = "pmod(xxhash64(value, {seed}L, '{name}'), 2) = 1 AS {name}"
BENCHMARK: dict[str, tuple[str, dict[str, str]]] = {
    "left": ("ts TIMESTAMP, x INT, y FLOAT, z STRING", {"x": _INTEGER, "y": _REAL, "z": _WORD}),
    "right": (
        "ts TIMESTAMP, a INT, b FLOAT, c DOUBLE, d BOOLEAN",
        {"a": _INTEGER, "b": _REAL, "c": _REAL, "d": _COIN},
    ),
}
STREAM_START = "TIMESTAMP '2000-01-01 00:00:00+00:00'"


class RateSource(SourceTable):
    """Spark's own counter, for experiments: columns `timestamp` (now) and `value` (0, 1, 2, ...)."""

    kind: Literal["rate"]
    """A source that counts."""
    rows_per_second: Whole = 1
    """How many rows Spark generates each second."""

    columns: ClassVar[types.StructType] = parse_ddl("timestamp TIMESTAMP, value BIGINT")

    @property
    def place(self) -> str:
        return f"of {self.rows_per_second} rows/s"

    def read_rows(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("rate").option("rowsPerSecond", self.rows_per_second).load()


class GeneratorSource(SourceTable):
    """The papers' benchmark (Teubner & Mueller 2011, section 6): R(ts, x, y, z) on the left, S(ts, a, b, c, d) on the
    right, with uniform values of 1 to 10,000."""

    kind: Literal["generator"]
    """A source that generates the papers' benchmark."""
    rows_per_second: Whole = 1000
    """Rows per second of stream time, which is real time unless rows_per_batch is given."""
    rows_per_batch: Whole | None = None
    """How many rows each micro-batch gets; micro-batches then follow without a pause."""
    seed: Annotated[int, Strict(), Field(ge=0, le=MAX_WHOLE)] = 1
    """A seed: the same seed gives the same rows."""

    _side: str = PrivateAttr("left")

    def model_post_init(self, context: Any) -> None:
        if context is not None:
            self._side = context.side

    @property
    def columns(self) -> types.StructType:
        return parse_ddl(BENCHMARK[self._side][0])

    @property
    def place(self) -> str:
        return f"of {self.rows_per_second} rows/s"

    def read_rows(self, spark: SparkSession) -> DataFrame:
        return benchmark_rows(spark, self._side, self.rows_per_second, self.rows_per_batch, self.seed)


def benchmark_rows(
    spark: SparkSession, side: str, rows_per_second: int, rows_per_batch: int | None, seed: int
) -> DataFrame:
    """One side of the papers' benchmark as a stream."""
    if rows_per_batch is None:
        rows = spark.readStream.format("rate").option("rowsPerSecond", rows_per_second).load()
        time = "timestamp AS ts"
    else:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch).load()
        time = f"{STREAM_START} + make_dt_interval(0, 0, 0, value / {rows_per_second}BD) AS ts"
    # With the same seed, the two sides would have the same numbers under other names.
    seed = 2 * seed + (side == "right")
    columns, expressions = BENCHMARK[side]
    kinds = {column.name: column.dataType.simpleString() for column in parse_ddl(columns)}
    values = [
        expression.format(name=name, seed=seed, type=kinds[name]) for name, expression in expressions.items()
    ]
    return rows.selectExpr(time, *values)
