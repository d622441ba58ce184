"""Any predicate opens within five seconds of what `left.k = right.k` takes, or is refused with a sentence.

The default tests assert what makes this so: how much source a predicate generates, since compiling it takes the time.
The slow test measures processor time in new processes with an empty cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import long_predicates
import streamjoin as sj
from long_predicates import BASE, CALLABLE_TERMS, LONG, SCHEMA, calculation
from streamjoin.codegen import programs
from streamjoin.codegen.blocks import block_scan
from streamjoin.codegen.programs import WindowProgram
from streamjoin.index.rehearsal import rehearse_residual, rehearse_scan
from streamjoin.jit import source
from streamjoin.kernels.scan.bands import band_scan
from streamjoin.semantics.analysis import analyse
from streamjoin.semantics.callables import MAX_INSTRUCTIONS, CallablePredicate
from streamjoin.semantics.errors import PredicateError

SECONDS = 5.0  # of processor time, more than BASE takes
# Bounds of generated source: lines of one module, and lines and functions of both windows, each with and without an
# index. The longest kinds have 240 lines in a module, 690 in all, and 21 functions.
LINES_OF_ONE, LINES_OF_ALL, MOST_FUNCTIONS = 300, 900, 30


class Generated:
    """Takes generated source instead of compiling it."""

    def __init__(self) -> None:
        self.sources: set[str] = set()

    def load(self, text: str, name: str) -> Any:
        self.sources.add(text)
        return SimpleNamespace(__name__=name, loop=lambda *arguments: None, scan=lambda *arguments: 0)

    def lines(self) -> list[int]:
        return [text.count("\n") for text in self.sources]

    def functions(self) -> int:
        return sum(text.count("\ndef ") for text in self.sources)


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> Generated:
    found = Generated()
    monkeypatch.setattr(source, "load", found.load)
    # The functions without their caches: what they make here must not stay.
    monkeypatch.setattr(programs, "band_scan", band_scan.__wrapped__)
    monkeypatch.setattr(programs, "block_scan", block_scan.__wrapped__)
    return found


def windows_of(on: Any) -> list[WindowProgram]:
    """The programs of both windows, each for a scan and for an index, after their kernels were generated."""
    spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(9), "ts", "ts")
    assert not isinstance(spec.predicate, CallablePredicate)
    analysis, made = analyse(spec.predicate), []
    for side in ("left", "right"):
        for indexed in (False, True):
            program = WindowProgram(spec.predicate, analysis.for_window(side), side, indexed)
            rehearse_scan(program, {"left": SCHEMA, "right": SCHEMA})
            rehearse_residual(program, {"left": SCHEMA, "right": SCHEMA})
            made.append(program)
    return made


@pytest.mark.parametrize("kind", [kind for kind in LONG if kind != "callable"])
def test_a_long_predicate_generates_little_source(kind: str, generated: Generated) -> None:
    windows_of(LONG[kind]())
    assert max(generated.lines(), default=0) <= LINES_OF_ONE
    assert sum(generated.lines()) <= LINES_OF_ALL
    assert generated.functions() <= MOST_FUNCTIONS


@pytest.mark.parametrize("kind", [kind for kind in LONG if kind.startswith("or ")])
def test_a_long_or_is_evaluated_column_by_column(kind: str, generated: Generated) -> None:
    assert {window.method for window in windows_of(LONG[kind]())} == {"scan, evaluated column by column"}
    assert generated.sources == set()


def test_a_predicate_just_below_the_bound_is_compiled(generated: Generated) -> None:
    for kind in ("compiled products", "compiled least", "compiled remainders"):
        assert windows_of(LONG[kind]())[0].method == "scan, compiled expression"
    assert generated.functions()


def test_a_callable_near_its_limit_is_taken_and_a_longer_one_refused() -> None:
    sj.JoinSpec(SCHEMA, SCHEMA, calculation(CALLABLE_TERMS), sj.TimeWindow(9), "ts", "ts")
    with pytest.raises(PredicateError, match=f"at most {MAX_INSTRUCTIONS:,} are allowed.*write SQL"):
        sj.JoinSpec(SCHEMA, SCHEMA, calculation(2 * CALLABLE_TERMS), sj.TimeWindow(9), "ts", "ts")


def seconds_to_open(name: str, cache: Path) -> float:
    """Processor time of a new process with an empty cache."""
    environment = {**os.environ, "STREAMJOIN_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, long_predicates.__file__, name], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.slow  # compiles all kernels for each kind: about three minutes
def test_a_long_predicate_opens_within_five_seconds_of_an_equality(tmp_path: Path) -> None:
    bases = [seconds_to_open(BASE, tmp_path / "before")]
    seconds = {kind: seconds_to_open(kind, tmp_path / kind) for kind in LONG}
    bases.append(seconds_to_open(BASE, tmp_path / "after"))
    base = min(bases)  # the less disturbed one
    took = {kind: total - base for kind, total in seconds.items()}
    print(
        f"{base:.1f} s for {BASE}; beyond that: { ({kind: round(more, 1) for kind, more in took.items()}) }"
    )
    assert {kind: more for kind, more in took.items() if more > SECONDS} == {}
