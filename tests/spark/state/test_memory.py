"""Memory: a worker holds no more of its state than STREAMJOIN_SPARK_MEMORY allows, whatever a window holds.

Run as a program with the name of a case, this measures the memory that one worker takes while one side is silent and
when that side comes back; the state store is a folder:

    PYTHONPATH=tests STREAMJOIN_SPARK_MEMORY=64MiB python tests/spark/state/test_memory.py "large rows"
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj

pytest.importorskip("pyspark")

from spark_runs import EQUAL, NEAR, WINDOWS, histories, long_history, run, run_with_faults
from spark_runs import make_task as make_join
from streamjoin.plan.options import STREAM_ORDERS, Options
from streamjoin.semantics.keep import HOW
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.task import END_OF_TIME, JoinTask
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state import cache
from streamjoin.spark.state.manifest import MemoryStore, State

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32(), "body": pa.string()})
INDEXED = [
    (EQUAL, "auto"),
    (EQUAL, "hash"),
    (NEAR, "bisort"),
    (NEAR, "scan"),
    ("left.name <> right.name", "auto"),
]
KEEPS = [sj.AsOf(), sj.AsOf("nearest"), sj.Nearest("abs(left.x - right.x)", k=2)]
MEMORY = 64 << 20  # the setting of a measured worker
MOST_TAKEN = 320 << 20  # what it may take in all: the setting, and several times a run while it is written


class FolderStore:
    """A state store in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def read_manifest(self) -> bytes | None:
        path = self.folder / "manifest"
        return path.read_bytes() if path.exists() else None

    def write_manifest(self, data: bytes) -> None:
        (self.folder / "manifest").write_bytes(data)

    def read(self, kind: str, number: int) -> bytes:
        return (self.folder / f"{kind}-{number}").read_bytes()

    def write(self, kind: str, number: int, data: bytes) -> None:
        (self.folder / f"{kind}-{number}").write_bytes(data)

    def remove(self, kind: str, number: int) -> None:
        (self.folder / f"{kind}-{number}").unlink()


def make_task(
    how: Any = "inner",
    on: str = "left.x = right.x",
    order: Any = "any",
    window: int = 10**9,
) -> JoinTask:
    spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(window), "ts", "ts", how)
    return JoinTask(spec, Options(engine="spark", order=order))


def rows(begin: int, count: int, nbytes: int) -> pa.RecordBatch:
    """Rows of distinct keys."""
    ts = np.arange(begin, begin + count)
    return pa.record_batch([ts, ts.astype(np.int32), pa.array(["x" * nbytes] * count)], schema=SCHEMA)


def step(task: JoinTask, store: Any, batches: Any, watermark: int) -> int:
    """One micro-batch; the number of its result rows."""
    held = State(task, store, counts := Counts())
    worker = SparkWorker(task, 0, held, counts)
    found: int = sum(batch.num_rows for batch in worker.step(batches, watermark))
    held.save()
    worker.prepare()
    del held, worker
    gc.collect()  # as PySpark does after every task
    return found


# By name: how, how many micro-batches, the rows of each, and the bytes of a row.
CASES: dict[str, tuple[Any, int, int, int]] = {
    "large rows": ("inner", 60, 16, 1 << 20),
    "large rows, outer": ("left", 40, 16, 1 << 20),
    "many rows": ("inner", 40, 100_000, 8),
}


def measure(case: str) -> None:
    """Left alone, then partners of some of its rows, then the end. Prints the memory taken, in bytes, by the end of the
    silence and after it, and how many rows the state holds in the end."""
    how, batches, count, nbytes = CASES[case]
    task = make_task(how)
    with tempfile.TemporaryDirectory() as folder:
        store = FolderStore(Path(folder))
        step(
            task, store, {"left": [rows(0, 1, nbytes)], "right": [rows(0, 1, nbytes)]}, 0
        )  # loads the kernels
        before, peaks = psutil.Process().memory_info().rss, []
        for at in range(1, batches + 1):
            step(task, store, {"left": [rows(at * count, count, nbytes)]}, 0)
        peaks.append(peak() - before)
        for at in (1, batches // 2, batches):
            assert step(task, store, {"right": [rows(at * count, count, 1)]}, 0) == count
        peaks.append(peak() - before)
        step(task, store, {}, END_OF_TIME)
        print(*peaks, State(task, store, Counts()).rows)


def peak() -> int:
    """The most memory that this process has ever taken."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads the peak of memory as Linux shows it"
)
@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.slow) for case in CASES])
def test_a_silent_side_takes_no_more_memory_than_allowed(case, tmp_path):
    folders = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    given = {
        "PYTHONPATH": folders,
        "STREAMJOIN_SPARK_MEMORY": str(MEMORY),
        "STREAMJOIN_SPARK_CACHE_DIR": str(tmp_path),
    }
    run = subprocess.run(
        [sys.executable, __file__, case], capture_output=True, text=True, env=os.environ | given
    )
    assert run.returncode == 0, run.stderr
    silent, back, left = map(int, run.stdout.split())
    assert silent < MOST_TAKEN and back < MOST_TAKEN and left == 0, (silent >> 20, back >> 20)


# Results


@settings(max_examples=30)
@given(
    histories(),
    st.sampled_from(INDEXED),
    st.sampled_from(WINDOWS),
    st.sampled_from(HOW),
    st.sampled_from(STREAM_ORDERS),
    st.sampled_from([0, 500, 2000]),
)
def test_oracle_with_a_state_that_does_not_fit_in_memory(
    start, oracle, history, indexed, window, how, order, most
):
    (sides, batches), (on, index) = history, indexed
    task = make_join(on, window, how, order, 2, index)
    with cache.replaced_caches(cache.ContentCache(most)):
        assert run(start(task), batches) == oracle(task, *sides)


@settings(max_examples=20)
@given(histories(), st.sampled_from(KEEPS), st.sampled_from(WINDOWS), st.sampled_from([0, 500]))
def test_oracle_picks_from_a_state_that_does_not_fit_in_memory(start, oracle, history, keep, window, most):
    sides, batches = history
    task = make_join(NEAR, window, "left", keep=keep)
    with cache.replaced_caches(cache.ContentCache(most)):
        assert run(start(task), batches) == oracle(task, *sides)


@pytest.mark.parametrize("how", ["inner", "full"])
def test_differential_a_long_state_that_does_not_fit_in_memory(start, oracle, tmp_path, how):
    random = Random(how)
    task = make_join(NEAR, sj.TimeWindow(60, 25), how)
    sides, batches = long_history(random, 120)
    files = cache.FileCache(tmp_path / "runs", 1 << 30)
    with cache.replaced_caches(cache.ContentCache(4000), files):
        assert run_with_faults(start(task), batches, random) == oracle(task, *sides)


def test_a_silent_side_is_not_read(own_cache):
    """Left rows alone: no run of left is read again, whatever the state holds."""
    task, store, counts = make_task(), MemoryStore(), Counts()
    with cache.replaced_caches(cache.ContentCache(0)):
        for at in range(20):
            held = State(task, store, counts)
            list(SparkWorker(task, 0, held, counts).step({"left": [rows(at * 5, 5, 10)]}, 0))
            held.save()
    merged = counts.cache_hits + counts.cache_misses
    assert merged <= 2 * 20, "runs are read to merge them alone"


def test_probes_read_only_the_runs_that_they_reach(own_cache):
    task = make_task(window=10)
    store, counts = MemoryStore(), Counts()
    with cache.replaced_caches(cache.ContentCache(0)):
        for at in range(0, 4000, 100):
            held = State(task, store, Counts())
            list(SparkWorker(task, 0, held, Counts()).step({"left": [rows(at, 100, 10)]}, -1))
            held.save()
        held = State(task, store, counts)
        (found,) = SparkWorker(task, 0, held, counts).step({"right": [rows(2000, 1, 1)]}, -1)
    assert found.num_rows == 1 and len(held.runs["left"]) >= 8
    assert counts.cache_hits + counts.cache_misses <= 6


if __name__ == "__main__":
    measure(sys.argv[1])
