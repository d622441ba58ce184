"""Runs nodes on threads: one each, asleep while its node has no work.

A thread waits in compiled code, without the GIL: it spins first, then sleeps until its bell rings
(`kernels/concurrent/atomics.py`). Between steps it checks whether it should stop. The threads know their nodes, but
not the topology or the join that created them. `stop` runs when those are garbage-collected, or when the interpreter
exits.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from streamjoin.topologies.runtime.node import Bell, Channel, CompiledNode, Node
from streamjoin.topologies.runtime.placement import allotted_cores, keep_to
from streamjoin.topologies.runtime.waiting import Wait

MESSAGES = 4_096  # A step handles at most this many messages.
DRIVER_PATIENCE = 20_000  # Microseconds for which an interrupt of the driver may go unnoticed.
ONE_WAIT = 0.1  # Seconds: waits of the driver count as one wait if the pauses between them are no longer.


class WorkerThread(threading.Thread):
    """A thread of this package. It ends with the process, and never polls a join."""

    def __init__(self, name: str, target: Callable[..., None], *args: Any):
        super().__init__(name=name, target=target, args=args, daemon=True)

    def await_end(self) -> None:
        """Wait until this thread, which has been asked to end, has ended. Returns at once in the thread itself, and
        if an interrupt prevented its start: a thread that starts after all ends by itself."""
        wait = Wait(lambda: ("close", f"worker thread {self.name} has not ended yet"))
        while self is not threading.current_thread() and self.is_alive():
            self.join(wait.patience())


class Threads:
    """An `Executor` with a thread per node."""

    def __init__(self) -> None:
        self._crew = _Crew()
        self._wait: Wait | None = None  # of the driver, until its bell rings
        self._waited_at = 0.0
        self._finalizer = weakref.finalize(self, self._crew.stop)

    def start(self, nodes: Sequence[Node], channels: Sequence[Channel[Any]], driver: Bell) -> None:
        self._crew.start(nodes, driver)

    @property
    def failed(self) -> bool:
        return self._crew.failure is not None

    def check(self) -> None:
        failure = self._crew.failure
        if failure is not None:
            raise failure

    def wait(self, seen: int) -> None:
        self.check()
        driver = self._crew.driver
        driver.wait(seen, DRIVER_PATIENCE)
        self.check()
        self._log_wait(rung=driver.read() != seen)

    def _log_wait(self, rung: bool) -> None:
        """Log a warning if the worker threads take long."""
        now = time.perf_counter()
        if rung:
            self._wait = None
        elif self._wait is None or now > self._waited_at + ONE_WAIT:
            self._wait = Wait(lambda: ("a join", "its worker threads are still comparing tuples"))
        else:
            self._wait.patience()
        self._waited_at = now

    def stop(self) -> None:
        self._crew.stop()


class _Crew:
    """What the threads share. It is apart from `Threads`, so that the threads do not keep that alive."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.driver = Bell()
        self._stopping = False
        self._bells: list[Bell] = []
        self._threads: list[WorkerThread] = []

    def start(self, nodes: Sequence[Node], driver: Bell) -> None:
        self.driver, self._bells = driver, [node.bell for node in nodes]
        for node, cores in zip_longest(nodes, allotted_cores(len(nodes))):
            thread = WorkerThread(node.name, self._work, node, cores)
            # Append first: `stop` must end the thread even if an interrupt comes while it starts.
            self._threads.append(thread)
            thread.start()

    def _work(self, node: Node, cores: set[int] | None) -> None:
        if cores:
            keep_to(cores)
        try:
            while not self._stopping:
                if isinstance(node, CompiledNode):
                    node.work()
                    continue
                seen = node.bell.read()
                if not node.step(MESSAGES):
                    node.bell.wait(seen)
        except BaseException as error:
            error.add_note(f"raised in worker thread {node.name}")
            if self.failure is None:
                self.failure = error
            self._halt()

    def _halt(self) -> None:
        self._stopping = True
        for bell in self._bells:
            bell.stop()
        self.driver.ring()

    def stop(self) -> None:
        self._halt()
        for thread in self._threads:
            thread.await_end()
        self._threads.clear()
