"""A checkpoint belongs to one job, says so when it does not fit, and survives torn log entries."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException

from job_runs import add_files, last_entry, run_to_the_end, tear, truth, write_job, written
from streamjoin.spark.job.checkpoint import RECORD, CheckpointError, claim, columns_of, identity, mend
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.loaded import load_job


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


@pytest.mark.slow
def test_a_checkpoint_that_does_not_note_how_rows_are_spread_goes_on_as_its_state_says(spark, tmp_path):
    """As from a version whose `auto` was the matrix here: the state refuses `auto`, and `matrix` resumes."""

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
    assert not claim(load_job(Job.read(path), spark))[1]
    path.write_text(path.read_text().replace("<= 1", "<= 2"))
    loaded, going_on = claim(load_job(Job.read(path), spark))
    assert not going_on
    noted = json.loads((tmp_path / "checkpoint" / RECORD).read_text())
    assert noted == identity(loaded.job) | columns_of(loaded)
    assert noted["right.columns"] == "struct<ts:timestamp,a:int>"


def test_a_new_checkpoint_with_an_old_sink_is_refused(spark, tmp_path):
    """Spark would take the sink's log for its own and skip as many micro-batches as it lists."""
    path = write_job(tmp_path, files=1)
    (tmp_path / "out" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"sink.path .*holds the rows of another run"):
        claim(load_job(Job.read(path), spark))
    assert not (tmp_path / "checkpoint").exists()


def test_a_checkpoint_that_can_not_be_written_is_told_with_its_key(spark, tmp_path):
    job = Job.read(write_job(tmp_path, files=1))
    (tmp_path / "checkpoint").write_text("in the way")
    with pytest.raises(
        CheckpointError, match=r"run.checkpoint of .*job.toml is .*, where nothing can be written"
    ):
        claim(load_job(job, spark))


def test_a_record_that_can_not_be_read_is_told(spark, tmp_path):
    path = write_job(tmp_path, files=1)
    claim(load_job(Job.read(path), spark))
    (tmp_path / "checkpoint" / "metadata").touch()
    record = tmp_path / "checkpoint" / RECORD
    tear(record)
    with pytest.raises(CheckpointError, match=f"{RECORD} says what job it belongs to, and cannot be read"):
        claim(load_job(Job.read(path), spark))
    record.with_name(f".{RECORD}.crc").unlink()
    with pytest.raises(CheckpointError, match=r"cannot be read \(.*: put it back from a copy"):
        claim(load_job(Job.read(path), spark))


def test_a_sink_that_can_not_be_written_is_told_with_its_key(spark, tmp_path):
    path = write_job(tmp_path, files=1, change=lambda text: text.replace('"out"', '"/proc/out"'))
    with pytest.raises(
        CheckpointError,
        match=r"sink.path of .*job.toml is '/proc/out', where nothing can be written: .*/proc",
    ):
        claim(load_job(Job.read(path), spark))
    assert not (tmp_path / "checkpoint").exists()
