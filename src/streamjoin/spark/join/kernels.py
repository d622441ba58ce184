"""What a worker does while the driver has the kernels of a join compiled (`spark/ahead.py`): it runs NumPy forms.

So the first micro-batch waits for no kernel. A thread waits until the process that compiles has ended, then loads the
kernels. A note in the cache folder says that the kernels of a join are there.
"""

from __future__ import annotations

import hashlib
import threading

from streamjoin.index.build import compile_plan
from streamjoin.jit import elsewhere, readiness, source
from streamjoin.spark.join.task import JoinTask

_seen: set[str] = set()  # the joins that this process has looked at, by digest


def use_forms(task: JoinTask) -> None:
    """Run NumPy forms in this process until the kernels of a join are compiled, if the driver has seen to that. O(1)
    after the first call for a join."""
    if not task.compiles_ahead or task.digest in _seen:
        return
    _seen.add(task.digest)
    if not is_noted(task):
        readiness.begin(task.digest)
        threading.Thread(target=_load_later, args=(task,), name="streamjoin-kernels", daemon=True).start()


def _load_later(task: JoinTask) -> None:
    """Wait until nobody compiles, then load the kernels. Those that are missing then are compiled by their callers."""
    try:
        with elsewhere.turn(threading.Event(), elsewhere.LONGEST_RUN):
            pass
        with readiness.loading():
            compile_plan(task.compiled.plan)
    except readiness.NotReady:
        pass
    finally:
        readiness.end(task.digest)


def is_noted(task: JoinTask) -> bool:
    """Whether the kernels of a join are in the cache."""
    folder = source.usable_folder()
    return folder is not None and (folder.path / _note(task)).exists()


def note(task: JoinTask) -> None:
    """Say that they are."""
    folder = source.usable_folder()
    if folder is not None:
        folder.write(_note(task), b"")


def _note(task: JoinTask) -> str:
    """The file that says so; removed with the oldest kernels."""
    digest = hashlib.sha256(f"{source.fingerprint()}\n{task.digest}".encode()).hexdigest()
    return f"ahead_{digest[:24]}.nbc"
