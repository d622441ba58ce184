"""How long calls run NumPy forms, and wait, while kernels are being prepared."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from streamjoin.jit.readiness import Preparations


def test_forms_substitute_until_all_preparations_have_ended():
    preparations = Preparations()
    preparations.begin("first")
    preparations.begin("second")
    preparations.end("first")
    assert preparations.substitute()
    preparations.end("second")
    preparations.end("second")  # once more changes nothing
    assert not preparations.substitute()


def test_a_wait_for_kernels_has_an_end_and_calls_compile_afterwards(caplog: pytest.LogCaptureFixture):
    preparations = Preparations(longest_spent=1.0, longest_wait=0.2)
    preparations.begin("stuck")
    preparations.spent = 0.9
    assert preparations.substitute()
    preparations.spent = 1.1
    begin = time.perf_counter()
    with caplog.at_level(logging.WARNING, "streamjoin"):
        callers = [threading.Thread(target=preparations.substitute) for _ in range(3)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
    assert time.perf_counter() - begin < 30
    assert not preparations.pending and not preparations.substitute()
    assert len(caplog.messages) == 1 and "compiles those that it needs itself" in caplog.text
    preparations.end("stuck")
    preparations.begin("next")
    assert preparations.substitute()


def test_a_wait_ends_with_the_preparations():
    preparations = Preparations(longest_spent=0.0, longest_wait=60.0)
    preparations.begin("slow")
    preparations.spent = 1.0
    threading.Timer(0.1, preparations.end, ["slow"]).start()
    begin = time.perf_counter()
    assert not preparations.substitute()
    assert time.perf_counter() - begin < 30
    assert preparations.spent == 0.0
