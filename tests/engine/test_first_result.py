"""A join in a process without compiled kernels starts at once with NumPy forms, gives the same rows, and changes to
the compiled kernels as soon as they are ready.

A process of its own runs each case, because kernels that a process has loaded stay loaded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

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
    def on_end(self, event): compiled.append(event.data["dispatcher"].__name__)
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


def environment(cache: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "STREAMJOIN_CACHE_DIR": str(cache), "STREAMJOIN_COMPILE": "ahead", **more}


def run(cache: Path, on: str, then: str = FINISH, **more: str) -> tuple[dict[str, Any], str]:
    """What the script printed, and what it logged."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(on=on, then=then)],
        env=environment(cache, **more), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found, done.stderr


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has all kernels of the equality."""
    home = Path(os.environ["STREAMJOIN_CACHE_DIR"])
    run(home, PREDICATES["equality"], STREAMJOIN_COMPILE="wait")
    copy = tmp_path_factory.mktemp("filled") / "cache"
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("hardware-*"))
    return copy


@pytest.fixture
def nearly_filled(filled: Path, tmp_path: Path) -> Path:
    """The same without one kernel, so that compiling the rest takes another process a moment only."""
    cache = tmp_path / "cache"
    shutil.copytree(filled, cache)
    missing = list(cache.glob("kernels-*/stamping.falls*.nbc"))
    assert missing
    for file in missing:
        file.unlink()
    return cache


@pytest.mark.parametrize("on", PREDICATES.values(), ids=PREDICATES)
def test_the_first_result_of_a_cold_process_comes_at_once(tmp_path: Path, on: str) -> None:
    found, log = run(tmp_path, on)
    assert found["first"] == 1
    if on == "near":  # a function is compiled in this process, in one of four scans, so that a mistake shows
        assert found["compiled"].count("near") == 1
    else:
        assert found["compiled"] == []
    assert found["seconds"] < 4  # of processor time; 0.6 s for SQL, 1.2 s for the function
    assert log.count("compiling kernels in another process") == 1


def test_a_join_changes_to_compiled_kernels_and_compiles_nothing_itself(nearly_filled: Path) -> None:
    found, log = run(nearly_filled, PREDICATES["equality"], WAIT)
    assert (found["pending"], found["matched"], found["compiled"]) == (False, True, [])
    assert list(nearly_filled.glob("kernels-*/stamping.falls*.nbc"))
    assert log.count("compiling") == 1
    again, log = run(nearly_filled, PREDICATES["equality"])
    assert (again["first"], again["compiled"], log) == (1, [], "")


def test_another_constant_compiles_nothing(filled: Path) -> None:
    run(filled, "left.k + 1 = right.k + 1", STREAMJOIN_COMPILE="wait")
    found, log = run(filled, "left.k + 2 = right.k + 2")
    assert (found["first"], found["compiled"], log) == (1, [], "")


def test_a_process_that_is_told_to_wait_compiles_before_its_first_result(nearly_filled: Path) -> None:
    found, log = run(nearly_filled, PREDICATES["equality"], STREAMJOIN_COMPILE="wait")
    assert (found["first"], found["compiled"]) == (1, ["falls"])
    assert log.count("opening a join like this for the first time") == 1


STARTED = """
from streamjoin.jit import elsewhere
while not elsewhere._running: time.sleep(0.01)
(child,) = elsewhere._running
"""


@pytest.mark.parametrize("failure", ["killed", "cannot start", "is no Python"])
def test_this_process_compiles_if_the_other_one_fails(nearly_filled: Path, failure: str) -> None:
    before = {"cannot start": "sys.executable = '/nowhere'", "is no Python": "sys.executable = '/bin/false'"}
    script = f"import sys; {before.get(failure, '')}\n"
    then = (STARTED + "child.kill()\n" if failure == "killed" else "") + WAIT
    done = subprocess.run(
        [sys.executable, "-c", script + SCRIPT.format(on=PREDICATES["equality"], then=then)],
        env=environment(nearly_filled), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["pending"], found["matched"], found["compiled"]) == (False, True, ["falls"])
    assert done.stderr.count("StreamJoinWarning: the process that compiles kernels failed") == 1


def test_the_other_process_runs_no_script_and_inherits_no_descriptor(
    nearly_filled: Path, tmp_path: Path
) -> None:
    script, runs = tmp_path / "script.py", tmp_path / "runs"
    then = f"""
import os
held = open({str(tmp_path / "held")!r}, "w")
os.set_inheritable(held.fileno(), True)
{STARTED}
fds = {{os.readlink(f"/proc/{{child.pid}}/fd/{{fd}}").split(":")[0] for fd in (0, 1, 2)}}
more = [os.readlink(f"/proc/{{child.pid}}/fd/{{fd}}") for fd in os.listdir(f"/proc/{{child.pid}}/fd")]
{WAIT.replace("say(", "say(fds=sorted(fds), held=[each for each in more if 'held' in each], code=child.returncode, ")}
"""
    script.write_text(
        f"open({str(runs)!r}, 'a').write('x')\n" + SCRIPT.format(on=PREDICATES["equality"], then=then)
    )
    done = subprocess.run(
        [sys.executable, script], env=environment(nearly_filled), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert runs.read_text() == "x"
    assert (found["fds"], found["held"]) == (["/dev/null", "pipe"], [])
    assert found["code"] == 0  # it was waited for, so no zombie is left


def test_the_other_process_ends_with_this_one(tmp_path: Path) -> None:
    pid = run(tmp_path, PREDICATES["equality"], STARTED + "say(pid=child.pid)\nimport os; os._exit(0)")[0][
        "pid"
    ]
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and _state(pid) != "Z":
        assert time.monotonic() < end
        time.sleep(0.05)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


@pytest.mark.slow
def test_without_a_cache_the_kernels_are_compiled_in_this_process(tmp_path: Path) -> None:
    (tmp_path / f"kernels-{os.geteuid()}").mkdir(mode=0o755)  # open to others, so it is not used
    (tmp_path / f"kernels-{os.geteuid()}").chmod(0o755)
    found, log = run(tmp_path, PREDICATES["band"])
    assert found["first"] == 1 and "falls" in found["compiled"]
    assert "there is no cache of compiled kernels" in log


def test_a_mistake_in_a_function_is_reported_when_the_join_is_opened(tmp_path: Path) -> None:
    script = SCRIPT.replace("abs(l.x - r.x) + abs(l.y - r.y) <= 2", "missing(l.x, r.x)")
    done = subprocess.run(
        [sys.executable, "-c", script.format(on="near", then=FINISH)],
        env=environment(tmp_path), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1 and "the predicate near cannot be compiled" in done.stderr
