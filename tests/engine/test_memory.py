"""Memory follows the windows, however long the streams are."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.engine.latency import FRESH_STAMPS
from streamjoin.plan.tuning import DEFAULT_TUNING, WindowTuning

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
WINDOW = 10_000
WINDOWS = [sj.TimeWindow(WINDOW), sj.RowWindow(WINDOW)]


def spec_of(window: Any) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", window, "ts", "ts")


def batch_at(ts: int, count: int) -> pa.RecordBatch:
    """One row a tick; few of them match."""
    times = np.arange(ts, ts + count)
    return pa.record_batch(
        [pa.array(times), pa.array((times * 7919 % 100_003).astype(np.int32))], schema=SCHEMA
    )


def feed(join: sj.Join, begin: int, end: int, count: int) -> int:
    """Push the ticks from begin to end on both sides, `count` rows at a time, and poll; how many results came."""
    found = 0
    for ts in range(begin, end, count):
        join.push("left", batch_at(ts, count))
        join.push("right", batch_at(ts, count))
        found += sum(batch.num_rows for batch in join.poll())
    return found


def assert_bounded(join: sj.Join, count: int) -> None:
    """Windows hold what they must, and everything else in memory stays within a constant factor of that."""
    stats = join.stats()
    held = WINDOW + 2 * count + 1 + WindowTuning().smallest_subwindow  # whole subwindows expire
    assert stats.left_window <= held and stats.right_window <= held
    assert stats.window_bytes <= 2 * 4 * held * 64
    # Payload is released batch by batch, once it holds twice the window and a batch; small batches are concatenated.
    assert stats.payload_rows <= 2 * 2 * (2 * held + DEFAULT_TUNING.engine.batch_rows)
    for side in ("left", "right"):
        assert len(join._driver.rows.stores[side].view().batches) <= 128
        assert (
            len(join._driver.latency._stamps[side])
            <= 2 * (2 * held + DEFAULT_TUNING.engine.batch_rows) / count + 1
        )
    assert stats.buffered_results == 0


def test_times_of_pushes_without_results_are_not_kept_one_by_one():
    with sj.open_join(spec_of(sj.TimeWindow(10**6)), "three_step", workers=1) as join:
        for ts in range(FRESH_STAMPS + 10):
            join.push("left", batch_at(ts, 1))
        assert len(join._driver.latency._fresh["left"]) == 10
        assert len(join._driver.latency._stamps["left"]) == FRESH_STAMPS


def stream_stays_bounded(window: Any, order: Any, ticks: int, count: int, first_count: int = 0) -> None:
    """Batches of `count` rows; in the first third of the stream, which fills the windows, of `first_count`."""
    with sj.open_join(spec_of(window), order=order) as join:
        warm = ticks // 3
        found = feed(join, 0, warm, first_count or count)
        assert_bounded(join, first_count or count)
        gc.collect()
        before, arrow = psutil.Process().memory_info().rss, pa.total_allocated_bytes()
        for begin in range(warm, ticks, warm):
            found += feed(join, begin, begin + warm, count)
            assert_bounded(join, count)
        gc.collect()
        assert psutil.Process().memory_info().rss - before < 48 * 2**20
        assert pa.total_allocated_bytes() - arrow < 24 * 2**20
        assert found >= join.stats().left_tuples - count  # every row meets its twin
        assert found == join.stats().matches


@pytest.mark.parametrize("window", WINDOWS, ids=["time", "rows"])
@pytest.mark.parametrize("order", ["any", "timestamp"])
def test_a_stream_of_sixty_windows(order, window):
    stream_stays_bounded(window, order, 600_000, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=["time", "rows"])
@pytest.mark.parametrize("order", ["any", "timestamp"])
def test_a_stream_of_three_hundred_windows(order, window):
    stream_stays_bounded(window, order, 3_000_000, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=["time", "rows"])
def test_a_stream_of_single_rows(window):
    """Four windows of them, after two of larger batches."""
    stream_stays_bounded(window, "any", 60_000, 1, first_count=1000)


OUTCOMES: dict[str, dict[str, Any]] = {
    "left": {"how": "left"},
    "full": {"how": "full"},
    "anti": {"how": "anti"},
    "as_of": {"how": "left", "keep": sj.AsOf()},
    "nearest in time": {"how": "left", "keep": sj.AsOf("nearest")},
    "nearest": {"how": "left", "keep": sj.Nearest("abs(left.x - right.x)", k=2)},
}


@pytest.mark.parametrize("order", ["any", "timestamp"])
@pytest.mark.parametrize("outcome", list(OUTCOMES))
def test_a_long_stream_of_outcomes(outcome, order):
    """Twenty windows, in which every other row has no partner: all but those of the last windows have left."""
    spec = sj.JoinSpec(
        SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(WINDOW), "ts", "ts", **OUTCOMES[outcome]
    )
    count, ticks, found, flat = 1_000, 200_000, 0, (0, 0)
    with sj.open_join(spec, order=order) as join:
        for ts in range(0, ticks, count):
            rows = batch_at(ts, count)
            x = rows["x"].to_numpy()
            join.push("left", rows)
            join.push("right", rows.set_column(1, "x", pa.array(np.where(np.arange(count) % 2, x, -1 - x))))
            found += sum(batch.num_rows for batch in join.poll())
            if ts == ticks // 2:
                gc.collect()
                flat = psutil.Process().memory_info().rss, pa.total_allocated_bytes()
        stats = join.stats()
        assert stats.left_window <= 2 * WINDOW and stats.right_window <= 4 * WINDOW
        assert stats.window_bytes <= 2 * 4 * 4 * WINDOW * 64
        assert stats.payload_rows <= 8 * WINDOW + 4 * DEFAULT_TUNING.engine.slack_rows
        gc.collect()
        assert psutil.Process().memory_info().rss - flat[0] < 24 * 2**20
        assert pa.total_allocated_bytes() - flat[1] < 12 * 2**20
        expected = {"full": 1.5 * ticks, "anti": 0.5 * ticks}.get(outcome, ticks)
        assert expected - 3 * WINDOW <= found <= expected
        assert found + join.finish().num_rows == expected


def test_single_rows_after_a_long_stream():
    """Single rows arrive when payload is about to be released, so that a release finds them."""
    with sj.open_join(spec_of(sj.TimeWindow(WINDOW))) as join:
        feed(join, 0, 85_000, 1000)
        feed(join, 85_000, 87_000, 1)
        assert_bounded(join, 1)
        feed(join, 87_000, 187_000, 1000)
        assert_bounded(join, 1000)


def test_long_streams_of_text():
    schema = pa.schema({"ts": pa.int64(), "s": pa.string()})
    spec = sj.JoinSpec(schema, schema, "left.s = right.s", sj.TimeWindow(100), "ts", "ts")
    with sj.open_join(spec) as join:
        sizes = []
        for ts in range(0, 300_000, 2000):
            text = pa.array([f"{n:064d}" for n in range(ts, ts + 2000)])
            join.push("left", pa.record_batch([pa.array(range(ts, ts + 2000)), text], schema=schema))
            join.push("right", pa.record_batch([pa.array(range(ts, ts + 2000)), text], schema=schema))
            assert sum(batch.num_rows for batch in join.poll()) == 2000
            del text
            sizes.append(pa.total_allocated_bytes())
        assert max(sizes[75:]) < 1.5 * max(sizes[:75])


@pytest.mark.parametrize("order", ["any", "timestamp"])
def test_the_window_empties_when_the_other_side_has_ended(order):
    with sj.open_join(spec_of(sj.TimeWindow(WINDOW)), order=order) as join:
        feed(join, 0, 5000, 1000)
        join.end("right")
        # By timestamp, the last right tuple waits for left ones of its time.
        assert join.stats().left_window == (0 if order == "any" else 5000)
        for ts in range(5000, 205_000, 1000):
            join.push("left", batch_at(ts, 1000))
            assert join.stats().left_window == 0
        join.poll()
        # Only the right tuples that still lie in reach of the left ones to come remain: none.
        assert join.stats().right_window == 0
        assert join.stats().payload_rows <= 1000


@pytest.mark.parametrize("order", ["any", "timestamp"])
def test_row_windows_of_zero_hold_nothing(order):
    with sj.open_join(spec_of(sj.RowWindow(0)), order=order) as join:
        assert feed(join, 0, 200_000, 1000) == 0
        assert join.stats().left_window <= 1000 and join.stats().right_window <= 1000


def test_pushed_buffers_are_freed():
    """The memory of pushed data is released once neither windows nor results need it."""
    with sj.open_join(spec_of(sj.TimeWindow(10))) as join:
        owners = []
        for ts in range(0, 400_000, 100_000):
            column = np.arange(ts, ts + 100_000)
            owners.append(weakref.ref(column))
            batch = pa.record_batch([pa.array(column), pa.array(column.astype(np.int32))], schema=SCHEMA)
            del column
            join.push("left", batch)
            join.push("right", batch)
            del batch
            join.poll()
        gc.collect()
        assert [owner() is None for owner in owners][:2] == [True, True]
        join.finish()
        gc.collect()
        assert sum(owner() is not None for owner in owners) <= 1


def test_results_that_wait_keep_their_payload():
    with sj.open_join(spec_of(sj.TimeWindow(10))) as join:
        join.push("left", batch_at(0, 1000))
        join.push("right", batch_at(0, 1000))
        for ts in range(1000, 301_000, 10_000):  # the windows advance without a poll
            join.push("left", batch_at(ts, 10_000))
            join.push("right", batch_at(ts, 10_000))
        found = pa.Table.from_batches(join.poll(), join.spec.schema)
    assert sorted(found["ts"].to_pylist()) == list(range(301_000))
    assert found["ts"].equals(found["ts_right"])


def test_results_outlive_the_join():
    with sj.open_join(spec_of(sj.TimeWindow(10))) as join:
        join.push("left", batch_at(0, 1000))
        join.push("right", batch_at(0, 1000))
        found = join.poll()
    del join
    gc.collect()
    assert sum(batch.num_rows for batch in found) == 1000
    assert pa.Table.from_batches(found)["ts"].to_pylist() == list(range(1000))
