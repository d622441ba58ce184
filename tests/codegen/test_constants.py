"""A predicate with other constants is the same source: it compiles nothing, and the constants are right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.codegen import programs
from streamjoin.codegen.blocks import block_scan
from streamjoin.codegen.programs import WindowProgram
from streamjoin.index.rehearsal import rehearse_residual, rehearse_scan
from streamjoin.jit import source
from streamjoin.kernels.scan.bands import band_scan
from streamjoin.semantics.analysis import analyse
from streamjoin.semantics.callables import CallablePredicate

NUMBERS = {"x": pa.int32(), "f": pa.float32(), "d": pa.float64(), "w": pa.decimal128(30, 2)}
SCHEMA = pa.schema({"ts": pa.int64(), **NUMBERS, "t": pa.string()})
# Predicates with places for constants, and two choices for them.
SHAPES: dict[str, tuple[str, tuple[object, ...], tuple[object, ...]]] = {
    "band": ("left.x BETWEEN right.x - {} AND right.x + {}", (10, 10), (20, 7)),
    "float bands": ("abs(left.f - right.f) <= {} AND abs(left.d - right.d) < {}", (1.5, 2.0), (0.1, 0.1)),
    "block": ("(left.x + right.x) % 7 < {} OR left.x * right.x > {}", (3, 3), (2, 55)),
    "float block": ("left.d * right.d + {} < left.f * {}", (1.5, 1.5), (7.2, 30.5)),
    "wide": ("left.w BETWEEN right.w - {} AND right.w + {}", ("1.00", "1.00"), ("9.99", "0.01")),
    "texts": (
        "left.x = right.x AND (left.t = {} OR right.t LIKE {} ESCAPE '!')", ("'a'", "'a%'"), ("'bcd'", "'_!%x'")
    ),
    "case": ("left.x = right.x AND CASE WHEN left.d > {} THEN {} ELSE right.f END > 0", (0.5, 1.0), (3.0, 0.2)),
}  # fmt: skip


def sources_of(on: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The source that both windows generate."""
    found: set[str] = set()

    def load(text: str, name: str) -> Any:
        found.add(text)
        return SimpleNamespace(__name__=name, loop=lambda *arguments: None, scan=lambda *arguments: 0)

    spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(9), "ts", "ts")
    assert not isinstance(spec.predicate, CallablePredicate)
    analysis = analyse(spec.predicate)
    with monkeypatch.context() as patch:
        patch.setattr(source, "load", load)
        patch.setattr(programs, "band_scan", band_scan.__wrapped__)
        patch.setattr(programs, "block_scan", block_scan.__wrapped__)
        for side in ("left", "right"):
            program = WindowProgram(spec.predicate, analysis.for_window(side), side)
            rehearse_scan(program, {"left": SCHEMA, "right": SCHEMA})
            rehearse_residual(program, {"left": SCHEMA, "right": SCHEMA})
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_other_constants_give_the_same_source(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, one, other = SHAPES[name]
    sources = sources_of(shape.format(*one), monkeypatch)
    assert sources and sources == sources_of(shape.format(*other), monkeypatch)


@pytest.mark.parametrize("name", SHAPES)
def test_each_join_has_its_own_constants(name: str) -> None:
    """Both choices in one process share compiled code; the oracle says what they find."""
    values = {
        "ts": [0, 1, 2, 3],
        "x": [1, 11, 21, None],
        "f": [0.0, 1.25, -0.1, 2.0],
        "d": [0.5, 2.0, 1.9, 0.6],
        "w": pa.array(["10.00", "11.00", "19.99", None]).cast(pa.decimal128(30, 2)),
        "t": ["a", "bcd", "a%x", None],
    }
    table = pa.table(values, SCHEMA)
    shape, *choices = SHAPES[name]
    for constants in choices:
        spec = sj.JoinSpec(SCHEMA, SCHEMA, shape.format(*constants), sj.TimeWindow(9), "ts", "ts")
        found = sj.join_tables(table, table, spec).to_pylist()
        expected = sj.oracle.join(table, table, spec).to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
