"""Layers: runs merged in memory give the pairs that the runs give, whatever has expired, overlaps or was taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj

pytest.importorskip("pyspark")

from streamjoin.plan.options import Options
from streamjoin.plan.spark_tuning import DEFAULT_SPARK_TUNING
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.prober import SparkProber
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state import cache, layers
from streamjoin.spark.state.content import Content, Contents, all_at_once
from streamjoin.spark.state.layers import Layers, mergeable
from streamjoin.spark.state.manifest import MemoryStore, State
from streamjoin.spark.state.runs import StoredRun

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int64()})
WINDOW = 100


def make_task(on: str = "left.x = right.x", index: Any = "auto") -> JoinTask:
    spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(WINDOW), "ts", "ts")
    return JoinTask(spec, Options(index=index, engine="spark"))


def batch_of(rows: Sequence[tuple[int, int]]) -> pa.RecordBatch:
    return pa.record_batch([[ts for ts, _ in rows], [x for _, x in rows]], schema=SCHEMA)


def content_of(task: JoinTask, side: str, rows: Sequence[tuple[int, int]]) -> Content:
    return Content(task, side, batch_of(sorted(rows, key=lambda row: row[0])))


def run_of(token: str, content: Content) -> StoredRun:
    return StoredRun(0, token, 99, len(content), int(content.ts[0]), int(content.ts[-1]), 0, 0)


class Side:
    """Left runs by token, and what right rows find among those that are there."""

    def __init__(self, task: JoinTask, runs: Mapping[str, Sequence[tuple[int, int]]]):
        self.task, self.layers = task, Layers()
        self.contents = {token: content_of(task, "left", rows) for token, rows in runs.items()}

    def met(
        self, tokens: Sequence[str], probes: Sequence[tuple[int, int]], ahead: bool = True
    ) -> tuple[int, list[tuple[int, int]]]:
        """How many indexes were asked, and the times of the pairs that matched."""
        left = Contents([self.contents[token] for token in tokens])
        runs = [run_of(token, self.contents[token]) for token in tokens]
        right = content_of(self.task, "right", probes)
        stored = self.layers.over(runs, left, len(runs), ahead)
        prober = SparkProber(self.task, {"left": left, "right": Contents([right])})
        times = np.concatenate([content.ts for content in left.contents])
        found = [
            pair
            for pairs in prober.pairs("right", right.tuples, all_at_once(stored))
            for pair in zip(pairs["left"].tolist(), pairs["right"].tolist(), strict=True)
        ]
        assert len(found) == len(set(found)), "a pair came twice"
        return len(stored), sorted((int(times[l]), int(right.ts[r])) for l, r in found)


def test_three_runs_become_one_layer_and_the_first_may_expire():
    side = Side(make_task(), {"a": [(1, 7)], "b": [(2, 7), (3, 8)], "c": [(4, 7)]})
    assert side.met(["a", "b", "c"], [(50, 7)]) == (1, [(1, 50), (2, 50), (4, 50)])
    assert side.met(["b", "c"], [(50, 7)]) == (1, [(2, 50), (4, 50)]), "what is gone is not found"
    assert side.met(["c"], [(50, 7)]) == (1, [(4, 50)])


def test_a_micro_batch_merges_runs_only_when_they_are_many():
    most = DEFAULT_SPARK_TUNING.most_layers
    runs = {chr(ord("a") + number): [(number, 7)] for number in range(most + 1)}
    side, tokens = Side(make_task(), runs), list(runs)
    few = tokens[:most]
    found = [(number, 50) for number in range(most + 1)]
    assert side.met(few, [(50, 7)], ahead=False) == (most, found[:-1])
    assert side.met(tokens, [(50, 7)], ahead=False) == (1, found)
    assert side.met(tokens[1:], [(50, 7)], ahead=False) == (1, found[1:])


def test_two_runs_stay_as_they_are():
    side = Side(make_task(), {"a": [(1, 7)], "b": [(2, 7)]})
    assert side.met(["a", "b"], [(50, 7)]) == (2, [(1, 50), (2, 50)])


def test_runs_that_overlap_in_time_become_a_layer_in_the_order_of_time():
    side = Side(make_task(), {"a": [(1, 7), (9, 7)], "b": [(5, 7), (6, 8)], "c": [(4, 7), (20, 7)]})
    assert side.met(["a", "b", "c"], [(107, 7)]) == (1, [(9, 107), (20, 107)]), "within the window"
    assert side.met(["b", "c"], [(104, 7)]) == (1, [(20, 104)]), "nothing as old as what is gone"
    assert [layer.places is None for layer in side.layers._held] == [False]


def test_a_layer_of_runs_that_were_taken_back_is_not_used():
    """A micro-batch that failed had written d; the one that took its place wrote e."""
    rows = {"a": [(1, 7)], "b": [(2, 7)], "c": [(3, 7)], "d": [(4, 7)], "e": [(5, 7)]}
    side = Side(make_task(), rows)
    assert side.met(["b", "c", "d"], [(50, 7)]) == (1, [(2, 50), (3, 50), (4, 50)])
    assert side.met(["a", "b", "c", "e"], [(50, 7)]) == (1, [(1, 50), (2, 50), (3, 50), (5, 50)])


@pytest.mark.parametrize("left", ["a", "b", "ab", "ac"])
def test_a_layer_whose_later_runs_are_gone_is_not_used(left):
    """Rows out of order: a run may be newer than those after it, and outlive them."""
    rows = {"a": [(30, 7)], "b": [(20, 7)], "c": [(10, 7)]}
    side = Side(make_task(), rows)
    assert side.met(["a", "b", "c"], [(50, 7)])[0] == 1
    _, found = side.met(list(left), [(50, 7)])
    assert found == sorted((rows[token][0][0], 50) for token in left)


def test_rows_at_the_beginning_of_time_are_found():
    begin = -(2**63)
    side = Side(make_task(), {"a": [(begin, 7), (begin + 1, 7)]})
    assert side.met(["a"], [(begin, 7), (begin + 2, 7)])[1] == [
        (left, right) for left in (begin, begin + 1) for right in (begin, begin + 2)
    ]


def test_runs_before_a_layer_that_are_there_again_are_asked_as_well():
    side = Side(make_task(), {"a": [(1, 7)], "b": [(2, 7)], "c": [(3, 7)], "d": [(4, 7)]})
    assert side.met(["b", "c", "d"], [(50, 7)])[0] == 1
    assert side.met(["a", "b", "c", "d"], [(50, 7)]) == (2, [(1, 50), (2, 50), (3, 50), (4, 50)])


def test_layers_grow_geometrically_and_stay_bounded():
    most = DEFAULT_SPARK_TUNING.layer_rows
    assert mergeable([], most) == -1
    assert mergeable([16, 1, 1], most) == 1, "the large one waits for more"
    assert mergeable([16, 4, 1], most) == 2
    assert mergeable([16, 3, 1, 1], most) == 0
    assert mergeable([16, 3, 1, 1], 20) == 1


def test_few_layers_are_asked_and_rows_are_indexed_a_few_times(own_cache, monkeypatch):
    """Of a window of many runs; expired rows do not pile up either."""
    indexed, asked, held = 0, [], []
    merged = layers.merged

    def counted(parts):
        nonlocal indexed
        layer = merged(parts)
        indexed += len(layer.indexed)
        return layer

    monkeypatch.setattr(layers, "merged", counted)
    rows = {str(n): [(10 * n + i, i) for i in range(10)] for n in range(200)}
    side = Side(make_task(), rows)
    for n in range(40, 200):
        alive = [str(k) for k in range(n - 40, n)]
        asked.append(side.met(alive, [(10 * n, 1)])[0])
        held.append(sum(len(layer.indexed) for layer in side.layers._held))
    assert max(asked) <= 8
    assert indexed <= 8 * 10 * len(rows)
    assert max(held) <= 2 * 10 * 40


rows_of_a_run = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=6)


@settings(max_examples=40)
@given(
    st.lists(rows_of_a_run, min_size=1, max_size=14),
    st.sampled_from(["auto", "hash", "bisort", "scan"]),
    st.data(),
)
def test_layers_find_what_the_runs_would(runs, index, data):
    """Runs come in any order of time by up to a few of them, and the first ones go."""
    task = make_task(index=index)
    made = {str(n): [(ts + 10 * n, x) for ts, x in dict(rows).items()] for n, rows in enumerate(runs)}
    side, first = Side(task, made), 0
    for last in range(1, len(runs) + 1):
        first = data.draw(st.integers(first, last - 1))
        alive = [str(n) for n in range(first, last)]
        gone = max((ts for n in range(first) for ts, _ in made[str(n)]), default=-1)
        probe = gone + WINDOW + 1 + data.draw(st.integers(0, 40)), data.draw(st.integers(0, 3))
        found = side.met(alive, [probe])[1]
        low, high = probe[0] - WINDOW, probe[0] + WINDOW
        met = [
            (ts, probe[0]) for token in alive for ts, x in made[token] if x == probe[1] and low <= ts <= high
        ]
        assert found == sorted(met)


@pytest.mark.parametrize(
    "index",
    [
        "hash",
        "bisort",
        *(pytest.param(index, marks=pytest.mark.slow) for index in ("auto", "raptable", "wibtree")),
    ],
)
def test_differential_two_processes_take_turns_at_a_long_stream(own_cache, index):
    """Both keep layers of their own, and lose what they keep now and then; rows are out of order."""
    on = "left.x = right.x" if index == "hash" else "left.x BETWEEN right.x - 2 AND right.x + 2"
    task, store, random = make_task(on, index), MemoryStore(), Random(index)
    processes = [cache.ContentCache(1 << 30), cache.ContentCache(1 << 30)]
    rows = {side: [(ts, random.randrange(30)) for ts in range(400)] for side in ("left", "right")}
    found: list[tuple[int, ...]] = []
    for at in range(0, 420, 10):
        memory = random.choice(processes)
        if random.random() < 0.02:
            memory._held.clear()
        batches = {side: [batch_of(shuffled(some, at))] for side, some in rows.items()}
        with cache.replaced_caches(memory):
            counts = Counts()
            state = State(task, store, counts)
            for result in SparkWorker(task, 0, state, counts).step(batches, at - 6):
                found += [tuple(row.values()) for row in result.to_pylist()]
            state.save()
    left, right = (pa.Table.from_batches([batch_of(some)]) for some in rows.values())
    expected = sj.oracle.join(left, right, task.spec)
    assert sorted(found) == sorted(tuple(row.values()) for row in expected.to_pylist())


def shuffled(rows: Sequence[tuple[int, int]], at: int) -> list[tuple[int, int]]:
    """Ten rows from `at` on, of which every fifth changed places with one of the ten before or after."""
    place = {
        n: n + 5 if n % 10 == 8 else n - 5 if n % 10 == 3 and n > 5 else n for n in range(at - 10, at + 20)
    }
    return [rows[n] for n, p in place.items() if at <= p < at + 10 and 0 <= n < len(rows)]
