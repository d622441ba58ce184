"""The driver has the kernels of a join compiled by another process, once, where the workers share its cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.jit import elsewhere
from streamjoin.spark import ahead
from streamjoin.spark.join.rehearsal import rehearse_task
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.window_join import make_task, with_late

SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us", "UTC"),
        "k": pa.int32(),
        "x": pa.float32(),
        "name": pa.string(),
        "day": pa.date32(),
        "price": pa.decimal128(10, 2),
        "tags": pa.list_(pa.string()),
    }
)
BAND = "abs(left.x - right.x) <= 2"


def task_of(on: Any, window: Any = "1 minute", workers: int = 2, **options: Any) -> JoinTask:
    spec = sj.JoinSpec(SCHEMA, SCHEMA, on, window, "ts", "ts", **options)
    return make_task(spec, "any", "auto", "auto", workers)


def test_a_rehearsal_runs_a_join():
    rehearse_task(task_of("left.k = right.k"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [
        task_of(BAND, how="left"),
        task_of("left.k = right.k AND left.price < right.price", how="full"),
        task_of("left.name <> right.name OR left.day = right.day", workers=3, how="semi"),
        task_of("left.name = right.name", keep=sj.AsOf(), how="left"),
        task_of("left.k = right.k", keep=sj.Nearest("abs(left.x - right.x)")),
        task_of(BAND, sj.RowWindow(5)),
        with_late(task_of("left.k = right.k", columns=["left.ts", "right.tags"]), "late"),
    ],
    ids=lambda task: f"{task.spec.on} {task.spec.how} {task.routing.kind}",
)
def test_a_rehearsal_runs_every_kind_of_join(task):
    rehearse_task(task)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls that would run in another process."""
    calls: list[tuple[Any, ...]] = []

    class Call:
        def __init__(self, *call: Any):
            self.call = call

        def start(self, turn: elsewhere.Turn) -> None:
            calls.append(self.call)

    monkeypatch.setenv(elsewhere.WAIT, "ahead")
    monkeypatch.setattr(elsewhere, "RemoteCall", Call)
    monkeypatch.setattr(ahead, "is_classic", lambda spark: True)
    return calls


def session(master: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master))


def near(left: Any, right: Any) -> Any:
    return abs(left.x - right.x) <= 2


def test_the_kernels_of_a_join_are_compiled_once(started, monkeypatch, tmp_path):
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ahead, "rehearse_task", lambda task: None)
    task, other = task_of("left.k = right.k"), task_of(BAND)
    for each in (task, other):
        ahead.compile_ahead(session("local[2]"), each)
    assert started == [(ahead.rehearse_and_note, task), (ahead.rehearse_and_note, other)]
    ahead.rehearse_and_note(task)
    for each in (task, other):
        ahead.compile_ahead(session("local[2]"), each)
    assert started[2:] == [(ahead.rehearse_and_note, other)]


@pytest.mark.parametrize(
    ("master", "on", "mode"),
    [
        ("spark://host:7077", BAND, "ahead"),
        ("local[2]", near, "ahead"),
        ("local[2]", BAND, "wait"),
    ],
)
def test_no_process_is_started_where_it_would_not_help(started, monkeypatch, master, on, mode):
    monkeypatch.setenv(elsewhere.WAIT, mode)
    ahead.compile_ahead(session(master), task_of(on))
    assert started == []
