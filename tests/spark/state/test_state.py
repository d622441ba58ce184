"""State: what is written and kept, what a cache may lose, and checkpoints that do not fit."""

from __future__ import annotations

import contextlib
import copy
import errno
import io
import json
import pickle
import socket
import uuid
from collections.abc import Generator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from streamjoin.jit import own_folder
from streamjoin.plan.options import Options
from streamjoin.plan.routing import Routing
from streamjoin.spark import StateError
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.processor import MOST_UNANSWERED, answered_together
from streamjoin.spark.join.task import END_OF_TIME, TIE, JoinTask
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state import cache
from streamjoin.spark.state import manifest as state
from streamjoin.spark.state.content import Contents
from streamjoin.spark.state.manifest import MemoryStore, State

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})


def make_task(
    window: sj.TimeWindow | None = None,
    how: Any = "inner",
    left_time: str = "ts",
    index: Any = "auto",
    on: str = "left.x = right.x",
) -> JoinTask:
    spec = sj.JoinSpec(SCHEMA, SCHEMA, on, window or sj.TimeWindow(4_000), left_time, "ts")
    return JoinTask(replace(spec, how=how), Options(index=index, engine="spark"), Routing("hash", 1))


def rows(begin: int, count: int) -> pa.RecordBatch:
    ts = np.arange(begin, begin + count)
    return pa.record_batch([ts, (ts * 7919 % 1009).astype(np.int32)], schema=SCHEMA)


def step(task: JoinTask, store: MemoryStore, begin: int, count: int, watermark: int) -> Counts:
    counts = Counts()
    held = State(task, store, counts)
    worker = SparkWorker(task, 0, held, counts)
    list(worker.step({"left": [rows(begin, count)], "right": [rows(begin, count)]}, watermark))
    held.save()
    return counts


def test_bytes_written_follow_the_new_rows_and_not_the_window(own_cache):
    """A row is written once a level, whatever the window holds."""
    task, store = make_task(), MemoryStore()
    counts = [step(task, store, at, 100, at - 1) for at in range(0, 12_000, 100)]
    half = len(counts) // 2
    early, late = (sum(c.written_bytes for c in part) for part in (counts[:half], counts[half:]))
    assert late < 1.3 * early
    per_batch = counts[0].written_bytes
    assert sum(c.written_bytes for c in counts) < 5 * per_batch * len(counts)


def test_state_stays_within_a_share_of_the_window(own_cache):
    task, store = make_task(), MemoryStore()
    counts = [step(task, store, at, 100, at - 1) for at in range(0, 12_000, 100)]
    full = 2 * 4_000
    assert full <= counts[-1].state_rows <= full * (1 + 2 / state.RUN_OF_WINDOW) + 800
    assert len(store.values) < 3 * state.RUN_OF_WINDOW


def test_a_merged_run_replaces_those_it_was_made_of(own_cache):
    task, store = make_task(sj.TimeWindow(400 * state.RUN_OF_WINDOW)), MemoryStore()
    sizes = []
    for at in range(0, 400, 100):
        step(task, store, at, 100, -1)
        sizes.append(len(store.values))
    assert sizes == [2, 2, 4, 2]
    held = State(task, store, Counts())
    content = held.content("left", held.runs["left"][0])
    assert content.ts.tolist() == list(range(400))


def test_every_attempt_names_its_runs_anew(own_cache):
    """A failed attempt and the one that replaces it begin with the same state and write other rows. Data that the
    first left in memory and in files is never taken for data of the second."""
    task, store = make_task(), MemoryStore()
    step(task, store, 0, 10, -1)
    committed = copy.deepcopy(store)
    step(task, store, 100, 10, 99)
    step(task, committed, 200, 10, 199)
    failed, retried = (State(task, each, Counts()) for each in (store, committed))
    assert failed.token == retried.token
    tokens = [{run.token for runs in held.runs.values() for run in runs} for held in (failed, retried)]
    assert len(tokens[0] - tokens[1]) == 2
    for _ in ("memory", "files"):
        found = [retried.content("left", run).ts.tolist() for run in retried.runs["left"]]
        assert found[-1][-10:] == list(range(200, 210))
        cache.RUN_MEMORY._held.clear()


def test_a_run_is_read_from_memory_then_from_a_file_then_from_the_store(own_cache):
    task, store = make_task(), MemoryStore()
    step(task, store, 0, 10, -1)
    assert (hits(task, store), misses(task, store)) == (2, 0)
    cache.RUN_MEMORY._held.clear()
    assert (hits(task, store), len(list(own_cache.iterdir()))) == (2, 2)
    cache.RUN_MEMORY._held.clear()
    for path in own_cache.iterdir():
        path.unlink()
    assert misses(task, store) == 2


@pytest.mark.parametrize("damage", ["torn", "changed", "empty", "a folder"])
def test_a_damaged_file_is_not_used(own_cache, damage):
    task, store = make_task(), MemoryStore()
    step(task, store, 0, 10, -1)
    cache.RUN_MEMORY._held.clear()
    for path in list(own_cache.iterdir()):
        data = path.read_bytes()
        path.unlink()
        if damage == "a folder":
            path.mkdir()
        else:
            path.write_bytes(
                {"torn": data[:-9], "changed": data[:200] + b"\xff" + data[201:], "empty": b""}[damage]
            )
    assert misses(task, store) == 2


def hits(task: JoinTask, store: MemoryStore) -> int:
    return reading(task, store).cache_hits


def misses(task: JoinTask, store: MemoryStore) -> int:
    return reading(task, store).cache_misses


def reading(task: JoinTask, store: MemoryStore) -> Counts:
    counts = Counts()
    held = State(task, store, counts)
    for side, runs in held.runs.items():
        assert all(held.content(side, run).ts.tolist() == list(range(10)) for run in runs)
    return counts


def test_files_of_expired_runs_are_removed(own_cache):
    task, store = make_task(), MemoryStore()
    step(task, store, 0, 10, -1)
    assert len(list(own_cache.iterdir())) == 2
    step(task, store, 9_000, 1, 8_000)
    assert len(list(own_cache.iterdir())) == 2  # the new ones


def test_a_full_disk_costs_speed_only_and_is_left_no_fuller(own_cache, monkeypatch):
    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            super().write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(own_folder, "open", Full, raising=False)
    task, store = make_task(), MemoryStore()
    step(task, store, 0, 10, -1)
    cache.RUN_MEMORY._held.clear()
    assert misses(task, store) == 2
    assert list(own_cache.iterdir()) == []


def test_the_least_recently_used_files_go_first(own_cache):
    cache.RUN_FILES.most = 1000
    for number in range(4):
        cache.RUN_FILES.put(f"{number:032x}", b"x" * 400, b"key")
    cache.RUN_FILES.clean()
    assert len(list(own_cache.iterdir())) == 2


def test_a_query_that_has_ended_leaves_no_files_and_those_of_others(own_cache, monkeypatch):
    def run_tasks_of(query: str) -> None:
        running = SimpleNamespace(getLocalProperty={cache.QUERY: query}.get)
        monkeypatch.setattr("streamjoin.spark.state.cache.TaskContext.get", lambda: running)
        cache.RUN_MEMORY._held.clear()

    task, stores = make_task(), {str(uuid.UUID(int=number)): MemoryStore() for number in (1, 2)}
    first, second = stores
    for query, store in stores.items():
        run_tasks_of(query)
        step(task, store, 0, 10, -1)
    cache.RUN_FILES.remove_all_of(first)
    run_tasks_of(second)
    assert (hits(task, stores[second]), len(list(own_cache.iterdir()))) == (2, 2)
    run_tasks_of(first)
    assert misses(task, stores[first]) == 2
    cache.FileCache(own_cache / "nowhere", 1 << 30).remove_all_of(first)


def test_the_least_recently_used_contents_go_first(own_cache):
    task, store = make_task(), MemoryStore()
    step(task, store, 0, 10, -1)
    held = State(task, store, Counts())
    left = held.content("left", held.runs["left"][0])
    cache.RUN_MEMORY.most = 200
    cache.RUN_MEMORY.trim()
    assert list(cache.RUN_MEMORY._held.values()) == [left]


def test_runs_that_another_process_has_replaced_do_not_pile_up(own_cache):
    """Spark gives a worker to any Python process of the host: here to two of them in turn."""
    task, store = make_task(), MemoryStore()
    processes = [cache.RUN_MEMORY, cache.ContentCache(1 << 30)]
    held = []
    for number in range(240):
        with cache.replaced_caches(processes[number % 2]):
            step(task, store, 100 * number, 100, 100 * number - 1)
        held.append(len(processes[0]._held))
    assert max(held[120:]) <= max(held[60:120]) < 3 * state.RUN_OF_WINDOW


def test_two_queries_of_one_join_leave_each_others_runs_in_memory(own_cache):
    """The same job with two checkpoints, in one Python process: each finds its own runs and layers again."""
    task, stores = make_task(), (MemoryStore(), MemoryStore())
    for at in range(0, 2_000, 100):
        for store in stores:
            step(task, store, at, 100, at - 1)
    for store, other in (stores, stores[::-1]):
        counts, before = Counts(), set(cache.RUN_MEMORY._held)
        held = State(task, store, counts)
        layers = held.layered("left", contents_of(held, "left"))
        assert len(layers) < len(held.runs["left"])
        held.save()
        assert set(cache.RUN_MEMORY._held) == before
        assert (counts.cache_hits, counts.cache_misses) == (len(held.runs["left"]), 0)
        assert held.token != State(task, other, Counts()).token


def contents_of(held: State, side: str) -> Contents:
    return Contents([held.content(side, run) for run in held.runs[side]])


def test_a_retried_micro_batch_and_a_restart_keep_the_name_of_the_state(own_cache):
    task, store = make_task(), MemoryStore()
    step(task, store, 0, 10, -1)
    first = State(task, store, Counts()).token
    committed = copy.deepcopy(store)
    step(task, store, 10, 10, 9)
    step(task, committed, 10, 10, 9)  # the attempt that replaces the failed one
    restarted = pickle.loads(pickle.dumps(task))
    assert {State(restarted, each, Counts()).token for each in (store, committed)} == {first}


def test_state_without_a_name_is_given_one_when_it_is_written(own_cache):
    task, store = make_task(), MemoryStore()
    step(task, store, 0, 10, -1)
    assert store.manifest is not None
    manifest = json.loads(store.manifest)
    del manifest["token"]
    store.manifest = json.dumps(manifest).encode()
    given = State(task, store, Counts()).token
    assert (
        given == State(task, store, Counts()).token
    )  # an attempt that fails leaves nothing behind under another name
    step(task, store, 10, 10, 9)
    assert State(task, store, Counts()).token == given


def test_owners_of_nothing_are_forgotten(own_cache):
    """Queries come and go, and a Python process serves them all."""
    for _ in range(10):
        step(make_task(), MemoryStore(), 0, 10, -1)
    assert len(cache.RUN_MEMORY._owned) == 10
    cache.RUN_MEMORY.most = 0
    step(make_task(), MemoryStore(), 0, 10, -1)
    assert not cache.RUN_MEMORY._held and not cache.RUN_MEMORY._owned


@pytest.mark.parametrize("indexes", [("bisort", "scan"), ("scan", "bisort")], ids="-".join)
def test_another_index_goes_on_from_the_same_state_in_the_same_process(own_cache, indexes):
    """What was prepared for one index is not probed as if it were another's."""
    on, store, found = "left.x < right.x AND (left.ts + right.ts) % 7 = 3", MemoryStore(), []
    for at, index in zip(range(0, 200, 50), (*indexes, *indexes), strict=True):
        task, counts = make_task(sj.TimeWindow(60), index=index, on=on), Counts()
        held = State(task, store, counts)
        batches = {side: [rows(at, 50)] for side in ("left", "right")}
        for result in SparkWorker(task, 0, held, counts).step(batches, at - 1):
            found += [tuple(row.values()) for row in result.to_pylist()]
        held.save()
    everything = pa.Table.from_batches([rows(0, 200)])
    expected = sj.oracle.join(everything, everything, task.spec).to_pylist()
    assert sorted(found) == sorted(tuple(row.values()) for row in expected)


@pytest.mark.parametrize("version", [0, state.STATE_VERSION + 1])
def test_state_of_another_version_is_refused(own_cache, version):
    task, store = make_task(), MemoryStore()
    step(task, store, 0, 10, -1)
    assert store.manifest is not None
    store.manifest = json.dumps({**json.loads(store.manifest), "version": version}).encode()
    with pytest.raises(
        StateError, match=f"state of version {version}.*reads versions 1 to {state.STATE_VERSION}"
    ):
        State(task, store, Counts())


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (make_task(sj.TimeWindow(5)), "window was .* and is now"),
        (make_task(how="left"), "how was 'inner'"),
        (make_task(left_time="x"), "left_time was 'ts' and is now 'x'"),
    ],
)
def test_state_of_another_join_is_refused(own_cache, other, names):
    store = MemoryStore()
    step(make_task(), store, 0, 10, -1)
    with pytest.raises(StateError, match=f"belongs to another join: .*{names}"):
        State(other, store, Counts())


def test_state_that_does_not_name_its_time_columns_is_read(own_cache):
    task, store = make_task(), MemoryStore()
    step(task, store, 0, 10, -1)
    assert store.manifest is not None
    manifest = json.loads(store.manifest)
    del manifest["join"]["left_time"], manifest["join"]["right_time"]
    store.manifest = json.dumps(manifest).encode()
    assert sum(run.rows for run in State(task, store, Counts()).runs["left"]) == 10


@pytest.mark.parametrize("window", [sj.RowWindow(5), sj.TimeWindow(5)], ids=["rows", "time"])
@pytest.mark.parametrize("order", ["any", "timestamp"])
@pytest.mark.parametrize("how", ["inner", "full"])
def test_rows_at_the_least_and_the_greatest_time_are_joined_and_decided(own_cache, window, order, how):
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", window, "ts", "ts")
    times, counts = (-(2**63), 2**63 - 1), Counts()
    task = JoinTask(
        replace(spec, how=how),
        Options(order=order, engine="spark"),
        Routing("every" if window == sj.RowWindow(5) else "matrix", 1),
    )
    batches = {}
    for side, x in (("left", [1, 2]), ("right", [1, 3])):
        batch = pa.record_batch([pa.array(times), pa.array(x, pa.int32())], schema=SCHEMA)
        batches[side] = [batch.append_column(TIE, pa.array([0, 1])) if task.tied else batch]
    worker = SparkWorker(task, 0, State(task, MemoryStore(), counts), counts)
    found = [tuple(row.values()) for out in worker.step(batches, END_OF_TIME) for row in out.to_pylist()]
    least, greatest = times
    alone = [(greatest, 2, None, None), (None, None, greatest, 3)] if how == "full" else []
    assert sorted(found, key=str) == sorted([(least, 1, least, 1), *alone], key=str)


def test_a_state_without_runs_leaves_nothing_in_memory(own_cache):
    """Joins of tables have no state, and a Python process makes any number of them."""
    task, counts = make_task(), Counts()
    for _ in range(3):
        worker = SparkWorker(task, 0, State(task, MemoryStore(), counts), counts)
        assert list(worker.step({"left": [rows(0, 10)], "right": [rows(0, 10)]}, END_OF_TIME))
    assert not cache.RUN_MEMORY._held and not cache.RUN_MEMORY._owned


class Client:
    """As Spark's, which sends a message and then waits for its answer. The store answers `refused` and closes."""

    def __init__(self, refused: str = ""):
        self.refused, self.answered, self.gone = refused, 0, False
        self.sent: list[str] = []
        self._client_socket, _ = socket.socketpair()

    def tell(self, what: str) -> None:
        if self.gone:
            raise BrokenPipeError
        self.sent.append(what)
        status, error, _ = self._receive_proto_message()
        assert not status, error

    def _receive_proto_message(self) -> tuple[int, str, bytes]:
        told = self.sent[self.answered]
        if self.refused in self.sent[: self.answered]:
            raise EOFError
        self.answered += 1
        return (1, f"no {told}", b"") if told == self.refused else (0, "", b"")


def handle_of(client: Client) -> Any:
    return SimpleNamespace(_statefulProcessorApiClient=client)


def test_all_is_sent_before_any_answer_is_waited_for():
    client = Client()
    with answered_together(handle_of(client)):
        client.tell("runs")
        client.tell("manifest")
        assert (client.sent, client.answered) == (["runs", "manifest"], 0)
    assert client.answered == 2
    client.tell("timer")
    assert client.answered == 3


def test_never_are_so_many_answers_unread_that_the_store_waits():
    client, most = Client(), 0
    with answered_together(handle_of(client)):
        for number in range(1000):
            client.tell(f"removal {number}")
            most = max(most, len(client.sent) - client.answered)
    assert most < MOST_UNANSWERED
    assert client.answered == 1000


@pytest.mark.parametrize("gone", [False, True])
def test_what_the_store_does_not_take_fails_the_micro_batch(gone):
    """Whether the store closes before or after everything was sent to it."""
    client = Client(refused="runs")

    def tell() -> None:
        with answered_together(handle_of(client)):
            client.tell("runs")
            client.gone = gone
            client.tell("manifest")

    with pytest.raises(StateError, match="did not accept the state of this micro-batch: no runs"):
        tell()
    assert client.answered == 1


def told_and_left(client: Client) -> Generator[str]:
    """As the processor does: the last results leave while the store has not answered."""
    with answered_together(handle_of(client)):
        client.tell("runs")
        yield "results"


def test_a_micro_batch_fails_after_its_results_have_left_if_the_store_does_not_take_it():
    client = Client(refused="runs")
    leaving = told_and_left(client)
    assert (next(leaving), client.answered) == ("results", 0)
    with pytest.raises(StateError, match="no runs"):
        next(leaving)


def test_a_micro_batch_that_is_given_up_while_its_results_leave_waits_for_nothing():
    client = Client()
    leaving = told_and_left(client)
    next(leaving)
    leaving.close()
    assert client.answered == 0
    client.tell("timer")
    assert client.answered == 1


def test_a_store_that_is_gone_without_a_word_fails_the_micro_batch():
    client = Client()

    def tell() -> None:
        with answered_together(handle_of(client)):
            client.gone = True
            client.tell("runs")

    with pytest.raises(BrokenPipeError):
        tell()


def test_dropped_runs_leave_the_store_with_the_manifest(own_cache):
    task, store = make_task(how="left"), MemoryStore()
    for at in range(0, 12_000, 500):
        step(task, store, at, 500, at - 1)
        runs = json.loads(store.manifest or b"")["runs"]
        named = {run["number"] for side in runs.values() for run in side}
        kept = {run["number"] for run in runs["left"]}
        assert {number for kind, number in store.values if kind == "runs"} == named
        assert {number for kind, number in store.values if kind == "matched"} == kept


def test_caches_are_replaced_inside_the_block_only(tmp_path):
    def now() -> tuple[cache.ContentCache, cache.FileCache]:
        return cache.RUN_MEMORY, cache.RUN_FILES

    before = now()
    memory, files = cache.ContentCache(1), cache.FileCache(tmp_path, 1)
    with contextlib.suppress(KeyError), cache.replaced_caches(memory):
        assert now() == (memory, before[1])
        with cache.replaced_caches(files=files):
            assert now() == (memory, files)
        raise KeyError
    assert now() == before
