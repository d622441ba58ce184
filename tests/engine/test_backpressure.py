"""Admission control: results wait in a bounded buffer, pushes wait for room in it, and no pair is lost or repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
ORDERS = ["any", "punctuated", "timestamp"]
SECONDS = 60  # seconds: far longer than any test takes; only a hang waits this long


def spec_of(window: Any = None, **options: Any) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", window or sj.TimeWindow(10), "ts", "ts", **options)


def rows(ts: list[int], x: list[int]) -> pa.Table:
    return pa.table({"ts": ts, "x": x}, schema=SCHEMA)


def alike(count: int, ts: int = 1) -> pa.Table:
    """Rows that all match each other."""
    return rows([ts] * count, [7] * count)


def random_rows(count: int, seed: int, values: int = 3) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, count, count))
    return pa.table({"ts": times, "x": random.integers(0, values, count, dtype=np.int32)}, schema=SCHEMA)


def in_order(batches: pa.Table | list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    parts = batches.to_batches() if isinstance(batches, pa.Table) else batches
    return sorted(row for part in parts for row in zip(*(c.to_pylist() for c in part.columns), strict=True))


class Running(threading.Thread):
    """A call in its own thread; `result` returns what it raised, None if it returned."""

    def __init__(self, call: Callable[[], object]):
        super().__init__(daemon=True)
        self._call = call
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self.error = error

    def result(self) -> BaseException | None:
        self.join(SECONDS)
        assert not self.is_alive(), "the call hangs"
        return self.error


@contextmanager
def full_join(order: Any = "any", **options: Any) -> Iterator[sj.Join]:
    """A join with room for 2 rows that holds 2 at least, all of them at time 1."""
    with sj.open_join(spec_of(**options), order=order, max_results=2) as join:
        join.push("left", alike(2))
        join.push("right", alike(1))
        if order == "timestamp":  # a right tuple waits until no left one of its time can come
            join.push("left", rows([2], [0]))
        assert join.stats().buffered_results == 2
        yield join


# ---- one thread


@pytest.mark.parametrize("order", ORDERS)
def test_a_push_into_a_full_buffer_takes_nothing(order):
    with full_join(order) as join:
        before = join.stats()
        for timeout in (0, 0.05):
            start = time.perf_counter()
            with pytest.raises(
                sj.Backpressure, match=r"2 result rows wait.*max_results is 2.*nothing.*taken"
            ):
                join.push("left", alike(1, ts=3), timeout=timeout)
            assert time.perf_counter() - start >= timeout
            assert join.stats() == before
        assert len(in_order(join.poll())) == 2
        join.push("left", alike(1, ts=3), timeout=0)
        assert join.stats().left_tuples == before.left_tuples + 1


@pytest.mark.parametrize("order", ORDERS)
def test_a_full_buffer_refuses_bad_data_as_bad_data(order):
    with full_join(order) as join:
        with pytest.raises(sj.InputError, match="falls"):
            join.push("left", alike(1, ts=0), timeout=0)
        with pytest.raises(sj.InputError, match="left data is a str"):
            join.push("left", "rows", timeout=0)


@pytest.mark.parametrize("window", [sj.TimeWindow(40, 15), sj.RowWindow(12, 30)], ids=["time", "rows"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("most", [1, 7, 100])
def test_pushes_that_are_tried_again_give_each_pair_once(order, window, most):
    spec, left, right = spec_of(window), random_rows(200, 1), random_rows(200, 2)
    found: list[pa.RecordBatch] = []
    refusals = 0
    with sj.open_join(spec, order=order, max_results=most) as join:
        for at in range(0, 200, 8):
            for side, table in (("left", left), ("right", right)):
                while True:
                    try:
                        join.push(side, table.slice(at, 8), timeout=0)
                        break
                    except sj.Backpressure:
                        refusals += 1
                        found += join.poll()
        found += join.finish().to_batches()
    expected = sj.oracle.join(left, right, spec)
    assert refusals > 0
    assert in_order(found) == in_order(expected)
    if order == "timestamp":
        assert pa.Table.from_batches(found, spec.schema).equals(expected)


@pytest.mark.parametrize("window", [sj.TimeWindow(2000), sj.RowWindow(2000)], ids=["time", "rows"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("most", "count"), [(1, 5), (1000, 300)])
def test_a_burst_stays_within_the_buffer(order, window, most, count):
    """One push of `count` tuples, each with 40 partners: their results go through a buffer of `most`."""
    each = 40
    with sj.open_join(spec_of(window), order=order, max_results=most) as join:
        join.push("left", alike(each))
        join.push("right", alike(count, ts=2), timeout=0)
        if order == "timestamp" or isinstance(window, sj.RowWindow):
            join.end("left")
        found, polls = 0, 0
        while True:
            assert join.stats().buffered_results <= most
            batches = join.poll()
            found += sum(batch.num_rows for batch in batches)
            polls += 1
            if found == count * each:
                break
            assert polls <= count * each // most, "poll no longer brings what waits"
        assert join.finish().num_rows == 0
        assert join.stats().matches == count * each
    assert polls >= count * each // most


def test_ending_a_side_never_waits():
    with sj.open_join(spec_of(), order="timestamp", max_results=3) as join:
        join.push("left", alike(10))
        join.push("right", alike(10))
        join.end("left")
        join.end("right")
        assert join.stats().buffered_results == 3
        assert join.finish().num_rows == 100


def test_finish_brings_a_burst_that_was_never_polled():
    with sj.open_join(spec_of(), max_results=3) as join:
        join.push("left", alike(100))
        join.push("right", alike(100), timeout=0)
        assert join.stats().buffered_results == 3
        assert join.finish().num_rows == 10_000


# ---- several threads


@pytest.mark.parametrize("order", ORDERS)
def test_a_push_waits_until_results_are_taken(order):
    with full_join(order) as join:
        tuples = join.stats().tuples
        waiting = Running(lambda: join.push("left", alike(1, ts=5)))
        time.sleep(0.1)
        assert waiting.is_alive()
        assert join.stats().tuples == tuples
        assert len(in_order(join.poll())) == 2
        assert waiting.result() is None
        assert join.stats().tuples == tuples + 1


def test_a_push_with_a_timeout_goes_on_as_soon_as_there_is_room():
    with full_join() as join:
        waiting = Running(lambda: join.push("left", alike(1), timeout=SECONDS))
        time.sleep(0.05)
        join.poll()
        assert waiting.result() is None
        assert join.stats().left_tuples == 3


def test_a_second_push_times_out_behind_a_waiting_one():
    with full_join() as join:
        waiting = Running(lambda: join.push("left", alike(1)))
        time.sleep(0.05)
        with pytest.raises(sj.Backpressure, match="nothing"):
            join.push("right", alike(1), timeout=0.05)
        while waiting.is_alive():
            join.poll()
        assert waiting.result() is None
        assert (join.stats().left_tuples, join.stats().right_tuples) == (3, 1)


@pytest.mark.parametrize("order", ORDERS)
def test_finish_after_a_push_whose_results_do_not_fit(order):
    """The push was taken, so all its results come, though another one waits behind it."""
    with sj.open_join(spec_of(), order=order, max_results=5) as join:
        join.push("left", alike(50))
        join.end("left")
        join.push("right", alike(50))
        assert join.stats().buffered_results == 5
        waiting = Running(lambda: join.push("right", alike(1)))
        time.sleep(0.05)
        found = join.finish().num_rows
        error = waiting.result()
        assert (found, type(error)) in [(2500, sj.ClosedError), (2550, type(None))]


def test_finish_while_a_push_waits_to_be_taken():
    """It is taken whole or refused whole."""
    with full_join() as join:
        waiting = Running(lambda: join.push("left", alike(1)))
        time.sleep(0.1)
        found = join.finish().num_rows
        error = waiting.result()
        assert (found, type(error)) in [(2, sj.ClosedError), (3, type(None))]
        assert join.stats().left_tuples == found


def test_close_gives_up_results_that_did_not_fit():
    with sj.open_join(spec_of(), max_results=5) as join:
        join.push("left", alike(3000))
        join.push("right", alike(3000))
        assert join.stats().buffered_results == 5
        join.close()
        assert join.stats().matches <= 2 * (5 + 3000)


def test_close_while_a_push_waits_to_be_taken():
    with full_join() as join:
        waiting = Running(lambda: join.push("left", alike(1)))
        time.sleep(0.05)
        join.close()
        assert isinstance(waiting.result(), sj.ClosedError)
        assert join.stats().left_tuples == 2


def test_late_rows_can_be_taken_while_a_push_waits():
    with full_join(lateness=0) as join:
        waiting = Running(lambda: join.push("left", rows([0, 5], [7, 0])))
        time.sleep(0.05)
        taking = Running(lambda: join.late("left"))
        assert taking.result() is None
        join.poll()
        assert waiting.result() is None
        assert join.late("left").equals(rows([0], [7]))


def test_sides_sources_and_promises_can_change_while_a_push_waits():
    """The thread that makes room may be the one that polls."""
    with full_join() as join:
        waiting = Running(lambda: join.push("left", alike(1)))
        time.sleep(0.05)

        def change() -> None:
            extra = join.source("right", "extra")
            extra.advance(5)
            extra.close()
            join.end("right")

        assert Running(change).result() is None
        join.poll()
        assert waiting.result() is None
        assert len(in_order(join.finish())) == 1


@pytest.mark.parametrize("window", [sj.TimeWindow(60, 20), sj.RowWindow(25, 40)], ids=["time", "rows"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("most", "count"), [(1, 30), (50, 240)])
def test_threads_that_push_and_one_that_polls(order, window, most, count):
    spec, batch = spec_of(window), 7
    tables = {side: random_rows(count, seed) for side, seed in (("left", 3), ("right", 4))}
    parts = {
        side: [table.filter(pa.array(np.arange(count) % 2 == n)) for n in (0, 1)]
        for side, table in tables.items()
    }
    found: list[pa.RecordBatch] = []
    with sj.open_join(spec, order=order, max_results=most) as join:
        sources = {side: [join.source(side, name) for name in "ab"] for side in parts}

        def feed(side: str, number: int) -> None:
            table, source = parts[side][number], sources[side][number]
            for at in range(0, table.num_rows, batch):
                source.push(table.slice(at, batch))
            source.close()

        pushing = [Running(lambda s=side, n=n: feed(s, n)) for side in parts for n in (0, 1)]  # type: ignore[misc]
        give_up = time.perf_counter() + SECONDS
        while any(thread.is_alive() for thread in pushing) and time.perf_counter() < give_up:
            found += join.poll()
            assert join.stats().buffered_results <= most
            time.sleep(0.0005)
        assert [thread.result() for thread in pushing] == [None] * 4
        found += join.finish().to_batches()
    # At equal times the rows of source "a" precede those of "b".
    merged = {side: pa.concat_tables(parts[side]) for side in parts}
    expected = sj.oracle.join(merged["left"], merged["right"], spec)
    assert in_order(found) == in_order(expected)
    if order == "timestamp":
        assert pa.Table.from_batches(found, spec.schema).equals(expected)


# ---- work that is cut short


class Interrupt(BaseException):
    """Like KeyboardInterrupt, which pytest would take for its own."""


@pytest.mark.parametrize("order", ["any", "timestamp"])
def test_an_interrupt_inside_the_work_stops_the_join(order, monkeypatch):
    with sj.open_join(spec_of(), order=order) as join:
        join.push("left", alike(3))
        join.push("left", rows([2], [0]))  # settles what comes at time 1
        step = join._topology.step
        monkeypatch.setattr(join._topology, "step", raising(Interrupt("Ctrl-C")))
        with pytest.raises(Interrupt):
            join.push("right", alike(3))
        monkeypatch.setattr(join._topology, "step", step)
        for use in (
            lambda: join.push("left", alike(1, ts=9)),
            join.poll,
            join.finish,
            lambda: join.end("right"),
        ):
            with pytest.raises(sj.StreamJoinError, match="stopped after an error: Interrupt"):
                use()
        assert join.stats().matches == 0
        join.close()


def raising(error: BaseException) -> Callable[..., Any]:
    def step(*_: object) -> Any:
        raise error

    return step


def test_a_waiting_push_learns_that_the_join_stopped(monkeypatch):
    """The work it waits for may be done, and fail, inside another thread's poll."""
    with sj.open_join(spec_of(), max_results=5) as join:
        join.push("left", alike(50))
        join.push("right", alike(50))
        blocked = [Running(lambda: join.push("left", alike(1))) for _ in range(2)]
        time.sleep(0.05)
        step, failed_in = join._topology.step, list[threading.Thread]()

        def fail_once(most: float) -> Any:
            if failed_in:
                return step(most)
            failed_in.append(threading.current_thread())
            raise Interrupt("broken")

        found = join.stats().buffered_results
        monkeypatch.setattr(join._topology, "step", fail_once)
        polled: list[pa.RecordBatch] = []
        poll = Running(lambda: polled.extend(join.poll()))
        assert poll.result() is None, "it has rows to give; the next call reports a failure inside it"
        assert len(in_order(polled)) == found
        for push in blocked:
            error = push.result()
            if push in failed_in:
                assert isinstance(error, Interrupt)
            else:
                assert isinstance(error, sj.StreamJoinError) and "broken" in str(error)
        assert failed_in[0] in (poll, *blocked)
        with pytest.raises(sj.StreamJoinError, match="broken"):
            join.finish()
