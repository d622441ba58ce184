"""Sources that make their rows themselves: Spark's counter, and the papers' benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession, types

from streamjoin.spark.job.ddl import parse_ddl
from streamjoin.spark.job.toml import TomlTable


@dataclass(frozen=True)
class RateSource:
    """Spark's own counter: `timestamp` (now) and `value` (0, 1, 2, ...)."""

    kind: ClassVar[str] = "rate"
    origin: ClassVar[str] = "'the stream'"
    malformed: ClassVar[str] = "fail"
    columns: ClassVar[types.StructType] = parse_ddl("timestamp TIMESTAMP, value BIGINT")
    rows_per_second: int

    @classmethod
    def read(cls, table: TomlTable, folder: Path, schema: str | None, side: str) -> RateSource:
        return cls(table.whole("rows_per_second", "rows each second", 1))

    @property
    def place(self) -> str:
        return f"of {self.rows_per_second} rows/s"

    def load(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("rate").option("rowsPerSecond", self.rows_per_second).load()


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


@dataclass(frozen=True)
class GeneratorSource:
    """The papers' benchmark (Teubner & Mueller 2011, section 6): R(x, y, z) on the left, S(a, b, c, d) on the right.

    `ts` advances by `rows_per_second`, in real time; with `rows_per_batch`, as fast as the query takes the rows.
    """

    kind: ClassVar[str] = "generator"
    origin: ClassVar[str] = "'the stream'"
    malformed: ClassVar[str] = "fail"
    side: str
    rows_per_second: int
    rows_per_batch: int | None
    seed: int

    @classmethod
    def read(cls, table: TomlTable, folder: Path, schema: str | None, side: str) -> GeneratorSource:
        return cls(
            side,
            table.whole("rows_per_second", "rows each second of stream time", 1000),
            table.whole("rows_per_batch", "rows each micro-batch, whatever the real time", None),
            table.whole("seed", "the same one gives the same rows", 1, least=0),
        )

    @property
    def columns(self) -> types.StructType:
        return parse_ddl(BENCHMARK[self.side][0])

    @property
    def place(self) -> str:
        return f"of {self.rows_per_second} rows/s"

    def load(self, spark: SparkSession) -> DataFrame:
        if self.rows_per_batch is None:
            rows = spark.readStream.format("rate").option("rowsPerSecond", self.rows_per_second).load()
            time = "timestamp AS ts"
        else:
            rows = (
                spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self.rows_per_batch).load()
            )
            time = f"{STREAM_START} + make_dt_interval(0, 0, 0, value / {self.rows_per_second}BD) AS ts"
        # The two sides must not be the same numbers under other names.
        seed = 2 * self.seed + (self.side == "right")
        kinds = {column.name: column.dataType.simpleString() for column in self.columns}
        values = [
            expression.format(name=name, seed=seed, type=kinds[name])
            for name, expression in BENCHMARK[self.side][1].items()
        ]
        return rows.selectExpr(time, *values)
