"""Every topology beside another checkout: tuples a second of full windows, and latency at half load.

STREAMJOIN_BASE names the other checkout (`benchmarks/shared/checkouts.py`); without it, only this one is measured. The
join is the papers' 2-D band. Three kinds of cells:

- scan: `three_step` scans windows of 90,000 tuples, on one core. The clock is processor time.
- throughput: every topology with two workers, windows of 50,000 tuples, and the index that it chooses. The clock is
  wall time until all pushes are joined.
- latency: low-latency handshake join, windows of 4 seconds, batches of 4 at a rate that is about half of what two cores
  sustain. Latency counts from when a result's later tuple was due until it is polled.

A run is a process that measures all cells; runs of the two checkouts alternate. The best of the runs counts for the
rates, and the median of the runs for the latency.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import streamjoin as sj
from benchmarks.shared.checkouts import BASE, TREE, alternated

HERE = Path(__file__).resolve()
SEED, RUNS = 20110612, 4
RATE = 1_000  # tuples per second of stream time and side, so event times are milliseconds
LEFT = pa.schema({"ts": pa.timestamp("us"), "x": pa.int32(), "y": pa.float32()})
RIGHT = pa.schema({"ts": pa.timestamp("us"), "a": pa.int32(), "b": pa.float32()})
ON = "left.x BETWEEN right.a - 10 AND right.a + 10 AND left.y BETWEEN right.b - 10 AND right.b + 10"
SCANNED, WINDOW, WORKERS = 90, 50, 2  # windows in seconds of stream time
SCANS = (16, 256)  # tuples a push
TOPOLOGIES = ("three_step", "celljoin", "handshake", "low_latency_handshake", "scalejoin", "panjoin")
THROUGHPUTS = list(product(TOPOLOGIES, (256, 4096)))
LATENCY_SECONDS, LATENCY_BATCH, LATENCY_RATE = 4.0, 4, 2_000
TIMER_SLACK = 29  # PR_SET_TIMERSLACK: sleeps end on time
Array = np.ndarray[Any, Any]


class Streams:
    """A join, and the two streams that feed it."""

    def __init__(self, topology: Any, index: Any, window: float, workers: int, rate: int = RATE):
        self.random, self.at, self.rate = np.random.default_rng(SEED), 0, rate
        spec = sj.JoinSpec(LEFT, RIGHT, ON, sj.TimeWindow(f"{window:g} seconds"), "ts", "ts")
        self.join = sj.open_join(spec, topology, index, workers)

    def batches(self, count: int, rows: int) -> list[tuple[pa.RecordBatch, pa.RecordBatch]]:
        made = []
        for _ in range(count):
            micros = (self.at + np.arange(rows)) * 1_000_000 // self.rate
            self.at += rows
            made.append((self._side(LEFT, micros), self._side(RIGHT, micros)))
        return made

    def _side(self, schema: pa.Schema, micros: Array) -> pa.RecordBatch:
        keys = self.random.integers(1, 10_001, len(micros), dtype=np.int32)
        values = self.random.uniform(1, 10_000, len(micros)).astype(np.float32)
        columns = [pa.array(micros, pa.timestamp("us")), pa.array(keys), pa.array(values)]
        return pa.record_batch(columns, schema=schema)

    def push(self, made: list[tuple[pa.RecordBatch, pa.RecordBatch]]) -> None:
        for left, right in made:
            self.join.push("left", left)
            self.join.push("right", right)
            self.join.poll()


def scan_rate(batch: int, scale: float) -> float:
    """Tuples a second of processor time."""
    streams = Streams("three_step", "scan", SCANNED, 1)
    with streams.join:
        streams.push(streams.batches(SCANNED, RATE))
        made = streams.batches(max(4, round(scale * 6_000 / batch)), batch)
        started = time.process_time()
        streams.push(made)
        return 2 * len(made) * batch / (time.process_time() - started)


def throughput(topology: str, batch: int, scale: float) -> float:
    """Tuples a second until all pushes are joined, in windows that are full."""
    streams = Streams(topology, "auto", WINDOW, WORKERS)
    with streams.join:
        streams.push(streams.batches(WINDOW * RATE // 1_000, 1_000))
        made = streams.batches(max(3, round(scale * 60_000 / batch)), batch)
        started = time.perf_counter()
        streams.push(made)
        streams.join.finish()
        return 2 * len(made) * batch / (time.perf_counter() - started)


def latency(scale: float) -> float:
    """The mean latency in seconds, once windows are full."""
    ctypes.CDLL(None).prctl(TIMER_SLACK, 1)
    seconds = LATENCY_SECONDS * (1 + scale)
    streams = Streams("low_latency_handshake", "scan", LATENCY_SECONDS, WORKERS, LATENCY_RATE)
    period = LATENCY_BATCH / LATENCY_RATE
    made = streams.batches(int(seconds / period), LATENCY_BATCH)
    seen = []
    with streams.join as join:
        streams.push(made[:1])  # starts the threads
        gc.collect()
        gc.freeze()
        begin = time.perf_counter() - period
        for number, (left, right) in enumerate(made[1:], 1):
            due = begin + (number + 1) * period
            while (rest := due - time.perf_counter()) > 0:
                if found := join.poll(rest):
                    seen += [(time.perf_counter() - begin, batch) for batch in found]
            join.push("left", left)
            join.push("right", right)
        gc.unfreeze()
    late = [when - later_times(batch) for when, batch in seen if when > LATENCY_SECONDS]
    return float(np.concatenate(late).mean())


def later_times(batch: pa.RecordBatch) -> Array:
    """When the later tuple of each result was due, in seconds since the stream began."""
    times: Array = np.maximum(*(batch[name].cast("int64").to_numpy() for name in ("ts", "ts_right")))
    return times / 1e6


def cells() -> list[dict[str, Any]]:
    """What is measured, in the order of the numbers that a run prints."""
    scanned = [{"cell": "scan", "topology": "three_step", "batch": batch} for batch in SCANS]
    through = [{"cell": "throughput", "topology": name, "batch": batch} for name, batch in THROUGHPUTS]
    delayed = {"cell": "latency", "topology": "low_latency_handshake", "batch": LATENCY_BATCH}
    return [*scanned, *through, delayed]


def numbers(scale: float) -> list[float]:
    """The numbers of one run."""
    rates = [scan_rate(batch, scale) for batch in SCANS]
    rates += [throughput(topology, batch, scale) for topology, batch in THROUGHPUTS]
    return [*rates, latency(scale)]


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per cell. `ratio` is above 1 where this checkout is faster. Summary: the smallest ratios."""
    runs = alternated(HERE, 2 if quick else RUNS, 0.3 if quick else 1.0)
    rows: list[dict[str, Any]] = []
    for number, cell in enumerate(cells()):
        delay = cell["cell"] == "latency"
        best = {
            name: float(np.median(r[:, number]) if delay else r[:, number].max()) for name, r in runs.items()
        }
        unit = "seconds" if delay else "tuples_per_s"
        row = cell | {"unit": unit, "value": best[TREE], "base_value": best.get(BASE), "ratio": None}
        if BASE in best:
            row["ratio"] = best[BASE] / best[TREE] if delay else best[TREE] / best[BASE]
        rows.append(row)
    summary = {"allowed": 0.95}
    for kind in ("scan", "throughput", "latency"):
        ratios = [row["ratio"] for row in rows if row["cell"] == kind and row["ratio"] is not None]
        summary |= {f"smallest_ratio_{kind}": min(ratios)} if ratios else {}
    return {"rows": rows, "summary": summary}


if __name__ == "__main__":
    os.environ.setdefault("STREAMJOIN_COMPILE", "wait")
    print(json.dumps(numbers(float(sys.argv[1]))))
