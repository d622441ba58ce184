"""`[left]` and `[right]`: the time column of a side, and its sources, which form one stream."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, model_validator
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession, types

from streamjoin.semantics.durations import nanoseconds
from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.kafka_source import PatternError
from streamjoin.spark.job.records import nullable
from streamjoin.spark.job.shown import shown
from streamjoin.spark.job.sources import SOURCE_KINDS, AnySource
from streamjoin.spark.job.tables import OneOrMany, Table, Text, TextLines, raise_all, wrong_kind
from streamjoin.spark.window_join import quoted

TIME_TYPES = (types.TimestampType, types.TimestampNTZType, types.IntegralType)


class SideError(SpecError):
    """A mistake in a side that only a running Spark can find; `field` is a key of the side's table."""

    def __init__(self, key: str, told: str):
        super().__init__(told, field=key)


def _as_tables(value: object) -> tuple[object, ...]:
    """Read a single table as a list with one item."""
    if isinstance(value, dict):
        return (value,)
    if not isinstance(value, list) or not value:
        raise wrong_kind()
    return tuple(value)


class SideTable(Table):
    """One side of the join: its time column, and its sources, which are united."""

    choices: ClassVar[Mapping[str, Mapping[str, type[Table]]]] = {"source": SOURCE_KINDS}

    time: Text = "ts"
    """The time column."""
    shared_schema: TextLines | None = Field(None, alias="schema")
    """The columns of all sources, such as 'ts TIMESTAMP, x INT'."""
    sources: Annotated[tuple[AnySource, ...], BeforeValidator(_as_tables), OneOrMany] = Field(alias="source")
    """One or more tables, such as { kind = "files", path = "in" }."""

    @property
    def columns(self) -> types.StructType | None:
        """The columns of the side in Spark; None if only Spark knows them."""
        columns = self.sources[0].selected_columns
        if columns is None:
            return None
        return types.StructType([types.StructField(each.name, each.dataType) for each in columns])

    @model_validator(mode="after")
    def _check_columns(self) -> SideTable:
        """If the columns are known, refuse sources with different columns, and a time that is not a column."""
        known = [(at, each.selected_columns) for at, each in enumerate(self.sources) if each.selected_columns]
        problems: list[tuple[tuple[str | int, ...], SpecError]] = []
        for at, columns in known[1:]:
            if by_name(columns) != by_name(known[0][1]):
                problems.append((("source", at), SpecError(differing(columns, *known[0]))))
        if known:
            try:
                check_time(self.time, known[0][1])
            except SpecError as error:
                problems.append((("time",), error))
        raise_all(problems)
        return self

    @property
    def malformed(self) -> str:
        """What the join does with rows without a time: drop them if a source leaves that to the join, else fail."""
        return "drop" if any(each.drops_malformed for each in self.sources) else "fail"

    def load(self, spark: SparkSession, side: str, lateness: str | int) -> DataFrame:
        """The union of the sources. If there are several, each gets its own watermark, so that rows of a slow source do
        not become late. The join itself adds the watermark of a single source."""
        frames = [self._load_source(at, spark, side) for at in range(len(self.sources))]
        for at, frame in enumerate(frames):
            if by_name(frame.schema) != by_name(frames[0].schema):
                raise SideError(f"source[{at}]", differing(frame.schema, 0, frames[0].schema))
        try:
            check_time(self.time, frames[0].schema)
        except SpecError as error:
            raise SideError("time", str(error)) from None
        if len(frames) > 1 and isinstance(frames[0].schema[self.time].dataType, types.TimestampType):
            length = nanoseconds(f"{lateness} ms" if lateness == 0 else str(lateness), "lateness")
            # A millisecond more, because Spark drops a row that is exactly as late as allowed.
            delay = -(-length // 10**6) + 1
            frames = [frame.withWatermark(quoted(self.time), f"{delay} milliseconds") for frame in frames]
        return reduce(DataFrame.unionByName, frames)

    def _load_source(self, at: int, spark: SparkSession, side: str) -> DataFrame:
        """Load one source. If Spark refuses an expression, report the first line of its message."""
        key = "source" if len(self.sources) == 1 else f"source[{at}]"
        source = self.sources[at]
        try:
            return nullable(source.load(spark, f"{side}.{key}", self.time))
        except PatternError as error:
            raise SideError(f"{key}.pattern", str(error)) from None
        except (AnalysisException, ParseException) as error:
            told = str(error).strip().splitlines()[0].partition(" SQLSTATE: ")[0]
            if source.select:
                raise SideError(f"{key}.select", f"is {shown(list(source.select))}: {told}") from None
            raise SideError(key, told) from None


def check_time(name: str, columns: types.StructType) -> None:
    """Raise unless the time column exists and has a type that orders rows in time."""
    if name not in columns.names:
        raise SpecError(f"is {name!r}, which is not a column; allowed: {', '.join(columns.names)}")
    kind = columns[name].dataType
    if not isinstance(kind, TIME_TYPES):
        raise SpecError(
            f"is {name!r} of type {kind.simpleString().upper()}; allowed: TIMESTAMP, TIMESTAMP_NTZ or an integer"
        )


def differing(columns: types.StructType, first: int, others: types.StructType) -> str:
    return (
        f"has the columns {columns_text(columns)}, but source[{first}] has {columns_text(others)}: the sources of a "
        "side are united, so their columns must be the same (select renames and casts)"
    )


def by_name(columns: types.StructType) -> dict[str, types.DataType]:
    """The type of each column by name; a union needs no more to be equal."""
    return {column.name: column.dataType for column in columns}


def columns_text(columns: types.StructType) -> str:
    return ", ".join(f"{name} {kind.simpleString().upper()}" for name, kind in by_name(columns).items())
