"""Small pushes are copied by one kernel through Arrow's C data interface: the values, NULLs, offsets and memory."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.engine.column_copies import MOST_COPIED, ColumnCopier

TYPES = {
    pa.int8(): np.int8, pa.uint16(): np.uint16, pa.int32(): np.int32, pa.uint64(): np.uint64,
    pa.float32(): np.float32, pa.float64(): np.float64, pa.timestamp("us"): np.int64, pa.date32(): np.int32,
}  # fmt: skip
INT64 = np.dtype(np.int64)


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])


def copies(copier: ColumnCopier, batch: pa.RecordBatch) -> list[np.ndarray]:
    values = copier.values(batch)
    assert values is not None
    return values


def test_the_columns_that_are_asked_for_are_copied_in_that_order():
    batch = batch_of(
        a=pa.array([1, 2, 3]), b=pa.array(["x", "y", "z"]), c=pa.array([1.5, 2.5, 3.5], pa.float32())
    )
    copied = copies(ColumnCopier([(2, np.dtype(np.float32)), (0, INT64)], []), batch)
    assert [values.tolist() for values in copied] == [[1.5, 2.5, 3.5], [1, 2, 3]]


def test_a_copy_outlives_the_batch_and_does_not_see_its_memory_change():
    held = np.arange(5)
    batch = batch_of(a=pa.Array.from_buffers(pa.int64(), 5, [None, pa.py_buffer(held)]))
    (copied,) = copies(ColumnCopier([(0, INT64)], []), batch)
    held[:] = 7
    del batch, held
    gc.collect()
    assert copied.tolist() == [0, 1, 2, 3, 4]


def test_a_batch_can_be_copied_again_and_again_and_stays_as_it_is():
    batch = batch_of(a=pa.array([1, 2, 3]), b=pa.array([[1], [2, 3], []]))
    copier = ColumnCopier([(0, INT64)], [])
    before = pa.total_allocated_bytes()
    for _ in range(1_000):
        assert copies(copier, batch)[0].tolist() == [1, 2, 3]
    assert pa.total_allocated_bytes() == before
    batch.validate(full=True)
    assert batch.to_pydict() == {"a": [1, 2, 3], "b": [[1], [2, 3], []]}


@pytest.mark.parametrize("rows", [0, MOST_COPIED + 1])
def test_empty_and_large_batches_are_left_to_others(rows):
    assert ColumnCopier([(0, INT64)], []).values(batch_of(a=pa.array(np.arange(rows)))) is None


@pytest.mark.parametrize(
    "required",
    [
        pa.array([1, None], pa.int32()), pa.array(["x", None]), pa.array([[1], None]), pa.array([{"a": 1}, None]),
        pa.nulls(2), pa.array([True, None]), pa.array(["x", None]).dictionary_encode(),
        pa.array(["x", None], pa.string_view()), pa.array([{"a": 1}, None, {"a": 2}]).slice(1),
    ],
    ids=lambda column: str(column.type),
)  # fmt: skip
def test_a_null_in_a_column_that_must_not_have_any_is_found(required):
    plain = pa.array([1, 2])
    assert ColumnCopier([(0, INT64)], [1]).values(batch_of(a=plain, b=required)) is None
    assert ColumnCopier([(0, INT64)], []).values(batch_of(a=plain, b=required)) is not None


@pytest.mark.parametrize(
    "required",
    [
        pa.array([{"a": 1}, {"a": 2}]), pa.array([[1], []]), pa.array(["x", None, "z"]).slice(0, 1).take([0, 0]),
        pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]),
        pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([5])),
        pa.array([{"a": None}, {"a": 2}, None]).slice(0, 2),
    ],
    ids=lambda column: str(column.type),
)  # fmt: skip
def test_a_column_of_any_type_without_nulls_is_accepted(required):
    assert ColumnCopier([(0, INT64)], [1]).values(batch_of(a=pa.array([1, 2]), b=required)) is not None


@given(st.data())
def test_slices_of_columns_with_and_without_nulls_are_copied_as_arrow_reads_them(data):
    rows = data.draw(st.integers(1, 40))
    columns, held = [], []
    for kind in data.draw(st.lists(st.sampled_from([*TYPES]), min_size=1, max_size=4)):
        mask = data.draw(st.none() | st.lists(st.booleans(), min_size=rows, max_size=rows))
        values = (
            np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 100, rows).astype(TYPES[kind])
        )
        columns.append(pa.array(values, mask=None if mask is None else np.array(mask)).view(kind))
        held.append(values)
    first = data.draw(st.integers(0, rows - 1))
    count = data.draw(st.integers(1, rows - first))
    part = pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))]).slice(
        first, count
    )
    copier = ColumnCopier([(n, values.dtype) for n, values in enumerate(held)], [])
    if any(column.null_count for column in part.columns):
        assert copier.values(part) is None
    else:
        assert [values.tolist() for values in copies(copier, part)] == [
            v[first : first + count].tolist() for v in held
        ]


SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int32(), "v": pa.float32()})


def test_pushes_with_and_without_nulls_in_every_column_give_the_same_rows_as_one_push():
    """A push that is copied may follow one that is not, in any order, with NULLs in keys and in payload."""
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.k = right.k", sj.TimeWindow(50), "ts", "ts")
    random = np.random.default_rng(7)
    rows: list[dict[str, Any]] = [
        {"ts": ts, "k": None if random.random() < 0.1 else int(random.integers(5)),
         "v": None if random.random() < 0.1 else float(random.integers(9))}
        for ts in range(200)
    ]  # fmt: skip
    tables = {side: pa.Table.from_pylist(rows[n::2], SCHEMA) for n, side in enumerate(("left", "right"))}
    found = []
    with sj.open_join(spec, topology="three_step") as join:
        for row in rows:
            join.push("right" if row["ts"] % 2 else "left", pa.RecordBatch.from_pylist([row], SCHEMA))
            found += join.poll()
        found += join.finish().to_batches()
    expected = sj.oracle.join(tables["left"], tables["right"], spec)
    key = str
    assert sorted(pa.Table.from_batches(found).to_pylist(), key=key) == sorted(expected.to_pylist(), key=key)


WAYS = ("left.k = right.k", "left.k BETWEEN right.k - 1 AND right.k + 1", "left.k < right.k + right.v")
VALUES = st.one_of(st.none(), st.integers(0, 4))
PUSHES = st.lists(
    st.tuples(
        st.sampled_from(["left", "right"]),
        st.sampled_from(["", "other"]),
        st.lists(st.tuples(st.integers(-3, 3), VALUES, VALUES), max_size=6),
        st.integers(0, 2),
    ),
    max_size=12,
)


def joined(on: str, pushes: Any, wrap: Any) -> tuple[Any, ...]:
    """Results, late rows and counts of a join whose pushes `wrap` wraps. Each push is a slice of a batch, of rows at
    about the number of the push."""
    spec = sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow(3), "ts", "ts", lateness=2)
    with sj.open_join(spec, topology="three_step", workers=1) as join:
        sources = {
            (side, name): join.source(side, name) for side in ("left", "right") for name in ("", "other")
        }
        for now, (side, name, rows, skipped) in enumerate(pushes):
            made = [{"ts": now + ts, "k": k, "v": v} for ts, k, v in [(0, None, None)] * skipped + rows]
            sources[side, name].push(wrap(pa.RecordBatch.from_pylist(made, SCHEMA).slice(skipped)))
        late = [join.late(side).to_pylist() for side in ("left", "right")]
        counts = join.stats()
        results = sorted(map(str, join.finish().to_pylist()))
    return results, late, counts.left_tuples, counts.right_tuples, counts.comparisons, counts.left_late


@pytest.mark.parametrize("on", WAYS)
@settings(max_examples=60)
@given(pushes=PUSHES)
def test_small_batches_that_are_copied_join_like_tables_that_are_not(on, pushes):
    """With NULLs, empty pushes, times that fall, late rows and several sources."""
    assert joined(on, pushes, lambda batch: batch) == joined(
        on, pushes, lambda batch: pa.Table.from_batches([batch])
    )


def test_a_null_in_a_required_column_is_refused_by_name_in_a_small_push():
    required = pa.schema(
        [pa.field("ts", pa.int64()), pa.field("k", pa.int32()), pa.field("s", pa.string(), False)]
    )
    spec = sj.JoinSpec(required, SCHEMA, "left.k = right.k", sj.TimeWindow(50), "ts", "ts")
    with sj.open_join(spec) as join:
        join.push("left", pa.RecordBatch.from_pylist([{"ts": 1, "k": 1, "s": "x"}], required))
        bad = [pa.array([1]), pa.array([1], pa.int32()), pa.array([None], pa.string())]
        batch = pa.RecordBatch.from_arrays(bad, schema=required)
        with pytest.raises(sj.InputError, match="'s' has nulls"):
            join.push("left", batch)
        assert join.stats().left_tuples == 1
