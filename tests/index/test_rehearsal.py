"""Opening a join compiles what its pushes will call, and nothing that they cannot use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numba.core.dispatcher import Dispatcher

import streamjoin as sj
from strategies import open_tuned
from streamjoin.kernels.scan import bands as scan
from streamjoin.plan.options import STRUCTURE_NAMES
from streamjoin.plan.tuning import ChoiceTuning, IndexCosts, Tuning, WindowTuning

LEFT = pa.schema({"ts": pa.int64(), "x": pa.int32(), "y": pa.float64(), "s": pa.string()})
RIGHT = pa.schema({"ts": pa.int64(), "a": pa.int32(), "b": pa.float64(), "t": pa.string()})
EQUAL, PLANE = "x = a", "x BETWEEN a - 5 AND a + 5 AND y BETWEEN b - 5 AND b + 5"
SORTED = ("bisort", "raptable", "wibtree")


def near(l: Any, r: Any) -> bool:
    return bool(l.x - r.a < 3)


CASES = [
    *((EQUAL, index) for index in (*STRUCTURE_NAMES, "scan", "auto")),
    *((PLANE, index) for index in (*SORTED, "scan", "auto")),
    *(("x = a AND y = b", index) for index in ("hash", "auto")),
    *(("x <> a", index) for index in ("bisort", "auto")),
    *(("x >= a", index) for index in ("bisort", "scan", "auto")),
    ("s = t AND (x + a) % 2 = 0", "auto"),
    ("s < t", "auto"),
    (near, "auto"),
]


def signatures() -> dict[str, int]:
    """How many signatures of each kernel are compiled; these modules contain only kernels of the package."""
    counts: dict[str, int] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(("streamjoin", "_streamjoin")):
            for kernel in vars(module).values():
                if isinstance(kernel, Dispatcher):
                    counts[f"{kernel.py_func.__module__}.{kernel.py_func.__name__}"] = len(kernel.overloads)
    return counts


def rows(schema: pa.Schema, first: int, count: int, null: bool) -> pa.Table:
    rng = np.random.default_rng(first)
    values = rng.integers(0, 50, count)
    columns = [values.astype(np.int32), values.astype(np.float64), np.char.mod("s%d", values)]
    absent = np.arange(count) == (0 if null else -1)
    return pa.table(
        [
            np.arange(first, first + count),
            *(pa.array(c, f.type, mask=absent) for c, f in zip(columns, list(schema)[1:], strict=True)),
        ],
        schema=schema,
    )


# Chains of many subwindows, which windows that are left to the planner become.
TUNING = Tuning(
    costs=IndexCosts(per_push=0, fewest_tuples=256),
    choice=ChoiceTuning(many_candidates=4, many_of_a_batch=0),
    window=WindowTuning(smallest_subwindow=64, largest_subwindow=4096),
)


@pytest.mark.parametrize("order", ["any", "timestamp"])
@pytest.mark.parametrize(("on", "index"), CASES)
def test_a_push_compiles_nothing(on: str | Callable[..., bool], index: Any, order: Any) -> None:
    """Batches of one row and of many, with and without NULLs, in order and out of it, until subwindows have expired."""
    spec = sj.JoinSpec(LEFT, RIGHT, on, sj.TimeWindow(1500), "ts", "ts", lateness=200)
    with open_tuned(TUNING, spec, index=index, order=order, max_results=10**8) as join:
        before, at = signatures(), 0
        for size in (1, 1, 7, 40, 300, 2000, 1, 64, 3000, 5):
            for side, schema in (("left", LEFT), ("right", RIGHT)):
                join.push(side, rows(schema, at, size, null=size % 5 == 0))
                join.push(side, rows(schema, max(0, at - 100), size, null=False))
            at += size
        stats, after = join.stats(), signatures()
    assert stats.matches > 0
    assert {name: count for name, count in after.items() if count != before.get(name)} == {}


@pytest.mark.parametrize("index", STRUCTURE_NAMES)
def test_an_index_that_was_asked_for_compiles_no_scan(index, monkeypatch):
    made: list[scan.Clauses] = []

    def counted(shapes: scan.Clauses) -> Any:
        made.append(shapes)
        return scan.band_scan(shapes)

    monkeypatch.setattr("streamjoin.codegen.programs.band_scan", counted)
    spec = sj.JoinSpec(LEFT, RIGHT, EQUAL, sj.TimeWindow(10), "ts", "ts")
    sj.open_join(spec, index=index).close()
    assert made == []
    sj.open_join(spec, index="auto").close()
    assert len(made) == 2  # one a window
