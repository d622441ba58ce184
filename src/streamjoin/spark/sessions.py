"""What a Spark session must have for a join.

`configure` and `session` set everything before Spark starts. `window_join` asks `prepare_session`, which sets what is
missing and can still be set, and refuses the rest at the call (docs/spark.md has the table):

- the workers' Python: that of this process, if none is set and all of Spark runs on this host;
- the state store of streams: RocksDB, if the session has not chosen one;
- the partitions of a stream's state: one for each worker, if the session has not chosen a number.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from streamjoin.semantics.errors import StreamJoinError
from streamjoin.spark.packages import TO_STREAM, require_packages

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
OUR_PARTITIONS = "spark.streamjoin.partitions"  # the value of SHUFFLE_PARTITIONS that a join has set
STREAM_SETTINGS = {
    # transformWithState needs column families, which only the RocksDB provider has.
    STATE_STORE: ROCKSDB,
    # A micro-batch then writes its changes instead of a snapshot of the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Counting would look up every value before it is written or removed; the join counts its rows itself.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
LOCAL_SETTINGS = {
    # The driver is the whole cluster: no other machine must reach it, so no port is open to the network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Over TCP, delayed acknowledgements cost 40 ms in every task between Java and a Python process. Not set on
    # clusters, where folders may have names too long for a socket's path.
    "spark.python.unix.domain.socket.enabled": "true",
}
DAEMON = "spark.python.daemon.module"
# Settings by which Spark chooses the threads of NumPy in a Python process: one, unless they say otherwise.
BLAS_THREADS, TASK_CORES = "spark.executorEnv.OMP_NUM_THREADS", "spark.task.cpus"
PROCESS_POOL = "STREAMJOIN_SPARK_POOL"  # an environment variable that only the join's Python processes have
# What a Python must be able to import to run a worker.
CAN_JOIN = (
    "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('streamjoin', 'pyarrow', 'numba'))))"
)


class SessionError(StreamJoinError, RuntimeError):
    """A Spark session that cannot run a join: a setting, its workers' Python, or its version."""


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the settings that joins of streams need to `SparkSession.builder`, and return it.

    RocksDB as the state store, which saves the changes of a micro-batch and does not count its rows. Settings of any
    name can be replaced by `builder.config` afterwards.

    Example:
        >>> spark = configure(SparkSession.builder.appName("quotes")).getOrCreate()
    """
    for name, value in STREAM_SETTINGS.items():
        builder = builder.config(name, value)
    return builder


def session(name: str = "streamjoin", master: str | None = None) -> SparkSession:
    """A Spark session with the settings that joins need, or the running one with those that can still be set.

    `master`: as in `SparkSession.builder.master`; by default that of spark-submit, else `local[*]`. If you give a local
    one, Spark listens on loopback only, and its workers run the Python of this process unless `PYSPARK_PYTHON` names
    another.

    Example:
        >>> spark = session("quotes", "local[2]")
    """
    builder = configure(SparkSession.builder.appName(name))
    if master is not None:
        builder = builder.master(master)
    if master is not None and is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Without it, Spark warns about a host name that resolves to loopback, which is intended here.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        for setting, value in LOCAL_SETTINGS.items():
            builder = builder.config(setting, value)
    return builder.getOrCreate()


def is_local(master: str) -> bool:
    """Whether all of Spark runs on this host."""
    return master.startswith("local")


def is_classic(spark: object) -> bool:
    """Whether a session has its Java in this process's reach; that of Spark Connect does not."""
    return isinstance(spark, SparkSession)


# A running session


def prepare_session(spark: SparkSession, streaming: bool, workers: int) -> None:
    """Raise unless the session can run a join with this many workers; then set what it lacks. Starts nothing."""
    if is_classic(spark):
        _check_python(spark.sparkContext, streaming)
        share_imports(spark)
    if not streaming:
        return
    require_packages(TO_STREAM, "a join of streams keeps its state in Spark's state store")
    store = spark.conf.get(STATE_STORE, None)
    if store is not None and "HDFSBacked" in store:
        raise SessionError(
            f"the session's state store is {store.rpartition('.')[2]}, which cannot hold the state of a join: set "
            f"{STATE_STORE} to {ROCKSDB}, or do not set it",
            field=STATE_STORE,
            given=store,
            allowed=ROCKSDB,
        )
    changed = store is None
    for name, value in STREAM_SETTINGS.items() if changed else ():
        if spark.conf.get(name, None) is None:
            spark.conf.set(name, value)
    partitions = _set_partitions(spark, workers)
    if changed or partitions:
        now = ["RocksDB as the state store of streams"] if changed else []
        now += [f"{partitions} shuffle partitions instead of 200"] if partitions else []
        logging.getLogger("streamjoin").warning(
            "this Spark session now has %s, for window_join; set %s yourself to decide",
            " and ".join(now),
            " and ".join(
                [*([STATE_STORE] if changed else []), *([SHUFFLE_PARTITIONS] if partitions else [])]
            ),
        )


def _set_partitions(spark: SparkSession, workers: int) -> int | None:
    """Give the state of streams partitions for this many workers, if the program has not chosen a number; return the
    new number if it has changed."""
    given, ours = (spark.conf.get(name, None) for name in (SHUFFLE_PARTITIONS, OUR_PARTITIONS))
    if given is not None and given != ours:
        return None
    # A multiple of the workers, so that each has a partition of its own; for other queries at least one for each core.
    wanted = -(-parallelism(spark) // workers) * workers
    if ours is not None and wanted <= int(ours):
        return None
    for name in (SHUFFLE_PARTITIONS, OUR_PARTITIONS):
        spark.conf.set(name, str(wanted))
    return wanted


def parallelism(spark: SparkSession) -> int:
    """How many tasks Spark runs at a time by default. Runs no job."""
    if is_classic(spark):
        return int(spark.sparkContext.defaultParallelism)
    # Spark Connect has no SparkContext, but the plan of a range shows the number.
    plan = cast(Any, spark.range(1))._explain_string()
    found = re.search(r"splits=(?:Some\()?(\d+)", plan)
    return int(found[1]) if found else 1


# The Python of the workers


def _check_python(context: SparkContext, streaming: bool) -> None:
    """Raise if the Python that Spark starts on this host cannot import what a worker needs. A cluster's workers may
    differ; they say so themselves (`join/carried.py`)."""
    python = worker_python(context)
    if not (streaming or is_local(context.master or "")) or context._python_includes:
        return
    if python != sys.executable and not can_join(python):
        raise SessionError(
            f"Spark's Python workers run {python}, which has no streamjoin (or not what it needs): set the environment "
            f"variable PYSPARK_PYTHON={sys.executable} before Spark starts, or install streamjoin there",
            field="PYSPARK_PYTHON",
            given=python,
            allowed="a Python that has streamjoin",
        )


def worker_python(context: SparkContext) -> str:
    """The Python for the workers of a join: that of this process, if none is set and all of Spark runs on this
    host. Spark's own default is the first python3 on the PATH."""
    chosen = os.environ.get("PYSPARK_PYTHON") or context._conf.get("spark.pyspark.python")
    if chosen or not sys.executable or not is_local(context.master or ""):
        return str(context.pythonExec)
    return sys.executable


@functools.cache
def can_join(python: str) -> bool:
    """Whether a Python on this host has what a worker imports. Takes some 50 ms."""
    try:
        return subprocess.run([python, "-c", CAN_JOIN], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def share_imports(spark: SparkSession) -> None:
    """Have Python processes forked from one that has imported what a join needs (`daemon.py`), unless the session has a
    daemon of its own, or NumPy has threads, which a fork would lose. Only where all of Spark runs on this host: Spark
    reads the setting for each task, in its own process, so it can be set while Spark runs. The processes of the
    session's other functions come from such a daemon, too, so their Python must have streamjoin."""
    context: Any = spark.sparkContext
    if not is_local(context.master or "") or context._python_includes:
        return
    with contextlib.suppress(Py4JError):  # a Spark that works differently does without
        settings = context._jsc.sc().conf()  # the one that tasks read, no copy
        threads = settings.contains(BLAS_THREADS) or settings.get(TASK_CORES, "1") != "1"
        if not settings.contains(DAEMON) and not threads and can_join(str(context.pythonExec)):
            settings.set(DAEMON, "streamjoin.daemon")


@contextlib.contextmanager
def python_of_workers(spark: SparkSession) -> Iterator[None]:
    """Run the Python functions of the plan that is built in this block with `worker_python`. Spark Connect: the server
    decides."""
    if not is_classic(spark):
        yield
        return
    context: Any = spark.sparkContext
    before, context.pythonExec = context.pythonExec, worker_python(context)
    try:
        yield
    finally:
        context.pythonExec = before


@contextlib.contextmanager
def processes_of_its_own(spark: SparkSession) -> Iterator[None]:
    """Run the Python functions of a query that is built in this block in processes of their own. Spark has one pool of
    processes for each environment. With fewer processes for the join's partitions, fewer must decode and index a new
    run. Spark Connect has one environment for all."""
    if not is_classic(spark):
        yield
        return
    environment = spark.sparkContext.environment
    environment[PROCESS_POOL] = "join"
    try:
        yield
    finally:
        del environment[PROCESS_POOL]
