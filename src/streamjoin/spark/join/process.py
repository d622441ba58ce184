"""What a Python process of Spark does between two tasks of a join.

*Garbage.* PySpark calls `gc.collect()` after every task: about 80 ms of a core with NumPy, Arrow, pandas and Numba
loaded, while the next tasks need the core. `GarbageControl` freezes long-lived objects, and the collector skips them.

*Background work.* While Spark commits a micro-batch and plans the next one, the process is idle, and so are most cores.
`BackgroundWork` prepares what the next micro-batch will need. It only changes caches in memory: results do not depend
on whether it ran, or failed half way.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Sequence

# A task needs about this many seconds to end after its last result; background work would take its core meanwhile.
SECONDS_TO_END = 0.1


class GarbageControl:
    """Keeps the garbage collector from scanning long-lived objects."""

    def __init__(self) -> None:
        self._tasks = 0

    def end_task(self) -> None:
        """Call this when a task ends. After the 1st, 2nd, 4th, 8th ... task, collects once and freezes all objects that
        are left, mainly modules and compiled code."""
        self._tasks += 1
        if self._tasks & (self._tasks - 1) == 0:
            gc.collect()
            gc.freeze()


class BackgroundWork:
    """Runs functions in one background thread. Call `finish` before using anything that they change."""

    def __init__(self, wait: float = SECONDS_TO_END) -> None:
        self._wait = wait
        self._wanted = threading.Event()  # of the current thread; set when another thread waits for its end
        self._thread: threading.Thread | None = None

    def begin(self, works: Sequence[Callable[[], None]]) -> None:
        """Run these one after the other, in a moment."""
        self.finish()
        if works:
            # A new event each time: a thread whose start was interrupted may begin late, and must find its own set.
            self._wanted = threading.Event()
            self._thread = threading.Thread(target=self._do, args=(works, self._wanted), daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait for the function that is running; skip those that have not begun."""
        if self._thread is not None:
            self._wanted.set()
            # A thread that has ended, or whose start was interrupted, does nothing.
            if self._thread.is_alive():
                self._thread.join()
            self._thread = None

    def _do(self, works: Sequence[Callable[[], None]], wanted: threading.Event) -> None:
        wait = self._wait
        for work in works:
            if wanted.wait(wait):
                return
            with contextlib.suppress(Exception):  # the next micro-batch does it itself, and raises
                work()
            wait = 0


GARBAGE, BACKGROUND = GarbageControl(), BackgroundWork()
