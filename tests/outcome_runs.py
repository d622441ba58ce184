"""Runs of outer, as-of and nearest joins that are compared with the oracle, row by row and with their punctuations."""

from __future__ import annotations

import math
import random
from collections import Counter
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj


def rows_of(batches: list[Any]) -> list[tuple[Any, Any]]:
    """The numbers of the rows that result rows are made of; None for NULL."""
    found: list[tuple[Any, Any]] = []
    for batch in batches:
        left = batch["n"].to_pylist()
        right = batch["n_right"].to_pylist() if "n_right" in batch.schema.names else [None] * len(left)
        found += zip(left, right, strict=True)
    return found


def disordered(draw: random.Random, ts: list[int], lateness: int) -> list[int]:
    """Some times moved back, as far as none becomes late."""
    newest, moved = -math.inf, []
    for time in ts:
        time = max(time - draw.randrange(lateness + 1), 0)
        time = int(max(time, newest - lateness)) if newest > -math.inf else time
        newest = max(newest, time)
        moved.append(time)
    return moved


def as_one_source(tables: dict[str, pa.Table]) -> pa.Table:
    """The table that the oracle joins: rows of equal time lie by source, and then as they came."""
    return pa.concat_tables([tables[name] for name in sorted(tables)])


def check(
    join: Any, spec: sj.JoinSpec, sources: dict[str, dict[str, pa.Table]], draw: random.Random, simulator: Any
) -> None:
    """Push all sources in pieces, polling now and then; the result is the oracle's, in its order if that is promised.
    Nothing comes below a punctuation."""
    trace = simulator.tail if simulator else str
    polled: list[Any] = []
    with join:
        waiting = []
        for side, tables in sources.items():
            for name, rows in tables.items():
                waiting.append((join.source(side, name), rows))
        while waiting:
            at = draw.randrange(len(waiting))
            source, rest = waiting.pop(at)
            if not rest.num_rows:
                if draw.random() < 0.5:
                    source.close()
                if draw.random() < 0.5 and all(other.side != source.side for other, _ in waiting):
                    join.end(source.side)
                continue
            count = draw.randint(1, 4)
            while True:
                try:
                    source.push(rest.slice(0, count), timeout=0.0)
                    break
                except sj.Backpressure:
                    polled += join.poll()
            waiting.append((source, rest.slice(count)))
            if simulator:
                simulator.run(draw.choice([0, 1, 3, 9]))
            if draw.random() < 0.5:
                polled += join.poll()
        rest = join.finish()
    left, right = (as_one_source(tables) for tables in sources.values())
    expected = sj.oracle.join(left, right, spec)
    batches = [*polled, *rest.to_batches()]
    found, wanted = rows_of(batches), rows_of([expected])
    if join.plan.options.order == "timestamp":
        assert found == wanted, trace()
        plain = [batch.replace_schema_metadata(None) for batch in batches]
        table = pa.Table.from_batches(plain, spec.schema)
        assert repr(table.to_pylist()) == repr(expected.to_pylist())  # by text: NaN is no other NaN
    assert Counter(found) == Counter(wanted), trace()
    times = {}
    for time, *rows in sj.oracle.rows(left, right, spec):
        numbers = [
            None if at is None else side["n"][at].as_py()
            for side, at in zip((left, right), rows, strict=True)
        ]
        times[numbers[0], None if spec.how == "semi" else numbers[1]] = time
    promised = -math.inf
    for batch in batches:
        assert all(times[row] >= promised for row in rows_of([batch])), trace()
        promised = max(promised, sj.punctuation(batch) or promised)


def use_forms(monkeypatch: pytest.MonkeyPatch, module: ModuleType, kernels: list[str], often: float) -> None:
    """Let a module call the NumPy forms of its kernels, as if these were being compiled: so often, at random."""
    turns = random.Random(1)
    for name in kernels:
        kernel = getattr(module, name)
        form = kernel._compile_for_args._fallback

        def call(*given: Any, kernel: Any = kernel, form: Any = form) -> Any:
            return (form if turns.random() < often else kernel)(*given)

        monkeypatch.setattr(module, name, call)
