"""Nearest joins by searches: by eye, at the ends of what fits, what is held, and against the oracle."""

from __future__ import annotations

import datetime
import math
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamjoin as sj
from outcome_runs import use_forms
from strategies import RELEASING, open_tuned
from streamjoin.kernels.sorted import block_lists
from streamjoin.plan.tuning import NearestTuning, Tuning
from streamjoin.topologies.outcomes import nearest
from streamjoin.topologies.outcomes.nearest import NearestSearch

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
SCHEMA = pa.schema(
    {
        "ts": pa.int64(), "k": pa.int32(), "s": pa.string(), "i": pa.int64(), "f": pa.float64(), "g": pa.float32(),
        "t": pa.timestamp("us"), "d": pa.decimal128(9, 2), "n": pa.int64(),
    }
)  # fmt: skip
SCORES = [
    "abs(left.i - right.i)", "abs(left.i + right.i + 3)", "abs(right.i - left.d)", "abs(left.t - right.t)",
    "abs(left.f - right.f)", "abs(left.f + right.g)", "right.i", "right.i - left.i", "right.g", "left.f - right.f",
    "right.f + left.f", "abs(right.f)",
]  # fmt: skip
PREDICATES = [
    "TRUE",
    "left.k = right.k",
    "left.s = right.s AND left.n <> right.n",
    "left.k = right.k AND left.n < 9 AND right.n > 1 AND left.s = right.s",
    "left.n <> right.n",
    "FALSE",
]
WINDOWS: list[Any] = [
    sj.TimeWindow(3), sj.TimeWindow(0, right=9), sj.Interval(-6, -2), sj.Interval(1, 5, closed="left"),
    sj.TimeWindow(INT64_MAX),
]  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "k": [None, 0, 0, 1],
    "s": [None, "a", "a", "b"],
    "i": [None, 0, 1, 2, 2, 7, INT64_MAX, INT64_MIN, INT64_MIN + 1],
    "f": [None, 0.0, -0.0, 0.5, 0.5, -2.0, 1e18, math.nan, math.inf, -math.inf],
    "g": [None, 0.0, -0.0, 0.1, 0.1, -2.0, 1e30, math.nan, math.inf, -math.inf],
    "t": [None, *(datetime.datetime(2000, 1, 1) + datetime.timedelta(seconds=s) for s in (0, 1, 1, 5))],
    "d": [None, Decimal("0.00"), Decimal("1.00"), Decimal("1.50"), Decimal("-9999999.99")],
}


def spec_of(
    by: str, window: Any = None, k: int = 1, on: str = "TRUE", how: Any = "inner", **options: Any
) -> sj.JoinSpec:
    keep = sj.Nearest(by, k=k, largest=options.pop("largest", False))
    window = sj.TimeWindow(9) if window is None else window
    return sj.JoinSpec(SCHEMA, SCHEMA, on, window, "ts", "ts", how=how, keep=keep, **options)


def table(ts: list[int], **columns: Any) -> pa.Table:
    """Rows at these times, numbered; NULL in columns that are not given."""
    given = {"ts": ts, "n": range(len(ts)), **columns}
    return pa.table({f.name: pa.array(given.get(f.name, [None] * len(ts)), f.type) for f in SCHEMA}, SCHEMA)


def picked(
    spec: sj.JoinSpec, left: pa.Table, right: pa.Table, **options: Any
) -> list[tuple[int, int | None]]:
    """The numbers of the rows of each result row by left row; the result is the oracle's."""
    found = sj.join_tables(left, right, spec, order="timestamp", **options)
    pairs = list(zip(found["n"].to_pylist(), found["n_right"].to_pylist(), strict=True))
    expected = sj.oracle.join(left, right, spec)
    assert pairs == list(zip(expected["n"].to_pylist(), expected["n_right"].to_pylist(), strict=True))
    return sorted(pairs, key=lambda pair: (pair[0], -1 if pair[1] is None else pair[1]))


def is_searched(spec: sj.JoinSpec, **options: Any) -> bool:
    return "searches a sorted list" in sj.explain(spec, **options)


# ---- by eye


def test_the_nearest_right_rows_of_the_window():
    left, right = table([10], i=[50]), table([1, 5, 8, 19, 20], i=[51, 44, 60, 53, 50])
    assert picked(spec_of("abs(left.i - right.i)"), left, right) == [(0, 0)]
    assert picked(spec_of("abs(left.i - right.i)", k=3), left, right) == [(0, 0), (0, 1), (0, 3)]
    assert picked(spec_of("right.i", k=2, largest=True), left, right) == [(0, 2), (0, 3)]


def test_of_rows_as_near_the_later_one_counts():
    left, right = table([5], f=[1.0]), table([4, 4, 5, 6], f=[0.5, 1.5, 1.5, 0.5])
    assert picked(spec_of("abs(left.f - right.f)", k=2), left, right) == [(0, 2), (0, 3)]


def test_keys_that_round_to_one_score_tie():
    """2**60 - 1 and 2**60 - 2 are the same float."""
    left, right = table([5], f=[2.0**60]), table([4, 5], f=[2.0, 1.0])
    assert picked(spec_of("left.f - right.f"), left, right) == [(0, 1)]
    assert picked(spec_of("abs(left.f - right.f)"), left, right) == [(0, 1)]


def test_null_nan_and_infinity():
    left = table([5, 6, 7], f=[None, math.nan, math.inf])
    right = table([5, 6, 7, 8], f=[math.inf, math.nan, None, 3.0])
    assert picked(spec_of("abs(left.f - right.f)", k=4, how="left"), left, right) == [
        (0, None), (1, None), (2, 3),
    ]  # fmt: skip


def test_distances_beyond_64_bits():
    left, right = table([5, 6], i=[INT64_MIN, INT64_MAX]), table([5, 6, 7], i=[INT64_MAX, 0, INT64_MIN])
    assert picked(spec_of("abs(left.i - right.i)", k=2), left, right) == [(0, 1), (0, 2), (1, 0), (1, 1)]
    assert picked(spec_of("abs(left.i + right.i)", k=1), left, right) == [(0, 0), (1, 2)]


def test_equal_keys_and_conditions_of_one_side():
    left = table([5, 6, 7], k=[1, None, 2], i=[0, 0, 0])
    right = table([5, 6, 7, 8], k=[2, 1, None, 1], i=[0, 9, 0, 4])
    spec = spec_of("abs(left.i - right.i)", on="left.k = right.k AND right.i < 5")
    assert is_searched(spec)
    assert picked(spec, left, right) == [(0, 3), (2, 0)]


def test_a_residual_condition_is_checked_until_enough_rows_satisfy_it():
    left, right = table([500], i=[0]), table(list(range(1_000)), i=list(range(1_000)))
    spec = spec_of("abs(left.i - right.i)", sj.TimeWindow(600), 3, "(left.n + right.n) % 90 = 7")
    assert picked(spec, left, right) == [(0, 7), (0, 97), (0, 187)]


def test_a_residual_condition_of_left_rows_without_candidates():
    left, right = table([5, 50], i=[0, 0], n=[7, 8]), table([45], i=[3])
    spec = spec_of("abs(left.i - right.i)", on="left.n <> right.n", how="left")
    assert is_searched(spec)
    assert picked(spec, left, right) == [(7, None), (8, 0)]
    assert picked(spec, left, table([])) == [(7, None), (8, None)]


@pytest.mark.parametrize("window", WINDOWS[2:])
def test_times_at_the_ends_of_64_bits(window):
    ends = [INT64_MIN, INT64_MIN + 1, INT64_MIN + 3, 0, INT64_MAX - 3, INT64_MAX - 1, INT64_MAX]
    sides = table(ends, i=range(7)), table(ends, i=range(7))
    picked(spec_of("abs(left.i - right.i)", window, 2, how="left"), *sides)  # compares with the oracle


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (spec_of("left.i * right.i"), {}),
        (spec_of("right.i", sj.RowWindow(3)), {}),
        (spec_of("right.i", left_tie="s"), {}),
        (spec_of("right.i", on="left.n <> right.n"), {}),
        (spec_of("abs(left.i - right.i)", on="abs(left.f - right.f) < 3"), {}),
        (spec_of("right.i"), {"index": "scan"}),
        (spec_of("right.i"), {"topology": "scalejoin"}),
    ],
    ids=["score", "rows", "tie", "rising", "band", "index", "topology"],
)
def test_other_joins_score_all_matches(spec, options):
    assert not is_searched(spec, **options)


def test_explain_says_what_is_sorted():
    text = sj.explain(spec_of("abs(left.i - right.i)", on="left.k = right.k AND left.n <> right.n"))
    assert "one list, sorted by right.k, right.i" in text
    assert "checked on the rows of each pair that is found: left.k = right.k AND left.n <> right.n" in text


# ---- when rows leave, and what is held


def test_a_left_row_leaves_once_right_has_passed_the_end_of_its_window():
    with sj.open_join(spec_of("right.i", sj.TimeWindow(3))) as join:
        first, second = join.source("left", "a"), join.source("left", "b")
        second.push(table([0], i=[0]))
        join.push("right", table([1, 3], i=[5, 4]))
        assert join.poll() == []  # the next right row can be at 3
        join.push("right", table([4], i=[3]))
        assert [batch["i_right"].to_pylist() for batch in join.poll()] == [[4]]
        first.push(table([0, 1], i=[0, 0]))  # before what the other source brought
        assert [batch["i_right"].to_pylist() for batch in join.poll()] == [[4]]


@pytest.mark.parametrize("on", ["TRUE", "left.n <> right.n"])
@pytest.mark.parametrize("order", ["any", "timestamp"])
def test_what_is_kept_does_not_grow(on, order):
    """After every hundred rows about as much is held as after the first hundreds: the list may be that of an earlier
    left row, which had to be searched for again."""
    sizes = []
    spec = spec_of("abs(left.i - right.i)", sj.TimeWindow(150), 2, on, "left")
    with open_tuned(RELEASING, spec, order=order) as join:
        made: Any = join._topology
        for at in range(0, 4000, 100):
            for side in ("left", "right"):
                times = list(range(at, at + 100))
                join.push(side, table(times, i=[ts * 7919 % 1000 for ts in times]))
            join.poll()
            search: NearestSearch = made._topology
            held = sum(map(len, search._rows.values())) + int(search._blocks.sizes.sum())
            assert len(search._blocks.order) == nearest.FIRST_BLOCKS
            facts = sum(len(each._columns) for each in made._facts.values())
            sizes.append(held + facts + join.stats().payload_rows)
    assert max(sizes[8:]) <= 1.2 * max(sizes[:8])


def test_the_list_grows_and_gives_its_memory_back():
    spec = spec_of("right.f", sj.TimeWindow(0, right=50_000))
    with open_tuned(Tuning(nearest=NearestTuning(kept_blocks=64)), spec) as join:
        made: Any = join._topology
        random_ = random.Random(5)
        rows = [random_.random() for _ in range(60_000)]
        join.push("right", table([*range(60_000)], f=rows))
        join.push("left", table([50_000], f=[0.0]))
        join.end("right")
        assert sum(batch.num_rows for batch in join.poll()) == 1
        assert made._topology._blocks.state[block_lists.USED] * 64 > 50_000
        join.push("left", table([59_999, 10**6], f=[0.0, 0.0]))
        assert len(made._topology._blocks.order) == nearest.FIRST_BLOCKS


def test_a_close_ends_the_searches_of_a_step(monkeypatch):
    """A residual that nothing satisfies makes each left row look at all right rows, one row after the other."""
    calls, search = [], NearestSearch._search

    def closing(self: NearestSearch, *given: Any) -> Any:
        calls.append(given)
        join.close()
        return search(self, *given)

    spec = spec_of("abs(left.i - right.i)", on="left.n > right.n + 99")
    join = open_tuned(Tuning(nearest=NearestTuning(step_places=40)), spec)
    for side in ("left", "right"):
        join.push(side, table([0] * 30, i=[0] * 30))
    monkeypatch.setattr(NearestSearch, "_search", closing)
    with pytest.raises(sj.ClosedError):
        join.finish()
    assert len(calls) == 1


# ---- against the oracle


def sources_of(draw: random.Random, rows: int, lateness: int) -> dict[str, dict[str, pa.Table]]:
    """By side and source: rows in order, or out of order as far as `lateness` allows."""
    made: dict[str, dict[str, pa.Table]] = {}
    for side in ("left", "right"):
        number, made[side] = 0, {}
        for name in draw.choice([[""], [""], ["a", "b"]]):
            count, newest, ts = draw.randrange(rows), 0, []
            for time in sorted(draw.randrange(3 + rows // 2) for _ in range(count)):
                ts.append(max(time - draw.randint(0, lateness), newest - lateness, 0))
                newest = max(newest, ts[-1])
            columns: dict[str, Any] = {key: draw.choices(pool, k=count) for key, pool in VALUES.items()}
            made[side][name] = table(ts, **{**columns, "n": range(number, number + count)})
            number += count
    return made


def results(
    join: Any, sources: dict[str, dict[str, pa.Table]], draw: random.Random
) -> list[tuple[int, int | None]]:
    """Push all sources in pieces, polling now and then."""
    polled = []
    with join:
        names = [(side, name) for side in sources for name in sources[side]]
        draw.shuffle(names)
        waiting = [(join.source(side, name), sources[side][name]) for side, name in names]
        while waiting:
            source, rows = waiting.pop(draw.randrange(len(waiting)))
            count = draw.randint(1, 6)
            source.push(rows.slice(0, count))
            if rows.num_rows > count:
                waiting.append((source, rows.slice(count)))
            elif draw.random() < 0.5:
                source.close()
            if draw.random() < 0.4:
                polled += join.poll()
        polled.append(join.finish())
    return [
        pair
        for batch in polled
        for pair in zip(batch["n"].to_pylist(), batch["n_right"].to_pylist(), strict=True)
    ]


def check(draw: random.Random, rows: int) -> None:
    lateness = draw.choice([0, 0, 3])
    spec = spec_of(
        draw.choice(SCORES), draw.choice(WINDOWS), draw.choice([1, 3, 10]), draw.choice(PREDICATES),
        draw.choice(["inner", "left"]), largest=draw.random() < 0.3, lateness=lateness,
    )  # fmt: skip
    sources = sources_of(draw, rows, lateness)
    left, right = (pa.concat_tables([rows[name] for name in sorted(rows)]) for rows in sources.values())
    expected = [(row.left, row.right) for row in sj.oracle.rows(left, right, spec)]
    order: Any = draw.choice(["any", "timestamp", "punctuated"])
    tuning = replace(RELEASING, nearest=NearestTuning(largest_step=draw.choice([1, 3, 4096])))
    found = results(open_tuned(tuning, spec, order=order), sources, draw)
    assert found == expected if order == "timestamp" else sorted(found, key=str) == sorted(expected, key=str)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([6, 14, 40]))
def test_any_search_gives_the_rows_of_the_oracle(draw, rows):
    check(draw, rows)


@pytest.mark.parametrize("often", [0.5, 1.0], ids=["sometimes", "always"])
def test_numpy_forms_of_the_kernels_give_the_oracles_rows_and_may_change_places_with_them(often, monkeypatch):
    use_forms(monkeypatch, nearest, ["slide", "search_rows"], often)
    for seed in range(60):
        check(random.Random(seed), (6, 14, 40)[seed % 3])


@pytest.mark.slow
@settings(max_examples=5_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False), st.sampled_from([6, 14, 40, 150]))
def test_any_search_gives_the_rows_of_the_oracle_at_length(draw, rows):
    check(draw, rows)
