"""Time to the first result in a fresh process, with an empty and with a filled kernel cache.

Each run starts a Python process that imports the package, makes a spec, opens the join and pushes one tuple to each
side; the two match. Three predicates: an equality, a 2-D band, and the same band as a Python function. Each of them is
run in four states of the cache (`STREAMJOIN_CACHE_DIR` names a folder):

- cold: the folder is empty, and another process compiles meanwhile, as by default;
- compiled first: the folder is empty, and the join opens after compiling everything (`STREAMJOIN_COMPILE=wait`);
  a single run, which fills the folder of the next two;
- warm: an earlier run has filled the folder;
- other constants: the same, and the constants differ from those that filled it.

A run also counts the functions that Numba compiles in the process before the first result, and the processor time that
the process takes until then, on which other programs have less influence.
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
# {a} is a constant of the predicate.
PREDICATES = {
    "equality": "'left.x + {a} = right.a + {a}'",
    "band": "'left.x BETWEEN right.a - {a} AND right.a + {a} AND left.y BETWEEN right.b - {a} AND right.b + {a}'",
    "function": "near",
}
CACHES = ("compiled first", "cold", "warm", "other constants")
CHILD = """
import json, os, time
marks = [time.perf_counter()]
import pyarrow as pa
import streamjoin as sj
marks.append(time.perf_counter())
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, event): pass
    def on_end(self, event): compiled.append(event.data["dispatcher"])
event.register("numba:compile", Listener())

def near(left, right):
    return abs(left.x - right.a) <= 10 and abs(left.y - right.b) <= 10

left = pa.schema({{"ts": pa.int64(), "x": pa.int32(), "y": pa.float32()}})
right = pa.schema({{"ts": pa.int64(), "a": pa.int32(), "b": pa.float32()}})
spec = sj.JoinSpec(left, right, {on}, sj.TimeWindow(900), left_time="ts", right_time="ts")
marks.append(time.perf_counter())
join = sj.open_join(spec)
marks.append(time.perf_counter())
join.push("left", pa.table({{"ts": [0], "x": [5], "y": [1.0]}}, schema=left))
join.push("right", pa.table({{"ts": [1], "a": [5], "b": [5.0]}}, schema=right))
while not join.poll_table().num_rows:
    pass
marks.append(time.perf_counter())
phases = [after - before for before, after in zip(marks, marks[1:])]
print(json.dumps([phases, time.process_time(), len(compiled)]), flush=True)

from streamjoin.jit import elsewhere
for child in list(elsewhere._running):
    child.kill()  # it would compile on, beside the next run
os._exit(0)
"""
FIGURES = {
    "first_result": Figure(
        "case",
        {"import": "import", "spec": "spec", "open": "open", "first_push": "first push"},
        "predicate and kernel cache",
        "seconds to the first result",
        where={"cache": ("cold", "warm")},
    ),
}


def first_result(predicate: str, cache: str, mode: str = "ahead", constant: int = 10) -> Row:
    """A fresh process that uses the folder `cache`: seconds of each phase, processor seconds, functions compiled."""
    environment = os.environ | {
        "STREAMJOIN_CACHE_DIR": cache,
        "NUMBA_CACHE_DIR": str(Path(cache) / "numba"),
        "STREAMJOIN_COMPILE": mode,
    }
    program = CHILD.format(on=PREDICATES[predicate].format(a=constant))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    seconds, processor, compiled = json.loads(done.stdout)
    phases = dict(zip(PHASES, seconds, strict=True))
    return {**phases, "total": sum(seconds), "processor": processor, "compiled": compiled}


def states(predicate: str) -> list[str]:
    """The states of the cache that a predicate is run in. A function has no constants that could be exchanged."""
    return [cache for cache in CACHES if predicate != "function" or cache != "other constants"]


def measured(predicate: str, cache: str, filled: str) -> Row:
    """One run; `filled` is the folder that an earlier run filled."""
    if cache in ("warm", "other constants"):
        return first_result(predicate, filled, constant=10 if cache == "warm" else 20)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
        return first_result(predicate, empty)


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per run. Summary: for each predicate the median seconds of each state of the cache, the functions
    compiled, and cold against warm."""
    rows: list[Row] = []
    for predicate in PREDICATES:

        def add(cache: str, number: int, found: Row, predicate: str = predicate) -> None:
            case = {"predicate": predicate, "cache": cache, "case": f"{predicate}, {cache}"}
            rows.append({**case, "run": number, **found})

        with tempfile.TemporaryDirectory() as filled:
            add("compiled first", 0, first_result(predicate, filled, "wait"))
            for number in range(2 if quick else RUNS):
                for cache in states(predicate)[1:]:
                    add(cache, number, measured(predicate, cache, filled))
    return {"rows": rows, "summary": summary(rows)}


def summary(rows: list[Row]) -> Row:
    found: Row = {}
    for predicate in PREDICATES:
        for cache in states(predicate):
            own = [row for row in rows if (row["predicate"], row["cache"]) == (predicate, cache)]
            name = f"{predicate}_{cache}".replace(" ", "_")
            found[f"{name}_s"] = statistics.median(row["total"] for row in own)
            found[f"{name}_processor_s"] = statistics.median(row["processor"] for row in own)
            found[f"{name}_compiled"] = max(row["compiled"] for row in own)
        found[f"{predicate}_cold_to_warm"] = found[f"{predicate}_cold_s"] / found[f"{predicate}_warm_s"]
    return found


def main_rows(result: Row) -> list[tuple[str, str]]:
    """The lines of the lab's main table."""
    shown = result["summary"]
    return [
        (
            f"first result of a fresh process, {predicate}: empty kernel cache, filled cache",
            f"{shown[f'{predicate}_cold_s']:.2f} s, {shown[f'{predicate}_warm_s']:.2f} s",
        )
        for predicate in PREDICATES
        if f"{predicate}_cold_s" in shown
    ]
