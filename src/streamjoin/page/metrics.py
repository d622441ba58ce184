"""A snapshot as Prometheus metrics. docs/reference/metrics.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from streamjoin.page.model import Durations, Snapshot, View

PREFIX = "streamjoin_"
# Totals of `Snapshot.further`, which only grow; its other figures are sizes.
TOTALS = {"malformed": "Rows that were dropped because they could not be joined."}
SIZES = {
    "buffered": "Result rows that wait for poll.",
    "behind": "Unread rows in the sources that report them.",
}


class Metrics:
    """The collector of one join; a scrape reads the snapshot that `look` gives."""

    def __init__(self, view: View, look: Callable[[], Snapshot | None]):
        self._view, self._look = view, look
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        snapshot = self._look()
        if snapshot is None:
            return
        plan = self._view.plan() or {}
        info = InfoMetricFamily(f"{PREFIX}join", "The join.")
        names = {"name": self._view.name, "engine": self._view.engine}
        info.add_metric([], names | {key: str(plan.get(key, "")) for key in ("how", "topology")})
        yield info
        yield gauge("running", "1 while the join runs, else 0.", float(snapshot.state == "running"))
        yield counter("matches", "Result rows found.", snapshot.matches)
        yield gauge("state_bytes", "Memory of the windows; on Spark, of the state.", snapshot.state_bytes)
        yield from of_sides(snapshot)
        yield from of_workers(snapshot)
        yield histogram(snapshot.durations)
        for name, text in TOTALS.items():
            if name in snapshot.further:
                yield counter(name, text, snapshot.further[name])
        for name, text in SIZES.items():
            if name in snapshot.further:
                yield gauge(name, text, snapshot.further[name])


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)


def of_sides(snapshot: Snapshot) -> Iterator[Metric]:
    """What is known of each side, by the label `side`."""
    rows = CounterMetricFamily(f"{PREFIX}rows", "Rows taken.", labels=["side"])
    late = CounterMetricFamily(f"{PREFIX}late_rows", "Rows that came too late.", labels=["side"])
    held = GaugeMetricFamily(f"{PREFIX}held_rows", "Rows kept for later partners.", labels=["side"])
    mark = GaugeMetricFamily(f"{PREFIX}watermark_seconds", "The watermark, since 1970.", labels=["side"])
    lag = GaugeMetricFamily(f"{PREFIX}lag_seconds", "The newest row, behind the clock.", labels=["side"])
    for name, side in snapshot.sides.items():
        optional = ((mark, side.watermark_seconds), (lag, side.lag_seconds))
        for metric, value in ((rows, side.rows), (late, side.late), (held, side.held), *optional):
            if value is not None:
                metric.add_metric([name], value)
    yield from (rows, late, held, mark, lag)


def of_workers(snapshot: Snapshot) -> Iterator[Metric]:
    """What each worker did, by the label `worker`."""
    compared = CounterMetricFamily(f"{PREFIX}comparisons", "Pairs compared.", labels=["worker"])
    held = GaugeMetricFamily(f"{PREFIX}worker_held_rows", "Rows kept by a worker.", labels=["worker"])
    busy = CounterMetricFamily(
        f"{PREFIX}worker_seconds", "Time that a worker spent, by kind of work.", labels=["worker", "work"]
    )
    for worker in snapshot.workers:
        compared.add_metric([worker.name], worker.comparisons)
        if worker.held is not None:
            held.add_metric([worker.name], worker.held)
        for work, seconds in worker.seconds.items():
            busy.add_metric([worker.name, work], seconds)
    yield from (compared, held, busy)


def histogram(durations: Durations) -> Metric:
    """How long results, or micro-batches, took."""
    of: dict[str, Any] = {
        "results": ("result_seconds", "From the push that completed a result to its being ready."),
        "micro-batches": ("batch_seconds", "Length of the micro-batches."),
    }
    name, text = of[durations.of]
    bounds = [*(f"{bound:g}" for bound in durations.bounds), "+Inf"]
    below = list(zip(bounds, accumulate(durations.counts), strict=True))
    return HistogramMetricFamily(PREFIX + name, text, buckets=below, sum_value=durations.seconds)
