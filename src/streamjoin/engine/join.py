"""The embedded engine: Arrow in, Arrow out, in this process.

`Join` checks what comes in and lets it in (`engine/admission.py`), drives a topology, and gives out the rows of the
id pairs that come back (`engine/results.py`). Threads: `_work` is held while tuples are taken and joined; pollers
need only the result buffer's own lock. A push waits for room in the result buffer before it is taken, never for room
for its own results: what of its work does not fit is done by later calls, `poll` above all. Nothing of it is lost.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from streamjoin.engine.admission import Admission
from streamjoin.engine.forks import copy_error, own
from streamjoin.engine.latency import LatencyMeter
from streamjoin.engine.pollers import Pollers
from streamjoin.engine.reading import Reading, fetch
from streamjoin.engine.results import ResultBuffer, ResultRows
from streamjoin.engine.row_types import check_columns
from streamjoin.engine.rows import Shared
from streamjoin.engine.stats import Stats
from streamjoin.engine.streams import Intake, Source, as_ticks
from streamjoin.engine.work import Work
from streamjoin.index.build import compile_plan, make_window
from streamjoin.index.sliding import RowColumns
from streamjoin.plan.choose import make_plan
from streamjoin.plan.explain import explain_plan
from streamjoin.plan.options import MAX_RESULTS, Auto, IndexName, Options, Order, TopologyName
from streamjoin.plan.physical import Plan
from streamjoin.semantics.errors import Backpressure, ClosedError, InputError, StreamJoinError
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.topologies.protocol import Task, Topology
from streamjoin.topologies.registry import TOPOLOGIES
from streamjoin.topologies.runtime.threads import DRIVER_PATIENCE

STEP_ROWS = 1_000_000  # results of one step, about, so that a step is over in a moment
BATCH_ROWS = 65_536  # rows of a result batch at most
SLACK_ROWS = 4_096  # rows that come, at least, before payload is looked through again
PUNCTUATION = b"streamjoin.punctuation"


def open_join(
    spec: JoinSpec,
    topology: TopologyName | Auto = "auto",
    index: IndexName | Auto = "auto",
    workers: int | None = None,
    order: Order = "any",
    max_results: int = MAX_RESULTS,
    rate: float | None = None,
    latency: float | None = None,
) -> Join:
    """Open a join.

    `max_results`: no more result rows than this wait for `poll`. While as many wait, `push` takes nothing: it waits for
    another thread to poll, or raises `Backpressure` if none does (see `Join.push`).
    `latency`: the seconds that a result may come after its push (None: the sooner, the better). From 0.1 on, pushes
    wait some milliseconds for each other and are joined together, which is faster, unless `rate`, the tuples a second
    and side that are expected, says that hardly any come meanwhile. A later push or poll hands them over: poll within
    that latency, or with a timeout.

    >>> import pyarrow as pa, streamjoin as sj
    >>> schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
    >>> spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
    >>> with sj.open_join(spec) as join:
    ...     join.push("left", pa.table({"ts": [1], "x": [7]}, schema=schema))
    ...     join.push("right", pa.table({"ts": [5], "x": [7]}, schema=schema))
    ...     join.finish().to_pylist()
    [{'ts': 1, 'x': 7, 'ts_right': 5, 'x_right': 7}]
    """
    plan = make_plan(spec, Options(topology, index, workers, order, max_results, rate, latency))
    check_columns(spec)
    compile_plan(plan)
    return Join(plan)


def explain(
    spec: JoinSpec,
    topology: TopologyName | Auto = "auto",
    index: IndexName | Auto = "auto",
    workers: int | None = None,
    order: Order = "any",
    rate: float | None = None,
    latency: float | None = None,
) -> str:
    """How `open_join` would run this spec, and why."""
    return explain_plan(make_plan(spec, Options(topology, index, workers, order, rate=rate, latency=latency)))


def punctuation(batch: pa.RecordBatch) -> int | None:
    """The promise a batch of an `order="punctuated"` join carries: no result that comes after it has a result time
    (the later of both event times, in ticks) below this. None if the batch carries none."""
    if not isinstance(batch, pa.RecordBatch):
        raise InputError(f"punctuation reads a RecordBatch that poll() gave, not a {type(batch).__name__}")
    value = (batch.schema.metadata or {}).get(PUNCTUATION)
    return None if value is None else int(value)


class Join:
    """A running join; made by `open_join`. All methods may be called from any thread."""

    def __init__(self, plan: Plan):
        self.plan, self.spec = plan, plan.spec
        self._intake = {side: Intake(plan.spec, side) for side in SIDES}
        schemas = {side: intake.schema for side, intake in self._intake.items()}
        reading = {side: Reading.of(plan, side, schemas[side]) for side in SIDES}
        shared = {
            side: Shared(schemas[side], each.shared, RowColumns(tuple(each.shared.values())))
            for side, each in reading.items()
            if each.shared
        }
        self._results, self._rows = (
            ResultBuffer(plan.options.max_results, shared),
            ResultRows(plan.spec, schemas),
        )
        rows = {side: each.columns for side, each in shared.items()}
        task = Task(plan, partial(make_window, plan, rows=rows), partial(fetch, self._results, schemas))
        self._topology: Topology = TOPOLOGIES[plan.topology](task)
        self._latency = LatencyMeter()
        self._admission = Admission(plan.wait, reading, self._results, self._latency, self._topology)
        self._sources = self._admission.sources
        self._release_at = dict.fromkeys(SIDES, 0)  # the row id at which `_release` looks again
        self._work = Work(self._topology.found)
        self._pollers = Pollers()
        self._state = "open"  # then "finishing", "closed"; in a fork of this process "copy"
        self._discarded = False  # what was held, once closed
        self._failure: BaseException | None = None
        own(self)

    # Input

    def push(self, side: str, data: Any, timeout: float | None = None) -> None:
        """Push Arrow data of one side's default source.

        Bad data raises `InputError` and changes nothing. If the result buffer is full, this waits until another thread
        has polled, and raises `Backpressure` where that would be for ever: if no other thread polls this join, or if
        an event loop runs in this one. With `timeout` it waits that many seconds at most, whoever polls. After
        `Backpressure`, or an interrupt (Ctrl-C) of the wait, nothing of `data` was taken: poll until nothing comes,
        then push again. Data that was taken is joined before this returns, as far as its results fit the buffer; later
        calls of `poll`, `push` or `finish` do the rest.
        """
        self._check_side(side)
        self._push(side, None, data, timeout)

    def source(self, side: str, name: str) -> Source:
        """Open one more physical stream of a side. Open all of them before pushing: what a newcomer brings from
        before the point the join has reached is late."""
        self._check_side(side)
        if not isinstance(name, str):
            raise InputError(f"a source's name is a string, not {name!r}")
        with self._working():
            self._check_open()
            known = self._sources.find(side, "") if name == "" else None
            return known or self._sources.add(self._new_source(side, name))

    def _new_source(self, side: str, name: str) -> Source:
        if side in self._sources.ended:
            raise ClosedError(f"the {side} side has ended: no source can be opened")
        return Source(self, side, name, self.spec.lateness_ticks)

    def _push(self, side: str, source: Source | None, data: Any, timeout: float | None) -> None:
        """Push to a source, or to the default one, which is opened by the first data it takes."""
        if timeout is not None:
            _check_seconds(timeout, "seconds from 0 on, or None to wait while another thread polls")
        intake = self._intake[side]
        batch = intake.batch(data)
        ts = intake.times(batch)
        arrived = time.perf_counter()
        deadline = math.inf if timeout is None else arrived + timeout
        while True:
            with self._working(deadline):
                self._check_open()
                into = source or self._sources.find(side, "") or self._new_source(side, "")
                if into.closed:
                    if side in self._sources.ended:
                        raise ClosedError(f"the {side} side has ended: nothing can be pushed to it")
                    raise ClosedError(f"source {into.name!r} of {side} is closed")
                late = self._sources.late(into, ts, self._topology.settles)
                if self._accept(into, batch, ts, late, arrived):
                    self._run(promises=self._work.missed)
                    return
            self._wait_for_room(timeout, deadline)

    def _wait_for_room(self, timeout: float | None, deadline: float) -> None:
        """Wait until results were polled; `Backpressure` if that is not in time, or nobody else polls. A timeout is the
        caller's own will, and waits for anybody."""
        why_hopeless = self._pollers.why_hopeless if timeout is None else _hopeful
        if reason := self._results.wait_for_room(deadline, why_hopeless):
            raise Backpressure(
                f"{self._results.fill}, and {reason}: nothing of this push was taken; poll until it gives nothing, "
                "then push again"
            )

    def _accept(
        self, source: Source, batch: pa.RecordBatch, ts: np.ndarray, late: np.ndarray | None, arrived: float
    ) -> bool:
        """Take checked data, if all that came before is joined and results fit; whether it was taken."""
        try:
            if not self._join_admitted() or self._results.room <= 0:
                return False
            self._admission.take(source, batch, ts, late, arrived)
            return True
        except BaseException as error:
            self._fail(error)
            raise

    def late(self, side: str) -> pa.Table:
        """Take the rows of one side that came too late, in the order they came (of more than a million, the last)."""
        self._check_side(side)
        self._check_process()
        return self._admission.take_late(side, self.spec.side_schema(side))

    # Progress without data

    def end(self, side: str) -> None:
        """No more tuples will come from any source of this side; the other may go on."""
        self._check_side(side)
        with self._working():
            self._check_open()
            self._sources.end(side)
            self._progress()

    def _advance(self, source: Source, ts: int | datetime) -> None:
        ticks = as_ticks(ts, self.spec)
        with self._working():
            self._check_open()
            if source.closed:
                raise ClosedError(f"source {source.name!r} of {source.side} is closed")
            source.promised = max(source.promised, ticks)
            self._progress()

    def _close(self, source: Source) -> None:
        with self._working():
            if self._state == "open" and not source.closed:
                source.closed = True
                self._progress()

    def _progress(self) -> None:
        try:
            self._admission.progress()
        except BaseException as error:
            self._fail(error)
            raise
        self._run()

    # Work

    def _run(self, promises: bool = False) -> bool:
        """Join what was let in, and let in what waits and is due, while results fit; whether nothing is left to do.
        Needs `_work`. What can be promised costs a look: it is for those who poll."""
        self._check_failure()
        try:
            while self._join_admitted():
                if self._state == "closed":
                    return True
                if not self._admission.due:
                    break
                if self._results.room <= 0:
                    return False
                self._admission.hand_over()
            else:
                return False
            self._release()
            if promises and self.plan.options.order == "punctuated":
                self._results.punctuation = max(self._results.punctuation, self._topology.least_result_time)
            return True
        except BaseException as error:
            self._fail(error)
            raise

    def _join_admitted(self) -> bool:
        """Let the topology work while results fit; whether it has nothing left to do. Needs `_work`."""
        while not self._topology.idle and self._state != "closed":
            if self._results.room <= 0:
                return False
            matches = self._topology.step(min(self._results.room, STEP_ROWS))
            if len(matches):
                self._results.add(matches)
                self._work.tell()
                self._latency.ready(matches)
        return True

    def _release(self) -> None:
        """Let go of payload that neither a window nor a waiting result needs. Looking for the oldest row of a window
        costs its size, so it is done when a part of that size has come since the last time."""
        for side in SIDES:
            payload = self._results.payload[side]
            count = self._topology.held(side)
            if count and payload.next_id < self._release_at[side]:
                continue
            self._release_at[side] = payload.next_id + max(SLACK_ROWS, count // 16)
            oldest = self._topology.oldest_id(side)
            held = self._results.release(side, payload.next_id if oldest is None else oldest)
            self._latency.release(side, held)

    # Output

    def poll(self, timeout: float = 0.0) -> list[pa.RecordBatch]:
        """The result batches ready so far, of no more than `max_results` rows; if there are none, those that come
        within `timeout` seconds. By default it never blocks. Goes on with work that waited for room."""
        self._check_process()
        self._pollers.note()
        if timeout != 0.0:
            _check_seconds(timeout, "seconds from 0 on")
            return self._wait_for_results(timeout)
        batches = self._poll()
        self._work.tell()  # who waits may have found this call at work
        return batches

    def _poll(self) -> list[pa.RecordBatch]:
        self._check_failure()
        if self._work.mine:
            return self._drain()
        try:
            with self._work.turn(blocking=False) as ours:
                self._work.missed = not ours
                return self._run_and_drain() if ours and self._state == "open" else self._drain()
        finally:
            self._discard_if_closed()

    def _run_and_drain(self) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        try:
            self._admission.look()
            done = self._run(promises=True)
            batches = self._drain()
            if batches or not done:
                self._run()  # on with what waited for room; and payload of what was taken is let go
        except BaseException:
            # What was found before a failure is given; the next call tells of it.
            if self._failure is None or not (batches := batches or self._drain()):
                raise
        return batches

    def _wait_for_results(self, timeout: float) -> list[pa.RecordBatch]:
        """Poll, and again whenever threads have found something, or somebody who pushes. Returns now and then from the
        wait, so that interrupts and failures are seen."""
        deadline, found = time.perf_counter() + timeout, self._topology.found
        with self._results.lock():
            self._work.polls += 1  # before looking: what comes later rings
        try:
            while True:
                seen = found.read()
                batches = self._poll()
                rest = deadline - time.perf_counter()
                if batches or rest <= 0 or self._state != "open":
                    return batches
                found.wait(seen, math.ceil(min(1e6 * rest, DRIVER_PATIENCE)))
        finally:
            with self._results.lock():
                self._work.polls -= 1

    def _drain(self) -> list[pa.RecordBatch]:
        if not self._results.rows and not self._results.news:
            return []
        with self._results.drained() as (ids, views, news):
            batches = self._rows.batches(ids, views, BATCH_ROWS)
            if news is not None:
                last = batches.pop() if batches else self._rows.none
                batches.append(last.replace_schema_metadata({PUNCTUATION: str(news)}))
        return batches

    def finish(self) -> pa.Table:
        """End both sides; the remaining results as a table. The join is closed afterwards."""
        self._check_process()
        self._check_not_at_work()
        with self._results.lock():
            self._check_open()
            self._state = "finishing"
        self._results.lift_bound()  # a push that waits for room goes on
        with self._working():
            self._check_failure()
            for side in SIDES:
                self._sources.end(side)
            self._progress()
            if self._state == "closed":
                raise ClosedError("the join was closed while it finished")
            batches = [batch.replace_schema_metadata(self.spec.schema.metadata) for batch in self._drain()]
            self._state = "closed"
        return pa.Table.from_batches(batches, self.spec.schema)

    def close(self) -> None:
        """Give up what has not been polled. Closing twice is harmless, and so is closing the copy of a join that a fork
        of the process has."""
        if self._state == "copy":
            return
        with self._results.lock():  # else a `finish` that has just begun would not see it
            self._state = "closed"
        self._results.lift_bound()
        self._topology.found.stop()  # a poll that waits ends, and so does a step
        self._discard_if_closed()

    @contextmanager
    def _working(self, deadline: float = math.inf) -> Iterator[None]:
        """Work in this block, as soon as nobody else does; raise if that is after the deadline."""
        self._check_process()
        self._check_not_at_work()
        rest = deadline - time.perf_counter()
        wait = -1 if rest == math.inf else min(max(0.0, rest), threading.TIMEOUT_MAX)
        try:
            with self._work.turn(timeout=wait) as ours:
                if not ours:
                    raise Backpressure(
                        "another push is still at work: nothing of this push was taken; push again"
                    )
                yield
        finally:
            self._discard_if_closed()
            self._work.tell()

    def _discard_if_closed(self) -> None:
        """Let go of all tuples, payload and results, counts stay; unless somebody works, who does it afterwards."""
        if self._state != "closed" or self._discarded or self._work.mine:
            return
        with self._work.turn(blocking=False) as ours:
            if ours:
                self._discard()

    def _discard(self) -> None:
        self._admission.clear()
        self._topology.clear()
        self._results.forget()
        for side in SIDES:
            self._results.release(side, self._results.payload[side].next_id)
        self._latency.clear()
        self._discarded = True

    def __enter__(self) -> Join:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stats(self) -> Stats:
        """Counts and sizes; see `Stats`. Waits for a step that is under way."""
        with self._working():
            return self._stats()

    def _stats(self) -> Stats:
        windows, payload, waiting = self._topology.windows, self._results.payload, self._admission.rows
        return Stats(
            left_tuples=self._admission.taken["left"],
            right_tuples=self._admission.taken["right"],
            left_late=self._admission.late["left"].next_id,
            right_late=self._admission.late["right"].next_id,
            left_window=len(windows["left"]),
            right_window=len(windows["right"]),
            comparisons=sum(self._topology.comparisons),
            matches=self._results.total,
            buffered_results=self._results.rows,
            payload_rows=sum(store.row_count for store in payload.values()) + sum(waiting.values()),
            window_bytes=sum(window.nbytes for window in windows.values()),
            worker_comparisons=self._topology.comparisons,
            latency=self._latency.histogram(),
            left_index=windows["left"].stats(),
            right_index=windows["right"].stats(),
        )

    def __reduce__(self) -> NoReturn:
        raise StreamJoinError(
            "a Join can not be pickled or copied, as its threads and windows belong to the process that opened it: "
            "send its spec, and open a join there"
        )

    def mark_as_copy(self) -> None:
        """For `forks`."""
        self._state = "copy"

    # Guards

    def _check_process(self) -> None:
        """Before any lock is taken: in a fork, who holds it may not exist."""
        if self._state == "copy":
            raise copy_error()

    def _check_side(self, side: str) -> None:
        if side not in SIDES:
            raise InputError(f"side is {side!r}; allowed: left, right")

    def _check_open(self) -> None:
        self._check_failure()
        if self._state != "open":
            raise ClosedError("the join is closed: open a new one with open_join")

    def _check_not_at_work(self) -> None:
        if self._work.mine:
            raise StreamJoinError(
                "this thread is at work on the join already: what runs meanwhile, as a signal's handler, may poll and "
                "close it, no more"
            )

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise StreamJoinError(f"the join stopped after an error: {self._failure!r}") from self._failure

    def _fail(self, error: BaseException) -> None:
        """Work that is cut short leaves windows half-changed: whatever stops it stops the join for good."""
        self._failure = error
        self._results.lift_bound()  # whoever waits for room wakes up and learns of it
        self._work.tell()


def _hopeful(_: float) -> None:
    """Says of every wait that it may succeed."""


def _check_seconds(timeout: float, allowed: str) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InputError(f"timeout is {timeout!r}; allowed: {allowed}")
