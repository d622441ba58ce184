"""Threads that share the probes of a batch: the caller takes the first part, and one thread takes each other part
(Pan & Jacobsen, section III-G3).

Pairs are handed over part after part, so the results and their order depend on how the work was split, never on which
thread was faster. Threads start with the first work that is large enough, wait without the GIL, and end with their
team. They are not pinned: the caller is not pinned either, and would often run on the core where a pinned thread
wakes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from streamjoin.index.window import ProbePart
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.tuning import DEFAULT_TUNING, TeamTuning
from streamjoin.topologies.runtime.node import PATIENCE, Bell
from streamjoin.topologies.runtime.threads import WorkerThread
from streamjoin.topologies.runtime.waiting import Wait


class ThreadTeam:
    """The caller's thread and `workers` - 1 more; one caller at a time. After the caller's bell is stopped, a caller
    that would wait for another thread gets stretches without pairs instead, so that it can leave."""

    def __init__(self, workers: int, caller: Bell | None = None, tuning: TeamTuning = DEFAULT_TUNING.team):
        self.workers, self._round = workers, tuning.round
        self.compared = [0] * (workers - 1)  # by the other threads
        self._caller = caller or Bell()
        # Set by the caller, or by a thread that failed: the other parts are not needed.
        self._given_up = threading.Event()
        self._helpers: list[_Helper] = []
        self._finalizer = weakref.finalize(self, _end, self._helpers)

    def share(self, parts: Sequence[ProbePart], pairs: PairBuffer) -> Iterator[int]:
        """Append the pairs of all parts, at most `workers` parts. Yields as `index.window.WindowIndex.probe` does. An
        error in a part is raised here, after the other parts have stopped."""
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
            helper = _Helper(number, self._given_up, self._round)
            # Append first: `close` must end the thread even if an interrupt comes while it starts.
            self._helpers.append(helper)
            helper.thread.start()

    def _rounds(self, number: int, helper: _Helper, pairs: PairBuffer) -> Iterator[int]:
        """Append the pairs that a thread finds, round after round. Raises the thread's error, and stops once another
        thread has failed."""
        while True:
            wait = helper.new_wait()
            while (finished := helper.result(PATIENCE / 1e6)) is None:
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
        """End the threads after their current stretch. Closing twice is harmless; later work starts new threads."""
        self._given_up.set()
        _end(self._helpers)


class _Outcome(NamedTuple):
    finished: bool
    error: BaseException | None = None


class _Helper:
    """A thread and its buffer. The caller writes `pairs`, and reads it only between `result` and `go_on`."""

    def __init__(self, number: int, given_up: threading.Event, most: int):
        self.pairs = PairBuffer()
        self._orders: SimpleQueue[ProbePart | bool] = SimpleQueue()
        self._outcomes: SimpleQueue[_Outcome] = SimpleQueue()
        self._at_work = False
        self.thread = WorkerThread(
            f"streamjoin-probe-{number}", _work, self._orders, self._outcomes, self.pairs, given_up, most
        )

    def begin(self, part: ProbePart) -> None:
        self._at_work = True
        self._orders.put(part)

    def go_on(self) -> None:
        """Start the next round. Call this after `result` has reported an unfinished part, and after copying its
        pairs."""
        self._at_work = True
        self._orders.put(True)

    def result(self, patience: float) -> bool | None:
        """Wait for a round to end, for little more than `patience` seconds. Return whether the part is finished, or
        None if the round has not ended."""
        try:
            outcome = self._outcomes.get(timeout=patience)
        except Empty:
            return None
        self._at_work = False
        if outcome.error is not None:
            raise outcome.error
        return outcome.finished

    def drop(self) -> None:
        """Wait until the thread has given up the rest of its part, which it does after its current stretch."""
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
    orders: SimpleQueue[ProbePart | bool],
    outcomes: SimpleQueue[_Outcome],
    pairs: PairBuffer,
    given_up: threading.Event,
    most: int,
) -> None:
    """The loop of a thread. Each order runs a round, of a new part or of the last one, until it has `most` pairs. The
    order False ends the loop."""
    stretches: Iterator[int] = iter(())
    while order := orders.get():
        try:
            pairs.count = pairs.compared = 0
            if not isinstance(order, bool):
                stretches = order(pairs)
            finished = all(pairs.count < most and not given_up.is_set() for _ in stretches)
            outcomes.put(_Outcome(finished))
        except BaseException as error:
            error.add_note(f"raised in {threading.current_thread().name}")
            given_up.set()
            outcomes.put(_Outcome(True, error))
