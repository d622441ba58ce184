"""Who works: one thread at a time, while others may wait for what it finds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamjoin.topologies.runtime.node import Bell


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
                yield bool(self._lock.acquire(blocking, timeout))
            finally:
                self._release()
        finally:
            self._release()

    def _release(self) -> None:
        if self.mine:
            self._lock.release()

    def tell(self) -> None:
        if self.polls:
            self._found.ring()
