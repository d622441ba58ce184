"""PanJoin as a whole over batch, window and selectivity (Pan & Jacobsen, Figure 15), beside the three-step engine.

Two streams of integer keys, uniform in a domain as large as the window, so that a band of S keys matches S tuples on
average. A run pushes batches to both sides in turns, takes all result rows, and ends when everything is joined. The
clock is wall time; the best of five runs counts. Three questions:

- `structure`: BI-Sort, RaP-Table and WiB+-Tree on two workers over batch, selectivity and window (Figures 15a, b, d),
  and the three-step engine with BI-Sort and as many threads.
- `prefetch`: one command per worker at a time, or three, so that the next one is prepared and sent meanwhile.
- `answer`: the cost of a probe over its matches, where workers answer with pairs, or with records that the manager
  expands to pairs (section III-D). Costs are those of the workers, of the manager up to ids, and of building rows, all
  on one thread; and wall time with threads. Left tuples fill a window, right ones only probe it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import streamjoin as sj
from benchmarks.shared.timing import core_count
from streamjoin.plan.options import MAX_RESULTS
from streamjoin.plan.tuning import PanJoinTuning
from streamjoin.topologies import registry
from streamjoin.topologies.panjoin.panjoin import PanJoin
from streamjoin.topologies.runtime.node import Bell, Channel, Node
from streamjoin.topologies.runtime.threads import MESSAGES

CREDIT = PanJoinTuning().credit

SEED = 20181109
RUNS = 5
SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
STRUCTURES = ("bisort", "raptable", "wibtree")
MOST_RESULTS = 1 << 26
FILL = 16_384
PAUSE = 0.0002  # seconds between two checks of the workers' progress
PROBES = 512  # probes per batch for the question `answer`


def opened(spec: sj.JoinSpec, topology: Any, index: Any, max_results: int, **options: Any) -> sj.Join:
    """Open a join with as many workers as cores; `options` go to PanJoin."""

    class Changed(PanJoin):
        def __init__(self, *given: Any):
            super().__init__(*given, **options)

    with patch.dict(registry.TOPOLOGY_CLASSES, {"panjoin": Changed}):
        return sj.open_join(spec, topology, index, workers=core_count(), max_results=max_results)


class Filled:
    """A join with full windows; event times number the tuples."""

    def __init__(self, topology: Any, index: Any, window: int, selectivity: int, credit: int = CREDIT):
        self.random, self.window, self.at = np.random.default_rng(SEED), window, 0
        width = selectivity // 2
        on = f"left.x BETWEEN right.x - {width} AND right.x + {width}"
        spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(window), "ts", "ts")
        self.join = opened(spec, topology, index, MOST_RESULTS, credit=credit)
        while self.at < window:
            self.push(*self.batches(1, min(FILL, window))[0])
        self.settle()

    def batches(self, count: int, rows: int) -> list[tuple[pa.RecordBatch, pa.RecordBatch]]:
        made = []
        for _ in range(count):
            ts = pa.array(np.arange(self.at, self.at + rows))
            self.at += rows
            keys = self.random.integers(0, self.window, (2, rows), dtype=np.int32)
            left, right = (pa.record_batch([ts, pa.array(x)], schema=SCHEMA) for x in keys)
            made.append((left, right))
        return made

    def push(self, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
        found = 0
        for side, batch in (("left", left), ("right", right)):
            self.join.push(side, batch)
            found += sum(int(out.num_rows) for out in self.join.poll())
        return found

    def settle(self) -> int:
        """Poll until everything is joined; return the number of results."""
        topology, low = self.join._topology, min(self.join._sources.frontier().low.values())
        found, joined = 0, False
        while not joined:
            joined = topology.least_result_time >= low
            while ready := self.join.poll():
                found += sum(int(out.num_rows) for out in ready)
            time.sleep(0 if joined else PAUSE)
        return found

    def measure(self, batch: int, seconds: float) -> dict[str, float]:
        """Tuples per second and side, and results per tuple."""
        count, best, found = 1, np.inf, 0
        for number in range(RUNS + 1):
            made = self.batches(count, batch)
            started = time.perf_counter()
            found = sum(self.push(*each) for each in made) + self.settle()
            taken = (time.perf_counter() - started) / count
            best = min(best, taken) if number else best
            if not number:  # warms up
                count = int(np.clip(seconds / taken, 2, 500))
        return {"tuples_per_s": batch / best, "results_per_tuple": found / (2 * count * batch)}


class Stepped:
    """An executor that runs the workers in the calling thread and adds up their time."""

    failed = False

    def __init__(self) -> None:
        self.nodes: Sequence[Node] = ()
        self.seconds = 0.0

    def start(self, nodes: Sequence[Node], channels: Sequence[Channel[Any]], driver: Bell) -> None:
        self.nodes = nodes

    def check(self) -> None: ...

    def wait(self, seen: int) -> None:
        started = time.perf_counter()
        for node in self.nodes:
            while node.step(MESSAGES):
                pass
        self.seconds += time.perf_counter() - started

    def stop(self) -> None: ...


class Probed:
    """A join with a full left window; each right tuple matches `selectivity` tuples of it."""

    def __init__(self, window: int, selectivity: int, **options: Any):
        self.random, self.window, self.selectivity = np.random.default_rng(SEED), window, selectivity
        on = f"left.x BETWEEN right.x AND right.x + {selectivity - 1}"
        spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(window), "ts", "ts")
        self.join = opened(spec, "panjoin", "bisort", MAX_RESULTS, **options)
        keys = self.random.permutation(window).astype(np.int32)
        for at in range(0, window, FILL):
            part = keys[at : at + FILL]
            ts = np.arange(at, at + len(part))
            self.join.push("left", pa.record_batch([pa.array(ts), pa.array(part)], schema=SCHEMA))

    def probe(self, probes: int, work: Callable[[], None]) -> tuple[float, float]:
        """Return the seconds until a batch is joined and its rows are built, and the seconds of building rows."""
        keys = self.random.integers(0, self.window - self.selectivity, probes, dtype=np.int32)
        batch = pa.record_batch([pa.array(np.full(probes, self.window)), pa.array(keys)], schema=SCHEMA)
        left, building, started = probes * self.selectivity, 0.0, time.perf_counter()
        self.join.push("right", batch, timeout=0)  # do not wait for room for the results
        while left:
            work()
            self.join._working(self.join._driver.run)
            begun = time.perf_counter()
            left -= sum(int(out.num_rows) for out in self.join._driver.drain())
            building += time.perf_counter() - begun
        return time.perf_counter() - started, building


def answered(window: int, selectivity: int, probes: int, many: float) -> dict[str, float]:
    """Nanoseconds per probe: of each part on one thread, and in wall time with threads; the best of several runs."""
    executor, runs = Stepped(), []
    alone = Probed(window, selectivity, many=many, executor=executor)
    executor.wait(0)
    for _ in range(RUNS + 1):
        executor.seconds = 0.0
        taken, rows = alone.probe(probes, lambda: executor.wait(0))
        runs.append((executor.seconds, taken - executor.seconds - rows, rows))
    alone.join.close()
    threads = Probed(window, selectivity, many=many)
    walls = [threads.probe(probes, lambda: time.sleep(PAUSE))[0] for _ in range(RUNS + 1)]
    threads.join.close()
    times = [*(min(part[1:]) for part in zip(*runs, strict=True)), min(walls[1:])]
    names = ("workers_ns", "manager_ns", "rows_ns", "wall_ns")
    return {name: 1e9 * seconds / probes for name, seconds in zip(names, times, strict=True)}


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per question and point. Summary: gains of prefetching and of records."""
    window, seconds = (1 << 14, 0.03) if quick else (1 << 18, 0.15)
    batches, selectivities = (1_024, 8_192, 32_768), (1, 15, 255)
    columns = ("question", "topology", "index", "window", "selectivity", "batch", "credit")
    rows: list[dict[str, Any]] = []

    def points(question: str, topology: Any, index: Any, window: int, selectivity: int, sizes: tuple[int, ...],
               credit: int = CREDIT) -> None:  # fmt: skip
        filled = Filled(topology, index, window, selectivity, credit)
        for batch in sizes:
            values = question, topology, index, window, selectivity, batch, credit
            rows.append(dict(zip(columns, values, strict=True)) | filled.measure(batch, seconds))
        filled.join.close()

    for topology, index in [*(("panjoin", index) for index in STRUCTURES), ("three_step", "bisort")]:
        for selectivity in selectivities:
            points(
                "structure", topology, index, window, selectivity, batches if selectivity == 1 else (8_192,)
            )
        if index == "bisort":
            for size in (window // 4, 4 * window):
                points("structure", topology, index, size, 1, (8_192,))
    for credit in (1, CREDIT):
        points("prefetch", "panjoin", "bisort", window, 1, (256, 1_024, 8_192), credit)
    for selectivity in (1, 4, 16, 64, 256, 1_024, *(() if quick else (4_096, 16_384))):
        for answer, many in (("pairs", np.inf), ("records", 0.0)):
            point = {"question": "answer", "answer": answer, "window": window, "selectivity": selectivity}
            rows.append(point | {"batch": PROBES} | answered(window, selectivity, PROBES, many))
    return {"rows": rows, "summary": summary(rows)}


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    by_credit = {credit: [r["tuples_per_s"] for r in rows if r["question"] == "prefetch" and r["credit"] == credit]
                 for credit in (1, CREDIT)}  # fmt: skip
    gains = [more / one for one, more in zip(by_credit[1], by_credit[CREDIT], strict=True)]
    rates = [r["tuples_per_s"] for r in rows if r["question"] == "structure" and r["topology"] == "panjoin"]
    by_answer = {answer: [r for r in rows if r.get("answer") == answer] for answer in ("pairs", "records")}
    workers = [r["workers_ns"] for r in by_answer["records"]]
    walls = [
        p["wall_ns"] / r["wall_ns"] for p, r in zip(by_answer["pairs"], by_answer["records"], strict=True)
    ]
    return {
        "best_tuples_per_s": max(rates),
        "least_gain_of_prefetch": min(gains),
        "most_gain_of_prefetch": max(gains),
        "workers_with_records_most_over_least": max(workers) / min(workers),
        "least_gain_of_records": min(walls),
        "most_gain_of_records": max(walls),
    }
