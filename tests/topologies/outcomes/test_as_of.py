"""Backward as-of joins by the last right row of each key: by eye, at the ends of what fits, and what is kept.

tests/topologies/outcomes/test_outcomes.py compares them with the oracle."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from outcome_runs import check, disordered, use_forms
from strategies import RELEASING, open_tuned
from streamjoin.codegen.prepared import Stored
from streamjoin.engine.tables import join_planned
from streamjoin.kernels.hash.last_rows_forms import DEPTH, JUMP, ROWS
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import ORDERS, Options
from streamjoin.plan.tuning import DEFAULT_TUNING, CallerTuning, Tuning
from streamjoin.topologies.outcomes import as_of, last_rows, row_keys
from streamjoin.topologies.outcomes.as_of import AsOfJoin
from streamjoin.topologies.outcomes.row_keys import RowKeys

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
SMALL_TABLE = Tuning(caller=CallerTuning(smallest_table=4))


def spec_of(window: Any, keep: Any = None, how: Any = "left", key: pa.DataType | None = None) -> sj.JoinSpec:
    schema = pa.schema({"ts": pa.int64(), "k": key or pa.int32()})
    return sj.JoinSpec(
        schema, schema, "left.k = right.k", window, "ts", "ts", how=how, keep=keep or sj.AsOf()
    )


def table(spec: sj.JoinSpec, rows: list[tuple[int, Any]]) -> pa.Table:
    return pa.table({"ts": [ts for ts, _ in rows], "k": [k for _, k in rows]}, schema=spec.left)


def picked(
    spec: sj.JoinSpec,
    left: list[tuple[int, Any]],
    right: list[tuple[int, Any]],
    tuning: Tuning = DEFAULT_TUNING,
    **options: Any,
) -> list[Any]:
    """The time of the right row that each left row gets."""
    sides = table(spec, left), table(spec, right)
    plan = make_plan(spec, Options(order="timestamp", **options), tuning)
    found = join_planned(*sides, plan)
    assert repr(found.to_pylist()) == repr(
        sj.oracle.join(*sides, spec).to_pylist()
    )  # by text: NaN differs from NaN
    return list(found["ts_right"].to_pylist())


def test_the_last_row_of_a_key_that_is_not_after_the_left_row():
    spec = spec_of(sj.TimeWindow(0, right=10))
    right = [(1, 7), (3, 8), (4, 7), (6, 7)]
    assert picked(spec, [(0, 7), (4, 7), (5, 7), (5, 8), (17, 7)], right) == [None, 4, 4, 3, None]


def test_strict_leaves_out_rows_of_the_same_time():
    assert picked(spec_of(sj.TimeWindow(9), sj.AsOf(strict=True)), [(4, 7), (5, 7)], [(3, 7), (4, 7)]) == [
        3,
        4,
    ]


def test_a_window_that_ends_before_the_left_row():
    assert picked(spec_of(sj.Interval(-5, -2)), [(6, 7)], [(0, 7), (1, 7), (4, 7), (5, 7)]) == [4]
    assert picked(spec_of(sj.Interval(1, 5)), [(6, 7)], [(6, 7), (7, 7)]) == [None]


@pytest.mark.parametrize("index", ["auto", "scan"])
def test_times_at_the_ends_of_64_bits(index):
    ends = [(INT64_MIN, 7), (INT64_MIN + 1, 7), (0, 7), (INT64_MAX, 7)]
    for window in (sj.TimeWindow(INT64_MAX), sj.Interval(-INT64_MAX, -2), sj.TimeWindow(0)):
        picked(spec_of(window), ends, ends, index=index)  # compares with the oracle


def test_a_full_table_where_the_window_begins_after_the_end_of_time():
    """No right row can be picked; more keys than the table has places for are looked through all the same."""
    rows = [(INT64_MAX - 1, key) for key in range(9)] + [(INT64_MAX, 0)]
    assert picked(spec_of(sj.Interval(3, 9)), rows, rows, SMALL_TABLE) == [None] * len(rows)


def test_a_left_row_at_the_beginning_of_time_takes_no_right_row():
    """A right row before it in the total order can still come from the other source."""
    spec = spec_of(sj.TimeWindow(0, right=3), sj.AsOf(strict=True))
    with sj.open_join(spec) as join:
        first, second = join.source("right", "a"), join.source("right", "b")
        second.push(table(spec, [(INT64_MIN, 7)]))
        join.push("left", table(spec, [(INT64_MIN, 7)]))
        assert [batch.num_rows for batch in join.poll()] == [1]
        made: Any = join._topology
        assert (len(made._rows["right"]), len(made._last)) == (1, 0)
        first.push(table(spec, [(INT64_MIN, 7)]))
        second.push(table(spec, [(INT64_MIN + 3, 7)]))
        first.close()
        join.push("left", table(spec, [(INT64_MIN + 1, 7), (INT64_MIN + 2, 7)]))
        assert made._last._table[:, ROWS].max() == 0  # the row of "b"


def test_nan_and_null_are_no_keys_and_zeros_are_one():
    spec = spec_of(sj.TimeWindow(9), key=pa.float64())
    left = [(5, math.nan), (6, None), (7, -0.0)]
    assert picked(spec, left, [(1, math.nan), (2, None), (3, 0.0)]) == [None, None, 3]


def test_explain_says_what_runs():
    text = sj.explain(spec_of(sj.TimeWindow(9)))
    assert "the calling thread keeps the last right row of each key" in text
    assert "index" not in text


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(sj.TimeWindow(9), sj.AsOf("nearest")),
        spec_of(sj.RowWindow(9)),
    ],
    ids=["nearest", "rows"],
)
def test_other_joins_look_for_all_matches(spec):
    assert "last right row" not in sj.explain(spec)


def test_of_many_keys_only_those_that_can_be_picked_are_kept():
    """Every key comes once; the table holds what the window spans, and payload goes with it."""
    spec = spec_of(sj.TimeWindow(0, right=1_000))
    with open_tuned(RELEASING, spec) as join:
        made: Any = join._topology
        assert isinstance(made, AsOfJoin)
        for at in range(0, 60_000, 500):
            rows = [(ts, ts) for ts in range(at, at + 500)]
            join.push("right", table(spec, rows))
            join.push("left", table(spec, rows))
            assert sum(batch.num_rows for batch in join.poll()) <= 500
            if at > 20_000:
                assert len(made._last._table) <= 16_384
                assert join.stats().payload_rows < 40_000


def test_a_left_row_that_comes_late_finds_the_row_that_was_the_last_then():
    """Left rows at 3 and 1 come after the one at 5 was answered, from sources that still could bring them."""
    spec = spec_of(sj.TimeWindow(0, right=10))
    schema = spec.left
    late = sj.JoinSpec(
        schema, schema, "left.k = right.k", spec.window, "ts", "ts", how="left", lateness=2, keep=sj.AsOf()
    )
    with sj.open_join(late, order="any") as join:
        first, second = join.source("left", "a"), join.source("left", "b")
        join.push("right", table(spec, [(0, 7), (2, 7), (4, 7), (50, 7)]))
        first.push(table(spec, [(5, 7)]))
        assert [(row["ts"], row["ts_right"]) for row in rows(join.poll())] == [(5, 4)]
        first.push(table(spec, [(3, 7)]))
        second.push(table(spec, [(1, 7)]))
        found = [(row["ts"], row["ts_right"]) for row in rows(join.poll())]
        assert found == [(1, 0), (3, 2)]
        made: Any = join._topology
        assert len(made._last._live_past(made._needed(made._least_left), made._oldest_time)) == 2
        for source in (first, second):
            source.advance(60)
        join.poll()
        assert len(made._last._live_past(made._needed(made._least_left), made._oldest_time)) == 0


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Result rows, by the time of the left one."""
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["ts"])


def test_long_chains_of_replaced_rows_are_searched_in_logarithmic_time():
    """One key, and a left source that is far behind: each of its rows looks at few of the rows since."""
    spec, count = spec_of(sj.TimeWindow(0, right=INT64_MAX)), 4_000
    with sj.open_join(spec, order="any") as join:
        first, second = join.source("left", "a"), join.source("left", "b")
        join.push("right", table(spec, [(2 * ts, 7) for ts in range(count)]))
        first.push(table(spec, [(2 * count - 3, 7)]))
        join.poll()
        made: Any = join._topology
        earlier = made._last._earlier
        depth, jump = earlier[: count - 2, DEPTH], earlier[: count - 2, JUMP]
        assert depth.max() == len(depth)
        at, steps = len(jump) - 1, 0
        while at > 0:
            at, steps = jump[at], steps + 1
        assert steps < 2 * math.log2(count)
        second.push(table(spec, [(2 * ts + 1, 7) for ts in range(0, count - 2, 7)]))
        found = rows(join.poll())
        assert all(row["ts_right"] == row["ts"] - 1 for row in found)
        assert len(found) > count // 8


KEYS: list[tuple[str, pa.Schema]] = [
    ("left.k = right.k", pa.schema({"ts": pa.int64(), "k": pa.int32()})),
    ("left.k = right.k", pa.schema({"ts": pa.int64(), "k": pa.string()})),
    (
        "left.k = right.k AND left.f = right.f",
        pa.schema({"ts": pa.int64(), "k": pa.int8(), "f": pa.float64()}),
    ),
    (
        "left.k = right.k AND left.f = right.f AND right.v = left.v",
        pa.schema({"ts": pa.int64(), "k": pa.binary(), "f": pa.float32(), "v": pa.string_view()}),
    ),
]
POOLS: dict[str, list[Any]] = {
    "k": [0, 1, 2, None],
    "f": [0.0, -0.0, 1.5, math.nan, None],
    "v": ["", "a", "ab", None],
}


def value(kind: pa.DataType, name: str, draw: random.Random) -> Any:
    chosen = draw.choice(POOLS[name])
    text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return "x" * chosen if text and isinstance(chosen, int) else chosen


def check_random(seed: int) -> None:
    """One as-of join by keys of any kind, over several sources, out of order, with ties, in any order of output."""
    draw = random.Random(seed)
    on, keys = draw.choice(KEYS)
    schema = pa.schema([*keys, pa.field("tie", pa.string()), pa.field("n", pa.int64())])
    lateness = draw.choice([None, None, 4])
    ties: dict[str, Any] = {f"{side}_tie": draw.choice([None, "tie"]) for side in ("left", "right")}
    window: Any = draw.choice(
        [sj.TimeWindow(4), sj.TimeWindow(0, right=9), sj.Interval(-5, -2), sj.Interval(-2, 3)]
    )
    how: Any = draw.choice(["inner", "left"])
    keep = sj.AsOf(strict=draw.random() < 0.3)
    spec = sj.JoinSpec(schema, schema, on, window, "ts", "ts", how=how, keep=keep, lateness=lateness, **ties)
    assert "last right row of each key" in sj.explain(spec)
    made: dict[str, dict[str, pa.Table]] = {}
    for side in ("left", "right"):
        made[side], number = {}, 0
        for name in draw.choice([[""], ["b", "a"], ["a", "c", "b"]]):
            count = draw.randrange(25)
            ts = sorted(draw.randrange(30) for _ in range(count))
            if lateness is not None:
                ts = disordered(draw, ts, lateness)
            columns = [
                pa.array(
                    ts
                    if f.name == "ts"
                    else range(number, number + count)
                    if f.name == "n"
                    else [
                        draw.choice(["a", "b", None]) if f.name == "tie" else value(f.type, f.name, draw)
                        for _ in range(count)
                    ],
                    f.type,
                )
                for f in schema
            ]
            made[side][name], number = pa.table(columns, schema=schema), number + count
    order = draw.choice(ORDERS)
    carried_from = draw.choice([-5, 0, 5, 999])  # below zero: carries rows although all are needed
    caller = CallerTuning(smallest_table=4, carried_from=carried_from)
    join = open_tuned(
        replace(RELEASING, caller=caller), spec, order=order, max_results=draw.choice([1, 3, 99])
    )
    check(join, spec, made, draw, None)


@pytest.mark.parametrize("part", range(2))
def test_random_as_of_joins_give_the_oracles_rows(part):
    for seed in range(100 * part, 100 * part + 100):
        check_random(seed)


@pytest.mark.parametrize("often", [0.5, 1.0], ids=["sometimes", "always"])
def test_numpy_forms_of_the_kernels_give_the_oracles_rows_and_may_change_places_with_them(often, monkeypatch):
    use_forms(monkeypatch, last_rows, ["find_last", "count_needed", "move_earlier", "move_last"], often)
    use_forms(monkeypatch, row_keys, ["add_widths", "append_text", "append_words"], often)
    for seed in range(60):
        check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_random_as_of_joins_give_the_oracles_rows(part):
    for seed in range(100_000 + 500 * part, 100_500 + 500 * part):
        check_random(seed)


def test_keys_of_equal_hashes_are_kept_apart():
    """All words are the same: the bytes of the keys decide."""
    of = RowKeys.of

    def alike(keys: RowKeys, side: str, tuples: Any) -> Any:
        stored = of(keys, side, tuples)
        columns = stored.columns if keys.exact else (np.zeros_like(stored.columns[0]), *stored.columns[1:])
        return Stored(columns, stored.known)

    with patch.object(RowKeys, "of", alike):
        for seed in range(60):
            check_random(seed)


@pytest.mark.parametrize(
    ("module", "name", "broken"),
    [
        # Forgets rows that a left row to come may still need.
        (AsOfJoin, "_needed", lambda join, left: INT64_MAX),
        # Carries rows under numbers that are not theirs.
        (as_of, "numbers_of", lambda kept: np.sort(last_rows.numbers_of(kept))),
        # Takes equal words for equal keys.
        (
            RowKeys,
            "bytes_of",
            lambda keys, side, numbers, ids: (np.zeros(len(ids) + 1, np.int64), np.empty(0, np.uint8)),
        ),
    ],
)
def test_a_mutation_of_what_keeps_rows_is_found(module, name, broken):
    of = RowKeys.of

    def alike(keys: RowKeys, side: str, tuples: Any) -> Any:
        stored = of(keys, side, tuples)
        return stored if keys.exact else Stored((stored.columns[0] % 2, *stored.columns[1:]), stored.known)

    with patch.object(module, name, broken), patch.object(RowKeys, "of", alike):
        for seed in range(300):
            try:
                check_random(seed)
            except (AssertionError, RuntimeError, IndexError, sj.StreamJoinError):
                return
    raise AssertionError("no join differed")


def test_a_rare_key_does_not_hold_the_payload_of_all_rows_after_it():
    spec = spec_of(sj.TimeWindow(0, right=10**9), key=pa.string())
    with open_tuned(RELEASING, spec) as join:
        join.push("right", table(spec, [(0, "rare"), (0, "other")]))
        for at in range(1, 100_001, 5_000):
            join.push("right", table(spec, [(ts, "usual") for ts in range(at, at + 5_000)]))
            join.push("left", table(spec, [(at + 4_999, "usual")]))
            join.poll()
            assert join.stats().payload_rows < 40_000
        join.push("left", table(spec, [(100_001, "rare"), (100_001, "other")]))
        join.push("right", table(spec, [(100_002, "usual")]))
        found = [row for batch in join.poll() for row in batch.to_pylist()]
        assert [(row["k"], row["ts_right"], row["k_right"]) for row in found][-2:] == [
            ("rare", 0, "rare"),
            ("other", 0, "other"),
        ]
        assert join.stats().latency.quantile(1.0) < 600


def test_steps_are_bounded():
    spec = spec_of(sj.TimeWindow(0, right=10))
    rows = [(ts, 0) for ts in range(100)]
    with open_tuned(Tuning(caller=CallerTuning(largest_step=7)), spec, max_results=5) as join:
        join.push("right", table(spec, rows))
        join.push("left", table(spec, rows))
        sizes = []
        while batches := join.poll():
            sizes.append(sum(batch.num_rows for batch in batches))
        assert max(sizes) <= 5
        assert sum(sizes) + join.finish().num_rows == 100


def test_random_keys_in_a_small_table():
    """Keys that share places are kept apart."""
    random, spec = np.random.default_rng(1), spec_of(sj.TimeWindow(0, right=50), key=pa.int64())
    for _ in range(5):
        left, right = (
            [(ts, int(k) << 40) for ts, k in enumerate(random.integers(0, 12, 80))] for _ in range(2)
        )
        picked(spec, left, right, SMALL_TABLE)
