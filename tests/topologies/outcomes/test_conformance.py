"""Any join of any `how`, `keep` and window gives the oracle's rows, in every order, on every topology: columns of all
types, tables cut and interleaved at random."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import streamjoin as sj
from strategies import RELEASING, arrivals, numbered, open_tuned, push_all, specs
from streamjoin.plan.options import ORDERS, TOPOLOGY_NAMES

# Few pairs of schemas and predicates, whose kernels are compiled once: equalities, bands, what only filters, and NULL.
JOINED: list[tuple[str, dict[str, pa.DataType], dict[str, pa.DataType]]] = [
    (
        "left.x0 = right.x0",
        {"ts": pa.int64(), "x0": pa.int32(), "x1": pa.string()},
        {"ts": pa.int64(), "x0": pa.int32(), "x1": pa.dictionary(pa.int32(), pa.string())},
    ),
    (
        "left.x0 = right.x0 AND left.x1 <= right.x1",
        {"ts": pa.timestamp("us"), "x0": pa.string_view(), "x1": pa.float64()},
        {"ts": pa.timestamp("us"), "x0": pa.string_view(), "x1": pa.float64()},
    ),
    (
        "left.x0 BETWEEN right.x0 - 1 AND right.x0 + 1",
        {"ts": pa.int8(), "x0": pa.float64(), "x1": pa.bool_()},
        {"ts": pa.int8(), "x0": pa.float64(), "x1": pa.binary(1)},
    ),
    ("TRUE", {"ts": pa.int64(), "x0": pa.date64()}, {"ts": pa.int64(), "x0": pa.decimal128(5, 5)}),
]


@st.composite
def known_specs(draw: Any) -> tuple[sj.JoinSpec, pa.Table, pa.Table]:
    """A spec and its tables, over a predicate that is compiled already."""
    on, left, right = draw(st.sampled_from(JOINED))
    both = pa.schema(left), pa.schema(right)
    made: tuple[sj.JoinSpec, pa.Table, pa.Table] = draw(specs(on, both, in_order=True, every=True))
    return made


def check(data: st.DataObject, drawn: tuple[sj.JoinSpec, pa.Table, pa.Table], topology: Any) -> None:
    """Push both tables in random pieces; the result is the oracle's, in its order if that is promised, and no row is
    below a punctuation before it."""
    spec, left, right = numbered(*drawn)
    index, order = data.draw(st.sampled_from(["auto", "scan"])), data.draw(st.sampled_from(ORDERS))
    options: dict[str, Any] = {
        "index": index,
        "workers": data.draw(st.integers(1, 3)),
        "max_results": data.draw(st.sampled_from([1, 3, 1000])),
    }
    pushes, expected = data.draw(arrivals(left, right)), sj.oracle.join(left, right, spec)
    try:
        join = open_tuned(RELEASING, spec, topology, order=order, **options)
    except sj.StreamJoinError as error:
        assume("index" not in str(error))  # one that does not run the predicate
        raise
    with join:
        polled = push_all(join, pushes, lambda: bool(data.draw(st.booleans())))
        rest = join.finish()
    batches = [*polled, *rest.to_batches()]
    check_punctuations(batches, spec, left, right)
    bare = [batch.replace_schema_metadata(spec.schema.metadata) for batch in batches]
    found = pa.Table.from_batches(bare, spec.schema)
    found.validate(full=True)
    rows = [
        [repr(row) for row in with_ticks(table).to_pylist()] for table in (found, expected)
    ]  # by text: NaN
    if order != "timestamp":
        rows = [sorted(each) for each in rows]
    assert rows[0] == rows[1]


def with_ticks(table: pa.Table) -> pa.Table:
    """Times and dates as numbers: Python has none so early or late as Arrow."""
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type):
            ticks = table.column(number).cast(pa.int32() if pa.types.is_date32(field.type) else pa.int64())
            table = table.set_column(number, field.name, ticks)
    return table


def check_punctuations(
    batches: list[pa.RecordBatch], spec: sj.JoinSpec, left: pa.Table, right: pa.Table
) -> None:
    times = {
        (row.left, None if spec.how == "semi" else row.right): row.time
        for row in sj.oracle.rows(left, right, spec)
    }
    promised: float = -(2**63)
    for batch in batches:
        numbers = [
            batch[name].to_pylist() if name in batch.schema.names else [None] * batch.num_rows
            for name in "lr"
        ]
        assert all(times[pair] >= promised for pair in zip(*numbers, strict=True))
        told = sj.punctuation(batch)
        promised = promised if told is None else max(promised, told)


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@settings(max_examples=40)
@given(st.data(), known_specs())
def test_any_outcome_over_known_predicates(topology, data, drawn):
    check(data, drawn, topology)


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@settings(max_examples=2_000, suppress_health_check=list(HealthCheck))
@given(st.data(), known_specs())
def test_any_outcome_over_known_predicates_at_length(topology, data, drawn):
    check(data, drawn, topology)


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.data(), specs(in_order=True, every=True))
def test_any_outcome_over_any_predicate(topology, data, drawn):
    check(data, drawn, topology)
