"""Fills the cache of compiled kernels that the workers of a join share, while Spark starts its query.

Where all of Spark runs on this host, the driver lets another process of low priority compile (`jit/elsewhere.py`). A
worker that needs a kernel before it is there compiles it itself, so nothing waits for that process. A note in the cache
folder says that a join's kernels are there; without one, starting that process costs some ten milliseconds.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import threading

from pyspark.sql import SparkSession

from streamjoin.jit import elsewhere, source
from streamjoin.spark.join.rehearsal import rehearse_task
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.sessions import is_classic, is_local

_calls: list[
    elsewhere.RemoteCall
] = []  # kept until this process ends: a process that nobody holds gives a warning


def compile_ahead(spark: SparkSession, task: JoinTask) -> None:
    """Have the kernels of a join compiled, unless they are there already, or another process of this user compiles.
    Takes some milliseconds. A Python function as predicate cannot be sent to another process."""
    if not (is_classic(spark) and is_local(spark.sparkContext.master or "")):
        return
    if not isinstance(task.spec.on, str) or not elsewhere.is_possible() or _is_noted(task):
        return
    with elsewhere.turn(threading.Event(), 0) as turn:
        if turn.handle is not None:
            call = elsewhere.RemoteCall(rehearse_and_note, task)
            call.start(turn)
            _calls.append(call)
            _log_once()


@functools.cache
def _log_once() -> None:
    """Once a process."""
    logging.getLogger("streamjoin").warning(
        "compiling kernels in another process: the first micro-batch is slower for it"
    )


def rehearse_and_note(task: JoinTask) -> None:
    """What the other process does."""
    rehearse_task(task)
    folder = source.usable_folder()
    if folder is not None:
        folder.write(_note(task), b"")


def _is_noted(task: JoinTask) -> bool:
    folder = source.usable_folder()
    return folder is not None and (folder.path / _note(task)).exists()


def _note(task: JoinTask) -> str:
    """The file that says so; removed with the oldest kernels."""
    digest = hashlib.sha256(f"{source.fingerprint()}\n{task.digest}".encode()).hexdigest()
    return f"ahead_{digest[:24]}.nbc"
