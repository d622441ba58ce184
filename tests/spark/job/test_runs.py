"""Jobs on a real Spark: the same rows as the oracle, over stops and restarts, and with several sources."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import streamjoin as sj
from job_runs import (
    JOB,
    LEFT,
    ON,
    RIGHT,
    add_files,
    cached,
    counted,
    last_entry,
    query_id,
    rows_of,
    run_to_the_end,
    tear,
    truth,
    write_job,
    written,
)
from streamjoin.cli.run import progress_line
from streamjoin.spark.job.checkpoint import RECORD, CheckpointError, claim, mend
from streamjoin.spark.job.explain import explain_job
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.loaded import load_job
from streamjoin.spark.job.progress import ProgressListener
from streamjoin.spark.state.cache import FileCache, cache_folder


def test_a_job_writes_the_oracles_rows_and_goes_on_from_its_checkpoint(spark, tmp_path):
    path = write_job(tmp_path, files=2)
    listener = ProgressListener()
    spark.streams.addListener(listener)
    try:
        going_on, _ = run_to_the_end(spark, path)
        assert not going_on
        assert written(spark, tmp_path) == truth(files=2)
        assert cached(tmp_path)
        FileCache(cache_folder(), 1 << 30).remove_all_of(query_id(tmp_path))
        assert not cached(tmp_path), "and it goes on without"
        torn = last_entry(tmp_path / "checkpoint" / "commits")
        tear(torn)
        assert mend(spark, Job.read(path)) == int(torn.name)
        add_files(tmp_path, 2)
        going_on, job = run_to_the_end(spark, path)
        assert going_on
        assert written(spark, tmp_path) == truth(files=3)
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    progress = listener.progress
    assert progress.rows == 2 * 3 * 20
    assert progress.matches == truth(files=3).total()
    assert progress.state_rows > 0
    assert progress.watermark is not None
    assert f"{progress.rows:,} rows" in progress_line(progress)
    check_changes_are_refused(spark, path, job)


def check_changes_are_refused(spark: SparkSession, path: Path, job: Job) -> None:
    """A checkpoint belongs to its job; what only says how it is run may change."""
    unchanged = path.read_text()
    path.write_text(unchanged.replace("<= 1", "<= 2").replace('"out"', '"elsewhere"'))
    with pytest.raises(CheckpointError) as refused:
        claim(load_job(Job.read(path), spark))
    assert "join.on: was abs(left.x - right.a) <= 1, is abs(left.x - right.a) <= 2" in str(refused.value)
    assert "sink.path: was" in str(refused.value)
    assert "join.window" not in str(refused.value)
    path.write_text(unchanged.replace("available-now", "5 seconds").replace("max_files = 1", "max_files = 7"))
    assert claim(load_job(Job.read(path), spark))[1]
    check_what_was_chosen_is_kept(spark, path, unchanged)
    path.write_text(unchanged)
    results = path.parent / "out"
    results.rename(path.parent / "moved")
    with pytest.raises(
        CheckpointError, match=r"sink.path of .*/out', which lacks the rows \(_spark_metadata\)"
    ):
        claim(load_job(job, spark))
    (path.parent / "moved").rename(results)
    assert claim(load_job(job, spark))[1]
    (Path(str(job.run.checkpoint)) / RECORD).unlink()
    with pytest.raises(CheckpointError, match="did not start"):
        claim(load_job(job, spark))


def check_what_was_chosen_is_kept(spark: SparkSession, path: Path, unchanged: str) -> None:
    """Workers and partitioning belong to the state: the file may leave them open, and must not change them."""

    def claimed(*lines: str) -> tuple[int | None, str, str]:
        path.write_text(unchanged.replace("workers = 2", "\n".join(lines)))
        join = claim(load_job(Job.read(path), spark))[0].job.join
        return join.workers, join.partitioning, join.index

    assert claimed() == (2, "range", "auto")
    assert claimed("workers = 2", 'partitioning = "range"', 'index = "bisort"') == (2, "range", "bisort")
    with pytest.raises(CheckpointError) as refused:
        claimed("workers = 3", 'partitioning = "matrix"')
    assert "join.workers: was 2, is 3\n  join.partitioning: was range, is matrix\n" in str(refused.value)


@contextmanager
def running(folder: Path, path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, from its first results on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "streamjoin.cli", "run", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A group of its own, as a terminal's foreground job has, so that a signal can reach Spark's processes too.
        start_new_session=True,
    )
    try:
        while process.poll() is None and not list((folder / "out" / "_spark_metadata").glob("[0-9]*")):
            time.sleep(0.2)
        yield process
    finally:
        process.kill()


def without_end(text: str) -> str:
    return text.replace('"available-now"', '"asap"')


@pytest.mark.slow
def test_one_ctrl_c_stops_cleanly_and_the_next_run_goes_on(spark, tmp_path):
    path = write_job(tmp_path, files=3, change=without_end)
    with running(tmp_path, path) as first:
        assert cached(tmp_path)
        os.killpg(first.pid, signal.SIGINT)
        told = first.communicate(timeout=300)[0]
    assert not cached(tmp_path)
    assert first.returncode == 0, told + (tmp_path / "job.spark.log").read_text()[-4000:]
    assert "stopping after this micro-batch" in told
    assert "rows" in told.splitlines()[-1]
    add_files(tmp_path, 3)
    path.write_text(JOB)
    assert run_to_the_end(spark, path)[0]
    assert written(spark, tmp_path) == truth(files=4)


@pytest.mark.slow
def test_a_second_run_is_refused_and_a_jvm_that_is_killed_is_told(spark, tmp_path):
    path = write_job(tmp_path, files=3, change=without_end)
    with running(tmp_path, path) as first:
        command = [sys.executable, "-m", "streamjoin.cli", "run", str(path)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=300)
        next(
            each for each in psutil.Process(first.pid).children(recursive=True) if each.name() == "java"
        ).kill()
        told = first.communicate(timeout=300)[0].splitlines()
    assert second.returncode == 2, second.stdout + second.stderr
    assert f"which a run that has not ended uses (process {first.pid} on " in second.stderr
    assert first.returncode == 1, told
    assert told[-2].startswith(
        "streamjoin: Spark's JVM has ended, killed or out of memory; the next run resumes"
    )
    assert not any("Traceback" in line for line in told)
    add_files(tmp_path, 3)
    path.write_text(JOB)
    assert run_to_the_end(spark, path)[0]
    assert written(spark, tmp_path) == truth(files=4)


def test_several_sources_are_united_and_the_slowest_decides(spark, tmp_path):
    """The second source of left is ten seconds behind from the second micro-batch on, more than lateness allows."""

    def second_source(text: str) -> str:
        source = '[[left.source]]\nkind = "files"\npath = "{}"\nmax_files = 1\n'
        both = source.format("left") + source.format("slow")
        text = text.replace('source = { kind = "files", path = "left", max_files = 1 }', both)
        text = text.replace('kind = "files"\npath = "out"', 'kind = "memory"\ntable = "united"')
        return text.replace('checkpoint = "checkpoint"', "")

    slow = pa.concat_tables(rows_of("left", number) for number in range(2)).slice(0, 30)
    (tmp_path / "slow").mkdir()
    for number in range(3):
        file = tmp_path / "slow" / f"{number}.parquet"
        pq.write_table(slow.slice(10 * number, 10), file)
        os.utime(file, (1e9 + number, 1e9 + number))
    load_job(Job.read(write_job(tmp_path, files=3, change=second_source)), spark).start().awaitTermination()
    left = pa.concat_tables([*(rows_of("left", number) for number in range(3)), slow])
    right = pa.concat_tables(rows_of("right", number) for number in range(3))
    spec = sj.JoinSpec(LEFT, RIGHT, ON, sj.TimeWindow("10 seconds"), "ts", "ts")
    expected = counted(sj.oracle.join(left, right, spec).to_pylist())
    assert counted(spark.table("united").toArrow().to_pylist()) == expected


def test_explain_tells_sources_workers_and_windows(tmp_path):
    told = explain_job(Job.read(write_job(tmp_path, 1)), master="local[8]")
    for words in (
        f"files {tmp_path}/left (parquet)",
        "2 of 2; ranges of 8, left rows once",
        "replicas     left 1, right 1.25 on average, 2 at most",
        "10 seconds; bisort index, or a scan",
    ):
        assert words in told


def test_a_job_picks_the_last_row_before_each_left_row(spark, tmp_path):
    """As-of by a band: `[join] keep` and `right_tie` from the file to the files of the sink."""
    lines = 'workers = 2\nkeep = { as_of = "backward", strict = true }\nright_tie = "a"'
    path = write_job(tmp_path, 3, lambda job: job.replace("workers = 2", lines))
    run_to_the_end(spark, path)
    left, right = (pa.concat_tables(rows_of(side, n) for n in range(3)) for side in ("left", "right"))
    spec = sj.JoinSpec(
        *(LEFT, RIGHT, ON, sj.TimeWindow("10 seconds"), "ts", "ts"),
        keep=sj.AsOf("backward", strict=True),
        right_tie="a",
    )
    expected = counted(sj.oracle.join(left, right, spec).to_pylist())
    found = written(spark, tmp_path)
    assert found <= expected
    # The last rows wait for a watermark that the end of the files does not bring.
    assert found.total() > 40
