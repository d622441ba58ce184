"""What a waiting thread logs: nothing for two seconds, then what it is waiting for.

It logs to "streamjoin" at level WARNING, so that a program without logging setup shows it on stderr.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LOG = logging.getLogger("streamjoin")
SILENT = 2.0  # Seconds before the first message; each interval after that is twice as long.


class Wait:
    """A wait that begins now. `what` returns the message's subject and reason: "push", "result rows wait for
    poll()"."""

    def __init__(self, what: Callable[[], tuple[str, str]]):
        self._what, self._begin = what, time.perf_counter()
        self._next = SILENT

    @property
    def seconds(self) -> float:
        """Seconds since the wait began."""
        return time.perf_counter() - self._begin

    def patience(self) -> float:
        """Log if a message is due; return the seconds until the next one."""
        waited = self.seconds
        if waited >= self._next:
            who, why = self._what()
            LOG.warning("%s has waited %.0f s: %s", who, waited, why)
            while self._next <= waited:
                self._next *= 2
        return self._next - waited
