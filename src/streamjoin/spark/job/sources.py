"""Sources of rows: one model per kind. A side can have several sources with the same columns."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.ddl import parse_ddl
from streamjoin.spark.job.generated import GeneratorSource, RateSource
from streamjoin.spark.job.paths import SCHEMA, is_remote, parquet_columns
from streamjoin.spark.job.records import CORRUPT, PERMISSIVE, parse_records, with_corrupt
from streamjoin.spark.job.shown import shown
from streamjoin.spark.job.source_table import SourceTable
from streamjoin.spark.job.tables import (
    LEFT_OPEN,
    Flag,
    JobPath,
    OneOrMany,
    Settings,
    TableContext,
    Text,
    Texts,
    Whole,
    as_tuple,
    check_lines,
    wrong_kind,
)
from streamjoin.spark.join.task import OnMalformed

FileFormat = Literal["parquet", "json", "csv"]
RecordFormat = Literal["json", "csv", "text"]
TEXT_COLUMNS = parse_ddl("value STRING")  # the one column of lines of text
# The type that a `schema` becomes.
SchemaColumns = Annotated[types.StructType, WithJsonSchema({"type": "string"})]


def _schema_text(value: object, info: ValidationInfo) -> str | None:
    """The source's own schema, or that of its side."""
    if value is None:
        return cast(TableContext, info.context).side_schema if info.context else None
    if not isinstance(value, str):
        raise wrong_kind()
    return check_lines(value)


class PatternError(SpecError):
    """A pattern that Java, and so Kafka's client, cannot compile."""


class FilesSource(SourceTable):
    """Files that appear in a folder, or match a pattern. Each is read once, oldest first."""

    origin: ClassVar[str] = "input_file_name()"

    kind: Literal["files"]
    """A source that reads files."""
    path: JobPath
    """A folder or a pattern, such as 'in/trades' or 'in/*.csv'; it must exist."""
    format: FileFormat = "parquet"
    """The format of the files."""
    columns: SchemaColumns = Field(LEFT_OPEN, alias="schema")
    """The columns as Spark writes them, such as 'ts TIMESTAMP, x INT'.

    Wins over the schema of the side. Parquet files on a local path need none."""
    malformed: OnMalformed = "fail"
    """What happens to a record that cannot be joined: it stops the query (fail), or is left out and counted (drop)."""
    header: Flag | None = None
    """Whether CSV files begin with a line of column names; by default they do not."""
    max_files: Whole | None = None
    """The most files that a micro-batch takes."""
    options: Settings = {}
    """A table of further options of Spark's reader, such as { recursiveFileLookup = true }."""

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if not is_remote(path) and next(glob.iglob(path), None) is None:
            raise SpecError(f"is {path!r}, which does not exist: create the folder, even if it is empty")
        if os.path.isfile(path):
            raise SpecError(f"is {path!r}, which is a file: give its folder, or a pattern such as 'in/*.csv'")
        return path

    @field_validator("columns", mode="plain")
    @classmethod
    def _read_columns(cls, value: object, info: ValidationInfo) -> types.StructType:
        text = _schema_text(value, info)
        if text is not None:
            return parse_ddl(text)
        path, form = info.data.get("path"), info.data.get("format")
        if path is None or form is None:  # report one mistake, not two
            return types.StructType()
        if form != "parquet":
            raise _no_schema(form)
        return parquet_columns(path)

    @field_validator("header")
    @classmethod
    def _check_header(cls, header: bool | None, info: ValidationInfo) -> bool | None:
        form = info.data.get("format", "csv")
        if header is not None and form != "csv":
            raise SpecError(
                f"is {shown(header)}, but {form} files have no line of names: remove it; allowed: with csv"
            )
        return header

    @property
    def place(self) -> str:
        return f"{self.path} ({self.format})"

    def read_rows(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format(self.format).schema(self.columns)
        if self.format != "parquet" and not self.drops_malformed:
            reader = reader.option("mode", "FAILFAST")  # the error then names the file and the mistake
        elif self.format != "parquet":
            reader = reader.schema(with_corrupt(self.columns)).options(**PERMISSIVE)
        if self.format == "csv":
            reader = reader.option("header", bool(self.header))
        if self.max_files is not None:
            reader = reader.option("maxFilesPerTrigger", self.max_files)
        reader = reader.options(**self.options)
        if self.drops_malformed:
            reader = reader.option("columnNameOfCorruptRecord", CORRUPT)  # whatever the options say
        return reader.load(self.path)


class RecordSource(SourceTable):
    """A source of texts that are parsed into records."""

    format: RecordFormat = "json"
    """The format of the records; text has the one column value."""
    columns: SchemaColumns = Field(LEFT_OPEN, alias="schema")
    """The columns as Spark writes them, such as 'ts TIMESTAMP, x INT'.

    Wins over the schema of the side."""
    malformed: OnMalformed = "fail"
    """What happens to a record that cannot be joined: it stops the query (fail), or is left out and counted (drop)."""

    @field_validator("columns", mode="plain")
    @classmethod
    def _read_columns(cls, value: object, info: ValidationInfo) -> types.StructType:
        text, form = _schema_text(value, info), info.data.get("format")
        if form == "text":
            return TEXT_COLUMNS
        if text is not None:
            return parse_ddl(text)
        if form is None:  # report one mistake, not two
            return types.StructType()
        raise _no_schema(form)


def _no_schema(form: str) -> SpecError:
    return SpecError(f"is missing, and {form} data does not contain it: give {SCHEMA}")


def check_server(server: str) -> str:
    """Check a broker's host and port. Without this check, a missing port would fail only on connecting."""
    for each in filter(None, server.split(",")):
        if "@" in each:
            told = "a name and a password belong in options, as kafka.sasl.jaas.config"
            raise SpecError(f"is {shown(each)}; allowed: host:port, without @: {told}")
        if not re.fullmatch(r"\S+:[0-9]{1,5}", each.strip()):
            raise SpecError(f"is {shown(each)}; allowed: host:port, such as 'localhost:9092'")
    return server


def brokers(servers: tuple[str, ...]) -> str:
    """The servers as one string, as Kafka's clients expect it."""
    return ",".join(server.strip() for server in ",".join(servers).split(","))


Servers = Annotated[
    tuple[Annotated[Text, AfterValidator(check_server)], ...], BeforeValidator(as_tuple), OneOrMany
]


class KafkaSource(RecordSource):
    """Topics of a Kafka cluster. Beside the record's columns, `select` sees a struct `kafka` (key, topic, ...)."""

    origin: ClassVar[str] = (
        "concat('topic ', kafka.topic, ', partition ', kafka.partition, ', offset ', kafka.offset)"
    )
    hidden: ClassVar[str | None] = "kafka"

    kind: Literal["kafka"]
    """A source that reads topics of a Kafka cluster."""
    servers: Servers
    """The brokers, such as 'localhost:9092', or a list of them."""
    pattern: Text | None = None
    """A regular expression of topic names, in Java's syntax; instead of topics."""
    topics: Texts = ()
    """The topic's name, or a list of names."""
    starting: Literal["earliest", "latest"] = "earliest"
    """Where reading starts if there is no checkpoint."""
    max_rows: Whole | None = None
    """The most records that a micro-batch takes."""
    options: Settings = {}
    """A table of further options, such as { "kafka.security.protocol" = "SSL" }."""

    @field_validator("topics")
    @classmethod
    def _check_topics(cls, topics: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not topics and info.data.get("pattern", "") is None:
            raise SpecError("is missing, and so is pattern (a regular expression): give one of the two")
        if topics and info.data.get("pattern") is not None:
            raise SpecError("is given, and so is pattern: remove one of the two")
        return topics

    @property
    def place(self) -> str:
        return f"{self.pattern or ', '.join(self.topics)} at {brokers(self.servers)} ({self.format})"

    def read_rows(self, spark: SparkSession) -> DataFrame:
        if self.pattern is not None:
            check_pattern(spark, self.pattern)
        topics = ("subscribePattern", self.pattern) if self.pattern else ("subscribe", ",".join(self.topics))
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", brokers(self.servers))
            .option(*topics)
            .option("startingOffsets", self.starting)
        )
        if self.max_rows is not None:
            reader = reader.option("maxOffsetsPerTrigger", self.max_rows)
        rows = reader.options(**self.options).load()
        about = F.struct("key", "topic", "partition", "offset", "timestamp").alias("kafka")
        # A record without a value is a tombstone: it marks a deleted key and has no columns.
        rows = rows.where("value IS NOT NULL").select(F.col("value").cast("string").alias("value"), about)
        return parse_records(rows, self.format, self.columns)


class SocketSource(RecordSource):
    """Lines of text from a TCP server, for experiments: a restarted query does not get earlier lines again."""

    kind: Literal["socket"]
    """A source that reads lines from a TCP server."""
    host: Text = "localhost"
    """The server's name."""
    port: Annotated[int, Strict(), Field(ge=1, le=65535)]
    """The server's port."""

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port} ({self.format})"

    def read_rows(self, spark: SparkSession) -> DataFrame:
        lines = spark.readStream.format("socket").option("host", self.host).option("port", self.port).load()
        return parse_records(lines, self.format, self.columns)


def check_pattern(spark: SparkSession, pattern: str) -> None:
    """Raise unless Java accepts this regular expression. Without this check the first micro-batch would fail, and the
    checkpoint would keep the mistake."""
    try:
        cast(Any, spark._jvm).java.util.regex.Pattern.compile(pattern)
    except IllegalArgumentException as error:
        told = str(error).splitlines()[0]
        raise PatternError(
            f"is {shown(pattern)}, which is not a regular expression of Java: {told}"
        ) from None


AnySource = Annotated[
    FilesSource | KafkaSource | RateSource | SocketSource | GeneratorSource, Field(discriminator="kind")
]
SOURCE_KINDS: Mapping[str, type[SourceTable]] = {
    "files": FilesSource,
    "kafka": KafkaSource,
    "rate": RateSource,
    "socket": SocketSource,
    "generator": GeneratorSource,
}
