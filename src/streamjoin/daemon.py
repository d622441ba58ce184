"""Spark's daemon, which forks a session's Python processes, with what a join needs imported once for all of them.

Spark starts `python -m pyspark.daemon`, and each process that it forks imports PySpark, Arrow, Numba and this package
anew: most of a second of a core, in each process of each stage of a join's first micro-batch. `spark/sessions.py` has
Spark start this module instead.

Processes are forked from the only thread but one: that in which Arrow's allocator returns free memory. The allocator
stops it before a fork. NumPy has none, because Spark sets OMP_NUM_THREADS to 1; where it does not, `sessions.py` keeps
Spark's daemon.

The module lies outside of `spark` because it must run before PySpark is imported: Spark puts an archive of PySpark's
source onto the search path, from which Python compiles every module anew.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from pathlib import Path

# Arrow imports pandas to make an array of a list.
PACKING = "pandas", "pyspark.worker", "streamjoin.spark.join.pack"
JOINING = (
    "pyspark.sql.streaming.stateful_processor_api_client",
    "streamjoin.spark.join.frames",
    "streamjoin.spark.join.processor",
)


def start() -> None:
    """What Spark runs. Returns when Spark ends."""
    sys.path[:] = without_archive(sys.path)
    with contextlib.suppress(ImportError):  # the join's functions say what is missing; others may do without
        import_all()
    from pyspark import daemon

    gc.collect()
    gc.freeze()  # processes do not look for garbage among what they share, so they do not copy it either
    daemon.manager()


def without_archive(search_path: list[str]) -> list[str]:
    """The search path without the archive of PySpark that lies within an installed PySpark, which has the same
    modules."""

    def is_installed(entry: str) -> bool:
        path = Path(entry)
        around = path.parent.parent.parent
        return path.name == "pyspark.zip" and (around / "__init__.py").exists()

    return [entry for entry in search_path if not is_installed(entry)]


def import_all() -> None:
    """Import what packs rows, and in the join's own processes what joins them."""
    names = list(PACKING)
    if importlib.import_module("streamjoin.spark.sessions").PROCESS_POOL in os.environ:
        names += JOINING
    for name in names:
        importlib.import_module(name)


if __name__ == "__main__":
    start()
