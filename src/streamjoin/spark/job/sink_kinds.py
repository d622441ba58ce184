"""Every kind of sink that a job file can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from streamjoin.spark.job.other_sinks import JdbcSink, SparkSink, TableSink
from streamjoin.spark.job.sinks import ConsoleSink, FilesSink, KafkaSink, MemorySink, NoopSink, SinkTable

AnySink = Annotated[
    FilesSink | KafkaSink | SparkSink | TableSink | JdbcSink | ConsoleSink | MemorySink | NoopSink,
    Field(discriminator="kind"),
]
AnyLateSink = Annotated[
    FilesSink | KafkaSink | SparkSink | TableSink | JdbcSink | ConsoleSink | NoopSink,
    Field(discriminator="kind"),
]
SINK_KINDS: Mapping[str, type[SinkTable]] = {
    "files": FilesSink,
    "kafka": KafkaSink,
    "spark": SparkSink,
    "table": TableSink,
    "jdbc": JdbcSink,
    "console": ConsoleSink,
    "memory": MemorySink,
    "noop": NoopSink,
}
LATE_SINK_KINDS: Mapping[str, type[SinkTable]] = {
    kind: model for kind, model in SINK_KINDS.items() if kind != "memory"
}
