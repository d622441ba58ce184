"""What a thread says while it waits: nothing for two seconds, then on the log what for.

The logger is "streamjoin", the level WARNING, so that a program which has set up no logging shows it on stderr.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LOG = logging.getLogger("streamjoin")
SILENT = 2.0  # seconds before the first message; each further one comes after twice as long


class Wait:
    """A wait that begins now. `what` gives the message's subject and reason: "push", "result rows wait for poll()"."""

    def __init__(self, what: Callable[[], tuple[str, str]]):
        self._what, self._begin = what, time.perf_counter()
        self._next = SILENT

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self._begin

    def patience(self) -> float:
        """Log if that is due; the seconds until it is due again."""
        waited = self.seconds
        if waited >= self._next:
            who, why = self._what()
            LOG.warning("%s has waited %.0f s: %s", who, waited, why)
            while self._next <= waited:
                self._next *= 2
        return self._next - waited
