"""One batch of probes shared by all cores: scanned, sorted and hashed windows beside the same windows on one thread.

A window holds random 32-bit keys in subwindows of up to 1M, as a join makes them; a probe finds about one pair, and
pairs are collected in one buffer. `three_step` shares its probes in this way; here the window alone is measured.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pyarrow as pa

import streamjoin as sj
from streamjoin.codegen.columns import ColumnData
from streamjoin.index.protocol import Reach, Tuples, WindowIndex
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.planner import make_plan, make_window
from streamjoin.runtime.team import Team

SEED, RUNS = 20, 7
BATCHES = {"scan": (1, 64, 1024), "bisort": (256, 1024, 16_384, 65_536), "hash": (256, 1024, 16_384, 65_536)}
SIZES = (1 << 20, 1 << 23)
PROBES = {"scan": 64, "bisort": 1 << 17, "hash": 1 << 17}  # of one measurement, at least

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})


class Window:
    """A window of `size` keys that are spread so that a probe finds about one."""

    def __init__(self, index: str, size: int):
        on = "left.x = right.x" if index == "hash" else "left.x BETWEEN right.x - 50 AND right.x + 50"
        spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(1 << 40), "ts", "ts")
        plan = make_plan(spec, "three_step", index, 1, "any")
        self.index, self.program = index, plan.programs["left"]
        self.keys = size if index == "hash" else 101 * size
        self.window: WindowIndex = make_window(plan, "left")
        self.random = np.random.default_rng(SEED)
        for begin in range(0, size, 1 << 16):
            rows = np.arange(begin, begin + (1 << 16))
            self.window.insert(self._tuples(rows, stored=True), np.zeros(1, np.int32))

    def _tuples(self, ts: np.ndarray, stored: bool) -> Tuples:
        values = self.random.integers(0, self.keys, len(ts)).astype(np.int32)
        read = self.program.stored_columns if stored else self.program.probe_columns
        data = dict.fromkeys(read, ColumnData((values,), None))
        prepare = self.program.prepare_stored if stored else self.program.prepare_probe
        prepared = prepare(data, len(ts))
        roles = (prepared, {}) if stored else ({}, prepared)
        return Tuples(ts, ts, np.zeros(len(ts), np.int32), *roles, nulls=False)

    def probe(self, batch: int, team: Team, runs: int) -> tuple[float, int]:
        """The best time of a batch in seconds, and how many pairs the last one found; the first run warms up.

        Batches differ from one to the next, as in a stream: the caches hold little of what one needs.
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


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per index, window and batch size. Summary: what all cores are worth, at best and for large batches."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rows: list[dict[str, Any]] = []
    for index, batches in BATCHES.items():
        for size in SIZES[:1] if quick else SIZES:
            window = Window(index, size)
            for batch in batches:
                seconds = {}
                for workers in (1, cores):
                    window.random = np.random.default_rng(SEED + batch)  # the same probes for both
                    team = Team(workers)
                    seconds[workers], found = window.probe(batch, team, 2 if quick else RUNS)
                    team.close()
                rows.append(
                    {
                        "index": index,
                        "window": size,
                        "batch": batch,
                        "pairs": found,
                        "one_thread_probes_per_s": batch / seconds[1],
                        "all_cores_probes_per_s": batch / seconds[cores],
                        "speedup": seconds[1] / seconds[cores],
                    }
                )
    summary: dict[str, Any] = {"workers": cores}
    for index, batches in BATCHES.items():
        for label, chosen in (("smallest_batch", batches[0]), ("largest_batch", batches[-1])):
            ratios = [row["speedup"] for row in rows if (row["index"], row["batch"]) == (index, chosen)]
            summary[f"{index}_{label}_least_speedup"] = min(ratios)
    return {"rows": rows, "summary": summary}
