"""Latency over time of handshake and low-latency handshake join, with both window configurations of Roy et al. (2014),
figures 5, 19 and 20, scaled down from 200 seconds to 4, beside the model of equation 8.

The papers' 2-D band. Event times are the wall's: a batch is pushed when its last tuple is due, left and right in turns,
and results are polled all the time. A result's latency counts from when its later tuple was due, so it contains the
wait for its batch; `after push` does not. Rows are means over half a second of wall time, with the greatest latency in
it. `load` is the rate that was pushed over that at which the same join takes batches as fast as they can be pushed.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.three_step import LEFT, PREDICATE, RIGHT

import streamjoin as sj

SEED = 20140906
WINDOWS = ((4.0, 4.0), (2.0, 4.0))  # seconds, left and right
RATES = {64: 6400, 4: 1600}  # tuples a second of a side, by size of batch
BUCKET = 0.5  # seconds


class Paced:
    """A join that is pushed to by the clock."""

    def __init__(self, topology: str, windows: tuple[float, float], batch: int, scale: float):
        self.random, self.batch, self.rate = np.random.default_rng(SEED), batch, RATES[batch]
        left, right = (f"{round(1e6 * scale * seconds)} microseconds" for seconds in windows)
        spec = sj.JoinSpec(LEFT, RIGHT, PREDICATE, sj.TimeWindow(left, right=right), "ts", "ts")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.join = sj.open_join(spec, topology, "scan", workers=cores)
        self.at = 0

    def next_batches(self) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        micros = (self.at + np.arange(self.batch)) * 1_000_000 // self.rate
        self.at += self.batch
        return self._side(LEFT, micros), self._side(RIGHT, micros)

    def _side(self, schema: pa.Schema, micros: np.ndarray[Any, Any]) -> pa.RecordBatch:
        keys = self.random.integers(1, 10_001, len(micros), dtype=np.int32)
        values = self.random.uniform(1, 10_000, len(micros)).astype(np.float32)
        return pa.record_batch(
            [pa.array(micros, pa.timestamp("us")), pa.array(keys), pa.array(values)], schema=schema
        )

    def run(self, seconds: float) -> np.ndarray[Any, Any]:
        """A row for each result, in seconds: when it was polled, how long after its later tuple was due, and pushed."""
        self._push()  # the first batch starts the threads
        begin = time.perf_counter() - self.at / self.rate
        pushed = [begin] * (self.at // self.batch)
        seen = []
        while (now := time.perf_counter() - begin) < seconds:
            if now >= self.at / self.rate + self.batch / self.rate:
                pushed.append(time.perf_counter())
                self._push()
            else:
                time.sleep(0.0001)
            for out in self.join.poll():
                later = np.maximum(*(out[name].cast("int64").to_numpy() for name in ("ts", "ts_right")))
                polled = time.perf_counter()
                since_push = (
                    polled - np.array(pushed)[(later * self.rate + 999_999) // 1_000_000 // self.batch]
                )
                when = np.full(len(later), polled - begin)
                seen.append(np.column_stack([when, polled - begin - later / 1e6, since_push]))
        return np.concatenate(seen) if seen else np.zeros((0, 3))

    def _push(self) -> None:
        for side, rows in zip(("left", "right"), self.next_batches(), strict=True):
            self.join.push(side, rows)

    def fastest(self, seconds: float) -> float:
        """Tuples a second of a side, pushed as fast as they are taken."""
        started, before = time.perf_counter(), self.at
        while (took := time.perf_counter() - started) < seconds:
            self._push()
            self.join.poll()
        return (self.at - before) / took


def predicted(windows: tuple[float, float]) -> float:
    """The greatest latency of handshake join by equation 8."""
    return windows[0] * windows[1] / (windows[0] + windows[1])


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per topology, windows, batch and half second. Summary: once the windows are full."""
    scale = 0.25 if quick else 1.0
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for topology, windows, batch in cases():
        paced = Paced(topology, windows, batch, scale)
        seen = paced.run(scale * 2 * max(windows))
        load = paced.rate / paced.fastest(0.5)
        paced.join.close()
        name = f"{topology} {windows[0]:g} s, {windows[1]:g} s, batch {batch}"
        rows += over_time(name, seen, scale)
        steady = 1e3 * seen[seen[:, 0] > scale * 1.1 * max(windows), 1:]
        if len(steady):
            summary[f"{name}: mean ms"], summary[f"{name}: mean ms after push"] = map(
                float, steady.mean(axis=0)
            )
            summary[f"{name}: p99 ms"], summary[f"{name}: p99 ms after push"] = map(
                float, np.quantile(steady, 0.99, axis=0)
            )
            summary[f"{name}: max ms"] = float(steady[:, 0].max())
        summary[f"{name}: load"] = load
        if topology == "handshake":
            summary[f"{name}: predicted max ms"] = 1e3 * scale * predicted(windows)
    return {"rows": rows, "summary": summary}


def cases() -> list[tuple[str, tuple[float, float], int]]:
    plain = [("handshake", windows, 64) for windows in WINDOWS]
    return plain + [("low_latency_handshake", windows, batch) for batch in RATES for windows in WINDOWS]


def over_time(name: str, seen: np.ndarray[Any, Any], scale: float) -> list[dict[str, Any]]:
    buckets = (seen[:, 0] / (scale * BUCKET)).astype(int)
    return [
        {
            "join": name,
            "second": float((bucket + 1) * scale * BUCKET),
            "results": int((buckets == bucket).sum()),
            "mean_ms": 1e3 * float(seen[buckets == bucket, 1].mean()),
            "max_ms": 1e3 * float(seen[buckets == bucket, 1].max()),
        }
        for bucket in np.unique(buckets)
    ]
