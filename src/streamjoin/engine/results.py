"""The result buffer: bounded, shared by the thread that works and those that poll; and the rows that leave it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property

import numpy as np
import pyarrow as pa

from streamjoin.engine.rows import PayloadStore, Rows, Shared, fields_of, restored
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.topologies.protocol import Matches
from streamjoin.topologies.runtime.waiting import Wait

LOOK_AGAIN = 0.5  # seconds after which a push that waits for room asks anew whether that is of use


class ResultBuffer:
    """Id pairs that wait for `poll`, and the payload they need.

    One lock guards both: a drained pair takes a view of the payload along in the same moment, so
    payload can be released as soon as neither a window nor a waiting pair needs it.
    """

    def __init__(self, most: int, shared: Mapping[str, Shared] | None = None):
        """`shared`: by side, what a window reads, too."""
        self.most = most
        self.rows = self.total = 0
        self.payload = {side: PayloadStore((shared or {}).get(side)) for side in SIDES}
        self.punctuation: float = -math.inf  # no result to come has a result time below this
        self._told: float = -math.inf
        self._unbounded = False
        self._drains = 0  # that have not ended
        self._waiting: list[Matches] = []
        self._least = dict.fromkeys(SIDES, math.inf)  # smallest ids among the waiting pairs
        # Held by `with` as it is, not through the condition, an interrupt can not leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def lock(self) -> AbstractContextManager[bool]:
        """Hold this to change or view the payload."""
        return self._lock

    @property
    def news(self) -> bool:
        """Whether more can be promised than was told."""
        return self._told < self.punctuation < math.inf

    @property
    def room(self) -> float:
        return math.inf if self._unbounded else self.most - self.rows

    def add(self, matches: Matches) -> None:
        with self._lock:
            self._waiting.append(matches)
            self.rows += len(matches)
            self.total += len(matches)
            for side, ids in matches.by_side().items():
                self._least[side] = min(self._least[side], int(np.minimum.reduce(ids)))

    @property
    def fill(self) -> str:
        """How full it is, for messages."""
        return f"{self.rows:,} result rows wait for poll() and max_results is {self.most:,}"

    def wait_for_room(self, deadline: float, why_hopeless: Callable[[float], str | None]) -> str | None:
        """Wait until results were taken. What stopped the wait, if there is no room: the deadline (of
        `time.perf_counter`), or what `why_hopeless` says of the seconds waited so far."""
        wait = Wait(lambda: ("push", self.fill))
        with self._lock:
            while self.room <= 0:
                rest = deadline - time.perf_counter()
                reason = "the timeout is over" if rest <= 0 else why_hopeless(wait.seconds)
                if reason is not None:
                    return reason
                self._changed.wait(min(rest, wait.patience(), LOOK_AGAIN))
        return None

    def lift_bound(self) -> None:
        """Let everything in from now on, and whoever waits go on."""
        with self._lock:
            self._unbounded = True
            self._changed.notify_all()

    @contextmanager
    def drained(self) -> Iterator[tuple[dict[str, np.ndarray], Mapping[str, Rows], float | None]]:
        """Take all waiting pairs: ids by side, the payload to build rows from, which stays until the block is left, and
        the punctuation that holds after them if it is news. If the block ends in an error (an interrupt, no memory),
        all of it waits again."""
        with self._lock:
            waiting, self._waiting, self.rows = self._waiting, [], 0
            told, news = self._told, self.punctuation if self.news else None
            self._told = self.punctuation
            self._drains += 1
            views = {side: store.begin_reading() for side, store in self.payload.items()}
            self._changed.notify_all()
        try:
            yield _ids(waiting), views, news
        except BaseException:
            with self._lock:
                self._waiting[:0], self._told = waiting, told
                self.rows += sum(map(len, waiting))
            raise
        finally:
            self._end_drain()

    def _end_drain(self) -> None:
        with self._lock:
            self._drains -= 1
            for store in self.payload.values():
                store.end_reading()
            if not self._drains:
                self._least = {
                    side: min((int(m.by_side()[side].min()) for m in self._waiting), default=math.inf)
                    for side in SIDES
                }

    def forget(self) -> None:
        """Let go of the waiting pairs."""
        with self._lock:
            self._waiting, self.rows = [], 0
            if not self._drains:
                self._least = dict.fromkeys(SIDES, math.inf)
            self._changed.notify_all()

    def release(self, side: str, before: int) -> int:
        """Let go of payload rows that come before `before` and before any waiting pair; the oldest row still held."""
        with self._lock:
            store = self.payload[side]
            store.release(int(min(before, self._least[side])))
            return store.first_id


def _ids(waiting: Sequence[Matches]) -> dict[str, np.ndarray]:
    """The ids of all pairs by side, in the order they were found."""
    parts = [matches.by_side() for matches in waiting] or [dict.fromkeys(SIDES, np.empty(0, np.int64))]
    if len(parts) == 1:
        return dict(parts[0])
    return {side: np.concatenate([part[side] for part in parts]) for side in SIDES}


class ResultRows:
    """Builds result rows: left's columns, then right's, in the types of the spec."""

    def __init__(self, spec: JoinSpec, schemas: Mapping[str, pa.Schema]):
        """`schemas`: by side, in which rows are held."""
        self._schema = spec.schema
        self._fields = {side: fields_of(schemas[side]) for side in SIDES}
        held = [field.type for side in SIDES for field in self._fields[side]]
        # Columns that are held in another type: their numbers and types.
        self._restored = [(n, field.type) for n, field in enumerate(spec.schema) if field.type != held[n]]

    @cached_property
    def none(self) -> pa.RecordBatch:
        """A batch that a promise can travel with, when nothing was found before it."""
        return self._batch(
            dict.fromkeys(SIDES, np.empty(0, np.int64)), {side: PayloadStore().view() for side in SIDES}
        )

    def batches(
        self, ids: Mapping[str, np.ndarray], views: Mapping[str, Rows], most: int
    ) -> list[pa.RecordBatch]:
        """The rows of pairs of ids, in their order, `most` in a batch at most."""
        batches: list[pa.RecordBatch] = []
        at, size, count = 0, most, len(ids["left"])
        while at < count:
            try:
                batches.append(self._batch({side: ids[side][at : at + size] for side in SIDES}, views))
            except pa.ArrowInvalid:  # more than a column of Arrow can hold: strings of 2 GiB, say
                if size == 1:
                    raise
                size = max(1, size // 4)
                continue
            at += size
        return batches

    def _batch(self, ids: Mapping[str, np.ndarray], views: Mapping[str, Rows]) -> pa.RecordBatch:
        columns = [column for side in SIDES for column in views[side].columns(ids[side], self._fields[side])]
        for number, kind in self._restored:
            columns[number] = restored(columns[number], kind)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
