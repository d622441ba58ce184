"""ScaleJoin: every worker sees every tuple in the same order, and the workers store tuples in turn, each tuple once
(Gulisano et al. 2015, section IV and Algorithm 1).

    sources -> gate in -> n workers: expire, probe, store every n-th tuple -> gate out -> results

The gate (`kernels/concurrent/gate.py`) merges the sources and gives each worker all ready tuples. So workers never
talk to each other, and the comparisons of a probe are spread evenly at any rates and keys. The worker that stores the
earlier tuple of a pair compares the pair, and no other worker does.

When a tuple is ready, and what its place is:

- *settled*, for row windows and sorted output: a tuple is ready when nothing that precedes it in the total order can
  come. All workers count the tuples they take. The count is the tuple's place, the same on all workers.
- *at once*, for time windows in any output order: the gate's key is the number of the arrival, a tuple is ready when
  it has arrived, and its place is its event time. What can still come is news, which takes its turn in the gate.

Workers whose windows are scanned are compiled where tuples join at once (`compiled_worker.py`): they run without the
interpreter lock, wake together, and wake the driver once all of them have finished what it waits for. The others run
Python (`worker.py`). Either takes all that is ready before it computes, so the more it is behind, the larger its pieces
are.

Sorted output: a worker adds its pairs to a second gate, keyed by the places of the later and the earlier tuple, and
marks its progress there; the driver reads the ready pairs. Otherwise pairs leave through outboxes.

Bounds: the driver holds input back while a worker is `waiting` ready tuples behind. A worker stops while its outbox
is full, or while it has no free nodes in the second gate. Each worker has its own nodes there, and those of the
slowest worker are all ready, so at least one worker can always continue. Tuples that are not ready yet are kept
without bound, as in any topology that settles tuples.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamjoin.index.tuples import ProbingTuples
from streamjoin.kernels.concurrent import atomics, gate
from streamjoin.kernels.concurrent.gate import Gate
from streamjoin.kernels.concurrent.scalejoin_worker import NEWS, WANTED_NOTE, WORKER_NOTES, note_wanted
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.matching import Collector, Found
from streamjoin.topologies.protocol import Frontier, Matches, Spread, Task
from streamjoin.topologies.runtime.node import Bell, Executor, rehearse_channels
from streamjoin.topologies.runtime.threads import Threads
from streamjoin.topologies.scalejoin.compiled_worker import CompiledWorker, least_progress
from streamjoin.topologies.scalejoin.worker import (
    ScaleJoinContext,
    ScaleJoinWorker,
    SharedRows,
    WorkerProgress,
)

SIDE_BITS = 32  # the second number of a key is the side, then the rank of the source


@dataclass(frozen=True)
class AddedPush:
    """What the driver remembers of a push while any of it is needed."""

    count: int
    least_id: int
    end: int  # the position after its last tuple
    last_key: int  # the greatest event time, or number of an arrival
    first_ts: int
    last_ts: int


class ScaleJoin:
    """The driver: adds tuples to the gate, reports what can still come, and collects the pairs that the workers
    find."""

    def __init__(
        self,
        task: Task,
        executor: Executor | None = None,
        capacity: int | None = None,
        waiting: int | None = None,
    ):
        self.settles, workers = task.settles, task.workers
        tuning = task.plan.tuning.scalejoin
        capacity = tuning.capacity if capacity is None else capacity
        self._waiting, self._bell = tuning.waiting if waiting is None else waiting, Bell()
        self.found = self._bell
        rehearse_channels()
        gate.rehearse_gate()
        # Where tuples settle, the driver reads too, to count the ready ones.
        self._gate = Gate(1, workers + self.settles, capacity)
        # One node more, because the last node read stays in its place.
        self._out = Gate(workers, 1, capacity + 1) if task.order == "timestamp" else None
        self._rows = {side: SharedRows() for side in SIDES}
        self._notes = np.zeros((WORKER_NOTES + workers) * atomics.LINE_PAIR, np.int64)
        self._notes[WANTED_NOTE * atomics.LINE_PAIR] = INT64_MAX
        self._compiled = task.plan.nodes.kind == "scanning"
        shared = ScaleJoinContext(workers, task.spec, self.settles, task.make_window, task.make_prober(),
                        self._gate, self._rows, self._out, self._bell, tuning, self._notes, Bell())  # fmt: skip
        self.workers: Sequence[Any]  # of one kind
        if self._compiled:
            self.workers = compiled = [CompiledWorker(number, shared, task.plan) for number in range(workers)]
            compiled[0].rehearse()
        else:
            self.workers = [ScaleJoinWorker(number, shared) for number in range(workers)]
        self._sizes = {side: task.spec.side_window(side).size for side in SIDES}
        self._executor, self._started = executor or Threads(), False
        self._collector = Collector("any")  # sorted pairs arrive sorted
        self._ranks = {side: np.zeros(0, np.int32) for side in SIDES}  # the ranks in the gate
        # The engine's ranks, which the engine keeps up to date
        self._given: Mapping[str, np.ndarray] = dict(self._ranks)
        self._frontier = Frontier((-math.inf, 0, 0), dict.fromkeys(SIDES, -math.inf))
        self._floors = dict.fromkeys(SIDES, INT64_MIN)  # of the last news
        self._added = self._ready = 0  # entries of the gate: tuples and news
        self._held = dict.fromkeys(SIDES, 0)
        self._arrivals: dict[str, deque[AddedPush]] = {
            side: deque() for side in SIDES
        }  # that may be in later pairs
        self._unread: dict[str, deque[AddedPush]] = {
            side: deque() for side in SIDES
        }  # that some worker has not finished
        # Of all workers; what has been collected is at least as recent as this.
        self._known = WorkerProgress()
        self._scrap = np.empty(1024, np.int64)
        self._pairs = np.empty((2, 65_536), np.int64)

    # Called by the engine

    @property
    def comparisons(self) -> tuple[int, ...]:
        return tuple(worker.comparisons for worker in self.workers)

    @property
    def windows(self) -> dict[str, Spread]:
        return {side: Spread([worker.windows[side] for worker in self.workers]) for side in SIDES}

    def held(self, side: str) -> int:
        return self._held[side]

    def oldest_id(self, side: str) -> int | None:
        return self._arrivals[side][0].least_id if self._arrivals[side] else None

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        self._start()
        self._given = ranks
        self._relabel()
        if len(tuples):
            self._add(side, tuples)
        self.advance(frontier)

    def advance(self, frontier: Frontier) -> None:
        self._start()
        self._relabel()  # before the frontier, whose rank is a current one
        self._frontier = frontier
        if self.settles:
            ts, side, rank = frontier.bound
            if math.isfinite(ts):
                self._gate.promise(0, int(ts), (side << SIDE_BITS) + rank)
            elif ts > 0:
                self._gate.close(0)
            while count := self._gate.next_ready(len(self.workers), self._scrap, self._scrap):
                self._ready += count
        else:
            self._add_news()
            self._gate.promise(0, self._added, INT64_MIN)
            self._ready = self._added
        self._ring()

    def _add_news(self) -> None:
        """Add the floors that have risen: no tuple that arrives later reaches below them."""
        for number, side in enumerate(SIDES):
            low, floor = self._frontier.low[OTHER[side]], INT64_MAX
            if low == -math.inf:
                continue
            if low != math.inf:
                floor = min(max(int(low) - self._sizes[side], INT64_MIN), INT64_MAX - 1)
            if floor > self._floors[side]:
                self._floors[side] = floor
                self._add_entries(*np.array([[self._added], [0], [floor], [NEWS + number]]))
                self._added += 1

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._executor.start(self.workers, [], self._bell)

    def _relabel(self) -> None:
        """Update the ranks in the gate to those of the sources' next tuples: a new source may come between others."""
        for number, side in enumerate(SIDES):
            old, new = self._ranks[side], self._given[side]
            if self.settles and len(new) > len(old):
                changes = np.zeros(len(old), np.int64)
                changes[old] = new[: len(old)] - old
                self._gate.relabel(number << SIDE_BITS, changes)
            self._ranks[side] = new

    def _add(self, side: str, tuples: ProbingTuples) -> None:
        count, number = len(tuples), SIDES.index(side)
        first = self._rows[side].append(tuples)
        positions = np.arange(first, first + count)
        keys, ties = np.arange(self._added, self._added + count), np.zeros(count, np.int64)
        if self.settles:
            keys, ties = (
                tuples.ts.copy(),
                (number << SIDE_BITS) + self._ranks[side].astype(np.int64)[tuples.source],
            )
        self._note_rows(number, side)
        self._add_entries(keys, ties, positions, np.full(count, number))
        self._added += count
        self._held[side] += count
        arrival = AddedPush(count, int(tuples.id.min()), first + count, int(keys[-1]), int(tuples.ts[0]),
                          int(tuples.ts[-1]))  # fmt: skip
        self._arrivals[side].append(arrival)
        self._unread[side].append(arrival)

    def _add_entries(self, keys: np.ndarray, ties: np.ndarray, values: np.ndarray, sides: np.ndarray) -> None:
        done, count = 0, len(keys)
        while (done := self._gate.add(0, keys, ties, values, sides, done)) < count:
            self._gate.grow(0, max(count - done, self._gate.size))

    def _note_rows(self, number: int, side: str) -> None:
        """Publish the version of a side's rows, before entries that need it."""
        atomics.write(self._notes, number * atomics.LINE_PAIR, self._rows[side].version)

    def _ring(self) -> None:
        for worker in self.workers[:1] if self._compiled else self.workers:  # compiled workers share a bell
            worker.bell.ring()

    @property
    def idle(self) -> bool:
        """Collects what there is. `_known` is the workers' progress before that."""
        progress = self._progress()
        self._collect()
        if self._collector.ready or self._executor.failed:
            return False
        self._known = progress
        if self._ready - progress.done > (0 if self._ended else self._waiting):
            return False
        self._forget()
        return True

    @property
    def _ended(self) -> bool:
        return min(self._frontier.low.values()) == math.inf

    def step(self, most: float) -> Matches:
        seen = self._bell.read()
        self._executor.check()
        if not self.idle and not self._collector.ready and not self._can_continue():
            self._executor.wait(seen)
            self._collect()
        return self._collector.hand_out(most)

    def _progress(self) -> WorkerProgress:
        """What all workers have reached."""
        if self._compiled:
            return least_progress(self._notes)
        workers = [worker.progress for worker in self.workers]
        floors = {side: min(each.floors[side] for each in workers) for side in SIDES}
        return WorkerProgress(min(p.done for p in workers), min(p.reached for p in workers), floors)

    def _can_continue(self) -> bool:
        """Whether compiled workers have finished meanwhile what the driver waits for. If not, the last one to do so
        rings; interpreted workers ring after every piece."""
        behind = 0 if self._ended else self._waiting
        return self._compiled and bool(note_wanted(self._notes, self._ready - behind))

    def _collect(self) -> None:
        """Collect the pairs that the workers have found, unless results wait to be handed out."""
        if self._collector.ready:
            return
        if self._out is None:
            for worker in self.workers:
                while (found := worker.outbox.take()) is not None:
                    self._collector.add(found)
        elif count := self._out.next_ready(0, self._pairs[0], self._pairs[1]):
            left, right = self._pairs[:, :count].copy()
            self._collector.add(Found({"left": left, "right": right}, {}))
            self._ring()

    def _forget(self) -> None:
        """Drop pushes that all workers have finished, and those that no later pair can contain."""
        reached = self._known.reached
        for side in SIDES:
            unread, arrivals = self._unread[side], self._arrivals[side]
            while unread and unread[0].last_key < reached:
                self._rows[side].release(unread.popleft().end)
            floor = self._known.floors[side]
            while arrivals and arrivals[0].last_key < reached and arrivals[0].last_ts < floor:
                self._held[side] -= arrivals.popleft().count

    @property
    def least_result_time(self) -> float:
        low = min(self._frontier.low.values())
        if self.settles:
            return min(low, self._joined_up_to)
        return min([low, *map(self._least_unread_time, SIDES)])

    def least_unjoined_time(self, side: str) -> float:
        least = self._least_unread_time(side)
        return max(least, self._joined_up_to) if self.settles else least

    @property
    def _joined_up_to(self) -> float:
        """Of tuples that settle: all workers have finished those with an earlier event time."""
        behind = self._known.done < self._ready
        return self._known.reached if behind else self._frontier.bound[0]

    def _least_unread_time(self, side: str) -> float:
        """The least event time of the arrivals of a side that some worker has not finished."""
        return min((arrival.first_ts for arrival in self._unread[side]), default=math.inf)

    def clear(self) -> None:
        self._executor.stop()
        self._collector.clear()
        for worker in self.workers:
            worker.clear()
        for side in SIDES:
            self._arrivals[side].clear()
            self._unread[side].clear()
            self._held[side] = 0
        self._ready = 0
