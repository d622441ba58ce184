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
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import streamjoin as sj
from job_runs import JOB, LEFT, ON, RIGHT, add_files, counted, rows_of, run_to_the_end, written
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.rescaling import rescale_job, state_of_job

STORED = Path(__file__).with_name("jobs_7ab46ea.tar.gz")
ROOT = b"/streamjoin-older-jobs"  # stands for the folder in which the jobs ran
BEFORE, AFTER, FAR = (
    2,
    4,
    1000,
)  # files of either side then and now, and the number of one that is later than all
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


def expected(name: str) -> Counter[tuple[Any, ...]]:
    how, on, window = JOBS[name]
    numbers = [*range(AFTER), FAR]
    left, right = (pa.concat_tables(rows_of(side, n) for n in numbers) for side in ("left", "right"))
    spec = sj.JoinSpec(LEFT, RIGHT, on, window, "ts", "ts", how)
    return final(counted(sj.oracle.join(left, right, spec).to_pylist()))


def final(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Without the last file's rows, which wait for others."""
    end = rows_of("left", AFTER)["ts"][0].as_py()
    return Counter(
        {row: n for row, n in rows.items() if all(at is None or at < end for at in (row[0], row[3]))}
    )


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
    assert final(written(spark, folder)) == expected(name)
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
