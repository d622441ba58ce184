"""Jobs on a real Spark: the same rows as the oracle, over stops, restarts and changes of the job."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkValueError, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from rich.console import Console

import streamjoin as sj
from streamjoin.cli.run import progress_line, progress_table, size_text, stopping
from streamjoin.spark.job import lock
from streamjoin.spark.job import session as sessions
from streamjoin.spark.job.checkpoint import RECORD, CheckpointError, claim, columns_of, identity, mend
from streamjoin.spark.job.ddl import ATOMIC, parse_ddl
from streamjoin.spark.job.explain import explain
from streamjoin.spark.job.failure import FAILURES, query_failure, why
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.generated import GeneratorSource
from streamjoin.spark.job.lock import locked
from streamjoin.spark.job.progress import Progress, ProgressListener, rows_behind
from streamjoin.spark.job.records import CORRUPT, dropped, mistakes_of_records, parse_records, reported
from streamjoin.spark.job.session import (
    KAFKA_CONNECTOR,
    check_master,
    cores,
    find_java,
    packages_of,
    settings_of,
)
from streamjoin.spark.job.sources import check_pattern
from streamjoin.spark.job.toml import JobError
from streamjoin.spark.join.metrics import NAMES, OBSERVATION, WORKER, WORKERS
from streamjoin.spark.state.cache import FileCache, cache_folder

TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema({"ts": TIME, "x": pa.int32(), "name": pa.string()})
RIGHT = pa.schema({"ts": TIME, "a": pa.int32()})
ON = "abs(left.x - right.a) <= 1"
JOB = f"""
[join]
on = "{ON}"
window = "10 seconds"
lateness = 0
workers = 2

[left]
source = {{ kind = "files", path = "left", max_files = 1 }}
[right]
source = {{ kind = "files", path = "right", max_files = 1 }}

[sink]
kind = "files"
path = "out"

[run]
trigger = "available-now"
checkpoint = "checkpoint"
"""


def rows_of(side: str, number: int) -> pa.Table:
    """Rows of one file: twenty, one a second, in a time of their own."""
    seconds = [20 * number + at for at in range(20)]
    stamps = pa.array([1_700_000_000_000_000 + 1_000_000 * second for second in seconds], TIME)
    values = pa.array([(7 * second + (side == "right")) % 10 for second in seconds], pa.int32())
    if side == "right":
        return pa.table([stamps, values], schema=RIGHT)
    return pa.table([stamps, values, pa.array([f"row {second}" for second in seconds])], schema=LEFT)


def add_files(folder: Path, number: int) -> None:
    """One more file for either side. Spark takes the oldest first, so each gets a moment of its own."""
    for side in ("left", "right"):
        (folder / side).mkdir(exist_ok=True)
        path = folder / side / f"{number}.parquet"
        pq.write_table(rows_of(side, number), path)
        os.utime(path, (1e9 + number, 1e9 + number))


def write_job(folder: Path, files: int, change: Callable[[str], str] = str) -> Path:
    for number in range(files):
        add_files(folder, number)
    path = folder / "job.toml"
    path.write_text(change(JOB))
    return path


def truth(files: int) -> Counter[tuple[Any, ...]]:
    left, right = (pa.concat_tables(rows_of(side, n) for n in range(files)) for side in ("left", "right"))
    spec = sj.JoinSpec(LEFT, RIGHT, ON, sj.TimeWindow("10 seconds"), "ts", "ts")
    return counted(sj.oracle.join(left, right, spec).to_pylist())


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def written(spark: SparkSession, folder: Path) -> Counter[tuple[Any, ...]]:
    """What the sink holds, as Spark reads it: only committed files."""
    return counted(spark.read.parquet(str(folder / "out")).toArrow().to_pylist())


def run_to_the_end(spark: SparkSession, path: Path) -> tuple[bool, Job]:
    job, going_on = claim(spark, Job.read(path))
    mend(spark, job)
    job.start(spark).awaitTermination()
    return going_on, job


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


def query_id(folder: Path) -> str:
    return str(json.loads((folder / "checkpoint" / "metadata").read_text())["id"])


def cached(folder: Path) -> list[Path]:
    """The files that the job's query has in the cache."""
    return [path for path in cache_folder().iterdir() if path.name.startswith(query_id(folder))]


def last_entry(log: Path) -> Path:
    return max(log.glob("[0-9]*"), key=lambda path: int(path.name.removesuffix(".compact")))


def tear(entry: Path) -> None:
    """What a machine that loses power leaves of a file that it was writing."""
    entry.write_bytes(entry.read_bytes()[: entry.stat().st_size // 2])


@pytest.mark.slow
@pytest.mark.parametrize("commit", ["whole", "missing"])
@pytest.mark.parametrize("log", ["checkpoint/offsets", "out/_spark_metadata"])
def test_a_torn_entry_of_a_log_is_taken_back(spark, tmp_path, log, commit):
    path = write_job(tmp_path, files=2)
    run_to_the_end(spark, path)
    tear(last_entry(tmp_path / log))
    if commit == "missing":
        last = last_entry(tmp_path / "checkpoint" / "commits")
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink()
    add_files(tmp_path, 2)
    run_to_the_end(spark, path)
    assert written(spark, tmp_path) == truth(files=3)


def test_whole_logs_are_left_alone_and_torn_ones_shortened(spark, tmp_path):
    """The last micro-batch may have begun, so that it has offsets alone."""
    job = Job.read(write_job(tmp_path, files=1))
    assert mend(spark, job) is None
    offsets, commits = (tmp_path / "checkpoint" / log for log in ("offsets", "commits"))
    for log in (offsets, commits):
        log.mkdir(parents=True)
    (commits / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    for number in (0, 1):
        (offsets / f"{number}").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":1}\n-')
    assert mend(spark, job) is None
    (offsets / "1").write_text("v1")
    assert mend(spark, job) == 1
    assert [path.name for path in (*offsets.iterdir(), *commits.iterdir())] == ["0", "0"]
    # What came after a torn entry goes with it.
    (offsets / "1").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":1}\n-')
    (commits / "0").write_text("v")
    assert mend(spark, job) == 0
    assert [path.name for path in (*offsets.iterdir(), *commits.iterdir())] == ["0"]


def check_changes_are_refused(spark: SparkSession, path: Path, job: Job) -> None:
    """A checkpoint belongs to its job; what only says how it is run may change."""
    unchanged = path.read_text()
    path.write_text(unchanged.replace("<= 1", "<= 2").replace('"out"', '"elsewhere"'))
    with pytest.raises(CheckpointError) as refused:
        claim(spark, Job.read(path))
    assert "join.on: was abs(left.x - right.a) <= 1, is abs(left.x - right.a) <= 2" in str(refused.value)
    assert "sink.path: was" in str(refused.value)
    assert "join.window" not in str(refused.value)
    path.write_text(unchanged.replace("available-now", "5 seconds").replace("max_files = 1", "max_files = 7"))
    assert claim(spark, Job.read(path)) == (Job.read(path).settled(spark), True)
    check_what_was_chosen_is_kept(spark, path, unchanged)
    path.write_text(unchanged)
    results = path.parent / "out"
    results.rename(path.parent / "moved")
    with pytest.raises(
        CheckpointError, match=r"sink.path of .*/out', which lacks the results \(_spark_metadata\)"
    ):
        claim(spark, job)
    (path.parent / "moved").rename(results)
    assert claim(spark, job)[1]
    (Path(str(job.run.checkpoint)) / RECORD).unlink()
    with pytest.raises(CheckpointError, match="did not start"):
        claim(spark, job)


def check_what_was_chosen_is_kept(spark: SparkSession, path: Path, unchanged: str) -> None:
    """Workers and partitioning belong to the state: what the file leaves open is as it was, what it says must be."""

    def claimed(*lines: str) -> tuple[int | None, str, str]:
        path.write_text(unchanged.replace("workers = 2", "\n".join(lines)))
        join = claim(spark, Job.read(path))[0].join
        return join.workers, join.partitioning, join.index

    assert claimed() == (2, "range", "auto")
    assert claimed("workers = 2", 'partitioning = "range"', 'index = "bisort"') == (2, "range", "bisort")
    with pytest.raises(CheckpointError) as refused:
        claimed("workers = 3", 'partitioning = "matrix"')
    assert "join.workers: was 2, is 3\n  join.partitioning: was range, is matrix\n" in str(refused.value)


@pytest.mark.slow
def test_a_checkpoint_that_does_not_note_how_rows_are_spread_goes_on_as_its_state_says(spark, tmp_path):
    """As one of a version whose `auto` was the matrix here: `auto` is refused by the state, and `matrix` goes on."""

    def spread(by: str) -> Callable[[str], str]:
        return lambda text: text.replace("workers = 2", f'workers = 2\npartitioning = "{by}"')

    path = write_job(tmp_path, files=2, change=spread("matrix"))
    run_to_the_end(spark, path)
    record = tmp_path / "checkpoint" / RECORD
    noted = json.loads(record.read_text()) | {"join.partitioning": "auto", "join.index": "auto"}
    record.with_name(f".{RECORD}.crc").unlink(missing_ok=True)
    record.write_text(json.dumps(noted))
    write_job(tmp_path, files=3)
    with pytest.raises(
        StreamingQueryException, match=r"partitioning was 'matrix of 1 x 2' and is now 'ranges of"
    ):
        run_to_the_end(spark, path)
    write_job(tmp_path, files=3, change=spread("matrix"))
    assert run_to_the_end(spark, path)[0]
    assert written(spark, tmp_path) == truth(files=3)


def test_a_checkpoint_that_no_query_has_used_takes_any_job(spark, tmp_path):
    path = write_job(tmp_path, files=1)
    assert not claim(spark, Job.read(path))[1]
    path.write_text(path.read_text().replace("<= 1", "<= 2"))
    changed, going_on = claim(spark, Job.read(path))
    assert not going_on
    noted = json.loads((tmp_path / "checkpoint" / RECORD).read_text())
    assert noted == identity(changed) | columns_of(changed, spark)
    assert noted["right.columns"] == "struct<ts:timestamp,a:int>"


def test_a_new_checkpoint_with_an_old_sink_is_refused(spark, tmp_path):
    """Spark would take the sink's log for its own and skip as many micro-batches as stand there."""
    path = write_job(tmp_path, files=1)
    (tmp_path / "out" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"sink.path .*holds the results of another run"):
        claim(spark, Job.read(path))
    assert not (tmp_path / "checkpoint").exists()


def test_a_checkpoint_that_can_not_be_written_is_told_with_its_key(spark, tmp_path):
    job = Job.read(write_job(tmp_path, files=1))
    (tmp_path / "checkpoint").write_text("in the way")
    with pytest.raises(
        CheckpointError, match=r"run.checkpoint of .*job.toml is .*, where nothing can be written"
    ):
        claim(spark, job)


def test_a_record_that_can_not_be_read_is_told(spark, tmp_path):
    path = write_job(tmp_path, files=1)
    claim(spark, Job.read(path))
    (tmp_path / "checkpoint" / "metadata").touch()
    record = tmp_path / "checkpoint" / RECORD
    tear(record)
    with pytest.raises(CheckpointError, match=f"{RECORD} says what job it belongs to, and can not be read"):
        claim(spark, Job.read(path))
    record.with_name(f".{RECORD}.crc").unlink()
    with pytest.raises(CheckpointError, match=r"can not be read \(.*: put it back from a copy"):
        claim(spark, Job.read(path))


def test_a_checkpoint_has_one_run_at_a_time(monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.2)
    path = write_job(tmp_path, files=1, change=lambda text: text.replace('"checkpoint"', '"a/b/checkpoint"'))
    job = Job.read(path)
    for _ in range(2):
        said: list[str] = []
        with locked(job, said.append):
            with pytest.raises(CheckpointError) as refused, locked(Job.read(path), said.append):
                pass
            assert f"run.checkpoint of {path} is '{tmp_path}/a/b/checkpoint', which a run" in str(
                refused.value
            )
            assert f"(process {os.getpid()} on {socket.gethostname()}): stop it first" in str(refused.value)
        assert len(said) == 1 and "waiting for another run" in said[0]
        assert not (tmp_path / "a").exists(), "nothing was written there"


def test_a_lock_lasts_as_long_as_the_last_process_that_has_it(monkeypatch, tmp_path):
    """Spark's JVM goes on for a while when its Python has been killed, or could not stop it."""
    monkeypatch.setattr(lock, "ENDING_SECONDS", 0.2)
    job = Job.read(write_job(tmp_path, files=1))
    left = tmp_path / "checkpoint" / lock.LOCK
    with locked(job, print) as ours:
        jvm = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=ours.inherited)
    with jvm:
        gone = subprocess.run(
            [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
        )
        left.write_text(f"{gone.stdout.strip()} {socket.gethostname()}")
        with (
            pytest.raises(
                CheckpointError, match=r"Spark still uses though its run \(process \d+\) has ended"
            ),
            locked(job, print),
        ):
            pass
    with locked(job, print) as ours:
        jvm = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=ours.inherited)
        ours.release()
    with jvm, locked(job, print) as again:
        assert again.inherited, "what Spark has stopped is released for its JVM too"
    assert not left.exists()


def test_a_lock_that_was_removed_meanwhile_is_none(monkeypatch, tmp_path):
    """Who had it removes the file; who has just opened that would lock what nobody else can see."""
    really = fcntl.flock

    def remove_first(*given: Any) -> None:
        (tmp_path / lock.LOCK).unlink()
        really(*given)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    assert lock.attempt(tmp_path) is None


@pytest.mark.parametrize("checkpoint", ["left/0.parquet/c", "s3a://bucket/c", "file://elsewhere/c"])
def test_where_nothing_can_be_locked_spark_has_to_find_out(tmp_path, checkpoint):
    job = Job.read(write_job(tmp_path, files=1))
    place = checkpoint if ":" in checkpoint else str(tmp_path / checkpoint)
    with locked(replace(job, run=replace(job.run, checkpoint=place)), pytest.fail) as none:
        assert none.inherited == ()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["job.toml", "left", "right"]


def test_storage_without_locks_is_told(monkeypatch, tmp_path):
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    said: list[str] = []
    with locked(Job.read(write_job(tmp_path, files=1)), said.append) as none:
        assert none.inherited == ()
    assert said == [
        f"{tmp_path}/checkpoint can not be locked (No locks available): see to it that no second run uses it"
    ]
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("scheme", ["", "file:", "file://", "FILE://localhost"])
def test_one_folder_has_one_lock_however_it_is_written(scheme):
    assert lock.local_folder(f"{scheme}/data/c") == Path("/data/c")


def test_only_a_jvm_that_does_not_answer_has_ended():
    refused = Py4JError(
        "An error occurred while calling o1.foo. Trace:\npy4j.Py4JException: Method foo([]) does not exist\n\tat x"
    )
    assert why(refused) == "Spark refused a call: Method foo([]) does not exist"
    assert "JVM has ended" in why(Py4JNetworkError("Answer from Java side is empty"))


def test_a_sink_that_can_not_be_written_is_told_with_its_key(spark, tmp_path):
    path = write_job(tmp_path, files=1, change=lambda text: text.replace('"out"', '"/proc/out"'))
    with pytest.raises(
        CheckpointError,
        match=r"sink.path of .*job.toml is '/proc/out', where nothing can be written: .*/proc",
    ):
        claim(spark, Job.read(path))
    assert not (tmp_path / "checkpoint").exists()


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
        "streamjoin: Spark's JVM has ended, killed or out of memory; the next run goes on"
    )
    assert not any("Traceback" in line for line in told)
    add_files(tmp_path, 3)
    path.write_text(JOB)
    assert run_to_the_end(spark, path)[0]
    assert written(spark, tmp_path) == truth(files=4)


def test_a_jvm_that_does_not_answer_is_told():
    for error in (
        ConnectionRefusedError(111, "Connection refused"),
        Py4JError("An error occurred while calling o1.a"),
    ):
        assert isinstance(error, FAILURES)
        assert why(error).startswith("Spark's JVM has ended")
    assert why(PySparkValueError("[X] No. SQLSTATE: 56038")) == "the query failed: [X] No."


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
    Job.read(write_job(tmp_path, files=3, change=second_source)).start(spark).awaitTermination()
    left = pa.concat_tables([*(rows_of("left", number) for number in range(3)), slow])
    right = pa.concat_tables(rows_of("right", number) for number in range(3))
    spec = sj.JoinSpec(LEFT, RIGHT, ON, sj.TimeWindow("10 seconds"), "ts", "ts")
    expected = counted(sj.oracle.join(left, right, spec).to_pylist())
    assert counted(spark.table("united").toArrow().to_pylist()) == expected


def test_what_only_spark_knows_is_told_with_its_side(spark, tmp_path):
    def select(*expressions: str) -> Path:
        chosen = f'path = "left", select = {json.dumps(expressions)}'
        return write_job(tmp_path, 1, lambda text: text.replace('path = "left"', chosen))

    with pytest.raises(JobError, match=r"left.source.select: is \['ts', 'nowhere'\]: .*`nowhere`.*`x`"):
        Job.read(select("ts", "nowhere")).results(spark)
    with pytest.raises(JobError, match=r"left.time: is 'ts', which is no column; allowed: t, x"):
        Job.read(select("ts AS t", "x")).results(spark)
    with pytest.raises(JobError, match=r"left.source.select: is \['ts', 'x \+\* 2'\]: .*PARSE_SYNTAX_ERROR"):
        Job.read(select("ts", "x +* 2")).results(spark)
    with pytest.raises(JobError, match=r"job.toml has a mistake\n  join.on: unknown column 'x'"):
        Job.read(select("ts", "name")).results(spark)
    results = Job.read(select("ts", "2 * x AS x")).results(spark)
    assert results.columns == ["ts", "x", "ts_right", "a"]


def test_a_pattern_that_java_can_not_read_leaves_no_checkpoint(spark, tmp_path):
    """Java takes others than Python does; and the checkpoint of a query that has begun would keep the mistake."""

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
        JobError, match=r"left.source.pattern: is 'trades-\[a', which is no .* Unclosed character class"
    ):
        claim(spark, job("trades-[a"))
    assert not (tmp_path / "checkpoint").exists()
    check_pattern(spark, r"\p{Lower}+\Q.\E(?<day>\d++)")


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


@pytest.mark.parametrize("rows_per_batch", [None, 50])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_generator_has_the_columns_it_declares(spark, side, rows_per_batch):
    source = GeneratorSource(side, 10, rows_per_batch, seed=3)
    found = {(field.name, field.dataType) for field in source.load(spark).schema}
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


def test_settings_follow_the_master_and_the_file_wins(tmp_path):
    job = Job.read(
        write_job(tmp_path, 1, lambda text: text + '[spark.settings]\n"spark.ui.enabled" = true\n')
    )
    local = settings_of(job, "local[4]")
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.ui.enabled"] == local["spark.python.unix.domain.socket.enabled"] == "true"
    cluster = settings_of(job, "spark://host:7077")
    assert not {"spark.driver.bindAddress", "spark.python.unix.domain.socket.enabled"} & cluster.keys()
    masters = {"local": 1, "local[3]": 3, "local[3,2]": 3, "local-cluster[2,3,1024]": 6, "yarn": None}
    assert {master: cores(master) for master in masters} == masters
    with pytest.raises(sj.SpecError, match="master is 'sprak://host'; allowed: local"):
        check_master("sprak://host")


def test_the_kafka_connector_is_fetched_when_it_is_needed(tmp_path):
    def kafka(text: str) -> str:
        return text.replace('kind = "files"\npath = "out"', 'kind = "kafka"\nservers = "a:1"\ntopic = "t"')

    assert packages_of(Job.read(write_job(tmp_path, 1))) == ()
    assert packages_of(Job.read(write_job(tmp_path, 1, kafka))) == (KAFKA_CONNECTOR,)
    own = '[spark]\npackages = ["org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"]\n'
    assert packages_of(Job.read(write_job(tmp_path, 1, lambda text: kafka(text) + own))) == (
        own.split('"')[1],
    )
    jars = '[spark.settings]\n"spark.jars" = "/jars/spark-sql-kafka-0-10_2.13-4.2.0.jar"\n'
    assert packages_of(Job.read(write_job(tmp_path, 1, lambda text: kafka(text) + jars))) == ()


def test_without_java_the_message_says_how_to_get_it(monkeypatch, tmp_path):
    assert (find_java() / "bin" / "java").exists()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sessions, "JAVA_FOLDERS", ())
    with pytest.raises(sessions.SparkStartError, match=r"Java 17 or newer.*JAVA_HOME"):
        find_java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(sessions.SparkStartError):
        find_java()
    old.write_text("#!/bin/sh\necho 'openjdk version \"21\"' >&2\n")
    assert find_java() == tmp_path


def test_spark_does_not_take_ctrl_c_for_itself(monkeypatch, tmp_path):
    """It would be an exception anywhere, from the moment there is a context until the query runs."""
    found = []

    class Context:
        defaultParallelism, _accumulatorServer = 2, SimpleNamespace()

        def __init__(self, **_given: object):
            signal.signal(signal.SIGINT, signal.default_int_handler)

    class Session:
        def __init__(self, context: Context):
            self.sparkContext, self.conf = context, self

        def set(self, *_given: object) -> None:
            found.append(signal.getsignal(signal.SIGINT))

    for name in ("JAVA_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that it is afterwards as it was
    monkeypatch.setattr(sessions, "launch_gateway", lambda *_given: None)
    monkeypatch.setattr(sessions, "SparkContext", Context)
    monkeypatch.setattr(sessions, "SparkSession", Session)
    job, stop = Job.read(write_job(tmp_path, 1)), threading.Event()
    with stopping(stop, Console(file=StringIO()), "some day"):
        sessions.open_session(job, "local[2]")
        signal.raise_signal(signal.SIGINT)
    assert stop.is_set()
    assert found[0] is not signal.default_int_handler


def test_a_log_that_can_not_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    for log in (tmp_path / "file" / "log", tmp_path / ("x" * 300), tmp_path):
        with pytest.raises(sessions.SparkStartError, match=r"run.log\) can not be written"):
            sessions.begin_log(log)
    assert sessions.begin_log(tmp_path / "logs" / "new") == 0


def test_packages_that_can_not_be_fetched_and_settings_that_can_not_be_read_are_named(tmp_path):
    log = tmp_path / "log"
    log.write_text("\t\t:: org.example#thing_2.13;1.0: not found\n")
    told = sessions.start_failure(
        RuntimeError("JAVA_GATEWAY_EXITED"), log, 0, ("org.example:thing_2.13:1.0",)
    )
    assert "could not fetch org.example#thing_2.13;1.0" in told
    assert "spark.packages" in told
    setting = """Error while instantiating 'SessionStateBuilder':

JVM stacktrace:
java.lang.IllegalArgumentException: Error while instantiating 'SessionStateBuilder':
\tat org.apache.spark.sql.classic.SparkSession.sessionState(SparkSession.scala:205)
Caused by: org.apache.spark.SparkIllegalArgumentException: [INVALID_CONF_VALUE] The value 'many' is. SQLSTATE: 22022
\tat org.apache.spark.internal.config.ConfigHelpers$.toNumber(ConfigBuilder.scala:36)
"""
    before = log.stat().st_size
    told = sessions.start_failure(ValueError(setting), log, before, ())
    assert told.splitlines()[0] == "Spark did not start: [INVALID_CONF_VALUE] The value 'many' is."
    assert "the JVM died" in sessions.start_failure(RuntimeError("the JVM died"), log, before, ())


def test_explain_tells_sources_workers_and_windows(tmp_path):
    told = explain(Job.read(write_job(tmp_path, 1)), master="local[8]")
    for words in (
        f"files {tmp_path}/left (parquet)",
        "2 of 2; ranges of 8, left rows once",
        "replicas     left 1, right 1.25 on average, 2 at most",
        "10,000,000 us; bisort index, or a scan",
    ):
        assert words in told


def test_a_malformed_record_stops_the_query_and_is_told(spark, tmp_path):
    def json_left(text: str) -> str:
        schema = 'path = "json", format = "json", schema = "ts TIMESTAMP, x INT"'
        text = text.replace('kind = "files"\npath = "out"', 'kind = "noop"')
        return text.replace('path = "left"', schema).replace('checkpoint = "checkpoint"', "")

    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "0.json").write_text('{"ts": "2026-01-01T00:00:00Z", "x": 1}\n{"x": [}\n')
    query = Job.read(write_job(tmp_path, 1, json_left)).start(spark)
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    told = query_failure(str(failed.value))
    assert told.startswith("the query failed: [FAILED_READ_FILE")
    assert "0.json" in told
    assert len(told.splitlines()) == 1


def test_a_failure_is_told_by_its_last_cause():
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
streamjoin.spark.state.manifest.StateError: the checkpoint was written by another join:
  on was 'a' and is now 'b'

\tat org.apache.spark.api.python.BasePythonRunner.run(PythonRunner.scala:1)
"""
    assert query_failure(text) == (
        "the query failed: the checkpoint was written by another join:\n  on was 'a' and is now 'b'"
    )
    missing = """Traceback (most recent call last):
ModuleNotFoundError: No module named 'numpy'
 SQLSTATE: XXKST SQLSTATE: XXKST
=== Streaming Query ===
Identifier: job
"""
    assert query_failure(missing) == (
        "the query failed: a Python worker raised ModuleNotFoundError: No module named 'numpy'"
    )
    assert query_failure("[PATH_NOT_FOUND] no such path\n\tat a.b.C").endswith(
        "[PATH_NOT_FOUND] no such path"
    )
    java = "An error occurred while calling o1.create.\n: java.io.IOException: Mkdirs failed to create /c\n\tat a.B"
    assert query_failure(java) == "the query failed: Mkdirs failed to create /c"
    stack = """org.apache.spark.SparkException: [CANNOT_COMMIT] Cannot perform commit. SQLSTATE: 58030
\tat org.apache.spark.sql.A.commit(A.scala:1)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.B.write(B.java:2)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
    assert query_failure("[CANNOT_COMMIT] Cannot perform commit. SQLSTATE: 58030", stack) == (
        "the query failed: [CANNOT_COMMIT] Cannot perform commit. (No space left on device)"
    )
    assert query_failure(
        text, f"{stack}Caused by: PythonException: Traceback (most recent call last):\n"
    ).endswith("'b'")
    streaming = (
        "[STREAM_FAILED] Query [id] terminated with exception: [X] No. SQLSTATE: 56038 SQLSTATE: X0KST\nplan"
    )
    assert query_failure(streaming) == "the query failed: [X] No."


WORKER_ERROR = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] An exception was thrown \
from the Python worker: Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
    run_process()
KeyError: 'first'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 4222, in process
    assert wanted, found
           ^^^^^^
{error}
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("AssertionError", "a Python worker raised AssertionError"),
        ("KeyError: 'x'", "a Python worker raised KeyError: 'x'"),
        ("numba.core.errors.Refused: no\n  such type", "a Python worker raised Refused: no\n  such type"),
        ("streamjoin.semantics.errors.InputError: left time is NULL", "left time is NULL"),
    ],
)
def test_an_error_of_a_python_worker_is_told_by_its_last_line(error, told):
    """Whatever its type is called, with a message or without."""
    text = WORKER_ERROR.format(error=error)
    stack = f"org.apache.spark.SparkException: {text}\tat a.B.c(D.scala:1)\nCaused by: {text}\tat a.B.c(D.scala:1)\n"
    assert query_failure(text, stack) == f"the query failed: {told}"
    assert query_failure("Job aborted due to stage failure", stack) == f"the query failed: {told}"


def test_a_query_whose_python_worker_fails_tells_why(spark):
    def refuse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if next(batches):
            raise AssertionError
        yield from batches

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    query = (
        rows.mapInArrow(refuse, "value BIGINT").writeStream.format("noop").trigger(availableNow=True).start()
    )
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    assert why(failed.value) == "the query failed: a Python worker raised AssertionError"


def event(latest: object, end: object, workers: Sequence[int] = (0, 1)) -> StreamingQueryProgress:
    source = {
        "description": "",
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 5,
    }
    source |= {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0, "metrics": {}}
    identifier = "00000000-0000-0000-0000-000000000000"
    told = {
        "id": identifier,
        "runId": identifier,
        "name": "n",
        "timestamp": "2026-01-01T00:00:09.000Z",
        "batchId": 3,
    }
    told |= {
        "batchDuration": 500,
        "durationMs": {},
        "stateOperators": [],
        "sources": [source],
        "numInputRows": 5,
    }
    told |= {"eventTime": {"max": "2026-01-01T00:00:07.500Z", "watermark": "2026-01-01T00:00:02.000Z"}}
    told |= {"sink": {"description": "", "numOutputRows": 1, "metrics": {}}, "processedRowsPerSecond": 10.0}
    counted = dict.fromkeys(NAMES, 0) | {"state_rows": 40, "state_bytes": 600}
    shared = {"rows_in": 5, "candidates": 30, "matches": 4, "cache_hits": 7, "cache_misses": 1}
    shared |= {"kernel_us": 200_000, "state_us": 90_000, "conversion_us": 10_000}
    told_by = [{WORKER: worker} | counted | (shared if worker == workers[0] else {}) for worker in workers]
    observed = {f"{OBSERVATION}_1": {WORKERS: told_by}, "somebody else's": {"rows": 1_000}}
    return StreamingQueryProgress.fromJson(told | {"inputRowsPerSecond": 9.0, "observedMetrics": observed})


def test_progress_adds_up_and_knows_how_far_it_is_behind():
    kafka = event({"t": {"0": 30, "1": 5}}, {"t": {"0": 10, "1": 5}})
    assert rows_behind(kafka) == 20
    assert rows_behind(event(None, {"logOffset": 3})) is None
    progress = Progress().after(kafka).after(kafka)
    assert (progress.batches, progress.rows, progress.busy_seconds, progress.behind) == (2, 10, 1.0, 20)
    assert (progress.candidates, progress.matches) == (60, 8)
    assert progress.lag_seconds == 1.5
    assert "watermark 2026-01-01 00:00:02" in progress_line(progress)
    assert "20 behind" in progress_line(progress)
    printed = Console(width=100, record=True, file=StringIO())
    printed.print(progress_table(progress, seconds=60.0))
    text = printed.export_text()
    for words in (
        "10  10/s; 10/s on average",
        "2  0.50 s; 0.50 s on average, running for 60 s",
        "newest row 1.5 s ago",
        "20  rows wait in Kafka",
        "8  8/s",  # matches
        "60  7.5 for a match",  # candidates
        "14  runs found; 2 read back from the state store",
        "0.30 s  kernels 0.20 s, state 0.09 s, conversion 0.01 s",
    ):
        assert words in text, text
    assert "late" not in text and "malformed" not in text
    assert progress_line(Progress()) == "no micro-batch was run: nothing new has come"
    printed.print(progress_table(Progress(late=3, malformed=2, batches=1), seconds=1.0))
    text = printed.export_text()
    assert "3  rows came after the lateness" in text
    assert "2  rows could not be joined and were dropped" in text
    assert progress_line(Progress(late=3, malformed=2, batches=1)).endswith(", 3 late, 2 malformed")


def test_a_worker_that_did_not_run_still_holds_what_it_held():
    progress = Progress().after(event(None, None)).after(event(None, None, workers=(1,)))
    assert (progress.state_rows, progress.state_bytes) == (80, 1200)
    assert progress.after(event(None, None, workers=())).state_rows == 80


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (2_100_000, "2.1 MB"), (3e12, "3,000.0 GB")]
)
def test_sizes_have_a_unit(size, text):
    assert size_text(size) == text
