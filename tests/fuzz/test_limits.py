"""The time limits of fuzzed cases end code that computes, and code that blocks."""

from __future__ import annotations

import signal
import threading

import pytest
from tests.fuzz.limits import no_hang


def compute() -> None:
    while True:
        pass


def test_code_that_computes_for_too_long_is_stopped() -> None:
    with pytest.raises(AssertionError, match="case 7 hangs"), no_hang(lambda: "case 7", processor=0.1):
        compute()


def test_code_that_blocks_is_stopped() -> None:
    with pytest.raises(AssertionError, match="case 7 hangs"), no_hang(lambda: "case 7", clock=0.1):
        threading.Event().wait(60)


def test_nothing_is_stopped_later() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGVTALRM)]
    with no_hang(lambda: "case 7"):
        pass
    assert [signal.getitimer(timer) for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)] == [
        (0.0, 0.0)
    ] * 2
    assert [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGVTALRM)] == handlers
