"""Loops over the results of a join: `for batch in join` and `async for batch in join`.

A loop waits for the next batch, and ends once both sides have ended and nothing is left, or when the join is finished
or closed. Batches that were polled for a loop and not handed out yet stay with the join: the next loop, `poll` or
`finish` gets them. So each row comes out once, also if a loop is left early or cancelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator

import pyarrow as pa

from streamjoin.engine.async_calls import in_thread
from streamjoin.engine.pollers import Pollers
from streamjoin.engine.results import LOOK_AGAIN
from streamjoin.semantics.errors import StreamJoinError
from streamjoin.topologies.runtime.waiting import Wait


class ResultLoops:
    """The part of a join that loops see. A join adds how to poll, and when no more results can come."""

    def __init__(self, first_poll: float) -> None:
        self._pollers = Pollers(first_poll)
        self._held: deque[pa.RecordBatch] = deque()  # polled for a loop, and not handed out yet

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Wait for the next batch, again and again. The loop ends once both sides have ended and every result was
        taken, or when the join is finished or closed. Several loops, and polls, share the results: each row comes out
        once. Raises `StreamJoinError` instead of waiting if no other thread runs that could push."""
        self._check_process()
        while True:
            if (batch := self._take_held()) is not None:
                yield batch
            elif not self._hold_next():
                return

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """As `for`, without blocking the event loop."""
        self._check_process()
        while True:
            if (batch := self._take_held()) is not None:
                yield batch
            elif not await in_thread(self._hold_next):
                return

    def _take_held(self) -> pa.RecordBatch | None:
        """The oldest batch that is held."""
        try:
            return self._held.popleft()
        except IndexError:  # perhaps another thread has just taken it
            return None

    def _take_all_held(self) -> list[pa.RecordBatch]:
        taken = []
        while (batch := self._take_held()) is not None:
            taken.append(batch)
        return taken

    def _hold_next(self) -> bool:
        """Wait until a batch is held; False at the end. Raises if no thread could push what this waits for."""
        wait = Wait(lambda: ("a loop over results", self._missing()))
        if self._held or (not self._is_over() and self._hold(0.0)):
            return True
        self._pollers.begin_reading()
        try:
            while not self._is_over():
                if reason := self._pollers.why_no_push_can_come():
                    raise StreamJoinError(
                        f"a loop over results would wait forever: {self._missing()}, and {reason}. When everything "
                        "is pushed, call join.end() before the loop; else push in another thread or task"
                    )
                if self._hold(min(wait.patience(), LOOK_AGAIN)):
                    return True
            return bool(self._held)
        finally:
            self._pollers.end_reading()

    def _hold(self, timeout: float) -> bool:
        """Poll for a loop or a task; return whether a batch is held now."""
        if not self._held:
            self._held.extend(self._poll_within(timeout))
        return bool(self._held)

    def _poll_within(self, timeout: float) -> list[pa.RecordBatch]:
        """New batches, if there are none those that come within `timeout` seconds."""
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Whether no poll to come has results."""
        raise NotImplementedError

    def _missing(self) -> str:
        """What a loop waits for."""
        raise NotImplementedError

    def _check_process(self) -> None:
        """Raise in a fork."""
        raise NotImplementedError
