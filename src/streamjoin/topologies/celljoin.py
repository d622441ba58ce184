"""CellJoin: Kang's procedure, which splits the scan of every batch into equal parts for all cores (Gedik, Bordawekar
& Yu 2009; Teubner & Mueller 2011, section 2.2). It is the baseline of the parallel topologies.

The driver, the thread that pushes and polls, owns the windows. It takes the tuples that have arrived, splits the
window they probe into one part per worker, waits for all workers, and then stores the tuples. This balances the work
whatever the windows hold. Each batch costs one split, one message per worker, and a wait for the slowest worker. The
driver scans small windows itself, where that cost is not worth paying.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.index.stats import IndexStats
from streamjoin.index.times import Reach
from streamjoin.index.tuples import Mark, ProbingTuples, Tuples
from streamjoin.index.window import ALONE, ONE_SOURCE, ProbePart, Team, WindowIndex
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.matching import Collector, Found, Matcher
from streamjoin.topologies.protocol import Frontier, Matches, Task
from streamjoin.topologies.runtime.node import Bell, Channel, Executor, Outbox, rehearse_channels
from streamjoin.topologies.runtime.threads import Threads
from streamjoin.topologies.stamps import make_stamps


class Scanner:
    """A node that finds the pairs of one part at a time."""

    def __init__(self, number: int, driver: Bell, round_pairs: int):
        self.name, self.bell, self._round = f"celljoin {number}", Bell(), round_pairs
        self.inlet: Channel[ProbePart] = Channel(f"driver to {self.name}", 1, driver, self.bell)
        self.outlet: Channel[bool] = Channel(f"{self.name} to driver", 1, self.bell, driver)
        self.pairs = (
            PairBuffer()
        )  # The driver owns it while a message is in the outlet, otherwise this node does.
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
            if self.pairs.count >= self._round:
                return self.outlet.put(False)
            if self.bell.stopped:
                break
        return True

    def clear(self) -> None:
        self._stretches = None


class Cores:
    """A `Team` of nodes. The driver waits for them and takes their pairs in the order of the parts. After `found` is
    stopped, the driver gets stretches without pairs instead of waiting, so that it can leave."""

    def __init__(self, workers: int, executor: Executor, found: Bell, round_pairs: int):
        self.workers, self._executor, self._bell, self._found = workers, executor, Bell(), found
        self.nodes = [Scanner(number, self._bell, round_pairs) for number in range(workers)]
        self.compared = [0] * workers
        self._started = False
        rehearse_channels()

    def share(self, parts: Sequence[ProbePart], pairs: PairBuffer) -> Iterator[int]:
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
        """Wait until the driver owns the pairs of a node. Return whether the node's part is finished, or None after
        `found` was stopped."""
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
    """A `WindowIndex` whose probes a team shares."""

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

    def expire(self, before: int) -> None:
        self._window.expire(before)

    def expire_first(self, count: int) -> None:
        self._window.expire_first(count)

    def clear(self) -> None:
        self._window.clear()


class CellJoin:
    """The driver and its windows."""

    def __init__(self, task: Task, executor: Executor | None = None, batch: int | None = None):
        self.settles = task.settles
        tuning = task.plan.tuning.celljoin
        self._batch = batch or tuning.batch
        self._stamps = make_stamps(task.spec, self.settles)
        self.found = Bell()
        self._cores = Cores(task.workers, executor or Threads(), self.found, tuning.round)
        self.windows = {side: SharedWindow(task.make_window(side), self._cores) for side in SIDES}
        self._outbox: Outbox[Found] = Outbox(tuning.round, self.found)  # this thread writes and reads it
        self._match = Matcher(task.make_prober(), self._outbox).match
        self._collector = Collector(task.order)
        self._work: Iterator[None] | None = None
        self._at_work: tuple[str, ProbingTuples] | None = None

    @property
    def comparisons(self) -> tuple[int, ...]:
        """Comparisons of each worker; those of the driver count for the first one."""
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

    def least_unjoined_time(self, side: str) -> float:
        return self._stamps.least_waiting_time(side)

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
        """Probe, insert, expire; yields wherever it has handed over pairs."""
        yield from self._match(self.windows[OTHER[side]], side, tuples)
        self.windows[side].insert(tuples, ONE_SOURCE)
        self._at_work = None
        self._expire()

    def _expire(self) -> None:
        for side in SIDES:
            self.windows[side].expire(self._stamps.expired(side))

    def clear(self) -> None:
        self._cores.clear()
        self._stamps.clear()
        self._collector.clear()
        self._work = self._at_work = None
        for window in self.windows.values():
            window.clear()
