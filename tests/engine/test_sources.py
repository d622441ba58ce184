"""Several physical streams a side, disorder and lateness: the result is that of the union of all that is not
late, in the total order (ts, side, source name, position)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from strategies import batches, pairs_of, windows
from streamjoin.plan.options import ORDERS

LEFT = pa.schema([("ts", pa.int64()), ("x", pa.int32()), ("l", pa.int64())])
RIGHT = pa.schema([("ts", pa.int64()), ("y", pa.int32()), ("r", pa.int64())])
SIDES = {"left": LEFT, "right": RIGHT}
ON = "x BETWEEN y - 1 AND y + 2"
LATENCIES = st.sampled_from([None, 1.0])  # with one, pushes wait for each other

Streams = dict[tuple[str, str], pa.Table]


def make_spec(window: Any, lateness: int | None = None, on: str = "TRUE") -> sj.JoinSpec:
    return sj.JoinSpec(LEFT, RIGHT, on, window, "ts", "ts", lateness=lateness)


def rows(side: str, *times: int, first: int = 0) -> pa.Table:
    """Rows of one side at `times`, numbered from `first`."""
    numbers = range(first, first + len(times))
    columns = [
        pa.array(times, pa.int64()),
        pa.array([0] * len(times), pa.int32()),
        pa.array(numbers, pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=SIDES[side])


# ---- by eye


def test_sources_of_equal_time_come_in_the_order_of_their_names():
    """Right 4 meets the last left row before it: of the two at 3, that of source "b"."""
    for first, second in (("a", "b"), ("b", "a")):
        with sj.open_join(make_spec(sj.RowWindow(1))) as join:
            sources = {name: join.source("left", name) for name in (first, second)}
            sources["b"].push(rows("left", 3, first=10))
            sources["a"].push(rows("left", 3, first=20))
            join.push("right", rows("right", 4))
            assert pairs_of(join.finish()) == [(10, 0)]


def test_an_idle_source_holds_the_others_back_until_it_advances_or_closes():
    for release in (lambda idle: idle.advance(5), lambda idle: idle.close()):
        with sj.open_join(make_spec(sj.TimeWindow(9)), order="timestamp") as join:
            idle, busy = join.source("left", "idle"), join.source("left", "busy")
            join.source("right", "").push(rows("right", 4, 6))
            busy.push(rows("left", 3, 5))
            assert join.poll() == []
            release(idle)
            ready = [pair for batch in join.poll() for pair in pairs_of(batch)]
            assert ready == [(0, 0), (1, 0)]
            assert pairs_of(join.finish()) == [(0, 1), (1, 1)]


def test_an_advanced_source_expires_what_waits_for_it():
    with sj.open_join(make_spec(sj.TimeWindow(2))) as join:
        slow = join.source("right", "slow")
        join.push("left", rows("left", 1, 2, 3, 9))
        assert join.stats().left_window == 4
        slow.advance(5)
        assert join.stats().left_window == 2  # 3 can still be met by 5
        slow.push(rows("right", 5))
        assert pairs_of(join.finish()) == [(2, 0)]


def test_below_its_promise_a_source_brings_nothing():
    with sj.open_join(make_spec(sj.TimeWindow(2))) as join:
        source = join.source("right", "s")
        source.advance(5)
        with pytest.raises(sj.InputError, match="5"):
            source.push(rows("right", 4))
    with sj.open_join(make_spec(sj.TimeWindow(2), lateness=9)) as join:
        source = join.source("right", "s")
        source.advance(5)
        source.push(rows("right", 4, 5))
        assert join.late("right")["ts"].to_pylist() == [4]


def test_when_a_side_ends_the_other_goes_on():
    with sj.open_join(make_spec(sj.TimeWindow(3)), order="timestamp") as join:
        join.push("left", rows("left", 1, 5))
        join.push("right", rows("right", 2))
        join.end("left")
        join.push("right", rows("right", 6, 9, first=1))
        ready = [pair for batch in join.poll() for pair in pairs_of(batch)]
        assert ready == [(0, 0), (1, 0), (1, 1)]
        assert join.stats().right_window == 0  # no left row will come to meet them
        with pytest.raises(sj.ClosedError):
            join.push("left", rows("left", 7))
        with pytest.raises(sj.ClosedError):
            join.source("left", "new")
        assert join.finish().num_rows == 0


@pytest.mark.parametrize("order", ORDERS)
def test_a_fall_is_an_error_and_changes_nothing(order):
    with sj.open_join(make_spec(sj.TimeWindow(2)), order=order) as join:
        join.push("left", rows("left", 1, 4))
        for bad in (rows("left", 3), rows("left", 6, 5, first=2)):
            with pytest.raises(sj.InputError, match="fall"):
                join.push("left", bad)
        assert join.stats().left_tuples == 2
        join.push("left", rows("left", 4, 5, first=2))
        join.push("right", rows("right", 5))
        assert sorted(pairs_of(join.finish())) == [(1, 0), (2, 0), (3, 0)]
        assert join.stats().late == 0


def test_disorder_within_the_lateness_joins_and_beyond_is_handed_back():
    with sj.open_join(make_spec(sj.TimeWindow(0), lateness=2), order="timestamp") as join:
        join.push("left", rows("left", 5, 3, 2, 6, 4))
        join.push("left", rows("left", 3, 4, first=5))
        join.push("right", rows("right", 2, 3, 4, 5, 6))
        assert pairs_of(join.finish()) == [(1, 1), (4, 2), (6, 2), (0, 3), (3, 4)]
        late = join.late("left")
        assert late["l"].to_pylist() == [2, 5] and late.schema.equals(LEFT)
        assert join.late("left").num_rows == 0 and join.late("right").num_rows == 0
        assert (join.stats().left_late, join.stats().right_late) == (2, 0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", [sj.TimeWindow(1), sj.RowWindow(3)], ids=str)
def test_a_source_opened_late_joins_from_where_the_others_are(window, order):
    with sj.open_join(make_spec(window), order=order) as join:
        first = join.source("left", "m")
        first.push(rows("left", 1, 5))
        join.push("right", rows("right", 4, 5, 9))
        newcomer = join.source("left", "z")
        newcomer.push(rows("left", 3, 8, first=2))
        assert join.late("left")["l"].to_pylist() == [2]
        first.push(rows("left", 9, first=4))
        found = sorted(pairs_of(join.finish()))
    on_time = rows("left", 1, 5, 3, 8, 9).take([0, 1, 3, 4])
    assert found == sorted(pairs_of(sj.oracle.join(on_time, rows("right", 4, 5, 9), make_spec(window))))


@pytest.mark.parametrize("order", ORDERS)
def test_a_source_opened_late_whose_name_sorts_first_repeats_nothing(order):
    """Left 5 of "m" has met right 4 when "a" opens; what "a" brings at 5 would have come before it."""
    spec = make_spec(sj.RowWindow(2))
    with sj.open_join(spec, order=order) as join:
        first = join.source("left", "m")
        first.push(rows("left", 3, 5))
        join.push("right", rows("right", 4, 5, 7))
        newcomer = join.source("left", "a")
        newcomer.push(rows("left", 5, first=2))
        newcomer.push(rows("left", 6, first=3))
        first.push(rows("left", 8, first=4))
        assert join.late("left")["l"].to_pylist() == [2]
        found = sorted(pairs_of(join.finish()))
    on_time = rows("left", 3, 5, 5, 6, 8).take([0, 1, 3, 4])
    assert found == sorted(pairs_of(sj.oracle.join(on_time, rows("right", 4, 5, 7), spec)))


@pytest.mark.parametrize("order", ORDERS)
def test_closing_the_only_source_of_a_side_repeats_nothing(order):
    with sj.open_join(make_spec(sj.RowWindow(5)), order=order) as join:
        join.push("left", rows("left", 0, 0, 1))
        only = join.source("right", "s")
        only.push(rows("right", 0))
        only.close()
        assert sorted(pairs_of(join.finish())) == [(0, 0), (1, 0), (2, 0)]


# ---- against the oracle


@st.composite
def streams(draw, disorder: bool, most: int = 4) -> Streams:
    """Tables of one to four sources a side, by (side, name); times fall only if `disorder`."""
    found = {}
    for side, schema in SIDES.items():
        names = draw(
            st.lists(st.sampled_from(["", "a", "b", "c", "é"]), min_size=1, max_size=most, unique=True)
        )
        start = 0
        for name in names:
            size = draw(st.integers(0, 7))
            times = draw(st.lists(st.integers(0, 12), min_size=size, max_size=size))
            values = draw(st.lists(st.sampled_from([0, 1, 2, 3, None]), min_size=size, max_size=size))
            columns = [times if disorder else sorted(times), values, list(range(start, start + size))]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
            found[side, name] = pa.Table.from_arrays(arrays, schema=schema)
            start += size
    return found


def divide(table: pa.Table, lateness: int | None) -> tuple[pa.Table, list[int]]:
    """A source's rows that are not late, and the numbers of those that are."""
    on_time, late, newest = [], [], -1
    for row, ts in enumerate(table["ts"].to_pylist()):
        if lateness is not None and ts < newest - lateness:
            late.append(table.column(2)[row].as_py())
        else:
            on_time.append(row)
        newest = max(newest, ts)
    return table.take(pa.array(on_time, pa.int64())), late


def expected_pairs(sources: Streams, spec: sj.JoinSpec) -> list[tuple[int, int]]:
    """The oracle on the union of each side's sources by name: its stable sort by time gives the total order."""
    union = {
        side: pa.concat_tables([sources[key] for key in sorted(sources) if key[0] == side]) for side in SIDES
    }
    found: list[tuple[int, int]] = pairs_of(sj.oracle.join(union["left"], union["right"], spec))
    return found


Act = Callable[[sj.Source], None]


def advance(promise: int, source: sj.Source) -> None:
    source.advance(promise)


def push(piece: pa.Table, source: sj.Source) -> None:
    source.push(piece)


@st.composite
def schedules(draw, sources: Streams) -> list[tuple[tuple[str, str], Act]]:
    """What each source does, in any interleaving: push its pieces, sometimes promise that nothing before its next
    tuple comes, in the end perhaps close."""
    acts: dict[tuple[str, str], list[Act]] = {}
    for key, table in sources.items():
        acts[key], at = [], 0
        for piece in draw(batches(table)):
            rest = table["ts"].slice(at).to_pylist()
            if rest and draw(st.booleans()):
                promise = draw(st.integers(min(rest) - 3, min(rest)))
                acts[key].append(partial(advance, promise))
            acts[key].append(partial(push, piece))
            at += piece.num_rows
        if draw(st.booleans()):
            acts[key].append(lambda source: source.close())
    turns = draw(st.permutations([key for key, todo in acts.items() for _ in todo]))
    return [(key, acts[key].pop(0)) for key in turns]


def joined(
    spec: sj.JoinSpec,
    order: Any,
    opened: list[tuple[str, str]],
    schedule: list[tuple[tuple[str, str], Act]],
    latency: float | None = None,
) -> tuple[list[tuple[int, int]], sj.Stats, dict[str, list[int]]]:
    """Run a schedule; the pairs in their order, the statistics, the numbers of late rows by side."""
    with sj.open_join(spec, order=order, latency=latency) as join:
        sources = {key: join.source(*key) for key in opened}
        found = []
        for key, act in schedule:
            act(sources[key])
            found += [pair for batch in join.poll() for pair in pairs_of(batch)]
        found += pairs_of(join.finish())
        late = {side: join.late(side).column(2).to_pylist() for side in SIDES}
        return found, join.stats(), late


@settings(max_examples=120)
@given(data=st.data())
def test_sources_at_any_pace_join_as_their_union(data):
    sources, order = data.draw(streams(disorder=False)), data.draw(st.sampled_from(ORDERS))
    spec = make_spec(data.draw(windows(None)), on=ON)
    opened = data.draw(st.permutations(list(sources)))
    found, stats, late = joined(spec, order, opened, data.draw(schedules(sources)), data.draw(LATENCIES))
    expected = expected_pairs(sources, spec)
    assert (found if order == "timestamp" else sorted(found)) == (
        expected if order == "timestamp" else sorted(expected)
    )
    assert stats.late == 0 and late == {"left": [], "right": []}
    assert stats.matches == len(expected)
    assert (stats.left_window, stats.right_window) == (0, 0)


@settings(max_examples=120)
@given(data=st.data())
def test_rows_out_of_order_join_unless_they_are_late(data):
    sources, order = data.draw(streams(disorder=True)), data.draw(st.sampled_from(ORDERS))
    lateness = data.draw(st.sampled_from([0, 1, 3, 20]))
    spec = make_spec(data.draw(windows(None)), lateness, ON)
    divided = {key: divide(table, lateness) for key, table in sources.items()}
    opened = data.draw(st.permutations(list(sources)))
    found, stats, late = joined(spec, order, opened, data.draw(schedules(sources)), data.draw(LATENCIES))
    expected = expected_pairs({key: on_time for key, (on_time, _) in divided.items()}, spec)
    assert (found if order == "timestamp" else sorted(found)) == (
        expected if order == "timestamp" else sorted(expected)
    )
    for side, count in (("left", stats.left_late), ("right", stats.right_late)):
        dropped = [row for key, (_, rows) in divided.items() if key[0] == side for row in rows]
        assert sorted(late[side]) == sorted(dropped) and count == len(dropped)


@settings(max_examples=40)
@given(data=st.data())
def test_refused_pushes_leave_no_trace(data):
    """Falling batches in between, each refused: the result is that of the good ones."""
    sources, order = data.draw(streams(disorder=False, most=2)), data.draw(st.sampled_from(ORDERS))
    spec = make_spec(data.draw(windows(None)), on=ON)
    schedule = []
    for key, act in data.draw(schedules(sources)):
        schedule.append((key, act))
        if data.draw(st.booleans()):
            schedule.append((key, partial(push_refused, key[0])))
    found, stats, late = joined(spec, order, list(sources), schedule)
    assert sorted(found) == sorted(expected_pairs(sources, spec))
    assert stats.left_tuples == sum(table.num_rows for key, table in sources.items() if key[0] == "left")
    assert late == {"left": [], "right": []}


def push_refused(side: str, source: sj.Source) -> None:
    with pytest.raises((sj.InputError, sj.ClosedError)):
        source.push(rows(side, 100, 99, first=1000))
