"""A running join as its page sees it: it looks from the page's thread, never waits long, and keeps no join alive."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from streamjoin.engine.driver import Driver
from streamjoin.engine.latency import LatencyHistogram
from streamjoin.engine.recent_rows import RecentRows
from streamjoin.engine.stats import Stats
from streamjoin.page.model import Durations, SideFigures, Snapshot, WorkerFigures, durations_of
from streamjoin.plan.physical import Plan
from streamjoin.semantics.spec import SIDES
from streamjoin.semantics.types import TIME_SCALE

LOOK_SECONDS = 0.05  # that a look waits for a step at most
SHOWN_BUCKETS = 28  # of the latency histogram: up to 134 seconds


class Watched(Protocol):
    """What a page asks of a join."""

    plan: Plan

    def look(self, patience: float) -> Stats | None:
        """Its statistics; None if they take longer than `patience` seconds, or the join is over."""


class JoinView:
    """The view of a join (`page.model.View`)."""

    name, engine = "join", "embedded"

    def __init__(self, join: Watched, driver: Driver):
        stats = join.look(math.inf)
        assert stats is not None
        self._join, self._driver, self._stats = weakref.ref(join), driver, stats
        self._plan = join.plan.to_dict()
        self._spec = join.plan.spec
        self._rows = RecentRows()

    def plan(self) -> Mapping[str, Any]:
        return self._plan

    def snapshot(self) -> Snapshot | None:
        join = self._join()
        if join is None:
            return None
        self._driver.recent_rows = self._rows
        stats = join.look(LOOK_SECONDS) or self._counted()
        self._stats = stats
        return Snapshot(
            at=time.time(),
            state="running" if self._driver.failure is None else "failed",
            matches=stats.matches,
            sides={side: self._side(stats, side) for side in SIDES},
            state_bytes=stats.window_bytes,
            workers=[
                WorkerFigures(str(number), count) for number, count in enumerate(stats.worker_comparisons)
            ],
            durations=result_times(stats.latency),
            further={"buffered": stats.buffered_results},
            columns=self._spec.schema.names,
            rows=self._rows.texts(),
        )

    def _counted(self) -> Stats:
        """The statistics during a long step: what is counted without it, and the sizes known before."""
        taken, results = self._driver.admission.taken, self._driver.results
        return replace(
            self._stats,
            left_tuples=taken["left"],
            right_tuples=taken["right"],
            matches=results.total,
            buffered_results=results.rows,
        )

    def _side(self, stats: Stats, side: str) -> SideFigures:
        sources, unit = self._driver.sources, self._spec.time_unit
        mark, newest = sources.reached(side), sources.newest(side)
        text = "ended" if mark == math.inf else "" if mark == -math.inf else self._spec.time_text(int(mark))
        ticks = None if unit is None else 10 ** TIME_SCALE[unit]  # a second
        return SideFigures(
            rows=getattr(stats, f"{side}_tuples"),
            late=getattr(stats, f"{side}_late"),
            held=getattr(stats, f"{side}_window"),
            watermark=text,
            watermark_seconds=mark / ticks if ticks and math.isfinite(mark) else None,
            lag_seconds=time.time() - newest / ticks if ticks and math.isfinite(newest) else None,
        )

    def close(self) -> None:
        if self._driver.recent_rows is self._rows:  # and not of a later page
            self._driver.recent_rows = None


def result_times(latency: LatencyHistogram) -> Durations:
    """The latency of results for a page."""
    shown = latency.counts[:SHOWN_BUCKETS]
    counts = [*shown, sum(latency.counts) - sum(shown)]
    bounds = [2.0**number * 1e-6 for number in range(SHOWN_BUCKETS)]
    return durations_of("results", bounds, counts, latency.seconds, latency.quantile)
