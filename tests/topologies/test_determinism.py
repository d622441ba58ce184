"""Every topology that promises sorted output gives the same bytes, whatever the workers, the physical sources, and
their paces."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from handshake_runs import SCHEMA, spec_of
from streamjoin.plan.options import TOPOLOGY_NAMES

MOST_WORKERS, MOST_SOURCES = 8, 6
OUTCOMES: dict[str, dict[str, Any]] = {
    "left": {"how": "left"},
    "full": {"how": "full"},
    "anti": {"how": "anti"},
    "as_of": {"how": "left", "keep": sj.AsOf()},
    "nearest in time": {"how": "left", "keep": sj.AsOf("nearest")},
}
ROWS = 240


def rows_of(seed: int) -> pa.Table:
    """Times that differ, so that the order does not depend on which source brings which row."""
    draw = np.random.default_rng(seed)
    ts = np.sort(draw.choice(2 * ROWS, ROWS, replace=False))
    columns = {"ts": ts, "x": draw.integers(0, 4, ROWS, dtype=np.int32), "n": np.arange(ROWS)}
    return pa.table(columns, schema=SCHEMA)


def as_bytes(batches: list[pa.RecordBatch]) -> bytes:
    """The rows as one piece of Arrow's format: the cuts between batches are no part of the promise."""
    sink = pa.BufferOutputStream()
    table = pa.Table.from_batches(batches).combine_chunks()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def joined(topology: Any, spec: sj.JoinSpec, tables: dict[str, pa.Table], seed: int) -> bytes:
    """One run: every source has a thread that pushes pieces of any size, with pauses, while this one polls."""
    draw = random.Random(seed)
    workers = draw.randint(1, MOST_WORKERS)
    index: Any = draw.choice(["scan", "hash", "bisort"])
    dealt: dict[tuple[str, str], pa.Table] = {}
    for side, table in tables.items():
        count = draw.randint(1, MOST_SOURCES)
        owner = np.array([draw.randrange(count) for _ in range(ROWS)])
        dealt |= {(side, f"s{k}"): table.filter(pa.array(owner == k)) for k in range(count)}
    with sj.open_join(spec, topology, index, workers, "timestamp") as join:
        sources = {key: join.source(*key) for key in dealt}
        found: list[pa.RecordBatch] = []

        def feed(key: tuple[str, str]) -> None:
            pace, at = random.Random(f"{seed} {key}"), 0
            while at < dealt[key].num_rows:
                size = pace.randint(1, 30)
                sources[key].push(dealt[key].slice(at, size))
                at += size
                time.sleep(pace.choice([0, 0, 1e-5, 5e-4]))
            sources[key].close()

        with ThreadPoolExecutor(len(dealt)) as threads:
            fed = [threads.submit(feed, key) for key in dealt]
            while not all(each.done() for each in fed):
                found += join.poll()
                time.sleep(1e-4)
            for each in fed:
                each.result()
        found += join.finish().to_batches()
    return as_bytes(found)


def check_same_bytes(topology: Any, spec: sj.JoinSpec, runs: int) -> None:
    tables = {"left": rows_of(1), "right": rows_of(2)}
    expected = sj.oracle.join(tables["left"], tables["right"], spec)
    assert expected.num_rows > 100 or (spec.how == "anti" and expected.num_rows > 20)
    wanted, before = as_bytes(expected.to_batches()), threading.active_count()
    for seed in range(runs):
        assert joined(topology, spec, tables, seed) == wanted, seed
    assert threading.active_count() == before


@pytest.mark.parametrize("topology", list(TOPOLOGY_NAMES))
def test_sorted_output_is_the_same_bytes(topology):
    check_same_bytes(topology, spec_of(sj.TimeWindow(24)), 2)


@pytest.mark.parametrize("outcome", list(OUTCOMES))
@pytest.mark.parametrize("topology", list(TOPOLOGY_NAMES))
def test_sorted_outcomes_are_the_same_bytes(topology, outcome):
    check_same_bytes(topology, replace(spec_of(sj.TimeWindow(6)), **OUTCOMES[outcome]), 2)


@pytest.mark.slow
@pytest.mark.parametrize("window", [sj.TimeWindow(6), sj.RowWindow(3)], ids=["time", "rows"])
@pytest.mark.parametrize("outcome", list(OUTCOMES))
@pytest.mark.parametrize("topology", list(TOPOLOGY_NAMES))
def test_sorted_outcomes_are_the_same_bytes_over_twenty_runs(topology, outcome, window):
    check_same_bytes(topology, replace(spec_of(window), **OUTCOMES[outcome]), 20)


@pytest.mark.slow
@pytest.mark.parametrize("window", [sj.TimeWindow(24), sj.RowWindow(12)], ids=["time", "rows"])
@pytest.mark.parametrize("topology", list(TOPOLOGY_NAMES))
def test_sorted_output_is_the_same_bytes_over_fifty_runs(topology, window):
    check_same_bytes(topology, spec_of(window), 50)
