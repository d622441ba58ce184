"""Runs a script that opens a join in a process of its own, in the default mode: it starts with NumPy forms while
another process compiles. A process that has loaded kernels keeps them, so each case needs one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PREDICATES = {
    "equality": "left.k = right.k",
    "band": "abs(left.x - right.x) <= 1 AND abs(left.y - right.y) <= 2",
    "function": "near",
}
# Opens a join and pushes a tuple to each side, which match; prints what the parent asserts. Then runs `then`.
SCRIPT = """
import json, sys, time
begin = time.process_time()
import numpy as np, pyarrow as pa
import streamjoin as sj
from numba.core import event

compiled = []
class Listener(event.Listener):
    def on_start(self, event): pass
    def on_end(self, event):  # without the functions of Numba that a kernel calls
        found = event.data["dispatcher"].py_func
        if not (found.__module__ or "").startswith("numba."): compiled.append(found.__name__)
event.register("numba:compile", Listener())

def near(l, r):
    return abs(l.x - r.x) + abs(l.y - r.y) <= 2

schema = pa.schema({{"ts": pa.int64(), "k": pa.int32(), "x": pa.float32(), "y": pa.float64()}})
def rows(ts, k=7, x=1.0, y=2.0):
    return pa.table({{"ts": [ts], "k": [k], "x": [x], "y": [y]}}, schema=schema)
on = {on!r}
spec = sj.JoinSpec(schema, schema, near if on == "near" else on, sj.TimeWindow(100), "ts", "ts")
join = sj.open_join(spec)
join.push("left", rows(1))
join.push("right", rows(2))
first = join.poll_table().num_rows
seconds = time.process_time() - begin
def say(**more):
    print(json.dumps({{"first": first, "seconds": seconds, "compiled": compiled, **more}}), flush=True)
{then}
"""
FINISH = """
say(finished=join.finish().num_rows)
from streamjoin.jit import elsewhere
for child in list(elsewhere._running): child.kill()  # it would run for half a minute
"""
WAIT = """
from streamjoin.jit import readiness
end = time.time() + 240
ts = 3
while readiness.pending() and time.time() < end:
    join.push("left", rows(ts)); join.poll(); ts += 1
    time.sleep(0.01)
before = len(compiled)
join.push("left", rows(ts)); join.push("right", rows(ts))
say(pending=readiness.pending(), late=compiled[before:], matched=join.poll_table().num_rows > 0)
"""


STARTED = """
from streamjoin.jit import elsewhere
while not elsewhere._running: time.sleep(0.01)
(child,) = elsewhere._running
"""


# Before a script: every process that compiles gets a signal as soon as it exists, so it never compiles anything.
SIGNALLED = """
import signal, subprocess
class Signalled(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.send_signal(signal.{name})
subprocess.Popen = Signalled
"""


def environment(cache: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "STREAMJOIN_CACHE_DIR": str(cache), "STREAMJOIN_COMPILE": "ahead", **more}


def run(
    cache: Path, on: str, then: str = FINISH, script: str = SCRIPT, **more: str
) -> tuple[dict[str, Any], str]:
    """What the script printed, and what it logged."""
    done = subprocess.run(
        [sys.executable, "-c", script.format(on=on, then=then)],
        env=environment(cache, **more), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found, done.stderr
