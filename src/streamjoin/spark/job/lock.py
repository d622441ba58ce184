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
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from streamjoin.spark.job.checkpoint import refused
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.paths import is_remote

LOCK = "streamjoin.lock"
PATIENCE_SECONDS = 10.0  # for a run that is about to end
ENDING_SECONDS = 60.0  # for the JVM of one that was killed, which takes some time to notice


class NoLocksError(Exception):
    """The system has no locks for files of this folder."""


class Lock:
    """The lock of a checkpoint while a job runs, or none. `inherited`: the descriptors that Spark's JVM has to
    inherit."""

    def __init__(self, file: IO[str] | None):
        self._file = file
        self.inherited = () if file is None else (file.fileno(),)

    def release(self) -> None:
        """For the JVM too, which stays until this process ends: to be called when Spark has stopped."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked(job: Job, say: Callable[[str], object]) -> Iterator[Lock]:
    """Nobody else runs on the job's checkpoint meanwhile, nor before Spark's JVM has ended, unless it is released;
    `CheckpointError` if somebody does already. `say` tells the user what is waited for.

    There is no lock if there is no checkpoint, or none that this process can lock, in which case Spark has to find
    out. Leaves nothing behind, unless it is killed.
    """
    folder = local_folder(job.run.checkpoint)
    new = [] if folder is None else [each for each in (folder, *folder.parents) if not each.exists()]
    file = None if folder is None else taken(job, folder, say)
    try:
        yield Lock(file)
    finally:
        if file is not None:
            file.close()
        if folder is not None:
            remove(folder, new)


def local_folder(checkpoint: str | None) -> Path | None:
    """Where a checkpoint is on this machine; None if it is somewhere else."""
    if checkpoint is None:
        return None
    if not is_remote(checkpoint):
        return Path(checkpoint)
    local = re.fullmatch(r"file:(?://(?:localhost)?)?(/(?!/).*)", checkpoint, re.IGNORECASE)
    return None if local is None else Path(local[1])


def taken(job: Job, folder: Path, say: Callable[[str], object]) -> IO[str] | None:
    """The lock's file, locked, with this process in it; None if there can be none."""
    began, told = time.monotonic(), False
    try:
        while (file := attempt(folder)) is None:
            process, host, ended = holder(folder)
            if time.monotonic() - began > (ENDING_SECONDS if ended else PATIENCE_SECONDS):
                raise refused(
                    job,
                    f"which Spark still uses though its run (process {process}) has ended: try again in a while"
                    if ended
                    else f"which a run that has not ended uses (process {process} on {host}): stop it first, or give "
                    "this job a checkpoint and a sink of its own",
                )
            if not told:
                say(f"waiting for another run on {folder} to end (process {process} on {host})")
                told = True
            time.sleep(0.1)
        file.truncate(0)
        file.write(f"{os.getpid()} {socket.gethostname()}")
        file.flush()
        return file
    except NoLocksError as error:
        say(f"{folder} can not be locked ({error}): see to it that no second run uses it")
    except OSError:  # of a folder that can not be made or written, which is told when it is needed
        pass
    return None


def attempt(folder: Path) -> IO[str] | None:
    """The lock's file if it could be locked, None if somebody else has it, or has just removed it."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        file = (folder / LOCK).open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
                return file
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError as error:
            os.unlink(file.name)
            file.close()
            raise NoLocksError(error.strerror) from None
        file.close()
    return None


def holder(folder: Path) -> tuple[str, str, bool]:
    """The process that has taken the lock, as it is written there, its host, and whether it has ended."""
    try:
        process, host = (folder / LOCK).read_text().split(" ", 1)
    except (OSError, ValueError):
        return "unknown", "this host", False
    if host != socket.gethostname():
        return process, host, False
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return process, host, True
    except PermissionError:
        pass
    return process, host, False


def remove(folder: Path, new: list[Path]) -> None:
    """Remove the lock's file, unless somebody has it, and of the folders those that are `new` and empty."""
    with contextlib.suppress(OSError, NoLocksError):
        if (file := attempt(folder)) is not None:
            with file:
                os.unlink(file.name)
    with contextlib.suppress(OSError):
        for each in new:
            each.rmdir()
