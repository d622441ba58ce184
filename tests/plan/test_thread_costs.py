"""When `auto` lets threads work between calls: what the model expects, and what the join then does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.engine.open import open_plan
from streamjoin.plan import choose
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Options, Order
from streamjoin.plan.thread_costs import ThreadEstimate, estimate
from streamjoin.plan.tuning import DEFAULT_TUNING, ThreadCosts

SCHEMA = pa.schema({"ts": pa.timestamp("ms"), "x": pa.int32(), "y": pa.float32()})
TWO_BANDS = "abs(left.x - right.x) <= 10 AND abs(left.y - right.y) <= 10"
# Round numbers: a comparison of both bands costs 0.0001 us, because the widest counts 0.75 and both together 0.5.
COSTS = ThreadCosts(
    caller=0.25,
    feeder=0.5,
    reader=0.125,
    caller_sorting=1,
    reader_sorting=2,
    hand_over=40,
    band=8e-5,
    worth=1.1,
)
TUNING = replace(DEFAULT_TUNING, threads=COSTS)


def spec_of(window: Any = "10 seconds", on: str = TWO_BANDS, **more: Any) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, on, window, "ts", "ts", **more)


def expected(
    cores: int, threads: int, workers: int, order: Order = "any", window: Any = "10 seconds"
) -> ThreadEstimate:
    plan = make_plan(spec_of(window), Options(index="scan"))
    found = estimate(plan.spec, order, plan.programs, cores, threads, workers, COSTS, 4_000, 1_000)
    assert found is not None
    return found


def chosen(
    monkeypatch: pytest.MonkeyPatch, cores: int, spec: sj.JoinSpec, **options: Any
) -> tuple[str, int, str]:
    monkeypatch.setattr(choose, "available_cores", lambda: cores)
    known: dict[str, Any] = {"latency": 1.0, "rate": 10_000.0, "index": "scan"} | options
    plan = make_plan(spec, Options(**known), TUNING)
    return plan.topology, plan.workers, plan.reasons["topology"]


def test_the_caller_adds_its_share_and_scalejoin_takes_the_longer_of_both():
    # 10 seconds of 1,000 tuples are 10,000 comparisons, which take 1 us.
    on_four = expected(cores=4, threads=4, workers=3)
    assert on_four.window == 10_000
    assert on_four.three_step == pytest.approx(0.25 + 3 * 40 / 4_000 + 1 / 4)
    assert on_four.scalejoin == pytest.approx(max(0.5, 0.125 + 1 / 3))
    assert on_four.gain == pytest.approx(0.53 / 0.5)
    one_worker = expected(cores=4, threads=1, workers=1)
    assert one_worker.three_step == pytest.approx(1.25) and one_worker.scalejoin == pytest.approx(1.125)


def test_a_worker_that_shares_its_core_with_the_caller_is_slower():
    on_two = expected(cores=2, threads=2, workers=2)
    assert on_two.scalejoin == pytest.approx(0.5 + 0.125 + 1 / 2)
    assert expected(cores=2, threads=8, workers=8).scalejoin == pytest.approx(on_two.scalejoin)


def test_sorting_costs_more():
    plain, sorting = expected(4, 4, 3), expected(4, 4, 3, "timestamp")
    assert sorting.three_step == pytest.approx(plain.three_step + 1)
    assert sorting.scalejoin == pytest.approx(0.125 + 2 + 1 / 3)


def test_windows_of_rows_have_a_known_size_without_a_rate():
    plan = make_plan(spec_of((sj.RowWindow(6_000), sj.RowWindow(2_000))), Options(index="scan"))
    found = estimate(plan.spec, "any", plan.programs, 2, 2, 1, COSTS, 4_000, None)
    assert found is not None and found.window == 4_000
    plan = make_plan(spec_of(), Options(index="scan"))
    assert estimate(plan.spec, "any", plan.programs, 2, 2, 1, COSTS, 4_000, None) is None


def test_auto_lets_threads_work_between_calls_where_that_is_expected_to_pay(monkeypatch):
    # Windows of 100,000 take 10 us: three_step 0.25 + 0.15 + 10 / 16, ScaleJoin 0.125 + 10 / 15.
    topology, workers, why = chosen(monkeypatch, 16, spec_of())
    assert (topology, workers) == ("scalejoin", 15)
    assert why == (
        "expected to reach 1.29 times the rate of three_step on 16 cores in windows of 100,000 tuples; "
        "results may wait"
    )
    topology, workers, why = chosen(monkeypatch, 2, spec_of())
    assert (topology, workers) == ("three_step", 2)
    assert why == (
        "runs in the calling thread; scalejoin is expected to reach 0.94 of its rate on 2 cores in windows of "
        "100,000 tuples"
    )


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (spec_of(), {"latency": None}),  # results are ready when push returns
        (spec_of(), {"latency": 0.01}),
        (spec_of(), {"rate": None}),  # the size of the windows is not known
        (spec_of(), {"rate": 100}),  # pushes are not gathered
        (spec_of(), {"topology": "three_step"}),
        (spec_of(), {"index": "auto"}),  # large windows are indexed
        (spec_of(on="left.x = right.x"), {"index": "auto"}),
        (spec_of(keep=sj.AsOf("backward"), on="left.x = right.x"), {"index": "auto"}),
    ],
)
def test_auto_stays_with_the_calling_thread(monkeypatch, spec, options):
    assert chosen(monkeypatch, 16, spec, **options)[:2] == ("three_step", 16)


def test_conditions_without_a_band_count_too(monkeypatch):
    distance = "abs(left.x - right.x) + abs(left.y - right.y) < 10"
    assert chosen(monkeypatch, 16, spec_of("1 second", on=distance), index="auto")[0] == "scalejoin"
    assert chosen(monkeypatch, 16, spec_of("1 millisecond", on=distance), index="auto")[0] == "three_step"


@pytest.mark.parametrize("order", ["any", "punctuated", "timestamp"])
@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_a_join_that_auto_runs_on_threads_finds_what_the_oracle_finds(order, how):
    spec = spec_of("100 milliseconds", how=how)
    rows = {"ts": list(range(0, 2_000, 2)), "x": [n % 97 for n in range(1_000)], "y": [0.0] * 1_000}
    table = pa.table(rows, schema=SCHEMA)
    tuning = replace(TUNING, threads=replace(COSTS, worth=0.0))
    options = Options(index="scan", workers=2, order=order, latency=1, rate=100_000)
    plan = make_plan(spec, options, tuning)
    assert plan.topology == "scalejoin"
    with open_plan(plan) as join:
        for first in range(0, 1_000, 50):
            for side in ("left", "right"):
                join.push(side, table.slice(first, 50))
        found = join.finish()
    sorted_by = [(name, "ascending") for name in found.column_names]
    expected_rows = sj.oracle.join(table, table, spec)
    assert found.sort_by(sorted_by).equals(expected_rows.sort_by(sorted_by)) and found.num_rows > 1_000
