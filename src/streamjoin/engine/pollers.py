"""The threads and tasks that poll and push: whether a call that waits for another one could wait forever.

A push that finds the result buffer full waits for a poll, and a loop over results waits for a push.
A wait for the own thread would never end. Future calls are unknown; known are those that have polled, and the
threads that run.

The caller is a thread, or a task of asyncio where an event loop runs in the thread (or where the thread makes a call
for a task, see engine/async_calls.py). A push waits without limit for one that has polled and still runs. Before the
first poll, it waits `first_poll` seconds for threads and tasks that may only be starting. A thread of a pool
(`ThreadPoolExecutor`, `asyncio.to_thread`) that has polled may push next and leave the polls to another thread, and if
the pool serves an event loop, it polls only while that loop runs.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from streamjoin.engine.async_calls import CallThread, given_up
from streamjoin.topologies.runtime.threads import WorkerThread


class Pollers:
    """The threads and tasks that have polled a join. All methods may be called from any thread. `first_poll`: the
    seconds that a push waits for the first poll of another thread or task."""

    def __init__(self, first_poll: float) -> None:
        self._first_poll = first_poll
        self._last: Any = None
        self._known: tuple[Any, ...] = ()
        self._readers: set[threading.Thread] = set()  # that wait for results in a loop
        self._lock = threading.RLock()  # a signal's handler may poll while this thread does

    def note(self) -> None:
        """Note that the calling thread or task polls."""
        this = _caller()
        if this is not self._last:
            with self._lock:
                others = [each for each in self._known if _runs(each) and each is not this]
                self._known, self._last = (*others, this), this

    def why_hopeless(self, waited: float) -> str | None:
        """Return why the caller, which has waited that many seconds for room, should wait no longer; None if another
        thread or task may poll."""
        if reason := given_up():
            return reason
        this = _caller()
        others = [each for each in self._known if _runs(each) and each is not this]
        if _event_loop_runs() and all(map(_needs_the_loop, others)):
            return "this thread runs an event loop, which a wait would stop"
        if others:
            return None
        if this in self._known and not _is_of_a_pool(this):
            kind = "thread" if isinstance(this, threading.Thread) else "task"
            return f"this {kind}, which pushes, is the only one that polls"
        if not _others_run(set()):
            return "no other thread runs that could poll"
        return "no other thread polls" if waited >= self._first_poll else None

    def begin_reading(self) -> None:
        """Note that the calling thread waits for results in a loop, and pushes nothing meanwhile."""
        with self._lock:
            self._readers.add(threading.current_thread())

    def end_reading(self) -> None:
        with self._lock:
            self._readers.discard(threading.current_thread())

    def why_no_push_can_come(self) -> str | None:
        """Return why the caller, which waits for results in a loop, should wait no longer; None if another thread or
        task may push."""
        if reason := given_up():
            return reason
        if _event_loop_runs():
            return "this thread runs an event loop, which a wait would stop; use `async for batch in join`"
        with self._lock:
            readers = self._readers.copy()
        return None if _others_run(readers) else "no other thread runs that could push"


def _caller() -> Any:
    """The task that calls; the thread, where no task does."""
    thread = threading.current_thread()
    if isinstance(thread, CallThread):
        return thread.task or thread
    if _event_loop_runs():
        return sys.modules["asyncio"].current_task() or thread
    return thread


def _runs(caller: Any) -> bool:
    return caller.is_alive() if isinstance(caller, threading.Thread) else not caller.done()


def _others_run(idle: set[threading.Thread]) -> bool:
    """Whether there is another thread that could call a join: not one of this package, unless it works for a task, and
    not one of the idle ones."""
    this = threading.current_thread()
    return isinstance(this, CallThread) or any(
        each is not this and each not in idle and each.is_alive() and not isinstance(each, WorkerThread)
        for each in threading.enumerate()
    )


def _needs_the_loop(caller: Any) -> bool:
    return not isinstance(caller, threading.Thread) or _is_of_a_pool(caller)


def _is_of_a_pool(caller: Any) -> bool:
    pools = sys.modules.get("concurrent.futures.thread")
    return caller in getattr(pools, "_threads_queues", ())


def _event_loop_runs() -> bool:
    """Whether an event loop runs in the calling thread."""
    asyncio = sys.modules.get("asyncio")  # else none can run, and its import takes a while
    return asyncio is not None and asyncio._get_running_loop() is not None
