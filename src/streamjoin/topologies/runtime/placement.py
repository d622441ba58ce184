"""Places workers: on all cores of one NUMA node, then on those of the next.

Neighbours in a chain of workers then run on the same NUMA node, and memory that a worker touches first is local to
it. Workers that leave a core to the calling thread are pinned, one to a core. More workers may run on any core of
their NUMA node: the calling thread needs a core, too, and a pinned worker could not move to an idle one meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

TIMER_SLACK = 29  # PR_SET_TIMERSLACK, in nanoseconds
NUMA_NODES = Path("/sys/devices/system/node")


def usable_cores(folder: Path = NUMA_NODES) -> list[list[int]]:
    """The cores that this process may use, by NUMA node; empty where threads cannot be placed."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    allowed = os.sched_getaffinity(0)
    lists = sorted(folder.glob("node[0-9]*/cpulist"), key=lambda path: int(path.parent.name[4:]))
    groups = [[core for core in parse(path.read_text()) if core in allowed] for path in lists]
    return list(filter(None, groups)) or [sorted(allowed)]


def allotted_cores(workers: int, folder: Path = NUMA_NODES) -> list[set[int]]:
    """By worker, the cores that it may run on; empty where threads cannot be placed."""
    groups = usable_cores(folder)
    by_core = [
        {core} if workers < sum(map(len, groups)) else set(group) for group in groups for core in group
    ]
    return [by_core[number % len(by_core)] for number in range(workers)] if by_core else []


def parse(text: str) -> list[int]:
    """The numbers of a list such as 0-3,8-11."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def keep_to(cores: set[int]) -> None:
    """Keep the calling thread on these cores and let it wake up on time, if the system permits."""
    with contextlib.suppress(OSError):  # The system has taken the cores away meanwhile; run on any core.
        os.sched_setaffinity(0, cores)
    wake_on_time()


def wake_on_time() -> None:
    """Let the calling thread's naps end on time: naps of 50 microseconds take 100 otherwise."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(TIMER_SLACK, 1, 0, 0, 0)
