"""Nodes without threads: a scheduler that picks which node steps next and how far, and writes down what happens.

`choose(n)` decides everything: it gives a number from 0 below n. With a seeded random generator a run can be
repeated; with bytes that Hypothesis draws (`from_bytes`) a failing run is shrunk to few decisions.

A step that did nothing puts its node to sleep until its bell rings, as on threads. So a bell that somebody
forgot to ring, and queues that wait for each other, both show as `Stuck`: nobody can go on, and the driver
waits. The steps themselves are taken whole: what happens between the instructions of two steps is for the tests
of the kernels, on real threads.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from streamjoin.topologies.runtime.node import Bell, Channel, Node

Choose = Callable[[int], int]


class Stuck(AssertionError):
    """The driver waits, and no node can go on."""


def from_seed(seed: int) -> Choose:
    """Decisions of a seeded generator."""
    return random.Random(seed).randrange


def from_bytes(decisions: bytes) -> Choose:
    """Decisions by bytes, one each; when they are used up, fair turns."""
    rest, turns = iter(decisions), iter(range(2**62))

    def choose(count: int) -> int:
        byte = next(rest, None)
        return (next(turns) if byte is None else byte) % count

    return choose


class Simulator:
    """An `Executor` in the calling thread. `most` bounds what one step takes from a queue; `trace` is what happened,
    a line each."""

    def __init__(self, choose: Choose, most: int = 3):
        self.trace: list[str] = []
        self.steps = 0
        self._choose, self._most = choose, most
        self._nodes: list[Node] = []
        self._asleep: dict[int, int] = {}  # node -> its bell when it fell asleep
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
        """Step nodes, as many as chosen, and on until one of them has rung for the driver."""
        self.check()
        self.run(1 + self._choose(2 * len(self._nodes)))
        while self._driver.read() == seen:
            if not self.run(1):
                raise Stuck("no node can go on, and the driver waits:\n" + self.tail())

    def run(self, steps: int) -> bool:
        """Take that many steps, fewer if all nodes are asleep; whether there was any. For tests, between two acts
        of the driver."""
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
        """The end of the trace, as text."""
        left_out = [f"... {len(self.trace) - lines} lines before"] if len(self.trace) > lines else []
        return "\n".join([*left_out, *self.trace[-lines:]])
