"""A worker joins with NumPy forms until the driver's process has compiled the kernels."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from streamjoin.jit import elsewhere, readiness
from streamjoin.spark.join import kernels
from streamjoin.spark.join.rehearsal import _rehearsed_rows
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.state.content import Content
from streamjoin.spark.state.run_index import RunIndex, ScannedRun
from streamjoin.spark.window_join import make_task

POINTS = pa.schema({"ts": pa.timestamp("us", "UTC"), "x": pa.int32()})


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JoinTask]:
    """A join whose driver has had its kernels compiled into an empty cache. The predicate is that of this test."""
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "_seen", set())
    spec = sj.JoinSpec(POINTS, POINTS, "left.x = right.x", "1 minute", "ts", "ts")
    made = replace(make_task(spec, "any", "hash", "auto", 1), compiles_ahead=True)
    yield made
    readiness.end(made.digest)


def until(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_forms_run_while_another_process_compiles(task, monkeypatch):
    loaded = threading.Event()
    monkeypatch.setattr(kernels, "compile_plan", lambda plan: loaded.set())
    with elsewhere.turn(threading.Event()) as turn:
        assert turn.handle is not None
        kernels.use_forms(task)
        assert readiness.pending()
        assert not loaded.wait(3 * elsewhere.LOOK)
    until(lambda: not readiness.pending())
    assert loaded.is_set()


def test_a_process_that_fails_leaves_no_forms_behind(task, monkeypatch):
    def missing(plan):
        raise readiness.NotReady("a kernel", True)

    monkeypatch.setattr(kernels, "compile_plan", missing)
    kernels.use_forms(task)
    until(lambda: not readiness.pending())


@pytest.mark.parametrize("reason", ["noted", "nobody compiles", "known"])
def test_no_forms_run_without_need(task, reason):
    if reason == "noted":
        kernels.note(task)
    if reason == "known":
        kernels._seen.add(task.digest)
    kernels.use_forms(replace(task, compiles_ahead=reason != "nobody compiles"))
    assert not readiness.pending()


def test_a_run_is_scanned_until_its_index_can_be_compiled(task):
    rows = _rehearsed_rows(task, "left", False)
    rows = pa.concat_batches([rows] * 64)
    stored, probing = Content(task, "left", rows), Content(task, "right", rows)
    who = object()
    readiness.begin(who)
    try:
        stored.indexed.expect(probing.tuples)
        assert isinstance(stored.indexed.index, ScannedRun)
    finally:
        readiness.end(who)
    stored.indexed.expect(probing.tuples)
    assert isinstance(stored.indexed.index, RunIndex)
