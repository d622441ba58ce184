"""Time on a machine that does other work too: pin to a core, take turns, start threads together."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence


def core_count() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pin() -> None:
    """Stay on one core, where the system supports that. The harness lifts the pin after each benchmark."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def best_of_turns(runs: int, measures: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Return the shortest time of each measure over `runs` rounds, after one round that warms up.

    The measures take turns, so that a slow moment of the machine affects all of them.
    """
    times = [{name: measure() for name, measure in measures.items()} for _ in range(runs + 1)]
    return {name: min(run[name] for run in times[1:]) for name in measures}


def seconds_together(works: Sequence[Callable[[], object]], pinned: bool = False) -> float:
    """Run each of `works` in its own thread; return the seconds from their common start until the last one ends.

    With `pinned`, the threads are pinned to the cores in turn.
    """
    cores, start = sorted(os.sched_getaffinity(0)), threading.Barrier(len(works) + 1)

    def run(number: int, work: Callable[[], object]) -> None:
        if pinned:
            os.sched_setaffinity(0, {cores[number % len(cores)]})
        start.wait()
        work()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    start.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started
