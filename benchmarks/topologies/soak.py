"""Ten minutes of a steady stream through every topology: do memory, threads and descriptors stay flat?

Each topology runs in its own process, pinned to a core. A join stays open for the whole run and joins 10,000 rows per
second and side by an equality. Three sources per side push small batches and single rows. Some rows come out of order,
and a few of them too late. The windows span five seconds of stream time. They are full when the clock starts, and
expire all the time. Twice a second another join of the same topology is opened, used, and left in one of four ways:
finished, closed halfway, dropped without a call, or failed in the middle of its work. Output order and index differ
each time.

A sample is taken every five seconds, after a garbage collection, when only the first join is open. Memory, objects,
threads and descriptors are flat if a line fitted to the second half of the run rises by no more than its bound; threads
and descriptors may not rise at all. Windows and pushed rows go up and down by a third, as whole subwindows and batches
expire, so that a line would depend on where the run happens to end. They are flat if their peak in the second half
exceeds that in the first by no more than its bound.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import count, product
from typing import Any, get_args

import numpy as np
import psutil
import pyarrow as pa

import streamjoin as sj
from benchmarks.shared.figures import Figure
from benchmarks.shared.flatness import rise
from benchmarks.shared.timing import core_count
from streamjoin.plan.options import TopologyName

TOPOLOGIES: tuple[TopologyName, ...] = get_args(TopologyName)
SEED = 20030304
SECONDS, EVERY = 600.0, 5.0
TICKS_PER_SECOND = 20  # of real and of stream time
ROWS = 160  # per tick and source
SOURCES = ("a", "b", "c")
KEYS = 50_000  # one match per row, about
WINDOW, LATENESS = 5_000, 40  # milliseconds
ORDERS, INDEXES = ("any", "punctuated", "timestamp"), ("auto", "scan", "hash")
ENDS = ("finish", "close", "drop", "fail")
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int32()), ("word", pa.string())])
WORDS = np.array([f"word {number}" for number in range(1_000)])
LINES = {
    "resident_mb": 0.03,
    "objects": 0.01,
    "threads": 0.0,
    "descriptors": 0.0,
}  # rise, as a fraction of the mean
PEAKS = {"window_rows": 0.05, "payload_rows": 0.05}  # rise of the peak, as a fraction of the first half's
FIGURES = {
    "soak": Figure("seconds", {"resident_mb": ""}, "seconds", "resident memory, MB", by="topology"),
}


def rows_of(random: np.random.Generator, ts: np.ndarray, keys: int = KEYS) -> pa.RecordBatch:
    """Rows at these times, with random keys and words."""
    size = len(ts)
    columns = [
        ts,
        random.integers(0, keys, size, dtype=np.int32),
        WORDS[random.integers(0, len(WORDS), size)],
    ]
    return pa.record_batch([pa.array(column) for column in columns], schema=SCHEMA)


def ticks(random: np.random.Generator) -> Iterator[dict[str, list[pa.RecordBatch]]]:
    """For each tick, by source: a batch, of which a few rows are out of order and one may be late, and a single row."""
    step = 1_000 // TICKS_PER_SECOND
    for tick in count(1):
        batches = {}
        for name in SOURCES:
            ts = np.sort(random.integers(tick * step, (tick + 1) * step, ROWS))
            ts[random.integers(0, ROWS, 3)] -= LATENESS // 2
            ts[random.integers(0, ROWS)] -= 2 * LATENESS
            batches[name] = [rows_of(random, ts), rows_of(random, np.array([(tick + 1) * step]))]
        yield batches


def open_join(topology: TopologyName, window: int = WINDOW, **options: Any) -> sj.Join:
    spec = sj.JoinSpec(
        SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(window), "ts", "ts", lateness=LATENESS
    )
    return sj.open_join(spec, topology, workers=2, **options)


class Stream:
    """The join that stays open."""

    def __init__(self, topology: TopologyName):
        self.join = open_join(topology)
        self.matches = 0
        self._sources = {
            side: {name: self.join.source(side, name) for name in SOURCES} for side in ("left", "right")
        }
        self._ticks = {side: ticks(np.random.default_rng([SEED, n])) for n, side in enumerate(self._sources)}

    def tick(self) -> None:
        for side, sources in self._sources.items():
            for name, batches in next(self._ticks[side]).items():
                for batch in batches:
                    while True:
                        try:
                            sources[name].push(batch)
                            break
                        except sj.Backpressure:
                            self.poll()
        self.poll()
        self.join.late("left")

    def poll(self) -> None:
        self.matches += sum(batch.num_rows for batch in self.join.poll())


class Interrupted(Exception):
    """What the work of a short join fails with."""


def use_short_joins(topology: TopologyName) -> Iterator[None]:
    """Open a join, use it, and leave it, again and again, in all combinations of order, index and end."""
    random = np.random.default_rng(SEED)
    while True:
        for order, index, end in product(ORDERS, INDEXES, ENDS):
            use_short_join(open_join(topology, 1_000, order=order, index=index), random, end)
            yield


def use_short_join(join: sj.Join, random: np.random.Generator, end: str) -> None:
    for number in range(4):
        ts = np.sort(random.integers(number * 100, (number + 1) * 100, 500))
        for side in ("left", "right"):
            join.push(side, rows_of(random, ts, 500))
        join.poll()
    if end == "fail":
        topology: Any = join._topology
        topology.step = fail
        with suppress(Interrupted, sj.StreamJoinError):
            join.push("left", rows_of(random, ts, 500))
    elif end != "drop":
        getattr(join, end)()


def fail(_: float) -> Any:
    raise Interrupted


def soak(topology: TopologyName, seconds: float, every: float, core: int) -> list[dict[str, Any]]:
    """Run one topology; its samples."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    process, stream, short = psutil.Process(), Stream(topology), use_short_joins(topology)
    for _ in product(ORDERS, INDEXES, ENDS):  # which compiles what they need
        next(short)
    for _ in range(2 * WINDOW * TICKS_PER_SECOND // 1_000):  # the windows are full, then
        stream.tick()
    rows: list[dict[str, Any]] = []
    begin, opened = time.monotonic(), 0
    for tick in count():
        stream.tick()
        if tick % (TICKS_PER_SECOND // 2) == 0:
            next(short)
            opened += 1
        passed = time.monotonic() - begin
        if passed >= every * (len(rows) + 1):
            sizes = {"seconds": round(passed), "tick": tick, "short_joins": opened, **sample(process, stream)}
            rows.append({"topology": topology, **sizes})
        if passed >= seconds:
            return rows
        time.sleep(max(0.0, (tick + 1) / TICKS_PER_SECOND - passed))
    raise AssertionError("ticks have no end")


def sample(process: psutil.Process, stream: Stream) -> dict[str, float]:
    gc.collect()
    stats = stream.join.stats()
    return {
        "resident_mb": process.memory_info().rss / 1e6,
        "objects": len(gc.get_objects()),
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
        "window_rows": stats.left_window + stats.right_window,
        "payload_rows": stats.payload_rows,
        "rows": stats.tuples,
        "late": stats.left_late + stats.right_late,
        "matches": stream.matches,
    }


def verdict(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How much each bounded column rises in a topology's samples."""
    half = rows[-1]["seconds"] / 2
    first, second = [r for r in rows if r["seconds"] < half], [r for r in rows if r["seconds"] >= half]
    peaks = {column: [max(row[column] for row in part) for part in (first, second)] for column in PEAKS}
    return {column: rise(second, column) for column in LINES} | {
        column: after / max(before, 1) - 1 for column, (before, after) in peaks.items()
    }


def is_flat(rises: dict[str, float]) -> bool:
    """Whether no column rises by more than its bound; a billionth is an error of rounding."""
    return all(rises[column] <= bound + 1e-9 for column, bound in (LINES | PEAKS).items())


def run(quick: bool) -> dict[str, Any]:
    """Rows: the samples of every topology. Summary: whether all are flat, and what rises most."""
    seconds, every = (30.0, 1.0) if quick else (SECONDS, EVERY)
    spawn = multiprocessing.get_context("spawn")
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    with ProcessPoolExecutor(min(2, core_count()), mp_context=spawn, max_tasks_per_child=1) as pool:
        runs = [
            pool.submit(soak, topology, seconds, every, cores[number % len(cores)])
            for number, topology in enumerate(TOPOLOGIES)
        ]
        samples = {topology: each.result() for topology, each in zip(TOPOLOGIES, runs, strict=True)}
    rises = {topology: verdict(rows) for topology, rows in samples.items()}
    return {
        "rows": [row for rows in samples.values() for row in rows],
        "summary": {
            "all flat": all(map(is_flat, rises.values())),
            **{f"{topology} flat": is_flat(each) for topology, each in rises.items()},
            **{
                f"{topology}, rise of resident memory over the second half, %": 100 * each["resident_mb"]
                for topology, each in rises.items()
            },
            **{f"{topology}, rows": rows[-1]["rows"] for topology, rows in samples.items()},
        },
    }
