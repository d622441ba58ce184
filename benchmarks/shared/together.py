"""Threads that begin together: what several of them take side by side."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence


def seconds_together(works: Sequence[Callable[[], object]], pinned: bool = False) -> float:
    """Seconds from the moment at which all threads begin, one for each of `works`, until the last one ends.

    `pinned`: each on a core of its own, in turns.
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
