"""`[late]` in job files: rows that came too late go to a sink of their own, with the guarantee of the results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import streamjoin as sj
from job_runs import LEFT, ON, RIGHT, counted, rows_of, run_to_the_end, truth, write_job, written
from streamjoin.spark.job.checkpoint import CheckpointError
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.sinks import FilesSink
from streamjoin.spark.job.toml import JobError

LATE = '\n[late]\nkind = "files"\npath = "late"\nformat = "json"\n'


def with_late(job: str) -> str:
    return job + LATE


def add_late_file(folder: Path, number: int = 3, side: str = "left") -> None:
    """A file that comes after three others, with the times of the first."""
    path = folder / side / f"late{number}.parquet"
    pq.write_table(rows_of(side, 0), path)
    os.utime(path, (1e9 + number, 1e9 + number))


def late_rows(spark, folder: Path, column: str = "x") -> Counter[object]:
    """A column of what the sink of late rows holds; files of a run that failed do not count."""
    return Counter(row[column] for row in spark.read.json(str(folder / "late")).collect())


def expected(column: str = "x", side: str = "left") -> Counter[object]:
    return Counter(rows_of(side, 0)[column].to_pylist())


def test_late_rows_go_to_their_own_sink(spark, tmp_path):
    path = write_job(tmp_path, 3, with_late)
    add_late_file(tmp_path)
    run_to_the_end(spark, path)
    assert written(spark, tmp_path) == truth(files=3)
    assert late_rows(spark, tmp_path) == expected()
    frame = spark.read.json(str(tmp_path / "late"))
    assert {"ts", "x", "name"} <= set(frame.columns)
    add_late_file(tmp_path, 4, "right")
    going_on, _ = run_to_the_end(spark, path)
    assert going_on
    assert written(spark, tmp_path) == truth(files=3)
    assert late_rows(spark, tmp_path, "a") - Counter({None: 20}) == expected("a", "right")


def test_late_rows_of_a_semi_join_have_the_columns_of_both_sides(spark, tmp_path):
    path = write_job(
        tmp_path, 3, lambda job: with_late(job).replace("workers = 2", 'workers = 2\nhow = "semi"')
    )
    add_late_file(tmp_path, side="right")
    run_to_the_end(spark, path)
    left, right = (pa.concat_tables(rows_of(side, n) for n in range(3)) for side in ("left", "right"))
    spec = sj.JoinSpec(LEFT, RIGHT, ON, sj.TimeWindow("10 seconds"), "ts", "ts", how="semi")
    assert written(spark, tmp_path) == counted(sj.oracle.join(left, right, spec).to_pylist())
    assert late_rows(spark, tmp_path, "a") == expected("a", "right")


@pytest.mark.parametrize("fails", ["out", "late"])
def test_a_failure_between_the_sinks_loses_and_repeats_nothing(spark, tmp_path, monkeypatch, fails):
    path = write_job(tmp_path, 3, with_late)
    add_late_file(tmp_path)
    write_batch = FilesSink.write_batch
    failed: list[int] = []

    def failing(sink: FilesSink, results, number: int) -> None:
        if number == 3 and sink.path.endswith(fails) and not failed:
            failed.append(number)
            raise OSError("the disk is gone")
        write_batch(sink, results, number)

    monkeypatch.setattr(FilesSink, "write_batch", failing)
    with pytest.raises(StreamingQueryException, match="the disk is gone"):
        run_to_the_end(spark, path)
    assert failed
    run_to_the_end(spark, path)
    assert written(spark, tmp_path) == truth(files=3)
    assert late_rows(spark, tmp_path) == expected()


def test_the_sink_of_late_rows_belongs_to_the_checkpoint(spark, tmp_path):
    path = write_job(tmp_path, 1, with_late)
    run_to_the_end(spark, path)
    unchanged = path.read_text()
    for changed in (unchanged.replace('"late"', '"elsewhere"'), unchanged.replace(LATE, "")):
        path.write_text(changed)
        with pytest.raises(CheckpointError, match=r"late\.path: was"):
            run_to_the_end(spark, path)
    path.write_text(unchanged)
    (tmp_path / "late").rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"late\.path of .* lacks the rows"):
        run_to_the_end(spark, path)


def test_a_folder_of_late_rows_has_one_query(spark, tmp_path):
    path = write_job(tmp_path, 1, with_late)
    run_to_the_end(spark, path)
    again = path.read_text().replace('"out"', '"out2"').replace('"checkpoint"', '"checkpoint2"')
    path.write_text(again)
    with pytest.raises(CheckpointError, match=r"late\.path of .* holds the rows of another run"):
        run_to_the_end(spark, path)


@pytest.mark.parametrize(
    ("late", "key", "told"),
    [
        ('kind = "memory"', "late.kind", "allowed: files, kafka, spark, table, jdbc, console, noop"),
        ('kind = "files"', "late.path", "is missing"),
        ('kind = "files"\npath = "out"', "late.path", "where the results go"),
        ('kind = "files"\npath = "out/late"', "late.path", "where the results go"),
        ('kind = "files"\npath = "left"', "late.path", "which the source"),
        ('kind = "files"\npath = "late"\npartition_by = "late"', "late.partition_by", "not a column"),
        ('kind = "console"\nrow = 3', "late.row", "did you mean rows"),
    ],
)
def test_mistakes_in_the_table(tmp_path, late, key, told):
    path = write_job(tmp_path, 1, lambda job: f"{job}\n[late]\n{late}\n")
    with pytest.raises(JobError) as error:
        Job.read(path)
    assert any(key in line and told in line for line in str(error.value).splitlines())


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        (
            'kind = "memory"',
            "a memory sink writes no late rows; allowed beside it: files, kafka, spark, table, jdbc, console, noop",
        ),
        ('kind = "console"', "is missing, and a files sink needs one"),
    ],
)
def test_a_sink_beside_that_of_late_rows(tmp_path, sink, told):
    path = write_job(
        tmp_path,
        1,
        lambda job: with_late(
            job.replace('kind = "files"\npath = "out"', sink).replace('checkpoint = "checkpoint"', "")
        ),
    )
    with pytest.raises(JobError, match=told):
        Job.read(path)


def test_late_rows_can_be_printed(spark, tmp_path):
    path = write_job(tmp_path, 3, lambda job: f'{job}\n[late]\nkind = "console"\n')
    add_late_file(tmp_path)
    command = [sys.executable, "-m", "streamjoin.cli", "run", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert "|row 7|" in done.stdout.replace(" |", "|").replace("| ", "|")
    assert written(spark, tmp_path) == truth(files=3)
