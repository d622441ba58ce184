"""The steps of a join: admitted tuples are joined, and rows that nothing needs are released.

`Join` (engine/join.py) holds the driver's mutex (engine/work.py) around every call of a `Driver`, so one thread at a
time runs them. Work whose results do not fit the result buffer is done by later calls; nothing is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from streamjoin.engine.admission import Admission
from streamjoin.engine.intake import CheckedRows, Intake
from streamjoin.engine.latency import LatencyMeter
from streamjoin.engine.recent_rows import RecentRows
from streamjoin.engine.results import ResultBuffer, ResultRows
from streamjoin.engine.rows import HeldRows, PushedRows, SharedColumns
from streamjoin.engine.sources import Source
from streamjoin.engine.stats import Stats
from streamjoin.engine.timer import Clock
from streamjoin.engine.work import Work
from streamjoin.index.build import make_window
from streamjoin.index.sliding import RowColumns
from streamjoin.plan.physical import Plan
from streamjoin.semantics.errors import StreamJoinError
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.outcomes.make import make_topology
from streamjoin.topologies.protocol import Task, Topology

PUNCTUATION = b"streamjoin.punctuation"


class Driver:
    """What a join holds, and its steps. `intake`: by side, how data is checked. `work`: the lock that is held around
    its calls. `clock`, `wake`: as for `Admission`."""

    def __init__(self, plan: Plan, intake: Mapping[str, Intake], clock: Clock, wake: Callable[[], None]):
        schemas = {side: each.schema for side, each in intake.items()}
        shared = {
            side: SharedColumns(each.schema, each.shared, RowColumns(tuple(each.shared.values())))
            for side, each in intake.items()
            if each.shared
        }
        self.rows = PushedRows(schemas, shared)
        self.results = ResultBuffer(plan.options.max_results, self.rows)
        in_windows = {side: each.columns for side, each in shared.items()}
        task = Task(plan, partial(make_window, plan, rows=in_windows), self.rows.fetch, self._carry)
        self.topology: Topology = make_topology(task)
        self.work = Work(self.topology.found)
        self.latency = LatencyMeter()
        self.admission = Admission(plan, intake, self.rows, self.latency, self.topology, clock, wake)
        self.sources = self.admission.sources
        self.failure: BaseException | None = None
        self.closed = False  # nothing more is joined
        self.recent_rows: RecentRows | None = None  # while a page shows them
        self._tuning = plan.tuning.engine
        self._gathers = plan.wait > 0
        self._punctuated = plan.options.order == "punctuated"
        self._result_rows = ResultRows(plan.spec, schemas)
        self._release_at = dict.fromkeys(SIDES, 0)  # the row id at which `_release` looks again

    def take(
        self,
        source: Source,
        rows: CheckedRows,
        late: np.ndarray | None,
        arrived: float,
        promises: bool,
    ) -> bool:
        """Take checked rows and join them, if all earlier rows are joined and results fit. Return whether they were
        taken."""
        try:
            if not (self.topology.idle or self._join_admitted()) or self.results.rows >= self.results.bound:
                return False
            self.admission.take(source, rows, late, arrived)
            self._run(promises)
        except BaseException as error:
            self.fail(error)
            raise
        return True

    def progress(self) -> None:
        """Announce what can still come, and join what that settles."""
        try:
            self.admission.progress()
            self._run(False)
        except BaseException as error:
            self.fail(error)
            raise

    def run(self, promises: bool = False) -> bool:
        """Join the admitted tuples, and admit and join gathered pushes that are due, while results fit. Return whether
        nothing is left to do: then `release` may release rows. With `promises`, also update the punctuation: only polls
        need it, and it reads the windows."""
        self.check()
        try:
            return self._run(promises)
        except BaseException as error:
            self.fail(error)
            raise

    def _run(self, promises: bool) -> bool:
        while self._join_admitted():
            if self.closed:
                return True
            if not self._gathers or not self.admission.due:
                break
            if self.results.room <= 0:
                return False
            self.admission.hand_over()
        else:
            return False
        for side, store in self.rows.stores.items():
            if store.next_id >= self._release_at[side]:
                self._release(side)
        if promises and self._punctuated:
            self.results.punctuation = max(self.results.punctuation, self.topology.least_result_time)
        return True

    def _join_admitted(self) -> bool:
        """Let the topology work while results fit. Return whether it has nothing left to do."""
        topology, results = self.topology, self.results
        while not topology.idle and not self.closed:
            room = results.bound - results.rows
            if room <= 0:
                return False
            matches = topology.step(min(room, self._tuning.step_results))
            if len(matches.left):
                results.add(matches)
                self.work.tell()
                self.latency.ready(matches)
        return True

    def release(self) -> None:
        """Release rows that no window and no waiting result needs, on sides where enough rows have come since the last
        time."""
        try:
            for side, store in self.rows.stores.items():
                if store.next_id >= self._release_at[side] or not self.topology.held(side):
                    self._release(side)
        except BaseException as error:
            self.fail(error)
            raise

    def _release(self, side: str) -> None:
        """Release rows of one side. Finding the oldest row of a window takes time in proportion to its size, so this is
        done again only after a fraction of that many new rows."""
        next_id, count = self.rows.stores[side].next_id, self.topology.held(side)
        self._release_at[side] = next_id + max(self._tuning.slack_rows, count // 16)
        oldest = self.topology.oldest_id(side)
        held = self.results.release_rows(side, next_id if oldest is None else oldest)
        self.latency.release(side, held)

    def _carry(self, side: str, ids: np.ndarray) -> np.ndarray:
        first = self.rows.copy_rows(side, ids)
        self.latency.pushed(
            side, first, -math.inf
        )  # results take as long as since the push of their other row
        return np.arange(first, first + len(ids))

    def drain(self) -> list[pa.RecordBatch]:
        """The result batches of all waiting pairs. May be called by any thread."""
        if not self.results.rows and not self.results.news:
            return []
        return self.results.drain(self._batches)

    def _batches(
        self, ids: Mapping[str, np.ndarray], views: Mapping[str, HeldRows], news: float | None
    ) -> list[pa.RecordBatch]:
        batches = self._result_rows.batches(ids, views, self._tuning.batch_rows)
        if self.recent_rows is not None:
            self.recent_rows.note(batches)
        if news is not None:
            last = batches.pop() if batches else self._result_rows.none
            batches.append(last.replace_schema_metadata({PUNCTUATION: str(news)}))
        return batches

    def check(self) -> None:
        """Raise if the join has stopped after an error."""
        if self.failure is not None:
            raise StreamJoinError(f"the join stopped after an error: {self.failure!r}") from self.failure

    def fail(self, error: BaseException) -> None:
        """Stop the join for good: a step that was interrupted may have left a window half-changed."""
        self.failure = error
        self.results.lift_bound()  # blocked pushes wake up and see the failure
        self.work.tell()

    def discard(self) -> None:
        """Release all tuples, rows and results; counts stay."""
        self.admission.clear()
        self.topology.clear()
        self.results.forget()
        for side, store in self.rows.stores.items():
            self.results.release_rows(side, store.next_id)
        self.latency.clear()

    def stats(self) -> Stats:
        windows, stores, admission = self.topology.windows, self.rows.stores, self.admission
        return Stats(
            left_tuples=admission.taken["left"],
            right_tuples=admission.taken["right"],
            left_late=admission.late["left"].next_id,
            right_late=admission.late["right"].next_id,
            left_window=len(windows["left"]),
            right_window=len(windows["right"]),
            comparisons=sum(self.topology.comparisons),
            matches=self.results.total,
            buffered_results=self.results.rows,
            payload_rows=sum(store.row_count for store in stores.values()) + sum(admission.rows.values()),
            window_bytes=sum(window.nbytes for window in windows.values()),
            worker_comparisons=self.topology.comparisons,
            latency=self.latency.histogram(),
            left_watermark=_finite_ticks(self.sources.reached("left")),
            right_watermark=_finite_ticks(self.sources.reached("right")),
            left_index=windows["left"].stats(),
            right_index=windows["right"].stats(),
        )


def _finite_ticks(watermark: float) -> int | None:
    return int(watermark) if math.isfinite(watermark) else None
