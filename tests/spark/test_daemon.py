"""The process that Spark's Python processes are forked from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyspark
from pyspark.sql import SparkSession

from streamjoin import daemon
from streamjoin.spark import sessions

# Forks as Spark's daemon does, and uses Arrow's allocators in the fork.
LOOK = """
import os, sys
from streamjoin import daemon
from pyspark import daemon as theirs

def fork():
    import pyarrow as pa
    names = [open(f"/proc/self/task/{thread}/comm").read().strip() for thread in os.listdir("/proc/self/task")]
    print(len(names), sorted(set(names[1:]) - {"jemalloc_bg_thd"}), "pandas" in sys.modules,
          "streamjoin.spark.join.pack" in sys.modules, "streamjoin.spark.join.frames" in sys.modules, flush=True)
    child = os.fork()
    if not child:
        for backend in pa.supported_memory_backends():
            pool = getattr(pa, f"{backend}_memory_pool")()
            for _ in range(100):
                pa.array(range(10_000), memory_pool=pool).sort()
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

theirs.manager = fork
daemon.start()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's list of threads")
@pytest.mark.parametrize("pool", [None, "join"])
def test_forks_lose_no_thread_but_that_of_an_allocator(pool):
    more = {} if pool is None else {sessions.PROCESS_POOL: pool}
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env={**os.environ, "OMP_NUM_THREADS": "1", **more},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"2 [] True True {pool is not None}", "7"], done.stderr


def test_the_archive_of_an_installed_pyspark_leaves_the_search_path(tmp_path):
    installed, other = Path(pyspark.__file__).parent / "python/lib/pyspark.zip", tmp_path / "a/b/pyspark.zip"
    path = ["", str(installed), str(other), str(installed.parent), "pyspark.zip"]
    assert daemon.without_archive(path) == ["", str(other), str(installed.parent), "pyspark.zip"]


def test_python_processes_of_a_session_share_imports(spark: SparkSession):
    sessions.share_imports(spark)

    def look(batches):
        import sys

        import pyarrow as pa

        for batch in batches:
            loaded = "streamjoin.spark.join.pack" in sys.modules and "streamjoin.daemon" in " ".join(
                sys.orig_argv
            )
            yield pa.record_batch({"loaded": [loaded] * batch.num_rows})

    rows = spark.range(2).mapInArrow(look, "loaded BOOLEAN").collect()
    assert [row.loaded for row in rows] == [True, True]


@pytest.mark.parametrize(
    ("master", "includes", "python", "settings", "expected"),
    [
        ("local[2]", [], sys.executable, {}, "streamjoin.daemon"),
        ("local[2]", [], sys.executable, {sessions.DAEMON: "their.daemon"}, "their.daemon"),
        ("local[2]", [], sys.executable, {sessions.BLAS_THREADS: "4"}, None),
        ("local[2]", [], sys.executable, {sessions.TASK_CORES: "2"}, None),
        ("local[2]", [], "/bin/false", {}, None),
        ("local[2]", ["join.zip"], sys.executable, {}, None),
        ("spark://host:7077", [], sys.executable, {}, None),
    ],
)
def test_only_a_local_session_without_a_daemon_gets_one(master, includes, python, settings, expected):
    settings = dict(settings)
    conf = SimpleNamespace(contains=settings.__contains__, set=settings.__setitem__, get=settings.get)
    context = SimpleNamespace(
        master=master,
        pythonExec=python,
        _python_includes=includes,
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: conf)),
    )
    session: Any = SimpleNamespace(sparkContext=context)
    sessions.share_imports(session)
    assert settings.get(sessions.DAEMON) == expected
