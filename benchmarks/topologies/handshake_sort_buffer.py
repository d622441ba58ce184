"""How many results wait to be sorted, over workers (Roy et al. 2014, figure 21).

Both handshake joins with `order="timestamp"`. Streams are pushed by the clock, as in `handshake_latency`: batches of
64 at 6,000 tuples per second and side, windows of 2 seconds. The papers' 2-D band is five times as wide in both
attributes, to give enough results to sort. The buffer is measured where it is fullest: after results are collected and
before sorted ones leave. Rows report its maximum once the windows are full. `window_results` is the most results
within a window of time: what a sorter would have to hold that knows the windows but gets no punctuations.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import streamjoin as sj
from benchmarks.shared.band import Streams, half_batch_micros, open_band
from benchmarks.shared.figures import Figure

ON = "left.x BETWEEN right.a - 50 AND right.a + 50 AND left.y BETWEEN right.b - 50 AND right.b + 50"
SEED = 20140906
SIDES = ("left", "right")
WINDOW = 2.0  # seconds
RATE = 6_000
BATCH = 64
WORKERS = (1, 2, 4, 8)
TOPOLOGIES: Any = ("low_latency_handshake", "handshake")
FIGURES = {
    "handshake_sort_buffer": Figure(
        "workers",
        {
            "low_latency_buffer": "low-latency handshake join",
            "handshake_buffer": "handshake join",
            "window_results": "without punctuations",
        },
        "workers",
        "most results waiting to be sorted",
        log=True,
    ),
}


def run_clocked(join: sj.Join, seconds: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Push both streams by the clock.

    Returns (seconds, results in the sort buffer) at each collection, and the times of all results in seconds.
    """
    collector: Any = join._topology._collector  # type: ignore[attr-defined]
    release, sizes, times = collector.release, [], []

    def measured_release(bound: float) -> None:
        sizes.append((time.perf_counter() - began, collector.waiting))
        release(bound)

    collector.release = measured_release
    streams = Streams(RATE, SEED, half_batch_micros(RATE, BATCH))
    made = streams.batches(int(seconds * RATE) // BATCH, BATCH)
    number, began = 0, time.perf_counter()
    while number < 2 * len(made):
        if time.perf_counter() - began >= number * BATCH / RATE / 2:
            join.push(SIDES[number % 2], made[number // 2][number % 2])
            number += 1
        else:
            time.sleep(1e-4)
        times += [later(batch) for batch in join.poll()]
    times += [later(batch) for batch in join.finish().to_batches()]
    return np.array(sizes).reshape(-1, 2), np.concatenate(times)


def later(batch: Any) -> np.ndarray[Any, Any]:
    """The result times of a batch: the later time of each pair."""
    left, right = (batch[name].cast("int64").to_numpy() for name in ("ts", "ts_right"))
    times: np.ndarray[Any, Any] = np.maximum(left, right) / 1e6
    return times


def within_a_window(times: np.ndarray[Any, Any]) -> int:
    """The most results whose times lie within a window; `times` are sorted."""
    return int((np.arange(1, len(times) + 1) - times.searchsorted(times - WINDOW)).max())


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per number of workers. Summary: the largest buffer of each join."""
    rows = []
    for workers in WORKERS[:2] if quick else WORKERS:
        row: dict[str, Any] = {"workers": workers, "rate": RATE}
        for topology in TOPOLOGIES:
            options = {"topology": topology, "index": "scan", "workers": workers, "order": "timestamp"}
            with open_band(WINDOW, ON, **options) as join:
                sizes, times = run_clocked(join, 3 * WINDOW)
            full = sizes[sizes[:, 0] > 1.5 * WINDOW, 1]
            name = topology.removesuffix("_handshake")
            row |= {f"{name}_buffer": int(full.max()), f"{name}_mean": float(full.mean())}
        row |= {"window_results": within_a_window(times), "results": len(times)}
        rows.append(row)
    return {"rows": rows, "summary": summary(rows)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    most = {what: max(row[what] for row in rows) for what in ("low_latency_buffer", "handshake_buffer")}
    least = min(row["window_results"] for row in rows)
    return {
        **most,
        "window_results": least,
        "without_punctuations_over_with": least / most["low_latency_buffer"],
    }
