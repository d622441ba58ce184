"""The progress of a running query: Spark's progress events, reduced to what the terminal shows."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from streamjoin.semantics.calendar import DAYS_OF_400_YEARS
from streamjoin.spark.join.epoch import unshifted
from streamjoin.spark.join.metrics import (
    METRIC_NAMES,
    held_by_workers,
    join_metrics,
    malformed_rows,
    told_by_worker,
)

# Workers are uneven if one gets more than UNEVEN times the mean, and all together at least ENOUGH_ROWS.
UNEVEN, ENOUGH_ROWS = 1.5, 10_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class QueryProgress:
    """The progress of a query. Totals count from this start. `behind` is that of the last micro-batch. `held`
    is updated for workers that ran in it, and keeps the last known state of the others. `received` counts the rows that
    each worker got."""

    batches: int = 0
    rows: int = 0
    candidates: int = 0  # compared pairs
    matches: int = 0
    late: int = 0
    malformed: int = 0  # dropped rows that could not be joined
    cache_hits: int = 0  # runs of state found decoded in the cache
    cache_misses: int = 0  # runs read back from the state store
    busy_seconds: float = 0.0  # in all micro-batches
    batch_seconds: float = 0.0  # in the last micro-batch
    kernel_seconds: float = 0.0  # all workers together, in the last micro-batch: probing and indexing
    state_seconds: float = 0.0  # the same for reading and writing state
    conversion_seconds: float = 0.0  # the same for decoding input and building results
    rows_per_second: float = 0.0  # of the last micro-batch that had rows
    watermark: datetime | None = None
    newest: datetime | None = None  # the latest event time so far
    reported: datetime | None = None
    held: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # state, by join and worker
    received: Mapping[tuple[str, int], int] = field(default_factory=dict)  # rows, by join and worker
    behind: int | None = None  # unread rows in the sources that report them (Kafka)

    @property
    def busiest(self) -> float | None:
        """The part of all rows that one worker got, if workers are uneven."""
        total, most = sum(self.received.values()), max(self.received.values(), default=0)
        return most / total if total >= ENOUGH_ROWS and most * len(self.received) > UNEVEN * total else None

    @property
    def lag_seconds(self) -> float | None:
        """How far the newest row is behind the clock; for old data, its age."""
        if self.reported is None or self.newest is None:
            return None
        return (self.reported - self.newest).total_seconds()

    @property
    def state_rows(self) -> int:
        """Rows held for later partners, replicas included."""
        return sum(rows for rows, _ in self.held.values())

    @property
    def state_bytes(self) -> int:
        return sum(size for _, size in self.held.values())

    @property
    def worker_seconds(self) -> float:
        """The time that all workers of the join together spent in the last micro-batch."""
        return self.kernel_seconds + self.state_seconds + self.conversion_seconds

    def after(self, event: StreamingQueryProgress) -> QueryProgress:
        """The progress after another micro-batch."""
        joins = join_metrics(event.observedMetrics).values()
        told = {name: sum(join[name] for join in joins) for name in METRIC_NAMES}
        times = {name: moment(text) for name, text in event.eventTime.items()}
        return replace(
            self,
            batches=self.batches + 1,
            rows=self.rows + event.numInputRows,
            candidates=self.candidates + told["candidates"],
            matches=self.matches + told["matches"],
            late=self.late + told["late"],
            malformed=self.malformed + malformed_rows(event.observedMetrics),
            cache_hits=self.cache_hits + told["cache_hits"],
            cache_misses=self.cache_misses + told["cache_misses"],
            busy_seconds=self.busy_seconds + event.batchDuration / 1000,
            batch_seconds=event.batchDuration / 1000,
            kernel_seconds=told["kernel_us"] / 1e6,
            state_seconds=told["state_us"] / 1e6,
            conversion_seconds=told["conversion_us"] / 1e6,
            rows_per_second=event.processedRowsPerSecond if event.numInputRows else self.rows_per_second,
            watermark=times.get("watermark", self.watermark),
            newest=max(filter(None, (self.newest, times.get("max"))), default=None),
            reported=moment(event.timestamp),
            held={**self.held, **held_by_workers(event.observedMetrics)},
            received={
                **self.received,
                **{
                    worker: self.received.get(worker, 0) + counts["rows_in"]
                    for worker, counts in told_by_worker(event.observedMetrics).items()
                },
            },
            behind=rows_behind(event),
        )


class ProgressListener(StreamingQueryListener):
    """Keeps the progress of one query. Spark calls it from its own thread; any thread may read `progress`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress = QueryProgress()

    @property
    def progress(self) -> QueryProgress:
        with self._lock:
            return self._progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing has been read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        with self._lock:
            self._progress = self._progress.after(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """No new rows: the last progress still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The query itself reports its end and its error to threads that wait for it."""


def rows_behind(event: StreamingQueryProgress) -> int | None:
    """Unread rows in the sources' topics; None if no source reports them."""
    counts = []
    for source in event.sources:
        latest, end = offsets(source.latestOffset), offsets(source.endOffset)
        if latest is not None and end is not None:
            counts.append(sum(latest[at] - end.get(at, 0) for at in latest))
    return sum(counts) if counts else None


def offsets(text: Any) -> dict[tuple[str, str], int] | None:
    """Kafka's offsets, `{"topic": {"0": 17}}`, by topic and partition; None for other sources."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
        return {(topic, part): int(at) for topic, parts in found.items() for part, at in parts.items()}
    except (ValueError, AttributeError, TypeError):
        return None


def moment(text: str) -> datetime | None:
    """A time of a progress event, `2026-01-31T12:00:00.000Z`, without the join's shift; None if it lies outside the
    years 1 to 9999, as integer times may."""
    year, rest = re.match(r"([+-]?\d+)(-.*)", text).groups()  # type: ignore[union-attr]  # Spark's format
    cycles, year_of_cycle = divmod(int(year), 400)  # the calendar repeats itself after 400 years
    since = datetime.fromisoformat(f"{2000 + year_of_cycle}{rest.replace('Z', '+00:00')}") - EPOCH
    days = (cycles - 5) * DAYS_OF_400_YEARS + since.days
    milliseconds = days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
    try:
        return EPOCH + timedelta(milliseconds=unshifted(milliseconds))
    except OverflowError:
        return None
