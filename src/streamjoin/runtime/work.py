"""Who works: one thread at a time, while others may wait for what it finds."""

from __future__ import annotations

import threading

from streamjoin.runtime.node import Bell


class Work:
    """The lock of who works. A poll that waits could not look meanwhile: it is told when it can."""

    def __init__(self, found: Bell):
        self.polls = 0  # that wait
        self._lock, self._found = threading.Lock(), found

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Without `tell`, which a poll that waits need not be: it would only wake itself."""
        self._lock.release()

    def tell(self) -> None:
        if self.polls:
            self._found.ring()
