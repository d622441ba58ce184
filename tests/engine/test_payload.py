"""Payload: rows by number, held as they came, and columns that slide through memory."""

from __future__ import annotations

import datetime
import gc
import weakref
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.engine.rows import (
    FANIN,
    LARGE_BATCH,
    PAYLOAD_BYTES,
    HeldRows,
    PayloadStore,
    PushedRows,
    SharedColumns,
    one_batch,
    storage_schema,
    storage_type,
)
from streamjoin.index.sliding import KEPT_ROWS, RowColumns, SlidingColumns
from streamjoin.index.tuples import FIRST_KEY
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.types import signed

SCHEMA = pa.schema({"n": pa.int64(), "s": pa.string()})


def numbered(first: int, count: int) -> pa.RecordBatch:
    """Rows that say which number they have."""
    numbers = range(first, first + count)
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers), pa.array([f"row {n}" for n in numbers])], schema=SCHEMA
    )


def filled(sizes: list[int]) -> PayloadStore:
    store = PayloadStore()
    for size in sizes:
        store.append(numbered(store.next_id, size))
    return store


# ---- PayloadStore


def test_rows_are_numbered_as_they_come():
    store = filled([2, 1, 3])
    assert (store.first_id, store.next_id, store.row_count) == (0, 6, 6)
    rows = store.view().take(np.array([4, 0, 0, 5, 2]), SCHEMA)
    assert rows["n"].to_pylist() == [4, 0, 0, 5, 2]
    assert rows["s"].to_pylist() == ["row 4", "row 0", "row 0", "row 5", "row 2"]
    assert rows.schema.equals(SCHEMA)


def test_no_rows_are_columns_of_no_values():
    rows = PushedRows({"left": SCHEMA, "right": SCHEMA}, {})
    n, none = Column("left", "n", signed(64)), np.empty(0, np.int64)
    for _ in range(2):  # before there are rows, and with some
        assert len(rows.fetch("left", (n,), none)[n]) == 0
        rows.stores["left"].append(numbered(0, 3))


def test_released_rows_go_by_whole_batches():
    store = filled([2, 3, 4])
    store.release(1)
    assert (store.first_id, store.row_count) == (0, 9)
    store.release(5)
    assert (store.first_id, store.row_count) == (5, 4)
    store.release(5)
    assert store.view().take(np.array([8, 5]), SCHEMA)["n"].to_pylist() == [8, 5]
    store.release(9)
    assert (store.first_id, store.next_id, store.row_count) == (9, 9, 0)
    store.append(numbered(9, 1))
    assert store.view().take(np.array([9]), SCHEMA)["n"].to_pylist() == [9]


@pytest.mark.parametrize("interrupted", ["_starts", "_generations", "_held"])
def test_an_interrupt_while_rows_are_taken_leaves_what_can_be_released(interrupted):
    class Interrupted(list):
        def append(self, value: Any) -> None:
            raise KeyboardInterrupt

    store = filled([3])
    setattr(store, interrupted, Interrupted(getattr(store, interrupted)))
    with pytest.raises(KeyboardInterrupt):
        store.append(numbered(3, 3))
    store.release(6)
    assert not store._held


def test_a_view_outlives_release_and_append():
    store = filled([3, 3])
    view = store.view()
    store.release(6)
    store.append(numbered(6, 3))
    assert view.take(np.array([0, 5]), SCHEMA)["n"].to_pylist() == [0, 5]


def test_a_part_of_the_columns():
    rows = filled([2, 2]).view().take(np.array([3, 1]), pa.schema({"s": pa.string()}))
    assert rows.schema.names == ["s"]
    assert rows["s"].to_pylist() == ["row 3", "row 1"]


def test_single_rows_are_held_in_few_batches():
    store = PayloadStore()
    for n in range(5000):
        store.append(numbered(n, 1))
    assert len(store.view().batches) <= 4 * FANIN
    ids = np.array([4999, 0, 255, 256, 4095, 4096])
    assert store.view().take(ids, SCHEMA)["n"].to_pylist() == ids.tolist()


def test_large_batches_are_not_copied():
    batch = pa.RecordBatch.from_arrays([pa.array(np.arange(LARGE_BATCH))], names=["n"])
    store = PayloadStore()
    for _ in range(2 * FANIN):
        store.append(batch)
    addresses = {held.column(0).buffers()[1].address for held in store.view().batches}
    assert addresses == {batch.column(0).buffers()[1].address}


@given(
    st.lists(st.one_of(st.integers(1, 3), st.integers(20, 60)), min_size=1, max_size=60),
    st.floats(0, 1),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=30),
)
def test_any_rows_of_any_batches(sizes, released, wanted):
    store = filled(sizes)
    store.release(int(released * store.next_id))
    first, count = store.first_id, store.row_count
    assert first <= int(released * store.next_id)
    if count:
        ids = np.array([first + int(w * count) for w in wanted])
        rows = store.view().take(ids, SCHEMA)
        assert rows["n"].to_pylist() == ids.tolist()
        assert rows["s"].to_pylist() == [f"row {n}" for n in ids]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 700),
    st.integers(0, 40),
    st.booleans(),
    st.data(),
)
def test_shared_columns_are_those_of_the_batches(sizes, released, null_from, text, data):
    """Until a NULL comes, after it, and in rows from before and after; with a column of text beside them or not."""
    schema = pa.schema([SCHEMA.field("n"), *([SCHEMA.field("s")] if text else [])])
    columns = RowColumns((FIRST_KEY,))
    store, plain = PayloadStore(SharedColumns(schema, {"n": FIRST_KEY}, columns)), PayloadStore()
    for number, (size, release) in enumerate(sizes):
        batch = numbered(store.next_id, size).select(schema.names)
        values = batch["n"].to_numpy()
        if number >= null_from:
            batch = batch.set_column(0, schema.field("n"), pa.nulls(size, pa.int64()))
        store.append(batch, [values] if number < null_from else None)
        plain.append(batch)
        if release:
            for each in (store, plain):
                each.release(released)
    first, end = max(store.first_id, plain.first_id, released), plain.next_id
    assert store.first_id <= max(released, 0) or store.first_id == end
    assert store.next_id == end
    ids = np.array(data.draw(st.lists(st.integers(first, end - 1), max_size=80)) if first < end else [], int)
    assert store.view().take(ids, schema).equals(plain.view().take(ids, schema))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 700),
    st.integers(0, 40),
    st.integers(0, 40),
    st.data(),
)
def test_payload_columns_are_those_of_the_batches(sizes, released, key_nulls, payload_nulls, data):
    """Until a NULL comes into a payload column, into the shared one, or into both, in either order."""
    schema = pa.schema({"f": pa.float32(), "n": pa.int64(), "b": pa.int8()})
    columns = RowColumns((FIRST_KEY,))
    store, plain = PayloadStore(SharedColumns(schema, {"n": FIRST_KEY}, columns)), PayloadStore()
    for number, (size, release) in enumerate(sizes):
        values = np.arange(store.next_id, store.next_id + size)
        f, b = pa.array(values, pa.float32()), pa.array((values % 100).astype(np.int8))
        keys = pa.nulls(size, pa.int64()) if number >= key_nulls else pa.array(values)
        if number >= payload_nulls:
            b = pa.array([None, *b.to_pylist()[1:]], pa.int8())
        batch = pa.record_batch([f, keys, b], schema=schema)
        store.append(batch, [values] if number < key_nulls else None)
        plain.append(batch)
        if release:
            for each in (store, plain):
                each.release(released)
    assert bool(store.view().batches) == (len(sizes) > min(key_nulls, payload_nulls) and store.row_count > 0)
    first, end = max(store.first_id, plain.first_id, released), plain.next_id
    assert store.next_id == end
    ids = np.array(data.draw(st.lists(st.integers(first, end - 1), max_size=80)) if first < end else [], int)
    assert store.view().take(ids, schema).equals(plain.view().take(ids, schema))


def test_who_reads_keeps_payload_columns_that_end():
    schema = pa.schema({"n": pa.int64(), "f": pa.float64()})
    store = PayloadStore(SharedColumns(schema, {"n": FIRST_KEY}, RowColumns((FIRST_KEY,))))
    values = np.arange(5)
    store.append(pa.record_batch([values, values / 2], schema=schema), [values])
    view = store.begin_reading()
    store.append(pa.record_batch([values, pa.nulls(5, pa.float64())], schema=schema), [values])
    assert view.take(np.array([4, 1]), schema)["f"].to_pylist() == [2.0, 0.5]
    store.end_reading()
    assert store.view().take(np.array([4, 7]), schema)["f"].to_pylist() == [2.0, None]


def test_wide_rows_stay_in_their_batches():
    schema = pa.schema({"n": pa.int64()} | {f"f{n}": pa.int64() for n in range(PAYLOAD_BYTES // 8 + 1)})
    store = PayloadStore(SharedColumns(schema, {"n": FIRST_KEY}, RowColumns((FIRST_KEY,))))
    values = np.arange(LARGE_BATCH)
    batch = pa.record_batch([values] * len(schema), schema=schema)
    store.append(batch, [values])
    (held,) = store.view().batches
    assert held["f0"].buffers()[1].address == batch["f0"].buffers()[1].address


def test_shared_columns_are_held_once():
    schema, columns = pa.schema({"n": pa.int64()}), RowColumns((FIRST_KEY,))
    store, released = PayloadStore(SharedColumns(schema, {"n": FIRST_KEY}, columns)), []
    for first in range(0, 3 * LARGE_BATCH, LARGE_BATCH):
        values = np.arange(first, first + LARGE_BATCH)
        released.append(weakref.ref(values))
        store.append(pa.record_batch([pa.array(values)], schema=schema), [values])
        del values
    gc.collect()
    assert not store.view().batches and [owner() for owner in released] == [None] * 3
    assert store.view().take(np.array([2 * LARGE_BATCH, 5]), schema)["n"].to_pylist() == [2 * LARGE_BATCH, 5]
    store.release(LARGE_BATCH + 3)
    assert (store.first_id, len(columns)) == (LARGE_BATCH + 3, 2 * LARGE_BATCH - 3)


def test_few_rows_of_many_large_batches_and_many_rows_of_few():
    """Both ways to gather: batch by batch, and from all at once."""
    store = PayloadStore()
    for n in range(12):
        store.append(
            pa.RecordBatch.from_arrays(
                [pa.array(np.arange(n * LARGE_BATCH, (n + 1) * LARGE_BATCH))], names=["n"]
            )
        )
    schema = pa.schema({"n": pa.int64()})
    random = np.random.default_rng(1)
    for count in (2, 5, 400_000):
        ids = random.integers(0, 12 * LARGE_BATCH, count)
        assert np.array_equal(store.view().take(ids, schema)["n"].to_numpy(), ids)


def test_one_batch_copies_only_several_chunks():
    batch = numbered(0, 3)
    assert (
        one_batch(pa.Table.from_batches([batch]))["n"].buffers()[1].address == batch["n"].buffers()[1].address
    )
    assert one_batch(pa.Table.from_batches([batch, numbered(3, 2)]))["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert one_batch(SCHEMA.empty_table()).num_rows == 0


# ---- types of payload

TIMES = pa.schema({"ts": pa.int64()})
LONG = "a word longer than a view holds"
PAYLOADS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.list_(pa.int32()), [[1, 2], None, []]),
    (pa.struct({"a": pa.int8(), "b": pa.string()}), [{"a": 1, "b": LONG}, None, {"a": None, "b": None}]),
    (pa.map_(pa.string(), pa.int32()), [[("a", 1), (LONG, None)], None, []]),
    (pa.list_(pa.int8(), 2), [[1, 2], None, [3, None]]),
    (pa.list_view(pa.int8()), [[1, 2], None, []]),
    (pa.null(), [None, None, None]),
    (pa.duration("ns"), [datetime.timedelta(1), None, datetime.timedelta(0)]),
    (pa.time64("us"), [datetime.time(1), None, datetime.time(2)]),
    (pa.decimal256(50, 2), [Decimal("1.23"), None, Decimal("-2.00")]),
    (pa.float16(), [np.float16(1), None, np.float16(0.5)]),
    (pa.bool_(), [True, None, False]),
    (pa.binary(2), [b"ab", None, b"cd"]),
    (pa.string_view(), [LONG, None, ""]),
    (pa.binary_view(), [LONG.encode(), None, b""]),
    (pa.list_(pa.string_view()), [["a", LONG, None], None, []]),
    (pa.struct({"v": pa.binary_view()}), [{"v": LONG.encode()}, None, {"v": None}]),
    (pa.map_(pa.string_view(), pa.binary_view()), [[(LONG, b"a")], None, []]),
    (pa.list_(pa.string_view(), 2), [["a", LONG], None, ["b", None]]),
    (pa.large_list(pa.list_(pa.struct({"v": pa.list_(pa.binary_view())}))), [[[{"v": [b"x", None]}]], None, []]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), PAYLOADS, ids=[str(kind) for kind, _ in PAYLOADS])
def test_payload_of_any_type_comes_back_as_it_went_in(kind, values):
    schema = pa.schema([("ts", pa.int64()), ("p", kind)])
    table = pa.table({"ts": [1, 2, 3], "p": pa.array(values, kind)}, schema=schema)
    spec = sj.JoinSpec(schema, schema, "left.ts = right.ts", sj.TimeWindow(0), "ts", "ts")
    values = table["p"].to_pylist()
    with sj.open_join(spec) as join:
        for row in range(3):
            join.push("left", table.slice(row, 1))
        join.push("right", table)
        found = join.finish()
    found.validate(full=True)
    assert found.schema == spec.schema
    assert sorted(found["ts"].to_pylist()) == [1, 2, 3]
    for row in found.to_pylist():
        assert row["p"] == row["p_right"] == values[row["ts"] - 1]
    backwards = table.slice(2).to_pylist() + table.slice(0, 2).to_pylist()
    unsorted = pa.Table.from_pylist(backwards, schema=schema) if kind != pa.float16() else table
    assert sj.join_tables(unsorted, table, spec, order="timestamp")["p"].to_pylist() == values


@pytest.mark.parametrize(("kind", "values"), PAYLOADS, ids=[str(kind) for kind, _ in PAYLOADS])
@pytest.mark.parametrize("rows", [0, 3])
def test_payload_of_any_type_is_null_where_no_row_is(kind, values, rows):
    right = pa.schema([("ts", pa.int64()), ("p", kind)])
    table = pa.table({"ts": [1, 2, 3], "p": pa.array(values, kind)}, schema=right).slice(0, rows)
    spec = sj.JoinSpec(TIMES, right, "left.ts = right.ts", sj.TimeWindow(0), "ts", "ts", how="left")
    found = sj.join_tables(pa.table({"ts": [3, 4, 1, 5]}, TIMES), table, spec, order="timestamp")
    found.validate(full=True)
    given = dict(zip(table["ts"].to_pylist(), table["p"].to_pylist(), strict=True))
    assert found["p"].to_pylist() == [given.get(ts) for ts in found["ts"].to_pylist()]
    assert found.num_rows == 4


def test_no_large_value_is_fetched_in_place_of_null():
    """One left row of a thousand has a partner, whose text is fetched once."""
    right = pa.schema({"ts": pa.int64(), "p": pa.string()})
    spec = sj.JoinSpec(TIMES, right, "left.ts = right.ts", sj.TimeWindow(0), "ts", "ts", how="left")
    left, one = pa.table({"ts": range(1_000)}, TIMES), pa.table({"ts": [7], "p": ["a" * 10_000]}, right)
    fetched: list[int] = []

    def columns(rows: HeldRows, ids: np.ndarray, fields: Any) -> list[pa.Array]:
        found = held_columns(rows, ids, fields)
        fetched.extend(column.nbytes for column in found)
        return found

    held_columns = HeldRows.columns
    with patch.object(HeldRows, "columns", columns):
        found = sj.join_tables(left, one, spec)
    assert found["p"].null_count == 999
    assert max(fetched) < 20_000


def test_dictionaries_that_differ_from_push_to_push():
    kinds = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema(
        [("ts", pa.int64()), ("d", kinds), ("l", pa.list_(kinds)), ("st", pa.struct({"d": kinds}))]
    )
    spec = sj.JoinSpec(schema, schema, "left.d = right.d", sj.TimeWindow(100), "ts", "ts")
    with sj.open_join(spec) as join:
        for ts in range(3 * FANIN):
            word = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), [f"word {ts}"])
            listed = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), word)
            structured = pa.StructArray.from_arrays([word], names=["d"])
            batch = pa.RecordBatch.from_arrays([pa.array([ts]), word, listed, structured], schema=schema)
            join.push("left", batch)
            join.push("right", batch)
        found = join.finish()
    assert found.schema == spec.schema
    assert found["d"].to_pylist() == found["d_right"].to_pylist() == [f"word {n}" for n in range(3 * FANIN)]
    assert found["l"].to_pylist() == [[f"word {n}"] for n in range(3 * FANIN)]
    assert found["st_right"].to_pylist() == [{"d": f"word {n}"} for n in range(3 * FANIN)]


def test_storage_types_differ_from_views_only():
    same = [pa.int8(), pa.string(), pa.large_string(), pa.list_(pa.string()), pa.map_(pa.string(), pa.int8())]
    for kind in (*same, pa.dictionary(pa.int8(), pa.string()), pa.struct({"a": pa.list_(pa.int8())})):
        assert storage_type(kind) == kind
    assert storage_type(pa.string_view()) == pa.large_string()
    assert storage_type(pa.binary_view()) == pa.large_binary()
    inner = pa.field("v", pa.string_view(), nullable=False)
    assert storage_type(pa.list_(pa.struct([inner]))) == pa.list_(
        pa.struct([pa.field("v", pa.large_string(), nullable=False)])
    )
    schema = pa.schema([pa.field("a", pa.string_view(), nullable=False), ("b", pa.int8())])
    assert storage_schema(schema) == pa.schema(
        [pa.field("a", pa.large_string(), nullable=False), ("b", pa.int8())]
    )


# ---- SlidingColumns


def columns(values: list[int]) -> list[np.ndarray]:
    """Two columns, one of pairs, that say the same."""
    array = np.array(values, np.int64)
    return [array, np.stack([array, -array], axis=1).astype(np.int32)]


def test_columns_slide():
    sliding = SlidingColumns()
    sliding.append(columns([1, 2, 3]))
    sliding.drop(2)
    sliding.append(columns([4, 5]))
    assert sliding[0].tolist() == [3, 4, 5]
    assert sliding.live()[1].tolist() == [[3, -3], [4, -4], [5, -5]]
    sliding.merge(columns([3, 9]), 2, np.array([2, 0, 1, 3]))  # the last rows 4, 5 and the new 3, 9
    assert sliding[0].tolist() == [3, 3, 4, 5, 9]
    assert sliding[1][:, 1].tolist() == [-3, -3, -4, -5, -9]
    sliding.drop(5)
    assert len(sliding) == 0


@given(st.lists(st.tuples(st.sampled_from([0, 1, 3, 700, 3000]), st.floats(0, 1)), max_size=25))
def test_columns_hold_what_a_list_would(steps):
    sliding, model, number = SlidingColumns(), [], 0
    sliding.append(columns([]))
    for count, share in steps:
        new = list(range(number, number + count))
        number += count
        sliding.append(columns(new))
        model += new
        gone = int(share * len(model))
        sliding.drop(gone)
        del model[:gone]
        assert sliding[0].tolist() == model
        assert sliding[1][:, 0].tolist() == model
        assert len(sliding) == len(model)


def test_memory_follows_the_live_rows():
    sliding = SlidingColumns()
    row_bytes = 8 + 2 * 4
    for _ in range(300):  # a window of 2,000 rows
        sliding.append(columns(list(range(100))))
        sliding.drop(max(0, len(sliding) - 2000))
        assert sliding.nbytes <= 4 * 2100 * row_bytes
    sliding.append(columns(list(range(100_000))))
    sliding.drop(len(sliding) - 10)
    assert sliding.nbytes <= KEPT_ROWS * row_bytes
    assert sliding[0].tolist() == list(range(99_990, 100_000))
