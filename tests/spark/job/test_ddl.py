"""Column lists of job files: what Spark would read in them, and where one is wrong."""

from __future__ import annotations

import pytest
from pyspark.sql import types

import streamjoin as sj
from streamjoin.spark.job.ddl import ATOMIC, parse_ddl


def test_a_schema_is_a_list_of_columns():
    read = parse_ddl(
        "`a b` INT NOT NULL, m map<string, array<struct<p: decimal(4,1), q BIGINT>>>, d decimal, t Timestamp_NTZ"
    )
    assert read["a b"].nullable is False
    assert read["m"].dataType.simpleString() == "map<string,array<struct<p:decimal(4,1),q:bigint>>>"
    assert read["d"].dataType == types.DecimalType(10, 0)
    assert read["t"].dataType == types.TimestampNTZType()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "at the end"),
        ("x", "at the end"),
        ("x INT,", "at the end"),
        ("x INT y INT", "at 'y'"),
        ("x INT; y INT", "at ';'"),
        ("x array<int", "at the end"),
        ("x map<int>", "unknown type 'map of 1'"),
        ("x int[]", r"at '\["),
        ("x array(int)", r"at '\('"),
        ("x decimal[]", r"at '\['"),
        ("x array<>", "at '>'"),
        ("x decimal()", r"at '\)'"),
        ("'x' INT", "at \"'x'\""),
        ("a.b INT", r"at '\.'"),
        ("x varchar2", "unknown type 'varchar2'"),
        ("x decimal(39, 2)", "1 to 38"),
        ("x decimal(p)", r"write decimal\(p, s\)"),
        ("x INT, x INT", "declared twice"),
    ],
)
def test_a_schema_that_is_none(text, says):
    with pytest.raises(sj.SpecError, match=says):
        parse_ddl(text)


@pytest.mark.parametrize(
    "ddl",
    [
        ", ".join(f"c{at} {name}" for at, name in enumerate(ATOMIC)),
        "d decimal, e DECIMAL(9), f numeric(9, 3), `odd ``name` INT NOT NULL",
        "s struct<a: int, b string NOT NULL, c: map<string, array<timestamp>>>, t array<array<double>>",
    ],
)
def test_a_schema_means_what_spark_reads_in_it(spark, ddl):
    assert parse_ddl(ddl) == spark.createDataFrame([], ddl).schema
