"""The choice of an index as a user sees it: what is refused, explained and counted, and how much memory it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from strategies import open_tuned, push_all
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import INDEXES, STRUCTURE_NAMES
from streamjoin.plan.tuning import DEFAULT_TUNING, Tuning, WindowTuning

LEFT = pa.schema({"ts": pa.int64(), "x": pa.int32(), "sym": pa.string()})
RIGHT = pa.schema({"ts": pa.int64(), "a": pa.int32(), "name": pa.string()})
EQUAL, BAND = "x = a", "x BETWEEN a - 1 AND a + 1"


def spec_of(on: Any, window: Any = None) -> sj.JoinSpec:
    return sj.JoinSpec(LEFT, RIGHT, on, window or sj.TimeWindow(1000), "ts", "ts")


def rows(schema: pa.Schema, first: int, count: int) -> pa.Table:
    """One row a tick; a value comes back after 100,003 rows."""
    ts = np.arange(first, first + count)
    values = (ts * 7919 % 100_003).astype(np.int32)
    return pa.table([ts, values, np.char.mod("s%d", values)], schema=schema)


# ---- explain


@pytest.mark.parametrize("index", INDEXES)
def test_explain_names_the_index_of_both_windows(index):
    text = sj.explain(spec_of(EQUAL), index=index)
    kind = "scan, 1 vector band(s)" if index == "scan" else f"{index} index"
    assert text.count(f"; {kind}: as asked") == 2


def close(l: Any, r: Any) -> bool:
    return bool(l.x < r.a)


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        (EQUAL, "hash"),
        ("sym = name", "hash"),
        ("sym = name AND x > a", "hash"),
        (BAND, "bisort"),
        ("x BETWEEN a - 1 AND a + 1 AND sym <> name", "bisort"),
        ("x < a", "bisort"),
        ("x < a AND sym <> name", "scan"),
        ("x <> a", "bisort"),
        ("x BETWEEN a AND a + 1 OR x BETWEEN a + 5 AND a + 6", "bisort"),
        ("x - a IN (0, 60, 3600)", "hash"),
        ("x = a OR sym = name", "scan"),
        ("sym LIKE 'a%' OR name IS NULL", "scan"),
        (close, "scan"),
    ],
)
def test_left_to_the_planner_the_predicate_decides(on, expected):
    plan = make_plan(spec_of(on))
    for window in plan.windows.values():
        assert (window.structure or window.kind) == expected
        assert len(window.why.split()) > 3 and window.why in sj.explain(spec_of(on))


# ---- what is refused


@pytest.mark.parametrize("index", STRUCTURE_NAMES)
@pytest.mark.parametrize(
    ("on", "offered"),
    [
        ("x = a OR sym = name", "left.sym"),
        ("sym < name", "left.sym < right.name"),
        ("x > 1", "left.x > 1"),
        ("TRUE", "residual: none"),
        (close, "a callable offers none"),
    ],
)
def test_refused_indexes_tell_what_the_predicate_offers(index, on, offered):
    spec = spec_of(on)
    empty = LEFT.empty_table(), RIGHT.empty_table()
    for use in (
        lambda: sj.open_join(spec, index=index),
        lambda: sj.explain(spec, index=index),
        lambda: sj.join_tables(*empty, spec, index=index),
    ):
        with pytest.raises(sj.IndexNotApplicableError) as caught:
            use()
        assert f"index {index!r} needs an equality" in str(caught.value)
        assert offered in str(caught.value)


@pytest.mark.parametrize("on", [BAND, "x <> a", "x = a OR x BETWEEN a + 2 AND a + 3"])
def test_hash_is_refused_for_an_interval(on):
    with pytest.raises(sj.IndexNotApplicableError, match=r"interval: left\.x "):
        sj.open_join(spec_of(on), index="hash")


# ---- stats


def run(
    spec: sj.JoinSpec, index: Any, count: int, batch: int, order: Any = "any", tuning: Tuning = DEFAULT_TUNING
) -> list[sj.Stats]:
    """Push `count` rows of both sides; the statistics after each batch and after the end."""
    seen = []
    with open_tuned(tuning, spec, index=index, order=order) as join:
        for first in range(0, count, batch):
            join.push("left", rows(LEFT, first, batch))
            join.push("right", rows(RIGHT, first, batch))
            join.poll()
            seen.append(join.stats())
        join.finish()
        seen.append(join.stats())
    return seen


@pytest.mark.parametrize("on", [EQUAL, "x = a AND sym = name"])
def test_an_index_looks_at_candidates_only(on):
    """Every row meets its twin and nothing else has its value."""
    for index in STRUCTURE_NAMES:
        last = run(spec_of(on), index, 20_000, 1000)[-1]
        assert last.matches == 20_000
        assert 20_000 <= last.comparisons <= 21_000
        assert sum(last.worker_comparisons) == last.comparisons
    scanned = run(spec_of(on), "scan", 20_000, 1000)[-1]
    assert (scanned.matches, scanned.comparisons > 10_000_000) == (20_000, True)


@pytest.mark.parametrize("order", ["any", "timestamp"])
@pytest.mark.parametrize("window", [sj.TimeWindow(3000), sj.RowWindow(3000)], ids=["time", "rows"])
@pytest.mark.parametrize("index", [*STRUCTURE_NAMES, "auto"])
def test_windows_stay_bounded_and_end_empty(index, window, order):
    tuning = Tuning(window=WindowTuning(smallest_subwindow=256))
    *running, last = run(spec_of(EQUAL, window), index, 60_000, 500, order, tuning)
    warm, later = running[:40], running[40:]
    for stats in later:
        # The window, the batch in flight on the other side, and one subwindow that is partly in reach.
        assert 2999 <= stats.left_window <= 3000 + 500 + 2048
        assert 2500 <= stats.right_window <= 3000 + 500 + 2048
    assert max(stats.window_bytes for stats in later) <= 1.25 * max(stats.window_bytes for stats in warm)
    assert max(stats.payload_rows for stats in later) <= 1.25 * max(stats.payload_rows for stats in warm)
    assert (last.left_window, last.right_window, last.buffered_results) == (0, 0, 0)
    assert last.matches == 60_000


def test_results_of_one_step_may_exceed_the_room_for_them():
    """Every row matches, in many subwindows, with room for ten results: nothing is lost and nothing comes twice."""
    tuning = Tuning(window=WindowTuning(smallest_subwindow=4, largest_subwindow=16))
    left, right = (pa.table([range(60), [0] * 60, ["s"] * 60], schema=schema) for schema in (LEFT, RIGHT))
    pushes = [("left", left), *(("right", right.slice(at, 6)) for at in range(0, 60, 6))]
    for index in STRUCTURE_NAMES:
        for order in ("any", "timestamp"):
            with open_tuned(tuning, spec_of(EQUAL), index=index, order=order, max_results=10) as join:
                batches = [*push_all(join, pushes, lambda: False), *join.finish().to_batches()]
            found = [pair for out in batches for pair in zip(out["ts"], out["ts_right"], strict=True)]
            assert len(found) == len(set(found)) == 3600, (index, order)
