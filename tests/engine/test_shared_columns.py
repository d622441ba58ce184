"""Event times and keys are held once, for the window and for result rows: results stay what the oracle says, whatever
is NULL, late, polled late, or changed by its caller after the push."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.engine.rows import LARGE_BATCH

TAGS = pa.dictionary(pa.int8(), pa.string())
SCHEMA = pa.schema(
    {"ts": pa.int64(), "x": pa.int32(), "y": pa.float32(), "text": pa.string(), "tag": TAGS, "z": pa.int16()}
)
BAND = "left.x BETWEEN right.x - 3 AND right.x + 3 AND left.y BETWEEN right.y - 50 AND right.y + 50"


def spec_of(window: Any, **options: Any) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, BAND, window, "ts", "ts", **options)


def random_rows(count: int, seed: int, nulls: slice, disorder: int = 0) -> pa.Table:
    """A row a tick, out of order by up to `disorder`; no key is NULL but some of rows `nulls`."""
    rng = np.random.default_rng(seed)
    x = pa.array(rng.integers(0, 40, count).astype(np.int32)).to_pylist()
    x[nulls] = [None if value % 3 == 0 else value for value in x[nulls]]
    ts = np.arange(count) + rng.integers(0, disorder + 1, count)
    columns = [
        *(pa.array(ts), pa.array(x, pa.int32()), pa.array(rng.uniform(0, 400, count).astype(np.float32))),
        pa.array([f"row {number}" for number in range(count)]),
        pa.array([f"tag {number % 7}" for number in range(count)]).dictionary_encode().cast(TAGS),
        pa.array([None if number % 5 == 0 else number % 100 for number in range(count)], pa.int16()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def joined(
    spec: sj.JoinSpec, tables: tuple[pa.Table, pa.Table], sizes: list[int], **options: Any
) -> pa.Table:
    """Pushed in batches of these sizes, in turn, and polled now and then; two sources on the left."""
    found, at, count = [], 0, len(tables[0])
    with sj.open_join(spec, "three_step", "bisort", **options) as join:
        even, odd = join.source("left", "even"), join.source("left", "odd")
        for number in range(10**6):
            size = sizes[number % len(sizes)]
            if at >= count:
                break
            (odd if number % 8 == 7 else even).push(tables[0].slice(at, size))
            join.push("right", tables[1].slice(at, size))
            at += size
            if number % 10 == 9:
                found += join.poll()
        return pa.Table.from_batches([*found, *join.finish().to_batches()], spec.schema)


@pytest.mark.parametrize("order", ["any", "timestamp"])
@pytest.mark.parametrize("window", [sj.TimeWindow(60), sj.RowWindow(50)], ids=["time", "rows"])
@pytest.mark.parametrize(
    "nulls", [slice(0, 0), slice(0, 30), slice(250, 270)], ids=["none", "first", "later"]
)
def test_rows_are_those_of_the_oracle(nulls, window, order):
    spec = spec_of(window)
    tables = random_rows(400, 1, nulls), random_rows(400, 2, slice(0, 0))
    found, expected = joined(spec, tables, [1, 40, 3, 100], order=order), sj.oracle.join(*tables, spec)
    if order == "any":
        by = [("ts_right", "ascending"), ("text_right", "ascending"), ("text", "ascending")]
        found, expected = found.sort_by(by), expected.sort_by(by)
    assert found.num_rows > 100
    assert found.to_pylist() == expected.to_pylist()


def test_late_rows_and_rows_out_of_order():
    spec = spec_of(sj.TimeWindow(60), lateness=8)
    tables = (
        random_rows(400, 3, slice(0, 0), disorder=8),
        random_rows(400, 4, slice(200, 240), disorder=8),
    )
    found, expected = joined(spec, tables, [64, 17], order="timestamp"), sj.oracle.join(*tables, spec)
    assert found.num_rows > 100
    by = [("text", "ascending"), ("text_right", "ascending")]
    assert found.sort_by(by).to_pylist() == expected.sort_by(by).to_pylist()


@pytest.mark.parametrize("null", [False, True])
def test_results_wait_while_their_rows_leave_the_windows(null):
    """The first poll comes after the windows, and their columns with them, have moved many times."""
    spec, size = spec_of(sj.TimeWindow(100)), 2_000
    tables = [random_rows(40 * size, seed, slice(0, 0)) for seed in (5, 6)]
    with sj.open_join(spec, "three_step", "bisort") as join:
        for at in range(0, len(tables[0]), size):
            part = tables[0].slice(at, size)
            if null and at == 20 * size:
                part = part.set_column(1, SCHEMA.field("x"), pa.nulls(size, pa.int32()))
            join.push("left", part)
            join.push("right", tables[1].slice(at, size))
        found = pa.Table.from_batches(join.poll(), spec.schema)
    for side in ("", "_right"):
        rows = tables[side == "_right"].take(pa.array([int(t[4:]) for t in found["text" + side].to_pylist()]))
        for name in ("ts", "x", "y", "z"):
            assert found[name + side].to_pylist() == rows[name].to_pylist()
    assert found.num_rows > 10_000


def test_what_was_pushed_may_be_changed_afterwards():
    """Shared columns are copies; the memory behind a batch belongs to its caller."""
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64()})
    spec = sj.JoinSpec(schema, schema, "left.x BETWEEN right.x AND right.x", sj.TimeWindow(10**6), "ts", "ts")
    ts, x = np.arange(LARGE_BATCH + 1), np.arange(LARGE_BATCH + 1) * 2
    with sj.open_join(spec, "three_step", "bisort") as join:
        join.push("left", pa.record_batch([pa.array(ts), pa.array(x)], schema=schema))
        ts += 10**6
        x[:] = -1
        join.push("right", pa.table({"ts": [LARGE_BATCH], "x": [20]}, schema=schema))
        assert join.finish().to_pylist() == [{"ts": 10, "x": 20, "ts_right": LARGE_BATCH, "x_right": 20}]


def test_another_thread_polls_while_rows_come():
    spec, size, found, failed = spec_of(sj.TimeWindow(50)), 500, list[pa.RecordBatch](), list[BaseException]()
    tables = [random_rows(40_000, seed, slice(0, 0)) for seed in (7, 8)]
    done = threading.Event()

    def poll() -> None:
        try:
            while not done.is_set():
                found.extend(join.poll(0.001))
        except BaseException as error:
            failed.append(error)

    with sj.open_join(spec, "three_step", "bisort") as join:
        thread = threading.Thread(target=poll)
        thread.start()
        try:
            for at in range(0, 40_000, size):
                for side, table in zip(("left", "right"), tables, strict=True):
                    join.push(side, table.slice(at, size))
        finally:
            done.set()
            thread.join()
        result = pa.Table.from_batches([*found, *join.finish().to_batches()], spec.schema)
    assert not failed
    for side, table in zip(("", "_right"), tables, strict=True):
        rows = table.take(pa.array([int(text[4:]) for text in result["text" + side].to_pylist()]))
        for name in ("ts", "x", "y"):
            assert result[name + side].equals(rows[name])
    assert result.num_rows == len(sj.join_tables(tables[0], tables[1], spec, index="scan"))


@pytest.mark.parametrize("index", ["bisort", "auto"])
def test_after_a_null_nothing_is_held_of_rows_that_have_expired(index):
    """The columns are not shared any more; a reader that has copied its values releases them."""
    none = slice(0, 0)
    with sj.open_join(spec_of(sj.TimeWindow(100)), "three_step", index) as join:
        window = join._topology.windows["left"]
        held = join._driver.rows.stores["left"]._shared
        assert held is not None
        shared = weakref.ref(held.columns)
        del held
        join.push("left", random_rows(500, 1, none))
        join.push("left", moved(random_rows(50, 2, slice(0, 50)), 500))
        join.push("left", moved(random_rows(50, 3, none), 550))
        join.push("right", moved(random_rows(500, 4, none), 5000))
        join.poll()
        assert len(window) <= 1000
        gc.collect()
        assert shared() is None


def moved(rows: pa.Table, ticks: int) -> pa.Table:
    return rows.set_column(0, SCHEMA.field("ts"), pa.array(rows["ts"].to_numpy() + ticks))
