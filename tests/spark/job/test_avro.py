"""Avro in job files: a schema has the columns that Spark makes of it, and mistakes are refused with a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession, types

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.avro import avro_columns
from streamjoin.spark.job.explain import explain_job
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.session import AVRO_DECODER, KAFKA_CONNECTOR, packages_of
from streamjoin.spark.job.toml import JobError

TRADE: dict[str, Any] = {
    "type": "record",
    "name": "Trade",
    "namespace": "market.feed",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "k", "type": ["null", "string"], "default": None},
        {"name": "price", "type": "long"},
    ],
}
JOB = """
[join]
on = "left.k = right.k AND left.price BETWEEN right.price AND right.price + 5"
window = "30 seconds"
lateness = "1 hour"
[left.source]
kind = "kafka"
servers = "localhost:9092"
topics = "trades"
format = "avro"
schema = {schema}
{more}
[right]
schema = "ts TIMESTAMP, k STRING, price BIGINT"
[right.source]
kind = "kafka"
servers = "localhost:9092"
topics = "quotes"
[sink]
kind = "noop"
"""
EVERY_TYPE: list[Any] = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "long", "logicalType": "of nobody"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4},
    {"type": "fixed", "name": "Price", "size": 8, "logicalType": "decimal", "precision": 10},
    {"type": "fixed", "name": "Key", "size": 16},
    {"type": "enum", "name": "Way", "symbols": ["BUY", "SELL"]},
    {"type": "array", "items": ["null", "int"]},
    {"type": "map", "values": {"type": "array", "items": "string"}},
    ["null", "double"],
    ["int", "long", "null"],
    ["float", "double"],
    ["string", "null", "int"],
    ["null"],
    {
        "type": "record",
        "name": "Leg",
        "fields": [{"name": "x", "type": "int"}, {"name": "way", "type": "Way"}],
    },
    {"type": "array", "items": "market.feed.Leg"},
    {"type": "Leg"},
]


def write_job(folder: Path, schema: str, more: str = "") -> Path:
    path = folder / "job.toml"
    path.write_text(JOB.format(schema=schema, more=more))
    return path


def inline(schema: Any) -> str:
    return f"'''{json.dumps(schema, indent=1)}'''"


def changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(json.dumps(TRADE))
    change(schema)
    return schema


def with_field(kind: Any) -> dict[str, Any]:
    return changed(lambda schema: schema["fields"].append({"name": "more", "type": kind}))


def test_the_columns_of_a_schema():
    assert (
        avro_columns(json.dumps(TRADE), None).simpleString() == "struct<ts:timestamp,k:string,price:bigint>"
    )


def test_columns_are_those_that_spark_makes(spark: SparkSession):
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(EVERY_TYPE)]
    text = json.dumps({**TRADE, "fields": fields})
    java: Any = spark._jvm
    parsed = java.org.apache.avro.Schema.Parser().parse(text)
    told = java.org.apache.spark.sql.avro.SchemaConverters.toSqlType(parsed).dataType().json()
    theirs = types.StructType.fromJson(json.loads(told))
    # Whether a column can be NULL is left out: a value that cannot be decoded makes all of them so.
    assert avro_columns(text, None).simpleString() == theirs.simpleString()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{", "which is not JSON"),
        ('"string"', "which is not a record: give an Avro schema of a record as JSON, or a file"),
        ("trade.avsc", "cannot be read .No such file or directory"),
        ("s3a://bucket/trade.avsc", "cannot be read before Spark runs"),
        (changed(lambda schema: schema.pop("fields")), "the record 'market.feed.Trade' has no fields"),
        (changed(lambda schema: schema.pop("name")), "a record has the name None"),
        (changed(lambda schema: schema["fields"][0].update(name="a b")), "a field of .* has the name 'a b'"),
        (changed(lambda schema: schema["fields"][0].update(name="k")), "has two fields 'k'"),
        (with_field("strnig"), "'strnig' is neither a type nor the name of one; types: null, boolean, int"),
        (with_field("Trade"), "'Trade' contains itself"),
        (with_field({}), "has no type"),
        (with_field(7), "7 is not a type"),
        (with_field([["null"]]), "is empty or has a union in it"),
        (with_field({"type": "fixed", "name": "F"}), "the fixed 'market.feed.F' has no size"),
        (with_field({"type": "enum", "name": "Trade", "symbols": []}), "is defined twice"),
        (with_field({"type": "bytes", "logicalType": "decimal", "precision": 39}), "39 digits; allowed: 38"),
        (with_field({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}), "the scale 3"),
    ],
    ids=str,
)  # fmt: skip
def test_schemas_that_are_refused(tmp_path, given, says):
    text = given if isinstance(given, str) else json.dumps(given)
    with pytest.raises(SpecError, match=says):
        avro_columns(text, tmp_path)


def test_a_schema_of_endless_depth_is_refused():
    text = json.dumps(TRADE).replace('"long"}', "[" * 90 + '"long"' + "]" * 90 + "}")
    with pytest.raises(SpecError):
        avro_columns(text, None)


def test_a_job_takes_its_schema_from_the_file_or_beside_it(tmp_path):
    written = Job.read(write_job(tmp_path, inline(TRADE), 'avro_header = "confluent"\navro_ids = 17'))
    (tmp_path / "trade.avsc").write_text(json.dumps(TRADE))
    beside = Job.read(write_job(tmp_path, '"trade.avsc"'))
    for job in (written, beside):
        assert job.spec is not None and job.spec.left.names == ["ts", "k", "price"]
        assert packages_of(job) == (KAFKA_CONNECTOR, AVRO_DECODER)
    assert "trades at localhost:9092 (avro)" in explain_job(beside, None)
    given = (
        write_job(tmp_path, inline(TRADE)).read_text()
        + '[spark.settings]\n"spark.jars" = "a/spark-avro_2.13-4.1.1.jar"'
    )
    (tmp_path / "job.toml").write_text(given)
    assert packages_of(Job.read(tmp_path / "job.toml")) == (KAFKA_CONNECTOR,)


@pytest.mark.parametrize(
    ("schema", "more", "says"),
    [
        ('"ts TIMESTAMP, k STRING"', "", r"source.schema: is 'ts TIMESTAMP, k STRING', which cannot be read"),
        (inline(TRADE), "avro_ids = 17", r"source.avro_ids: is .17., but values have no header; allowed: with"),
        (inline(TRADE), 'avro_header = "confluent"\navro_ids = 0', r"source.avro_ids: has 0; allowed: 1 to 2147483647"),
        (inline(TRADE), 'avro_header = "magic"', "left.source.avro_header: is 'magic'; allowed: none, confluent"),
    ],
)  # fmt: skip
def test_mistakes_in_a_job(tmp_path, schema, more, says):
    with pytest.raises(JobError, match=says):
        Job.read(write_job(tmp_path, schema, more))


def test_a_schema_that_is_missing_and_a_header_of_json(tmp_path):
    text = write_job(tmp_path, "''").read_text().replace("schema = ''\n", "")
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(JobError, match=r"left.source.schema: is missing, and avro data does not contain it"):
        Job.read(tmp_path / "job.toml")
    (tmp_path / "job.toml").write_text(text.replace('"avro"', '"json"\navro_header = "confluent"'))
    with pytest.raises(JobError, match=r"left.source.avro_header: is 'confluent', but the format is json"):
        Job.read(tmp_path / "job.toml")
