"""Rescaling without Spark: a query whose state is divided among other workers at any moment gives the oracle's rows."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj

pytest.importorskip("pyspark")

from spark_runs import EQUAL, NEAR, WINDOWS, histories, long_history, make_task
from streamjoin.semantics.keep import HOW
from streamjoin.spark.checkpoint.division import (
    check_done,
    check_hot_keys,
    division,
    reached,
    stored_task,
)
from streamjoin.spark.checkpoint.held import MANIFEST_VALUE, MATCHED, RUNS, HeldManifest
from streamjoin.spark.checkpoint.refill import StateWriter
from streamjoin.spark.join.hot_keys import given_hot_keys, with_hot_keys
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.state.manifest import StateError
from streamjoin.spark.window_join import with_late

KEEPS: tuple[Any, ...] = (
    sj.AsOf(),
    sj.AsOf("forward", strict=True),
    sj.AsOf("nearest"),
    sj.Nearest("abs(left.x - right.x)", k=2),
)


def held_by(query: Any) -> list[HeldManifest]:
    """The manifests of a query's workers."""
    state = query.tester.handle.value_states[MANIFEST_VALUE].state
    return [HeldManifest(key_of(key), 0, json.loads(bytes(value[0]))) for key, value in state.items()]


def key_of(key: Any) -> int:
    return int(key[0] if isinstance(key, tuple) else key)


def stored(query: Any, key: int, number: int) -> pa.Table:
    """A run's values, as the reader of state gives them."""
    maps, rows = query.tester.handle.map_states, []
    for kind in (RUNS, MATCHED):
        values = {key_of(each): found for each, found in maps[kind].state.items()} if kind in maps else {}
        if (number,) in values.get(key, {}):
            rows.append(
                {"worker": key, "number": number, "data": bytes(values[key][number,][0]), "kind": kind}
            )
    return pa.Table.from_pylist(rows)


def rescaled(query: Any, task: JoinTask, start: Any, hot: Any = ()) -> Any:
    """The same query with the workers of another task, which continues from its state."""
    held = held_by(query)
    after = start(task)
    after.rows, watermark = query.rows, query.tester._currentWatermarkMs
    if not held:
        return after
    cut = division(stored_task(task, held[0].values["join"], hot), task, held)
    parcels: dict[int, list[tuple[int, bytes]]] = {key: [(-1, b"")] for key in after.ids}
    for key, number in cut.runs:
        found = cut.parcels(stored(query, key, number))
        for worker, side, rows in zip(*(column.to_pylist() for column in found.columns), strict=True):
            parcels[worker].append((side, rows))
    after._begin(StateWriter(task, reached(held, watermark)))
    if watermark > 0:
        after.tester._currentWatermarkMs = watermark
        after.tester.handle.setWatermark(watermark)
    for worker, values in parcels.items():
        frame = pd.DataFrame({"side": [s for s, _ in values], "rows": [rows for _, rows in values]})
        after.tester.testInPandas(worker, frame)
    return after


def run_rescaled(start: Any, tasks: list[JoinTask], batches: list[Any], cuts: set[int]) -> list[Any]:
    """Run the micro-batches; before those whose numbers are in `cuts`, the next of the tasks takes over."""
    waiting = list(tasks)
    query = start(waiting.pop(0))
    for number, (left, right, watermark) in enumerate(batches):
        if number in cuts and waiting:
            query = rescaled(query, waiting.pop(0), start)
        query.batch(left, right)
        if watermark:
            query.batch(watermark=watermark)
    if waiting:
        query = rescaled(query, waiting.pop(0), start)
    query.finish()
    return sorted(query.rows, key=repr)


def some_rows(query: Any) -> int:
    return sum(
        run["rows"] for each in held_by(query) for runs in each.values["runs"].values() for run in runs
    )


# Literal cases


def test_a_row_that_waits_meets_its_partner_at_its_new_worker(start):
    query = start(make_task(workers=2))
    query.batch(left=[(10, key, "l") for key in range(1, 6)])
    after = rescaled(query, make_task(workers=5), start)
    assert some_rows(after) == 5 and len(held_by(after)) == 5
    found = after.batch(right=[(11, key, "r") for key in range(1, 6)])
    assert sorted(row[1] for row in found) == [1, 2, 3, 4, 5]


def test_a_row_that_has_found_a_partner_stays_found(start):
    query = start(make_task(how="left", workers=3))
    query.batch(left=[(10, 1, "found"), (10, 2, "alone")], right=[(10, 1, "r")])
    after = rescaled(query, make_task(how="left", workers=2), start)
    assert after.finish() == [(10, 2, "alone", None, None, None)]


def test_the_copies_of_a_row_are_stored_once(start):
    query = start(make_task(NEAR, partitioning="matrix", workers=4))
    query.batch(left=[(10, 1, "l")], right=[(12, 3, "r")])
    assert some_rows(query) == 4  # two copies of each
    after = rescaled(query, make_task(NEAR, partitioning="range", workers=1), start)
    assert some_rows(after) == 2
    assert after.batch(left=[(12, 2, "k")]) == [(12, 2, "k", 12, 3, "r")]


def test_workers_without_rows_have_a_state_that_belongs_to_the_join(start):
    query = start(make_task(workers=1))
    query.batch(left=[(10, 1, "l")])
    after = rescaled(query, make_task(workers=4), start)
    assert {each.values["join"]["workers"] for each in held_by(after)} == {"4"}
    with pytest.raises(StateError, match="workers was '4' and is now '1'"):
        start_with_state_of(after, make_task(workers=1), start).batch(left=[(11, 1, "l")])


def start_with_state_of(query: Any, task: JoinTask, start: Any) -> Any:
    other = start(task)
    other.tester.handle = query.tester.handle
    return other


def test_another_join_is_refused(start):
    query = start(make_task(workers=1))
    query.batch(left=[(10, 1, "l")])
    with pytest.raises(StateError, match="belongs to another join: how was 'inner' and is now 'left'"):
        rescaled(query, make_task(how="left", workers=2), start)


def test_a_worker_that_lags_behind_is_refused(start):
    task = make_task(order="timestamp", workers=2)
    query = start(task)
    query.batch(left=[(10, 1, "l")])
    times = query.task.times(query._packed("left", [(10, 1, "l")]), "left")
    check_done(task, "left", times, acted=5, until=9)
    with pytest.raises(StateError, match="let it run for a micro-batch"):
        check_done(task, "left", times, acted=5, until=10)


# Properties


def spread(draw: Any, on: str) -> tuple[int, Any]:
    kinds = ["auto", "matrix", *(["hash"] if "=" in on.replace("<=", "") else [])]
    return draw(st.integers(1, 6)), draw(st.sampled_from(kinds))


@st.composite
def tasks(draw: Any, count: int) -> list[JoinTask]:
    """The same join spread in several ways."""
    on = draw(st.sampled_from((EQUAL, NEAR, "left.name <> right.name")))
    given: dict[str, Any] = {"window": draw(st.sampled_from(WINDOWS)), "how": draw(st.sampled_from(HOW))}
    given["order"] = draw(st.sampled_from(("any", "timestamp")))
    if given["how"] in ("inner", "left") and draw(st.booleans()):
        given["keep"] = draw(st.sampled_from(KEEPS))
    if given["how"] != "inner" or "keep" in given:
        given["order"] = "any"
    made = []
    for _ in range(count):
        workers, partitioning = spread(draw, on)
        windows = given["window"] if isinstance(given["window"], tuple) else (given["window"],)
        if any(isinstance(window, sj.RowWindow) for window in windows):
            partitioning = "auto"
        made.append(make_task(on, workers=workers, partitioning=partitioning, **given))
    return made


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_any_join_rescaled_twice_gives_the_rows_of_the_oracle(data, start, oracle):
    chosen = data.draw(tasks(3))
    (left, right), batches = data.draw(histories())
    cuts = set(data.draw(st.lists(st.integers(0, len(batches)), max_size=2, unique=True)))
    assert run_rescaled(start, chosen, batches, cuts) == oracle(chosen[0], left, right)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_many_joins_rescaled_twice_give_the_rows_of_the_oracle(data, start, oracle):
    chosen = data.draw(tasks(3))
    (left, right), batches = data.draw(histories())
    cuts = set(data.draw(st.lists(st.integers(0, len(batches)), max_size=2, unique=True)))
    assert run_rescaled(start, chosen, batches, cuts) == oracle(chosen[0], left, right)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("on", "partitioning"), [(EQUAL, "hash"), (NEAR, "range"), (NEAR, "matrix")])
def test_a_long_stream_is_rescaled_again_and_again(start, oracle, on, partitioning, how):
    if (how, partitioning) == ("full", "range"):
        partitioning = "auto"
    (left, right), batches = long_history(Random(f"{on} {how} {partitioning}"), 60)
    other = "auto" if partitioning == "matrix" else "matrix"
    chosen = [
        make_task(
            on,
            how=how,
            workers=workers,
            partitioning=partitioning if workers % 2 else other,
            window=sj.TimeWindow(20),
        )
        for workers in (3, 1, 8, 5, 2)
    ]
    cuts = {len(batches) * part // 5 for part in (1, 2, 3, 4)}
    assert run_rescaled(start, chosen, batches, cuts) == oracle(chosen[0], left, right)


def test_late_rows_come_out_after_rescaling_too(start):
    tasks = [with_late(make_task(workers=workers), "late") for workers in (2, 3)]
    query = start(tasks[0])
    query.batch(left=[(10, None, "no key"), (30, 1, "l")])
    query.batch(watermark=20)
    after = rescaled(query, tasks[1], start)
    found = after.batch(right=[(5, 1, "late"), (31, 1, "r")])
    assert sorted(found, key=repr) == [
        (30, 1, "l", 31, 1, "r", False),
        (None, None, None, 5, 1, "late", True),
    ]


@pytest.mark.parametrize("how", ["inner", "left", "anti"])
def test_the_rows_of_hot_keys_are_divided_anew(start, oracle, how):
    """From a table of hot keys to another, to none, and back."""
    chosen, tables = [], []
    for workers in (4, 7, 3, 5):
        task = make_task(how=how, workers=workers, window=sj.TimeWindow(20))
        hot = () if workers == 3 else given_hot_keys(task, [1, 2])
        chosen.append(with_hot_keys(task, hot))
        tables.append(hot)
    (left, right), batches = long_history(Random(how), 120)
    query, cuts = start(chosen[0]), [len(batches) * part // 4 for part in (1, 2, 3)]
    for number, (lefts, rights, watermark) in enumerate(batches):
        if number in cuts:
            at = cuts.index(number) + 1
            query = rescaled(query, chosen[at], start, tables[at - 1])
        query.batch(lefts, rights)
        query.batch(watermark=watermark)
    query.finish()
    assert sorted(query.rows, key=repr) == oracle(chosen[0], left, right)


def test_hot_keys_of_more_workers_are_refused(start):
    task = make_task(workers=4)
    with pytest.raises(StateError, match="were found for more than 2 workers"):
        check_hot_keys(with_hot_keys(make_task(workers=2), given_hot_keys(task, [1])))
    query = start(with_hot_keys(task, given_hot_keys(task, [1])))
    query.batch(left=[(10, 1, "l")])
    with pytest.raises(StateError, match="with the hot keys it was started with"):
        rescaled(query, make_task(workers=2), start)
