"""The embedded engine: Arrow in, Arrow out, in this process.

`Join` checks and numbers what comes in, keeps payload, hands prepared tuples to a topology and builds
result rows from the id pairs that come back. Two locks: `_work` orders pushes and the topology's
steps; `_ready` guards what pollers share: the result buffer and the payload views. A push that was
accepted is never lost: if the result buffer is full, its remaining work waits for `poll`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.codegen.columns import ColumnData, to_column_data
from streamjoin.index.scan import Tuples
from streamjoin.index.sliding import SlidingColumns
from streamjoin.payload import PayloadStore, Rows, storage_schema
from streamjoin.planner import TOPOLOGIES, Plan, explain_plan, make_plan
from streamjoin.semantics.errors import Backpressure, ClosedError, InputError, SpecError, StreamJoinError
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.stats import LatencyRecorder, Stats
from streamjoin.streams import Source, as_batch, event_times
from streamjoin.topologies.three_step import OTHER, Frontier, Matches

MAX_RESULTS = 1_000_000  # result rows that may wait for `poll`
BATCH_ROWS = 65_536  # rows of a result batch at most
MAX_LATE = 1_000_000  # late rows kept for `late`
LATENCY_SAMPLES = 256
PUNCTUATION = b"streamjoin.punctuation"


def open_join(
    spec: JoinSpec,
    topology: str = "auto",
    index: str = "auto",
    workers: int | None = None,
    order: str = "any",
    max_results: int = MAX_RESULTS,
) -> Join:
    """Open a join. `max_results` bounds the result rows that wait for `poll` before `push` blocks.

    >>> import pyarrow as pa, streamjoin as sj
    >>> schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
    >>> spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
    >>> with sj.open_join(spec) as join:
    ...     join.push("left", pa.table({"ts": [1], "x": [7]}, schema=schema))
    ...     join.push("right", pa.table({"ts": [5], "x": [7]}, schema=schema))
    ...     join.finish().to_pylist()
    [{'ts': 1, 'x': 7, 'ts_right': 5, 'x_right': 7}]
    """
    if not isinstance(spec, JoinSpec):
        raise SpecError(f"spec is a {type(spec).__name__}: give a JoinSpec")
    if isinstance(max_results, bool) or not isinstance(max_results, int) or max_results < 1:
        raise SpecError(f"max_results is {max_results!r}; allowed: a whole number of rows from 1 on")
    plan = make_plan(spec, topology, index, workers, order)
    for program in plan.programs.values():
        program.compile({side: spec.side_schema(side) for side in SIDES})
    return Join(plan, max_results)


def explain(
    spec: JoinSpec, topology: str = "auto", index: str = "auto", workers: int | None = None, order: str = "any"
) -> str:
    """How `open_join` would run this spec, and why."""
    return explain_plan(make_plan(spec, topology, index, workers, order))


class Join:
    """A running join; made by `open_join`. All methods may be called from any thread."""

    def __init__(self, plan: Plan, max_results: int):
        self.plan, self.spec = plan, plan.spec
        self._max_results = max_results
        self._topology = TOPOLOGIES[plan.topology](plan.spec, plan.programs, plan.order, self._fetch)
        self._payload = {side: PayloadStore() for side in SIDES}
        self._schemas = {side: storage_schema(plan.spec.side_schema(side)) for side in SIDES}
        self._sources: dict[str, dict[str, Source]] = {side: {} for side in SIDES}
        self._ended: set[str] = set()
        self._low: dict[str, float] = dict.fromkeys(SIDES, -math.inf)  # announced to the topology
        self._bound: tuple[float, int, int] = (-math.inf, 0, -1)  # likewise; (ts, side, source number)
        self._stamps = {side: SlidingColumns() for side in SIDES}  # first id and time of each push
        self._late: dict[str, list[pa.RecordBatch]] = {side: [] for side in SIDES}
        self._late_count = dict.fromkeys(SIDES, 0)
        self._expired_since_release = 0
        self._work = threading.RLock()
        self._ready = threading.Condition()
        # Guarded by _ready:
        self._results: list[Matches] = []
        self._result_rows = 0
        self._least_id = dict.fromkeys(SIDES, math.inf)  # in waiting results: their payload must stay
        self._punctuation: float = -math.inf
        self._told_punctuation: float = -math.inf
        self._matches = 0
        self._latency = LatencyRecorder()
        self._state = "open"
        self._failure: BaseException | None = None

    # Input

    def push(self, side: str, data: Any, timeout: float | None = None) -> None:
        """Push Arrow data of one side's default source.

        Bad data raises `InputError` and changes nothing. While the result buffer is full this blocks,
        or, after `timeout` seconds, raises `Backpressure`; then nothing of `data` was taken.
        """
        self._check_side(side)
        with self._work:
            source = self._sources[side].get("") or self.source(side, "")
        self._push(source, data, timeout)

    def source(self, side: str, name: str) -> Source:
        """Open one more physical stream of a side. Open all of them before pushing: what a newcomer brings from
        before the point the join has reached is late."""
        self._check_side(side)
        if not isinstance(name, str):
            raise InputError(f"a source's name is a string, not {name!r}")
        with self._work:
            self._check_open()
            if side in self._ended:
                raise ClosedError(f"the {side} side has ended: no source can be opened")
            known = self._sources[side]
            if name in known:
                raise InputError(f"{side} has a source named {name!r} already; its sources are {sorted(known)}")
            known[name] = source = Source(self, side, name, len(known), self.spec.lateness_ticks)
            by_name = sorted(known.values(), key=lambda s: s.name)
            ranks = np.empty(len(known), np.int32)
            ranks[[s.number for s in by_name]] = np.arange(len(known))
            self._topology.ranks[side] = ranks
            return source

    def _push(self, source: Source, data: Any, timeout: float | None) -> None:
        spec, side = self.spec, source.side
        batch = as_batch(data, self._schemas[side], side)
        ts = event_times(batch, spec, side)
        arrived = time.perf_counter()
        deadline = math.inf if timeout is None else arrived + timeout
        with self._locked(deadline):
            self._check_open()
            if source.closed:
                raise ClosedError(f"source {source.name!r} of {side} is closed")
            late = source.late(ts) | self._before_bound(source, ts)
            self._wait_for_room(deadline)
            with self._failing():
                self._take(source, batch, ts, late, arrived)
                self._run(deadline)

    def _take(self, source: Source, batch: pa.RecordBatch, ts: np.ndarray, late: np.ndarray, arrived: float) -> None:
        """Accept checked data: number it, keep its payload, hand it to the topology."""
        side = source.side
        if len(ts):
            source.newest = max(source.newest, int(ts.max()))
        if late.any():
            self._keep_late(side, batch.filter(pa.array(late)))
            batch, ts = batch.filter(pa.array(~late)), ts[~late]
        first = self._payload[side].next_id
        tuples = self._prepare(source, batch, ts, first)
        if len(tuples):
            with self._ready:
                self._payload[side].append(batch)
            self._stamps[side].append({"id": np.array([first]), "time": np.array([arrived])})
        self._topology.push(side, tuples, self._frontier())

    def _prepare(self, source: Source, batch: pa.RecordBatch, ts: np.ndarray, first: int) -> Tuples:
        side, count = source.side, len(ts)
        own, opposite = self.plan.programs[side], self.plan.programs[OTHER[side]]
        data = {
            column: to_column_data(batch.column(column.name), column.type)
            for column in dict.fromkeys([*own.stored_columns, *opposite.probe_columns])
        }
        tuples = Tuples(
            ts,
            np.arange(first, first + count),
            np.full(count, source.number, np.int32),
            own.prepare_stored(data, count),
            opposite.prepare_probe(data, count),
            any(column.valid is not None for column in data.values()),
        )
        if source.lateness and count > 1 and (ts[1:] < ts[:-1]).any():
            return tuples.pick(np.argsort(ts, kind="stable"))
        return tuples

    def _keep_late(self, side: str, rows: pa.RecordBatch) -> None:
        self._late_count[side] += rows.num_rows
        self._late[side].append(rows)
        while sum(batch.num_rows for batch in self._late[side]) > MAX_LATE and len(self._late[side]) > 1:
            del self._late[side][0]

    def late(self, side: str) -> pa.Table:
        """Take the rows of one side that came too late, in the order they came (the last million at least)."""
        self._check_side(side)
        with self._work:
            rows, self._late[side] = self._late[side], []
        return pa.Table.from_batches(rows, self._schemas[side]).cast(self.spec.side_schema(side))

    # Progress

    def _before_bound(self, source: Source, ts: np.ndarray) -> np.ndarray:
        """Which tuples precede what has already been settled: those of a source that was opened too late."""
        bound, number, of = self._bound
        late = np.zeros(len(ts), np.bool_)
        if self._low[source.side] > -math.inf:
            late |= ts < self._low[source.side]
        if self._topology.settles and math.isfinite(bound):
            side = SIDES.index(source.side)
            rank = self._topology.ranks[source.side][source.number]
            first = self._topology.ranks[SIDES[number]][of] if of >= 0 else -1
            late |= (ts < bound) | ((ts == bound) & bool((side, rank) < (number, first)))
        return late

    def _frontier(self) -> Frontier:
        """What can still come, from the watermarks of all sources."""
        bounds = []
        for number, side in enumerate(SIDES):
            if side in self._ended:
                self._low[side] = math.inf
                continue
            current = [source for source in self._sources[side].values() if not source.closed]
            if current:
                self._low[side] = max(self._low[side], min(source.watermark for source in current))
            ranks = self._topology.ranks[side]
            marks = [(max(s.watermark, self._low[side]), number, int(ranks[s.number]), s.number) for s in current]
            bounds.append(min(marks, default=(self._low[side], number, -1, -1)))
        ts, number, rank, of = min(bounds, default=(math.inf, 0, 0, -1))
        self._bound = (ts, number, of)
        return Frontier((ts, number, rank), dict(self._low))

    def _advance(self, source: Source, ts: int) -> None:
        with self._work:
            self._check_open()
            if isinstance(ts, bool) or not isinstance(ts, (int, np.integer)):
                raise InputError(f"advance takes a time in ticks, an integer, not {ts!r}")
            source.promised = max(source.promised, int(ts))
            self._progress()

    def _close(self, source: Source) -> None:
        with self._work:
            if self._state == "open" and not source.closed:
                source.closed = True
                self._progress()

    def end(self, side: str) -> None:
        """No more tuples will come from any source of this side; the other may go on."""
        self._check_side(side)
        with self._work:
            self._check_open()
            self._ended.add(side)
            for source in self._sources[side].values():
                source.closed = True
            self._progress()

    def _progress(self) -> None:
        with self._failing():
            self._topology.advance(self._frontier())
            self._run(deadline=0.0)

    # Work

    def _run(self, deadline: float) -> None:
        """Let the topology work until it is idle, or the results do not fit and the deadline is over."""
        while not self._topology.idle:
            room = self._max_results - self._result_rows
            if room <= 0 and self._state == "open":
                if not self._wait(deadline):
                    return
                continue
            self._add(self._topology.step(self._max_results))
        self._release()
        with self._ready:
            self._punctuation = max(self._punctuation, min(self._low.values()))

    def _add(self, matches: Matches) -> None:
        count = len(matches.left)
        if not count:
            return
        with self._ready:
            self._results.append(matches)
            self._result_rows += count
            self._matches += count
            for side in SIDES:
                self._least_id[side] = min(self._least_id[side], int(getattr(matches, side).min()))
        sample = slice(None, None, max(1, count // LATENCY_SAMPLES))
        pushed = [self._pushed_at(side, getattr(matches, side)[sample]) for side in SIDES]
        self._latency.add(time.perf_counter() - np.maximum(*pushed), count)

    def _pushed_at(self, side: str, ids: np.ndarray) -> np.ndarray:
        stamps = self._stamps[side]
        return stamps["time"][np.searchsorted(stamps["id"], ids, "right") - 1]

    def _release(self) -> None:
        """Let go of payload that neither a window nor a waiting result needs. Looking for the oldest row of a window
        costs its size, so it is done once as many rows have come as are held."""
        for side in SIDES:
            window, store = self._topology.windows[side], self._payload[side]
            if store.row_count < 2 * len(window) + BATCH_ROWS and len(window):
                continue
            least = int(window["id"].min()) if len(window) else store.next_id
            with self._ready:
                store.release(int(min(least, self._least_id[side])))
                oldest = store.view().starts[0] if store.row_count else store.next_id
            stamps = self._stamps[side]
            stamps.drop(max(0, int(np.searchsorted(stamps["id"], oldest, "right")) - 1) if len(stamps) else 0)

    def _wait_for_room(self, deadline: float) -> None:
        """Return when earlier work is done and results fit; else raise `Backpressure` at the deadline."""
        with self._failing():
            self._run(deadline)
        while self._result_rows >= self._max_results and self._state == "open":
            if not self._wait(deadline):
                raise Backpressure(
                    f"{self._result_rows:,} result rows wait for poll() and max_results is {self._max_results:,}: "
                    "nothing of this push was taken; poll, then push again"
                )
        if not self._topology.idle:
            raise Backpressure("results of an earlier push still wait for room: poll, then push again")

    def _wait(self, deadline: float) -> bool:
        """Wait until results were taken; False if the deadline came first."""
        with self._ready:
            while self._result_rows >= self._max_results and self._state == "open":
                rest = deadline - time.perf_counter()
                if rest <= 0:
                    return False
                self._ready.wait(None if rest == math.inf else rest)
        return True

    def _fetch(self, side: str, columns: tuple[Column, ...], ids: np.ndarray) -> dict[Column, ColumnData]:
        if not columns:
            return {}
        rows = self._payload[side].view().take(ids, [column.name for column in columns])
        return {column: to_column_data(rows.column(column.name), column.type) for column in columns}

    # Output

    def poll(self) -> list[pa.RecordBatch]:
        """The result batches ready so far; never blocks. Goes on with work that waited for room."""
        self._check_failure()
        batches = list(self._drain())
        if self._work.acquire(blocking=False):
            try:
                if self._state == "open" and not self._topology.idle:
                    with self._failing():
                        self._run(deadline=0.0)
            finally:
                self._work.release()
        return batches

    def _drain(self) -> Iterator[pa.RecordBatch]:
        with self._ready:
            results, self._results, self._result_rows = self._results, [], 0
            self._least_id = dict.fromkeys(SIDES, math.inf)
            views = {side: self._payload[side].view() for side in SIDES}
            punctuation, told = self._punctuation, self._told_punctuation
            self._told_punctuation = punctuation
            self._ready.notify_all()
        punctuate = self.plan.order == "punctuated" and punctuation > told and math.isfinite(punctuation)
        ids = {side: np.concatenate([getattr(m, side) for m in results]) for side in SIDES} if results else {}
        count = len(ids["left"]) if ids else 0
        for start in range(0, max(count, int(punctuate)), BATCH_ROWS):
            rows = {side: array[start : start + BATCH_ROWS] for side, array in ids.items()}
            batch = self._build(rows, views)
            last = start + BATCH_ROWS >= count
            yield batch.replace_schema_metadata({PUNCTUATION: str(punctuation)}) if punctuate and last else batch

    def _build(self, ids: dict[str, np.ndarray], views: dict[str, Rows]) -> pa.RecordBatch:
        if not ids:
            return pa.RecordBatch.from_pylist([], schema=self.spec.schema)
        stored = [column for side in SIDES for column in views[side].take(ids[side]).columns]
        columns = [c if c.type == f.type else c.cast(f.type) for c, f in zip(stored, self.spec.schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.spec.schema)

    def finish(self) -> pa.Table:
        """End both sides; the remaining results as a table. The join is closed afterwards."""
        with self._ready:
            self._check_open()
            self._state = "finishing"  # a push that waits for room goes on without a bound
            self._ready.notify_all()
        with self._work, self._failing():
            self._ended = set(SIDES)
            self._topology.advance(self._frontier())
            self._run(deadline=0.0)
            batches = list(self._drain())
            self._state = "closed"
        return pa.Table.from_batches(batches, self.spec.schema)

    def close(self) -> None:
        """Give up what has not been polled. Closing twice is harmless."""
        with self._ready:
            self._state = "closed"
            self._ready.notify_all()

    def __enter__(self) -> Join:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def stats(self) -> Stats:
        """Counts and sizes; see `Stats`."""
        windows = self._topology.windows
        return Stats(
            left_tuples=self._payload["left"].next_id,
            right_tuples=self._payload["right"].next_id,
            left_late=self._late_count["left"],
            right_late=self._late_count["right"],
            left_window=len(windows["left"]),
            right_window=len(windows["right"]),
            comparisons=self._topology.comparisons,
            matches=self._matches,
            buffered_results=self._result_rows,
            payload_rows=sum(store.row_count for store in self._payload.values()),
            window_bytes=sum(window.nbytes for window in windows.values()),
            worker_comparisons=(self._topology.comparisons,),
            latency=self._latency.histogram(),
        )

    # Guards

    def _check_side(self, side: str) -> None:
        if side not in SIDES:
            raise InputError(f"side is {side!r}; allowed: left, right")

    def _check_open(self) -> None:
        self._check_failure()
        if self._state != "open":
            raise ClosedError("the join is closed: open a new one with open_join")

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise StreamJoinError(f"the join stopped after an error: {self._failure!r}") from self._failure

    def _locked(self, deadline: float) -> _Locked:
        return _Locked(self._work, deadline)

    def _failing(self) -> _Failing:
        return _Failing(self)


class _Locked:
    """Hold a lock that was got before a deadline, else raise `Backpressure`."""

    def __init__(self, lock: threading.RLock, deadline: float):  # type: ignore[valid-type]  # RLock is a function
        self._lock, self._deadline = lock, deadline

    def __enter__(self) -> None:
        rest = self._deadline - time.perf_counter()
        if not self._lock.acquire(timeout=-1 if rest == math.inf else max(0.0, rest)):
            raise Backpressure("another push is still waiting for room: nothing of this push was taken")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Failing:
    """Work that is cut short leaves windows half-changed: whatever stops it stops the join for good."""

    def __init__(self, join: Join):
        self._join = join

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._join._failure is None:
            self._join._failure = error


def punctuation(batch: pa.RecordBatch) -> int | None:
    """The promise a batch of an `order="punctuated"` join carries: no result that comes after it has a result time
    (the later of both event times, in ticks) below this. None if the batch carries none."""
    value = (batch.schema.metadata or {}).get(PUNCTUATION)
    return None if value is None else int(value)


def join_tables(
    left: Any,
    right: Any,
    spec: JoinSpec,
    topology: str = "auto",
    index: str = "auto",
    workers: int | None = None,
    order: str = "any",
) -> pa.Table:
    """Join two whole tables, in any row order (each is sorted by its time first, stably)."""
    tables = {"left": left, "right": right}
    batches, times, at = {}, {}, dict.fromkeys(SIDES, 0)
    for side in SIDES:
        batch = as_batch(tables[side], storage_schema(spec.side_schema(side)), side)
        ts = event_times(batch, spec, side)
        if len(ts) > 1 and (ts[1:] < ts[:-1]).any():
            rows = np.argsort(ts, kind="stable")
            batch, ts = batch.take(pa.array(rows)), ts[rows]
        batches[side], times[side] = batch, ts
    results: list[pa.RecordBatch] = []
    with open_join(spec, topology, index, workers, order) as join:
        for side in SIDES:
            join.source(side, "")
        while waiting := [side for side in SIDES if at[side] < len(times[side])]:
            side = min(waiting, key=lambda s: times[s][at[s]])
            join.push(side, batches[side].slice(at[side], BATCH_ROWS), timeout=0.0)
            at[side] += BATCH_ROWS
            while ready := join.poll():
                results += ready
        results += join.finish().to_batches()
    return pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in results], spec.schema)
