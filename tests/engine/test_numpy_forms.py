"""A join gives the oracle's rows whether its kernels are compiled, or NumPy forms stand in for them, or some of each.

The forms are chosen where generated code asks whether its kernel is ready. `tests/kernels/test_numpy_forms.py` compares
those of the library's kernels, and `test_first_result.py` runs all of them in processes that have compiled nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamjoin as sj
from strategies import arrivals, numbered, pairs_of, push_all, specs
from streamjoin.codegen import evaluate, programs
from streamjoin.engine.join import Join
from streamjoin.kernels.scan import bands, vector
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import ORDERS, Options

SCHEMAS = (
    pa.schema([("ts", pa.int64()), ("x", pa.int32()), ("y", pa.float64())]),
    pa.schema([("ts", pa.int64()), ("a", pa.int32()), ("b", pa.float64())]),
)
FIXED = [
    "left.x = right.a",
    "abs(left.x - right.a) <= 1 AND abs(left.y - right.b) <= 2",
    "left.x + 1 < right.a * 2",
    "left.x * right.a > 2 OR left.y < right.b",
]


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], bool]], None]:
    """Let generated code ask a function whether its kernel is ready."""

    def choose(is_ready: Callable[[], bool]) -> None:
        def scan(clauses: Any) -> Callable[..., int]:
            kernel = bands.band_scan(clauses)
            form = bands._numpy_scan(clauses, bands._chunk(clauses, vector.lanes()))
            return lambda *args: (kernel if is_ready() else form)(*args)

        monkeypatch.setattr(programs, "band_scan", scan)
        for module in (evaluate, programs):
            monkeypatch.setattr(module, "is_ready", lambda *_: is_ready())

    return choose


def check(drawn: tuple[sj.JoinSpec, pa.Table, pa.Table], data: st.DataObject, order: Any) -> None:
    """Push in any pieces, without compiling anything beforehand."""
    spec, left, right = numbered(*drawn)
    with Join(make_plan(spec, Options("three_step", order=order, workers=1))) as join:
        polled = push_all(join, data.draw(arrivals(left, right)), lambda: data.draw(st.booleans()))
        polled += join.finish().to_batches()
    found = [pair for batch in polled for pair in pairs_of(batch)]
    expected = pairs_of(sj.oracle.join(left, right, spec))
    assert (found if order == "timestamp" else sorted(found)) == (
        expected if order == "timestamp" else sorted(expected)
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(specs(in_order=True), st.sampled_from(ORDERS), st.data())
def test_any_predicate_joins_like_the_oracle_without_compiled_loops(ready, drawn, order, data):
    ready(lambda: False)
    check(drawn, data, order)


@pytest.mark.parametrize("on", FIXED)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_kernels_may_become_ready_at_any_call(ready, on, data):
    turns = data.draw(st.randoms(use_true_random=False))
    ready(lambda: turns.random() < 0.5)
    check(data.draw(specs(on, SCHEMAS, in_order=True)), data, data.draw(st.sampled_from(ORDERS)))
