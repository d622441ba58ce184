"""What the benchmarks of whole joins share: two streams with full windows of 15 minutes, and the rate they can keep.

At `rate` tuples a second and side a window holds 900 * rate tuples. It is filled before anything is measured, and
stays full because stream time goes on with every push. Filling it as a stream would takes 15 minutes of the
stream's time and finds as many results, so meanwhile only the first few probes of each push are let through to the
windows: enough for an index to see what it is asked.

A join can keep a rate if it takes `rate` tuples a side in less than a second while its windows are full: its capacity
is at least the rate. Capacity falls as windows grow; where it meets the rate is the sustained rate. What a process may
take of the memory is bounded: a rate whose windows would need more is left out, and a line says so.
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
FEW, FEW_UNSEEN = 1024, 16  # the latter where the index is fixed, and learns nothing from probes
FILL_ROWS = 1 << 18
# Windows that are just full have subwindows from when they were smaller, and suited that: until those are gone, too.
FILLED = 1.25
PUSH_SECONDS = 0.25  # of stream time in a push, which is what a tuple waits for its batch at most
MOST_RESULTS = 1 << 26
RUNS = 5
# At most, of windows, their rows and what is merged; and of all else.
BYTES_PER_TUPLE, OTHER_BYTES = 27, 1 << 29
MOST_BYTES = 21 << 30
ROW_BYTES = sum(field.type.bit_width for field in LEFT) // 8


class FullWindows(Streams):
    """A join of R(x int32, y float32) and S(a int32, b float32), keys uniform in 1..domain, filled and measured;
    `measured` are the columns of a row."""

    def __init__(
        self,
        predicate: str,
        rate: int,
        domain: int,
        index: str,
        workers: int,
        seconds: float,
        batch: int | None = None,
    ):
        super().__init__(rate, SEED)
        self.domain = domain
        options = {"topology": "three_step", "index": index, "workers": workers, "max_results": MOST_RESULTS}
        self.join = open_band(WINDOW_SECONDS, predicate, **options)
        started = time.perf_counter()
        with few_probes(self.join, FEW if index == "auto" else FEW_UNSEEN) as next_push:
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
            "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,  # of all rates so far
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
        """Push one batch a side and take the results, as rows; how many there are."""
        found = 0
        for side, batch in (("left", left), ("right", right)):
            self.join.push(side, batch)
            found += sum(int(out.num_rows) for out in self.join.poll())
        return found

    def capacity(self, seconds: float, rows: int) -> dict[str, float]:
        """Tuples a second and side that the join takes, the best and the worst of RUNS after one that warms up, each of
        about `seconds`, in batches of `rows`; and the results a tuple."""
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
    """Whether the memory is enough for full windows; if not, says so."""
    needed = 2 * WINDOW_SECONDS * rate * bytes_per_tuple + OTHER_BYTES
    most = min(MOST_BYTES, psutil.virtual_memory().available)
    if needed > most:
        print(
            f"{rate:,} tuples a second and side are left out: {needed / 2**30:.1f} GiB, of {most / 2**30:.1f}"
        )
    return bool(needed <= most)


def sustained(rows: list[dict[str, Any]]) -> float:
    """The rate that equals its capacity: between two measured rates on a straight line of their logarithms; the
    largest measured rate, if its capacity is larger still. Rates rise."""
    above = [row for row in rows if row["capacity"] >= row["rate"]]
    if not above:
        raise ValueError(f"no rate was kept; the least measured one is {rows[0]['rate']:,}")
    low = above[-1]
    if low is rows[-1]:
        return float(low["rate"])
    high = rows[rows.index(low) + 1]
    lows, highs = (math.log(row["capacity"] / row["rate"]) for row in (low, high))
    return float(low["rate"] * (high["rate"] / low["rate"]) ** (lows / (lows - highs)))
