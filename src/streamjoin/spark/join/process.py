"""The Python process in which Spark runs a part of a join: what becomes of the time between two tasks.

*Garbage.* Spark collects it whenever a process has done a task, and looks at all that is there: with NumPy, Arrow,
pandas and Numba some 80 ms of a core, which the tasks that follow have need of at that very moment. What stays for good
is taken out of its sight.

*Ahead.* While Spark commits a micro-batch and plans the next one, a process waits, and most cores with it. It can make
then what it will need. All of that is kept in memory and could be made again: for results it makes no difference
whether it was done, or failed half way.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Sequence

MOMENT = 0.1  # seconds that a task needs to end, in which it wants the interpreter and the core for itself


class Garbage:
    """What of this process is looked at when garbage is collected."""

    def __init__(self) -> None:
        self._tasks = 0

    def end_task(self) -> None:
        """To be called when a task ends. What is there after the first, the second, the fourth and so on, modules and
        what was compiled, is taken to stay; there is no more of it that was garbage by then."""
        self._tasks += 1
        if self._tasks & (self._tasks - 1) == 0:
            gc.collect()
            gc.freeze()


class Ahead:
    """One thread at a time; whoever uses what it changes calls `finish` first."""

    def __init__(self) -> None:
        self._wanted = threading.Event()  # by whoever waits for the end
        self._thread: threading.Thread | None = None

    def begin(self, works: Sequence[Callable[[], None]]) -> None:
        """Do these one after the other, a moment from now."""
        self.finish()
        if works:
            self._wanted.clear()
            self._thread = threading.Thread(target=self._do, args=(works,), daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait for what is being done; what has not begun is left out."""
        if self._thread is not None:
            self._wanted.set()
            self._thread.join()
            self._thread = None

    def _do(self, works: Sequence[Callable[[], None]]) -> None:
        wait = MOMENT
        for work in works:
            if self._wanted.wait(wait):
                return
            with contextlib.suppress(Exception):  # the next micro-batch does it itself, and tells why
                work()
            wait = 0


GARBAGE, AHEAD = Garbage(), Ahead()
