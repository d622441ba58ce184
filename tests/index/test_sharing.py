"""Work shared by several threads: the same pairs in an order that does not depend on timing, errors, and the end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from strategies import numbered, open_tuned, pairs_of, push_all, windows
from streamjoin.index.structures.bisort import BISortSubwindow
from streamjoin.index.window import ALONE, Alone, cuts
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.options import INDEXES, ORDERS
from streamjoin.plan.tuning import IndexCosts, TeamTuning, Tuning, WindowTuning
from streamjoin.topologies.runtime.team import ThreadTeam

WORKERS = (1, 2, 4)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("streamjoin-probe")]


def numbers(first: int, count: int, stretch: int) -> Any:
    """A part that appends pairs (first, 0), (first + 1, 0), ... in stretches, and compares ten for each."""

    def part(pairs: PairBuffer) -> Iterator[int]:
        for at in range(first, first + count, stretch):
            before, size = pairs.count, min(stretch, first + count - at)
            pairs.reserve(size)
            pairs.probe[before : before + size] = np.arange(at, at + size)
            pairs.pos[before : before + size] = 0
            pairs.count, pairs.compared = before + size, pairs.compared + 10 * size
            yield before

    return part


def failing(pairs: PairBuffer) -> Iterator[int]:
    yield pairs.count
    raise ZeroDivisionError("in a part")


@pytest.fixture
def team_of() -> Iterator[Callable[[int], ThreadTeam]]:
    """Teams whose threads collect this many pairs a round."""
    made: list[ThreadTeam] = []

    def make(per_round: int) -> ThreadTeam:
        made.append(ThreadTeam(4, tuning=TeamTuning(round=per_round)))
        return made[-1]

    yield make
    for team in made:
        team.close()


@pytest.fixture
def team() -> Iterator[ThreadTeam]:
    made = ThreadTeam(4)
    yield made
    made.close()
    assert not threads()


# ---- the team


@pytest.mark.parametrize(("size", "least", "most", "expected"), [
    (10, 3, 2, [5, 5]), (10, 3, 8, [3, 3, 4]), (10, 11, 8, [10]), (0, 5, 4, [0]), (7, 0, 9, [1] * 7),
])  # fmt: skip
def test_work_is_cut_into_equal_parts_that_are_large_enough(size, least, most, expected):
    parts = cuts(size, least, most)
    assert [part.stop - part.start for part in parts] == expected
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (parts[0].start, parts[-1].stop) == (0, size)


@pytest.mark.parametrize("sizes", [[5], [3, 4], [1, 0, 2, 6], [0, 9, 1]])
@pytest.mark.parametrize("per_round", [1, 4, 10**6])
def test_parts_come_one_after_the_other(team_of, sizes, per_round):
    team = team_of(per_round)
    firsts = np.cumsum([0, *sizes[:-1]])
    for worker in (team, ALONE):
        pairs = PairBuffer(1)
        parts = [numbers(int(first), size, 2) for first, size in zip(firsts, sizes, strict=True)]
        for _ in worker.share(parts, pairs):
            pass
        assert pairs.probe[: pairs.count].tolist() == list(range(sum(sizes)))
        assert pairs.compared == 10 * sum(sizes)
    assert team.compared[: len(sizes) - 1] == [10 * size for size in sizes[1:]]


def test_what_is_thinned_out_does_not_come_back(team_of):
    team = team_of(5)
    pairs = PairBuffer()
    for before in team.share([numbers(0, 20, 3), numbers(20, 20, 3), numbers(40, 2, 3)], pairs):
        pairs.keep(before, pairs.probe[before : pairs.count] % 7 == 0)
    assert pairs.probe[: pairs.count].tolist() == [0, 7, 14, 21, 28, 35]


def test_a_caller_may_leave_early_and_come_again(team):
    for _ in range(20):
        pairs = PairBuffer()
        stretches = team.share([numbers(0, 9, 1), numbers(9, 9, 1), numbers(18, 9, 1)], pairs)
        assert next(stretches) == 0
        del stretches
    pairs = PairBuffer()
    assert list(team.share([numbers(0, 1, 1), numbers(1, 1, 1)], pairs)) == [0, 1]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_in_a_part_reaches_the_caller_and_leaves_the_team_usable(team, place):
    parts = [numbers(0, 5, 1), numbers(5, 5, 1), numbers(10, 5, 1)]
    parts[place] = failing
    with pytest.raises(ZeroDivisionError, match="in a part") as caught:
        list(team.share(parts, PairBuffer()))
    notes = getattr(caught.value, "__notes__", [])
    assert notes == ([f"raised in streamjoin-probe-{place}"] if place else [])
    pairs = PairBuffer()
    list(team.share([numbers(0, 5, 1), numbers(5, 5, 1)], pairs))
    assert pairs.probe[:10].tolist() == list(range(10))


def test_threads_start_with_the_first_shared_work_and_end_with_the_team():
    before = len(threads())
    team = ThreadTeam(3)
    list(team.share([numbers(0, 5, 1)], PairBuffer()))
    assert len(threads()) == before
    list(team.share([numbers(0, 5, 1), numbers(5, 5, 1)], PairBuffer()))
    assert len(threads()) == before + 2
    team.close()
    team.close()
    assert len(threads()) == before
    list(team.share([numbers(0, 5, 1), numbers(5, 5, 1)], PairBuffer()))
    del team
    gc.collect()
    assert len(threads()) == before


# ---- joins

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32(), "y": pa.float64()})
PREDICATES = {
    "equality": "left.x = right.x",
    "plane": "left.x BETWEEN right.x - 1 AND right.x + 1 AND ABS(left.y - right.y) <= 1",
    "union": "left.x - right.x IN (0, 2, -3) AND left.y * right.y < 4",
    "unequal": "left.x <> right.x",
    "expression": "left.x * right.x > 3 OR left.y IS NULL",
}
SERVED = {
    "equality": INDEXES,
    "plane": ("scan", "bisort", "raptable", "wibtree"),
    "union": INDEXES,
    "unequal": ("scan", "bisort", "wibtree"),
    "expression": ("scan",),
}


def eager(per_round: int) -> Tuning:
    """The smallest work is shared, in small rounds, over small subwindows."""
    shared = {"shared_comparisons": 1, "shared_lookups": 1, "shared_moves": 1}
    window = WindowTuning(smallest_subwindow=4, largest_subwindow=16, **shared)
    return Tuning(
        costs=IndexCosts(per_push=0, fewest_tuples=8), window=window, team=TeamTuning(round=per_round)
    )


def stream(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = [
        np.cumsum(rng.integers(0, 3, rows)),
        pa.array(rng.integers(-3, 4, rows).astype(np.int32), mask=rng.random(rows) < 0.1),
        pa.array(rng.choice([0.0, 0.5, 1.5, -1.0, np.nan], rows), mask=rng.random(rows) < 0.1),
    ]
    return pa.table(columns, schema=SCHEMA)


def joined(
    tuning: Tuning, spec: sj.JoinSpec, pushes: Any, room: int, **how: Any
) -> tuple[list[tuple[int, int]], sj.Stats]:
    with open_tuned(tuning, spec, max_results=room, **how) as join:
        batches = push_all(join, pushes, lambda: True)
        rest = join.finish()
        return [pair for batch in [*batches, rest] for pair in pairs_of(batch)], join.stats()


@pytest.mark.parametrize("name", PREDICATES)
@settings(max_examples=8)
@given(data=st.data())
def test_any_number_of_workers_gives_the_oracles_result(name, data):
    window = data.draw(windows(None))
    plain = sj.JoinSpec(SCHEMA, SCHEMA, PREDICATES[name], window, "ts", "ts")
    tables = [stream(data.draw(st.integers(0, 40)), data.draw(st.integers(0, 10_000))) for _ in range(2)]
    spec, left, right = numbered(plain, *tables)
    expected = sorted(sj.oracle.pairs(left, right, spec))
    size, order = data.draw(st.sampled_from([7, 1, 100])), data.draw(st.sampled_from(ORDERS))
    pushes = [
        (side, t.slice(at, size))
        for at in range(0, 40, size)
        for side, t in (("left", left), ("right", right))
    ]
    room = data.draw(st.sampled_from([10**6, 1, 20]))
    index = data.draw(st.sampled_from([*SERVED[name], "auto"]))
    tuning = eager(data.draw(st.sampled_from([1, 5, 10**6])))
    for workers in WORKERS:
        how = {"index": index, "workers": workers, "order": order, "topology": "three_step"}
        found, stats = joined(tuning, spec, pushes, room, **how)
        assert sorted(found) == expected, workers
        assert len(stats.worker_comparisons) == workers
        assert sum(stats.worker_comparisons) == stats.comparisons >= 0
        assert min(stats.worker_comparisons) >= 0
    again, _ = joined(tuning, spec, pushes, room, **how)
    assert again == found, "the same pushes gave another order"
    assert not threads()


@pytest.mark.parametrize("index", INDEXES)
def test_each_thread_takes_its_part(index):
    """600 rows of one value meet 600: 360,000 candidates, of which no thread takes nearly all."""
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
    rows = pa.table([[5] * 600, [7] * 600, [0.0] * 600], schema=SCHEMA)
    with open_tuned(eager(1000), spec, "three_step", index, workers=4) as join:
        join.push("left", rows)
        join.push("right", rows)
        assert len(threads()) == 3
        counts = join.stats().worker_comparisons
        assert join.stats().matches == sum(counts) == 360_000
        assert max(counts) < 1.2 * min(counts)
    assert not threads()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_an_error_in_a_thread_stops_the_join(workers, monkeypatch):
    """The part with the last probe fails."""
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
    rows = pa.table([[5] * 40, [7] * 39 + [9], [0.0] * 40], schema=SCHEMA)
    probe = BISortSubwindow.probe

    def failing_probe(self: BISortSubwindow, lows: np.ndarray, *rest: Any) -> Iterator[int]:
        if 9 in lows:
            raise MemoryError("no room for nine")
        return probe(self, lows, *rest)

    monkeypatch.setattr(BISortSubwindow, "probe", failing_probe)
    with open_tuned(eager(5), spec, "three_step", "bisort", workers=workers) as join:
        join.push("left", rows)
        with pytest.raises(MemoryError, match="no room for nine"):
            join.push("right", rows)
        with pytest.raises(sj.StreamJoinError, match="stopped after an error"):
            join.push("right", rows)
    assert not threads()


def test_small_batches_wake_nobody():
    spec = sj.JoinSpec(SCHEMA, SCHEMA, PREDICATES["plane"], sj.TimeWindow(10), "ts", "ts")
    for index in ("scan", "bisort", "auto"):
        with sj.open_join(spec, "three_step", index, workers=4) as join:
            for at in range(0, 400, 200):
                for side in ("left", "right"):
                    join.push(side, stream(400, 1).slice(at, 200))
            assert not threads()


def test_closing_ends_the_threads_of_a_join_that_is_not_finished():
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
    join = open_tuned(eager(100), spec, "three_step", "hash", workers=2)
    join.push("left", stream(50, 1))
    join.push("right", stream(50, 2))
    assert threads()
    join.close()
    assert not threads()
    assert isinstance(ALONE, Alone)


def test_explain_says_who_works():
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
    assert "the calling thread does the work;" in sj.explain(spec, "three_step", workers=1)
    assert "with 2 helper threads for large batches" in sj.explain(spec, "three_step", workers=3)
