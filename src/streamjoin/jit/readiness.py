"""What a call does if its kernel is neither loaded nor in the cache on disk.

Compiling a kernel takes from a tenth of a second to two. The calling thread chooses between

- compiling it, as is usual;
- raising `NotReady` (within `loading()`), by which a plan finds out quickly whether its kernels are cached;
- running a NumPy form that gives the same results, where the kernel has one, while another thread *prepares* kernels
  (within `preparing()`). Only that thread loads kernels, so no push waits for it.

NumPy forms take up to a hundred times as long. Once they have taken LONGEST_SPENT seconds, a call waits for the
kernels: the wait then costs at most as much as the calls before it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

LONGEST_SPENT = 10.0  # about what a plan takes to compile

Result = TypeVar("Result")


class NotReady(Exception):
    """A kernel would have to be compiled. `cached`: whether the cache on disk can keep it."""

    def __init__(self, name: str, cached: bool):
        super().__init__(f"{name} is not compiled")
        self.cached = cached


class Stopped(Exception):
    """The thread's preparations were stopped."""


class _Preparations:
    """How many threads prepare kernels, and the seconds that NumPy forms have taken meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count, self.spent = 0, 0.0
        self.over = threading.Event()


_preparations = _Preparations()


class _Thread(threading.local):
    """How a thread's first calls of kernels behave: "load", "compile", or None for the usual way."""

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


@contextlib.contextmanager
def preparing() -> Iterator[None]:
    """Meanwhile, calls in other threads use NumPy forms. May be entered by one thread and left by another."""
    ours = _preparations
    with ours.lock:
        ours.count += 1
        ours.over.clear()
    try:
        yield
    finally:
        with ours.lock:
            ours.count -= 1
            if not ours.count:
                ours.spent = 0.0
                ours.over.set()


def pending() -> bool:
    """Whether some thread prepares kernels."""
    return _preparations.count > 0


def is_loading() -> bool:
    """Whether this thread is within `loading()`."""
    if _thread.stopped is not None and _thread.stopped.is_set():
        raise Stopped
    return _thread.mode == "load"


def substitutes() -> bool:
    """Whether a call in this thread should run a NumPy form if its kernel is not ready. Waits for the kernels if such
    forms have taken too long."""
    ours = _preparations
    if not ours.count or _thread.mode is not None:
        return False
    if ours.spent > LONGEST_SPENT:
        ours.over.wait()
        return False
    return True


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
    _preparations = _Preparations()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
