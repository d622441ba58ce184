"""Where the rows of a side come from: one frozen class a kind, read from a job file and loaded as a streaming
DataFrame. A side can have several sources, which must agree on their columns.

Loading is lazy: Spark opens connections and lists files when the query starts.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.ddl import parse_ddl
from streamjoin.spark.job.generated import GeneratorSource, RateSource
from streamjoin.spark.job.paths import SCHEMA, is_remote, parquet_columns, read_path
from streamjoin.spark.job.records import (
    CORRUPT,
    ORIGIN,
    PERMISSIVE,
    dropped,
    mistakes_of_records,
    parse_records,
    reported,
    with_corrupt,
)
from streamjoin.spark.job.shown import shown
from streamjoin.spark.job.toml import TomlTable
from streamjoin.spark.join.task import ON_MALFORMED
from streamjoin.spark.window_join import quoted

FILE_FORMATS = ("parquet", "json", "csv")
RECORD_FORMATS = ("json", "csv", "text")


class PatternError(SpecError):
    """What Kafka can not take for a regular expression."""


class Source(Protocol):
    """A physical stream. `origin` is the SQL that says in words where a row comes from."""

    kind: ClassVar[str]
    origin: ClassVar[str]

    @property
    def malformed(self) -> str:
        """What happens to a record that cannot be joined: fail or drop."""

    @property
    def place(self) -> str:
        """Where it is, for people."""

    @property
    def columns(self) -> types.StructType:
        """The columns before `select`."""

    def load(self, spark: SparkSession) -> DataFrame:
        """The stream; nothing is read yet. A record that cannot be parsed has its text in CORRUPT."""


@dataclass(frozen=True)
class FilesSource:
    """Files that appear in a folder, or match a pattern; each is read once, oldest first."""

    kind: ClassVar[str] = "files"
    origin: ClassVar[str] = "input_file_name()"
    path: str
    format: str
    columns: types.StructType
    malformed: str
    header: bool
    max_files: int | None
    options: dict[str, str]

    @classmethod
    def read(cls, table: TomlTable, folder: Path, schema: str | None, side: str) -> FilesSource:
        path = read_path(table, "path", "a folder or a pattern, such as 'in/trades'", folder)
        form = table.choice("format", FILE_FORMATS, "parquet")
        text = table.text("schema", SCHEMA, schema, lines=True)
        columns = types.StructType()
        if path is None:
            pass  # which is one mistake
        elif not is_remote(path) and next(glob.iglob(path), None) is None:
            table.complain("path", f"is {path!r}, where nothing is yet: make the folder, even if it is empty")
        elif os.path.isfile(path):
            table.complain(
                "path", f"is {path!r}, which is a file: give its folder, or a pattern such as 'in/*.csv'"
            )
        elif text is None and form == "parquet":
            columns = table.checked("schema", lambda: parquet_columns(path), columns)
        else:
            columns = read_columns(table, text, form)
        if "header" in table.values and form != "csv":
            table.complain("header", f"is given for {form} files; allowed: of csv")
        return cls(
            path or "",
            form,
            columns,
            table.choice("malformed", ON_MALFORMED, "fail"),
            table.flag("header", False),
            table.whole("max_files", "the most files a micro-batch takes", None),
            table.settings("options", "recursiveFileLookup = true"),
        )

    @property
    def place(self) -> str:
        return f"{self.path} ({self.format})"

    def load(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format(self.format).schema(self.columns)
        if self.format != "parquet" and self.malformed == "fail":
            reader = reader.option("mode", "FAILFAST")  # which names the file and the mistake
        elif self.format != "parquet":
            reader = reader.schema(with_corrupt(self.columns)).options(**PERMISSIVE)
        if self.format == "csv":
            reader = reader.option("header", self.header)
        if self.max_files is not None:
            reader = reader.option("maxFilesPerTrigger", self.max_files)
        reader = reader.options(**self.options)
        if self.malformed == "drop":
            reader = reader.option("columnNameOfCorruptRecord", CORRUPT)  # whatever the options say
        return reader.load(self.path)


@dataclass(frozen=True)
class KafkaSource:
    """Topics of a Kafka cluster. Beside the record's columns, `select` sees a struct `kafka` (key, topic, ...)."""

    kind: ClassVar[str] = "kafka"
    origin: ClassVar[str] = (
        "concat('topic ', kafka.topic, ', partition ', kafka.partition, ', offset ', kafka.offset)"
    )
    servers: str
    topics: tuple[str, ...]
    pattern: str | None
    format: str
    columns: types.StructType
    malformed: str
    starting: str
    max_rows: int | None
    options: dict[str, str]

    @classmethod
    def read(cls, table: TomlTable, folder: Path, schema: str | None, side: str) -> KafkaSource:
        form = table.choice("format", RECORD_FORMATS, "json")
        topics = table.texts("topics", "the topic's name, or a list of names", ())
        pattern = table.text("pattern", "a regular expression of topic names", None)
        if "topics" not in table.values and "pattern" not in table.values:
            table.complain("topics", "is needed, or else pattern (a regular expression): give one of the two")
        elif "topics" in table.values and "pattern" in table.values:
            table.complain("pattern", "is given, and topics as well: leave one of the two out")
        return cls(
            read_servers(table),
            topics,
            pattern,
            form,
            read_columns(table, table.text("schema", SCHEMA, schema, lines=True), form),
            table.choice("malformed", ON_MALFORMED, "fail"),
            table.choice("starting", ("earliest", "latest"), "earliest"),
            table.whole("max_rows", "the most rows a micro-batch takes", None),
            table.settings("options", '"kafka.security.protocol" = "SSL"'),
        )

    @property
    def place(self) -> str:
        return f"{self.pattern or ', '.join(self.topics)} at {self.servers} ({self.format})"

    def load(self, spark: SparkSession) -> DataFrame:
        if self.pattern is not None:
            check_pattern(spark, self.pattern)
        topics = ("subscribePattern", self.pattern) if self.pattern else ("subscribe", ",".join(self.topics))
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
            .option(*topics)
            .option("startingOffsets", self.starting)
        )
        if self.max_rows is not None:
            reader = reader.option("maxOffsetsPerTrigger", self.max_rows)
        rows = reader.options(**self.options).load()
        about = F.struct("key", "topic", "partition", "offset", "timestamp").alias("kafka")
        # A record without a value is a tombstone: it says that a key is gone, and has no columns.
        rows = rows.where("value IS NOT NULL").select(F.col("value").cast("string").alias("value"), about)
        return parse_records(rows, self.format, self.columns)


@dataclass(frozen=True)
class SocketSource:
    """Lines of text from a TCP server, for trying things out: what was read is lost when the query restarts."""

    kind: ClassVar[str] = "socket"
    origin: ClassVar[str] = "'the stream'"
    host: str
    port: int
    format: str
    columns: types.StructType
    malformed: str

    @classmethod
    def read(cls, table: TomlTable, folder: Path, schema: str | None, side: str) -> SocketSource:
        form = table.choice("format", RECORD_FORMATS, "json")
        return cls(
            table.text("host", "the server's name", "localhost"),
            table.whole("port", "the server's port", most=65535),
            form,
            read_columns(table, table.text("schema", SCHEMA, schema, lines=True), form),
            table.choice("malformed", ON_MALFORMED, "fail"),
        )

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port} ({self.format})"

    def load(self, spark: SparkSession) -> DataFrame:
        lines = spark.readStream.format("socket").option("host", self.host).option("port", self.port).load()
        return parse_records(lines, self.format, self.columns)


ReadSource = Callable[[TomlTable, Path, str | None, str], Source]
SOURCES: dict[str, ReadSource] = {
    source.kind: source.read
    for source in (FilesSource, KafkaSource, RateSource, SocketSource, GeneratorSource)
}


@dataclass(frozen=True)
class Input:
    """A source and what is taken from it: `select` are Spark SQL expressions, empty for all columns."""

    source: Source
    select: tuple[str, ...] = field(default=())

    @classmethod
    def read(cls, table: TomlTable, folder: Path, schema: str | None, side: str) -> Input | None:
        kind = table.choice("kind", tuple(SOURCES))
        if kind is None:
            return None
        source = SOURCES[kind](table, folder, schema, side)
        wanted = "Spark SQL expressions, such as 'price * 100 AS cents'"
        select = table.texts("select", wanted, (), lines=True)
        table.close()
        return cls(source, select)

    @property
    def columns(self) -> types.StructType | None:
        """The columns after `select`, if the file alone tells them."""
        return None if self.select else self.source.columns

    def load(self, spark: SparkSession, key: str, time: str) -> DataFrame:
        """The rows after `select`. Rows without a `time` are among them if the source drops malformed rows: the join
        does that. `key` is the source's key in the file."""
        rows = self.source.load(spark)
        mistakes = mistakes_of_records(rows, self.source.columns)
        if self.source.malformed == "drop":
            return self.selected(dropped(rows, mistakes, key).drop(CORRUPT))
        rows = reported(rows, mistakes, key, F.expr(self.source.origin)).drop(CORRUPT)
        rows = self.selected(rows, f"{self.source.origin} AS {quoted(ORIGIN)}")
        missing = f"a row without a time ({time} is NULL)"
        timeless = {missing: F.col(quoted(time)).isNull()} if time in rows.columns else {}
        return reported(rows, timeless, key, F.col(quoted(ORIGIN))).drop(ORIGIN)

    def selected(self, rows: DataFrame, *more: str) -> DataFrame:
        """What the file selects of the rows, and `more`."""
        if self.select:
            return rows.selectExpr(*self.select, *more)
        rows = rows.selectExpr("*", *more) if more else rows
        return rows.drop("kafka") if isinstance(self.source, KafkaSource) else rows


def read_servers(table: TomlTable) -> str:
    """The brokers of a Kafka cluster, as its clients take them; one without a port would fail only when asked."""
    given = ",".join(table.texts("servers", "the brokers, such as 'localhost:9092'")).split(",")
    for server in filter(None, given):
        if "@" in server:
            told = "a name and a password belong in options, as kafka.sasl.jaas.config"
            table.complain("servers", f"has {shown(server)}; allowed: host:port, without @: {told}")
        elif not re.fullmatch(r"\S+:[0-9]{1,5}", server.strip()):
            table.complain("servers", f"has {shown(server)}; allowed: host:port, such as 'localhost:9092'")
    return ",".join(server.strip() for server in given)


def check_pattern(spark: SparkSession, pattern: str) -> None:
    """Raise unless this is a regular expression: one of Java's, which are others than Python's, so that only Java can
    tell. The first micro-batch would find out, when the checkpoint belongs to the mistake."""
    try:
        cast(Any, spark._jvm).java.util.regex.Pattern.compile(pattern)
    except IllegalArgumentException as error:
        told = str(error).splitlines()[0]
        raise PatternError(f"is {pattern!r}, which is no regular expression of Java: {told}") from None


def read_columns(table: TomlTable, text: str | None, form: str) -> types.StructType:
    """The columns of records in the given format; lines of text have one."""
    if form == "text":
        return parse_ddl("value STRING")
    if text is None:
        table.complain("schema", f"is missing, and {form} does not tell it: give {SCHEMA}")
        return types.StructType()
    return table.checked("schema", lambda: parse_ddl(text), types.StructType())
