"""The chain of subwindows: what it finds, what it drops, and what it passes to its subwindows."""

from __future__ import annotations

import gc
import itertools
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.codegen.columns import to_column_data
from streamjoin.codegen.prepared import Stored
from streamjoin.codegen.programs import WindowProgram
from streamjoin.index import chain, structures
from streamjoin.index.access import BandAccess
from streamjoin.index.chain import ChainWindow
from streamjoin.index.structures.bisort import BISortSubwindow
from streamjoin.index.structures.hash import HashSubwindow
from streamjoin.index.times import Reach
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.index.window import Subwindow
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.options import STRUCTURE_NAMES
from streamjoin.plan.subwindows import BATCHES_BETWEEN, SAMPLED_BATCHES, Choice, FixedRule
from streamjoin.plan.tuning import WindowTuning
from streamjoin.semantics.analysis import analyse
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.expressions import Column

LEFT = pa.schema({"ts": pa.int64(), "x": pa.int32(), "y": pa.int64()})
RIGHT = pa.schema({"ts": pa.int64(), "a": pa.int32(), "b": pa.int64()})
PLANE = "x BETWEEN a - 1 AND a + 1 AND y BETWEEN b - 1 AND b + 1"
EQUAL = "x = a AND y BETWEEN b - 1 AND b + 1"
RANK = np.zeros(1, np.int32)


TUNING = WindowTuning(smallest_subwindow=4, largest_subwindow=16)
SMALLEST, LARGEST, SHARE = TUNING.smallest_subwindow, TUNING.largest_subwindow, TUNING.share


def make_program(on: str) -> WindowProgram:
    """The predicate for the left window."""
    spec = sj.JoinSpec(LEFT, RIGHT, on, sj.TimeWindow(1), "ts", "ts")
    assert not isinstance(spec.predicate, CallablePredicate)
    return WindowProgram(spec.predicate, analyse(spec.predicate).left, "left", indexed=True)


PROGRAMS = {on: make_program(on) for on in (PLANE, EQUAL)}
SERVED = {name: EQUAL if name == "hash" else PLANE for name in STRUCTURE_NAMES}


def make_window(name: Any, tuning: WindowTuning = TUNING) -> ChainWindow:
    program = PROGRAMS[SERVED[name]]
    rule = FixedRule(program, name, program.indexable(name == "hash"))
    return ChainWindow(program, rule, tuning=tuning)


def prepared(program: WindowProgram, side: str, rows: list[tuple[Any, ...]], first: int = 0) -> Any:
    """Tuples (ts, key, key) of one side in the role it has for the left window, with ids from `first`."""
    columns = program.stored_columns if side == "left" else program.probe_columns
    names = (LEFT if side == "left" else RIGHT).names
    data = {
        c: to_column_data(
            pa.array([row[names.index(c.name)] for row in rows], LEFT.types[names.index(c.name)]), c.type
        )
        for c in columns
    }
    ts = np.array([row[0] for row in rows], np.int64)
    nulls = any(value is None for row in rows for value in row)
    header = ts, np.arange(first, first + len(rows)), np.zeros(len(rows), np.int32)
    if side == "left":
        return Tuples(*header, program.prepare_stored(data, len(rows)), nulls)
    return ProbingTuples(*header, Stored(), nulls, program.prepare_probe(data, len(rows)))


def program_of(window: ChainWindow) -> WindowProgram:
    return window.program


def insert(window: ChainWindow, rows: list[tuple[Any, ...]], first: int) -> None:
    window.insert(prepared(program_of(window), "left", rows, first), RANK)


def found(window: ChainWindow, probes: list[tuple[Any, ...]], reach: Reach) -> list[tuple[int, int]]:
    """(probe, id) pairs, sorted."""
    pairs = PairBuffer(1)
    for before in window.probe(prepared(program_of(window), "right", probes), reach, pairs):
        assert before <= pairs.count
    probe, pos = pairs.take()
    return sorted(zip(probe.tolist(), window.ids(pos).tolist(), strict=True))


def holds(on: str, l: tuple[Any, ...], r: tuple[Any, ...]) -> bool:
    if None in l or None in r:
        return False
    return bool(abs(l[1] - r[1]) <= (on == PLANE) and abs(l[2] - r[2]) <= 1)


def check_links(window: ChainWindow) -> None:
    """Links follow each other without a gap, all but the last are full, and know the times of their tuples. Rows of the
    first may be gone, if it is large."""
    at = window._gone
    for number, link in enumerate(window._links):
        gone = at - link.first
        assert gone == 0 or (number == 0 and 0 < gone < link.count and link.count > LARGEST)
        assert SMALLEST <= link.capacity <= max(LARGEST, len(window))
        assert link.count == link.capacity or (
            number == len(window._links) - 1 and 0 < link.count < link.capacity
        )
        rows = slice(at - window._gone, at - window._gone + link.count - gone)
        stored = window.stored()
        assert stored.known is not None
        ts, ok = window.ts[rows], stored.known[rows]
        assert link.newest == ts.max() and (gone or link.oldest == ts.min())
        assert gone or len(link.subwindow) == ok.sum()  # tuples without a key are in no index
        at = link.first + link.count
    assert at - window._gone == len(window)


# ---- few probes ask all subwindows with one call


@pytest.mark.parametrize("name", ["hash", "bisort"])
def test_few_probes_ask_all_subwindows_with_one_call(name, monkeypatch):
    """While tuples come in order, one row at a time, subwindows fill, are sealed and merged, and are dropped."""
    asked = []
    monkeypatch.setattr(ChainWindow, "_look_up_each", lambda *_: asked.append(1))
    window, held, links = make_window(name), [], 0
    for ts in range(90):
        row = (ts, ts * 7 % 5, ts * 3 % 4)
        insert(window, [row], ts)
        held.append(row)
        for low, high in ((ts - 25, ts), (ts - 20, ts - 3)):
            expected = [
                (0, number)
                for number, each in enumerate(held)
                if low <= each[0] <= high and holds(SERVED[name], each, (ts, 2, 1))
            ]
            reach = Reach(np.array([low]), np.array([high]))
            assert found(window, [(ts, 2, 1)], reach) == expected
        links = max(links, len(window._links))
        window.expire(ts - 25)
        check_links(window)
    assert not asked and links > 2


class InTurns(FixedRule):
    """Hashes and sorts subwindows by turns."""

    turns = 0

    def choose(self, *given: Any) -> Choice:
        self.turns += 1
        structure: Any = ("hash", "bisort")[self.turns // 2 % 2]
        return replace(super().choose(*given), structure=structure)


def test_few_probes_ask_hashed_and_sorted_subwindows_with_one_call_each(monkeypatch):
    """Whichever of them takes tuples; the others are sealed, merged where two sorted ones follow each other, and
    dropped."""
    monkeypatch.setattr(ChainWindow, "_look_up_each", lambda *_: pytest.fail("asked one by one"))
    calls: list[Any] = []

    def counting(real: Any) -> Any:
        def probe_all(*given: Any) -> Any:
            calls.append(real)
            return real(*given)

        return staticmethod(probe_all)

    for kind in (HashSubwindow, BISortSubwindow):
        monkeypatch.setattr(kind, "probe_all", counting(kind.probe_all))
    program = PROGRAMS[EQUAL]
    window = ChainWindow(program, InTurns(program, "hash", program.indexable(True)), tuning=TUNING)
    held, seen = [], set()
    for ts in range(120):
        row = (ts, ts * 7 % 5, ts * 3 % 4)
        insert(window, [row], ts)
        held.append(row)
        low, high, probe = ts - 25, ts - 2, (ts, 2, 1)
        expected = [
            (0, n) for n, each in enumerate(held) if low <= each[0] <= high and holds(EQUAL, each, probe)
        ]
        calls.clear()
        assert found(window, [probe], Reach(np.array([low]), np.array([high]))) == expected
        kinds = {link.choice.structure for link in window.links}
        assert len(calls) == len(kinds)
        seen.add((len(kinds), window.links[-1].choice.structure))
        window.expire(ts - 25)
        check_links(window)
    assert seen >= {(2, "hash"), (2, "bisort")}


@pytest.mark.parametrize("name", ["hash", "bisort"])
def test_many_lookups_tuples_out_of_order_and_other_structures_ask_one_by_one(name, monkeypatch):
    def refuse(*_: Any) -> None:
        pytest.fail("asked together")

    monkeypatch.setattr(ChainWindow, "_look_up_together", refuse)
    at, probe = Reach(np.array([0]), np.array([99])), [(50, 0, 0)]
    windows = {
        "many": make_window(name, replace(TUNING, shared_lookups=1)),
        "falling": make_window(name),
        "other": make_window("raptable"),
    }
    for case, window in windows.items():
        insert(window, [(ts, 0, 0) for ts in range(10)], 0)
        insert(window, [(5 if case == "falling" else 20, 0, 0)], 10)
        assert found(window, probe, at) == [(0, number) for number in range(11)]


# ---- random histories, against a list

KEYS = st.sampled_from([0, 1, 2, 3, 5, None, -(2**31), 2**31 - 1])
ROWS = st.lists(st.tuples(st.integers(0, 9), KEYS, KEYS), min_size=1, max_size=20)


@pytest.mark.parametrize("name", STRUCTURE_NAMES)
@settings(max_examples=80)
@given(batches=st.lists(st.tuples(st.integers(0, 6), ROWS, ROWS, st.integers(0, 12)), max_size=8))
def test_tuples_that_come_at_any_time(name, batches):
    """Batches of a stream that moves on, each sorted but overlapping those before, as sources at their own pace
    bring them; probes in between; and what no probe can reach any more expires."""
    held: list[tuple[Any, ...]] = []
    window, now, promised = make_window(name), 0, -1
    for step, rows, probes, reach_back in batches:
        now += step
        arrived = sorted([(max(now + ts, promised), x, y) for ts, x, y in rows], key=lambda row: row[0])
        insert(window, arrived, len(held))
        held += arrived
        check_links(window)
        asked = sorted([(now + ts, a, b) for ts, a, b in probes], key=lambda row: row[0])
        ts = np.array([row[0] for row in asked])
        low, high = np.maximum(ts - 3, promised), ts + 2
        expected = [
            (i, n)
            for i, probe in enumerate(asked)
            for n, row in enumerate(held)
            if low[i] <= row[0] <= high[i] and holds(SERVED[name], row, probe)
        ]
        assert found(window, asked, Reach(low, high)) == sorted(expected)
        promised = max(promised, now + 6 - reach_back)
        window.expire(promised)
        check_links(window)
        check_dropped(window, held, promised)


def expire(window: ChainWindow, last: int, rows: int) -> None:
    """Drop what a tuple at `last` can not meet any more: in a window of so many rows, or of 300 ticks."""
    if rows:
        window.expire_first(max(0, len(window) - rows))
    else:
        window.expire(last - 299)


def check_dropped(window: ChainWindow, held: list[tuple[Any, ...]], promised: int) -> None:
    """Dropped tuples came first and cannot be reached; the first remaining subwindow can."""
    gone = len(held) - len(window)
    assert window.ids(np.arange(len(window))).tolist() == list(range(gone, len(held)))
    assert all(row[0] < promised for row in held[:gone])
    assert not window._links or window._links[0].newest >= promised


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("least", [0, -(2**63)])
def test_a_strict_reach_ends_before_its_time_in_order_or_not(strict, least):
    """A tuple at the very time of a probe, in a window where it is found by position, and in one of checked times."""
    for disorder in (False, True):
        window = make_window("bisort")
        insert(window, [(least, 0, 0), (least + 2, 0, 0)], 0)
        insert(window, [(least + (1 if disorder else 3), 0, 0)], 2)
        assert (window._disorder > window._gone) == disorder
        highs = np.array([least, least + 1, least + 2])
        reach = Reach(np.full(3, least), highs, strict=strict)
        times = {0: least, 1: least + 2, 2: least + (1 if disorder else 3)}
        expected = [
            (probe, number)
            for probe, high in enumerate(highs.tolist())
            for number, ts in times.items()
            if (ts < high if strict else ts <= high)
        ]
        assert found(window, [(high, 0, 0) for high in highs.tolist()], reach) == expected


@pytest.mark.parametrize("name", STRUCTURE_NAMES)
@settings(max_examples=60)
@given(batches=st.lists(st.tuples(ROWS, ROWS), max_size=8), size=st.integers(0, 25), strict=st.booleans())
def test_row_windows(name, batches, size, strict):
    held: list[tuple[Any, ...]] = []
    window, now = make_window(name), 0
    for rows, probes in batches:
        arrived = sorted([(now + ts, x, y) for ts, x, y in rows], key=lambda row: row[0])
        insert(window, arrived, len(held))
        held += arrived
        asked = sorted([(now + ts, a, b) for ts, a, b in probes], key=lambda row: row[0])
        reach = Reach(None, np.array([row[0] for row in asked]), rows=size, strict=strict)
        expected = []
        for i, probe in enumerate(asked):
            before = [
                n for n, row in enumerate(held) if row[0] < probe[0] or (row[0] == probe[0] and not strict)
            ]
            expected += [
                (i, n) for n in before[max(0, len(before) - size) :] if holds(SERVED[name], held[n], probe)
            ]
        assert found(window, asked, reach) == sorted(expected)
        now = max(arrived[-1][0], asked[-1][0])
        preceding = int(window.ts.searchsorted(now, "left" if strict else "right"))
        window.expire_first(max(0, preceding - size))
        check_links(window)
        reachable = len([row for row in held if row[0] < now or not strict])
        needed = len(held) - max(0, reachable - size)
        assert needed <= len(window) < needed + LARGEST


# ---- what subwindows are told


class Told(BISortSubwindow):
    """A sorted subwindow that records its calls."""

    made: list[Told] = []

    def __init__(self, capacity: int, dtype: np.dtype, predecessor: Subwindow | None = None):
        super().__init__(capacity, dtype, predecessor)
        self.predecessor, self.seals = predecessor, 0
        Told.made.append(self)

    def seal(self) -> None:
        self.seals += 1
        super().seal()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    Told.made = []
    monkeypatch.setitem(structures.STRUCTURE_CLASSES, "bisort", Told)
    return Told.made


def test_full_subwindows_are_sealed_once_and_known_to_their_successor(told):
    window = make_window("bisort", replace(TUNING, merged_each=0))
    for n in range(0, 100, 5):
        insert(window, [(n + i, i, i) for i in range(5)], n)
    check_links(window)
    assert [link.subwindow for link in window._links] == told
    assert [subwindow.seals for subwindow in told[:-1]] == [1] * (len(told) - 1)
    assert told[-1].seals == 0
    assert told[0].predecessor is None
    assert [subwindow.predecessor for subwindow in told[1:]] == told[:-1]


def test_capacities_follow_the_window_between_two_limits(told):
    window = make_window("bisort")
    for n in range(200):
        insert(window, [(n, 0, 0)], n)
    capacities = [subwindow.capacity for subwindow in told]
    assert capacities == sorted(capacities)
    assert capacities[0] == SMALLEST and capacities[-1] == LARGEST
    assert all(capacity & (capacity - 1) == 0 for capacity in capacities)


def test_one_large_batch_fills_several_subwindows(told):
    window = make_window("bisort")
    insert(window, [(n, n % 7, 0) for n in range(100)], 0)
    check_links(window)
    assert len(told) >= 100 // LARGEST
    reach = Reach(np.array([10, 90]), np.array([95, 99]))
    expected = [(0, n) for n in range(10, 96) if n % 7 == 0] + [(1, n) for n in range(90, 100) if n % 7 == 6]
    assert found(window, [(10, -1, 0), (90, 7, 0)], reach) == expected


def newest_key(window: ChainWindow) -> str:
    """The column by which the newest subwindow finds tuples."""
    access = window._links[-1].access
    assert isinstance(access, BandAccess)
    key = access.program.bounds.bands[access.band].key
    assert isinstance(key, Column)
    return key.name


def test_each_new_subwindow_indexes_the_band_that_leaves_fewer_candidates(told):
    """x tells tuples apart at first, y later; which it is shows once most of the sampled probes are later ones."""
    window, keys = make_window("bisort"), []
    rng = np.random.default_rng(1)
    for n in range(0, 1000 + 40 * SAMPLED_BATCHES * BATCHES_BETWEEN, 40):
        spread, same = rng.integers(0, 1000, 40).tolist(), [5] * 40
        columns = (spread, same) if n < 1000 else (same, spread)
        rows = [(n + i, x, y) for i, (x, y) in enumerate(zip(*columns, strict=True))]
        found(window, rows, Reach(np.full(40, n - 40), np.full(40, n)))
        insert(window, rows, n)
        keys.append(newest_key(window))
        window.expire(n - 100)
    assert set(keys[2:25]) == {"x"} and set(keys[-10:]) == {"y"}
    # A successor that finds tuples by another key learns nothing from its predecessor.
    switched = [b for a, b in itertools.pairwise(told) if a.dtype != b.dtype]
    assert len(switched) == 1 and switched[0].predecessor is None


def test_candidates_are_counted_before_the_other_band_is_checked():
    window = make_window("bisort")
    insert(window, [(0, x, y) for x in range(3) for y in range(5)], 0)
    assert newest_key(window) == "x"
    assert found(window, [(0, 9, 0), (0, 3, 0)], Reach(np.array([0, 0]), np.array([0, 0]))) == [
        (1, 10),
        (1, 11),
    ]
    assert window.comparisons == 5  # those with x = 2


def test_subwindows_out_of_reach_are_not_asked():
    window = make_window("bisort")
    for n in range(64):
        insert(window, [(n, 0, 0)], n)
    found(window, [(63, 0, 0)], Reach(np.array([60]), np.array([63])))
    assert window.comparisons == 4  # of 64 tuples with this key
    insert(window, [(62, 0, 0)], 64)  # from now on times are checked tuple by tuple
    found(window, [(63, 0, 0)], Reach(np.array([60]), np.array([63])))
    assert 5 <= window.comparisons - 4 <= 2 * LARGEST


# ---- full neighbours are merged


def check_sizes(window: ChainWindow, batch: int) -> None:
    """Merged subwindows are no larger than their part of the window was, and a probe has few to ask, but for those that
    the last batch filled."""
    check_links(window)
    merged = [link.count for link in window._links if link.count > LARGEST]
    assert all(count <= 2 * len(window) // SHARE for count in merged)
    few = 2 * SHARE + 2 * len(window).bit_length() + batch // LARGEST
    assert len(window._links) <= few


@pytest.mark.parametrize("batch", [3, 50, 700])
@pytest.mark.parametrize("disorder", [0, 40])
def test_a_large_window_has_few_subwindows_and_finds_what_a_list_finds(batch, disorder):
    rng = np.random.default_rng(batch)
    window, held, span = make_window("bisort"), list[tuple[Any, ...]](), 2_000
    for n in range(0, 4_000, batch):
        times = np.sort(n + rng.integers(0, batch, batch) - rng.integers(0, disorder + 1))
        keys = rng.integers(0, 300, (batch, 2)).tolist()
        rows = [(int(t), None if t % 17 == 0 else x, y) for t, (x, y) in zip(times, keys, strict=True)]
        insert(window, rows, len(held))
        held += rows
        window.expire(n - span)
        check_sizes(window, batch)
        if n % 100 < batch:
            probes = [(n, *key) for key in rng.integers(0, 300, (20, 2)).tolist()]
            low = n - span // 2
            expected = [
                (i, number)
                for i, probe in enumerate(probes)
                for number, row in enumerate(held)
                if low <= row[0] <= n and holds(PLANE, row, probe)
            ]
            assert found(window, probes, Reach(np.full(20, low), np.full(20, n))) == expected
    assert any(link.count > LARGEST for link in window._links)


@pytest.mark.parametrize("rows", [0, 300], ids=["time", "rows"])
@pytest.mark.parametrize("step", [1, 7, 60])
def test_rows_of_a_large_subwindow_go_before_it_does(step, rows):
    """What is held beyond the reach is a sixteenth of a subwindow, whose index finds nothing that is gone; not even
    when a tuple comes out of order, and times are checked one by one."""
    window, partly = make_window("bisort"), 0
    for n in range(0, 3_000, step):
        insert(window, [(n + i, 0, 0) for i in range(step)], n)
        last = n + step - 1
        low = None if rows else np.array([last - 299])
        reach = Reach(low, np.array([last]), rows=rows)
        expire(window, last, rows)
        check_links(window)
        if n > 1_000:
            assert len(window) - 300 <= max(LARGEST, window._links[0].count // chain.DROPPED_PARTS) + step
            partly += window._links[0].first < window._gone
            everything = [(0, number) for number in range(last - 299, last + 1)]
            assert found(window, [(last, 0, 0)], reach) == everything
    assert partly
    while window._links[0].first == window._gone:
        insert(window, [(last + 1, 0, 0)], last + 1)
        last += 1
        expire(window, last, rows)
    insert(window, [(last - 200, 0, 0)], last + 1)
    assert window._disorder > window._gone
    held = range(last + 2 - len(window), last + 2)
    assert found(window, [(last, 0, 0)], Reach(np.array([last - 10_000]), np.array([last]))) == [
        (0, number) for number in held
    ]
    assert window.ids(np.array([0, len(window) - 1])).tolist() == [held[0], held[-1]]
    assert window.oldest_id() == held[0]


def test_a_merge_is_given_up_when_its_tuples_expire():
    window = make_window("bisort", replace(TUNING, merged_each=1))
    insert(window, [(n, 0, 0) for n in range(400)], 0)
    insert(window, [(400, 0, 0)], 400)
    merging = window._merge
    assert merging is not None
    window.expire(400)
    assert window._merge is not merging and len(window) < 20
    for n in range(401, 500):
        insert(window, [(n, 0, 0)], n)
    check_links(window)
    everything = Reach(np.array([450]), np.array([499]))
    assert found(window, [(499, 0, 0)], everything) == [(0, n) for n in range(450, 500)]


# ---- nothing is kept


@pytest.mark.parametrize("name", STRUCTURE_NAMES)
def test_dropped_subwindows_are_released(name, monkeypatch):
    dropped: list[weakref.ref] = []
    made = structures.STRUCTURE_CLASSES[name]

    def structure(*arguments: Any) -> Subwindow:
        subwindow = made(*arguments)
        dropped.append(weakref.ref(subwindow))
        return subwindow

    monkeypatch.setitem(structures.STRUCTURE_CLASSES, name, structure)
    window = make_window(name)
    for n in range(0, 400, 10):
        rows = [(n + i, i, i) for i in range(10)]
        insert(window, rows, n)
        found(window, rows, Reach(np.full(10, n - 20), np.full(10, n + 10)))
        window.expire(n - 20)
    gc.collect()
    assert len(dropped) > 20
    alive = [ref for ref in dropped if ref() is not None]
    assert alive == [weakref.ref(link.subwindow) for link in window._links]
    window.clear()
    gc.collect()
    assert len(window) == 0 and not window._links and window.ts.tolist() == []
    assert all(ref() is None for ref in dropped)
    insert(window, [(500, 1, 1)], 400)
    assert found(window, [(500, 1, 1)], Reach(np.array([500]), np.array([500]))) == [(0, 400)]


@pytest.mark.parametrize("rows", [0, 300], ids=["time", "rows"])
@pytest.mark.parametrize("name", STRUCTURE_NAMES)
def test_memory_follows_the_window(name, rows):
    tuning = replace(TUNING, smallest_subwindow=64, largest_subwindow=256)
    window, sizes, bytes_held = make_window(name, tuning), [], []
    for n in range(0, 20_000, 50):
        insert(window, [(n + i, (n + i) * 37 % 1000, i) for i in range(50)], n)
        expire(window, n + 49, rows)
        sizes.append(len(window))
        bytes_held.append(window.nbytes)
    assert 300 <= max(sizes[10:]) <= 300 + 256
    assert max(bytes_held[200:]) <= max(bytes_held[:200])
    window.clear()
    assert len(window) == 0 and window.nbytes <= 1024 * 64  # the least capacity of its columns


def test_a_tuple_ahead_of_all_others_holds_its_subwindow_alone():
    """It is still in reach when those that came with it are not; what came later goes once it goes."""
    window = make_window("bisort")
    insert(window, [(1000, 0, 0)], 0)
    for n in range(1, 65):
        insert(window, [(n, 0, 0)], n)
    window.expire(100)
    check_links(window)
    assert found(window, [(1000, 0, 0)], Reach(np.array([900]), np.array([1000]))) == [(0, 0)]
    window.expire(1001)
    assert len(window) == 0


def test_order_is_found_again_once_the_disorder_has_expired():
    window = make_window("bisort")
    insert(window, [(5, 0, 0), (9, 0, 0)], 0)
    insert(window, [(7, 0, 0)], 2)
    insert(window, [(n, 0, 0) for n in range(10, 30)], 3)
    reach = Reach(np.array([7]), np.array([9]))
    assert found(window, [(9, 0, 0)], reach) == [(0, 1), (0, 2)]
    assert window._disorder > window._gone
    window.expire(20)
    assert window._disorder <= window._gone
    assert found(window, [(22, 0, 0)], Reach(np.array([20]), np.array([22]))) == [
        (0, n) for n in (13, 14, 15)
    ]
