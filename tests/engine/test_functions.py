"""Functions of predicates in the engine: equalities of computed values are indexed, and find what the oracle finds."""

from __future__ import annotations

import pyarrow as pa
import pytest

import streamjoin as sj
from strategies import numbered, pairs_of
from streamjoin.semantics.analysis import analyse, describe_path
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.spec import JoinSpec

LEFT = pa.schema({"ts": pa.timestamp("us"), "name": pa.string(), "x": pa.float64(), "n": pa.int32()})
RIGHT = pa.schema({"ts": pa.timestamp("ms"), "word": pa.large_string(), "y": pa.float64(), "m": pa.int32()})
NAMES = ["ACME", "acme", "Acme ", " acme", "Zürich", "ZÜRICH", "", None, "İ", "ß", "ACM", "é"]

# ruff: noqa: E501  # a predicate a line
# A predicate, and what it offers to the window of left: an equality or interval that an index serves.
PREDICATES = [
    ("LOWER(name) = LOWER(word)", "equality: HASH64(LOWER(left.name))"),
    ("LOWER(TRIM(name)) = LOWER(TRIM(word)) AND n < m", "equality: HASH64(LOWER(TRIM(left.name)))"),
    ("LENGTH(name) = LENGTH(word)", "equality: LENGTH(left.name) = LENGTH(right.word)"),
    ("LENGTH(name) BETWEEN m AND m + 2", "interval: LENGTH(left.name) BETWEEN"),
    ("SUBSTRING(name, 1, 2) = SUBSTRING(word, 1, 2)", "equality: HASH64(SUBSTRING(left.name, 1, 2))"),
    ("CONCAT(name, '/', 'a') = CONCAT(word, '/a')", "equality: HASH64("),
    ("ROUND(x, 1) = ROUND(y, 1)", "equality: ROUND(left.x * 10.0) / 10.0"),
    ("ABS(ROUND(x) - y) <= 1", "interval: "),
    ("SIN(x) = SIN(y)", "equality: SIN(left.x)"),
    ("DATE_TRUNC('second', left.ts) = DATE_TRUNC('second', right.ts)", "equality: FLOORDIV(left.ts, "),
    ("DATE_TRUNC('minute', left.ts) = DATE_TRUNC('minute', right.ts) AND n = m", "equality: "),
    ("DATE_TRUNC('second', left.ts) BETWEEN right.ts - INTERVAL '1' SECOND AND right.ts", "interval: "),
    ("EXTRACT(SECOND FROM left.ts) = EXTRACT(SECOND FROM right.ts)", "equality: EXTRACT(SECOND FROM left.ts)"),
    ("EXTRACT(EPOCH FROM left.ts - right.ts) BETWEEN -1 AND 0.5", "interval: left.ts BETWEEN"),
    ("DATE_TRUNC('month', left.ts + n * INTERVAL '9 days') = DATE_TRUNC('month', right.ts + m * INTERVAL '9 days')", "eq"),
    ("EXTRACT(DAY FROM left.ts + n * INTERVAL '1 day') < EXTRACT(DAY FROM right.ts + m * INTERVAL '1 day')", "interval: "),
    ("SIN(x) * y > 0.5 OR UPPER(name) = word", "residual"),
    ("SQRT(POWER(SIN(RADIANS(x - y) / 2), 2) + COS(x) * COS(y)) < 0.8 AND UPPER(name) <> word", "residual"),
]  # fmt: skip


def tables() -> tuple[pa.Table, pa.Table]:
    size = 48
    names = [NAMES[n * 7 % len(NAMES)] for n in range(size)]
    numbers = [None if n % 11 == 5 else n * 0.37 - 4 for n in range(size)]
    left = [[n * 500_000 for n in range(size)], names, numbers, [n % 9 for n in range(size)]]
    right = [[n * 700 for n in range(size)], names[::-1], numbers[::-1], [n % 7 for n in range(size)]]
    return pa.table(left, schema=LEFT), pa.table(right, schema=RIGHT)


@pytest.mark.parametrize("index", ["scan", "auto"])
@pytest.mark.parametrize(("on", "offer"), PREDICATES)
def test_the_engine_finds_what_the_oracle_finds(on, offer, index):
    spec = JoinSpec(LEFT, RIGHT, on, sj.TimeWindow("9 seconds"), "ts", "ts")
    assert not isinstance(spec.predicate, CallablePredicate)
    assert any(line.startswith(offer) for line in describe_path(analyse(spec.predicate).left))
    left, right = tables()
    wanted = sorted(sj.oracle.pairs(left, right, spec))
    assert 0 < len(wanted) < left.num_rows * right.num_rows
    numbers, left_rows, right_rows = numbered(spec, left, right)
    with sj.open_join(numbers, index=index) as join:
        found = []
        for first in range(0, left.num_rows, 6):  # small pushes: both windows are probed
            join.push("left", left_rows.slice(first, 6))
            join.push("right", right_rows.slice(first, 6))
            found += join.poll()
        join.finish()
        found += join.poll()
    assert sorted(pairs_of(pa.Table.from_batches(found))) == wanted


def test_a_hash_index_serves_the_equality_of_computed_text():
    spec = JoinSpec(LEFT, RIGHT, "LOWER(name) = LOWER(word)", sj.TimeWindow("9 seconds"), "ts", "ts")
    left, right = tables()
    with sj.open_join(spec, index="hash") as join:
        join.push("left", left)
        join.push("right", right)
        found = sum(batch.num_rows for batch in join.poll())
    assert found == len(sj.oracle.pairs(left, right, spec))
