"""PanJoin: the oracle's pairs under any interleaving of manager and workers, and which commands the manager sends."""

from __future__ import annotations

import dataclasses
import math
import random
import threading
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import streamjoin as sj
from strategies import arrivals, numbered, open_tuned, pairs_of, push_all, specs
from streamjoin.plan.tuning import EngineTuning, PanJoinTuning, Tuning, WindowTuning
from streamjoin.topologies import registry
from streamjoin.topologies.matching import Collector, Matcher
from streamjoin.topologies.panjoin import records as panjoin_records
from streamjoin.topologies.panjoin.panjoin import PanJoin, PanJoinWorker
from streamjoin.topologies.runtime.simulator import Choose, Simulator, from_bytes, from_seed

ORDERS = ["any", "punctuated", "timestamp"]
WINDOWS = [sj.TimeWindow(20, 7), sj.RowWindow(15, 30), (sj.TimeWindow(12), sj.RowWindow(9))]
SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
# Few, so that little is compiled: what they mean is tested elsewhere.
TWO_BANDS = "left.x BETWEEN right.x - 5 AND right.x - 4 OR left.x BETWEEN right.x AND right.x + 1"
PREDICATES = [
    "left.x = right.x",
    "left.x BETWEEN right.x - 1 AND right.x + 1",
    "left.x <> right.x AND left.x % 3 = right.x % 2",
    TWO_BANDS,
    "left.x <> right.x",
]
SORTED = [PREDICATES[1], *PREDICATES[3:]]  # with one key that decides
# Matches of a probe from which on workers answer with records: any, some, none.
MANY = [0, 2, math.inf]


TUNING = Tuning(
    window=WindowTuning(smallest_subwindow=4, largest_subwindow=8),
    engine=EngineTuning(slack_rows=1),
    panjoin=PanJoinTuning(stretch=5),
)


def opened(spec: sj.JoinSpec, index: Any = "auto", **options: Any) -> sj.Join:
    """A PanJoin whose windows have several subwindows, of which merged ones expire in parts, and whose records are
    expanded to pairs in several stretches."""
    join: sj.Join = open_tuned(TUNING, spec, "panjoin", index, **options)
    return join


def changed(**options: Any) -> type[PanJoin]:
    """PanJoin with other sizes."""

    class Changed(PanJoin):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments, **options)

    return Changed


def simulated(choose: Choose, **options: Any) -> tuple[type[PanJoin], Simulator]:
    """PanJoin under the simulator, with small subwindows, batches and queues."""
    simulator = Simulator(choose)
    return changed(**{"executor": simulator, "smallest": 2, **options}), simulator


def workers_of(join: sj.Join) -> list[PanJoinWorker]:
    assert isinstance(join._topology, PanJoin)
    return join._topology.nodes


def raising(*_: object) -> Any:
    raise ZeroDivisionError("in the worker")


def spec_of(window: Any, on: str = "left.x BETWEEN right.x - 1 AND right.x + 1") -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, on, window, "ts", "ts")


def rows(ts: list[int], x: list[int]) -> pa.Table:
    return pa.table({"ts": ts, "x": x}, schema=SCHEMA)


def random_rows(count: int, seed: int, values: int = 40) -> pa.Table:
    source = np.random.default_rng(seed)
    ts = np.sort(source.integers(0, count, count))
    return pa.table({"ts": ts, "x": source.integers(0, values, count, dtype=np.int32)}, schema=SCHEMA)


def cut(left: pa.Table, right: pa.Table, sizes: int, seed: int) -> list[tuple[str, pa.Table]]:
    """Both tables in pieces of up to `sizes` rows, in the order of time, roughly."""
    source, pushes, at = random.Random(seed), [], {"left": 0, "right": 0}
    tables = {"left": left, "right": right}
    while waiting := [side for side in tables if at[side] < tables[side].num_rows]:
        side = source.choice(waiting)
        count = source.randint(1, sizes)
        pushes.append((side, tables[side].slice(at[side], count)))
        at[side] += count
    return pushes


def test_four_tuples_meet_once_each(monkeypatch):
    topology, simulator = simulated(from_seed(1))
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    with opened(spec_of(sj.TimeWindow(5)), "bisort", workers=2) as join:
        join.push("left", rows([1, 2], [10, 50]))
        join.push("right", rows([1, 4], [11, 50]))
        table = join.finish()
    assert sorted(map(tuple, zip(*(c.to_pylist() for c in table.columns), strict=True))) == [
        (1, 10, 1, 11),
        (2, 50, 4, 50),
    ]
    assert any("into subwindow" in line for line in simulator.trace)


@pytest.mark.parametrize("index", ["scan", "bisort", "raptable", "wibtree", "auto"])
@pytest.mark.parametrize("window", WINDOWS, ids=["time", "rows", "mixed"])
@pytest.mark.parametrize("order", ORDERS)
def test_equals_the_oracle_under_a_seeded_scheduler(order, window, index, monkeypatch):
    spec = spec_of(window)
    left, right = random_rows(90, 1), random_rows(80, 2)
    spec, left, right = numbered(spec, left, right)
    expected = pairs_of(sj.oracle.join(left, right, spec))
    for seed in range(4):
        topology, simulator = simulated(from_seed(seed), batch=1 + seed, credit=1 + seed % 2)
        monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
        with opened(spec, index, workers=1 + seed % 4, order=order, max_results=9) as join:
            found = push_all(join, cut(left, right, 7, seed), partial(simulator.run, 2))
            while rest := join.poll():
                found += rest
            pairs = [pair for batch in [*found, join.finish()] for pair in pairs_of(batch)]
        assert (pairs if order == "timestamp" else sorted(pairs)) == (
            expected if order == "timestamp" else sorted(expected)
        ), simulator.tail()


def check_any_interleaving(data: st.DataObject) -> None:
    cases = [(on, "auto") for on in PREDICATES] + [(on, "bisort") for on in SORTED]
    drawn: Any = data.draw(st.sampled_from(cases)), data.draw(st.sampled_from(ORDERS))
    (on, index), order = drawn
    spec, left, right = data.draw(specs(on, both=(SCHEMA, SCHEMA), in_order=True))
    spec, left, right = numbered(spec, left, right)
    pushes = data.draw(arrivals(left, right))
    decisions = data.draw(st.binary(max_size=60))
    options = {"batch": data.draw(st.integers(1, 4)), "credit": data.draw(st.integers(1, 2)),
               "many": data.draw(st.sampled_from(MANY))}  # fmt: skip
    workers = data.draw(st.integers(1, 4))
    topology, simulator = simulated(from_bytes(decisions), **options)
    registered, registry.TOPOLOGY_CLASSES["panjoin"] = registry.TOPOLOGY_CLASSES["panjoin"], topology
    try:
        with opened(spec, index, workers=workers, order=order, max_results=3) as join:
            for side in ("left", "right"):
                join.source(side, "")
            polls = iter(decisions)
            found = push_all(join, pushes, lambda: next(polls, 0) % 2 == 1)
            pairs = [pair for batch in [*found, join.finish()] for pair in pairs_of(batch)]
    finally:
        registry.TOPOLOGY_CLASSES["panjoin"] = registered
    note(simulator.tail())
    expected = pairs_of(sj.oracle.join(left, right, spec))
    if order == "timestamp":
        assert pairs == expected
    else:
        assert sorted(pairs) == sorted(expected)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_join_under_any_interleaving(data):
    check_any_interleaving(data)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=10_000, deadline=None)
def test_any_join_under_ten_thousand_interleavings(data):
    check_any_interleaving(data)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", WINDOWS, ids=["time", "rows", "mixed"])
def test_threads_find_what_the_oracle_finds(window, order, workers):
    spec, left, right = numbered(spec_of(window), random_rows(600, 3), random_rows(500, 4))
    expected = pairs_of(sj.oracle.join(left, right, spec))
    with opened(spec, workers=workers, order=order, max_results=50) as join:
        found = push_all(join, cut(left, right, 40, 5), lambda: True)
        pairs = [pair for batch in [*found, join.finish()] for pair in pairs_of(batch)]
    assert (pairs if order == "timestamp" else sorted(pairs)) == (
        expected if order == "timestamp" else sorted(expected)
    )


def test_subwindows_are_dealt_in_turn_and_expire_whole(monkeypatch):
    topology, simulator = simulated(from_seed(3), smallest=4)
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    with opened(spec_of(sj.TimeWindow(10)), "bisort", workers=3) as join:
        for ts in range(0, 12, 2):
            join.push("left", rows([ts, ts + 1], [ts, ts]))
            join.push("right", rows([ts, ts + 1], [500, 500]))
        simulator.run(1000)
        join.poll()
        nodes = workers_of(join)
        assert [len(node.windows["left"]) for node in nodes] == [4, 4, 4]
        assert join.stats().left_window == 12
        join.push("right", rows([25], [0]))
        simulator.run(1000)
        join.poll()
        assert join.stats().left_window == 0, "no right tuple to come reaches back to 11"


def test_a_worker_without_opposite_subwindows_is_not_asked_to_probe(monkeypatch):
    topology, simulator = simulated(from_seed(3), smallest=100)
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    with opened(spec_of(sj.TimeWindow(10)), "scan", workers=4) as join:
        join.push("left", rows([1, 2], [1, 2]))
        join.push("right", rows([1, 2], [1, 2]))
        join.poll()
        simulator.run(1000)
        sent = {line.split(" <-")[0].strip() for line in simulator.trace if "<-" in line}
        assert sent == {"manager to worker 1", "manager to worker 2"}


@pytest.mark.parametrize(("credit", "waits"), [(1, True), (2, False)])
def test_the_next_command_is_sent_while_the_last_one_waits_for_its_worker(credit, waits, monkeypatch):
    topology, simulator = simulated(from_seed(3), credit=credit)
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    with opened(spec_of(sj.TimeWindow(10)), "scan", workers=1) as join:
        join.push("left", rows([1], [1]))
        join.push("right", rows([2], [1]))
        assert (simulator.steps > 0) == waits, (
            "a push waits for a worker only if it has no room for a command"
        )
        assert len(workers_of(join)[0].inlet) == (1 if waits else 2)
        assert join.finish().num_rows == 1


# Records


def answers(monkeypatch: pytest.MonkeyPatch) -> list[panjoin_records.Answer]:
    """Those that workers will give."""
    given: list[panjoin_records.Answer] = []
    answer = panjoin_records.MirroredWindow.answer

    def noted(*arguments: Any) -> panjoin_records.Answer | None:
        found = answer(*arguments)
        given.extend([] if found is None else [found])
        return found

    monkeypatch.setattr(panjoin_records.MirroredWindow, "answer", noted)
    return given


@pytest.mark.parametrize(
    ("on", "records", "pairs"),
    [
        ("left.x BETWEEN right.x - 1 AND right.x + 1", [(0, 1, 4)], [11, 12, 13]),
        (TWO_BANDS, [(0, 0, 1), (0, 2, 4)], [8, 12, 13]),
        ("left.x <> right.x", [(0, 2, 3)], [8, 11, 13]),
        ("left.x < right.x", [(0, 0, 2)], [8, 11]),
    ],
    ids=["band", "two bands", "unequal", "below"],
)
def test_a_worker_answers_with_places_in_its_sorted_array(on, records, pairs, monkeypatch):
    """8 11 12 13, asked by 12: `<>` is one record, of what does not match."""
    given = answers(monkeypatch)
    topology, simulator = simulated(from_seed(1), many=0, smallest=9)
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    monkeypatch.setattr(Matcher, "_hand_over", raising)
    with opened(spec_of(sj.TimeWindow(9), on), "bisort", workers=1) as join:
        join.push("left", rows([1, 2, 3, 4], [13, 8, 12, 11]))
        join.push("right", rows([5], [12]))
        simulator.run(100)
        (answer,) = given
        (run,) = answer.runs
        assert list(zip(run.asking, run.firsts, run.lasts, strict=True)) == records
        assert run.outside == ("<>" in on)
        assert sorted(join.finish()["x"].to_pylist()) == pairs


@pytest.mark.parametrize("matches", [1, 10, 400])
def test_the_work_of_a_worker_does_not_grow_with_what_matches(matches, monkeypatch):
    """One record per probe for each sorted array, and no pair before results are requested."""
    given = answers(monkeypatch)
    topology, simulator = simulated(from_seed(1), many=0)
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    on = f"left.x BETWEEN right.x AND right.x + {matches - 1}"
    with opened(spec_of(sj.TimeWindow(500), on), "bisort", workers=1, max_results=7) as join:
        join.push("left", rows([0] * 500, list(range(500))))
        join.push("right", rows([1] * 50, list(range(50))))
        simulator.run(1000)
        (answer,) = given
        chained: Any = workers_of(join)[0].windows["left"]
        assert 50 <= len(answer) <= 50 * 2 * len(chained.links)
        assert answer.covered == 50 * matches
        assert sum(batch.num_rows for batch in join.poll()) == 7
        told = join.stats()
        assert (told.matches, told.buffered_results) == (14, 7), "the rest are records"
        assert join.finish().num_rows == 50 * matches - 7


@pytest.mark.parametrize("window", WINDOWS, ids=["time", "rows", "mixed"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("on", SORTED, ids=["band", "two bands", "unequal"])
def test_records_equal_the_oracle_under_a_seeded_scheduler(on, order, window, monkeypatch):
    spec, left, right = numbered(spec_of(window, on), random_rows(60, 1), random_rows(50, 2))
    expected = pairs_of(sj.oracle.join(left, right, spec))
    given = answers(monkeypatch)
    for seed in range(2):
        topology, simulator = simulated(from_seed(seed), batch=2 + 6 * seed, credit=1 + seed, many=0)
        monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
        with opened(spec, "bisort", workers=1 + seed, order=order, max_results=9) as join:
            found = push_all(join, cut(left, right, 7, seed), partial(simulator.run, 2))
            pairs = [pair for batch in [*found, join.finish()] for pair in pairs_of(batch)]
        assert (pairs if order == "timestamp" else sorted(pairs)) == (
            expected if order == "timestamp" else sorted(expected)
        ), simulator.tail()
    assert any(run.reach is not None for answer in given for run in answer.runs), (
        "some subwindow partly in reach"
    )


def joined_late(monkeypatch: pytest.MonkeyPatch, later: list[int], window: int = 9) -> list[int]:
    """What 5 at time 4 finds among 5 and 6, of times 1 and 2, if it is asked for when more left tuples have come."""
    topology, simulator = simulated(from_seed(1), many=0, smallest=9)
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    with opened(spec_of(sj.TimeWindow(window)), "bisort", workers=1) as join:
        join.push("left", rows([1, 2], [5, 6]))
        join.push("right", rows([4], [5]))
        join.push("left", rows([5] * len(later), later))
        simulator.run(100)
        return sorted(join.finish()["x"].to_pylist())


def test_records_point_into_what_was_there(monkeypatch):
    """1 and 2 come before 5 and 6 in the sorted array, of which the worker has given a copy."""
    assert joined_late(monkeypatch, [1, 2]) == [5, 6]


def test_a_worker_may_have_no_pairs_in_a_stretch_of_sorted_ones(monkeypatch):
    """Six match the first probe on one worker, six the second on the other; a stretch is five, or those of a probe."""
    topology, simulator = simulated(from_seed(1), many=0, smallest=6)
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    with opened(spec_of(sj.TimeWindow(30)), "bisort", workers=2, order="timestamp") as join:
        join.push("left", rows(list(range(12)), [1] * 6 + [90] * 6))
        join.push("right", rows([20, 21], [1, 90]))
        simulator.run(100)
        assert join.finish()["ts"].to_pylist() == list(range(12))


def test_pairs_that_have_to_wait_are_not_looked_through_for_every_stretch(monkeypatch):
    """Of 40 and 40 tuples of which all match, half the pairs are found by the earlier tuple."""
    released: list[int] = []
    release = Collector.release

    def counted(self: Collector, bound: float) -> None:
        released.append(self.waiting)
        release(self, bound)

    monkeypatch.setattr(Collector, "release", counted)
    topology, _ = simulated(from_seed(1), many=0, smallest=100)
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    with opened(spec_of(sj.TimeWindow(99)), "bisort", workers=1, order="timestamp") as join:
        join.push("left", rows(list(range(40)), [7] * 40))
        join.push("right", rows(list(range(40)), [7] * 40))
        assert join.finish().num_rows == 1600
    assert sum(released) <= 8 * 1600, "each pair is looked at a few times"


def test_records_are_checked_for_what_has_expired(monkeypatch):
    assert joined_late(monkeypatch, [], window=2) == [6]
    fill = panjoin_records.RunRecords.fill
    monkeypatch.setattr(
        panjoin_records.RunRecords,
        "fill",
        lambda self, *rest: fill(dataclasses.replace(self, reach=None), *rest),
    )
    assert joined_late(monkeypatch, [], window=2) == [5, 6], "which is wrong: places were not looked at"


@pytest.mark.parametrize("on", SORTED, ids=["band", "two bands", "unequal"])
def test_records_of_tuples_out_of_order_nulls_and_ends_of_the_type(on, monkeypatch):
    spec = dataclasses.replace(spec_of(sj.TimeWindow(6, 3), on), lateness=40)
    draw = np.random.default_rng(5)
    tables = []
    for count in (120, 100):
        values = draw.choice([None, -(2**31), 2**31 - 1, *range(12)], count).tolist()
        tables.append(rows(np.clip(np.arange(count) - draw.integers(0, 30, count), 0, None).tolist(), values))
    spec, left, right = numbered(spec, *tables)
    expected = sorted(pairs_of(sj.oracle.join(left, right, spec)))
    for seed in range(3):
        topology, simulator = simulated(from_seed(seed), batch=9, many=0)
        monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
        with opened(spec, "bisort", workers=1 + seed) as join:
            found = push_all(join, cut(left, right, 9, seed), partial(simulator.run, 2))
            assert sorted(p for batch in [*found, join.finish()] for p in pairs_of(batch)) == expected


@pytest.mark.parametrize("order", ORDERS)
def test_threads_find_with_records_what_the_oracle_finds(order, monkeypatch):
    spec, left, right = numbered(spec_of(sj.TimeWindow(90)), random_rows(300, 3, 8), random_rows(250, 4, 8))
    expected = pairs_of(sj.oracle.join(left, right, spec))
    given = answers(monkeypatch)
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", changed(smallest=16, many=0))
    with opened(spec, "bisort", workers=3, order=order, max_results=50) as join:
        found = push_all(join, cut(left, right, 40, 5), lambda: True)
        pairs = [pair for batch in [*found, join.finish()] for pair in pairs_of(batch)]
    assert (pairs if order == "timestamp" else sorted(pairs)) == (
        expected if order == "timestamp" else sorted(expected)
    )
    assert len(given) > 20


def test_records_are_asked_for_while_many_tuples_match(monkeypatch):
    topology, simulator = simulated(from_seed(1), many=4, smallest=100)
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    with opened(spec_of(sj.TimeWindow(100)), "bisort", workers=2) as join:
        join.push("left", rows([0] * 8, [1] * 8))
        simulator.run(100)
        join.poll()
        given, sizes = answers(monkeypatch), []
        window = workers_of(join)[1]
        for ts, x in enumerate([1, 1, 1, 50, 50, 50]):
            join.push("right", rows([ts] * 2, [x] * 2))
            simulator.run(100)
            join.poll()
            sizes.append(window.mirrored["left"].nbytes > window.windows["left"].nbytes)
            assert join.stats().window_bytes == sum(
                node.mirrored[side].nbytes for node in workers_of(join) for side in ("left", "right")
            )
        assert sizes == [False, True, True, True, False, False], "matches tell how the next is answered"
        assert len(given) == 3


def test_an_error_in_a_worker_surfaces_and_stops_the_join(monkeypatch):
    with opened(spec_of(sj.TimeWindow(10)), "scan", workers=2) as join:
        for node in workers_of(join):
            monkeypatch.setattr(node, "_execute", raising)

        def use() -> None:
            join.push("left", rows([1], [1]))
            join.finish()

        with pytest.raises(ZeroDivisionError, match="in the worker") as caught:
            use()
        assert any("worker" in line for line in caught.value.__notes__)
        with pytest.raises(sj.StreamJoinError, match="in the worker"):
            join.push("left", rows([2], [1]))


def test_an_error_is_told_by_a_poll_when_nothing_more_is_pushed(monkeypatch):
    topology, simulator = simulated(from_seed(1))
    monkeypatch.setitem(registry.TOPOLOGY_CLASSES, "panjoin", topology)
    with opened(spec_of(sj.TimeWindow(10)), "scan", workers=2) as join:
        join.push("left", rows([1], [1]))
        for node in workers_of(join):
            monkeypatch.setattr(node, "_execute", raising)
        with pytest.raises(ZeroDivisionError):
            simulator.run(10)
        with pytest.raises(ZeroDivisionError, match="in the worker"):
            join.poll()


def test_closing_ends_the_threads():
    with opened(spec_of(sj.TimeWindow(10)), workers=3) as join:
        join.push("left", rows([1], [1]))
        assert any(thread.name.startswith("worker") for thread in threading.enumerate())
    assert not any(thread.name.startswith("worker") for thread in threading.enumerate())
