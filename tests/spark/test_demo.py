"""The demonstration's job: it holds the oracle's pairs, its check can fail, and its folder can be run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamjoin as sj
from streamjoin.cli.demo import (
    FILES_PER_SIDE,
    LEFT_SCHEMA,
    PREDICATE,
    RIGHT_SCHEMA,
    Sample,
    generate,
    read_results,
    read_stream,
    write_job,
)
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.loaded import load_job

SPEC = sj.JoinSpec(LEFT_SCHEMA, RIGHT_SCHEMA, PREDICATE, sj.TimeWindow("1 minute", "30 seconds"), "ts", "ts")


def test_the_job_of_the_demo_is_readable_and_means_its_spec(tmp_path):
    left, right = generate(100, rate=10, seed=1)
    job = Job.read(write_job(tmp_path / "demo", left, right, SPEC))
    assert job.spec is not None
    assert (job.spec.left_window, job.spec.right_window) == (SPEC.left_window, SPEC.right_window)
    assert (job.spec.left, job.spec.right) == (SPEC.left, SPEC.right)
    assert str(job.spec.predicate) == str(SPEC.predicate)
    assert len(list((tmp_path / "demo" / "left").iterdir())) == FILES_PER_SIDE
    assert read_stream(tmp_path / "demo", "left").equals(left)


def test_the_demo_finds_what_the_oracle_finds(spark, tmp_path):
    left, right = generate(6_000, rate=50, seed=1)
    load_job(Job.read(write_job(tmp_path, left, right, SPEC)), spark).start().awaitTermination()
    results = read_results(tmp_path, SPEC.schema)
    assert sorted(results.to_pylist(), key=repr) == sorted(
        sj.join_tables(left, right, SPEC).to_pylist(), key=repr
    )
    sample = Sample(left.num_rows)
    sample.keep(results)
    expected, missing, wrong = sample.check(left, right, SPEC)
    assert expected > 0
    assert (missing, wrong) == (0, 0)
    # Nothing that Spark has not committed counts.
    stray = pa.concat_tables([results.slice(0, 1)])
    pq.write_table(stray, tmp_path / "out" / "part-stray.parquet")
    assert read_results(tmp_path, SPEC.schema).num_rows == results.num_rows


@pytest.mark.slow
def test_the_command_leaves_a_folder_that_can_be_run_again(tmp_path):
    def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "streamjoin.cli", "demo", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)

    first = demo("--rate", "40", "--minutes", "2", "--window", "1 minute")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "windows of 1 minute\n" in first.stdout
    assert "checked against the oracle: all" in first.stdout
    again = demo()
    assert again.returncode == 0, again.stdout + again.stderr
    assert "its job resumes from its checkpoint" in again.stdout
    assert "windows of" not in again.stdout, "they are the job's, whatever the options say"
    assert "no micro-batch was run: nothing new has come" in again.stdout
    assert "checked against the oracle: all" in again.stdout
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    refused = demo("mine")
    assert refused.returncode == 2
    assert "holds something else" in refused.stderr
    assert list((tmp_path / "mine").iterdir()) == [Path(tmp_path / "mine" / "thesis.txt")]
