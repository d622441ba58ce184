"""Latency of handshake and low-latency handshake join, over time and over workers (Roy et al. 2014, figures 5, 18-20).

The papers' 2-D band with both window configurations of the paper, scaled down from 200 seconds to 4, beside the model
of equation 8. Event times are wall-clock times: a batch is pushed when its last tuple is due, left and right in turns,
half a batch apart, and the driver polls in between. A result's latency counts from when its later tuple was due, so it
includes the wait for the batch and any delay of the push; `after push` excludes both. Batches are made before the
clock starts.

Full load is the rate at which a join with the windows of that rate takes batches about as fast as they can be pushed;
half load is half of it. Handshake join runs at the half load of low-latency handshake join, in batches of 64. Rows are
means over half a second of wall time; the summary covers the time after the windows are full.
"""

from __future__ import annotations

import gc
import time
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import streamjoin as sj
from benchmarks.shared.band import LEFT, PREDICATE, RIGHT, Streams, half_batch_micros
from benchmarks.shared.figures import Figure
from benchmarks.shared.timing import core_count
from streamjoin.topologies.runtime.placement import wake_on_time

SEED = 20140906
WINDOWS = ((4.0, 4.0), (2.0, 4.0))  # seconds, left and right
BATCHES = (64, 4)
WORKERS = (1, 2, 4)
BUCKET = 0.5  # seconds
FILL = 4096  # rows per batch while windows fill
SIDES = ("left", "right")
OURS, PLAIN = "low_latency_handshake", "handshake"
FIGURES = {
    "handshake_latency": Figure(
        "second",
        {"mean_ms": ""},
        "seconds",
        "mean latency, ms",
        where={
            "join": tuple(
                f"{topology}, 4 s and 4 s, batch {batch}, half load, 2 workers"
                for topology, batch in (
                    ("handshake", 64),
                    ("low_latency_handshake", 64),
                    ("low_latency_handshake", 4),
                )
            )
        },
        by="join",
        log=True,
    ),
}


class Case(NamedTuple):
    """One run: windows in seconds, rate in tuples per second and side."""

    topology: Any
    windows: tuple[float, float]
    batch: int
    load: str
    workers: int
    rate: int

    @property
    def name(self) -> str:
        windows = " and ".join(f"{seconds:g} s" for seconds in self.windows)
        return f"{self.topology}, {windows}, batch {self.batch}, {self.load} load, {self.workers} workers"


def open_case(topology: Any, windows: tuple[float, float], workers: int) -> sj.Join:
    left, right = (f"{round(1e6 * seconds)} microseconds" for seconds in windows)
    spec = sj.JoinSpec(LEFT, RIGHT, PREDICATE, sj.TimeWindow(left, right=right), "ts", "ts")
    return sj.open_join(spec, topology, "scan", workers)


def fastest(topology: Any, windows: tuple[float, float], batch: int, workers: int, rate: int) -> float:
    """Tuples per second and side that the join takes if pushed as fast as possible, with the windows of `rate`."""
    streams = Streams(rate, SEED, half_batch_micros(rate, batch))
    with open_case(topology, windows, workers) as join:
        for left, right in streams.batches(1 + int(max(windows) * rate) // FILL, FILL):
            push(join, left, right)
        made = streams.batches(max(200, 20_000 // batch), batch)
        began = time.perf_counter()
        for left, right in made:
            push(join, left, right)
        return len(made) * batch / (time.perf_counter() - began)


def push(join: sj.Join, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
    join.push("left", left)
    join.push("right", right)
    join.poll()


def full_load(topology: Any, windows: tuple[float, float], batch: int, workers: int) -> int:
    """The rate that the join just sustains. Capacity falls as windows grow, so iterate towards the fixed point."""
    rate = 4000.0
    for _ in range(3):
        rate = (rate * fastest(topology, windows, batch, workers, round(rate))) ** 0.5
    return round(rate)


def measure(case: Case, seconds: float) -> np.ndarray[Any, Any]:
    """A row per result, in seconds: when it was polled, and its latency since its later tuple was due and pushed."""
    period = case.batch / case.rate
    streams = Streams(case.rate, SEED, half_batch_micros(case.rate, case.batch))
    made = streams.batches(int(seconds / period) + 1, case.batch)
    pushed, polled = np.zeros(2 * len(made)), []
    wake_on_time()
    with open_case(case.topology, case.windows, case.workers) as join:
        push(join, *made[0])  # starts the threads
        gc.collect()
        gc.freeze()  # the collector would traverse the many batches
        begin = time.perf_counter() - 1.5 * period + 1 / case.rate
        number = 2  # batches pushed: even numbers are left, odd ones right
        pushed[:2] = begin
        while number < 2 * len(made):
            due = begin + (number / 2 + 1) * period - 1 / case.rate
            now = time.perf_counter()
            if now >= due:
                pushed[number] = now
                join.push(SIDES[number % 2], made[number // 2][number % 2])
                number += 1
            found = join.poll(max(0.0, due - now))
            if found:
                polled.append((time.perf_counter(), found))
        gc.unfreeze()
    return np.concatenate(
        [latencies(when, out, begin, pushed, case) for when, found in polled for out in found]
        or [np.zeros((0, 3))]
    )


def latencies(
    when: float, out: pa.RecordBatch, begin: float, pushed: np.ndarray[Any, Any], case: Case
) -> np.ndarray[Any, Any]:
    left, right = (out[name].cast("int64").to_numpy() for name in ("ts", "ts_right"))
    later, is_right = np.maximum(left, right), right > left
    micros = later - np.where(is_right, half_batch_micros(case.rate, case.batch), 0)
    number = 2 * ((micros * case.rate + 999_999) // 1_000_000 // case.batch) + is_right
    return np.column_stack(
        [np.full(len(later), when - begin), when - begin - later / 1e6, when - pushed[number]]
    )


def predicted(windows: tuple[float, float]) -> float:
    """The largest latency of handshake join by equation 8."""
    return windows[0] * windows[1] / (windows[0] + windows[1])


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per case and half second. Summary: one entry per case, once its windows are full."""
    scale = 0.25 if quick else 1.0
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for case in cases(scale, core_count()):
        seen = measure(case, 1.5 * max(case.windows))
        rows += over_time(case, seen, scale)
        steady = 1e3 * seen[seen[:, 0] > 1.1 * max(case.windows), 1:]
        summary[case.name] = {
            "rate": case.rate,
            "results": len(steady),
            "mean_ms": float(steady[:, 0].mean()),
            "p99_ms": float(np.quantile(steady[:, 0], 0.99)),
            "max_ms": float(steady[:, 0].max()),
            "mean_after_push_ms": float(steady[:, 1].mean()),
            "p99_after_push_ms": float(np.quantile(steady[:, 1], 0.99)),
            "wait_for_batch_ms": 1e3 * (case.batch - 1) / 2 / case.rate,
            **({"equation_8_max_ms": 1e3 * predicted(case.windows)} if case.topology == PLAIN else {}),
        }
    return {"rows": rows, "summary": summary}


def cases(scale: float, cores: int) -> list[Case]:
    chosen = []
    for windows in [(scale * left, scale * right) for left, right in WINDOWS]:
        for batch in BATCHES:
            full = full_load(OURS, windows, batch, cores)
            chosen.append(Case(OURS, windows, batch, "half", cores, full // 2))
            chosen.append(Case(OURS, windows, batch, "full", cores, full))
            if batch == BATCHES[0]:
                chosen.append(Case(PLAIN, windows, batch, "half", cores, full // 2))
            if windows[0] == windows[1]:
                others = [workers for workers in WORKERS if workers != cores]
                chosen += [Case(OURS, windows, batch, "half", workers, full // 2) for workers in others]
    return chosen


def over_time(case: Case, seen: np.ndarray[Any, Any], scale: float) -> list[dict[str, Any]]:
    buckets = (seen[:, 0] / (scale * BUCKET)).astype(int)
    return [
        {
            "join": case.name,
            "second": float((bucket + 1) * scale * BUCKET),
            "results": int((buckets == bucket).sum()),
            "mean_ms": 1e3 * float(seen[buckets == bucket, 1].mean()),
            "max_ms": 1e3 * float(seen[buckets == bucket, 1].max()),
        }
        for bucket in np.unique(buckets)
    ]
