"""One run at a time: the checkpoint of a job that runs is locked.

Two runs would do the same micro-batches, and Spark notices only when both want to write one entry of a log: the one
that was first may be the one that fails. The lock is the system's, on a file in the checkpoint, and belongs to the
processes that have it open: this one and Spark's JVM. It is gone when they are, however they ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from typing import IO

from streamjoin.spark.checkpoint import refused
from streamjoin.spark.job import Job
from streamjoin.spark.sources import is_remote

LOCK = "streamjoin.lock"
PATIENCE_SECONDS = 10.0  # a JVM whose Python has ended takes some of them to end as well


@contextlib.contextmanager
def locked(job: Job) -> Iterator[tuple[int, ...]]:
    """Nobody else runs on the job's checkpoint meanwhile; `CheckpointError` if somebody does already.

    Gives the descriptors that Spark's JVM has to inherit: none if there is no checkpoint, or none that this process can
    lock, in which case Spark has to find out. Leaves nothing behind, unless it is killed.
    """
    folder = re.sub("^file:/+", "/", job.run.checkpoint or "")
    new, file = not os.path.exists(folder), None if not folder or is_remote(folder) else taken(job, folder)
    if file is None:
        yield ()
        return
    try:
        yield (file.fileno(),)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(file.name)
            if new:
                os.rmdir(folder)  # which fails if a query has begun
        fcntl.flock(file, fcntl.LOCK_UN)  # for the JVM too, which stays until this process ends
        file.close()


def taken(job: Job, folder: str) -> IO[str] | None:
    """The lock's file, locked, with this process's number in it; None if there can be none."""
    until = time.monotonic() + PATIENCE_SECONDS
    with contextlib.suppress(OSError):
        while (file := attempt(folder)) is None:
            if time.monotonic() > until:
                raise refused(
                    job,
                    f"which a run that has not ended uses (process {holder(folder)}): stop it first, or give this job "
                    "a checkpoint and a sink of its own",
                )
            time.sleep(0.1)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        return file
    return None


def attempt(folder: str) -> IO[str] | None:
    """The lock's file if it could be locked, None if somebody else has it, or has just removed it."""
    os.makedirs(folder, exist_ok=True)
    file = open(os.path.join(folder, LOCK), "a")  # noqa: SIM115 - the caller closes it
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
            return file
    file.close()
    return None


def holder(folder: str) -> str:
    """The number of the process that has the lock, as it is written there."""
    with contextlib.suppress(OSError), open(os.path.join(folder, LOCK)) as file:
        return file.read() or "unknown"
    return "unknown"
