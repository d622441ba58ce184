"""Who works: one thread at a time, while others may wait for what it finds."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamjoin.topologies.runtime.node import Bell
from streamjoin.topologies.runtime.waiting import Wait


class Work:
    """The lock of who works. A poll that waits could not look meanwhile: it is told when it can."""

    def __init__(self, found: Bell):
        self.polls = 0  # that wait
        self.missed = False  # the last poll found another thread at work, which is to promise for it
        self._lock: Any = threading.RLock()  # as it knows whose it is
        self._found = found

    @property
    def mine(self) -> bool:
        """Whether this thread works. If it is about to begin, then it was interrupted by a signal's handler."""
        return bool(self._lock._is_owned())  # as conditions of the standard library ask

    @contextmanager
    def turn(self, blocking: bool = True, timeout: float = -1) -> Iterator[bool]:
        """Work in this block, once nobody else does; whether that is so in time. Must not be `mine` already. Does not
        `tell`: a poll that waits would only wake itself.

        An interrupt may come between any two instructions: also when the lock has just been taken, and before the
        first `_release` has let go of it."""
        try:
            try:
                yield bool(self._lock.acquire(False) or (blocking and self._wait(timeout)))
            finally:
                self._release()
        finally:
            self._release()

    def _wait(self, timeout: float) -> bool:
        """Take the lock as soon as nobody works; whether that is so in time. Says on the log what it waits for."""
        wait = Wait(lambda: ("a call", "another thread is still at work on the join"))
        most = math.inf if timeout < 0 else timeout
        while (rest := most - wait.seconds) > 0:
            if self._lock.acquire(timeout=min(rest, wait.patience())):
                return True
        return False

    def _release(self) -> None:
        if self.mine:
            self._lock.release()

    def tell(self) -> None:
        if self.polls:
            self._found.ring()
