"""How evenly ScaleJoin's workers share comparisons when sources are uneven (Gulisano et al. 2015, Figure 8).

The papers' 2-D band. Three cases: one left and four right sources at distinct constant rates; three and two sources
whose rates follow sines of distinct periods; four and two sources with sudden peaks. In each second of stream time,
every source pushes as many tuples as its rate. Rows report, per second, the mean comparisons of a worker and their
standard deviation in percent of the mean. Rates are similar to the paper's. Windows are one minute long, so that ten
and more workers finish soon on few cores.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.shared.band import LEFT, RIGHT, open_band, rows_at
from benchmarks.shared.figures import Figure

SEED = 20150304
WINDOW = 60  # seconds
Rate = Callable[[int], float]
FIGURES = {
    "scalejoin_skew": Figure(
        "second",
        {"deviation_percent": ""},
        "seconds",
        "deviation of comparisons per worker, %",
        by="case",
    ),
}


def constant(rate: float) -> Rate:
    return lambda second: rate


def sine(rate: float, swing: float, period: float) -> Rate:
    return lambda second: rate + swing * math.sin(2 * math.pi * second / period)


def peaks(rate: float, peak: float, every: int) -> Rate:
    return lambda second: peak if second % every == every - 1 else rate


CASES: dict[str, tuple[int, list[Rate], list[Rate]]] = {
    "constant": (10, [constant(1200)], [constant(rate) for rate in (300, 250, 200, 150)]),
    "sinusoidal": (
        12,
        [sine(400, 200, 40), sine(300, 150, 25), sine(200, 100, 60)],
        [sine(500, 250, 30), sine(400, 300, 50)],
    ),
    "bursty": (14, [peaks(250, 1500, 13), *[constant(200)] * 3], [peaks(400, 2500, 17), constant(300)]),
}


def micros_of(second: int, count: int) -> np.ndarray[Any, Any]:
    """The event times of `count` tuples spread evenly over a second, in microseconds."""
    return second * 1_000_000 + np.arange(count) * 1_000_000 // max(count, 1)


def run_case(name: str, seconds: int) -> list[dict[str, Any]]:
    workers, left, right = CASES[name]
    random = np.random.default_rng(SEED)
    rows = []
    with open_band(WINDOW, topology="scalejoin", index="scan", workers=workers) as join:
        topology: Any = join._topology
        rates = {("left", f"left {n}"): rate for n, rate in enumerate(left)}
        rates |= {("right", f"right {n}"): rate for n, rate in enumerate(right)}
        sources = {key: join.source(*key) for key in rates}
        before, pushed = np.zeros(workers), 0
        for second in range(seconds):
            counts = {"left": 0, "right": 0}
            for (side, source), rate in rates.items():
                micros = micros_of(second, round(rate(second)))
                batch = rows_at(micros, LEFT if side == "left" else RIGHT, random)
                sources[side, source].push(batch)
                counts[side] += batch.num_rows
                pushed += batch.num_rows
            join.poll()
            while min(worker.progress.done for worker in topology.workers) < pushed:
                time.sleep(0.0002)
            loads = np.array(join.stats().worker_comparisons, np.float64)
            made, before = loads - before, loads
            rows.append(
                {
                    "case": name,
                    "second": second,
                    "left_rate": counts["left"],
                    "right_rate": counts["right"],
                    "comparisons_per_worker": float(made.mean()),
                    "deviation_percent": 100 * float(made.std() / made.mean()) if made.mean() else 0.0,
                }
            )
        if len(sources) != len(left) + len(right):
            raise AssertionError("a source is missing")
    return rows


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per case and second of stream time. Summary: deviations once the windows are full."""
    rows = [row for name in CASES for row in run_case(name, 90 if quick else 180)]
    summary = {}
    for name in CASES:
        full = [row["deviation_percent"] for row in rows if row["case"] == name and row["second"] >= WINDOW]
        summary[f"{name}_mean_deviation_percent"] = float(np.mean(full))
        summary[f"{name}_most_deviation_percent"] = float(np.max(full))
    return {"rows": rows, "summary": {**summary, "paper_percent": 0.1}}
