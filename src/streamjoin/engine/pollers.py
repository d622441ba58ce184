"""The threads that poll a join: whether a push that finds the result buffer full may wait for one to make room.

A push that waited for its own thread to poll would wait forever. Future polls are unknown; known are the threads that
have polled, and those that run. A push waits without limit for a thread that has polled and still runs. Before the
first poll, it waits `FIRST_POLL` seconds for threads that may only be starting. A thread of a pool
(`ThreadPoolExecutor`, `asyncio.to_thread`) that has polled may push next and leave the polls to another thread, and if
the pool serves an event loop, it polls only while that loop runs.
"""

from __future__ import annotations

import sys
import threading

from streamjoin.topologies.runtime.threads import WorkerThread

FIRST_POLL = 2.0  # seconds that a push waits for another thread to poll for the first time


class Pollers:
    """The threads that have polled a join. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._last: threading.Thread | None = None
        self._threads: tuple[threading.Thread, ...] = ()
        self._lock = threading.RLock()  # a signal's handler may poll while this thread does

    def note(self) -> None:
        """The calling thread polls."""
        thread = threading.current_thread()
        if thread is not self._last:
            with self._lock:
                others = [each for each in self._threads if each.is_alive() and each is not thread]
                self._threads, self._last = (*others, thread), thread

    def why_hopeless(self, waited: float) -> str | None:
        """Why the calling thread, which has waited that many seconds for room, should not wait any longer; None if
        another thread may poll."""
        this = threading.current_thread()
        others = [each for each in self._threads if each.is_alive() and each is not this]
        if _runs_event_loop() and all(map(_is_of_a_pool, others)):
            return "this thread runs an event loop, which a wait would stop"
        if others:
            return None
        if this in self._threads and not _is_of_a_pool(this):
            return "this thread, which pushes, is the only one that polls"
        if all(each is this or isinstance(each, WorkerThread) for each in threading.enumerate()):
            return "no other thread runs that could poll"
        return "no other thread polls" if waited >= FIRST_POLL else None


def _is_of_a_pool(thread: threading.Thread) -> bool:
    pools = sys.modules.get("concurrent.futures.thread")
    return thread in getattr(pools, "_threads_queues", ())


def _runs_event_loop() -> bool:
    asyncio = sys.modules.get("asyncio")  # else none can run, and its import takes a while
    return asyncio is not None and asyncio._get_running_loop() is not None
