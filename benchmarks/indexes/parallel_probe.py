"""Probes and merges shared by all cores, beside the same work on one thread.

The work is the probes of one batch in scanned, sorted and hashed windows, and the merges of sorted subwindows when one
is inserted. A window holds random 32-bit keys in subwindows of up to 1M, merged ones with BI-Sort, as in a join. Each
probe finds about one pair, and one buffer collects all pairs. `three_step` shares its work in this way; here only the
window is measured.

Insertions continue for a quarter of the window, in which each tuple is merged about once; the two windows take turns.
Rows report the rate of all insertions, and the rate without the slowest tenth: in those, columns move to larger memory.
One thread does that in either case, and page faults make it vary from run to run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import streamjoin as sj
from benchmarks.shared.timing import core_count
from streamjoin.codegen.columns import ColumnData
from streamjoin.codegen.prepared import Stored
from streamjoin.index.build import make_window
from streamjoin.index.times import Reach
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.index.window import WindowIndex
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Options
from streamjoin.topologies.runtime.team import ThreadTeam

SEED, RUNS = 20, 7
BATCHES = {"scan": (1, 64, 1024), "bisort": (256, 1024, 16_384, 65_536), "hash": (256, 1024, 16_384, 65_536)}
SIZES = (1 << 20, 1 << 23)
PROBES = {"scan": 64, "bisort": 1 << 17, "hash": 1 << 17}  # fewest probes of one measurement
INSERTED = (1 << 16, 1 << 18, 1 << 20)  # tuples per insertion
INSERTED_INTO, FEWEST_INSERTIONS = 1 << 25, 20
COUNTED = {
    "bisort, insertion": 0.9,
    "bisort, every insertion": 1.0,
}  # share of insertions to count, fastest first

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})


class Window:
    """A window of `size` keys, spread so that a probe finds about one."""

    def __init__(self, index: Any, size: int):
        on = "left.x = right.x" if index == "hash" else "left.x BETWEEN right.x - 50 AND right.x + 50"
        spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(1 << 40), "ts", "ts")
        plan = make_plan(spec, Options("three_step", index, workers=1))
        self.index, self.program = index, plan.programs["left"]
        self.keys = size if index == "hash" else 101 * size
        self.window: WindowIndex = make_window(plan, "left")
        self.random = np.random.default_rng(SEED)
        for begin in range(0, size, 1 << 16):
            rows = np.arange(begin, begin + (1 << 16))
            self.window.insert(self._tuples(rows, stored=True), np.zeros(1, np.int32))

    def _tuples(self, ts: np.ndarray, stored: bool) -> Any:
        values = self.random.integers(0, self.keys, len(ts)).astype(np.int32)
        read = self.program.stored_columns if stored else self.program.probe_columns
        data = dict.fromkeys(read, ColumnData((values,), None))
        header = ts, ts, np.zeros(len(ts), np.int32)
        if stored:
            return Tuples(*header, self.program.prepare_stored(data, len(ts)), nulls=False)
        return ProbingTuples(*header, Stored(), False, self.program.prepare_probe(data, len(ts)))

    def probe(self, batch: int, team: ThreadTeam, runs: int) -> tuple[float, int]:
        """Return the best seconds per batch, and the pairs that the last batch found; the first run warms up.

        Every batch has new probes, as in a stream, so that caches hold little of what it needs.
        """
        batches = [
            self._tuples(np.arange(batch), stored=False) for _ in range(max(1, PROBES[self.index] // batch))
        ]
        reach = Reach(np.zeros(batch, np.int64), np.full(batch, len(self.window)))
        pairs, best = PairBuffer(1 << 20), np.inf
        for run in range(runs + 1):
            started = time.perf_counter()
            for probes in batches:
                pairs.count = 0
                for _ in self.window.probe(probes, reach, pairs, team):
                    pass
            if run:
                best = min(best, (time.perf_counter() - started) / len(batches))
        return best, pairs.count


def row_of(index: Any, window: int, batch: int, pairs: int, alone: float, shared: float) -> dict[str, Any]:
    """A row from the seconds per batch on one thread and on all cores."""
    return {
        "index": index,
        "window": window,
        "batch": batch,
        "pairs": pairs,
        "one_thread_per_s": batch / alone,
        "all_cores_per_s": batch / shared,
        "speedup": alone / shared,
    }


def insertions(size: int, cores: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Insertions into BI-Sort in tuples per second, on one thread and on all cores."""
    rivals = {workers: (Window("bisort", size), ThreadTeam(workers)) for workers in (1, cores)}
    at, rank = size, np.zeros(1, np.int32)
    for batch in INSERTED[:2] if quick else INSERTED:
        seconds: dict[int, list[float]] = {workers: [] for workers in rivals}
        for number in range(max(size // 4 // batch, FEWEST_INSERTIONS)):
            tuples = rivals[1][0]._tuples(np.arange(at, at + batch), stored=True)
            at += batch
            for workers in sorted(rivals, reverse=number % 2 == 0):
                window, team = rivals[workers][0].window, rivals[workers][1]
                started = time.perf_counter()
                window.insert(tuples, rank, team)
                seconds[workers].append(time.perf_counter() - started)
                window.expire(at - size)
        for index, part in COUNTED.items():
            mean = {workers: np.sort(t)[: int(len(t) * part)].mean() for workers, t in seconds.items()}
            yield row_of(index, size, batch, 0, mean[1], mean[cores])
    for _, team in rivals.values():
        team.close()


def run(quick: bool) -> dict[str, Any]:
    """Rows: probes or inserted tuples per second, by index, window and batch size. Summary: speed-ups on all cores."""
    cores = core_count()
    rows: list[dict[str, Any]] = []
    for index, batches in BATCHES.items():
        for size in SIZES[:1] if quick else SIZES:
            window = Window(index, size)
            for batch in batches:
                seconds = {}
                for workers in (1, cores):
                    window.random = np.random.default_rng(SEED + batch)  # the same probes for both
                    team = ThreadTeam(workers)
                    seconds[workers], found = window.probe(batch, team, 2 if quick else RUNS)
                    team.close()
                rows.append(row_of(index, size, batch, found, seconds[1], seconds[cores]))
    rows += insertions(1 << 22 if quick else INSERTED_INTO, cores, quick)
    summary: dict[str, Any] = {"workers": cores}
    for index, batches in BATCHES.items():
        for label, chosen in (("smallest_batch", batches[0]), ("largest_batch", batches[-1])):
            ratios = [row["speedup"] for row in rows if (row["index"], row["batch"]) == (index, chosen)]
            summary[f"{index}_{label}_least_speedup"] = min(ratios)
    for index in COUNTED:
        summary[f"{index}: least speedup"] = min(row["speedup"] for row in rows if row["index"] == index)
    return {"rows": rows, "summary": summary}
