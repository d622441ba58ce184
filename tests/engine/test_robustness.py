"""What happens to a long-lived join: odd payload, many threads, failures, and its own end."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.engine import results
from streamjoin.index.sliding import SlidingColumns

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})


def spec_of(**options):
    return sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(100), "ts", "ts", **options)


def rows(ts, x):
    return pa.record_batch({"ts": ts, "x": x}, schema=SCHEMA)


def test_every_batch_may_have_a_dictionary_of_its_own():
    schema = SCHEMA.append(pa.field("word", pa.dictionary(pa.int8(), pa.string())))
    spec = sj.JoinSpec(schema, SCHEMA, "left.x = right.x", sj.TimeWindow(10_000), "ts", "ts")
    words = []
    with sj.open_join(spec) as join:
        for ts in range(40):
            new = [f"{ts}-{n}" for n in range(50)]
            words += new
            column = pa.array(new).dictionary_encode().cast(schema.field("word").type)
            join.push(
                "left",
                pa.record_batch([pa.array([ts] * 50), pa.array([7] * 50, pa.int32()), column], schema=schema),
            )
        join.push("right", rows([50], [7]))
        result = join.finish()
    assert result.schema == spec.schema
    assert sorted(result["word"].to_pylist()) == sorted(words)


def test_results_wait_again_if_their_rows_can_not_be_built(monkeypatch):
    with sj.open_join(spec_of()) as join:
        join.push("left", rows([1, 2], [7, 7]))
        join.push("right", rows([3], [7]))
        with monkeypatch.context() as patch:
            patch.setattr(results.ResultRows, "_batch", lambda *_: (_ for _ in ()).throw(MemoryError))
            with pytest.raises(MemoryError):
                join.poll()
        assert join.stats().buffered_results == 2
        assert sum(batch.num_rows for batch in join.poll()) == 2


def test_tuples_of_one_time_are_appended_and_not_sorted_again(monkeypatch):
    monkeypatch.setattr(SlidingColumns, "merge", lambda *_: pytest.fail("merged"))
    with sj.open_join(spec_of(), index="scan", order="timestamp") as join:
        for _ in range(5):
            join.push("left", rows([1] * 3, [7, 8, 9]))
            join.push("right", rows([1] * 3, [7, 8, 9]))
        assert join.finish().num_rows == 75


def test_sources_may_be_opened_while_others_push():
    with sj.open_join(spec_of(lateness=1_000_000)) as join:
        failures = []

        def push():
            try:
                for ts in range(300):
                    join.push("right", rows([ts], [7]))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=push)
        thread.start()
        for number in range(300):
            join.source("left", f"s{number}")
            join.stats()
        thread.join()
        assert failures == []
        assert join.stats().right_tuples == 300


def test_the_default_source_can_be_had_by_its_name():
    with sj.open_join(spec_of(), order="timestamp") as join:
        join.push("left", rows([1], [7]))
        join.source("left", "").advance(50)
        join.push("right", rows([2, 40], [7, 8]))
        assert sum(batch.num_rows for batch in join.poll()) == 1


@pytest.mark.parametrize("end", ["finish", "close"])
def test_nothing_is_held_after_the_end(end):
    with sj.open_join(spec_of()) as join:
        join.push("left", rows(np.arange(50_000) // 1000, np.arange(50_000, dtype=np.int32)))
        join.push("right", rows([50], [7]))
        getattr(join, end)()
        stats = join.stats()
        assert (stats.left_window, stats.right_window, stats.payload_rows, stats.buffered_results) == (
            0,
            0,
            0,
            0,
        )
        assert (stats.left_tuples, stats.matches) == (50_000, 1)


def test_a_join_that_is_closed_while_it_finishes_says_so(monkeypatch):
    join = sj.open_join(spec_of())
    join.push("left", rows([1], [7]))
    progress = join._progress

    def close_first():
        join.close()
        progress()

    monkeypatch.setattr(join, "_progress", close_first)
    with pytest.raises(sj.ClosedError, match="while it finished"):
        join.finish()


def test_a_close_just_before_finish_marks_the_join_is_not_overwritten(monkeypatch):
    """Then `finish` either raises its error or was first; it neither returns less nor runs forever."""
    join = sj.open_join(spec_of(), "three_step", order="timestamp")
    join.push("left", rows([1, 2], [7, 7]))
    join.push("right", rows([1, 2], [7, 7]))
    check, closer = join._check_open, threading.Thread(target=join.close)

    def close_after_the_check():
        check()
        closer.start()
        closer.join(0.2)  # does not end within that: `finish` holds what it needs

    monkeypatch.setattr(join, "_check_open", close_after_the_check)
    with contextlib.suppress(sj.ClosedError):
        assert join.finish().num_rows == 4
    closer.join()
    assert join.stats().payload_rows == 0


@pytest.mark.parametrize("topology", ["three_step", "scalejoin"])
def test_a_close_while_another_thread_looks_lets_go_of_everything(topology, monkeypatch):
    before = threading.active_count()
    join = sj.open_join(spec_of(), topology, workers=2)
    join.push("left", rows(list(range(50)), [7] * 50))
    join.push("right", rows([1], [7]))
    inside, go_on, stats = threading.Event(), threading.Event(), join._stats

    def look_slowly():
        inside.set()
        go_on.wait()
        return stats()

    with monkeypatch.context() as patch:
        patch.setattr(join, "_stats", look_slowly)
        looking = threading.Thread(target=join.stats)
        looking.start()
        inside.wait()
        join.close()
        go_on.set()
        looking.join()
    left = join.stats()
    assert (left.left_window, left.right_window, left.payload_rows, left.buffered_results) == (0, 0, 0, 0)
    assert threading.active_count() == before


def test_an_interrupt_while_results_are_taken_loses_neither_them_nor_their_promise(monkeypatch):
    with sj.open_join(spec_of(), order="punctuated") as join:
        join.push("left", rows([1, 2], [7, 7]))
        join.push("right", rows([3, 5], [7, 7]))
        with monkeypatch.context() as patch:
            patch.setattr(results, "_ids", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                join.poll()
        batches = join.poll()
        assert sum(batch.num_rows for batch in batches) == join.stats().matches > 0
        assert sj.punctuation(batches[-1]) is not None
        assert join._results._drains == 0


def test_poll_gives_what_was_found_before_a_failure(monkeypatch):
    with sj.open_join(spec_of(), max_results=2) as join:
        join.push("left", rows([1, 2], [7, 7]))
        join.push("right", rows([3, 4], [7, 7]), timeout=0)
        monkeypatch.setattr(join._topology, "step", lambda _: 1 / 0)
        assert sum(batch.num_rows for batch in join.poll()) == 2
        with pytest.raises(sj.StreamJoinError, match="ZeroDivisionError"):
            join.poll()


def test_late_rows_are_all_given_once_in_order():
    with sj.open_join(spec_of(lateness=0)) as join:
        join.push("left", rows([1000], [0]))
        for number in range(300):
            join.push("left", rows([number], [number]))
        assert join.late("left")["x"].to_pylist() == list(range(300))
        assert join.late("left").num_rows == 0
        join.push("left", rows([1], [5]))
        assert join.late("left")["x"].to_pylist() == [5]
        assert join.stats().left_late == 301


def test_repeated_steps_are_counted_once():
    with sj.open_join(spec_of(), index="scan", max_results=10) as join:
        join.push("left", rows([1] * 200, [7] * 200))
        join.push("right", rows([2] * 200, [7] * 200), timeout=0)
        while join.poll():
            pass
        assert join.stats().comparisons == 200 * 200


def test_a_callable_can_not_read_a_private_name():
    schema = pa.schema({"ts": pa.int64(), "_id": pa.int64()})
    with pytest.raises(sj.PredicateError, match=r"_id.*underscore"):
        sj.JoinSpec(schema, schema, lambda l, r: l._id == r._id, sj.TimeWindow(1), "ts", "ts")
