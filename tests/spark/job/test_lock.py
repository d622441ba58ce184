"""A checkpoint has one run at a time: its lock, and where there can be none."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from job_runs import write_job
from streamjoin.spark.job import lock
from streamjoin.spark.job.checkpoint import CheckpointError
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.lock import locked


def test_a_checkpoint_has_one_run_at_a_time(tmp_path):
    path = write_job(tmp_path, files=1, change=lambda text: text.replace('"checkpoint"', '"a/b/checkpoint"'))
    job = Job.read(path)
    for _ in range(2):
        said: list[str] = []
        with locked(job, said.append):
            with pytest.raises(CheckpointError) as refused, locked(Job.read(path), said.append, patience=0.2):
                pass
            assert f"run.checkpoint of {path} is '{tmp_path}/a/b/checkpoint', which a run" in str(
                refused.value
            )
            assert f"(process {os.getpid()} on {socket.gethostname()}): stop it first" in str(refused.value)
        assert len(said) == 1 and "waiting for another run" in said[0]
        assert not (tmp_path / "a").exists(), "nothing was written there"


def test_a_lock_lasts_as_long_as_the_last_process_that_has_it(tmp_path):
    """Spark's JVM runs on for a while when its Python was killed, or could not stop it."""
    job = Job.read(write_job(tmp_path, files=1))
    left = tmp_path / "checkpoint" / lock.LOCK_FILE
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
            locked(job, print, ending=0.2),
        ):
            pass
    with locked(job, print) as ours:
        jvm = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=ours.inherited)
        ours.release()
    with jvm, locked(job, print) as again:
        assert again.inherited, "what Spark has stopped is released for its JVM too"
    assert not left.exists()


def test_a_lock_that_was_removed_meanwhile_is_none(monkeypatch, tmp_path):
    """The owner removes the file; a process that has just opened it would lock a file that no other process can see."""
    really = fcntl.flock

    def remove_first(*given: Any) -> None:
        (tmp_path / lock.LOCK_FILE).unlink()
        really(*given)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    assert lock.attempt(tmp_path) is None


@pytest.mark.parametrize("checkpoint", ["left/0.parquet/c", "s3a://bucket/c", "file://elsewhere/c"])
def test_where_nothing_can_be_locked_spark_has_to_find_out(tmp_path, checkpoint):
    job = Job.read(write_job(tmp_path, files=1))
    place = checkpoint if ":" in checkpoint else str(tmp_path / checkpoint)
    with locked(replace(job, run=job.run.model_copy(update={"checkpoint": place})), pytest.fail) as none:
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
        f"{tmp_path}/checkpoint cannot be locked (No locks available): make sure that no second run uses it"
    ]
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("scheme", ["", "file:", "file://", "FILE://localhost"])
def test_one_folder_has_one_lock_however_it_is_written(scheme):
    assert lock.local_folder(f"{scheme}/data/c") == Path("/data/c")
