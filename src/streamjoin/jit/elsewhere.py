"""Calls a function in another process, which fills the cache of compiled kernels that this process then loads from.

A thread could not do it: compiling holds the interpreter lock most of the time. The other process is a new interpreter
of low priority. It gets the module search path and the pickled call through its standard input, never runs the user's
script, and inherits no descriptor except that of the lock in the cache folder. It continues when this process ends, so
that short scripts fill the cache, too. It runs for at most LONGEST_RUN seconds, after which the system ends it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from streamjoin.jit import source

WAIT = "STREAMJOIN_COMPILE"  # the variable that chooses when kernels are compiled: "ahead" (the default) or "wait"
LOCK = "compiling"  # the file in the cache folder that a process locks while it compiles for others
LOOK = 0.1  # seconds between two looks at a lock that another process holds
LONGEST_TURN = 30.0  # seconds to wait for that lock; its owner may be stopped, or compile something long
LONGEST_RUN = 120  # seconds, from the start of the other process
NICE = 10  # priority of the other process: a tenth of a core that somebody else keeps busy

# Linux may divide the cores between sessions first, and only within a session by priority. This process has a session
# of its own, so the whole session gets a low priority. The alarm ends the process whatever it is doing. -I keeps the
# current folder and PYTHON* variables out of the imports that come before the search path is set.
_START = (
    "import os; os.nice({nice})\n"
    "try:\n"
    " with open('/proc/self/autogroup', 'w') as group: group.write('{nice}')\n"
    "except OSError: pass\n"
    "import signal; signal.signal(signal.SIGALRM, signal.SIG_DFL); "
    "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM]); signal.alarm({seconds}); "
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from streamjoin.jit import elsewhere; elsewhere.serve()"
)


class NotCompiled(Exception):
    """The other process failed, or took too long."""


def is_possible() -> bool:
    """Whether kernels may be compiled by another process: there is a cache that both use, and the interpreter can be
    started again."""
    if os.environ.get(WAIT, "ahead") != "ahead" or not sys.executable or getattr(sys, "frozen", False):
        return False
    return source.usable_folder() is not None


class Turn:
    """The right of one process of a user to compile for others. `handle`: the locked file; None if there is none."""

    def __init__(self, handle: int | None):
        self.handle = handle
        if handle is not None:
            _locks.add(handle)

    def end(self) -> None:
        """Give the right up. May be called more than once. A process that was given the handle keeps it."""
        if self.handle is not None:
            _locks.discard(self.handle)
            os.close(self.handle)
            self.handle = None


@contextlib.contextmanager
def turn(stopped: threading.Event, longest: float = LONGEST_TURN) -> Iterator[Turn]:
    """Wait until no other process of this user is having kernels compiled, so that processes that start together, such
    as Spark's workers, compile nothing twice. The handle is None if that takes longer than `longest` seconds, once
    `stopped` is set, or if the cache folder has vanished."""
    folder = source.usable_folder()
    deadline, handle = time.monotonic() + longest, None
    with contextlib.suppress(OSError):
        while folder is not None:
            handle = folder.lock(LOCK)
            if handle is not None or time.monotonic() >= deadline or stopped.wait(LOOK):
                break
    ours = Turn(handle)
    try:
        yield ours
    finally:
        ours.end()


class RemoteCall:
    """A call of `function(*args)` in another process; a function by its name in a module, arguments that can be
    pickled. `longest`: the seconds after which the process is ended."""

    def __init__(self, function: Callable[..., None], *args: Any, longest: int = LONGEST_RUN):
        self._sent = pickle.dumps(sys.path) + pickle.dumps((function, args))
        self._longest = longest
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: OSError | None = None

    @property
    def started(self) -> bool:
        return self._process is not None or self._failure is not None

    def start(self, turn: Turn) -> None:
        """Start the process, and give it the turn: the process keeps it if this one ends. Takes some milliseconds, and
        waits for nothing; `wait` reports an error."""
        try:
            # A file and no pipe, so that nothing waits for a process that does not read.
            with tempfile.TemporaryFile(dir=source.folder()) as given:
                given.write(self._sent)
                given.seek(0)
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-c", _START.format(seconds=self._longest, nice=NICE)],
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, WAIT: "wait"},
                    pass_fds=() if turn.handle is None else (turn.handle,),
                    start_new_session=True,  # keeps signals of Ctrl-C and of a closed terminal away from it
                )
            _running.add(self._process)
        except OSError as error:
            self._failure = error
        turn.end()

    def wait(self) -> None:
        """Wait until the process has ended; `NotCompiled` if it failed, or takes too long."""
        if self._process is None:
            raise NotCompiled(str(self._failure))
        try:
            said, _ = self._process.communicate(timeout=self._longest)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the alarm does not end a process that a signal has stopped
            self._process.wait()
            raise NotCompiled(f"it did not end within {self._longest} s") from None
        if self._process.returncode or said:
            reason = said.decode(errors="replace").strip()
            raise NotCompiled(reason or f"it ended with exit code {self._process.returncode}")


def serve() -> None:
    """What the other process does."""
    function, args = pickle.load(sys.stdin.buffer)
    try:
        function(*args)
    except Exception as error:  # whatever it is, the process that waits compiles by itself
        with contextlib.suppress(OSError):  # that process has ended
            print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(0)  # without the clean-up of threads


_running: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()
_locks: set[int] = set()


def _let_go() -> None:
    """In a fork: close its copies of pipes and locks, which would outlive the process they belong to."""
    for process in list(_running):
        if process.stdout is not None:
            process.stdout.close()
    for handle in _locks:
        os.close(handle)
    _running.clear()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
