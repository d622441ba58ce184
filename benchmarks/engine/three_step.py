"""The three-step engine end to end with full 15-minute windows, beside the bare scan kernel in the same run.

The papers' 2-D band over R(x int32, y float32) and S(a int32, b float32), uniform in 1..10000. Both streams bring
`rate` tuples per second of stream time, so that a full window holds 900 * rate; the windows are filled before
anything is measured, and stay full because stream time goes on with every batch. A run pushes a fixed number of
batches to either side in turns and takes all results. The bare kernel meets two window arrays of the same size in turns
with probes of the same batch size, called from Python with arguments made beforehand. Both run on one pinned core, in
turns, and the best of five runs counts. The clock is processor time: the engine works in the caller's thread, and
what else the machine does must not count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import streamjoin as sj
from streamjoin.kernels.scan.bands import CURSOR_SIZE, DONE, MIN_ROOM, BandShape, band_scan

SEED = 20110612
WINDOW_SECONDS = 900
BATCHES = (1, 16, 64, 256, 1024)
RUNS = 5
TARGET = 0.85
LEFT = pa.schema({"ts": pa.timestamp("us"), "x": pa.int32(), "y": pa.float32()})
RIGHT = pa.schema({"ts": pa.timestamp("us"), "a": pa.int32(), "b": pa.float32()})
PREDICATE = "left.x BETWEEN right.a - 10 AND right.a + 10 AND left.y BETWEEN right.b - 10 AND right.b + 10"


class Engine:
    """A join with full windows. Each `step` pushes `batch` rows to either side and takes the results."""

    def __init__(self, rate: int):
        self.random = np.random.default_rng(SEED)
        self.rate, self.at = rate, 0
        window = sj.TimeWindow(f"{WINDOW_SECONDS} seconds")
        spec = sj.JoinSpec(LEFT, RIGHT, PREDICATE, window, left_time="ts", right_time="ts")
        self.join = sj.open_join(spec, topology="three_step", index="scan", workers=1)
        for _ in range(WINDOW_SECONDS):
            self.step(*self.batches(1, rate)[0])

    def batches(self, count: int, batch: int) -> list[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """The next `count` batches of both streams, made before the clock starts."""
        made = []
        for _ in range(count):
            micros = (self.at + np.arange(batch)) * 1_000_000 // self.rate
            self.at += batch
            made.append((self._side(LEFT, micros), self._side(RIGHT, micros)))
        return made

    def _side(self, schema: pa.Schema, micros: np.ndarray[Any, Any]) -> pa.RecordBatch:
        keys = self.random.integers(1, 10_001, len(micros), dtype=np.int32)
        values = self.random.uniform(1, 10_000, len(micros)).astype(np.float32)
        return pa.record_batch(
            [pa.array(micros, pa.timestamp("us")), pa.array(keys), pa.array(values)], schema=schema
        )

    def step(self, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
        """Push one batch a side; the number of results."""
        self.join.push("left", left)
        self.join.push("right", right)
        return sum(out.num_rows for out in self.join.poll())

    def measure(self, count: int, batch: int) -> float:
        """Seconds for `count` batches a side."""
        made = self.batches(count, batch)
        started = time.process_time()
        for left, right in made:
            self.step(left, right)
        return time.process_time() - started


class Kernel:
    """The scan kernel of the same predicate on arrays of both windows' sizes in turns, nothing around it."""

    def __init__(self, window: int):
        random = np.random.default_rng(SEED)
        self.random, self.window = random, window
        self.scan = band_scan(((BandShape(0, "i4"),), (BandShape(1, "f4"),)))
        self.windows = [(self._integers(window), self._floats(window)) for _ in range(2)]
        self.out = np.empty(4 * MIN_ROOM, np.int32), np.empty(4 * MIN_ROOM, np.int32)

    def _integers(self, count: int) -> np.ndarray[Any, Any]:
        return self.random.integers(1, 10_001, count, dtype=np.int32)

    def _floats(self, count: int) -> np.ndarray[Any, Any]:
        return self.random.uniform(1, 10_000, count).astype(np.float32)

    def probes(self, batch: int, side: int) -> tuple[Any, ...]:
        """Arguments of one call: each probe meets the whole window of one side."""
        keys, values = self._integers(batch), self._floats(batch)
        lows, highs = (
            (keys - np.int32(10), values - np.float32(10)),
            (keys + np.int32(10), values + np.float32(10)),
        )
        whole = np.zeros(batch, np.int64), np.full(batch, self.window, np.int64)
        return *whole, self.windows[side], lows, highs

    def measure(self, count: int, batch: int) -> float:
        """Seconds for `count` batches a side, which is twice as many probes."""
        calls = [self.probes(batch, call % 2) for call in range(2 * count)]
        cursor = np.zeros(CURSOR_SIZE, np.int64)
        started = time.process_time()
        for arguments in calls:
            cursor[:] = 0
            while cursor[0] != DONE:
                self.scan(*arguments, cursor, *self.out, 0)
        return time.process_time() - started


def pin() -> None:
    """Stay on one core, where the system lets us."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def best_of_turns(runs: int, *measures: Callable[[], float]) -> list[float]:
    """The shortest time of each, run in turns so that a slow moment of the machine hits all alike."""
    times = [[measure() for measure in measures] for _ in range(runs + 1)]
    return [min(run[i] for run in times[1:]) for i in range(len(measures))]


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per batch size. Summary: the smallest ratio, and the best rates."""
    pin()
    rate = 200 if quick else 1000
    window = rate * WINDOW_SECONDS
    engine, kernel = Engine(rate), Kernel(window)
    rows = []
    for batch in BATCHES:
        # About 10 G comparisons a run, so that it takes the better part of a second.
        count = max(2, round((2e9 if quick else 1e10) / (2 * batch * window)))
        measures = (partial(engine.measure, count, batch), partial(kernel.measure, count, batch))
        ours, bare = best_of_turns(RUNS, *measures)
        comparisons = 2 * count * batch * window
        rows.append(
            {
                "batch": batch,
                "window": window,
                "tuples_per_s": count * batch / ours,
                "engine_comparisons_per_s": comparisons / ours,
                "kernel_comparisons_per_s": comparisons / bare,
                "ratio": bare / ours,
                # The rate r at which 15-minute windows (900 r tuples) keep this core just busy.
                "sustained_rate": (comparisons / ours / (2 * WINDOW_SECONDS)) ** 0.5,
            }
        )
    summary = {
        "smallest_ratio": min(row["ratio"] for row in rows),
        "target": TARGET,
        "best_comparisons_per_s": max(row["engine_comparisons_per_s"] for row in rows),
        "best_sustained_rate": max(row["sustained_rate"] for row in rows),
    }
    return {"rows": rows, "summary": summary}
