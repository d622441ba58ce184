"""Locks the checkpoint of a running job, so that no second run uses it.

Two runs would process the same micro-batches. Spark notices this only when both write the same log entry, and then
either of them may fail. The lock is an `flock` on a file in the checkpoint. This process and Spark's JVM hold it; the
system releases it when both have ended, for whatever reason.
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

LOCK_FILE = "streamjoin.lock"
PATIENCE_SECONDS = 10.0  # how long to wait for another run, which may be about to end
ENDING_SECONDS = 60.0  # how long to wait for the JVM of a killed run, which needs time to notice


class NoLocksError(Exception):
    """The system cannot lock files in this folder."""


class Lock:
    """The lock of a running job's checkpoint; `file` is None without a lock. `inherited`: the file descriptors that
    Spark's JVM must inherit."""

    def __init__(self, file: IO[str] | None):
        self._file = file
        self.inherited = () if file is None else (file.fileno(),)

    def release(self) -> None:
        """Release the lock, also for the JVM, which lives as long as this process. Call it after Spark has stopped."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked(
    job: Job,
    say: Callable[[str], object],
    patience: float = PATIENCE_SECONDS,
    ending: float = ENDING_SECONDS,
) -> Iterator[Lock]:
    """Hold the lock of the job's checkpoint. It stays locked until Spark's JVM has ended too, or `release` is called.
    Raise `CheckpointError` if another run holds it. `say` reports what we wait for.

    There is no lock without a checkpoint, or if this process cannot lock it; then Spark itself has to notice a second
    run. The lock file is removed at the end, unless the process is killed.
    """
    folder = local_folder(job.run.checkpoint)
    new = [] if folder is None else [each for each in (folder, *folder.parents) if not each.exists()]
    file = None if folder is None else taken(job, folder, say, patience, ending)
    try:
        yield Lock(file)
    finally:
        if file is not None:
            file.close()
        if folder is not None:
            remove(folder, new)


def local_folder(checkpoint: str | None) -> Path | None:
    """The folder of a checkpoint on this machine; None if it is on other storage."""
    if checkpoint is None:
        return None
    if not is_remote(checkpoint):
        return Path(checkpoint)
    local = re.fullmatch(r"file:(?://(?:localhost)?)?(/(?!/).*)", checkpoint, re.IGNORECASE)
    return None if local is None else Path(local[1])


def taken(
    job: Job, folder: Path, say: Callable[[str], object], patience: float, ending: float
) -> IO[str] | None:
    """The lock file, locked, with this process's id in it; None if there can be no lock."""
    began, reported = time.monotonic(), False
    try:
        while (file := attempt(folder)) is None:
            process, host, ended = holder(folder)
            if time.monotonic() - began > (ending if ended else patience):
                raise refused(
                    job,
                    f"which Spark still uses though its run (process {process}) has ended: try again in a while"
                    if ended
                    else f"which a run that has not ended uses (process {process} on {host}): stop it first, or give "
                    "this job a checkpoint and a sink of its own",
                )
            if not reported:
                say(f"waiting for another run on {folder} to end (process {process} on {host})")
                reported = True
            time.sleep(0.1)
        file.truncate(0)
        file.write(f"{os.getpid()} {socket.gethostname()}")
        file.flush()
        return file
    except NoLocksError as error:
        say(f"{folder} cannot be locked ({error}): make sure that no second run uses it")
    except OSError:  # a folder that cannot be created or written: reported when it is needed
        pass
    return None


def attempt(folder: Path) -> IO[str] | None:
    """The lock file if it could be locked; None if another process holds it or has just removed it."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        file = (folder / LOCK_FILE).open("a")
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
    """The process that wrote the lock file, its host, and whether it has ended."""
    try:
        process, host = (folder / LOCK_FILE).read_text().split(" ", 1)
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
    """Remove the lock file unless another process holds it, and those `new` folders that are empty."""
    with contextlib.suppress(OSError, NoLocksError):
        if (file := attempt(folder)) is not None:
            with file:
                os.unlink(file.name)
    with contextlib.suppress(OSError):
        for each in new:
            each.rmdir()
