"""Pushes that wait for each other where results may wait: until when, what is told meanwhile, and that nothing else
changes. (That results stay the same is a property of tests/engine/test_conformance.py and test_sources.py.)"""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamjoin as sj
from handshake_runs import WINDOWS, numbers, pushes, small_tables, spec_of
from strategies import open_tuned, push_all
from streamjoin.plan import choose
from streamjoin.plan.options import ORDERS, TOPOLOGY_NAMES
from streamjoin.plan.tuning import EngineTuning, Tuning

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int32()), ("word", pa.string())])


def rows(*times: int, word: str = "") -> pa.Table:
    return pa.table({"ts": times, "x": [7] * len(times), "word": [word] * len(times)}, schema=SCHEMA)


def open_patient(
    order: Any = "any", lateness: int | None = None, engine: EngineTuning | None = None, **options: Any
) -> sj.Join:
    """A join whose pushes wait for each other."""
    spec = sj.JoinSpec(
        SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(1_000), "ts", "ts", lateness=lateness
    )
    tuning = Tuning(engine=engine or EngineTuning())
    join: sj.Join = open_tuned(tuning, spec, order=order, workers=1, latency=1, **options)
    return join


def count(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    # The timer would hand over gathered pushes at a time of its own: it sleeps by the real clock.
    monkeypatch.setattr("streamjoin.engine.timer.Timer.wake", lambda _: None)
    return clock


def test_a_push_waits_until_its_time_is_over(clock):
    with open_patient() as join:
        join.push("left", rows(1))
        clock.now += 0.9 * choose.GATHERING
        join.push("right", rows(2, 3))
        assert join.poll() == []
        clock.now += 0.2 * choose.GATHERING
        assert count(join.poll()) == 2


def test_a_push_that_finds_others_over_their_time_is_joined_with_them(clock):
    with open_patient() as join:
        join.push("left", rows(1))
        clock.now += 1.1 * choose.GATHERING
        join.push("right", rows(2))
        assert join.stats().matches == 1


def test_who_polls_again_without_a_push_waits_for_nothing_else():
    with open_patient() as join:
        join.push("left", rows(1))
        assert join.poll() == []
        join.push("right", rows(2))
        assert join.poll() == []
        assert count(join.poll()) == 1


def test_enough_rows_wait_no_longer():
    with open_patient(engine=EngineTuning(gathered_rows=4)) as join:
        join.push("left", rows(1, 2))
        join.push("right", rows(3))
        assert join.stats().matches == 0
        join.push("left", rows(3))
        assert join.stats().matches == 3


def test_enough_bytes_wait_no_longer_and_a_large_push_is_not_copied(monkeypatch):
    together = []
    monkeypatch.setattr(pa, "concat_batches", lambda batches: together.append(len(batches)))
    with open_patient(engine=EngineTuning(gathered_bytes=1_000)) as join:
        join.push("left", rows(1))
        join.push("right", rows(2))
        join.push("left", rows(3, word="long" * 1_000))
        assert join.stats().matches == 2 and not together


@pytest.mark.parametrize(
    "end",
    [
        lambda join: join.end("left"),
        lambda join: join.source("left", "").close(),
        lambda join: join.source("left", "").advance(2),
    ],
)
def test_a_promise_ends_the_wait(end):
    with open_patient() as join:
        join.push("left", rows(1))
        join.push("right", rows(2))
        end(join)
        assert join.stats().matches == 1


def test_what_waits_is_counted_and_joined_in_the_end():
    with open_patient("timestamp") as join:
        for ts in range(5):
            join.push("left", rows(ts))
        join.push("right", rows(9))
        stats = join.stats()
        assert (stats.left_tuples, stats.right_tuples, stats.payload_rows) == (5, 1, 6)
        assert (stats.left_window, stats.matches) == (0, 0)
        assert join.finish()["ts"].to_pylist() == [0, 1, 2, 3, 4]
        assert (join.stats().left_tuples, join.stats().matches) == (5, 5)


def test_what_waits_when_a_join_is_closed_is_gone():
    join = open_patient()
    join.push("left", rows(1))
    join.close()
    assert (join.stats().payload_rows, join.stats().left_tuples) == (0, 1)


def test_bad_data_is_refused_at_once_and_late_rows_are_set_aside_at_once():
    with open_patient() as join:
        join.push("left", rows(5))
        with pytest.raises(sj.InputError, match="left time falls from 5 to 4"):
            join.push("left", rows(4))
    with open_patient(lateness=2) as join:
        join.push("left", rows(5, 3))
        join.push("left", rows(2))
        assert join.late("left")["ts"].to_pylist() == [2]
        join.push("right", rows(6))
        assert sorted(join.finish()["ts"].to_pylist()) == [3, 5]


def test_latency_is_counted_from_each_push(clock):
    with open_patient() as join:
        join.push("left", rows(1))
        join.push("right", rows(2))
        clock.now += 1
        join.push("right", rows(3))
        assert sum(join.stats().latency.counts) == 2
        assert join.stats().latency.counts[20] == 1  # half a second to a second, about


def test_room_for_results_is_kept(clock):
    with open_patient(max_results=2) as join:
        join.push("left", rows(1, 2, 3))
        clock.now += 1
        join.push("right", rows(4), timeout=0)  # joined now, of 3 results one waits
        assert join.stats().buffered_results == 2
        with pytest.raises(sj.Backpressure):
            join.push("right", rows(5), timeout=0)
        join.end("left")
        assert [count(join.poll()) for _ in range(3)] == [2, 1, 0]
        join.push("right", rows(5))
        assert join.finish().num_rows == 3


def test_a_newcomer_between_pushes_that_wait_takes_its_place():
    """Its name comes first: at equal times its tuple precedes those that have waited longer."""
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "TRUE", sj.RowWindow(1), "ts", "ts")
    with sj.open_join(spec, workers=1, latency=1) as join:
        join.source("left", "b").push(rows(3, word="b"))
        join.push("right", rows(1))
        join.source("left", "a").push(rows(3, word="a"))
        join.push("right", rows(4))
        assert sorted(join.finish()["word"].to_pylist()) == ["a", "b", "b"]


@pytest.mark.parametrize("latency", [None, 1])
def test_dictionaries_that_are_too_large_together_stay_apart(latency):
    """Below 128 values each, as their indices have 8 bits; more in all pushes."""
    words = pa.struct([("word", pa.dictionary(pa.int8(), pa.string()))])
    schema = pa.schema([("ts", pa.int64()), ("words", words)])
    spec = sj.JoinSpec(schema, SCHEMA, "TRUE", sj.TimeWindow(1_000), "ts", "ts")
    texts = [str(number) for number in range(2_000)]
    with sj.open_join(spec, workers=1, latency=latency) as join:
        for at in range(0, 2_000, 100):
            word = pa.array(texts[at : at + 100]).dictionary_encode().cast(words[0].type)
            column = pa.StructArray.from_arrays([word], fields=list(words))
            join.push("left", pa.table([pa.array([at // 100] * 100), column], schema=schema))
        join.push("right", rows(20))
        found = [
            row["word"]
            for batch in [*join.poll(), *join.finish().to_batches()]
            for row in batch["words"].to_pylist()
        ]
    assert sorted(found) == sorted(texts)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("topology", list(TOPOLOGY_NAMES))
def test_every_topology_is_given_what_has_waited(topology, order):
    with open_patient(order, topology=topology) as join:
        join.push("left", rows(0))
        join.push("right", rows(0))
        assert join.finish().num_rows == 1
    with open_patient(order, topology=topology) as join:
        for ts in range(40):
            join.push("left", rows(ts))
            join.push("right", rows(ts))
        assert join.finish().num_rows == 1_600


def check_any_way(data: st.DataObject) -> None:
    """Any topology, order and window; polls between pushes, which wait for each other: what the oracle finds, in its
    order if that is promised."""
    seed, order = data.draw(st.integers(0, 10_000)), data.draw(st.sampled_from(ORDERS))
    topology, workers = data.draw(st.sampled_from(list(TOPOLOGY_NAMES))), data.draw(st.integers(1, 3))
    spec, room = (
        spec_of(WINDOWS[data.draw(st.sampled_from(list(WINDOWS)))]),
        data.draw(st.sampled_from([1, 1_000])),
    )
    left, right = small_tables(seed)
    polls = itertools.cycle(data.draw(st.lists(st.booleans(), min_size=1, max_size=4)))
    with sj.open_join(spec, topology, "auto", workers, order, room, latency=1) as join:
        found = numbers(push_all(join, pushes(left, right, seed), lambda: next(polls)))
        if data.draw(st.booleans()):
            join.end(data.draw(st.sampled_from(["left", "right"])))
            found += numbers(join.poll())
        found += numbers([join.finish()])
    expected = numbers([sj.oracle.join(left, right, spec)])
    assert (found if order == "timestamp" else sorted(found)) == (
        expected if order == "timestamp" else sorted(expected)
    )


REAL_TIME = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@settings(REAL_TIME, max_examples=30)
@given(data=st.data())
def test_any_way_to_wait_gives_the_oracles_result(data):
    check_any_way(data)


@pytest.mark.slow
@settings(REAL_TIME, max_examples=3_000)
@given(data=st.data())
def test_thousands_of_ways_to_wait_give_the_oracles_result(data):
    check_any_way(data)


def test_an_error_while_handing_over_stops_the_join(monkeypatch, clock):
    def refuse(*_: object) -> None:
        raise MemoryError

    with open_patient() as join:
        join.push("left", rows(1))
        monkeypatch.setattr(join._topology, "push", refuse)
        clock.now += 1
        with pytest.raises(MemoryError):
            join.poll()
        with pytest.raises(sj.StreamJoinError, match="stopped after an error"):
            join.push("left", rows(2))


def test_without_a_latency_nothing_waits():
    for latency in (None, 0.9 * choose.PATIENT):
        spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(9), "ts", "ts")
        with sj.open_join(spec, latency=latency) as join:
            join.push("left", rows(1))
            join.push("right", rows(2))
            assert count(join.poll()) == 1
