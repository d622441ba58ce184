"""Small batches of result rows lie on pages: several polls share one, and none changes what another has given."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.engine.result_pages import FEWEST_ROWS, PAGE_BYTES, make_pages
from streamjoin.engine.rows import HeldRows, RowMemory, fields_of

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int32(), "v": pa.int8(), "h": pa.uint16()})
SPEC = sj.JoinSpec(SCHEMA, SCHEMA, "left.k = right.k", sj.TimeWindow(100), "ts", "ts")
FIELDS = {"left": fields_of(SCHEMA), "right": fields_of(SCHEMA)}


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + count)
    columns = [
        numbers,
        (numbers % 7).astype(np.int32),
        numbers.astype(np.int8),
        (3 * numbers).astype(np.uint16),
    ]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)


def held(batch: pa.RecordBatch, first: int) -> HeldRows:
    """The rows of a batch, of which the first has this number."""
    arrays = [column.to_numpy().copy() for column in batch.columns]
    origins = np.array([array.ctypes.data - first * array.itemsize for array in arrays])
    return HeldRows([], [], RowMemory(tuple(SCHEMA.names), arrays, origins))


def test_pairs_become_rows_of_both_sides():
    pages = make_pages(SPEC.schema, FIELDS, range(8))
    assert pages is not None
    views = {"left": held(rows(10, 5), 10), "right": held(rows(200, 5), 200)}
    batch = pages.batch({"left": np.array([10, 14]), "right": np.array([203, 200])}, views)
    assert batch is not None
    batch.validate(full=True)
    assert batch.schema == SPEC.schema
    assert batch.to_pylist() == [
        {"ts": 10, "k": 3, "v": 10, "h": 30, "ts_right": 203, "k_right": 0, "v_right": -53, "h_right": 609},
        {"ts": 14, "k": 0, "v": 14, "h": 42, "ts_right": 200, "k_right": 4, "v_right": -56, "h_right": 600},
    ]


def test_batches_keep_their_rows_while_later_ones_fill_the_page_and_the_next():
    pages = make_pages(SPEC.schema, FIELDS, range(8))
    assert pages is not None
    views = {"left": held(rows(0, 100), 0), "right": held(rows(0, 100), 0)}
    random = np.random.default_rng(3)
    made, wanted = [], []
    for _ in range(5 * pages.rows):
        ids = {side: random.integers(0, 100, random.integers(1, pages.most + 1)) for side in FIELDS}
        count = min(map(len, ids.values()))
        ids = {side: each[:count] for side, each in ids.items()}
        made.append(pages.batch(ids, views))
        wanted.append(ids)
    for batch, ids in zip(made, wanted, strict=True):
        assert batch is not None
        assert batch["ts"].to_pylist() == ids["left"].tolist()
        assert batch["ts_right"].to_pylist() == ids["right"].tolist()


def test_large_batches_and_rows_that_lie_in_batches_are_left_to_others():
    pages = make_pages(SPEC.schema, FIELDS, range(8))
    assert pages is not None
    views = {"left": held(rows(0, 1000), 0), "right": held(rows(0, 1000), 0)}
    many = np.arange(pages.most + 1)
    assert pages.batch({"left": many, "right": many}, views) is None
    assert pages.batch({"left": many[:1], "right": many[:1]}, {**views, "right": HeldRows([], [])}) is None


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.bool_(), pa.decimal128(9, 2), pa.dictionary(pa.int32(), pa.string())]
)
def test_results_with_other_columns_have_no_pages(kind):
    schema = pa.schema({"ts": pa.int64(), "k": pa.int32(), "s": kind})
    spec = sj.JoinSpec(schema, SCHEMA, "left.k = right.k", sj.TimeWindow(100), "ts", "ts")
    assert make_pages(spec.schema, {"left": fields_of(schema), "right": FIELDS["right"]}, range(7)) is None


def test_a_page_is_small_even_if_rows_are_wide():
    wide = pa.schema({"ts": pa.int64()} | {f"c{n}": pa.int64() for n in range(200)})
    spec = sj.JoinSpec(wide, wide, "left.c0 = right.c0", sj.TimeWindow(100), "ts", "ts")
    pages = make_pages(spec.schema, {"left": fields_of(wide), "right": fields_of(wide)}, range(402))
    assert pages is not None
    assert pages.rows == FEWEST_ROWS > PAGE_BYTES // (402 * 8)


def test_polls_of_several_threads_give_every_row_once():
    found: list[pa.RecordBatch] = []
    with sj.open_join(SPEC, topology="three_step", max_results=50) as join:
        stop = threading.Event()

        def poll() -> None:
            while not stop.is_set():
                found.extend(join.poll(timeout=0.01))

        threads = [threading.Thread(target=poll) for _ in range(3)]
        for thread in threads:
            thread.start()
        for at in range(300):
            join.push("left", rows(at, 1))
            join.push("right", rows(at, 1))
        stop.set()
        for thread in threads:
            thread.join()
        found += join.finish().to_batches()
    expected = sj.oracle.join(
        pa.Table.from_batches([rows(0, 300)]), pa.Table.from_batches([rows(0, 300)]), SPEC
    )
    assert sorted(map(str, pa.Table.from_batches(found).to_pylist())) == sorted(
        map(str, expected.to_pylist())
    )
