"""Threads that share the probes of a batch: the caller takes the first part, a thread each of the others
(Pan & Jacobsen, section III-G3).

Pairs are handed on part after part, so what comes out, and in which order, depends on how the work was cut, never on
who was faster. Threads start with the first work that is worth them, wait without the GIL, and end with their team.
They are not pinned: the caller is not either, and would often be on the core that a pinned thread wakes up for.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from streamjoin.kernels.pairs import PairBuffer
from streamjoin.topologies.runtime.node import Bell
from streamjoin.topologies.runtime.threads import WorkerThread
from streamjoin.topologies.runtime.waiting import Wait

Part = Callable[[PairBuffer], Iterator[int]]

ROUND = 262_144  # pairs that a thread collects before it waits for them to be handed on
PATIENCE = 0.05  # seconds that the caller waits for another thread before it looks whether it should stop


class Team:
    """The caller's thread and `workers` - 1 more. One caller at a time. Once its bell is stopped, a caller that would
    wait for another thread gets stretches without pairs, so that it can leave."""

    def __init__(self, workers: int, caller: Bell | None = None):
        self.workers = workers
        self.compared = [0] * (workers - 1)  # by the other threads
        self._caller = caller or Bell()
        # By the caller, or by a thread that failed: nobody needs the other parts.
        self._given_up = threading.Event()
        self._helpers: list[_Helper] = []
        self._finalizer = weakref.finalize(self, _end, self._helpers)

    def share(self, parts: Sequence[Part], pairs: PairBuffer) -> Iterator[int]:
        """Append the pairs of all parts, of which there are at most `workers`; the contract of what is yielded is that
        of `index.window.WindowIndex.probe`. What a part raises is raised here, after the others have stopped."""
        if len(parts) > 1 and not self._helpers:
            self._start()
        busy = self._helpers[: len(parts) - 1]
        self._given_up.clear()
        for helper, part in zip(busy, parts[1:], strict=True):
            helper.begin(part)
        try:
            for before in parts[0](pairs):
                yield before
                if self._given_up.is_set():
                    break
            for number, helper in enumerate(busy):
                yield from self._rounds(number, helper, pairs)
        finally:
            self._given_up.set()
            for helper in busy:
                helper.drop()

    def _start(self) -> None:
        for number in range(1, self.workers):
            helper = _Helper(number, self._given_up)
            self._helpers.append(helper)  # first: an interrupt while it starts leaves it to be ended
            helper.thread.start()

    def _rounds(self, number: int, helper: _Helper, pairs: PairBuffer) -> Iterator[int]:
        """Append what a thread finds, round after round; nothing once another one has failed, which raises it."""
        while True:
            wait = helper.new_wait()
            while (finished := helper.result(PATIENCE)) is None:
                wait.patience()
                if self._caller.stopped:
                    yield pairs.count
            if self._given_up.is_set():
                return
            before, compared = pairs.count, pairs.compared
            pairs.extend(helper.pairs)
            self.compared[number] += pairs.compared - compared
            if not finished:
                helper.go_on()
            yield before
            if finished:
                return

    def close(self) -> None:
        """End the threads, after the stretch that they are at. Closing twice is harmless; work that comes later starts
        new ones."""
        self._given_up.set()
        _end(self._helpers)


class _Outcome(NamedTuple):
    finished: bool
    error: BaseException | None = None


class _Helper:
    """A thread and its buffer. The caller writes `pairs` and reads it only between `result` and `go_on`."""

    def __init__(self, number: int, given_up: threading.Event):
        self.pairs = PairBuffer()
        self._orders: SimpleQueue[Part | bool] = SimpleQueue()
        self._outcomes: SimpleQueue[_Outcome] = SimpleQueue()
        self._at_work = False
        self.thread = WorkerThread(
            f"streamjoin-probe-{number}", _work, self._orders, self._outcomes, self.pairs, given_up
        )

    def begin(self, part: Part) -> None:
        self._at_work = True
        self._orders.put(part)

    def go_on(self) -> None:
        """Take the next round, after `result` has said that the part is not finished and its pairs were copied."""
        self._at_work = True
        self._orders.put(True)

    def result(self, patience: float) -> bool | None:
        """Wait for a round to end, not much longer than `patience` seconds; whether the part is finished, None if the
        round is not."""
        try:
            outcome = self._outcomes.get(timeout=patience)
        except Empty:
            return None
        self._at_work = False
        if outcome.error is not None:
            raise outcome.error
        return outcome.finished

    def drop(self) -> None:
        """Wait until the thread has given up what is left of its part: it does after the stretch that it is at."""
        wait = self.new_wait()
        while self._at_work:
            with suppress(Empty):
                self._outcomes.get(timeout=wait.patience())
                self._at_work = False

    def new_wait(self) -> Wait:
        return Wait(lambda: ("a join", f"its worker thread {self.thread.name} is still comparing tuples"))

    def end(self) -> None:
        self._orders.put(False)
        self.thread.await_end()


def _end(helpers: list[_Helper]) -> None:
    while helpers:
        helpers.pop().end()


def _work(
    orders: SimpleQueue[Part | bool],
    outcomes: SimpleQueue[_Outcome],
    pairs: PairBuffer,
    given_up: threading.Event,
) -> None:
    """What a thread does: a round of a new part, or of the last one, for each order; False ends it."""
    stretches: Iterator[int] = iter(())
    while order := orders.get():
        try:
            pairs.count = pairs.compared = 0
            if not isinstance(order, bool):
                stretches = order(pairs)
            finished = all(pairs.count < ROUND and not given_up.is_set() for _ in stretches)
            outcomes.put(_Outcome(finished))
        except BaseException as error:
            error.add_note(f"raised in {threading.current_thread().name}")
            given_up.set()
            outcomes.put(_Outcome(True, error))
