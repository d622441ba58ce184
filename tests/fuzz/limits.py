"""Time limits of a case: code that computes for too long, or waits for too long, is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HANG_SECONDS = 60.0  # of the processor, so that a busy machine is no slow one
WAIT_SECONDS = 300.0  # of the clock: code that blocks uses no processor


@contextmanager
def no_hang(
    describe: Callable[[], str], processor: float = HANG_SECONDS, clock: float = WAIT_SECONDS
) -> Iterator[None]:
    """Raise an error in code that uses the processor, or takes, for longer than the limits."""

    def stop(*_: object) -> None:
        raise AssertionError(f"{describe()} hangs")

    timers = (
        (signal.ITIMER_VIRTUAL, signal.SIGVTALRM, processor),
        (signal.ITIMER_REAL, signal.SIGALRM, clock),
    )
    before = [signal.signal(number, stop) for _, number, _ in timers]
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
