"""Which core a worker is pinned to: core after core of one NUMA node, then the next node's.

Neighbours in a chain of workers lie on the same NUMA node that way, and memory that a worker touches first
is its own node's. More workers than cores share them in turns.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

TIMER_SLACK = 29  # PR_SET_TIMERSLACK, in nanoseconds
NODES = Path("/sys/devices/system/node")


def cores(folder: Path = NODES) -> list[int]:
    """The cores this process may use, those of a NUMA node together; empty where threads can not be pinned."""
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
    """Keep the calling thread on one core, and let it wake up on time, if the system lets us."""
    with contextlib.suppress(OSError):  # the core was taken from us meanwhile: run wherever we may
        os.sched_setaffinity(0, {core})
    wake_on_time()


def wake_on_time() -> None:
    """Let the calling thread's naps end when they should: of 50 microseconds they take 100 else."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(TIMER_SLACK, 1, 0, 0, 0)
