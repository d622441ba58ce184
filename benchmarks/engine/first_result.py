"""Time to the first result in a fresh process, with an empty and with a filled kernel cache.

Each run starts a Python process that imports the package, makes a spec, opens the join and pushes one tuple to each
side; the two match. `STREAMJOIN_CACHE_DIR` names a folder that is empty (cold) or that an earlier run filled (warm).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.shared.figures import Figure, Row

RUNS = 5
PHASES = ("import", "spec", "open", "first_push")
CHILD = """
import json, time
marks = [time.perf_counter()]
import pyarrow as pa
import streamjoin as sj
marks.append(time.perf_counter())
left = pa.schema({"ts": pa.int64(), "x": pa.int32(), "y": pa.float32()})
right = pa.schema({"ts": pa.int64(), "a": pa.int32(), "b": pa.float32()})
on = "left.x BETWEEN right.a - 10 AND right.a + 10 AND left.y BETWEEN right.b - 10 AND right.b + 10"
spec = sj.JoinSpec(left, right, on, sj.TimeWindow(900), left_time="ts", right_time="ts")
marks.append(time.perf_counter())
with sj.open_join(spec) as join:
    marks.append(time.perf_counter())
    join.push("left", pa.table({"ts": [0], "x": [1], "y": [1.0]}, schema=left))
    join.push("right", pa.table({"ts": [1], "a": [5], "b": [5.0]}, schema=right))
    found = sum(batch.num_rows for batch in join.poll())
    while not found:
        found = sum(batch.num_rows for batch in join.poll())
    marks.append(time.perf_counter())
    join.finish()
print(json.dumps([after - before for before, after in zip(marks, marks[1:])]))
"""
FIGURES = {
    "first_result": Figure(
        "cache",
        {"import": "import", "spec": "spec", "open": "open", "first_push": "first push"},
        "kernel cache",
        "seconds to the first result",
    ),
}


def first_result(cache: str) -> list[float]:
    """Seconds of each phase in a fresh process that uses the folder `cache`."""
    environment = os.environ | {"STREAMJOIN_CACHE_DIR": cache, "NUMBA_CACHE_DIR": str(Path(cache) / "numba")}
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per run. Summary: the median of each phase and of the sum, cold and warm."""
    rows = []
    with tempfile.TemporaryDirectory() as warm:
        # Warm-up: fills the kernel cache, and reads the installed files into the page cache.
        first_result(warm)
        for number in range(2 if quick else RUNS):
            with tempfile.TemporaryDirectory() as empty:
                measured = {"cold": first_result(empty), "warm": first_result(warm)}
            for cache, seconds in measured.items():
                phases = dict(zip(PHASES, seconds, strict=True))
                rows.append({"cache": cache, "run": number, **phases, "total": sum(seconds)})
    summary = {
        f"{cache}_{phase}_s": statistics.median(
            float(str(row[phase])) for row in rows if row["cache"] == cache
        )
        for cache in ("cold", "warm")
        for phase in (*PHASES, "total")
    }
    return {"rows": rows, "summary": summary}


def main_rows(result: Row) -> list[tuple[str, str]]:
    """The lines of the lab's main table."""
    summary = result["summary"]
    return [
        ("first result of a fresh process, kernels compiled", f"{summary['cold_total_s']:.2f} s"),
        ("first result of a fresh process, kernels cached", f"{summary['warm_total_s']:.2f} s"),
    ]
