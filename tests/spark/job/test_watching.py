"""The page of a job: what it knows from Spark's progress events, on a real Spark, and without the job's secrets."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress
from tests.spark.job.test_progress import event

from job_runs import add_files, truth, write_job, written
from streamjoin.page.model import LAST_ROWS
from streamjoin.page.open import open_page
from streamjoin.spark.job.checkpoint import claim
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.loaded import load_job
from streamjoin.spark.job.watching import WatchedQuery
from streamjoin.spark.join.metrics import METRIC_NAMES, OBSERVATION, SHOWN, WORKER, WORKERS
from streamjoin.spark.join.routing import worker_ids

SECRET = "hunter2secret"
SOON = 60.0  # seconds: only a failure waits so long


def watched(tmp_path: Path, change: Callable[[str], str] = str) -> tuple[WatchedQuery, Job]:
    job = Job.read(write_job(tmp_path, files=1, change=change))
    query, task = WatchedQuery(job.run.name, job.without_secrets), job.task(workers=2)
    assert task is not None
    query.begin(task)
    return query, job


def batch(
    seconds: float, workers: dict[int, dict[str, int]], shown: Sequence[Sequence[str | None]] | None = None
) -> Any:
    """A micro-batch of ten rows, with the counts of workers by number."""
    ids = worker_ids(2)
    told = [
        dict.fromkeys(METRIC_NAMES, 0) | {WORKER: ids[number]} | counts for number, counts in workers.items()
    ]
    rows = {} if shown is None else {SHOWN: [json.dumps(row) for row in shown]}
    observed = {f"{OBSERVATION}_1": {WORKERS: told} | rows}
    raw = event(None, None)
    progress = StreamingQueryProgress.fromJson(
        {
            **json.loads(raw.json),
            "batchDuration": round(seconds * 1000),
            "numInputRows": 10,
            "observedMetrics": observed,
        }
    )
    return SimpleNamespace(progress=progress)


def test_the_figures_follow_the_micro_batches(tmp_path):
    query, _ = watched(tmp_path)
    assert query.snapshot().state == "starting" and query.snapshot().durations.quantiles == {}
    query.onQueryStarted(SimpleNamespace())  # type: ignore[arg-type]
    worked = {"candidates": 30, "matches": 4, "state_rows": 40, "state_bytes": 600, "kernel_us": 200_000}
    query.onQueryProgress(batch(0.1, {0: worked, 1: {"candidates": 5, "late": 2}}, [["a", "1"]]))
    query.onQueryProgress(batch(3.0, {1: worked}, [["b", None]]))
    now = query.snapshot()
    assert (now.state, now.matches, now.state_bytes, now.further) == (
        "running",
        8,
        1200,
        {"batches": 2, "malformed": 0},
    )
    side = now.sides["both"]
    assert (side.rows, side.late, side.held) == (20, 2, 80)
    assert (side.watermark, side.lag_seconds) == ("2026-01-01 00:00:02", 1.5)
    assert side.watermark_seconds == 1767225602
    assert [(worker.name, worker.comparisons, worker.held) for worker in now.workers] == [
        ("0", 30, 40),
        ("1", 35, 40),
    ]
    assert [worker.seconds["kernel"] for worker in now.workers] == [0.2, 0.2]
    assert now.rows == [["a", "1"], ["b", None]]
    assert now.durations.quantiles == {"half": 0.1, "90 %": 3.0, "99 %": 3.0, "all": 3.0}
    assert sum(now.durations.counts) == 2 and now.durations.seconds == pytest.approx(3.1)
    query.onQueryIdle(SimpleNamespace())  # type: ignore[arg-type]
    assert query.snapshot().at > now.at and query.snapshot().taken == 20
    query.onQueryTerminated(SimpleNamespace(exception="no"))  # type: ignore[arg-type]
    assert query.snapshot().state == "failed"


def test_only_the_last_rows_are_kept(tmp_path):
    query, _ = watched(tmp_path)
    for number in range(3):
        query.onQueryProgress(batch(0.1, {}, [[str(number), str(row)] for row in range(LAST_ROWS - 1)]))
    rows = query.snapshot().rows
    assert len(rows) == LAST_ROWS and rows[0] == ["1", str(LAST_ROWS - 2)] and rows[-1][0] == "2"


def test_no_secret_of_the_job_is_on_the_page(tmp_path):
    def with_secret(text: str) -> str:
        text = text.replace("<= 1", f"<= 1 AND left.name <> '{SECRET}'")
        return f'{text}name = "job {SECRET}"\n[spark]\nsettings = {{ "spark.some.password" = "{SECRET}" }}\n'

    query, job = watched(tmp_path, with_secret)
    assert SECRET in job.join.on and SECRET in job.run.name
    with open_page(query) as page:
        for path in ("", "now.json", "plan.svg", "metrics", "page.js"):
            with urllib.request.urlopen(page.url + path) as answer:
                text = answer.read().decode()
            assert text and SECRET not in text, path
        with urllib.request.urlopen(f"{page.url}now.json") as answer:
            assert "***" in json.load(answer)["plan"]["on"]


def test_a_job_shows_its_counts_and_its_last_rows_and_goes_on_without_a_page(spark, tmp_path):
    path = write_job(tmp_path, files=2)
    for files, shows_rows in ((2, False), (3, True), (4, False)):  # one checkpoint, with a page and without
        if files > 2:
            add_files(tmp_path, files - 1)
        job = Job.read(path)
        query = WatchedQuery(job.run.name, job.without_secrets)
        spark.streams.addListener(query)
        try:
            loaded = replace(claim(load_job(job, spark))[0], shows_rows=shows_rows)
            query.begin(loaded.task)
            before = 0 if files == 2 else truth(files - 1).total()
            loaded.start().awaitTermination()
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        finally:
            spark.streams.removeListener(query)
        assert written(spark, tmp_path) == truth(files)
        now = query.snapshot()
        assert now.state == "ended" and now.matches == truth(files).total() - before
        assert now.taken == 40 * (2 if files == 2 else 1)
        assert {worker.name for worker in now.workers} <= {"0", "1"}
        assert sum(worker.comparisons for worker in now.workers) >= now.matches
        assert bool(now.rows) == shows_rows
        found = {tuple(None if value is None else str(value) for value in row) for row in truth(files)}
        names = list(now.columns)
        at, x, name = (names.index(column) for column in ("ts", "x", "name"))
        for row in now.rows:
            assert (row[x], row[name]) in {(each[1], each[2]) for each in found}
            assert re.fullmatch(r"2023-11-14 22:1\d:\d\d\.\d{6}Z?", str(row[at]))


def test_late_rows_are_not_among_the_last_joined_rows(tmp_path):
    import pyarrow as pa

    from streamjoin.spark.join.frames import shown_of
    from streamjoin.spark.window_join import with_late

    _, job = watched(tmp_path)
    task = job.task(workers=2)
    assert task is not None and shown_of(task, None) is None
    task = with_late(replace(task, shown_rows=2), "too_late")
    columns = [pa.nulls(3, field.type) for field in task.schema]
    columns[1], columns[-1] = pa.array([1, 2, 3], pa.int32()), pa.array([False, False, True])
    shown = shown_of(task, pa.record_batch(columns, names=task.schema.names))
    assert shown is not None and [json.loads(row)[1] for row in shown] == ["2"]
    assert len(json.loads(shown[0])) == len(task.columns) == len(columns) - 1
    assert shown_of(task, None) == []


@pytest.mark.slow
def test_the_command_serves_the_page_while_the_job_runs(tmp_path):
    path = write_job(tmp_path, files=3, change=lambda text: text.replace('"available-now"', '"asap"'))
    process = subprocess.Popen(
        [sys.executable, "-m", "streamjoin.cli", "run", str(path), "--page-at", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = re.fullmatch(r"the page is at (http://127\.0\.0\.1:\d+/)\n", process.stdout.readline())
        assert url is not None
        until = time.monotonic() + 5 * SOON
        while True:
            with urllib.request.urlopen(f"{url[1]}now.json", timeout=SOON) as answer:
                now = json.load(answer)
            if now["figures"]["matches"] == truth(3).total():
                break
            assert time.monotonic() < until and process.poll() is None, now
            time.sleep(0.5)
        assert now["figures"]["sides"]["both"]["rows"] == 120 and now["figures"]["rows"]
        os.kill(process.pid, signal.SIGINT)
        told = process.communicate(timeout=5 * SOON)[0]
        assert process.returncode == 0, told
    finally:
        process.kill()
