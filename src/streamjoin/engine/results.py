"""The result buffer, a bounded queue of pairs that wait for `poll`, and the code that builds rows from them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from streamjoin.engine.result_pages import make_pages
from streamjoin.engine.rows import Field, HeldRows, PayloadStore, PushedRows, fields_of, restored
from streamjoin.kernels.stamping import least
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.topologies.protocol import Matches
from streamjoin.topologies.runtime.waiting import Wait

NO_ID = np.iinfo(np.int64).max  # greater than every row number
LOOK_AGAIN = 0.5  # seconds between checks whether a wait for room can still end
IdsBySide = Mapping[str, np.ndarray]
# Builds batches from ids by side, the rows they refer to, and a punctuation if it is new.
BuildBatches = Callable[[IdsBySide, Mapping[str, HeldRows], float | None], list[pa.RecordBatch]]


class ResultBuffer:
    """Id pairs that wait for `poll`. The thread that drives the join adds them, and threads that poll take them."""

    def __init__(self, most: int, pushed: PushedRows):
        """`pushed`: the rows that the pairs refer to. Their lock guards the buffer too."""
        self.most = most
        self.bound: float = most  # `most`, or infinity once it is lifted
        self.rows = self.total = 0
        self.punctuation: float = -math.inf  # no result to come has a result time below this
        self._told: float = -math.inf
        self._drains = 0  # calls of `drain` in progress
        self._blocked = 0  # pushes that wait for room
        self._waiting: list[Matches] = []
        self._least = dict.fromkeys(SIDES, math.inf)  # smallest ids among the waiting pairs
        # Use `with self._lock`, not the condition: then an interrupt cannot leave the lock taken.
        self._pushed, self._lock = pushed, pushed.lock
        self._changed = threading.Condition(self._lock)

    @property
    def news(self) -> bool:
        """Whether there is a punctuation that no batch has carried yet."""
        return self._told < self.punctuation < math.inf

    @property
    def room(self) -> float:
        return self.bound - self.rows

    def add(self, matches: Matches) -> None:
        with self._lock:
            self._waiting.append(matches)
            self.rows += len(matches.left)
            self.total += len(matches.left)
            self._note_least(matches)

    def _note_least(self, matches: Matches) -> None:
        known = self._least
        for side, ids in (("left", matches.left), ("right", matches.right)):
            if (found := least_id(ids)) < known[side]:
                known[side] = found

    @property
    def fill(self) -> str:
        """How full the buffer is, for messages."""
        return f"{self.rows:,} result rows wait for poll() and max_results is {self.most:,}"

    def wait_for_room(self, deadline: float, why_hopeless: Callable[[float], str | None]) -> str | None:
        """Wait until results were taken. Return None if there is room then, else why the wait ended: the deadline (of
        `time.perf_counter`) has passed, or the reason that `why_hopeless` gives for the seconds waited so far."""
        wait = Wait(lambda: ("push", self.fill))
        with self._lock:
            self._blocked += 1
            try:
                while self.room <= 0:
                    rest = deadline - time.perf_counter()
                    reason = "the timeout is over" if rest <= 0 else why_hopeless(wait.seconds)
                    if reason is not None:
                        return reason
                    self._changed.wait(min(rest, wait.patience(), LOOK_AGAIN))
            finally:
                self._blocked -= 1
        return None

    def lift_bound(self) -> None:
        """Accept any number of pairs from now on, and wake blocked pushes."""
        with self._lock:
            self.bound = math.inf
            self._changed.notify_all()

    def drain(self, build: BuildBatches) -> list[pa.RecordBatch]:
        """Take all waiting pairs and return the batches that `build` makes of them. Their rows are held until then. If
        `build` fails (an interrupt, no memory), all pairs wait again, and so does the punctuation."""
        taken: list[Matches] | None = None
        told, views = self._told, dict[str, HeldRows]()
        try:
            with self._lock:
                told, news = self._told, self.punctuation if self.news else None
                self._drains += 1
                taken, self._waiting, self.rows = self._waiting, [], 0
                self._told = self.punctuation
                for side, store in self._pushed.stores.items():
                    views[side] = store.begin_reading()
                if self._blocked:
                    self._changed.notify_all()
            return build(_ids(taken), views, news)
        except BaseException:
            if taken is not None:
                with self._lock:
                    self._waiting[:0], self._told = taken, told
                    self.rows += sum(map(len, taken))
            raise
        finally:
            if taken is not None:
                self._end_drain(views)

    def _end_drain(self, views: Mapping[str, HeldRows]) -> None:
        with self._lock:
            self._drains -= 1
            for side in views:
                self._pushed.stores[side].end_reading()
            if not self._drains:
                self._least = dict.fromkeys(SIDES, math.inf)
                for matches in self._waiting:
                    self._note_least(matches)

    def forget(self) -> None:
        """Drop the waiting pairs."""
        with self._lock:
            self._waiting, self.rows = [], 0
            if not self._drains:
                self._least = dict.fromkeys(SIDES, math.inf)
            self._changed.notify_all()

    def release_rows(self, side: str, before: int) -> int:
        """Release pushed rows before `before` and before any waiting pair. Return the oldest row still held."""
        with self._lock:
            store = self._pushed.stores[side]
            store.release(int(min(before, self._least[side])))
            return store.first_id


def least_id(ids: np.ndarray) -> float:
    """The least row number; infinity if there is none. Numbers below zero stand for no row."""
    found = int(least(ids))
    if found < 0:
        found = int(np.minimum.reduce(ids, initial=NO_ID, where=ids >= 0))
    return math.inf if found == NO_ID else found


def _ids(waiting: Sequence[Matches]) -> IdsBySide:
    """The ids of all pairs by side, in the order they were found."""
    if len(waiting) == 1:
        return waiting[0].by_side()
    parts = [matches.by_side() for matches in waiting] or [dict.fromkeys(SIDES, np.empty(0, np.int64))]
    return {side: np.concatenate([part[side] for part in parts]) for side in SIDES}


class ResultRows:
    """Builds result rows: the chosen columns, in the types of the spec."""

    def __init__(self, spec: JoinSpec, schemas: Mapping[str, pa.Schema]):
        """`schemas`: by side, in which rows are held."""
        self._schema = spec.schema
        self._columns = (
            HeldRows.columns if spec.how == "inner" else _columns
        )  # every pair of an inner join has both
        names = {side: {f.name for of, f, _ in spec.chosen if of == side} for side in SIDES}
        self._fields = {
            side: tuple(f for f in fields_of(schema) if f.name in names[side])
            for side, schema in schemas.items()
        }
        # Each column is gathered once; where the result's columns are among those gathered.
        gathered = [(side, field) for side in SIDES for field in self._fields[side]]
        place = {(side, field.name): number for number, (side, field) in enumerate(gathered)}
        self._places = [place[side, field.name] for side, field, _ in spec.chosen]
        self._pages = make_pages(self._schema, self._fields, self._places) if spec.how == "inner" else None
        # Columns that are held in another type: their numbers and types.
        held = [gathered[at][1].type for at in self._places]
        self._restored = [(n, field.type) for n, field in enumerate(spec.schema) if field.type != held[n]]

    @cached_property
    def none(self) -> pa.RecordBatch:
        """An empty batch, which carries a punctuation if there are no result rows."""
        return self._batch(
            dict.fromkeys(SIDES, np.empty(0, np.int64)), {side: PayloadStore().view() for side in SIDES}
        )

    def batches(self, ids: IdsBySide, views: Mapping[str, HeldRows], most: int) -> list[pa.RecordBatch]:
        """The rows of pairs of ids, in their order, `most` in a batch at most."""
        batches: list[pa.RecordBatch] = []
        at, size, count = 0, most, len(ids["left"])
        while at < count:
            whole = at == 0 and count <= size
            part = ids if whole else {side: ids[side][at : at + size] for side in SIDES}
            try:
                batches.append(self._batch(part, views))
            except pa.ArrowInvalid:  # more than an Arrow column can hold, such as strings of 2 GiB
                if size == 1:
                    raise
                size = max(1, size // 4)
                continue
            at += size
        return batches

    def _batch(self, ids: IdsBySide, views: Mapping[str, HeldRows]) -> pa.RecordBatch:
        if self._pages is not None and (batch := self._pages.batch(ids, views)) is not None:
            return batch
        gathered = [
            column for side in SIDES for column in self._columns(views[side], ids[side], self._fields[side])
        ]
        columns = [gathered[at] for at in self._places]
        for number, kind in self._restored:
            columns[number] = restored(columns[number], kind)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _columns(rows: HeldRows, ids: np.ndarray, fields: Sequence[Field]) -> list[pa.Array]:
    """The columns of these rows; NULL for numbers below zero."""
    if not len(ids) or int(np.minimum.reduce(ids)) >= 0:
        return rows.columns(ids, fields)
    there = ids >= 0
    if not there.any():
        return [pa.nulls(len(ids), field.type) for field in fields]
    plain, others = ([f for f in fields if (f.dtype is None) == of_any_size] for of_any_size in (False, True))
    columns = dict(zip([f.name for f in plain], _plain_columns(rows, ids, there, plain), strict=True))
    if others:  # values of any size: only those that are asked for are fetched
        place = pa.array(np.cumsum(there) - 1, mask=~there)
        found = rows.columns(ids[there], others)
        columns |= {field.name: column.take(place) for field, column in zip(others, found, strict=True)}
    return [columns[field.name] for field in fields]


def _plain_columns(
    rows: HeldRows, ids: np.ndarray, there: np.ndarray, fields: Sequence[Field]
) -> list[pa.Array]:
    """As `_columns`, of plain columns: some value is fetched in place of NULL, and replaced by zero. So the bytes of
    results do not depend on which rows are in a batch."""
    some = int(ids[np.argmax(there)])
    bits, missing = (
        pa.py_buffer(np.packbits(there, bitorder="little")),
        len(ids) - int(np.count_nonzero(there)),
    )
    found = rows.columns(np.where(there, ids, some), fields)
    columns = []
    for field, column in zip(fields, found, strict=True):
        if column.null_count or column.offset:
            columns.append(column.take(pa.array(np.arange(len(ids)), mask=~there)))
            continue
        values = np.where(there, np.frombuffer(column.buffers()[1], field.dtype, len(ids)), 0)
        columns.append(pa.Array.from_buffers(field.type, len(ids), [bits, pa.py_buffer(values)], missing))
    return columns
