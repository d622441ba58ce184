"""What a call does if its kernel is neither loaded nor in the cache on disk.

Compiling a kernel takes from a tenth of a second to two. The calling thread chooses between

- compiling it, as is usual;
- raising `NotReady` (within `loading()`), by which a plan finds out quickly whether its kernels are cached;
- running a NumPy form that gives the same results, where the kernel has one, while another thread *prepares* kernels
  (from `begin` to `end`). Only that thread loads kernels, so no push waits for it.

NumPy forms take up to a hundred times as long. Once they have taken LONGEST_SPENT seconds, a call waits for the
kernels, at most LONGEST_WAIT seconds. After that, calls compile the kernels they need themselves. So all delays sum up
to these seconds and what compiling takes, however slow or stuck the other process is.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

LONGEST_SPENT = 3.0  # seconds that NumPy forms may take
LONGEST_WAIT = 5.0  # seconds; a plan takes about ten to compile, from when its join was opened
SILENT = 2.0  # seconds of a wait before it is logged

LOG = logging.getLogger("streamjoin")

Result = TypeVar("Result")


class NotReady(Exception):
    """A kernel would have to be compiled. `cached`: whether the cache on disk can keep it."""

    def __init__(self, name: str, cached: bool):
        super().__init__(f"{name} is not compiled")
        self.cached = cached


class Stopped(Exception):
    """The thread's preparations were stopped."""


class Preparations:
    """Which threads prepare kernels, and how many seconds NumPy forms have taken meanwhile."""

    def __init__(self, longest_spent: float = LONGEST_SPENT, longest_wait: float = LONGEST_WAIT) -> None:
        self._longest_spent, self._longest_wait = longest_spent, longest_wait
        self._lock = threading.Lock()
        self._running: set[object] = set()
        self._over = threading.Event()
        self._given_up = False  # a call has waited too long
        self._logged = False  # calls of several threads may wait
        self.spent = 0.0

    @property
    def pending(self) -> bool:
        """Whether kernels are being prepared that no call should compile."""
        return bool(self._running) and not self._given_up

    def begin(self, who: object) -> None:
        with self._lock:
            self._running.add(who)
            self._over.clear()

    def end(self, who: object) -> None:
        """May be called more than once, and without `begin`."""
        with self._lock:
            self._running.discard(who)
            if not self._running:
                self.spent, self._given_up, self._logged = 0.0, False, False
                self._over.set()

    def substitute(self) -> bool:
        """Whether to run a NumPy form. Waits for the kernels if such forms have taken too long; O(1) otherwise."""
        if self.pending and self.spent > self._longest_spent:
            self._await_end()
            return False
        return self.pending

    def _await_end(self) -> None:
        silent = min(SILENT, self._longest_wait)
        if self._over.wait(silent):
            return
        rest = self._longest_wait - silent
        with self._lock:
            first, self._logged = not self._logged, True
        if first:
            LOG.warning(
                "a call has waited %.0f s: the other process is still compiling kernels; in %.0f s this process "
                "compiles those that it needs itself",
                silent,
                rest,
            )
        if not self._over.wait(rest):
            with self._lock:
                self._given_up = bool(self._running)


_preparations = Preparations()


class _Thread(threading.local):
    """How a thread's first calls of kernels behave: "load", "compile", or None (see the module)."""

    mode: str | None = None
    stopped: threading.Event | None = None


_thread = _Thread()


@contextlib.contextmanager
def _mode(name: str, stopped: threading.Event | None) -> Iterator[None]:
    before = _thread.mode, _thread.stopped
    _thread.mode, _thread.stopped = name, stopped
    try:
        yield
    finally:
        _thread.mode, _thread.stopped = before


def loading(stopped: threading.Event | None = None) -> contextlib.AbstractContextManager[None]:
    """In this thread, first calls raise `NotReady` instead of compiling, and `Stopped` once that is set."""
    return _mode("load", stopped)


def compiling(stopped: threading.Event | None = None) -> contextlib.AbstractContextManager[None]:
    """In this thread, first calls compile, whatever other threads prepare, or raise `Stopped` once that is set."""
    return _mode("compile", stopped)


def begin(who: object) -> None:
    """From now on, calls in other threads use NumPy forms, until `end(who)`."""
    _preparations.begin(who)


def end(who: object) -> None:
    """`who` prepares nothing any more. May be called more than once, and without `begin`."""
    _preparations.end(who)


def pending() -> bool:
    """Whether some thread prepares kernels that no call should compile."""
    return _preparations.pending


def is_loading() -> bool:
    """Whether this thread is within `loading()`."""
    check_stopped()
    return _thread.mode == "load"


def check_stopped() -> None:
    """Raise `Stopped` if this thread's preparations were stopped."""
    if _thread.stopped is not None and _thread.stopped.is_set():
        raise Stopped


def substitutes() -> bool:
    """Whether a call in this thread should run a NumPy form if its kernel is not ready. Waits for the kernels if such
    forms have taken too long."""
    return _thread.mode is None and _preparations.substitute()


def timed(form: Callable[..., Result]) -> Callable[..., Result]:
    """A NumPy form whose time counts."""

    @functools.wraps(form)
    def call(*args: Any) -> Result:
        begin = time.perf_counter()
        try:
            return form(*args)
        finally:
            _preparations.spent += time.perf_counter() - begin

    return call


def _start_anew() -> None:
    """In a fork, no thread prepares anything."""
    global _preparations
    _preparations = Preparations()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
