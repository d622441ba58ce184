"""Jobs that an earlier version ran continue with today's code, from their files and checkpoints as they are.

`jobs_7ab46ea.tar.gz` has a folder for each job: the job file, its checkpoint and what it wrote, as the code of commit
7ab46ea left them. It names files by whole paths, which the test puts right. With a checkout of that commit:

    cd tests/spark/job && PYTHONPATH=../.. python test_older_jobs.py CHECKOUT jobs_7ab46ea.tar.gz
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import streamjoin as sj
from job_runs import FAR, JOB, ON, add_files, final, run_to_the_end, truth, written
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.rescaling import rescale_job, state_of_job

STORED = Path(__file__).with_name("jobs_7ab46ea.tar.gz")
ROOT = b"/streamjoin-older-jobs"  # stands for the folder in which the jobs ran
BEFORE, AFTER = 2, 4  # files of either side then and now
# What is joined, by the name of a job: how, on, window.
JOBS: dict[str, tuple[Any, str, Any]] = {
    "band": ("left", ON, sj.TimeWindow("10 seconds")),
    "key": ("full", "left.x = right.a", sj.TimeWindow("10 seconds")),
    "rows": ("inner", ON, sj.RowWindow(7)),
}


def job_text(name: str) -> str:
    how, on, window = JOBS[name]
    text: str = JOB.replace(ON, on).replace("[join]", f'[join]\nhow = "{how}"')
    return text.replace('"10 seconds"', "{ rows = 7 }") if isinstance(window, sj.RowWindow) else text


def replace_in(folder: Path, before: bytes, after: bytes) -> None:
    """Put another path into all files of checkpoints and logs. The sums that Hadoop keeps beside them go."""
    for path in folder.rglob("*"):
        if path.is_file() and before in (data := path.read_bytes()):
            path.write_bytes(data.replace(before, after))
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def resumed(folder: Path, name: str) -> Path:
    """The job as it was left, in this folder, with more files to read."""
    with tarfile.open(STORED) as stored:
        stored.extractall(folder, filter="data")
    replace_in(folder, ROOT, str(folder).encode())
    for number in (*range(AFTER), FAR):
        add_files(folder / name, number)
    return folder / name


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", JOBS)
def test_a_job_of_an_earlier_version_continues(spark, tmp_path, name, workers):
    folder = resumed(tmp_path, name)
    path = folder / "job.toml"
    assert sum(written(spark, folder).values()) > 0
    if workers != 2:  # it can be rescaled, too
        rescale_job(Job.read(path), spark, workers, None, print)
        path.write_text(path.read_text().replace("workers = 2", f"workers = {workers}"))
    resumes, job = run_to_the_end(spark, path)
    assert resumes
    assert final(written(spark, folder)) == truth(AFTER, *JOBS[name], later=True)
    assert state_of_job(job, spark)[0].settings["workers"] == str(workers)


def run_with(checkout: str, folder: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": f"{checkout}/src",
        "STREAMJOIN_SPARK_CACHE_DIR": str(folder / "cache"),
        "STREAMJOIN_CACHE_DIR": str(folder / "kernels"),
    }
    command = [sys.executable, "-m", "streamjoin.cli", "run", "job.toml", "--master", "local[2]"]
    subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, tarfile.open(sys.argv[2], "w:gz") as stored:
        for name in JOBS:
            folder = Path(place) / name
            folder.mkdir()
            (folder / "job.toml").write_text(job_text(name))
            for number in range(BEFORE):
                add_files(folder, number)
            run_with(sys.argv[1], folder)
            replace_in(folder, place.encode(), ROOT)
            for part in ("job.toml", "checkpoint", "out"):
                stored.add(folder / part, f"{name}/{part}")
