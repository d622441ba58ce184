"""Where results go: one frozen class a kind, read from a job file, that turns results into a writer.

A files sink holds every row exactly once, whatever fails: Spark commits its files with the micro-batch. Kafka
gets every row at least once: the last micro-batch before a crash is written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, types
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamjoin.spark.job.paths import read_path
from streamjoin.spark.job.sources import FILE_FORMATS, read_servers
from streamjoin.spark.job.toml import TomlTable
from streamjoin.spark.window_join import quoted

# Unicode has symbols for the first controls, and for delete; the others become the replacement character.
CONTROLS = (
    {at: chr(0x2400 + at) for at in range(32)} | {0x7F: "\u2421"} | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
)
HAS_TEXT = (types.StringType, types.ArrayType, types.MapType, types.StructType, types.VariantType)

Need = Literal["needed", "possible", "impossible"]


class Sink(Protocol):
    """A place for results. `checkpoint` says whether a query that writes there needs one to go on from, may have
    one, or can not go on from any."""

    kind: ClassVar[str]
    checkpoint: ClassVar[Need]

    @property
    def place(self) -> str:
        """Where it is, for people."""

    def check(self, columns: pa.Schema, table: TomlTable) -> None:
        """Complain about what does not fit the result's columns."""

    def write(self, results: DataFrame) -> DataStreamWriter:
        """A writer that is ready to be started."""


@dataclass(frozen=True)
class FilesSink:
    """A folder of Parquet, JSON or CSV files."""

    kind: ClassVar[str] = "files"
    checkpoint: ClassVar[Need] = "needed"
    path: str
    format: str
    partition_by: tuple[str, ...]
    options: dict[str, str]

    @classmethod
    def read(cls, table: TomlTable, folder: Path) -> FilesSink:
        return cls(
            read_path(table, "path", "a folder, such as 'out'", folder) or "",
            table.choice("format", FILE_FORMATS, "parquet"),
            table.texts("partition_by", "columns of the result, a folder for each of their values", ()),
            table.settings("options", 'compression = "zstd"'),
        )

    @property
    def place(self) -> str:
        return f"{self.path} ({self.format})"

    def check(self, columns: pa.Schema, table: TomlTable) -> None:
        nested = [field.name for field in columns if pa.types.is_nested(field.type)]
        check_names(table, "partition_by", self.partition_by, [n for n in columns.names if n not in nested])
        if self.partition_by and set(columns.names) <= set(self.partition_by):
            table.complain(
                "partition_by", "has all columns of the result, so that none is left for the files"
            )
        if self.format == "csv" and nested:
            told = f"is 'csv', which can not hold the column {nested[0]!r} of type {columns.field(nested[0]).type}"
            table.complain("format", f"{told}; allowed: parquet, json")

    def write(self, results: DataFrame) -> DataStreamWriter:
        writer = results.writeStream.format(self.format).options(**self.options).option("path", self.path)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer


@dataclass(frozen=True)
class KafkaSink:
    """A Kafka topic: a JSON object a row; `key` is the column that chooses the partition."""

    kind: ClassVar[str] = "kafka"
    checkpoint: ClassVar[Need] = "needed"
    servers: str
    topic: str
    key: str | None
    options: dict[str, str]

    @classmethod
    def read(cls, table: TomlTable, folder: Path) -> KafkaSink:
        return cls(
            read_servers(table),
            table.text("topic", "the topic's name"),
            table.text("key", "a column of the result", None),
            table.settings("options", '"kafka.compression.type" = "zstd"'),
        )

    @property
    def place(self) -> str:
        return f"{self.topic} at {self.servers}"

    def check(self, columns: pa.Schema, table: TomlTable) -> None:
        check_names(table, "key", () if self.key is None else (self.key,), columns.names)

    def write(self, results: DataFrame) -> DataStreamWriter:
        records = [F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value")]
        if self.key is not None:
            records.append(F.col(self.key).cast("string").alias("key"))
        writer = results.select(*records).writeStream.format("kafka").options(**self.options)
        return writer.option("kafka.bootstrap.servers", self.servers).option("topic", self.topic)


@dataclass(frozen=True)
class ConsoleSink:
    """The first rows of every micro-batch, printed."""

    kind: ClassVar[str] = "console"
    checkpoint: ClassVar[Need] = "impossible"
    rows: int
    truncate: bool

    @classmethod
    def read(cls, table: TomlTable, folder: Path) -> ConsoleSink:
        return cls(table.whole("rows", "rows shown of each micro-batch", 20), table.flag("truncate", True))

    @property
    def place(self) -> str:
        return ""

    def check(self, columns: pa.Schema, table: TomlTable) -> None:
        """It takes any."""

    def write(self, results: DataFrame) -> DataStreamWriter:
        return (
            harmless(results)
            .writeStream.format("console")
            .option("numRows", self.rows)
            .option("truncate", self.truncate)
        )


@dataclass(frozen=True)
class MemorySink:
    """A temporary table of the session, for a caller in Python: `spark.table(name)`."""

    kind: ClassVar[str] = "memory"
    checkpoint: ClassVar[Need] = "impossible"
    table: str

    @classmethod
    def read(cls, table: TomlTable, folder: Path) -> MemorySink:
        name = table.text("table", "the name of the temporary table", "results")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            table.complain("table", f"is {name!r}; allowed: a name of letters, digits and _")
        return cls(name)

    @property
    def place(self) -> str:
        return self.table

    def check(self, columns: pa.Schema, table: TomlTable) -> None:
        """It takes any."""

    def write(self, results: DataFrame) -> DataStreamWriter:
        return results.writeStream.format("memory").queryName(self.table)


@dataclass(frozen=True)
class NoopSink:
    """Every row is computed and dropped: for measuring the rest."""

    kind: ClassVar[str] = "noop"
    checkpoint: ClassVar[Need] = "possible"

    @classmethod
    def read(cls, table: TomlTable, folder: Path) -> NoopSink:
        return cls()

    @property
    def place(self) -> str:
        return ""

    def check(self, columns: pa.Schema, table: TomlTable) -> None:
        """It takes any."""

    def write(self, results: DataFrame) -> DataStreamWriter:
        return results.writeStream.format("noop")


def harmless(results: DataFrame) -> DataFrame:
    """The rows as they may be printed: control characters, by which text could steer a terminal, become symbols."""
    dangerous, symbols = "".join(map(chr, CONTROLS)), "".join(CONTROLS.values())
    columns = []
    for field in results.schema:
        column = F.col(quoted(field.name))
        if isinstance(field.dataType, HAS_TEXT):
            column = F.translate(column.cast("string"), dangerous, symbols)
        columns.append(column.alias(field.name.translate(CONTROLS)))
    return results.select(*columns)


SINKS: dict[str, Callable[[TomlTable, Path], Sink]] = {
    sink.kind: sink.read for sink in (FilesSink, KafkaSink, ConsoleSink, MemorySink, NoopSink)
}


def check_names(table: TomlTable, key: str, given: Iterable[str], allowed: Sequence[str]) -> None:
    """Complain about what is no column of the result, or none that can be used here."""
    for name in given:
        if name not in allowed:
            table.complain(
                key, f"has {name!r}, no column of the result that fits; allowed: {', '.join(allowed)}"
            )


def read_sink(table: TomlTable, folder: Path) -> Sink:
    """The sink of a `[sink]` table; what is wrong with it is in the table's problems."""
    kind = table.choice("kind", tuple(SINKS))
    if kind is None:
        table.known += table.values  # of no kind, so that no other key can be wrong
        return NoopSink()
    return SINKS[kind](table, folder)
