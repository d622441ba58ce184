"""The interface between the engine and a topology.

The engine hands over prepared tuples and what can still come; the topology hands back id pairs. It owns
the windows and decides who compares what, and when; it never sees payload, sources or pollers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from streamjoin.index.probing import Fetch, Prober, filters_of
from streamjoin.index.stats import IndexStats
from streamjoin.index.tuples import ProbingTuples
from streamjoin.index.window import WindowIndex
from streamjoin.plan.physical import Plan
from streamjoin.semantics.spec import JoinSpec
from streamjoin.topologies.runtime.node import Bell

MakeWindow = Callable[[str], WindowIndex]
# Gives rows of a side new numbers, after all others, and copies their payload there. The old numbers stay valid until
# they are released.
Carry = Callable[[str, np.ndarray], np.ndarray]


@dataclass(slots=True)
class Frontier:
    """What can still come. Never changed; not frozen, since every push makes one. `bound`: no tuple with a smaller
    (ts, side, source rank) will; `low`: the least ts that each side can still bring (infinity: the side has ended)."""

    bound: tuple[float, int, int]
    low: Mapping[str, float]


@dataclass(slots=True, eq=False)
class Matches:
    """Results of one step: row ids of both sides. Never changed; not frozen, since every push may make some."""

    left: np.ndarray
    right: np.ndarray

    def __len__(self) -> int:
        return len(self.left)

    def by_side(self) -> dict[str, np.ndarray]:
        return {"left": self.left, "right": self.right}


class Sized(Protocol):
    """A part of a window."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class WindowSize(Sized, Protocol):
    """What a window of one side holds, over all workers."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def stats(self) -> IndexStats:
        """What the window consists of; empty if it is spread over several workers."""


class Spread:
    """A window spread over several workers, which may change their parts while their sizes are read."""

    def __init__(self, parts: Sequence[Sized]):
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def nbytes(self) -> int:
        """Workers continue meanwhile: if one adds its first columns during the count, the count starts again."""
        while True:
            try:
                return sum(part.nbytes for part in self._parts)
            except RuntimeError:  # of a dictionary that has changed
                continue

    def stats(self) -> IndexStats:
        return IndexStats()


@dataclass(frozen=True)
class Task:
    """What a topology is made for: a plan; `make_window`, which makes an empty window of a side as planned; and
    `fetch`, which gives payload columns of row ids, for what windows leave to be checked. `carry`: see `Carry`; for
    topologies that keep few rows much longer than the others, and hold no window."""

    plan: Plan
    make_window: MakeWindow
    fetch: Fetch
    carry: Carry

    @property
    def spec(self) -> JoinSpec:
        """The inner join that the topology runs."""
        return self.plan.matching

    @property
    def order(self) -> str:
        return self.plan.matching_order

    @property
    def workers(self) -> int:
        return self.plan.workers

    @property
    def settles(self) -> bool:
        """Whether tuples have to wait for their place in the total order."""
        return self.plan.settles

    def make_prober(self) -> Prober:
        residuals = {side: program.residual for side, program in self.plan.programs.items()}
        return Prober(filters_of(residuals), self.fetch)


class Topology(Protocol):
    """A way to run a `Task`.

    `settles`: whether tuples wait for their place in the total order. `found`: its threads, if it has
    some, ring it when results may be ready. They work between calls, so what a topology reports may be a moment old.
    Closing the join, in any thread, stops `found`: a step under way then returns after a stretch of comparisons,
    a fraction of a second or one call of a slow function, with its tuples where they were.
    """

    settles: bool
    found: Bell

    @property
    def windows(self) -> Mapping[str, WindowSize]: ...

    @property
    def comparisons(self) -> tuple[int, ...]:
        """Comparisons made so far, by worker."""

    def held(self, side: str) -> int:
        """How many tuples of a side are in its window or wait to be joined."""

    def clear(self) -> None:
        """Drop everything and end the threads; no more pushes follow."""

    def oldest_id(self, side: str) -> int | None:
        """The smallest id of the held tuples; O(held)."""

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        """Take tuples of one side, in the total order, the order of the sources by their numbers, and what is
        known to come after them. `ranks` is always the same mapping, whose arrays are replaced when sources were added,
        before the next frontier."""

    def advance(self, frontier: Frontier) -> None:
        """Take an announcement of what can still come."""

    @property
    def idle(self) -> bool:
        """Whether `step` has nothing to do: no work waits, or threads have all of it and no results wait. Once both
        sides have ended: whether all work is done."""

    def step(self, most: float) -> Matches:
        """Do a part of the waiting work, or wait until threads have done some; at most `most` results, which is 1 or
        more."""

    @property
    def least_result_time(self) -> float:
        """Once idle: no result to come is earlier."""

    def least_unjoined_time(self, side: str) -> float:
        """Once idle: how far the tuples of a side that were pushed are joined. A match still to be found of two such
        tuples has at least one that is not before this time of its side. Infinity if all are found. For topologies
        whose matches leave unsorted."""


class MakeTopology(Protocol):
    """The class of a topology, as the engine sees it."""

    def __call__(self, task: Task, /) -> Topology: ...
