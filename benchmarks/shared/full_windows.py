"""Joins with full windows of 15 minutes, and the highest rate they sustain.

At `rate` tuples per second and side a window holds 900 * rate tuples. It is filled before the measurement, and stays
full because stream time advances with every push. While it fills, most probes are dropped (see filling.py).

A join sustains a rate if it takes `rate` tuples per side in less than a second while its windows are full: its
capacity is at least the rate. Capacity falls as windows grow; the sustained rate is where the two meet. The process
may take only a part of the memory: rates whose windows would need more are skipped with a message.
"""

from __future__ import annotations

import math
import resource
import time
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.shared.band import LEFT, WINDOW_SECONDS, Array, Streams, open_band
from benchmarks.shared.filling import few_probes

SEED = 20140901
# Probes that each push sends to a window while it fills: index="auto" learns from them, fixed indexes do not.
AUTO_PROBES, FIXED_PROBES = 1024, 16
FILL_ROWS = 1 << 18
# Fill until the oldest subwindows have expired: they were chosen when the window was small.
FILLED = 1.25
PUSH_SECONDS = 0.25  # stream time per push: the longest that a tuple waits for its batch
MOST_RESULTS = 1 << 26
RUNS = 5
# Upper bounds of memory: per tuple (window, row and merge buffers), for everything else, and of the process.
BYTES_PER_TUPLE, OTHER_BYTES = 27, 1 << 29
MOST_BYTES = 21 << 30
ROW_BYTES = sum(field.type.bit_width for field in LEFT) // 8


class FullWindows(Streams):
    """A join with keys uniform in 1..domain, filled and measured on creation; `measured` holds the columns of a row."""

    def __init__(
        self,
        predicate: str,
        rate: int,
        domain: int,
        index: Any,
        workers: int,
        seconds: float,
        batch: int | None = None,
    ):
        super().__init__(rate, SEED)
        self.domain = domain
        options = {"topology": "three_step", "index": index, "workers": workers, "max_results": MOST_RESULTS}
        self.join = open_band(WINDOW_SECONDS, predicate, **options)
        started = time.perf_counter()
        with few_probes(self.join, AUTO_PROBES if index == "auto" else FIXED_PROBES) as next_push:
            while self.at < FILLED * WINDOW_SECONDS * rate:
                next_push()
                self.step(*self.batches(1, min(FILL_ROWS, WINDOW_SECONDS * rate))[0])
        fill_seconds = time.perf_counter() - started
        stats = self.join.stats()
        self.measured = {
            "rate": rate,
            "window": WINDOW_SECONDS * rate,
            "domain": domain,
            **self.capacity(seconds, batch or max(1, round(PUSH_SECONDS * rate))),
            "bytes_per_tuple": stats.window_bytes / (stats.left_window + stats.right_window) + ROW_BYTES,
            "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            / 2**20,  # the peak of all rates so far
            "fill_seconds": fill_seconds,
        }
        self.join.close()

    def side(self, schema: pa.Schema, micros: Array) -> pa.RecordBatch:
        keys = self.random.integers(1, self.domain + 1, len(micros), dtype=np.int32)
        values = self.random.random(len(micros), dtype=np.float32)
        values *= self.domain - 1
        values += 1
        columns = [pa.array(micros, pa.timestamp("us")), pa.array(keys), pa.array(values)]
        return pa.record_batch(columns, schema=schema)

    def step(self, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
        """Push one batch to each side and take the result rows; return their number."""
        found = 0
        for side, batch in (("left", left), ("right", right)):
            self.join.push(side, batch)
            found += sum(int(out.num_rows) for out in self.join.poll())
        return found

    def capacity(self, seconds: float, rows: int) -> dict[str, float]:
        """Tuples per second and side that the join takes in batches of `rows`, and the results per tuple.

        The best and the worst of RUNS, each of about `seconds`, after one that warms up.
        """
        count, best, worst, matches = 1, np.inf, 0.0, 0.0
        for number in range(RUNS + 1):
            made = self.batches(count, rows)
            started = time.perf_counter()
            found = sum(self.step(*push) for push in made)
            taken = (time.perf_counter() - started) / count
            if number:
                best, worst, matches = min(best, taken), max(worst, taken), found / (2 * count * rows)
            else:
                count = max(1, round(seconds / taken))
        return {
            "batch": rows, "capacity": rows / best, "worst": rows / worst, "results_per_tuple": matches
        }  # fmt: skip


def fits(rate: int, bytes_per_tuple: int = BYTES_PER_TUPLE) -> bool:
    """Whether full windows fit into memory; prints a message if not."""
    needed = 2 * WINDOW_SECONDS * rate * bytes_per_tuple + OTHER_BYTES
    most = min(MOST_BYTES, psutil.virtual_memory().available)
    if needed > most:
        print(
            f"skipping {rate:,} tuples/s: windows need {needed / 2**30:.1f} GiB, available are {most / 2**30:.1f}"
        )
    return bool(needed <= most)


def sustained(rows: list[dict[str, Any]]) -> float:
    """The rate that equals its capacity, interpolated between two measured rates on a logarithmic scale.

    `rows` are sorted by rate. If the highest measured rate is below its capacity, returns that rate.
    """
    above = [row for row in rows if row["capacity"] >= row["rate"]]
    if not above:
        raise ValueError(
            f"no measured rate is sustained, not even {rows[0]['rate']:,} tuples/s: add lower rates"
        )
    low = above[-1]
    if low is rows[-1]:
        return float(low["rate"])
    high = rows[rows.index(low) + 1]
    lows, highs = (math.log(row["capacity"] / row["rate"]) for row in (low, high))
    return float(low["rate"] * (high["rate"] / low["rate"]) ** (lows / (lows - highs)))
