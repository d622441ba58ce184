"""A join in a process without compiled kernels starts at once with NumPy forms, gives the same rows, and changes to
the compiled kernels as soon as they are ready."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cold_runs import FINISH, PREDICATES, SCRIPT, WAIT, environment, run


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


PICKING = """
import json, sys, time
begin = time.process_time()
import streamjoin as sj
from numba.core import event

compiled = []
class Listener(event.Listener):
    def on_start(self, event): pass
    def on_end(self, event): compiled.append(event.data["dispatcher"].py_func.__name__)
event.register("numba:compile", Listener())
left = [{{"ts": 3, "k": "a", "j": 1, "x": 2.5}}, {{"ts": 9, "k": "b", "j": 1, "x": 7.0}}]
right = [{{"ts": 1, "k": "a", "j": 1, "x": 2.0}}, {{"ts": 2, "k": "a", "j": 1, "x": 9.0}}]
found = sj.join(left, right, on="left.k = right.k AND left.j = right.j", window=99, time="ts", {on})
first = [row["ts_right"] if "ts_right" in row else row["ts"] for row in found]
seconds = time.process_time() - begin
print(json.dumps({{"first": first, "seconds": seconds, "compiled": compiled}}), flush=True)
from streamjoin.jit import elsewhere
for child in list(elsewhere._running): child.kill()
"""
OUTCOMES = {
    "how='left'": [1, 2, None], "how='full'": [1, 2, None], "how='semi'": [3], "how='anti'": [9],
    "keep=sj.AsOf()": [2], "keep=sj.AsOf('nearest'), how='left'": [2, None],
    "keep=sj.Nearest('abs(left.x - right.x)')": [1],
}  # fmt: skip


@pytest.mark.parametrize("options", OUTCOMES)
def test_outer_as_of_and_nearest_joins_start_at_once_too(tmp_path: Path, options: str) -> None:
    found, log = run(tmp_path, options, script=PICKING)
    assert found["first"] == OUTCOMES[options]
    assert set(found["compiled"]) <= {"ring"}  # of the bell that wakes polls: takes 0.06 s
    assert found["seconds"] < 4  # of processor time; 0.8 s on an idle machine
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
