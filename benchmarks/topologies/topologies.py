"""Every topology over predicate, window, batch, output order and number of workers: which one wins where?

Three predicates over R(x int32, y float32) and S(a int32, b float32): an equality, which is hashed; a 2-D band, which
is indexed or scanned, whichever is faster; and a distance that no index supports, so that everything is compared.
Windows hold `window` tuples per side and are filled as by a stream. A run pushes batches to each side in turns, polls
after each, and ends when everything is joined. The clock is wall time; the best of five runs counts. All topologies
with all numbers of workers stay open side by side and take turns, so that a slow minute affects all of them.

The ceiling beside them is the bare scan of the predicate by as many pinned threads, each with its share of both
windows and with prepared probes. Topologies that do not compare everything may exceed it.

`settled_ms` is the time from the last push of a run until its last tuple is joined: how long a tuple waits under full
load. In handshake join a tuple meets its partners only as later ones move it on, so its runs end when nothing is
compared any more.

Every topology runs twice: as it is, and with a `latency` that lets results wait, so that pushes are collected and
joined together. The choice of `topology="auto"` on all cores is compared with the best of the grid. Where results must
be ready when push() returns, its rivals are the topologies that promise so; where they may wait, every topology with
any number of workers, with and without `latency`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import streamjoin as sj
from benchmarks.shared.figures import Figure
from benchmarks.shared.timing import core_count, seconds_together
from streamjoin.index.times import Reach
from streamjoin.index.tuples import Tuples
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import TOPOLOGY_NAMES, Options

SEED = 20261115
RUNS = 5
LEFT = pa.schema({"ts": pa.int64(), "x": pa.int32(), "y": pa.float32()})
RIGHT = pa.schema({"ts": pa.int64(), "a": pa.int32(), "b": pa.float32()})
PREDICATES = {
    "equality": "left.x = right.a",
    "band": "left.x BETWEEN right.a - 10 AND right.a + 10 AND left.y BETWEEN right.b - 10 AND right.b + 10",
    "distance": "ABS(left.x - right.a) + ABS(left.y - right.b) < 10",
}
DOMAIN = {"equality": 100_000, "band": 10_000, "distance": 10_000}
KERNEL = "bare kernel"
PROMPT = ("three_step", "celljoin")  # results are ready when push() returns
PATIENT = 1.0  # seconds that results may wait
NEAR = 0.9  # near the best: at least this share of its rate
QUIET_SECONDS = 0.02  # handshake join has settled after this long without a comparison

Way = tuple[str, int, float | None]  # a way to run a join: topology, workers, latency
FIGURES = {
    "topologies": Figure(
        "batch",
        {"tuples_per_s": ""},
        "tuples per batch; band, windows of 50,000, two workers",
        "tuples/s per side",
        where={"predicate": "band", "window": 50_000, "order": "any", "workers": 2, "latency": None},
        by="topology",
        log=True,
    ),
}


class Filled:
    """A join with full windows; event times number the tuples."""

    def __init__(
        self,
        topology: Any,
        kind: str,
        window: int,
        order: Any,
        workers: int,
        latency: float | None = None,
        index: Any = "auto",
    ):
        self.random, self.at, self.kind = np.random.default_rng(SEED), 0, kind
        self.quiet = QUIET_SECONDS if topology == "handshake" else 0.0
        spec = sj.JoinSpec(LEFT, RIGHT, PREDICATES[kind], sj.TimeWindow(window), "ts", "ts")
        self.join = sj.open_join(spec, topology, index, workers, order, latency=latency)
        for _ in range(window // 1_000):
            self.push(*self.batches(1, 1_000)[0])
        self.settle()

    def batches(self, count: int, rows: int) -> list[tuple[pa.RecordBatch, pa.RecordBatch]]:
        made = []
        for _ in range(count):
            ts = np.arange(self.at, self.at + rows)
            self.at += rows
            made.append((self._side(LEFT, ts), self._side(RIGHT, ts)))
        return made

    def _side(self, schema: pa.Schema, ts: np.ndarray[Any, Any]) -> pa.RecordBatch:
        domain = DOMAIN[self.kind]
        keys = self.random.integers(1, domain + 1, len(ts), dtype=np.int32)
        values = self.random.uniform(1, domain, len(ts)).astype(np.float32)
        return pa.record_batch([pa.array(ts), pa.array(keys), pa.array(values)], schema=schema)

    def push(self, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        for side, batch in (("left", left), ("right", right)):
            self.join.push(side, batch)
            self.join.poll()

    def settle(self) -> float:
        """Wait until everything that can be joined is; return the seconds of idle waiting."""
        topology, low = self.join._topology, self.at - 1  # the time of the last tuples
        compared, since = 0, time.perf_counter()
        while True:
            self.join.poll()
            now, total = time.perf_counter(), sum(topology.comparisons)
            if total > compared:
                compared, since = total, now
            if now - since >= self.quiet and (self.quiet or topology.least_result_time >= low):
                return now - since if self.quiet else 0.0
            time.sleep(0.0005)

    def measure(self, count: int, rows: int) -> tuple[float, float]:
        """Seconds for `count` batches to each side, and the part of them after the last push."""
        made = self.batches(count, rows)
        started = time.perf_counter()
        for left, right in made:
            self.push(left, right)
        pushed = time.perf_counter()
        idle = self.settle()
        ended = time.perf_counter() - idle
        return ended - started, max(0.0, ended - pushed)


class Bare:
    """The bare scan of a predicate on `workers` threads."""

    def __init__(self, kind: str, window: int, workers: int):
        self.parts = [
            Filled("three_step", kind, window // workers, "any", 1, index="scan") for _ in range(workers)
        ]

    def calls(self, part: Filled, count: int, rows: int) -> list[Callable[[], Iterator[int]]]:
        """The probes of `count` batches to each side; each reaches the whole window."""
        topology: Any = part.join._topology
        pairs, taken = PairBuffer(1 << 20), list[Tuples]()
        with patch.object(topology, "push", lambda side, tuples, *_: taken.append(tuples)):
            for left, right in part.batches(count, rows):
                part.push(left, right)
        ends = np.zeros(rows, np.int64), np.full(rows, part.at)

        def probe(stored: str, tuples: Tuples) -> Iterator[int]:
            pairs.count = 0
            return topology.windows[stored].probe(tuples, Reach(*ends), pairs)  # type: ignore[no-any-return]

        stored = itertools.cycle(("right", "left"))
        return [partial(probe, next(stored), tuples) for tuples in taken]

    def measure(self, count: int, rows: int) -> float:
        """Seconds for `count` batches to each side."""

        def work(calls: list[Callable[[], Iterator[int]]]) -> None:
            for call in calls:
                for _ in call():
                    pass

        return seconds_together(
            [partial(work, self.calls(part, count, rows)) for part in self.parts], pinned=True
        )


def ceiling(
    kind: str, window: int, workers: int, sizes: tuple[int, ...], seconds: float
) -> list[dict[str, Any]]:
    """The rows of the bare scan, one per batch size."""
    bare, rows = Bare(kind, window, workers), []
    point = {"predicate": kind, "window": window, "order": "any", "workers": workers, "latency": None}
    for batch in sizes:
        count = int(np.clip(seconds / bare.measure(1, batch), 2, 200))
        best = min(bare.measure(count, batch) for _ in range(RUNS)) / count
        rows.append(
            point | {"batch": batch, "topology": KERNEL, "tuples_per_s": batch / best, "settled_ms": 0.0}
        )
    for part in bare.parts:
        part.join.close()
    return rows


def cells(
    kind: str, window: int, order: Any, counts: list[int], sizes: tuple[int, ...], seconds: float
) -> list[dict[str, Any]]:
    """One row per topology, number of workers, latency and batch size."""
    joins: dict[tuple[str, int, float | None], Filled] = {
        (topology, workers, latency): Filled(topology, kind, window, order, workers, latency)
        for latency in (None, PATIENT)
        for workers in counts
        for topology in TOPOLOGY_NAMES
    }
    rows = []
    for batch in sizes:
        best = in_turns(joins, batch, seconds)
        for (topology, workers, latency), (taken, settled) in best.items():
            rows.append(
                {
                    "predicate": kind,
                    "window": window,
                    "order": order,
                    "workers": workers,
                    "latency": latency,
                    "batch": batch,
                    "topology": topology,
                    "tuples_per_s": batch / taken,
                    "settled_ms": 1e3 * settled,
                }
            )
    for filled in joins.values():
        filled.join.close()
    return rows


def in_turns(joins: dict[Way, Filled], batch: int, seconds: float) -> dict[Way, tuple[float, float]]:
    """Seconds per batch to each side, in the best of several runs of about `seconds`; and that run's settling time."""
    counts = {}
    for which, filled in joins.items():
        taken, _ = filled.measure(4, batch)  # warms up
        counts[which] = int(np.clip(seconds / (taken / 4), 2, 2_000))
    best = dict.fromkeys(joins, (np.inf, 0.0))
    for _ in range(RUNS):
        for which, filled in joins.items():
            taken, after = filled.measure(counts[which], batch)
            best[which] = min(best[which], (taken / counts[which], after))
    return best


def auto(kind: str, window: int, order: Any, workers: int, latency: float | None) -> Way:
    """What the planner chooses if only the latency is given."""
    spec = sj.JoinSpec(LEFT, RIGHT, PREDICATES[kind], sj.TimeWindow(window), "ts", "ts")
    plan = make_plan(spec, Options(workers=workers, order=order, latency=latency))
    return plan.topology, plan.workers, latency


def choices(rows: list[dict[str, Any]], cores: int) -> dict[str, Any]:
    """How near the planner's choice is to the best of its cell, where results may and may not wait."""
    cells: dict[tuple[Any, ...], dict[Way, float]] = {}
    for row in rows:
        if row["topology"] != KERNEL:
            key = tuple(row[name] for name in ("predicate", "window", "order", "batch"))
            way = row["topology"], row["workers"], row["latency"]
            cells.setdefault(key, {})[way] = row["tuples_per_s"]
    found: dict[str, Any] = {}
    for name, latency in (("prompt", None), ("patient", PATIENT)):
        shares = []
        for key, rates in cells.items():
            prompt = [rate for (topology, _, may), rate in rates.items() if topology in PROMPT and not may]
            kind, window, order, _ = key
            chosen = rates[auto(kind, window, order, cores, latency)]
            shares.append(chosen / max(rates.values() if latency else prompt))
        found |= {
            f"auto_{name}_near_the_best": sum(share >= NEAR for share in shares),
            f"auto_{name}_mean": float(np.mean(shares)),
            f"auto_{name}_at_worst": min(shares),
        }
    return found | {"auto_cells": len(cells)}


def run(quick: bool) -> dict[str, Any]:
    """Rows: tuples per second and side, one per cell and way to run it.

    Summary: wins of each topology without `latency`, how far three_step is behind, and the planner's choices.
    """
    cores = core_count()
    windows, sizes = ((2_000, 20_000), (64, 1_024)) if quick else ((5_000, 50_000), (16, 256, 4_096))
    workers, rows = sorted({1, cores}), []
    for kind in PREDICATES:
        for window in windows:
            for order in ("any", "timestamp"):
                rows += cells(kind, window, order, workers, sizes, 0.01 if quick else 0.05)
            for count in workers:
                rows += ceiling(kind, window, count, sizes, 0.01 if quick else 0.05)
    rates_of: dict[tuple[Any, ...], dict[str, float]] = {}
    kernel: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = tuple(row[name] for name in ("predicate", "window", "order", "workers", "batch"))
        if row["topology"] == KERNEL:
            kernel[key] = row["tuples_per_s"]
        elif row["latency"] is None:
            rates_of.setdefault(key, {})[row["topology"]] = row["tuples_per_s"]
    wins: dict[str, int] = dict.fromkeys(TOPOLOGY_NAMES, 0)
    for rates in rates_of.values():
        wins[max(rates, key=rates.__getitem__)] += 1
    behind = [max(rates.values()) / rates["three_step"] for rates in rates_of.values()]
    summary: dict[str, Any] = {f"{name}_wins": count for name, count in wins.items()}
    # Shares of the kernel on as many cores, in the cell with most comparisons.
    largest = ("distance", windows[-1], "any", cores, sizes[-1])
    summary |= {f"{name}_of_kernel": rate / kernel[largest] for name, rate in rates_of[largest].items()}
    return {
        "rows": rows,
        "summary": {
            **summary,
            "cells": len(rates_of),
            "most_ahead_of_three_step": max(behind),
            **choices(rows, cores),
        },
    }
