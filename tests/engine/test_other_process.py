"""The process that compiles for a join: what happens if it fails, stops or is slow, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cold_runs import FINISH, PREDICATES, SCRIPT, SIGNALLED, STARTED, WAIT, environment, run
from streamjoin.jit import elsewhere
from streamjoin.jit.elsewhere import LONGEST_TURN


@pytest.mark.parametrize("failure", ["killed", "cannot start", "is no Python"])
def test_this_process_compiles_if_the_other_one_fails(nearly_filled: Path, failure: str) -> None:
    before = {
        "killed": SIGNALLED.format(name="SIGKILL"),
        "cannot start": "import sys; sys.executable = '/nowhere'\n",
        "is no Python": "import sys; sys.executable = '/bin/false'\n",
    }
    script = before[failure] + SCRIPT.format(on=PREDICATES["equality"], then=WAIT)
    done = subprocess.run(
        [sys.executable, "-c", script],
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
import os, re
link = lambda fd: os.readlink(f"/proc/{{child.pid}}/fd/{{fd}}")
file = open({str(tmp_path / "held")!r}, "w")
os.set_inheritable(file.fileno(), True)
{STARTED}
fds = ["".join(re.split(r":.*|#[0-9]+ ", link(fd))) for fd in (0, 1, 2)]
more = [os.path.basename(link(fd)) for fd in os.listdir(f"/proc/{{child.pid}}/fd") if int(fd) > 2]
held = [each for each in more if each in ("held", "compiling")]
{WAIT.replace("say(", "say(fds=fds, held=held, code=child.returncode, ")}
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
    assert found["fds"] == [f"{nearly_filled}/kernels-{os.geteuid()}/(deleted)", "pipe", "/dev/null"]
    assert found["held"] == ["compiling"]
    assert found["code"] == 0  # it was waited for, so no zombie is left


def test_short_scripts_fill_the_cache_and_do_not_wait_for_it(nearly_filled: Path) -> None:
    begun = "from streamjoin.jit import elsewhere\nsay(pids=[each.pid for each in elsewhere._running])\n"
    found, log = run(nearly_filled, PREDICATES["equality"], begun)
    (pid,) = found["pids"]
    assert is_alive(pid)  # so the output that `run` reads to its end was not held open by it
    again, log = run(nearly_filled, PREDICATES["equality"], begun)
    if is_alive(pid):
        assert again["pids"] == []  # two do not compile the same
    await_end(pid, 60)
    found, log = run(nearly_filled, PREDICATES["equality"], begun)
    assert (found["first"], found["pids"], found["compiled"], log) == (1, [], [], "")


def test_the_other_process_outlives_this_one_by_a_bounded_time(tmp_path: Path) -> None:
    script = """
import os, sys, time
from streamjoin.jit.elsewhere import RemoteCall, Turn
call = RemoteCall(time.sleep, 120, longest=3)
call.start(Turn(None))
print(call._process.pid, flush=True)
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(tmp_path), capture_output=True, text=True, timeout=60
    )
    pid = int(done.stdout)
    assert is_alive(pid)
    await_end(pid, 30)


def test_a_stopped_process_that_compiles_is_given_up(tmp_path: Path) -> None:
    script = """
import os, signal, time
from streamjoin.jit.elsewhere import NotCompiled, RemoteCall, Turn
call = RemoteCall(time.sleep, 120, longest=2)
call.start(Turn(None))
os.kill(call._process.pid, signal.SIGSTOP)
try:
    call.wait()
except NotCompiled as error:
    print(error, call._process.poll())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(tmp_path), capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"it did not end within 2 s {-signal.SIGKILL}\n"


# Pushes so much that NumPy forms take longer than they may.
MUCH = """
import time
from streamjoin.jit import readiness
many = pa.table({"ts": [2] * 4000, "k": range(8, 4008), "x": [1.0] * 4000, "y": [2.0] * 4000}, schema=schema)
begin = time.perf_counter()
while readiness.pending() and time.perf_counter() < begin + 100:
    join.push("left", many); join.push("right", many); join.poll_table()
seconds = time.perf_counter() - begin
join.push("left", many)  # runs every kernel of a push, also those that came before the wait
say(seconds=seconds, pending=readiness.pending(), matched=join.poll_table().num_rows >= 0)
child.kill()
"""


def test_a_join_waits_a_bounded_time_for_a_process_that_is_stopped(nearly_filled: Path) -> None:
    stopped = SIGNALLED.format(name="SIGSTOP") + SCRIPT
    found, log = run(nearly_filled, PREDICATES["equality"], STARTED + MUCH, stopped)
    assert (found["pending"], found["compiled"]) == (False, ["falls"])
    assert found["seconds"] < 60
    assert log.count("a call has waited 2 s: the other process is still compiling kernels") == 1


@pytest.fixture
def stopped_owner(nearly_filled: Path) -> Iterator[None]:
    """A process that has its turn to compile, and was stopped (Ctrl-Z)."""
    script = """
import sys, time
from streamjoin.jit import elsewhere, source
handle = source.usable_folder().lock(elsewhere.LOCK)
print(handle is not None, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment(nearly_filled), stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "True\n"
        owner.send_signal(signal.SIGSTOP)
        yield
        owner.kill()


@pytest.mark.usefixtures("stopped_owner")
def test_a_stopped_process_that_has_its_turn_delays_no_result_and_no_exit(nearly_filled: Path) -> None:
    begin = time.monotonic()
    found, _ = run(nearly_filled, PREDICATES["equality"])
    assert (found["first"], found["compiled"]) == (1, [])
    assert time.monotonic() - begin < LONGEST_TURN


@pytest.mark.usefixtures("stopped_owner")
def test_nobody_waits_long_for_the_turn_of_a_stopped_process(nearly_filled: Path) -> None:
    prepared = """
from streamjoin.engine.join import Join
from streamjoin.engine.open import compile_join
from streamjoin.engine.preparation import Preparation, _call_for
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Options
plan = make_plan(spec, Options())
Preparation(plan, _call_for(plan, compile_join), longest_turn=0.5).start()
join = Join(plan)
"""
    script = SCRIPT.replace("join = sj.open_join(spec)\n", prepared)
    found, log = run(nearly_filled, PREDICATES["equality"], WAIT, script=script)
    assert (found["pending"], found["matched"], found["compiled"]) == (False, True, [])
    assert log.count("another process has been compiling kernels") == 1


INTERRUPTED = """
import threading
from streamjoin.jit import readiness

start = threading.Thread.start
def interrupted(thread):
    if thread.name == "streamjoin-kernels":
        threading.Thread.start = start
        {first}
        raise KeyboardInterrupt
    start(thread)
threading.Thread.start = interrupted
"""


@pytest.mark.parametrize("first", ["pass", "start(thread)"], ids=["before it began", "after it began"])
def test_an_interrupt_while_the_thread_starts_leaves_nothing_to_wait_for(
    nearly_filled: Path, first: str
) -> None:
    opened = """
try:
    sj.open_join(spec)
except KeyboardInterrupt:
    print("interrupted", flush=True)
end = time.time() + 60
while readiness.pending() and time.time() < end: time.sleep(0.01)
print(readiness.pending(), flush=True)
join = sj.open_join(spec)
"""
    script = SCRIPT.replace("join = sj.open_join(spec)\n", opened)
    script = script.replace("schema = pa.schema", INTERRUPTED.format(first=first) + "\nschema = pa.schema")
    done = subprocess.run(
        [sys.executable, "-c", script.format(on=PREDICATES["equality"], then=FINISH)],
        env=environment(nearly_filled), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    interrupted, pending, said = done.stdout.splitlines()
    assert (interrupted, pending, json.loads(said)["first"]) == ("interrupted", "False", 1)
    assert "Traceback" not in done.stderr  # at the end, nothing joins a thread that never began


def test_one_line_on_the_log_for_all_joins_of_a_process(nearly_filled: Path) -> None:
    then = "sj.open_join(spec).close(); sj.open_join(spec).close()\n" + FINISH
    _, log = run(nearly_filled, PREDICATES["equality"], then)
    assert log.count("compiling kernels") == 1


def await_end(pid: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while is_alive(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="needs Linux's groups of sessions")
def test_the_session_of_the_other_process_has_a_low_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path))
    call = elsewhere.RemoteCall(time.sleep, 60)
    with elsewhere.turn(threading.Event(), 0) as turn:
        call.start(turn)
    process = call._process
    assert process is not None
    try:
        group, end = Path(f"/proc/{process.pid}/autogroup"), time.monotonic() + 20
        while not group.read_text().endswith(f" nice {elsewhere.NICE}\n"):
            assert time.monotonic() < end, group.read_text()
            time.sleep(0.01)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == elsewhere.NICE
    finally:
        process.kill()
        process.wait()
