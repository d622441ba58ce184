"""The timer of a join: a thread that does what is due when no call comes in time.

It hands over pushes that have waited for each other long enough (engine/admission.py), and notes which sources have
been silent for too long (engine/sources.py). The thread starts when it is first needed, sleeps without the GIL until
its bell rings or the next time has come, and knows its join only by a weak reference. So a join that is not used any
more is collected, which ends the thread. In a fork there is no such thread, and the join is a copy that needs none.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Protocol

from streamjoin.topologies.runtime.node import Bell
from streamjoin.topologies.runtime.threads import WorkerThread

LONGEST_REST = 60.0  # seconds
RETRY = 0.01  # seconds until the next attempt if another thread drives the join

Clock = Callable[[], float]  # seconds since some point in time, as of `time.perf_counter`


class Timed(Protocol):
    """An object whose `on_time` a timer calls."""

    def next_due(self) -> float:
        """When `on_time` should be called next, in seconds of the clock; infinity if nothing is due."""

    def on_time(self) -> None:
        """Do what is due. Must not raise."""


class Timer:
    """Calls `on_time` of `timed` when that is due. `wake` it when the next time may have become earlier."""

    def __init__(self, timed: Timed, clock: Clock):
        self._timed, self._clock = weakref.ref(timed), clock
        self._bell: Bell | None = (
            None  # made with the thread: bells are compiled code, which most joins never need
        )
        self._stopped = False

    def wake(self) -> None:
        """Read `next_due` again. Not thread-safe."""
        if self._stopped:
            return
        if self._bell is None:
            self._bell = self._start()
        self._bell.ring()

    def _start(self) -> Bell:
        """Start the thread, which ends with the join; return the bell that wakes it."""
        bell = Bell()
        timed = self._timed()
        if timed is not None:
            weakref.finalize(timed, bell.stop)
        try:
            WorkerThread("streamjoin-timer", _serve, self._timed, bell, self._clock).start()
        except BaseException:
            bell.stop()  # an interrupt may come when the thread has begun
            raise
        return bell

    def stop(self) -> None:
        """End the thread after its current call."""
        self._stopped = True
        if self._bell is not None:
            self._bell.stop()


def _serve(timed: weakref.ref[Timed], bell: Bell, clock: Clock) -> None:
    while not bell.stopped:
        seen = bell.read()
        if (rest := _serve_once(timed, clock)) is None:
            return
        bell.wait(seen, math.ceil(1e6 * min(rest, LONGEST_REST)))


def _serve_once(timed: weakref.ref[Timed], clock: Clock) -> float | None:
    """Do what is due. Return the seconds until the next time, or None if the object is gone. Keeps no reference to
    it."""
    one = timed()
    if one is None:
        return None
    if one.next_due() <= clock():
        one.on_time()
    return max(one.next_due() - clock(), RETRY)
