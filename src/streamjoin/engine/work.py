"""The driver's mutex: one thread at a time drives a join, while others may wait for what it finds."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from streamjoin.semantics.errors import StreamJoinError
from streamjoin.topologies.runtime.node import Bell
from streamjoin.topologies.runtime.waiting import Wait

Outcome = TypeVar("Outcome")


def reentrant_error() -> StreamJoinError:
    return StreamJoinError(
        "re-entrant call: this thread is already inside the join; a signal handler may only call poll() and close()"
    )


class Work:
    """A mutex held by the thread that drives the join. Releasing it wakes blocked polls."""

    def __init__(self, found: Bell):
        self.polls = 0  # blocked polls
        self.missed = (
            False  # the last poll found the mutex taken; the thread that has it updates the punctuation
        )
        self._lock: Any = threading.RLock()  # knows which thread holds it
        self._found = found

    @property
    def mine(self) -> bool:
        """Whether the calling thread holds the mutex. True right before it begins only in a signal handler."""
        return bool(self._lock._is_owned())  # the same call that threading.Condition makes

    def run(self, work: Callable[..., Outcome], *given: Any, timeout: float = math.inf) -> Outcome | None:
        """Call `work` once the mutex is free, and return its result; None if that takes more than `timeout` seconds.
        Raises if this thread holds the mutex already. Does not `tell`: a blocked poll would only wake itself.

        An interrupt may come between any two instructions: right after the lock was taken, too, and before the first
        release has let go of it.
        """
        lock = self._lock
        if lock._is_owned():
            raise reentrant_error()
        try:
            try:
                return work(*given) if lock.acquire(False) or self._wait(timeout) else None
            finally:
                if lock._is_owned():
                    lock.release()
        finally:
            if lock._is_owned():
                lock.release()

    def _wait(self, timeout: float) -> bool:
        """Wait for the mutex. Return whether it became free in time. Logs long waits."""
        wait = Wait(lambda: ("a call", "another thread is still driving the join"))
        while (rest := timeout - wait.seconds) > 0:
            if self._lock.acquire(timeout=min(rest, wait.patience())):
                return True
        return False

    def tell(self) -> None:
        if self.polls:
            self._found.ring()
