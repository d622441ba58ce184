"""CellJoin: Kang's procedure, with the scan of every batch cut anew into equal parts for all cores
(Gedik, Bordawekar & Yu 2009; Teubner & Mueller 2011, section 2.2). The baseline of the parallel topologies.

The windows belong to the driver, the thread that pushes and polls. It takes the tuples that have come, cuts the window
they probe into as many parts as there are workers, hands each worker its part, waits for all of them, and
stores the tuples. So the work is balanced whatever the windows hold, and the price is a cut, a message and a
wait for the slowest per batch: parts too small to be worth that are scanned by the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.index.stats import IndexStats
from streamjoin.index.times import Reach, reach_from
from streamjoin.index.tuples import Mark, ProbingTuples, Tuples
from streamjoin.index.window import ALONE, Part, Team, WindowIndex
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.matching import Collector, Found, Matcher
from streamjoin.topologies.protocol import Frontier, Matches, Task
from streamjoin.topologies.runtime.node import Bell, Channel, Executor, Outbox, rehearse_channels
from streamjoin.topologies.runtime.threads import Threads
from streamjoin.topologies.stamps import make_stamps

BATCH = 4_096  # tuples that are joined at a time
ROUND = 1 << 18  # pairs that a worker collects before it waits for the driver
RANK = np.zeros(1, np.int32)  # places order tuples, sources need not


class Scanner:
    """A node that finds the pairs of one part at a time."""

    def __init__(self, number: int, driver: Bell):
        self.name, self.bell, self._driver = f"celljoin {number}", Bell(), driver
        self.inlet: Channel[Part] = Channel(f"driver to {self.name}", 1, driver, self.bell)
        self.outlet: Channel[bool] = Channel(f"{self.name} to driver", 1, self.bell, driver)
        self.pairs = PairBuffer()  # the driver's while a message is in the outlet, else this node's
        self._stretches: Iterator[int] | None = None

    def __str__(self) -> str:
        return f"{self.pairs.count} pairs"

    def step(self, most: int) -> bool:
        if len(self.outlet):
            return False
        if self._stretches is None:
            part = self.inlet.take()
            if part is None:
                return False
            self._stretches = part(self.pairs)
        for _ in range(most):
            if next(self._stretches, None) is None:
                self._stretches = None
                return self.outlet.put(True)
            if self.pairs.count >= ROUND:
                return self.outlet.put(False)
            if self.bell.stopped:
                break
        return True

    def clear(self) -> None:
        self._stretches = None


class Cores:
    """A `Team` of nodes. The driver waits for them, and takes pairs in the order of the parts. Once `found` is stopped,
    it gets stretches without pairs instead of waiting, so that it can leave."""

    def __init__(self, workers: int, executor: Executor, found: Bell):
        self.workers, self._executor, self._bell, self._found = workers, executor, Bell(), found
        self.nodes = [Scanner(number, self._bell) for number in range(workers)]
        self.compared = [0] * workers
        self._started = False
        rehearse_channels()

    def share(self, parts: Sequence[Part], pairs: PairBuffer) -> Iterator[int]:
        if len(parts) == 1:
            yield from parts[0](pairs)
            return
        self._start()
        for node, part in zip(self.nodes, parts, strict=False):
            node.inlet.put(part)
        for number, node in enumerate(self.nodes[: len(parts)]):
            finished = False
            while not finished:
                while (result := self._result(node)) is None:
                    yield pairs.count
                finished, before = result, pairs.count
                self.compared[number] += node.pairs.compared
                pairs.extend(node.pairs)
                node.pairs.count = node.pairs.compared = 0
                node.outlet.take()
                yield before

    def _start(self) -> None:
        if not self._started:
            self._started = True
            channels = [channel for node in self.nodes for channel in (node.inlet, node.outlet)]
            self._executor.start(self.nodes, channels, self._bell)

    def _result(self, node: Scanner) -> bool | None:
        """Wait until the pairs of a node are the driver's; whether its part is finished. None if nobody wants to know
        any more."""
        while True:
            seen = self._bell.read()
            finished = node.outlet.first()
            if finished is not None or self._found.stopped:
                return finished
            self._executor.wait(seen)

    def clear(self) -> None:
        self._executor.stop()
        for node in self.nodes:
            node.clear()


class SharedWindow:
    """A `WindowIndex` whose probes are shared by a team."""

    def __init__(self, window: WindowIndex, team: Team):
        self._window, self._team = window, team

    @property
    def comparisons(self) -> int:
        return self._window.comparisons

    @comparisons.setter
    def comparisons(self, count: int) -> None:
        self._window.comparisons = count

    def __len__(self) -> int:
        return len(self._window)

    @property
    def ts(self) -> np.ndarray:
        return self._window.ts

    def mark(self, name: Mark) -> np.ndarray:
        return self._window.mark(name)

    def stored(self) -> Stored:
        return self._window.stored()

    def ids(self, positions: np.ndarray) -> np.ndarray:
        return self._window.ids(positions)

    def oldest_id(self) -> int:
        return self._window.oldest_id()

    @property
    def nbytes(self) -> int:
        return self._window.nbytes

    def insert(self, tuples: Tuples, rank: np.ndarray, team: Team = ALONE) -> None:
        self._window.insert(tuples, rank, team)

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, team: Team | None = None
    ) -> Iterator[int]:
        return self._window.probe(probes, reach, pairs, team or self._team)

    def tuples(self) -> Tuples:
        return self._window.tuples()

    def observe(self, probing: Probing) -> None:
        self._window.observe(probing)

    @property
    def links(self) -> Sequence[Any]:
        return self._window.links

    def stats(self) -> IndexStats:
        return self._window.stats()

    def expire(self, reach: Reach) -> None:
        self._window.expire(reach)

    def clear(self) -> None:
        self._window.clear()


class CellJoin:
    """The driver and its windows."""

    def __init__(self, task: Task, executor: Executor | None = None, batch: int = BATCH):
        self.settles = task.settles
        self._batch = batch
        self._stamps = make_stamps(task.spec, self.settles)
        self.found = Bell()
        self._cores = Cores(task.workers, executor or Threads(), self.found)
        self.windows = {side: SharedWindow(task.make_window(side), self._cores) for side in SIDES}
        self._outbox: Outbox[Found] = Outbox(ROUND, self.found)  # from this thread to itself
        self._match = Matcher(task.make_prober(), self._outbox).match
        self._collector = Collector(task.order)
        self._work: Iterator[None] | None = None
        self._at_work: tuple[str, ProbingTuples] | None = None

    @property
    def comparisons(self) -> tuple[int, ...]:
        """By worker; those of the driver count as the first one's."""
        shared = self._cores.compared
        total = sum(window.comparisons for window in self.windows.values())
        return total - sum(shared[1:]), *shared[1:]

    def held(self, side: str) -> int:
        return len(self.windows[side]) + sum(map(len, self._waiting(side)))

    def _waiting(self, side: str) -> list[ProbingTuples]:
        at_work = [] if self._at_work is None or self._at_work[0] != side else [self._at_work[1]]
        return at_work + self._stamps.held(side)

    def oldest_id(self, side: str) -> int | None:
        oldest = [int(tuples.id.min()) for tuples in self._waiting(side)]
        if len(self.windows[side]):
            oldest.append(self.windows[side].oldest_id())
        return min(oldest, default=None)

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        self._stamps.push(side, tuples, ranks, frontier)
        self.advance(frontier)

    def advance(self, frontier: Frontier) -> None:
        self._stamps.advance(frontier)
        if self._work is None:
            self._expire()

    @property
    def idle(self) -> bool:
        return self._work is None and not self._stamps.ready and not self._collector.ready

    @property
    def least_result_time(self) -> float:
        return self._stamps.low

    def step(self, most: float) -> Matches:
        if not self._collector.ready:
            if self._work is None:
                side, tuples, _ = self._stamps.take(self._batch)
                self._at_work, self._work = (side, tuples), self._join(side, tuples)
            next(self._work, None)
            while (found := self._outbox.take()) is not None:
                self._collector.add(found)
            if self._at_work is None:
                self._work = None
                self._collector.release(self._stamps.place)
        return self._collector.hand_out(most)

    def _join(self, side: str, tuples: ProbingTuples) -> Iterator[None]:
        """Probe, insert, expire; yields wherever pairs were found."""
        yield from self._match(self.windows[OTHER[side]], side, tuples)
        self.windows[side].insert(tuples, RANK)
        self._at_work = None
        self._expire()

    def _expire(self) -> None:
        for side in SIDES:
            self.windows[side].expire(reach_from(self._stamps.expired(side)))

    def clear(self) -> None:
        self._cores.clear()
        self._stamps.clear()
        self._collector.clear()
        self._work = self._at_work = None
        for window in self.windows.values():
            window.clear()
