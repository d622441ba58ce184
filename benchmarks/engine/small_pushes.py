"""Tuples a second of small pushes into full windows with `three_step`, by batch, window and predicate.

Each cell joins two streams whose time windows hold 5,000 or 50,000 tuples a side. A run pushes batches of 1 or 16 rows
to the two sides alternately and polls after each pair of pushes, so result rows are built too. Keys are random, from a
range that gives each tuple 0.1 partners or one on average. Windows are filled before the clock starts and stay full,
because stream time advances with every push. Every run is a process of its own, pinned to one core, that measures all
cells; the best of five counts, after one that warms up. The clock is processor time: the engine runs in the calling
thread, and other load of the machine must not count.

`benchmarks/shared/checkouts.py` measures another checkout beside this one, if STREAMJOIN_BASE names it. `base` and
`ratio` are None without it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.shared.checkouts import BASE, TREE, alternated

HERE = Path(__file__).resolve()
SEED = 20180416
BATCHES, WINDOWS, PARTNERS = (1, 16), (5_000, 50_000), (0.1, 1.0)
WIDTH = 2  # of the band, to either side
PREDICATES = {
    "equality": "left.k = right.k",
    "band": f"left.k BETWEEN right.k - {WIDTH} AND right.k + {WIDTH}",
}
RUNS, SECONDS = 5, 0.15
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int32(), "v": pa.float32()})
Cell = tuple[str, int, int, float]
CELLS: list[Cell] = list(product(PREDICATES, WINDOWS, BATCHES, PARTNERS))


def seconds_per_push(cell: Cell, seconds: float) -> float:
    """Processor seconds of a push to one side, polls included."""
    import streamjoin as sj

    predicate, window, batch, partners = cell
    matching = 1 if predicate == "equality" else 2 * WIDTH + 1
    random, keys = np.random.default_rng(SEED), int(window * matching / partners)
    spec = sj.JoinSpec(SCHEMA, SCHEMA, PREDICATES[predicate], sj.TimeWindow(window), "ts", "ts")
    at = 0

    def rows(count: int) -> pa.RecordBatch:
        ts = pa.array(np.arange(at, at + count))
        k, v = random.integers(0, keys, count, dtype=np.int32), random.random(count, dtype=np.float32)
        return pa.RecordBatch.from_arrays([ts, pa.array(k), pa.array(v)], schema=SCHEMA)

    with sj.open_join(spec, topology="three_step", workers=1) as join:
        push, poll = join.push, join.poll

        def measure(count: int, size: int) -> float:
            nonlocal at
            made = []
            for _ in range(count):
                made.append((rows(size), rows(size)))
                at += size
            started = time.process_time()
            for left, right in made:
                push("left", left)
                push("right", right)
                poll()
            return (time.process_time() - started) / (2 * count)

        measure(30, window // 20)  # fills the windows, and lets what came first expire
        measure(200, batch)
        return measure(max(50, round(seconds / measure(200, batch) / 2)), batch)


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per cell. Summary: the smallest ratio to the other checkout, if one is given."""
    runs = alternated(HERE, 1 if quick else RUNS, SECONDS / 5 if quick else SECONDS)
    best = {name: times.min(axis=0) for name, times in runs.items()}
    rows: list[dict[str, Any]] = []
    for number, (predicate, window, batch, partners) in enumerate(CELLS):
        tuples = {name: batch / float(seconds[number]) for name, seconds in best.items()}
        rows.append(
            {
                "predicate": predicate,
                "window": window,
                "batch": batch,
                "partners": partners,
                "tuples_per_s": tuples[TREE],
                "base_tuples_per_s": tuples.get(BASE),
                "ratio": tuples[TREE] / tuples[BASE] if BASE in tuples else None,
            }
        )
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    summary: dict[str, Any] = {
        f"tuples a second, batches of {batch}": min(r["tuples_per_s"] for r in rows if r["batch"] == batch)
        for batch in BATCHES
    }
    if ratios:
        summary |= {"smallest_ratio": min(ratios), "median_ratio": float(np.median(ratios)), "target": 2.0}
    return {"rows": rows, "summary": summary}


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(json.dumps([seconds_per_push(cell, float(sys.argv[1])) for cell in CELLS]))
