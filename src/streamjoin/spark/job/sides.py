"""One side of a job: `[left]` or `[right]`, its time column and the sources that are united into one stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession, types

from streamjoin.semantics.durations import nanoseconds
from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.records import nullable
from streamjoin.spark.job.shown import shown
from streamjoin.spark.job.sources import Input, PatternError
from streamjoin.spark.job.toml import TomlTable
from streamjoin.spark.window_join import quoted

TIMESTAMPS = (types.TimestampType, types.TimestampNTZType)


class SideError(SpecError):
    """What only a running Spark could find wrong with a side; `key` is one of its table."""

    def __init__(self, key: str, told: str):
        self.key = key
        super().__init__(told)


@dataclass(frozen=True)
class Side:
    """`[left]` or `[right]`: the time column and the sources, which are united."""

    time: str
    inputs: tuple[Input, ...]

    @classmethod
    def read(cls, table: TomlTable, folder: Path, side: str) -> Side:
        wanted = "the columns of all sources, such as 'ts TIMESTAMP, x INT'"
        schema = table.text("schema", wanted, None, lines=True)
        tables = table.tables("source", f"at least one table [[{side}.source]]")
        inputs = [Input.read(source, folder, schema, side) for source in tables]
        read = cls(table.text("time", "the time column", "ts"), tuple(i for i in inputs if i is not None))
        read.check_columns(table)
        return read

    @property
    def columns(self) -> types.StructType | None:
        """The columns of the side, if the file alone tells them."""
        return self.inputs[0].columns if self.inputs else None

    def check_columns(self, table: TomlTable) -> None:
        """Complain if the sources differ in their columns, or the time column is none, as far as the file tells."""
        told = [(at, each.columns) for at, each in enumerate(self.inputs) if each.columns]
        for at, columns in told[1:]:
            if plain(columns) != plain(told[0][1]):
                table.complain(f"source[{at}]", differing(columns, *told[0]))
        if told:
            table.checked("time", lambda: check_time(self.time, told[0][1]), None)

    @property
    def malformed(self) -> str:
        """What the join does with rows without a time: drop them if a source lets them through to be dropped."""
        return "drop" if any(each.source.malformed == "drop" for each in self.inputs) else "fail"

    def load(self, spark: SparkSession, side: str, lateness: str | int) -> DataFrame:
        """The union of the sources. Of several, each gets a watermark of its own, so that a slow one holds the join
        back and does not become late; `window_join` gives a single one what it needs."""
        frames = [self.load_source(at, spark, side) for at in range(len(self.inputs))]
        for at, frame in enumerate(frames):
            if plain(frame.schema) != plain(frames[0].schema):
                raise SideError(f"source[{at}]", differing(frame.schema, 0, frames[0].schema))
        try:
            check_time(self.time, frames[0].schema)
        except SpecError as error:
            raise SideError("time", str(error)) from None
        if len(frames) > 1 and isinstance(frames[0].schema[self.time].dataType, types.TimestampType):
            # A millisecond more, because Spark drops a row that is exactly as late as allowed.
            delay = (
                -(-nanoseconds(f"{lateness} ms" if lateness == 0 else str(lateness), "lateness") // 10**6) + 1
            )
            frames = [frame.withWatermark(quoted(self.time), f"{delay} milliseconds") for frame in frames]
        return reduce(DataFrame.unionByName, frames)

    def load_source(self, at: int, spark: SparkSession, side: str) -> DataFrame:
        """One of the sources; of what Spark says of an expression it does not know, the sentence."""
        key = "source" if len(self.inputs) == 1 else f"source[{at}]"
        try:
            return nullable(self.inputs[at].load(spark, f"{side}.{key}", self.time))
        except PatternError as error:
            raise SideError(f"{key}.pattern", str(error)) from None
        except (AnalysisException, ParseException) as error:
            told = str(error).strip().splitlines()[0].partition(" SQLSTATE: ")[0]
            if select := self.inputs[at].select:
                raise SideError(f"{key}.select", f"is {shown(list(select))}: {told}") from None
            raise SideError(key, told) from None


def check_time(name: str, columns: types.StructType) -> None:
    """Raise unless the time column is there and of a type that has an order in time."""
    if name not in columns.names:
        raise SpecError(f"is {name!r}, which is no column; allowed: {', '.join(columns.names)}")
    kind = columns[name].dataType
    if not isinstance(kind, (*TIMESTAMPS, types.IntegralType)):
        raise SpecError(
            f"is {name!r} of type {kind.simpleString().upper()}; allowed: TIMESTAMP, TIMESTAMP_NTZ or a whole number"
        )


def differing(columns: types.StructType, first: int, others: types.StructType) -> str:
    return (
        f"has the columns {described(columns)}, but source[{first}] has {described(others)}: sources of a side "
        "are united, so they must agree (select renames and casts)"
    )


def plain(columns: types.StructType) -> dict[str, types.DataType]:
    """Names and types, without what does not matter to a union."""
    return {column.name: column.dataType for column in columns}


def described(columns: types.StructType) -> str:
    return ", ".join(f"{name} {kind.simpleString().upper()}" for name, kind in plain(columns).items())
