"""Topics of a Kafka cluster as a source."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo, field_validator
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.avro import FORM as AVRO_FORM
from streamjoin.spark.job.avro import MAX_ID, AvroColumns, AvroHeader, avro_columns
from streamjoin.spark.job.records import parse_avro, parse_records
from streamjoin.spark.job.shown import shown
from streamjoin.spark.job.source_table import RecordSource, SchemaColumns, record_columns, schema_text
from streamjoin.spark.job.tables import LEFT_OPEN, OneOrMany, Settings, Text, Texts, Whole, as_tuple

KafkaFormat = Literal["json", "csv", "text", "avro"]


class PatternError(SpecError):
    """A pattern that Java, and so Kafka's client, cannot compile."""


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


def _as_ids(value: object) -> object:
    return (value,) if isinstance(value, int) else as_tuple(value)


def _check_id(id: int) -> int:
    if not 0 < id <= MAX_ID:
        raise SpecError(f"has {id}; allowed: 1 to {MAX_ID}")
    return id


SchemaIds = Annotated[
    tuple[Annotated[int, Strict(), AfterValidator(_check_id)], ...], BeforeValidator(_as_ids), OneOrMany
]


class KafkaSource(RecordSource):
    """Topics of a Kafka cluster. Beside the record's columns, `select` sees a struct `kafka` (key, topic, ...)."""

    origin: ClassVar[str] = (
        "concat('topic ', kafka.topic, ', partition ', kafka.partition, ', offset ', kafka.offset)"
    )
    hidden: ClassVar[str | None] = "kafka"

    kind: Literal["kafka"]
    """A source that reads topics of a Kafka cluster."""
    format: KafkaFormat = "json"  # type: ignore[assignment]
    """The format of the values; text has the one column value."""
    columns: SchemaColumns = Field(LEFT_OPEN, alias="schema")
    """The columns as Spark writes them, such as 'ts TIMESTAMP, x INT'; with avro, the Avro schema as JSON, or its file.

    Wins over the schema of the side."""
    avro_header: AvroHeader = "none"
    """What stands in front of every Avro value; confluent: a zero and the four bytes of a schema's id."""
    avro_ids: SchemaIds = ()
    """The id of the schema in that header, or a list of ids; a value with another one is malformed."""
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

    @field_validator("columns", mode="plain")
    @classmethod
    def _read_columns(cls, value: object, info: ValidationInfo) -> types.StructType:
        text, form = schema_text(value, info), info.data.get("format")
        if form != "avro":
            return record_columns(text, form)
        if text is None:
            raise SpecError(f"is missing, and avro data does not contain it: give {AVRO_FORM}")
        return avro_columns(text, info.context.folder if info.context else None)

    @field_validator("avro_header")
    @classmethod
    def _check_header(cls, header: str, info: ValidationInfo) -> str:
        if header != "none" and info.data.get("format", "avro") != "avro":
            raise SpecError(
                f"is {shown(header)}, but the format is {info.data['format']}; allowed: with avro"
            )
        return header

    @field_validator("avro_ids")
    @classmethod
    def _check_ids(cls, ids: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if ids and info.data.get("avro_header", "confluent") != "confluent":
            raise SpecError(
                f"is {shown([*ids])}, but values have no header; allowed: with avro_header = 'confluent'"
            )
        return ids

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
        rows = rows.where("value IS NOT NULL").select("value", about)
        if isinstance(self.columns, AvroColumns):
            return parse_avro(rows, self.columns.schema, self.avro_header == "confluent", self.avro_ids)
        text = rows.withColumn("value", F.col("value").cast("string"))
        return parse_records(text, self.format, self.columns)


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
