"""Who works: one thread at a time, while others may wait for what it finds."""

from __future__ import annotations

import threading
from typing import Any

from streamjoin.runtime.node import Bell


class Work:
    """The lock of who works. A poll that waits could not look meanwhile: it is told when it can.

    An interrupt may come between any two instructions. So `acquire` belongs into the `try` that ends with `release`,
    which asks the lock itself whether this thread has it. Before that: whether it is `mine` already.
    """

    def __init__(self, found: Bell):
        self.polls = 0  # that wait
        self.missed = False  # the last poll found another thread at work, which is to promise for it
        self._lock: Any = threading.RLock()
        self._found = found

    @property
    def mine(self) -> bool:
        """Whether this thread works. If it begins to work, it was interrupted by a signal's handler."""
        return bool(self._lock._is_owned())  # as conditions of the standard library ask

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return bool(self._lock.acquire(blocking, timeout))

    def release(self) -> None:
        """Let others work, if this thread does. Without `tell`, which a poll that waits need not be: it would only wake
        itself."""
        if self.mine:
            self._lock.release()

    def tell(self) -> None:
        if self.polls:
            self._found.ring()
