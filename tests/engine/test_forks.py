"""A fork of the process has a copy of a join without its threads: every use raises an error that says so, and the join
itself continues."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.plan.options import TOPOLOGY_NAMES

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
SPEC = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(100), "ts", "ts", lateness=5)
SECONDS = 60  # seconds: far longer than any test takes; only a hang waits this long


def rows(ts: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"ts": ts, "x": [7] * len(ts)}, schema=SCHEMA)


def in_a_fork(act: Callable[[], str]) -> str:
    """What `act` returns in a fork of this process, or its error as text; fails if the fork hangs or dies."""
    gc.collect()  # earlier tests may have left objects behind
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this test is about its threads
        pid = os.fork()
    if pid == 0:
        try:
            text = act()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    give_up = time.monotonic() + SECONDS
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > give_up:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail("the fork hangs")
        time.sleep(0.01)
    with os.fdopen(reading) as pipe:
        return pipe.read()


USES: dict[str, Callable[[sj.Join, sj.Source], Any]] = {
    "push": lambda join, _: join.push("left", rows([9])),
    "source": lambda join, _: join.source("left", "new"),
    "poll": lambda join, _: join.poll(),
    "poll with a timeout": lambda join, _: join.poll(0.1),
    "late": lambda join, _: join.late("left"),
    "end": lambda join, _: join.end("left"),
    "stats": lambda join, _: join.stats(),
    "finish": lambda join, _: join.finish(),
    "source.push": lambda _, source: source.push(rows([9])),
    "source.advance": lambda _, source: source.advance(9),
    "source.close": lambda _, source: source.close(),
}


@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_every_use_in_a_fork_says_that_it_is_one_and_the_join_goes_on(topology):
    with sj.open_join(SPEC, topology, workers=2) as join:
        source = join.source("right", "")
        join.push("left", rows([1, 2]))
        join.push("right", rows([3]))

        def use_all() -> str:
            wrong = []
            for name, use in USES.items():
                try:
                    use(join, source)
                    wrong.append(name)
                except sj.StreamJoinError as error:
                    if "fork" not in str(error):
                        wrong.append(f"{name}: {error}")
            join.close()
            join.close()
            with join:  # leaving it closes it
                pass
            return f"wrong: {wrong}"

        assert in_a_fork(use_all) == "wrong: []"
        join.push("right", rows([4]))
        polled = sum(batch.num_rows for batch in join.poll(1.0))
        assert polled + join.finish().num_rows == 4


@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_a_fork_may_open_a_join_of_its_own(topology):
    with sj.open_join(SPEC, topology, workers=2) as join:
        join.push("left", rows([1, 2]))
        join.push("right", rows([3]))

        def open_another() -> str:
            with sj.open_join(SPEC, topology, workers=2) as own:
                own.push("left", rows([1, 2, 3]))
                own.push("right", rows([4]))
                return f"{own.finish().num_rows} rows"

        assert in_a_fork(open_another) == "3 rows"
        assert join.finish().num_rows == 2


@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_a_copy_that_nobody_holds_any_more_leaves_the_threads_of_the_join_alone(topology):
    joins = [sj.open_join(SPEC, topology, workers=2)]
    joins[0].push("left", rows([1, 2]))

    def forget() -> str:
        joins.clear()
        gc.collect()
        return "forgotten"

    assert in_a_fork(forget) == "forgotten"
    joins[0].push("right", rows([3]))
    assert joins[0].finish().num_rows == 2


@pytest.mark.parametrize("use", ["poll", "stats", "late", "finish", "close"])
def test_a_fork_does_not_wait_for_locks_that_threads_held_when_it_was_made(use):
    """The thread that works, and holds both locks, does not exist in the fork."""
    with sj.open_join(SPEC) as join:
        source = join.source("left", "")
        join.push("left", rows([1]))
        held, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with join._driver.rows.lock:
                held.set()
                leave.wait(SECONDS)

        thread = threading.Thread(target=join._work.run, args=(hold,))
        thread.start()
        held.wait(SECONDS)
        act = join.close if use == "close" else lambda: USES[use](join, source)
        said = in_a_fork(lambda: f"{act()}")
        leave.set()
        thread.join()
        assert said == "None" if use == "close" else "fork" in said


PROGRAM = """
import os, sys
import pyarrow as pa
import streamjoin as sj

schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(100), "ts", "ts")
joins = [sj.open_join(spec, topology, workers=2) for topology in ("scalejoin", "handshake", "panjoin")]
for join in joins:
    join.push("left", pa.table({"ts": [1, 2], "x": [7, 7]}, schema=schema))
pid = os.fork()
if pid == 0:
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for join in joins:
    join.push("right", pa.table({"ts": [3], "x": [7]}, schema=schema))
    print(join.finish().num_rows)
"""


def test_a_fork_that_exits_with_joins_open_exits():
    """In its own process, because other functions registered to run at exit run as well."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=4 * SECONDS, check=True
    )
    assert done.stdout.split() == ["5", "2", "2", "2"]


@pytest.mark.parametrize("make", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_a_join_can_not_be_pickled_or_copied_and_says_what_to_do(make):
    with sj.open_join(SPEC) as join:
        with pytest.raises(sj.StreamJoinError, match=r"pickled or copied.*send its spec"):
            make(join)
        with pytest.raises(sj.StreamJoinError, match=r"pickled or copied.*send its spec"):
            pickle.dumps(join.source("left", "a"))
        assert pickle.loads(pickle.dumps(join.spec)) == SPEC
