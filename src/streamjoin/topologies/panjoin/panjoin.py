"""PanJoin: a manager cuts both streams into subwindows and deals them to workers in turn; every worker probes its own
subwindows (Pan & Jacobsen, section III-A).

A batch takes five steps. The manager, the thread that pushes and polls, *collects* tuples. It *preprocesses* them:
stamps them, cuts them where a subwindow is full, and decides which old subwindows to drop. It *sends* one command to
every worker that has something to do. A worker *processes* its commands in turn: it drops expired subwindows, probes
those of the opposite side, and stores the tuples dealt to it. *Feedback* is a word in shared memory, the number of
the worker's last finished command, and the answers in its outbox. Answers are pairs, or, while many tuples match,
records from which the manager builds pairs (`records.py`). Workers never talk to each other.

Exactly once: all workers see the commands in one order, and each tuple is in one subwindow on one worker. So the
later of a pair's two commands finds the pair, on the worker that stores the earlier tuple, and no other command does.

The paper collects for a fixed time or count. Here a batch leaves as soon as all workers have room for a command, with
the tuples that have arrived by then. So batches grow up to `batch` under load, and a single tuple does not wait. A
worker may have `credit` commands, so that the manager prepares and sends the next one while the worker executes the
last.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamjoin.index.probing import Prober
from streamjoin.index.tuples import ProbingTuples
from streamjoin.index.window import ONE_SOURCE
from streamjoin.kernels.concurrent import atomics
from streamjoin.plan.subwindows import make_rule
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.topologies.matching import Collector, Matcher
from streamjoin.topologies.panjoin.records import Answer, Backlog, MirroredWindow, rehearse_records
from streamjoin.topologies.protocol import Frontier, MakeWindow, Matches, Spread, Task
from streamjoin.topologies.runtime.node import Bell, Channel, Executor, Outbox, rehearse_channels
from streamjoin.topologies.runtime.threads import Threads
from streamjoin.topologies.stamps import make_stamps


@dataclass(frozen=True)
class Assignment:
    """Rows of a command that go into a subwindow, and so to its worker."""

    worker: int
    subwindow: int
    rows: slice


@dataclass(frozen=True)
class Command:
    """Drop what is `expired`; then probe with a batch of `side`, if there is one, and store it."""

    number: int
    expired: Mapping[str, int]  # places of each side below this are no longer needed
    side: str = "left"
    tuples: ProbingTuples | None = field(default=None, repr=False)
    stores: tuple[Assignment, ...] = ()
    records: bool = False  # whether to answer with records

    def __str__(self) -> str:
        places = [] if self.tuples is None else self.tuples.ts.tolist()
        dealt = ", ".join(f"{s.rows.stop - s.rows.start} into subwindow {s.subwindow}" for s in self.stores)
        return f"{self.number}: {self.side} at places {places}, {dealt or 'nothing stored'}"


class PanJoinWorker:
    """A node that owns some subwindows of both sides. It holds those of a side in one window, because the window's
    index chains tuples by arrival itself, and searches few large structures instead of many small ones."""

    def __init__(
        self, number: int, make_window: MakeWindow, prober: Prober, manager: Bell, capacity: int, waiting: int
    ):
        self.name, self.number = f"worker {number}", number
        self.bell = Bell()
        self.outbox: Outbox[Any] = Outbox(waiting, self.bell, manager)  # items are `Found` or `Answer`
        self.inlet: Channel[Command] = Channel(f"manager to {self.name}", capacity, manager, self.bell)
        # This worker writes them; the manager reads their sizes.
        self.windows = {side: make_window(side) for side in SIDES}
        self.mirrored = {side: MirroredWindow(window) for side, window in self.windows.items()}
        self._prober = prober
        # Number of the last finished command; only the worker writes it
        self._done = np.zeros(atomics.LINE_PAIR, np.int64)
        self._manager = manager
        self._matcher = Matcher(prober, self.outbox)
        self._work: Iterator[None] | None = None

    def __str__(self) -> str:
        held = ", ".join(f"{len(self.windows[side])} {side}" for side in SIDES)
        return f"done {self.done}, holds {held}, {self.outbox.rows} pairs or records wait"

    @property
    def done(self) -> int:
        """The last finished command. Acquires: the results of all commands up to it are in the outbox."""
        return int(atomics.read(self._done, 0))

    @property
    def comparisons(self) -> int:
        return sum(window.comparisons for window in self.windows.values())

    def step(self, most: int) -> bool:
        busy = False
        for _ in range(most):
            if self.outbox.room <= 0 or self.bell.stopped:
                break
            if self._work is None:
                command = self.inlet.take()
                if command is None:
                    break
                self._work = self._execute(command)
            busy = True
            if next(self._work, self) is self:
                self._work = None
        return busy

    def _execute(self, command: Command) -> Iterator[None]:
        """Expire, probe, insert; yields wherever it has handed over results."""
        for side in SIDES:
            self.windows[side].expire(command.expired[side])
        if command.tuples is not None:
            yield from self._probe(command, command.side, command.tuples)
            self._store(command.side, command.tuples, command.stores)
        atomics.write(self._done, 0, command.number)  # releases: the manager sees all of the above
        self._manager.ring()

    def _probe(self, command: Command, side: str, tuples: ProbingTuples) -> Iterator[None]:
        mirrored, answer = self.mirrored[OTHER[side]], None
        if command.records and not self._prober.has_residual(OTHER[side]):
            answer = mirrored.answer(command.number, side, tuples)
        else:
            mirrored.forget()
        if answer is None:
            yield from self._matcher.match(self.windows[OTHER[side]], side, tuples)
        elif len(answer):
            self.outbox.put(len(answer), answer)
            yield

    def _store(self, side: str, tuples: ProbingTuples, stores: Sequence[Assignment]) -> None:
        for store in stores:
            if store.worker == self.number:
                self.windows[side].insert(tuples.kept(store.rows), ONE_SOURCE)

    def clear(self) -> None:
        """Drop all tuples. Call this when no thread steps the node any more."""
        self._work = None
        for window in self.windows.values():
            window.clear()
        for mirrored in self.mirrored.values():
            mirrored.forget()


@dataclass
class Dealt:
    """What the manager knows about a subwindow."""

    number: int
    worker: int
    capacity: int
    count: int = 0
    last_place: int = 0  # the greatest place
    least_id: int = 0


@dataclass(frozen=True)
class SentCommand:
    """A command that is not yet finished. `gone`: the subwindows that it drops, by side. `first_place` and
    `first_time` are those of its first probe, infinite without probes."""

    number: int
    probes: int
    first_place: float
    first_time: float
    gone: Mapping[str, Sequence[Dealt]]


class PanJoin:
    """The topology, from the manager's point of view."""

    def __init__(
        self,
        task: Task,
        executor: Executor | None = None,
        batch: int | None = None,
        credit: int | None = None,
        smallest: int | None = None,
        many: float | None = None,
    ):
        tuning = self._tuning = task.plan.tuning.panjoin
        many = tuning.many if many is None else many
        self.settles = task.settles
        self._stamps = make_stamps(task.spec, self.settles)
        self._batch, self._many = batch or tuning.batch, many
        self._smallest = smallest or tuning.smallest_subwindow
        self._bell, self._collector = Bell(), Collector(task.order)
        self._backlog = Backlog(task.order, tuning.stretch)
        self.found = self._bell
        prober = task.make_prober()
        rehearse_channels()
        for side, window in task.plan.windows.items():
            if window.kind != "scan":
                rehearse_records(
                    task.plan.programs[side],
                    make_rule(window, task.plan.programs[side], task.plan.tuning.choice),
                )
        self.nodes = [
            PanJoinWorker(
                number, task.make_window, prober, self._bell, credit or tuning.credit, tuning.waiting
            )
            for number in range(task.workers)
        ]
        self._executor, self._started = executor or Threads(), False
        self._numbers = {
            "command": 0,
            "subwindow": 0,
        }  # of the last one; subwindows are numbered over both sides
        self._dealt: dict[str, deque[Dealt]] = {side: deque() for side in SIDES}  # live subwindows
        self._sent: deque[SentCommand] = deque()
        self._owed: list[deque[int]] = [
            deque() for _ in self.nodes
        ]  # commands that a worker has not finished
        self._counts = dict.fromkeys(SIDES, 0)
        # Pairs and probes since the last decision how workers should answer.
        self._found = self._probed = 0
        self._records = many <= 0

    # Called by the engine

    @property
    def comparisons(self) -> tuple[int, ...]:
        return tuple(node.comparisons for node in self.nodes)

    @property
    def windows(self) -> dict[str, Spread]:
        return {side: Spread([node.mirrored[side] for node in self.nodes]) for side in SIDES}

    def held(self, side: str) -> int:
        return self._counts[side]

    def oldest_id(self, side: str) -> int | None:
        """The smallest id of a side that a result may still need. Pairs that wait to be sorted need no more: the
        command that drops a subwindow comes after the last one that reaches it, and once it is finished nothing
        earlier than those pairs can come. Records may wait longer."""
        ids = [int(tuples.id.min()) for tuples in self._stamps.held(side)]
        ids += [dealt.least_id for dealt in self._dealt[side]]
        ids += [dealt.least_id for sent in self._sent for dealt in sent.gone[side]]
        ids += self._backlog.least_ids(side)
        return min(ids, default=None)

    def push(
        self, side: str, tuples: ProbingTuples, ranks: Mapping[str, np.ndarray], frontier: Frontier
    ) -> None:
        self._counts[side] += len(tuples)
        self._stamps.push(side, tuples, ranks, frontier)

    def advance(self, frontier: Frontier) -> None:
        self._stamps.advance(frontier)

    @property
    def idle(self) -> bool:
        if (
            self._executor.failed
            or self._stamps.ready
            or self._collector.ready
            or self._backlog
            or any(map(self._is_due, SIDES))
        ):
            return False
        if any(node.outbox.rows for node in self.nodes):
            return False
        return not self._sent if self._stamps.ended else not self._news

    @property
    def _news(self) -> bool:
        """Whether the oldest command is finished and the manager has not yet noticed."""
        return bool(self._sent) and self._sent[0].number < self._first_owed()

    @property
    def least_result_time(self) -> float:
        """A later result is found by a tuple that is still to come, or in a command that is not finished."""
        return min([self._stamps.low, *(sent.first_time for sent in self._sent)])

    def least_unjoined_time(self, side: str) -> float:
        return min([self._stamps.least_waiting_time(side), *(sent.first_time for sent in self._sent)])

    def step(self, most: float) -> Matches:
        seen = self._bell.read()
        self._executor.check()
        self._send_ready()
        looks = not self._collector.ready and not self._backlog  # results found so far are handed out first
        if looks:
            first = self._first_owed()  # read before emptying the outboxes
            self._collect()
            self._settle(first)
        self._make_pairs()
        if looks and not self._collector.ready and not self.idle:
            self._executor.wait(seen)
        return self._collector.hand_out(most)

    def clear(self) -> None:
        self._executor.stop()
        self._stamps.clear()
        self._collector.clear()
        self._backlog.clear()
        self._sent.clear()
        for side in SIDES:
            self._dealt[side].clear()
            self._counts[side] = 0
        for owed, node in zip(self._owed, self.nodes, strict=True):
            owed.clear()
            node.clear()

    # The manager

    def _send_ready(self) -> None:
        """Send the collected tuples while every worker has room for a command."""
        if not self._started:
            channels: list[Channel[Any]] = [node.inlet for node in self.nodes]
            self._executor.start(self.nodes, channels, self._bell)
            self._started = True
        while all(node.inlet.has_room for node in self.nodes):
            # Before the next batch is taken, because it may be the last one that reaches these subwindows.
            expired = {side: self._stamps.expired(side) for side in SIDES}
            gone = {side: self._expired(side) for side in SIDES}
            if self._stamps.ready:
                side, tuples, time = self._stamps.take(self._batch)
                probed = {dealt.worker for dealt in self._dealt[OTHER[side]]}
                stores = tuple(self._deal(side, tuples))
                command = Command(self._next_command, expired, side, tuples, stores, self._records)
                self._send(command, probed, gone, time)
            elif any(gone.values()):
                self._send(Command(self._next_command, expired), set(), gone)
            else:
                return

    @property
    def _next_command(self) -> int:
        self._numbers["command"] += 1
        return self._numbers["command"]

    def _send(
        self, command: Command, probed: set[int], gone: Mapping[str, list[Dealt]], time: float = math.inf
    ) -> None:
        """Send a command to the workers that have something to probe, store or drop."""
        touched = {dealt.worker for each in gone.values() for dealt in each}
        for worker in sorted(probed | touched | {store.worker for store in command.stores}):
            self.nodes[worker].inlet.put(command)
            self._owed[worker].append(command.number)
        probes, first_place = 0, math.inf
        if command.tuples is not None:
            probes, first_place = len(command.tuples), int(command.tuples.ts[0])
        self._sent.append(SentCommand(command.number, probes, first_place, time, gone))

    def _deal(self, side: str, tuples: ProbingTuples) -> Iterator[Assignment]:
        """Cut a batch where subwindows are full. Workers take turns with new subwindows."""
        done = 0
        while done < len(tuples):
            dealt = self._open_subwindow(side)
            rows = slice(done, min(len(tuples), done + dealt.capacity - dealt.count))
            least, last = int(tuples.id[rows].min()), int(tuples.ts[rows].max())
            dealt.least_id = min(dealt.least_id, least) if dealt.count else least
            dealt.last_place = max(dealt.last_place, last) if dealt.count else last
            dealt.count += rows.stop - rows.start
            done = rows.stop
            yield Assignment(dealt.worker, dealt.number, rows)

    def _open_subwindow(self, side: str) -> Dealt:
        dealt = self._dealt[side]
        if not dealt or dealt[-1].count >= dealt[-1].capacity:
            self._numbers["subwindow"] += 1
            number = self._numbers["subwindow"]
            share = sum(each.count for each in dealt) // (self._tuning.share * len(self.nodes))
            capacity = min(max(self._smallest, 1 << share.bit_length()), self._tuning.largest_subwindow)
            dealt.append(Dealt(number, number % len(self.nodes), capacity))
        return dealt[-1]

    def _is_due(self, side: str) -> bool:
        """Whether no later tuple can reach the oldest subwindow."""
        dealt = self._dealt[side]
        return bool(dealt) and dealt[0].last_place < self._stamps.expired(side)

    def _expired(self, side: str) -> list[Dealt]:
        """Remove the oldest subwindows that no later tuple can reach, and return them."""
        gone = []
        while self._is_due(side):
            gone.append(self._dealt[side].popleft())
        return gone

    # Feedback

    def _first_owed(self) -> int:
        """The number of the first command that some worker has not finished."""
        for owed, node in zip(self._owed, self.nodes, strict=True):
            done = node.done
            while owed and owed[0] <= done:
                owed.popleft()
        return min((owed[0] for owed in self._owed if owed), default=self._numbers["command"] + 1)

    def _collect(self) -> None:
        for node in self.nodes:
            while (found := node.outbox.take()) is not None:
                if isinstance(found, Answer):
                    self._backlog.add(found)
                    self._found += found.covered
                else:
                    self._collector.add(found)
                    self._found += len(found.ids["left"])

    def _settle(self, first: int) -> None:
        """All answers to the commands before `first` have been collected."""
        while self._sent and self._sent[0].number < first:
            sent = self._sent.popleft()
            self._probed += sent.probes
            for side, gone in sent.gone.items():
                self._counts[side] -= sum(dealt.count for dealt in gone)
        if self._probed:
            # Workers rebuild their mirrors when records are wanted again. So the limits differ: matches near one
            # limit do not cause that.
            enough = self._many / 2 if self._records else self._many
            self._records = self._found >= enough * self._probed
            self._found = self._probed = 0
        self._backlog.settle(first)
        self._release()

    def _make_pairs(self) -> None:
        """Build pairs from records until there are results to hand out. Releasing results costs time in proportion to
        all that wait, so release only after their number has doubled."""
        enough = 2 * self._collector.waiting
        while self._backlog and not self._collector.ready:
            for found in self._backlog.pairs():
                self._collector.add(found)
            if not self._backlog or self._collector.waiting >= enough:
                self._release()
                enough = 2 * self._collector.waiting

    def _release(self) -> None:
        """Release results that no later result can precede."""
        ahead = [self._stamps.place, self._backlog.place, *(sent.first_place for sent in self._sent)]
        self._collector.release(min(ahead))
