"""Sinks, which write results and late rows: one model per kind.

A files sink has every row exactly once, even after failures: Spark commits its files with the micro-batch. Kafka
gets every row at least once: after a crash, the last micro-batch is written again.

A Spark query has one sink. A job with two (`[sink]` and `[late]`) writes each micro-batch to one after the other, by
`write_batch`. Each keeps its guarantee: the log of a files sink names the micro-batches it has, so that one which
runs again is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

import pyarrow as pa
from pydantic import field_validator
from pyspark.sql import DataFrame, types
from pyspark.sql import functions as F
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.kafka_source import Servers, brokers
from streamjoin.spark.job.mistakes import Mistake
from streamjoin.spark.job.shown import shown
from streamjoin.spark.job.sources import FileFormat
from streamjoin.spark.job.tables import Flag, JobPath, Settings, Table, Text, Texts, Whole
from streamjoin.spark.window_join import quoted

# Unicode has symbols for the first 32 control characters and for delete; others become the replacement character.
CONTROLS = (
    {at: chr(0x2400 + at) for at in range(32)} | {0x7F: "\u2421"} | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
)
HAS_TEXT = (types.StringType, types.ArrayType, types.MapType, types.StructType, types.VariantType)

Need = Literal["needed", "possible", "impossible"]
Writer = TypeVar("Writer", DataStreamWriter, DataFrameWriter)


class SinkTable(Table):
    """A place for results. `checkpoint` says whether a query with this sink needs a checkpoint, may have one, or cannot
    resume from one."""

    checkpoint: ClassVar[Need]

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...

    @property
    def place(self) -> str:
        """Where results go, for messages."""
        return ""

    def check(self, columns: pa.Schema) -> Iterator[Mistake]:
        """Mistakes that depend on the columns of the result."""
        return iter(())

    def prepared(self, results: DataFrame) -> DataFrame:
        """The rows in the form that this sink writes."""
        return results

    def configured(self, writer: Writer) -> Writer:
        """A writer of a stream or of a table, with this sink's format and options."""
        raise NotImplementedError

    def write(self, results: DataFrame) -> DataStreamWriter:
        """A writer of the stream that is ready to be started."""
        return self.configured(self.prepared(results).writeStream)

    def started(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query of a writer that `write` returned."""
        return writer.start()

    def write_batch(self, results: DataFrame, number: int) -> None:
        """Write the rows of one micro-batch."""
        self.configured(self.prepared(results).write).mode("append").save()


class FilesSink(SinkTable):
    """A folder of Parquet, JSON or CSV files, which holds every row exactly once."""

    checkpoint: ClassVar[Need] = "needed"

    kind: Literal["files"]
    """A sink that writes files."""
    path: JobPath
    """A folder, such as 'out'."""
    format: FileFormat = "parquet"
    """The format of the files."""
    partition_by: Texts = ()
    """Columns of the result; each of their values gets a folder."""
    options: Settings = {}
    """A table of further options of Spark's writer, such as { compression = "zstd" }."""

    @property
    def place(self) -> str:
        return f"{self.path} ({self.format})"

    def check(self, columns: pa.Schema) -> Iterator[Mistake]:
        nested = [field.name for field in columns if pa.types.is_nested(field.type)]
        yield from unknown_columns(
            "partition_by", self.partition_by, [name for name in columns.names if name not in nested]
        )
        if self.partition_by and set(columns.names) <= set(self.partition_by):
            yield (
                "partition_by",
                "has all columns of the result, so that none is left for the files: remove one",
            )
        if self.format == "csv" and nested:
            kind = columns.field(nested[0]).type
            yield (
                "format",
                f"is 'csv', which cannot hold the column {shown(nested[0])} of type {kind}; allowed: parquet, json",
            )

    def configured(self, writer: Writer) -> Writer:
        writer = writer.format(self.format).options(**self.options).option("path", self.path)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def write_batch(self, results: DataFrame, number: int) -> None:
        """Write the rows as Spark's sink for streams does: with a log, by which it skips a micro-batch that it has."""
        session = results.sparkSession
        jvm = cast(Any, session._jvm)
        sql = jvm.org.apache.spark.sql.execution
        formats = sql.datasources
        kinds = {
            "parquet": formats.parquet.ParquetFileFormat,
            "json": formats.json.JsonFileFormat,
            "csv": formats.csv.CSVFileFormat,
        }
        columns = jvm.PythonUtils.toSeq(list(self.partition_by))
        options = jvm.PythonUtils.toScalaMap(self.options)
        sink = sql.streaming.sinks.FileStreamSink(
            session._jsparkSession, self.path, kinds[self.format](), columns, options
        )
        sink.addBatch(number, results._jdf)


class KafkaSink(SinkTable):
    """A Kafka topic: a JSON object per row, at least once."""

    checkpoint: ClassVar[Need] = "needed"

    kind: Literal["kafka"]
    """A sink that writes to a Kafka topic."""
    servers: Servers
    """The brokers, such as 'localhost:9092', or a list of them."""
    topic: Text
    """The topic's name."""
    key: Text | None = None
    """A column of the result that becomes the key of the records, and so chooses their partition."""
    options: Settings = {}
    """A table of further options, such as { "kafka.compression.type" = "zstd" }."""

    @property
    def place(self) -> str:
        return f"{self.topic} at {brokers(self.servers)}"

    def check(self, columns: pa.Schema) -> Iterator[Mistake]:
        return unknown_columns("key", () if self.key is None else (self.key,), columns.names)

    def prepared(self, results: DataFrame) -> DataFrame:
        records = [F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value")]
        if self.key is not None:
            records.append(F.col(quoted(self.key)).cast("string").alias("key"))
        return results.select(*records)

    def configured(self, writer: Writer) -> Writer:
        writer = writer.format("kafka").options(**self.options)
        return writer.option("kafka.bootstrap.servers", brokers(self.servers)).option("topic", self.topic)


class ConsoleSink(SinkTable):
    """The first rows of every micro-batch, printed."""

    checkpoint: ClassVar[Need] = "impossible"

    kind: Literal["console"]
    """A sink that prints rows."""
    rows: Whole = 20
    """How many rows of each micro-batch are printed."""
    truncate: Flag = True
    """Whether long values are cut."""

    def prepared(self, results: DataFrame) -> DataFrame:
        return printable(results)

    def configured(self, writer: Writer) -> Writer:
        return writer.format("console").option("numRows", self.rows).option("truncate", self.truncate)


class MemorySink(SinkTable):
    """A temporary table of the session, for a caller in Python: `spark.table(name)`."""

    checkpoint: ClassVar[Need] = "impossible"

    kind: Literal["memory"]
    """A sink that keeps rows in a temporary table."""
    table: Text = "results"
    """The name of the temporary table."""

    @field_validator("table")
    @classmethod
    def _check_table(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise SpecError(f"is {name!r}; allowed: a name of letters, digits and _")
        return name

    @property
    def place(self) -> str:
        return self.table

    def configured(self, writer: Writer) -> Writer:
        return writer.format("memory")

    def write(self, results: DataFrame) -> DataStreamWriter:
        return super().write(results).queryName(self.table)


class NoopSink(SinkTable):
    """Rows are computed and dropped, for measurements."""

    checkpoint: ClassVar[Need] = "possible"

    kind: Literal["noop"]
    """A sink that drops all rows."""

    def configured(self, writer: Writer) -> Writer:
        return writer.format("noop")


def printable(results: DataFrame) -> DataFrame:
    """The rows, safe to print: control characters, which could control the terminal, become visible symbols."""
    dangerous, symbols = "".join(map(chr, CONTROLS)), "".join(CONTROLS.values())
    columns = []
    for field in results.schema:
        column = F.col(quoted(field.name))
        if isinstance(field.dataType, HAS_TEXT):
            column = F.translate(column.cast("string"), dangerous, symbols)
        columns.append(column.alias(field.name.translate(CONTROLS)))
    return results.select(*columns)


def unknown_columns(key: str, given: Iterable[str], allowed: Sequence[str]) -> Iterator[Mistake]:
    """A mistake for names that are not columns of the result, or that this key cannot use."""
    unknown = [name for name in given if name not in allowed]
    if unknown:
        names = ", ".join(map(shown, unknown))
        yield key, f"has {names}, not a column of the result that fits; allowed: {', '.join(allowed)}"
