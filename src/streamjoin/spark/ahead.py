"""Fills the cache of compiled kernels that the workers of a join share, while Spark starts its query.

Where all of Spark runs on this host, the driver lets another process of low priority compile (`jit/elsewhere.py`).
Workers run NumPy forms meanwhile (`join/kernels.py`), and compile the few kernels that have none, so nothing waits for
that process. Once its kernels are there, a join has a note in the cache folder, and no process is started.
"""

from __future__ import annotations

import functools
import logging
import threading

from pyspark.sql import SparkSession

from streamjoin.jit import elsewhere
from streamjoin.spark.join.kernels import is_noted, note
from streamjoin.spark.join.rehearsal import rehearse_task
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.sessions import is_classic, is_local

_calls: list[
    elsewhere.RemoteCall
] = []  # kept until this process ends: a process that nobody holds gives a warning


def compile_ahead(spark: SparkSession, task: JoinTask) -> bool:
    """Have the kernels of a join compiled, unless they are there already, or another process of this user compiles.
    Returns whether some process compiles. Takes some milliseconds. A Python function as predicate cannot be sent to
    another process."""
    if not (is_classic(spark) and is_local(spark.sparkContext.master or "")):
        return False
    if not isinstance(task.spec.on, str) or not elsewhere.is_possible() or is_noted(task):
        return False
    with elsewhere.turn(threading.Event(), 0) as turn:
        if turn.handle is not None:
            call = elsewhere.RemoteCall(rehearse_and_note, task)
            call.start(turn)
            _calls.append(call)
            _log_once()
    return True


@functools.cache
def _log_once() -> None:
    """Once a process."""
    logging.getLogger("streamjoin").warning(
        "compiling kernels in another process: the first micro-batch is slower for it"
    )


def rehearse_and_note(task: JoinTask) -> None:
    """What the other process does."""
    rehearse_task(task)
    note(task)
