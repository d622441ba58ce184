"""Checkpoints of real queries: read, rescaled, interrupted, and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from job_runs import FAR, ON, add_files, final, run_to_the_end, truth, write_job, written
from streamjoin.cli.checkpoints import rescaled_line, state_heading, state_json
from streamjoin.semantics.errors import StreamJoinError
from streamjoin.spark import StateError, read_state, rescale, window_join
from streamjoin.spark.checkpoint.exchange import COMPLETE, MAKING, OLD, exchange, exchanged, settle
from streamjoin.spark.checkpoint.folder import Folder
from streamjoin.spark.job.checkpoint import CheckpointError
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.rescaling import contradictions, rescale_job, state_of_job

FILES, MORE = 3, 5  # files of either side before and after rescaling


class Interrupted(Exception):
    """Stands for a killed process: nothing is cleaned up."""


def interrupting(step: int) -> Callable[[str], None]:
    """A function for `say` that raises at the step with this number."""
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == step:
            raise Interrupted(line)

    return say


def open_to_more_workers(text: str) -> str:
    return text.replace("workers = 2\n", "")


def begun(spark: SparkSession, folder: Path, change: Callable[[str], str] = open_to_more_workers) -> Path:
    """A job whose query has read the first files with two workers, and was stopped."""
    path: Path = write_job(folder, FILES, change)
    run_to_the_end(spark, path)
    return path


def go_on(spark: SparkSession, folder: Path) -> None:
    """Let the job read more files to the end."""
    for number in range(FILES, MORE):
        add_files(folder, number)
    run_to_the_end(spark, folder / "job.toml")


def beside(folder: Path) -> list[str]:
    """What is left beside the checkpoint."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("checkpoint."))


@pytest.mark.xdist_group("spark")
def test_a_job_is_rescaled_and_loses_no_row(spark, tmp_path):
    path = begun(spark, tmp_path)
    job = Job.read(path)
    (before,) = state_of_job(job, spark)
    assert before.settings["workers"] == "2" and before.partitions == 2 and len(before.workers) == 2
    assert before.side("left").rows > 0 and before.ticks_are_micros
    with pytest.raises(Interrupted):  # in the middle: the old checkpoint is as it was
        rescale_job(job, spark, 5, None, interrupting(3))
    assert beside(tmp_path) == [f"checkpoint{MAKING}"] and state_of_job(job, spark) == (before,)
    said: list[str] = []
    (done,) = rescale_job(job, spark, 5, None, said.append)
    assert (done.workers, done.partitions, done.before) == (5, 5, before)
    assert "dividing" in said[0] and len(said) == 4 and beside(tmp_path) == []
    (after,) = state_of_job(job, spark)
    assert after.settings["workers"] == "5" and len(after.workers) == 5 and after.partitions == 5
    assert after.batch == before.batch and after.side("left").newest == before.side("left").newest
    assert rescale_job(job, spark, 5, None, said.append) == ()  # fits already
    go_on(spark, tmp_path)
    assert written(spark, tmp_path) == truth(MORE)
    (last,) = state_of_job(job, spark)
    assert last.settings["workers"] == "5" and last.batch > after.batch
    assert "rescaled from 2 to 5 workers" in rescaled_line(done)
    assert "5 workers in 5 partitions" in state_heading(last)
    assert json.loads(state_json([last]))[0]["workers"][4]["number"] == 4


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_job_is_rescaled_to_another_partitioning_and_back(spark, tmp_path):
    path = begun(spark, tmp_path)
    job = Job.read(path)
    rescale_job(job, spark, 4, "matrix", print)
    add_files(tmp_path, FILES)
    run_to_the_end(spark, path)
    assert state_of_job(job, spark)[0].settings["partitioning"] == "matrix of 2 x 2"
    rescale_job(job, spark, 1, "range", print)
    go_on(spark, tmp_path)
    assert written(spark, tmp_path) == truth(MORE)


@pytest.mark.xdist_group("spark")
def test_a_job_without_a_checkpoint_that_it_has_started_is_refused(spark, tmp_path):
    path = write_job(tmp_path, 1)
    with pytest.raises(CheckpointError, match="has not started: set workers in the file"):
        rescale_job(Job.read(path), spark, 4, None, print)
    with pytest.raises(StateError, match="holds no state of a window join"):
        state_of_job(Job.read(path), spark)
    assert not (tmp_path / "checkpoint").exists()


def streams(spark: SparkSession, folder: Path) -> list[Any]:
    return [
        spark.readStream.schema("ts TIMESTAMP, x INT" if side == "left" else "ts TIMESTAMP, a INT")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / side))
        for side in ("left", "right")
    ]


def joined(spark: SparkSession, folder: Path, workers: int, how: Any = "left") -> Any:
    given: dict[str, Any] = {
        "window": "10 seconds",
        "left_time": "ts",
        "right_time": "ts",
        "lateness": "0 seconds",
    }
    left, right = streams(spark, folder)
    return window_join(left, right, "left.x = right.a", workers=workers, how=how, **given)


def run(frame: Any, folder: Path) -> None:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()


def pairs(spark: SparkSession, folder: Path) -> list[Any]:
    return sorted(map(tuple, spark.read.parquet(str(folder / "out")).collect()), key=repr)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_program_rescales_its_query_with_a_partner_that_was_found_before(spark, tmp_path):
    write_job(tmp_path, FILES)
    checkpoint = str(tmp_path / "checkpoint")
    run(joined(spark, tmp_path, workers=2), tmp_path)
    wider = joined(spark, tmp_path, workers=6).where("x < 100")
    (done,) = rescale(wider, checkpoint)
    # The session's own number of partitions stays.
    assert (done.workers, done.partitions) == (6, 2)
    for number in range(FILES, MORE):
        add_files(tmp_path, number)
    run(wider, tmp_path)
    once = tmp_path / "once"
    once.mkdir()
    for side in ("left", "right"):
        shutil.copytree(tmp_path / side, once / side)
    run(joined(spark, once, workers=1), once)
    assert pairs(spark, tmp_path) == pairs(spark, once)
    (state,) = read_state(checkpoint, spark)
    assert state.settings["workers"] == "6"


@pytest.mark.xdist_group("spark")
def test_what_cannot_be_rescaled_is_refused(spark, tmp_path):
    write_job(tmp_path, 1)
    checkpoint = str(tmp_path / "checkpoint")
    with pytest.raises(StateError, match="is not the checkpoint of a query"):
        rescale(joined(spark, tmp_path, workers=2), checkpoint)
    with pytest.raises(StreamJoinError, match="is not made by window_join in this process"):
        rescale(spark.range(1), checkpoint)
    running = joined(spark, tmp_path, workers=1)
    query = running.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
        with pytest.raises(StreamJoinError, match="stop it first"):
            rescale(joined(spark, tmp_path, workers=2), checkpoint)
    finally:
        query.stop()
    with pytest.raises(StateError, match="belongs to another join: how was 'left' and is now 'inner'"):
        rescale(joined(spark, tmp_path, workers=2, how="inner"), checkpoint)


# Exchanging folders


def folder_with(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "metadata").write_text(text)
    return path


def told(path: Path) -> str:
    return (path / "metadata").read_text()


def test_two_folders_exchange_their_names_in_one_step(tmp_path):
    one, other = folder_with(tmp_path / "one", "1"), folder_with(tmp_path / "other", "2")
    if exchanged(str(one), str(other)):
        assert (told(one), told(other)) == ("2", "1")
    assert not exchanged(str(one), str(tmp_path / "missing"))


@pytest.mark.parametrize("at_once", [True, False])
def test_a_new_checkpoint_takes_the_place_of_the_old_one(spark, tmp_path, at_once):
    place = folder_with(tmp_path / "checkpoint", "old")
    made = folder_with(tmp_path / "made", "new")
    exchange(Folder(spark, str(place)), Folder(spark, str(made)), at_once)
    assert told(place) == "new" and [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_an_exchange_that_was_interrupted_is_finished(spark, tmp_path):
    place = tmp_path / "checkpoint"
    folder_with(tmp_path / f"checkpoint{OLD}", "old")
    folder_with(tmp_path / f"checkpoint{COMPLETE}", "new")
    place.mkdir()
    (place / "streamjoin.lock").touch()  # of a run that came in between
    settle(spark, str(place))
    assert told(place) == "new" and [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_copy_that_was_not_put_into_place_is_removed(spark, tmp_path):
    place = folder_with(tmp_path / "checkpoint", "old")
    folder_with(tmp_path / f"checkpoint{COMPLETE}", "new")
    folder_with(tmp_path / f"checkpoint{MAKING}", "half")
    settle(spark, str(place))
    assert told(place) == "old" and [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_the_file_is_compared_with_what_the_checkpoint_has_now(tmp_path):
    job = Job.read(write_job(tmp_path, 1))
    assert contradictions(job, 2, "matrix") == []
    assert contradictions(job, 4, None) == ["workers = 2, now 4"]
    open_job = Job.read(
        write_job(tmp_path, 1, lambda text: text.replace("workers = 2", 'partitioning = "range"'))
    )
    assert contradictions(open_job, 4, "matrix") == ["partitioning = 'range', now 'matrix'"]


# Killed


def kill_somewhere(folder: Path, workers: int, random: Random) -> None:
    """Start `streamjoin rescale` and kill it with its JVM and its workers: while it starts, or at some moment after its
    folder has appeared."""
    command = [sys.executable, "-m", "streamjoin", "rescale", "job.toml", "--workers", str(workers)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        while process.poll() is None and not (folder / f"checkpoint{MAKING}").exists():
            time.sleep(0.02)
        pause = random.random() * random.choice([1, 5, 20])
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(pause)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_rescaling_that_is_killed_at_random_moments_can_be_repeated(spark, tmp_path, seed):
    random = Random(seed)
    path = begun(spark, tmp_path)
    for _ in range(1 + seed % 2):
        kill_somewhere(tmp_path, 3 + seed, random)
    workers = state_of_job(Job.read(path), spark)[0].settings["workers"]
    assert workers in ("2", str(3 + seed)), "one of both checkpoints is there"
    if seed % 3:  # otherwise the query goes on with what it finds
        rescale_job(Job.read(path), spark, 3 + seed, None, print)
        assert beside(tmp_path) == []
    go_on(spark, tmp_path)
    assert written(spark, tmp_path) == truth(MORE)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_job_with_hot_keys_is_rescaled_and_may_name_others(spark, tmp_path):
    """From none, to those of the file, to more workers, and to others."""
    equal = "left.x = right.a"
    path = begun(spark, tmp_path, lambda text: open_to_more_workers(text.replace(ON, equal)))
    text = path.read_text()
    for workers, keys in (
        (4, ""),
        (4, "hot_keys = [3, 5]"),
        (6, "hot_keys = [3, 5]"),
        (6, "hot_keys = [7]"),
        (3, ""),
    ):
        path.write_text(text.replace("[join]", f"[join]\n{keys}"))
        rescale_job(Job.read(path), spark, workers, None, print)
        state = state_of_job(Job.read(path), spark)[0].settings
        assert state["workers"] == str(workers)
        wanted = {"": "hash", "hot_keys = [3, 5]": "hash, 2 hot keys", "hot_keys = [7]": "hash, 1 hot key"}[
            keys
        ]
        assert state["partitioning"].startswith(wanted), state
        run_to_the_end(spark, path)
    go_on(spark, tmp_path)
    assert written(spark, tmp_path) == truth(MORE, on=equal)


# Other joins: how, on, and more keys.
OTHERS: dict[str, tuple[Any, str, str]] = {
    "full": ("full", "left.x = right.a", ""),
    "hot": ("left", "left.x = right.a", "hot_keys = [3, 5]"),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 11))
@pytest.mark.parametrize("name", OTHERS)
def test_a_rescaling_of_other_joins_is_killed_at_random_moments(spark, tmp_path, name, seed):
    how, on, more = OTHERS[name]
    random = Random(f"{name} {seed}")
    join = f'[join]\nhow = "{how}"\n{more}'
    path = begun(
        spark,
        tmp_path,
        lambda text: open_to_more_workers(text.replace(ON, on).replace("[join]", join)),
    )
    for _ in range(1 + seed % 2):
        kill_somewhere(tmp_path, seed - 3, random)
    workers = state_of_job(Job.read(path), spark)[0].settings["workers"]
    assert workers in ("2", str(seed - 3))
    if seed % 3:
        rescale_job(Job.read(path), spark, seed - 3, None, print)
    add_files(tmp_path, FAR)
    go_on(spark, tmp_path)
    assert final(written(spark, tmp_path)) == truth(MORE, how, on, later=True)
