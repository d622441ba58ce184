"""Nodes on threads: one each, pinned, asleep while its node has nothing to do.

A thread waits in compiled code, without the GIL: first it spins, then it sleeps until its bell rings
(`kernels/concurrent/atomics.py`). Between steps it looks whether it should stop. The threads know their nodes, not the
topology or the join that made them; when that is garbage, or the interpreter exits, `stop` is called.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

from streamjoin.topologies.runtime.node import Bell, Channel, CompiledNode, Node
from streamjoin.topologies.runtime.placement import cores, pin

MESSAGES = 4_096  # of one step, at most
DRIVER_PATIENCE = 20_000  # microseconds: how long an interrupt of the driver may go unnoticed


class Threads:
    """An `Executor` with a thread per node."""

    def __init__(self) -> None:
        self._crew = _Crew()
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
        self._crew.driver.wait(seen, DRIVER_PATIENCE)
        self.check()

    def stop(self) -> None:
        self._crew.stop()


class _Crew:
    """What the threads share; apart from `Threads`, so that they do not keep that alive."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.driver = Bell()
        self._stopping = False
        self._bells: list[Bell] = []
        self._threads: list[threading.Thread] = []

    def start(self, nodes: Sequence[Node], driver: Bell) -> None:
        self.driver, self._bells = driver, [node.bell for node in nodes]
        places = cores()
        for number, node in enumerate(nodes):
            core = places[number % len(places)] if places else None
            thread = threading.Thread(target=self._work, args=(node, core), name=node.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self, node: Node, core: int | None) -> None:
        if core is not None:
            pin(core)
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
            if thread is not threading.current_thread():
                thread.join()
        self._threads.clear()
