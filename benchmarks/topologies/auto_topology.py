"""What `topology="auto"` expects of threads that work between calls, beside what is measured on one and two cores.

Pushes of 64 that may wait (`latency=1`) of the 2-D band, by scan, over windows, workers and order. For each cell the
rates of `three_step` and of ScaleJoin, those that the model of `plan/thread_costs.py` expects, and the topology that
`auto` takes. The joins of a cell take turns, and the best of five runs counts. The clock is wall time until everything
is joined. One core: the process may use one only.
"""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.shared.band import WINDOW_SECONDS, FedJoin, open_band
from benchmarks.shared.figures import Figure
from benchmarks.shared.filling import few_probes, without_comparing
from benchmarks.shared.timing import core_count
from streamjoin.plan.thread_costs import estimate
from streamjoin.plan.tuning import DEFAULT_TUNING

TOPOLOGIES = ("three_step", "scalejoin")
RATES = (20, 40, 100, 300)  # tuples a second of stream time: windows of 18,000 to 270,000
WORKERS, ORDERS = (1, 2), ("any", "timestamp")
BATCH, RUNS, SEED, PROBES = 64, 5, 20161205, 16
SECONDS, COMPARISONS_PER_SECOND, MOST_TUPLES = 0.4, 2.5e10, 400_000  # about what a run takes
FIGURES = {
    f"auto_topology-{order}": Figure(
        "window",
        {"measured": "measured", "expected": "expected"},
        f"tuples in a window; two cores, two workers, order {order}",
        "M tuples/s",
        1e6,
        where={"cores": 2, "workers": 2, "order": order},
        by="topology",
        log=True,
    )
    for order in ORDERS
}


class Gathered(FedJoin):
    """A join with full windows, whose pushes wait for each other."""

    def __init__(self, topology: str, workers: int, rate: int, order: Any):
        options = {"topology": topology, "workers": workers, "order": order, "index": "scan", "latency": 1.0}
        super().__init__(open_band(WINDOW_SECONDS, **options), rate, SEED)
        if topology == "three_step":
            with few_probes(self.join, PROBES) as next_push:
                for _ in range(WINDOW_SECONDS // 10):
                    next_push()
                    self.step(*self.batches(1, 10 * rate)[0])
        else:
            with without_comparing(self.join):
                self.fill(WINDOW_SECONDS)
                self.drain()

    def drain(self) -> None:
        """Wait until everything that is ready is joined."""
        low = min(self.join._sources.frontier().low.values())
        while self.join._topology.least_result_time < low:  # the second poll hands over what is gathered
            self.join.poll()
            time.sleep(0.0005)

    def measure(self, count: int) -> float:
        """Tuples a second of both sides, until `count` batches to each side are joined."""
        made, started = self.batches(count, BATCH), time.perf_counter()
        for left, right in made:
            self.join.push("left", left)
            self.join.push("right", right)
            self.join.poll()
        self.drain()
        return 2 * count * BATCH / (time.perf_counter() - started)


def expected(gathered: Any, cores: int) -> dict[str, float]:
    """Tuples a second that the model expects of each topology."""
    plan, tuning = gathered.join.plan, DEFAULT_TUNING
    found = estimate(
        *(plan.spec, plan.options.order, plan.programs, cores, plan.workers, plan.workers),
        *(tuning.threads, tuning.engine.gathered_rows, gathered.rate),
    )
    assert found is not None
    return {"three_step": 1e6 / found.three_step, "scalejoin": 1e6 / found.scalejoin}


def cell(cores: int, rate: int, workers: int, order: str, quick: bool) -> list[dict[str, Any]]:
    """The rows of one cell, one for each topology."""
    window = rate * WINDOW_SECONDS
    most = (MOST_TUPLES if not quick else MOST_TUPLES // 10) // (2 * BATCH)
    count = max(32, min(most, round(SECONDS * COMPARISONS_PER_SECOND / (2 * BATCH * window))))
    joins = {topology: Gathered(topology, workers, rate, order) for topology in TOPOLOGIES}
    best = dict.fromkeys(TOPOLOGIES, 0.0)
    for number in range(RUNS + 1):
        for topology, join in joins.items():
            measured = join.measure(count)
            best[topology] = max(best[topology], measured) if number else 0.0
    model = expected(joins["three_step"], cores)
    for join in joins.values():
        join.join.close()
    gain = model["scalejoin"] / model["three_step"]
    chosen = "scalejoin" if gain >= DEFAULT_TUNING.threads.worth else "three_step"
    return [
        {
            "cores": cores,
            "window": window,
            "workers": workers,
            "order": order,
            "topology": topology,
            "measured": best[topology],
            "expected": model[topology],
            "expected_over_measured": model[topology] / best[topology],
            "chosen": chosen,
            "chosen_over_best": best[chosen] / max(best.values()),
        }
        for topology in TOPOLOGIES
    ]


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per cell and topology. Summary: how far the model is off, and what the choice costs."""
    allowed = sorted(os.sched_getaffinity(0))
    rows: list[dict[str, Any]] = []
    for cores in [1, 2][: core_count()]:
        os.sched_setaffinity(0, allowed[:cores])
        for rate in RATES[:2] if quick else RATES:
            for workers in WORKERS[:cores]:
                for order in ORDERS:
                    rows += cell(cores, rate, workers, order, quick)
    off = sorted(max(r := row["expected_over_measured"], 1 / r) for row in rows)
    return {
        "rows": rows,
        "summary": {
            "expected rate is off by a factor of, median": off[len(off) // 2],
            "expected rate is off by a factor of, at most": off[-1],
            "chosen topology over the better one, least": min(row["chosen_over_best"] for row in rows),
        },
    }
