"""Pins workers to cores: all cores of one NUMA node, then those of the next.

Neighbours in a chain of workers then run on the same NUMA node, and memory that a worker touches first is local to
it. If there are more workers than cores, they take turns on the cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

TIMER_SLACK = 29  # PR_SET_TIMERSLACK, in nanoseconds
NUMA_NODES = Path("/sys/devices/system/node")


def usable_cores(folder: Path = NUMA_NODES) -> list[int]:
    """The cores that this process may use, grouped by NUMA node; empty where threads cannot be pinned."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    allowed = os.sched_getaffinity(0)
    lists = sorted(folder.glob("node[0-9]*/cpulist"), key=lambda path: int(path.parent.name[4:]))
    known = [core for path in lists for core in parse(path.read_text()) if core in allowed]
    return known or sorted(allowed)


def parse(text: str) -> list[int]:
    """The numbers of a list such as 0-3,8-11."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def pin(core: int) -> None:
    """Keep the calling thread on one core and let it wake up on time, if the system permits."""
    with contextlib.suppress(OSError):  # The system has taken the core away meanwhile; run on any core.
        os.sched_setaffinity(0, {core})
    wake_on_time()


def wake_on_time() -> None:
    """Let the calling thread's naps end on time: naps of 50 microseconds take 100 otherwise."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(TIMER_SLACK, 1, 0, 0, 0)
