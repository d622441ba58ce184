"""What a join tells of itself: the names under which its counts appear among a query's observed metrics.

Every worker adds one row of counts to its output each time it runs; Spark sums them over a micro-batch
(`DataFrame.observe`) and reports them with the query's progress, under a name that starts with `OBSERVATION`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

OBSERVATION = "streamjoin"


@dataclass
class Counts:
    """Counts of one worker in one micro-batch. `state_*` are sizes after it, of the workers that ran."""

    rows_in: int = 0  # rows that came to the worker, replicas included
    late: int = 0  # of those, rows that came too late and were dropped
    candidates: int = 0  # pairs that were compared
    matches: int = 0  # pairs that satisfied the predicate
    unmatched: int = 0  # rows of an outer or anti join that turned out to have no partner
    state_rows: int = 0  # rows held for later partners, replicas included
    state_bytes: int = 0
    written_bytes: int = 0  # to the state store
    cache_hits: int = 0  # runs found decoded, in this process or on this host
    cache_misses: int = 0  # runs read back from the state store
    kernel_us: int = 0  # microseconds spent probing and indexing
    state_us: int = 0  # reading and writing state
    conversion_us: int = 0  # decoding input and building result rows


NAMES = tuple(field.name for field in fields(Counts))


def join_metrics(observed: Mapping[str, Mapping[str, int | None]]) -> dict[str, dict[str, int]]:
    """The counts of every join of a query, by observation name, from a progress event's `observedMetrics`."""
    return {
        name: {metric: row[metric] or 0 for metric in NAMES}
        for name, row in observed.items()
        if name.startswith(OBSERVATION)
    }
