"""Runs nodes without threads: a scheduler picks which node steps next and how far, and records what happens.

`choose(n)` makes every decision: it returns a number from 0 to n - 1. A seeded random generator makes a run
repeatable. With bytes that Hypothesis draws (`from_bytes`), a failing run shrinks to few decisions.

A node whose step did nothing sleeps until its bell rings, as on threads. So a forgotten ring and a deadlock between
queues both raise `Stuck`: no node can continue, and the driver waits. Steps are atomic here; the tests of the kernels
check the interleaving of instructions, on real threads.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from streamjoin.topologies.runtime.node import Bell, Channel, Node

Choose = Callable[[int], int]


class Stuck(AssertionError):
    """The driver waits, and no node can continue."""


def from_seed(seed: int) -> Choose:
    """Decisions by a seeded generator."""
    return random.Random(seed).randrange


def from_bytes(decisions: bytes) -> Choose:
    """Decisions by bytes, one each. After the last byte, nodes take turns."""
    rest, turns = iter(decisions), iter(range(2**62))

    def choose(count: int) -> int:
        byte = next(rest, None)
        return (next(turns) if byte is None else byte) % count

    return choose


class Simulator:
    """An `Executor` in the calling thread. `most` limits how much one step takes from a queue; `trace` has a line for
    everything that happened."""

    def __init__(self, choose: Choose, most: int = 3):
        self.trace: list[str] = []
        self.steps = 0
        self._choose, self._most = choose, most
        self._nodes: list[Node] = []
        self._asleep: dict[int, int] = {}  # node -> value of its bell when it fell asleep
        self._driver = Bell()
        self._failure: BaseException | None = None

    def start(self, nodes: Sequence[Node], channels: Sequence[Channel[Any]], driver: Bell) -> None:
        self._nodes, self._driver = list(nodes), driver
        for channel in channels:
            channel.watch = lambda line: self.trace.append(f"    {line}")

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def wait(self, seen: int) -> None:
        """Step nodes, as many steps as chosen, and then until a node has rung for the driver."""
        self.check()
        self.run(1 + self._choose(2 * len(self._nodes)))
        while self._driver.read() == seen:
            if not self.run(1):
                raise Stuck("no node can continue, and the driver waits:\n" + self.tail())

    def run(self, steps: int) -> bool:
        """Take this many steps, fewer if all nodes are asleep; return whether there was any. Tests call this between
        two actions of the driver."""
        for number in range(steps):
            awake = [n for n, node in enumerate(self._nodes) if self._asleep.get(n) != node.bell.read()]
            if not awake:
                return number > 0
            self._step(awake[self._choose(len(awake))])
        return True

    def _step(self, number: int) -> None:
        node, self.steps = self._nodes[number], self.steps + 1
        rung = node.bell.read()
        try:
            busy = node.step(1 + self._choose(self._most))
        except BaseException as error:
            error.add_note(f"raised in node {node.name}")
            self._failure = error
            self._nodes.clear()
            raise
        if busy:
            self._asleep.pop(number, None)
            self.trace.append(f"{node.name}: {node}")
        else:
            self._asleep[number] = rung

    def stop(self) -> None:
        self._nodes = []

    def tail(self, lines: int = 60) -> str:
        """The last lines of the trace, as text."""
        left_out = [f"... {len(self.trace) - lines} earlier lines"] if len(self.trace) > lines else []
        return "\n".join([*left_out, *self.trace[-lines:]])
