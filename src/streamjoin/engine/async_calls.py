"""Calls of a join from an asyncio event loop: each runs in a thread of its own, so that the loop never waits.

A call may wait long (for results, for room), so a pool of threads of fixed size could be used up by calls that wait
for each other. A thread for each call cannot, and leaves nothing behind. Starting one costs about as much as a small
push.

A thread that works for a task carries it, so that the join knows which tasks poll and push (engine/pollers.py), and
whether the task was cancelled. A cancelled call ends its waits. The thread leaves results with the join, and the task
takes them from there. So a cancelled call loses none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from streamjoin.topologies.runtime.threads import WorkerThread

if TYPE_CHECKING:
    import asyncio  # which a program without tasks need not import

Returned = TypeVar("Returned")


class CallThread(WorkerThread):
    """Makes one call for a task."""

    def __init__(self, task: asyncio.Task[Any] | None, target: Callable[[], None]):
        super().__init__("streamjoin-async-call", target)
        self.task = task
        self.cancelled = False


async def in_thread(call: Callable[..., Returned], *given: Any) -> Returned:
    """What `call` returns or raises in another thread. If the task is cancelled, the waits of the call end, and the
    cancellation is raised when it has ended."""
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[Returned] = loop.create_future()

    def settle(outcome: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(outcome)
        else:
            future.set_exception(error)

    def run() -> None:
        outcome, failure = None, None
        try:
            outcome = call(*given)
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop was closed meanwhile, so no task waits for this
            loop.call_soon_threadsafe(settle, outcome, failure)

    thread = CallThread(asyncio.current_task(), run)
    thread.start()
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait([future])  # whose cancellation leaves the future as it is
        except asyncio.CancelledError as error:
            thread.cancelled, cancelled = True, error
    if cancelled is not None:
        future.exception()  # else asyncio logs that the exception was never retrieved
        raise cancelled
    return future.result()


def given_up(_: float = 0.0) -> str | None:
    """Why the calling thread should not wait any longer, if the task that it works for was cancelled."""
    return "its task was cancelled" if getattr(threading.current_thread(), "cancelled", False) else None
