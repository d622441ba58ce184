"""Sinks that other systems implement: any format of Spark by name, tables of its catalog, and databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import field_validator
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.database import Target
from streamjoin.spark.job.mistakes import Mistake
from streamjoin.spark.job.shown import shown, without_credentials
from streamjoin.spark.job.sinks import Need, SinkTable, Writer, unknown_columns
from streamjoin.spark.job.tables import JobPath, Settings, Text, Texts


class SparkSink(SinkTable):
    """Any format that Spark can write a stream to, by its name: Delta, Iceberg, Hudi and others."""

    checkpoint: ClassVar[Need] = "needed"

    kind: Literal["spark"]
    """A sink of any format that Spark knows."""
    format: Text
    """The format's name, such as 'delta' or 'iceberg'; its package goes to spark.packages."""
    path: JobPath | None = None
    """Where the format writes, if it is a folder."""
    partition_by: Texts = ()
    """Columns of the result; each of their values gets a folder."""
    options: Settings = {}
    """A table of options of the format, such as { mergeSchema = true }."""

    @property
    def place(self) -> str:
        return f"{self.path or ''} ({self.format})".strip()

    def check(self, columns: pa.Schema) -> Iterator[Mistake]:
        yield from unknown_columns("partition_by", self.partition_by, columns.names)

    def configured(self, writer: Writer) -> Writer:
        writer = writer.format(self.format).options(**self.options)
        writer = writer if self.path is None else writer.option("path", self.path)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer


class TableSink(SinkTable):
    """A table of Spark's catalog, which is created if it is missing."""

    checkpoint: ClassVar[Need] = "needed"

    kind: Literal["table"]
    """A sink that adds rows to a table of the catalog."""
    table: Text
    """The table's name, such as 'lake.trades.matched'."""
    format: Text | None = None
    """The format of a table that is created, such as 'parquet'; by default that of the catalog."""
    partition_by: Texts = ()
    """Columns of the result that partition a table that is created."""
    options: Settings = {}
    """A table of options of the table's format."""

    @property
    def place(self) -> str:
        return self.table

    def check(self, columns: pa.Schema) -> Iterator[Mistake]:
        yield from unknown_columns("partition_by", self.partition_by, columns.names)

    def configured(self, writer: Writer) -> Writer:
        writer = writer.options(**self.options)
        writer = writer if self.format is None else writer.format(self.format)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def started(self, writer: DataStreamWriter) -> StreamingQuery:
        return writer.toTable(self.table)

    def write_batch(self, results: DataFrame, number: int) -> None:
        """Add the rows of one micro-batch."""
        self.configured(results.write).mode("append").saveAsTable(self.table)


class JdbcSink(SinkTable):
    """A table of a database, which holds every row exactly once."""

    checkpoint: ClassVar[Need] = "needed"

    kind: Literal["jdbc"]
    """A sink that writes to a database through JDBC; the driver goes to spark.packages."""
    url: Text
    """The database, such as 'jdbc:postgresql://localhost/trades'."""
    table: Text
    """The table's name; it is created if it is missing."""
    key: Texts = ()
    """Columns that identify a row: a result replaces the one with the same values. Without them, results are added."""
    options: Settings = {}
    """A table of options of Spark's JDBC source, such as { user = "joiner", password = "..." }."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if not url.startswith("jdbc:"):
            raise SpecError(f"is {shown(url)}; allowed: a URL such as 'jdbc:postgresql://host/database'")
        return url

    @property
    def place(self) -> str:
        return f"{self.table} at {without_credentials(self.url)}"

    def check(self, columns: pa.Schema) -> Iterator[Mistake]:
        flat = [field.name for field in columns if not pa.types.is_nested(field.type)]
        yield from unknown_columns("key", self.key, flat)
        for field in columns:
            if field.name not in flat:
                column = f"{shown(field.name)} of type {field.type}"
                told = f"is 'jdbc', which cannot hold the column {column}: leave it out with join.columns"
                yield "kind", told
                return

    def write(self, results: DataFrame) -> DataStreamWriter:
        return results.writeStream.foreachBatch(self.write_batch)

    def write_batch(self, results: DataFrame, number: int) -> None:
        """Write the rows of one micro-batch, unless the database has them."""
        Target(self.url, self.table, self.key, self.options).write(results, number)
