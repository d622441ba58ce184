"""Sources of rows: one model per kind. A side can have several sources with the same columns."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict, ValidationInfo, field_validator
from pyspark.sql import DataFrame, SparkSession, types

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.ddl import parse_ddl
from streamjoin.spark.job.generated import GeneratorSource, RateSource
from streamjoin.spark.job.kafka_source import KafkaSource
from streamjoin.spark.job.paths import is_remote, parquet_columns
from streamjoin.spark.job.records import CORRUPT, PERMISSIVE, parse_records, with_corrupt
from streamjoin.spark.job.shown import shown
from streamjoin.spark.job.source_table import (
    RecordSource,
    SchemaColumns,
    SourceTable,
    no_schema,
    schema_text,
)
from streamjoin.spark.job.tables import LEFT_OPEN, Flag, JobPath, Settings, Text, Whole
from streamjoin.spark.join.task import OnMalformed

FileFormat = Literal["parquet", "json", "csv"]


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
        text = schema_text(value, info)
        if text is not None:
            return parse_ddl(text)
        path, form = info.data.get("path"), info.data.get("format")
        if path is None or form is None:  # report one mistake, not two
            return types.StructType()
        if form != "parquet":
            raise no_schema(form)
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
