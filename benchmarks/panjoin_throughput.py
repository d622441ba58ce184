"""PanJoin as a whole over batch, window and selectivity (Pan & Jacobsen, Figure 15), beside the three-step engine.

Two streams of integer keys, uniform in a domain as large as the window, so that a band of S keys meets S tuples on
average. A run pushes batches to both sides in turns, takes all results as rows, and ends when all that was pushed has
been joined; wall time, the best of five runs. Three questions:

- `structure`: BI-Sort, RaP-Table and WiB+-Tree on two workers over batch, selectivity and window (Figures 15a, b, d),
  and the three-step engine with BI-Sort and as many threads.
- `prefetch`: one command a worker at a time, or three, so that the next one is prepared and sent meanwhile.
- `answer`: what a match costs where workers answer with pairs, and where they answer with records that the manager
  expands from its mirror of the main array (section III-D): nanoseconds a probe, one sealed subwindow, no join around.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import streamjoin as sj
from streamjoin import planner
from streamjoin.index.bisort import BISortSubwindow
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.topologies.panjoin import CREDIT, PanJoin

SEED = 20181109
RUNS = 5
SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
STRUCTURES = ("bisort", "raptable", "wibtree")
MOST_RESULTS = 1 << 26
FILL = 16_384


class Filled:
    """A join with full windows; event times are the numbers of tuples."""

    def __init__(self, topology: str, index: str, window: int, selectivity: int, credit: int = CREDIT):
        self.random, self.window, self.at = np.random.default_rng(SEED), window, 0
        width = selectivity // 2
        on = f"left.x BETWEEN right.x - {width} AND right.x + {width}"
        spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(window), "ts", "ts")
        options: dict[str, Any] = {"credit": credit}

        class WithCredit(PanJoin):
            def __init__(self, *given: Any):
                super().__init__(*given, **options)

        with patch.dict(planner.TOPOLOGIES, {"panjoin": WithCredit}):
            cores = len(os.sched_getaffinity(0))
            self.join = sj.open_join(spec, topology, index, workers=cores, max_results=MOST_RESULTS)
        while self.at < window:
            self.push(*self.batches(1, min(FILL, window))[0])
        self.settle()

    def batches(self, count: int, rows: int) -> list[tuple[pa.RecordBatch, pa.RecordBatch]]:
        made = []
        for _ in range(count):
            ts = pa.array(np.arange(self.at, self.at + rows))
            self.at += rows
            keys = self.random.integers(0, self.window, (2, rows), dtype=np.int32)
            left, right = (pa.record_batch([ts, pa.array(x)], schema=SCHEMA) for x in keys)
            made.append((left, right))
        return made

    def push(self, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
        found = 0
        for side, batch in (("left", left), ("right", right)):
            self.join.push(side, batch)
            found += sum(int(out.num_rows) for out in self.join.poll())
        return found

    def settle(self) -> int:
        """Poll until all that was pushed has been joined; the results."""
        topology, low = self.join._topology, min(self.join._sources.frontier().low.values())
        found, joined = 0, False
        while not joined:
            joined = topology.least_result_time >= low
            while ready := self.join.poll():
                found += sum(int(out.num_rows) for out in ready)
            time.sleep(0 if joined else 0.0002)
        return found

    def measure(self, batch: int, seconds: float) -> dict[str, float]:
        """Tuples a second and side, and results a tuple."""
        count, best, found = 1, np.inf, 0
        for number in range(RUNS + 1):
            made = self.batches(count, batch)
            started = time.perf_counter()
            found = sum(self.push(*each) for each in made) + self.settle()
            taken = (time.perf_counter() - started) / count
            best = min(best, taken) if number else best
            if not number:  # warms up
                count = int(np.clip(seconds / taken, 2, 500))
        return {"tuples_per_s": batch / best, "results_per_tuple": found / (2 * count * batch)}


def best(runs: int, work: Callable[[], object]) -> float:
    """Seconds of the shortest of some runs, after one that warms up."""
    times = []
    for _ in range(runs + 1):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def answers(held: int, selectivity: int, probes: int) -> dict[str, Any]:
    """One subwindow, asked with intervals of so many keys."""
    random = np.random.default_rng(SEED)
    subwindow = BISortSubwindow(held, np.dtype(np.int32))
    subwindow.insert(random.integers(0, held, held, dtype=np.int32), np.arange(held, dtype=np.int32))
    subwindow.seal()
    lows = random.integers(0, held - selectivity, probes, dtype=np.int32)
    highs = lows + np.int32(selectivity - 1)
    start, stop, pairs = np.zeros(probes, np.int64), np.full(probes, held), PairBuffer()

    def find_pairs() -> None:
        pairs.count = 0
        for _ in subwindow.probe(lows, highs, start, stop, pairs):
            pass

    taken = {"pairs": best(RUNS, find_pairs)}
    taken["records"] = best(RUNS, lambda: subwindow.probe_records(lows, highs))
    records = subwindow.probe_records(lows, highs)
    taken["expansion"] = best(RUNS, records.expand)
    return {f"{name}_ns": 1e9 * each / probes for name, each in taken.items()}


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per question and point."""
    window, seconds = (1 << 14, 0.03) if quick else (1 << 18, 0.15)
    batches, selectivities = (1_024, 8_192, 32_768), (1, 15, 255)
    columns = ("question", "topology", "index", "window", "selectivity", "batch", "credit")
    rows: list[dict[str, Any]] = []

    def points(question: str, topology: str, index: str, window: int, selectivity: int, sizes: tuple[int, ...],
               credit: int = CREDIT) -> None:  # fmt: skip
        filled = Filled(topology, index, window, selectivity, credit)
        for batch in sizes:
            values = question, topology, index, window, selectivity, batch, credit
            rows.append(dict(zip(columns, values, strict=True)) | filled.measure(batch, seconds))
        filled.join.close()

    for topology, index in [*(("panjoin", index) for index in STRUCTURES), ("three_step", "bisort")]:
        for selectivity in selectivities:
            points(
                "structure", topology, index, window, selectivity, batches if selectivity == 1 else (8_192,)
            )
        if index == "bisort":
            for size in (window // 4, 4 * window):
                points("structure", topology, index, size, 1, (8_192,))
    for credit in (1, CREDIT):
        points("prefetch", "panjoin", "bisort", window, 1, (256, 1_024, 8_192), credit)
    for selectivity in (1, 16, 256, 4_096):
        point = {"question": "answer", "index": "bisort", "window": window, "selectivity": selectivity}
        rows.append(point | answers(window, selectivity, 4_096 if selectivity < 4_096 else 512))
    return {"rows": rows, "summary": summary(rows)}


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    by_credit = {credit: [r["tuples_per_s"] for r in rows if r["question"] == "prefetch" and r["credit"] == credit]
                 for credit in (1, CREDIT)}  # fmt: skip
    gains = [more / one for one, more in zip(by_credit[1], by_credit[CREDIT], strict=True)]
    rates = [r["tuples_per_s"] for r in rows if r["question"] == "structure" and r["topology"] == "panjoin"]
    answered = [r for r in rows if r["question"] == "answer"]
    return {
        "best_tuples_per_s": max(rates),
        "least_gain_of_prefetch": min(gains),
        "most_gain_of_prefetch": max(gains),
        "most_pairs_over_records_and_expansion": max(
            r["pairs_ns"] / (r["records_ns"] + r["expansion_ns"]) for r in answered
        ),
    }
