"""The counts that a join reports, and their names among a query's observed metrics.

Each time a worker runs, it sends its counts with its last results. Spark collects the counts of a micro-batch
(`DataFrame.observe`) and reports them with the query's progress, under a name that starts with `OBSERVATION`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

OBSERVATION = "streamjoin"
WORKERS = "workers"  # the metric of an observation: a list with the counts of each worker that ran
WORKER = "worker"  # in an entry of that list, the worker's id
SHOWN = "shown"  # another metric of that observation if a page is open: some of the last result rows, as JSON
MALFORMED = "malformed"  # the metric of other observations: how many rows were dropped as malformed
TimedPart = Literal["kernel", "state", "conversion"]


@dataclass
class Counts:
    """Counts of one worker in one micro-batch. `state_rows` and `state_bytes` are its sizes after the micro-batch."""

    rows_in: int = 0  # rows that the worker received, replicas included
    late: int = 0  # rows that were dropped because they came too late; replicas are not counted
    candidates: int = 0  # pairs that were compared
    matches: int = 0  # pairs that satisfied the predicate
    unmatched: int = 0  # rows of an outer or anti join that turned out to have no partner
    state_rows: int = 0  # rows held for later partners, replicas included
    state_bytes: int = 0
    written_bytes: int = 0  # bytes written to the state store
    cache_hits: int = 0  # runs found in this process or in a file of this host
    cache_misses: int = 0  # runs read back from the state store
    kernel_us: int = 0  # microseconds spent probing and indexing
    state_us: int = 0  # microseconds spent reading and writing state
    conversion_us: int = 0  # microseconds spent decoding and sorting input, building and encoding result rows

    def __post_init__(self) -> None:
        self._part: TimedPart | None = None
        self._since = 0

    def turn(self, part: TimedPart | None) -> None:
        """Count time for this part from now on. None stops counting: Spark is running, or the counts have been sent."""
        now = time.perf_counter_ns()
        if self._part is not None:
            name = f"{self._part}_us"
            setattr(self, name, getattr(self, name) + (now - self._since) // 1000)
        self._part, self._since = part, now


METRIC_NAMES = tuple(field.name for field in fields(Counts))
Observed = Mapping[str, Any]  # observed metrics by observation name; each is a Row with named values


def held_by_workers(observed: Observed) -> dict[tuple[str, int], tuple[int, int]]:
    """Rows and bytes of state by observation name and worker, for the workers that ran."""
    return {at: (told["state_rows"], told["state_bytes"]) for at, told in told_by_worker(observed).items()}


def join_metrics(observed: Observed) -> dict[str, dict[str, int]]:
    """The counts of every join of a query, summed over its workers, by observation name.

    `observed` is the `observedMetrics` of a progress event. `malformed` counts the rows that the join dropped because
    they could not be joined."""
    dropped = _dropped(observed)
    return {
        name: {metric: sum(worker[metric] for worker in workers) for metric in METRIC_NAMES}
        | {MALFORMED: dropped.get(malformed_name(name), 0)}
        for name, workers in _of_joins(observed).items()
    }


def malformed_rows(observed: Observed) -> int:
    """How many malformed rows a micro-batch dropped, including those that a job's sources dropped."""
    return sum(_dropped(observed).values())


def told_by_worker(observed: Observed) -> dict[tuple[str, int], Any]:
    """The counts of each worker that ran, by observation name and worker."""
    return {
        (name, worker[WORKER]): worker for name, workers in _of_joins(observed).items() for worker in workers
    }


def shown_rows(observed: Observed) -> list[str]:
    """The result rows that workers sent along, as JSON."""
    return [text for row in _ours(observed).values() if SHOWN in row for text in row[SHOWN] or ()]


def malformed_name(of: str) -> str:
    """The name under which Spark reports the malformed rows of a join or of a source."""
    return f"{of}_{MALFORMED}"


def _dropped(observed: Observed) -> dict[str, int]:
    return {name: row[MALFORMED] or 0 for name, row in _ours(observed).items() if MALFORMED in row}


def _of_joins(observed: Observed) -> dict[str, Sequence[Any]]:
    """The counts by worker of each join."""
    return {name: row[WORKERS] or () for name, row in _ours(observed).items() if WORKERS in row}


def _ours(observed: Observed) -> dict[str, Any]:
    return {name: row for name, row in observed.items() if name.startswith(OBSERVATION)}
