"""A running query as its page sees it: what Spark's progress events say, kept as they come."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from streamjoin.page.model import (
    LAST_ROWS,
    Durations,
    SideFigures,
    Snapshot,
    WorkerFigures,
    cell_text,
    durations_of,
)
from streamjoin.spark.job.progress import ProgressListener, QueryProgress
from streamjoin.spark.join.metrics import shown_rows, told_by_worker
from streamjoin.spark.join.routing import worker_ids
from streamjoin.spark.join.task import JoinTask

BATCH_BOUNDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0)  # seconds, of a histogram
REMEMBERED = 1_000  # micro-batches whose length the quantiles are of
PARTS_OF_WORK = ("kernel", "state", "conversion")


class WatchedQuery(ProgressListener):
    """A listener that is the view of a page, too (`page.model.View`). Spark's thread writes, the page's reads."""

    engine = "spark"

    def __init__(self, name: str, hide: Callable[[str], str] = str):
        """`hide` takes the secrets out of a text."""
        super().__init__()
        self.name = cell_text(hide(name))
        self._hide, self._state, self._at = hide, "starting", time.time()
        self._plan: Mapping[str, Any] | None = None
        self._columns: Sequence[str] = ()
        self._numbers: Mapping[int, int] = {}  # of workers, by id
        self._has_times = True
        self._compared: dict[int, int] = {}  # by worker
        self._busy: dict[int, dict[str, float]] = {}  # seconds by worker and kind of work
        self._lengths: deque[float] = deque(maxlen=REMEMBERED)
        self._counts = [0] * (len(BATCH_BOUNDS) + 1)  # of micro-batches, by length
        self._rows: deque[Sequence[str | None]] = deque(maxlen=LAST_ROWS)

    def begin(self, task: JoinTask) -> None:
        """The query is about to start, with this task."""
        plan = hidden(task.plan().to_dict(), self._hide)
        with self._lock:
            self._plan, self._columns = plan, task.columns
            self._has_times = task.spec.time_unit is not None
            self._numbers = {id: number for number, id in enumerate(worker_ids(task.routing.workers))}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        with self._lock:
            self._state = "running"

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        super().onQueryProgress(event)
        with self._lock:
            self._at, self._state = time.time(), "running"
            self._note(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        with self._lock:
            self._at = time.time()  # nothing has come since: rates fall

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._state = "failed" if event.exception else "ended"

    def _note(self, event: StreamingQueryProgress) -> None:
        """Note a micro-batch."""
        seconds = event.batchDuration / 1000
        self._lengths.append(seconds)
        self._counts[bisect_left(BATCH_BOUNDS, seconds)] += 1
        self._rows.extend(json.loads(text) for text in shown_rows(event.observedMetrics))
        for (_, id), told in told_by_worker(event.observedMetrics).items():
            self._compared[id] = self._compared.get(id, 0) + told["candidates"]
            busy = self._busy.setdefault(id, dict.fromkeys(PARTS_OF_WORK, 0.0))
            for part in PARTS_OF_WORK:
                busy[part] += told[f"{part}_us"] / 1e6

    # For the page

    def plan(self) -> Mapping[str, Any] | None:
        return self._plan

    def snapshot(self) -> Snapshot:
        with self._lock:
            progress = self._progress
            further = {"batches": progress.batches, "malformed": progress.malformed}
            if progress.behind is not None:
                further["behind"] = progress.behind
            return Snapshot(
                at=self._at,
                state=self._state,
                matches=progress.matches,
                sides={"both": self._sides(progress)},
                state_bytes=progress.state_bytes,
                workers=self._workers(progress),
                durations=self._durations(progress),
                further=further,
                columns=self._columns,
                rows=list(self._rows),
            )

    def close(self) -> None:
        """The query holds nothing for the page that outlasts it."""

    def _sides(self, progress: QueryProgress) -> SideFigures:
        mark = None if progress.watermark is None else progress.watermark.timestamp()
        text = ""
        if mark:  # Spark's initial one is 0
            text = f"{progress.watermark:%Y-%m-%d %H:%M:%S}" if self._has_times else str(round(mark * 1000))
        return SideFigures(
            rows=progress.rows,
            late=progress.late,
            held=progress.state_rows,
            watermark=text,
            watermark_seconds=mark if text and self._has_times else None,
            lag_seconds=progress.lag_seconds if self._has_times else None,
        )

    def _workers(self, progress: QueryProgress) -> list[WorkerFigures]:
        """The workers that have run so far."""
        held = {id: rows for (_, id), (rows, _) in progress.held.items()}
        numbers = {id: self._numbers.get(id, id) for id in self._compared}
        return [
            WorkerFigures(str(numbers[id]), self._compared[id], dict(self._busy[id]), held.get(id))
            for id in sorted(numbers, key=lambda id: numbers[id])
        ]

    def _durations(self, progress: QueryProgress) -> Durations:
        lengths = np.array(self._lengths or [np.nan])

        def quantile(q: float) -> float:
            return float(np.quantile(lengths, q, method="inverted_cdf"))

        return durations_of("micro-batches", BATCH_BOUNDS, self._counts, progress.busy_seconds, quantile)


def hidden(data: Any, hide: Callable[[str], str]) -> Any:
    """Plain data, whose texts have no secrets."""
    if isinstance(data, str):
        return hide(data)
    if isinstance(data, Mapping):
        return {key: hidden(value, hide) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [hidden(value, hide) for value in data]
    return data
