"""What only a running Spark can tell of a job file: columns, expressions, patterns; and the records of its sources."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from job_runs import write_job
from streamjoin.spark.job.checkpoint import claim
from streamjoin.spark.job.ddl import parse_ddl
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.generated import GeneratorSource
from streamjoin.spark.job.kafka_source import check_pattern
from streamjoin.spark.job.loaded import load_job
from streamjoin.spark.job.records import CORRUPT, dropped, mistakes_of_records, parse_records, reported
from streamjoin.spark.job.tables import TableContext
from streamjoin.spark.job.toml import JobError


def test_what_only_spark_knows_is_told_with_its_side(spark, tmp_path):
    def select(*expressions: str) -> Path:
        chosen = f'path = "left", select = {json.dumps(expressions)}'
        path: Path = write_job(tmp_path, 1, lambda text: text.replace('path = "left"', chosen))
        return path

    with pytest.raises(JobError, match=r"left.source.select: is \['ts', 'nowhere'\]: .*`nowhere`.*`x`"):
        load_job(Job.read(select("ts", "nowhere")), spark).results()
    with pytest.raises(JobError, match=r"left.time: is 'ts', which is not a column; allowed: t, x"):
        load_job(Job.read(select("ts AS t", "x")), spark).results()
    with pytest.raises(JobError, match=r"left.source.select: is \['ts', 'x \+\* 2'\]: .*PARSE_SYNTAX_ERROR"):
        load_job(Job.read(select("ts", "x +* 2")), spark).results()
    with pytest.raises(JobError, match=r"job.toml has a mistake\n  join.on: unknown column 'x'"):
        load_job(Job.read(select("ts", "name")), spark).results()
    results = load_job(Job.read(select("ts", "2 * x AS x")), spark).results()
    assert results.columns == ["ts", "x", "ts_right", "a"]


def test_a_pattern_that_java_can_not_read_leaves_no_checkpoint(spark, tmp_path):
    """Java accepts other patterns than Python; and the checkpoint of a query that has begun would keep the mistake."""

    def job(pattern: str) -> Job:
        source = f'kind = "kafka", servers = "localhost:1", format = "text", pattern = \'{pattern}\''
        selected = 'select = ["kafka.timestamp AS ts", "int(value) AS x"]'
        return Job.read(
            write_job(
                tmp_path,
                1,
                lambda text: text.replace(
                    'kind = "files", path = "left", max_files = 1', f"{source}, {selected}"
                ),
            )
        )

    with pytest.raises(
        JobError, match=r"left.source.pattern: is 'trades-\[a', which is not .* Unclosed character class"
    ):
        claim(load_job(job("trades-[a"), spark))
    assert not (tmp_path / "checkpoint").exists()
    check_pattern(spark, r"\p{Lower}+\Q.\E(?<day>\d++)")


@pytest.mark.parametrize("rows_per_batch", [None, 50])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_generator_has_the_columns_it_declares(spark, side, rows_per_batch):
    values = {"kind": "generator", "rows_per_second": 10, "seed": 3}
    values |= {} if rows_per_batch is None else {"rows_per_batch": rows_per_batch}
    source = GeneratorSource.model_validate(values, context=TableContext(Path(), "job", side))
    found = {(field.name, field.dataType) for field in source.read_rows(spark).schema}
    assert found == {(field.name, field.dataType) for field in source.columns}


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [("json", '{"x": 5, "s": "a"}', '{"x": "five"}'), ("csv", "5,a", "five,a")],
)
def test_records_are_taken_apart_and_malformed_ones_dropped_or_fatal(spark, form, good, bad):
    columns = parse_ddl("x INT, s STRING")
    lines = spark.createDataFrame([(good, 1), (bad, 2)], "value STRING, n INT")
    records = parse_records(lines, form, columns)
    assert records.columns == ["x", "s", CORRUPT, "n"]
    mistakes = mistakes_of_records(records, columns)
    whole = dropped(records, mistakes, "left.source").drop(CORRUPT)
    assert [tuple(row) for row in whole.collect()] == [(5, "a", 1)]
    with pytest.raises(
        Exception, match=r"left.source: line 2 has a record that cannot be parsed with the schema"
    ):
        reported(records, mistakes, "left.source", F.format_string("line %d", "n")).collect()
    assert parse_records(lines, "text", columns) is lines


def count_calls(monkeypatch: pytest.MonkeyPatch, calls: Counter[str], where: str) -> None:
    """Count the calls of a function, whichever modules of the package have imported it."""
    module, name = where.rsplit(":", 1)
    real = getattr(sys.modules[module], name)

    def counted(*given: Any, **named: Any) -> Any:
        calls[name] += 1
        return real(*given, **named)

    for other, found in list(sys.modules.items()):
        if other.startswith("streamjoin.") and getattr(found, name, None) is real:
            monkeypatch.setattr(found, name, counted)


@pytest.mark.parametrize("select", [False, True], ids=["columns of the file", "columns of select"])
def test_a_start_parses_analyses_and_plans_the_join_once(spark, tmp_path, monkeypatch, select):
    """Where only Spark knows the columns, this happens after the streams are loaded."""

    def change(text: str) -> str:
        text = text.replace("<= 1", f"<= {7 + select}")  # a predicate that no other test has planned
        return text.replace('path = "left"', 'path = "left", select = ["ts", "x"]') if select else text

    calls: Counter[str] = Counter()
    for where in (
        "streamjoin.semantics.sql:parse_predicate",
        "streamjoin.semantics.analysis:analyse",
        "streamjoin.plan.choose:make_plan",
        "streamjoin.spark.window_join:assemble",
    ):
        count_calls(monkeypatch, calls, where)
    job = Job.read(write_job(tmp_path, 1, change))
    assert calls["parse_predicate"] == calls["make_plan"] == (not select)
    loaded, _ = claim(load_job(job, spark))
    loaded.start().awaitTermination()
    assert calls == {"parse_predicate": 1, "analyse": 1, "make_plan": 1, "assemble": 1}
    assert select or loaded.spec is job.spec
