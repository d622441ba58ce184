"""The papers' 2-D band join: its streams, a join that is fed from them, and the bare scan kernel.

R(x int32, y float32) is left, S(a int32, b float32) is right; keys are uniform in 1..10000, and two tuples match where
both keys differ by at most 10 (Teubner & Mueller 2011). Both streams bring `rate` tuples per second of
stream time, so that a window of 15 minutes holds 900 * rate of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import streamjoin as sj
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.scan.bands import MIN_SCAN_ROOM, BandShape, band_scan

WINDOW_SECONDS = 900
LEFT = pa.schema({"ts": pa.timestamp("us"), "x": pa.int32(), "y": pa.float32()})
RIGHT = pa.schema({"ts": pa.timestamp("us"), "a": pa.int32(), "b": pa.float32()})
PREDICATE = "left.x BETWEEN right.a - 10 AND right.a + 10 AND left.y BETWEEN right.b - 10 AND right.b + 10"
DOMAIN = 10_000  # keys lie in 1..DOMAIN
MATCHING = 21 * 20  # of domain ** 2 key pairs, those that a tuple matches: x is an integer, y is not
KERNEL_SEED = 20110612
Array = np.ndarray[Any, Any]
Push = tuple[pa.RecordBatch, pa.RecordBatch]


def open_band(seconds: float, on: str | Callable[..., Any] = PREDICATE, **options: Any) -> sj.Join:
    """Open the join with windows of `seconds` on both sides; `options` are those of `open_join`."""
    window = sj.TimeWindow(f"{seconds:g} seconds")
    return sj.open_join(sj.JoinSpec(LEFT, RIGHT, on, window, "ts", "ts"), **options)


def rows_at(micros: Array, schema: pa.Schema, random: np.random.Generator) -> pa.RecordBatch:
    """Rows of one side with these event times in microseconds, keys drawn from `random`."""
    keys = random.integers(1, DOMAIN + 1, len(micros), dtype=np.int32)
    values = random.uniform(1, DOMAIN, len(micros)).astype(np.float32)
    columns = [pa.array(micros, pa.timestamp("us")), pa.array(keys), pa.array(values)]
    return pa.record_batch(columns, schema=schema)


class Streams:
    """Both streams at `rate` tuples per second and side; the right one starts `behind` microseconds later."""

    def __init__(self, rate: int, seed: int, behind: int = 0):
        self.random = np.random.default_rng(seed)
        self.rate, self.behind, self.at = rate, behind, 0

    def batches(self, count: int, rows: int) -> list[Push]:
        """The next `count` batches of both streams; make them before the clock starts."""
        made = []
        for _ in range(count):
            micros = (self.at + np.arange(rows)) * 1_000_000 // self.rate
            self.at += rows
            made.append((self.side(LEFT, micros), self.side(RIGHT, micros + self.behind)))
        return made

    def side(self, schema: pa.Schema, micros: Array) -> pa.RecordBatch:
        return rows_at(micros, schema, self.random)


def half_batch_micros(rate: int, batch: int) -> int:
    """Half the time that a batch spans, in microseconds: how far right batches are behind left ones."""
    return batch * 500_000 // rate


class FedJoin(Streams):
    """A join together with the streams that feed it."""

    def __init__(self, join: sj.Join, rate: int, seed: int):
        super().__init__(rate, seed)
        self.join = join

    def fill(self, seconds: int, at_once: int = 10) -> None:
        """Push `seconds` of stream time, `at_once` of them in each batch."""
        for _ in range(seconds // at_once):
            self.step(*self.batches(1, at_once * self.rate)[0])

    def step(self, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
        """Push one batch to each side and poll; return the number of results."""
        self.join.push("left", left)
        self.join.push("right", right)
        return sum(out.num_rows for out in self.join.poll())


class Kernel:
    """The bare scan kernel of the predicate, over the arrays of two windows in turns."""

    def __init__(self, window: int):
        self.random, self.window = np.random.default_rng(KERNEL_SEED), window
        self.scan = band_scan(((BandShape(0, "i4"),), (BandShape(1, "f4"),)))
        self.windows = [(self._integers(window), self._floats(window)) for _ in range(2)]
        self.out = np.empty(4 * MIN_SCAN_ROOM, np.int32), np.empty(4 * MIN_SCAN_ROOM, np.int32)

    def _integers(self, count: int) -> Array:
        return self.random.integers(1, DOMAIN + 1, count, dtype=np.int32)

    def _floats(self, count: int) -> Array:
        return self.random.uniform(1, DOMAIN, count).astype(np.float32)

    def probes(self, batch: int, side: int) -> tuple[Any, ...]:
        """The arguments of one call, in which each probe meets the whole window of one side."""
        keys, values = self._integers(batch), self._floats(batch)
        lows = keys - np.int32(10), values - np.float32(10)
        highs = keys + np.int32(10), values + np.float32(10)
        whole = np.zeros(batch, np.int64), np.full(batch, self.window, np.int64)
        return *whole, self.windows[side], lows, highs

    def run(self, calls: list[tuple[Any, ...]]) -> None:
        """Scan with the arguments of each call and discard the pairs."""
        cursor = np.zeros(CURSOR_SIZE, np.int64)
        for arguments in calls:
            cursor[:] = 0
            while cursor[0] != DONE:
                self.scan(*arguments, cursor, *self.out, 0)

    def measure(self, count: int, batch: int) -> float:
        """Processor seconds for `count` batches to each side, which is twice as many calls."""
        calls = [self.probes(batch, call % 2) for call in range(2 * count)]
        started = time.process_time()
        self.run(calls)
        return time.process_time() - started
