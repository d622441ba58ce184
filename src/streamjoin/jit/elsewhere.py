"""Calls a function in another process, which fills the cache of compiled kernels that this process then loads from.

A thread could not do it: compiling holds the interpreter lock most of the time. The other process is a new interpreter
of lowest priority. It gets the module search path and the pickled call through its standard input, never runs the
user's script, inherits no other descriptor, and ends when the call is done or its standard input closes, as it does
when this process ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from streamjoin.jit import source

WAIT = "STREAMJOIN_COMPILE"  # the variable that chooses when kernels are compiled: "ahead" (the default) or "wait"
LOCK = "compiling"  # the file in the cache folder that a process locks while it lets another one compile
LOOK = 0.1  # seconds between two looks at a lock that another process holds
NICE = 19

# -I keeps the current folder and PYTHON* variables out of the imports that come before the search path is set.
_START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from streamjoin.jit import elsewhere; elsewhere.serve()"
)


class NotCompiled(Exception):
    """The other process failed, or was stopped."""


def is_possible() -> bool:
    """Whether kernels may be compiled by another process: there is a cache that both use, and the interpreter can be
    started again."""
    if os.environ.get(WAIT, "ahead") != "ahead" or not sys.executable or getattr(sys, "frozen", False):
        return False
    return source.usable_folder() is not None


@contextlib.contextmanager
def turn(stopped: threading.Event) -> Iterator[None]:
    """Wait until no other process of this user lets kernels be compiled, or until `stopped`. So processes that start
    together, such as Spark's workers, compile nothing twice."""
    folder = source.usable_folder()
    assert folder is not None
    handle = folder.lock(LOCK)
    while handle is None and not stopped.wait(LOOK):
        handle = folder.lock(LOCK)
    if handle is not None:
        _locks.add(handle)
    try:
        yield
    finally:
        if handle is not None:
            _locks.discard(handle)
            os.close(handle)


class RemoteCall:
    """A call of `function(*args)` in another process; a function by its name in a module, arguments that can be
    pickled."""

    def __init__(self, function: Callable[..., None], *args: Any):
        self._sent = pickle.dumps(sys.path) + pickle.dumps((function, args))
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start the process, and wait until it has ended; `NotCompiled` if it fails."""
        try:
            process = self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, WAIT: "wait"},
                bufsize=0,
                start_new_session=True,  # Ctrl-C is not for it
            )
        except OSError as error:
            raise NotCompiled(str(error)) from error
        assert process.stdin is not None and process.stdout is not None
        _running.add(process)
        with process.stdout:
            rest = self._sent
            with contextlib.suppress(OSError, ValueError):  # it ended already, or was stopped
                while rest:
                    rest = rest[process.stdin.write(rest) :]
            said = process.stdout.read().decode(errors="replace")
        self.stop()
        if process.wait() or said:
            raise NotCompiled(said.strip() or f"it ended with exit code {process.returncode}")

    def stop(self) -> None:
        """Let the process end, if it runs."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def serve() -> None:
    """What the other process does."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    function, args = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        function(*args)
    except Exception as error:  # whatever it is, the process that waits compiles by itself
        print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(0)  # without the clean-up of a thread that reads


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


_running: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()
_locks: set[int] = set()


def _let_go() -> None:
    """In a fork: close its copies of pipes and locks, which would outlive the process they belong to."""
    for process in list(_running):
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
    for handle in _locks:
        os.close(handle)
    _running.clear()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
