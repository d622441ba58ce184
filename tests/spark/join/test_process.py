"""What a Python process does between two tasks: it must save time and must not change results."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from streamjoin.plan.options import Options
from streamjoin.plan.routing import Routing
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.process import BackgroundWork, GarbageControl
from streamjoin.spark.join.task import TIE, JoinTask
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state.manifest import MemoryStore, State
from streamjoin.spark.state.run_index import RunIndexer

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
EQUAL = "left.x = right.x"
NEAR = "abs(left.x - right.x) <= 3"
ROWS = 500  # of a side in a micro-batch, of which eight are a window


@pytest.fixture
def thawed() -> Iterator[None]:
    """Return to the garbage collector what a test has frozen."""
    yield
    gc.unfreeze()


def test_what_stays_after_a_task_is_looked_at_no_more(thawed, monkeypatch):
    garbage, freeze, frozen = GarbageControl(), gc.freeze, []
    for task in range(1, 9):
        monkeypatch.setattr(gc, "freeze", lambda at=task: frozen.append(at) or freeze())  # type: ignore[func-returns-value]
        garbage.end_task()
    assert frozen == [1, 2, 4, 8]
    assert gc.get_freeze_count() > 10_000  # the modules


def test_garbage_of_a_task_is_not_kept(thawed):
    class Circle:
        pass

    gone = threading.Event()
    circle = Circle()
    circle.itself = circle  # type: ignore[attr-defined]
    Circle.__del__ = lambda _self: gone.set()  # type: ignore[attr-defined]
    del circle
    GarbageControl().end_task()
    assert gone.is_set()


def test_work_is_done_ahead_in_order_and_a_failure_stops_nothing():
    done, all_done = [], threading.Event()
    ahead = BackgroundWork(wait=0)
    ahead.begin([lambda: done.append("first"), lambda: 1 // 0, lambda: done.append("last"), all_done.set])  # type: ignore[list-item]
    assert all_done.wait(60)
    ahead.finish()
    assert done == ["first", "last"]


def test_whoever_finishes_waits_for_what_is_being_done_and_for_nothing_else():
    ahead, begun, going_on, done = BackgroundWork(wait=0), threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        going_on.wait(60)
        done.append("begun")

    ahead.begin([work, lambda: done.append("not begun")])
    assert begun.wait(60)
    finisher = threading.Thread(target=ahead.finish)
    finisher.start()
    while not ahead._wanted.is_set():
        pass
    going_on.set()
    finisher.join()
    assert done == ["begun"]
    ahead.finish()  # of nothing


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("can't start new thread")], ids=repr)
def test_a_thread_that_could_not_start_leaves_nothing_to_wait_for(error: BaseException, monkeypatch):
    def interrupted(_: threading.Thread) -> None:
        raise error

    ahead, done = BackgroundWork(wait=0), threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(type(error)):
            ahead.begin([lambda: None])
    ahead.finish()
    ahead.begin([done.set])
    assert done.wait(60)
    ahead.finish()


def test_a_thread_whose_start_was_interrupted_does_none_of_the_work_later(monkeypatch):
    """An interrupt may come when the system has the thread already, but its first instruction has not run."""
    late: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        late.append(thread)
        raise KeyboardInterrupt

    ahead, done, all_done = BackgroundWork(wait=0), [], threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ahead.begin([lambda: done.append("of the interrupted thread")])
    ahead.begin([all_done.set])
    late[0].start()
    late[0].join()
    assert all_done.wait(60)
    ahead.finish()
    assert done == []


def make_task(on: str, how: Any = "inner", order: Any = "any") -> JoinTask:
    spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(4_000), "ts", "ts")
    return JoinTask(replace(spec, how=how), Options(order=order, engine="spark"), Routing("matrix", 1))


def rows(begin: int, count: int, seed: int) -> pa.RecordBatch:
    """As many rows as ticks; each has a match or two in a window."""
    random = np.random.default_rng([begin, seed])
    ts = np.sort(random.integers(begin, begin + count, count))
    return pa.record_batch([ts, random.integers(0, 5_000, count, np.int32)], schema=SCHEMA)


def step(task: JoinTask, store: MemoryStore, begin: int, prepare: bool) -> pa.Table:
    """A micro-batch of some rows a side; its results. Then what is done ahead, if it is."""
    counts = Counts()
    held = State(task, store, counts)
    worker = SparkWorker(task, 0, held, counts)
    batches = {side: [rows(begin, ROWS, seed)] for seed, side in enumerate(("left", "right"))}
    found = pa.Table.from_batches(list(worker.step(batches, begin - 1)), task.schema)
    held.save()
    if prepare:
        worker.prepare()
    return found.sort_by([(name, "ascending") for name in found.schema.names])


@pytest.mark.parametrize(
    ("on", "how", "order"),
    [(EQUAL, "inner", "any"), (NEAR, "inner", "any"), (NEAR, "full", "any"), (NEAR, "inner", "timestamp")],
)
def test_results_are_the_same_whether_indexes_were_made_ahead(own_cache, on, how, order):
    task, stores = make_task(on, how, order), (MemoryStore(), MemoryStore())
    for begin in range(0, 12 * ROWS, ROWS):
        ahead, not_ahead = (step(task, store, begin, store is stores[0]) for store in stores)
        assert ahead.equals(not_ahead)


def test_a_micro_batch_that_was_not_committed_leaves_nothing_behind_for_the_next_try(own_cache):
    """Its runs were merged ahead with others; those of the next try have other names."""
    task, store, plain = make_task(NEAR), MemoryStore(), MemoryStore()
    for begin in range(0, 12 * ROWS, ROWS):
        before = dict(store.values), store.manifest
        step(task, store, begin, True)
        store.values, store.manifest = before
        assert step(task, store, begin, True).equals(step(task, plain, begin, False))


def test_runs_of_the_state_are_indexed_ahead_and_not_by_the_next_micro_batch(own_cache, monkeypatch):
    task, store = make_task(NEAR), MemoryStore()
    for begin in range(0, 9 * ROWS, ROWS):
        step(task, store, begin, True)
    made = []
    index = RunIndexer.index
    monkeypatch.setattr(RunIndexer, "index", lambda *given: made.append(len(given[1])) or index(*given))  # type: ignore[func-returns-value]
    step(task, store, 9 * ROWS, False)
    assert made == [ROWS]  # the new right rows, which the new left ones probe


def test_a_worker_that_has_no_row_to_probe_with_prepares_nothing(own_cache):
    """Where every worker has all rows, one of two may have none of those that settle."""
    spec = sj.JoinSpec(SCHEMA, SCHEMA, NEAR, sj.TimeWindow(4_000), "ts", "ts")
    task = JoinTask(spec, Options(index="bisort", order="timestamp", engine="spark"), Routing("every", 2))
    prepared = []
    for number in range(2):
        held = State(task, MemoryStore(), Counts())
        worker = SparkWorker(task, number, held, Counts())
        for begin in range(4):
            one = rows(begin, 1, 0).append_column(TIE, pa.array([0]))
            list(worker.step({"left": [one], "right": [one]}, begin - 1))
            held.save()
        worker.prepare()
        prepared.append(sorted(worker._probed))
    assert sorted(prepared) == [[], ["left", "right"]]
