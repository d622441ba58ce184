"""The join as its user sees it: what can be pushed, what comes out and when, sources, stats, explain."""

from __future__ import annotations

import doctest
import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.codegen.columns import SMALL_COPY, to_column_data
from streamjoin.engine import open as engine_open
from streamjoin.engine.tables import join_planned
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import STREAM_ORDERS, Options
from streamjoin.plan.tuning import EngineTuning, Tuning
from streamjoin.semantics.columns import column_type
from streamjoin.semantics.types import Type

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
TEXT = pa.schema({"ts": pa.int64(), "s": pa.string()})


def equal_x(window: Any = None, **options: Any) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", window or sj.TimeWindow(10), "ts", "ts", **options)


def rows(ts: list[int], x: list[int | None]) -> pa.Table:
    return pa.table({"ts": ts, "x": x}, schema=SCHEMA)


def random_rows(count: int, seed: int, values: int = 5) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, count, count))
    return pa.table({"ts": times, "x": random.integers(0, values, count, dtype=np.int32)}, schema=SCHEMA)


def in_order(result: pa.Table | list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """The result rows, sorted, to compare them as a set."""
    batches = result.to_batches() if isinstance(result, pa.Table) else result
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def push_and_finish(spec: sj.JoinSpec, left: Any, right: Any, **options: Any) -> pa.Table:
    with sj.open_join(spec, **options) as join:
        join.push("left", left)
        join.push("right", right)
        return join.finish()


def test_examples_of_the_docstrings():
    failed, attempted = doctest.testmod(engine_open)
    assert attempted > 0
    assert failed == 0


# ---- the life of a join


def test_results_come_with_the_push_that_completes_them():
    with sj.open_join(equal_x()) as join:
        assert join.poll() == []
        join.push("left", rows([1, 2], [7, 8]))
        assert join.poll() == []
        join.push("right", rows([5], [7]))
        assert in_order(join.poll()) == [(1, 7, 5, 7)]
        join.push("left", rows([6], [7]))
        assert in_order(join.poll()) == [(6, 7, 5, 7)]
        join.push("right", rows([12], [8]))
        assert in_order(join.finish()) == [(2, 8, 12, 8)]


def test_finish_gives_only_what_was_not_polled():
    with sj.open_join(equal_x()) as join:
        join.push("left", rows([1], [7]))
        join.push("right", rows([1], [7]))
        assert len(in_order(join.poll())) == 1
        rest = join.finish()
    assert rest.num_rows == 0
    assert rest.schema == join.spec.schema


def test_an_empty_join():
    for order in ("any", "punctuated", "timestamp"):
        with sj.open_join(equal_x(), order=order) as join:
            assert join.poll() == []
            assert join.finish().equals(equal_x().schema.empty_table())
    assert sj.join_tables(SCHEMA.empty_table(), SCHEMA.empty_table(), equal_x()).num_rows == 0


@pytest.mark.parametrize("order", ["any", "punctuated", "timestamp"])
def test_empty_pushes_change_nothing(order):
    nothing = [SCHEMA.empty_table(), pa.RecordBatch.from_pylist([], schema=SCHEMA)]
    with sj.open_join(equal_x(), order=order) as join:
        for table in (*nothing, rows([1], [7]), *nothing):
            join.push("left", table)
            join.push("right", table)
        assert join.stats().tuples == 2
        found = [row for batch in join.poll() for row in batch.to_pylist()]
        assert len(found) + join.finish().num_rows == 1


def test_leaving_the_block_closes_the_join():
    with sj.open_join(equal_x()) as join:
        join.push("left", rows([1], [7]))
    with pytest.raises(sj.ClosedError):
        join.push("right", rows([1], [7]))
    join.close()


def test_leaving_the_block_by_an_error_passes_it_on():
    with pytest.raises(ZeroDivisionError), sj.open_join(equal_x()) as join:
        join.push("left", rows([1 // 0], [7]))
    with pytest.raises(sj.ClosedError):
        join.finish()


@pytest.mark.parametrize("window", [sj.TimeWindow(20, 5), sj.RowWindow(7, 3)], ids=["time", "rows"])
@pytest.mark.parametrize("order", ["any", "punctuated", "timestamp"])
def test_one_row_at_a_time(window, order):
    spec, left, right = equal_x(window), random_rows(60, 1), random_rows(60, 2)
    batches: list[pa.RecordBatch] = []
    with sj.open_join(spec, order=order) as join:
        for row in range(60):
            join.push("left", left.slice(row, 1))
            join.push("right", right.slice(row, 1))
            batches += join.poll()
        batches += join.finish().to_batches()
    expected = sj.oracle.join(left, right, spec)
    assert in_order(batches) == in_order(expected)
    if order == "timestamp":
        assert pa.Table.from_batches(batches, spec.schema).equals(expected)


def test_end_of_one_side_lets_the_other_go_on():
    with sj.open_join(equal_x(), order="timestamp") as join:
        join.push("left", rows([1, 5], [7, 7]))
        join.end("left")
        join.end("left")
        join.push("right", rows([3, 20], [7, 7]))
        assert in_order(join.poll()) == [(1, 7, 3, 7), (5, 7, 3, 7)]
        with pytest.raises(sj.ClosedError, match="left"):
            join.push("left", rows([30], [7]))
        with pytest.raises(sj.ClosedError, match="left side has ended"):
            join.source("left", "another")
        assert join.finish().num_rows == 0


def test_sources_of_a_side_are_one_stream():
    left, right = random_rows(200, 3), random_rows(200, 4)
    spec = equal_x(sj.RowWindow(9))
    with sj.open_join(spec) as join:
        names = ["b", "a", "c"]
        sources = [join.source("left", name) for name in names]
        for at in range(0, 200, 10):
            for number, source in enumerate(sources):
                source.push(
                    left.slice(at, 10).filter(pa.array(np.arange(at, min(200, at + 10)) % 3 == number))
                )
            join.push("right", right.slice(at, 10))
        sources[0].close()
        sources[0].close()
        with pytest.raises(sj.ClosedError, match="'b'"):
            sources[0].push(left)
        found = in_order(join.finish())
    # The total order puts sources by name at equal times: rows of "a" (1 mod 3) before "b" (0) before "c" (2).
    rank = np.array([1, 0, 2])[np.arange(200) % 3]
    merged = left.take(pa.array(np.lexsort((np.arange(200), rank, left["ts"].to_numpy()))))
    assert found == in_order(sj.oracle.join(merged, right, spec))


def test_an_idle_source_holds_back_until_it_advances():
    with sj.open_join(equal_x(), order="timestamp") as join:
        idle = join.source("left", "idle")
        join.push("left", rows([1, 5], [7, 7]))
        join.push("right", rows([2, 9], [7, 7]))
        assert join.poll() == []
        idle.advance(4)
        assert in_order(join.poll()) == [(1, 7, 2, 7)]
        with pytest.raises(sj.InputError, match="falls"):
            idle.push(rows([3], [7]))
        idle.push(rows([4], [7]))
        idle.close()
        assert in_order(join.finish()) == [
            (1, 7, 9, 7),
            (4, 7, 2, 7),
            (4, 7, 9, 7),
            (5, 7, 2, 7),
            (5, 7, 9, 7),
        ]


def test_late_rows_are_counted_and_given_out_once():
    with sj.open_join(equal_x(lateness=2)) as join:
        join.push("left", rows([10, 8, 7, 12], [1, 2, 3, 4]))
        join.push("left", rows([9, 10], [5, 6]))
        stats = join.stats()
        assert (stats.left_tuples, stats.left_late, stats.right_late, stats.late) == (4, 2, 0, 2)
        assert join.late("left").equals(rows([7, 9], [3, 5]))
        assert join.late("left").equals(SCHEMA.empty_table())
        assert join.late("right").num_rows == 0
        join.push("right", rows([10, 10, 10, 10, 10, 10], [1, 2, 3, 4, 5, 6]))
        assert in_order(join.finish()) == [(8, 2, 10, 2), (10, 1, 10, 1), (10, 6, 10, 6), (12, 4, 10, 4)]


def test_punctuation_promises_what_will_not_come():
    with sj.open_join(equal_x(), order="punctuated") as join:
        join.push("left", rows([1, 5], [7, 8]))
        join.push("right", rows([3], [7]))
        (batch,) = join.poll()
        assert sj.punctuation(batch) == 3
        assert batch.schema.equals(join.spec.schema)
        join.push("right", rows([4], [9]))
        (batch,) = join.poll()
        assert (batch.num_rows, sj.punctuation(batch)) == (0, 4)
    assert sj.punctuation(rows([1], [2]).to_batches()[0]) is None


# ---- Arrow in


def forms(table: pa.Table) -> dict[str, Any]:
    """The same rows as everything that may be pushed."""
    pieces = [table.slice(at, 3) for at in range(0, table.num_rows, 3)]
    structs = pa.StructArray.from_arrays(table.combine_chunks().to_batches()[0].columns, table.schema.names)
    shuffled = table.to_pandas().sample(frac=1, random_state=1)
    return {
        "RecordBatch": table.combine_chunks().to_batches()[0],
        "Table": table,
        "Table of many chunks": pa.concat_tables([*pieces, table.schema.empty_table()]),
        "other column order": table.select(table.column_names[::-1]),
        "RecordBatchReader": pa.concat_tables(pieces).to_reader(),
        "pandas": table.to_pandas(),
        "pandas, sorted": shuffled.sort_values("ts", kind="stable"),
        "polars": pl.from_arrow(table),
        "array of structs": structs,
        "slice": pa.concat_tables([table, table]).combine_chunks().slice(table.num_rows),
    }


@pytest.mark.parametrize("form", list(forms(random_rows(7, 5))))
def test_what_may_be_pushed(form):
    left, right = (
        pa.table({"ts": list(range(20)), "x": [n % 4 for n in range(20)]}, SCHEMA),
        random_rows(20, 6),
    )
    expected = sj.oracle.join(left, right, equal_x())
    assert expected.num_rows > 20
    result = push_and_finish(equal_x(), forms(left)[form], right)
    assert result.schema == equal_x().schema
    assert in_order(result) == in_order(expected)
    assert in_order(sj.join_tables(forms(left)[form], right, equal_x())) == in_order(expected)


def test_a_pandas_column_without_values_is_null():
    """pandas does not know the type of texts that are all missing, nor of no texts at all."""
    schema = pa.schema({"ts": pa.int64(), "k": pa.string()})
    spec = sj.JoinSpec(schema, schema, "left.k = right.k", sj.TimeWindow(3), "ts", "ts", how="left")
    given, missing = (pd.DataFrame({"ts": [1], "k": [k]}) for k in ("a", None))
    for left, right, keys in [(given, missing, ["a"]), (given, missing[:0], ["a"]), (missing, given, [None])]:
        assert sj.join_tables(left, right, spec).to_pydict() == {
            "ts": [1],
            "k": keys,
            "ts_right": [None],
            "k_right": [None],
        }
    strict = pa.schema([("ts", pa.int64()), pa.field("k", pa.string(), nullable=False)])
    spec = sj.JoinSpec(strict, schema, "left.k = right.k", sj.TimeWindow(3), "ts", "ts")
    with pytest.raises(sj.InputError, match="'k' has nulls, but the spec says it is not nullable"):
        sj.join_tables(missing, given, spec)


def test_a_pandas_frame_cut_by_a_filter():
    frame = pd.DataFrame({"ts": np.arange(6), "x": np.arange(6, dtype=np.int32)})
    found = push_and_finish(equal_x(), frame[frame["x"] % 2 == 1], rows([3], [3]))
    assert in_order(found) == [(3, 3, 3, 3)]


LAYOUTS = [
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.large_string()),
    pa.dictionary(pa.uint16(), pa.string_view()),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_another_layout_of_a_string_column(layout):
    words = ["a", None, "a word longer than a view holds", "", "é"]
    if pa.types.is_dictionary(layout):
        indices = pa.array([0, None, 1, 2, 3], layout.index_type)
        column = pa.DictionaryArray.from_arrays(indices, pa.array(words[:1] + words[2:], layout.value_type))
    else:
        column = pa.array(words, layout)
    plain = pa.table({"ts": range(5), "s": words}, schema=TEXT)
    spec = sj.JoinSpec(TEXT, TEXT, "left.s = right.s", sj.TimeWindow(0), "ts", "ts")
    for side in ("left", "right"):
        given = pa.table({"s": column, "ts": pa.array(range(5))})
        tables = (given, plain) if side == "left" else (plain, given)
        result = push_and_finish(spec, *tables)
        assert result.schema == spec.schema
        assert [row[1] for row in in_order(result)] == ["a", "a word longer than a view holds", "", "é"]


def test_layouts_may_change_between_pushes():
    spec = sj.JoinSpec(TEXT, TEXT, "left.s = right.s", sj.TimeWindow(9), "ts", "ts")
    with sj.open_join(spec) as join:
        for ts, kind in enumerate([pa.string(), pa.large_string(), pa.string_view()]):
            join.push("left", pa.table({"ts": [ts], "s": pa.array(["a"], kind)}))
        join.push("left", pa.table({"ts": [3], "s": pa.array(["a"]).dictionary_encode()}))
        join.push("right", pa.table({"ts": [3], "s": ["a"]}))
        assert in_order(join.finish()) == [(ts, "a", 3, "a") for ts in range(4)]


def test_a_spec_of_views_and_dictionaries_gives_them_back():
    schema = pa.schema(
        {
            "ts": pa.int64(),
            "v": pa.string_view(),
            "d": pa.dictionary(pa.int8(), pa.string()),
            "b": pa.binary_view(),
        }
    )
    spec = sj.JoinSpec(schema, schema, "left.v = right.d", sj.TimeWindow(9), "ts", "ts")
    long = "a word longer than a view holds"
    table = pa.table(
        {
            "ts": [1, 2],
            "v": pa.array(["a", long], pa.string_view()),
            "d": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), [long, "a"]),
            "b": pa.array([b"", None], pa.binary_view()),
        },
        schema=schema,
    )
    result = push_and_finish(spec, table, table)
    assert result.schema == spec.schema
    assert in_order(result) == in_order(sj.oracle.join(table, table, spec))
    assert result.num_rows == 2


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.month_day_nano_interval(), pa.decimal256(60, 3), pa.decimal32(5, 2), pa.float16(), pa.null()),
        *(
            pa.duration("us"),
            pa.time32("s"),
            pa.time64("ns"),
            pa.list_(pa.float32(), 2),
            pa.list_view(pa.int8()),
        ),
        *(pa.struct({"a": pa.int8()}), pa.map_(pa.string(), pa.int32()), pa.uuid(), pa.bool8()),
    ],
    ids=str,
)
def test_payload_may_have_any_type(kind):
    schema = pa.schema({"ts": pa.int64(), "x": pa.int32(), "p": kind})
    table = pa.table([pa.array([1, 2]), pa.array([1, 2], pa.int32()), pa.nulls(2, kind)], schema=schema)
    spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(5), "ts", "ts")
    assert sj.join_tables(table, table, spec, order="timestamp").equals(sj.oracle.join(table, table, spec))


def test_result_schema_has_suffixes_nullability_and_metadata_of_the_spec():
    left = pa.schema(
        [pa.field("ts", pa.int64(), nullable=False), pa.field("x", pa.int32(), metadata={"unit": "m"})]
    )
    right = pa.schema([("x", pa.int32()), ("ts", pa.int64()), ("y", pa.bool_())])
    spec = sj.JoinSpec(left, right, "left.x = right.x", sj.TimeWindow(9), "ts", "ts", suffix="2")
    shuffled = pa.table({"x": [7], "ts": [2], "y": [True]}, schema=right).select(["y", "ts", "x"])
    result = push_and_finish(spec, pa.table({"ts": [1], "x": [7]}, schema=left), shuffled)
    assert result.schema.names == ["ts", "x", "x2", "ts2", "y"]
    assert result.schema.equals(spec.schema, check_metadata=True)
    assert result.to_pylist() == [{"ts": 1, "x": 7, "x2": 7, "ts2": 2, "y": True}]


def test_metadata_of_pushed_data_is_not_mixed_in():
    tagged = rows([1], [7]).replace_schema_metadata({"origin": "here"})
    result = push_and_finish(equal_x(), tagged, tagged.to_batches()[0])
    assert result.schema.equals(equal_x().schema, check_metadata=True)


def known_type(kind: pa.DataType) -> Type:
    known = column_type(kind)
    assert known is not None
    return known


def test_numeric_keys_are_read_where_they_lie():
    numbers = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
    for kind in [*numbers, pa.date32(), pa.timestamp("us")]:
        few = pa.array([1, 2, None, 4], pa.int64() if kind == pa.timestamp("us") else pa.int32()).cast(kind)
        array = pa.concat_arrays([few] * SMALL_COPY)
        for piece in (array, array.slice(1, 2 * SMALL_COPY)):
            data = to_column_data(piece, known_type(kind))
            address, size = array.buffers()[1].address, array.buffers()[1].size
            given = data.parts[0].__array_interface__["data"][0]
            assert given == address + piece.offset * kind.bit_width // 8, kind
            assert given + data.parts[0].nbytes <= address + size


def test_text_is_read_where_it_lies():
    for kind in (pa.large_string(), pa.large_binary()):
        array = pa.array(["a", "bc", *["def"] * SMALL_COPY], kind)
        offsets, data = to_column_data(array.slice(1), known_type(kind)).parts
        assert offsets[:3].tolist() == [1, 3, 6]
        assert data.__array_interface__["data"][0] == array.buffers()[2].address
        assert offsets.__array_interface__["data"][0] == array.buffers()[1].address + 8


# ---- whole tables


@pytest.mark.parametrize("window", [sj.TimeWindow(20, 5), sj.RowWindow(7, 3)], ids=["time", "rows"])
def test_join_tables_sorts_its_tables(window):
    random = np.random.default_rng(7)
    left, right = (random_rows(100, seed).take(pa.array(random.permutation(100))) for seed in (8, 9))
    spec = equal_x(window)
    assert sj.join_tables(left, right, spec, order="timestamp").equals(sj.oracle.join(left, right, spec))
    assert in_order(sj.join_tables(left, right, spec)) == in_order(sj.oracle.join(left, right, spec))
    punctuated = sj.join_tables(left, right, spec, order="punctuated")
    assert punctuated.schema.equals(spec.schema, check_metadata=True)
    assert in_order(punctuated) == in_order(sj.oracle.join(left, right, spec))


def test_join_tables_with_more_results_than_a_join_buffers():
    left, right = random_rows(300, 10, values=2), random_rows(300, 11, values=2)
    spec = equal_x(sj.TimeWindow(100))
    expected = sj.oracle.join(left, right, spec)
    assert expected.num_rows > 10_000
    tuning = Tuning(engine=EngineTuning(batch_rows=64))
    plans = {
        order: make_plan(spec, Options(order=order, max_results=1000), tuning) for order in STREAM_ORDERS
    }
    assert join_planned(left, right, plans["timestamp"]).equals(expected)
    assert in_order(join_planned(left, right, plans["any"])) == in_order(expected)


# ---- stats and explain


def test_every_field_of_stats():
    with sj.open_join(equal_x(lateness=2), index="scan") as join:
        join.push("left", rows([10, 11, 5], [7, 8, 7]))  # the last one is late
        join.push("right", rows([10, 12], [7, 7]))  # two comparisons each
        stats = join.stats()
        assert (stats.left_tuples, stats.right_tuples, stats.tuples) == (2, 2, 4)
        assert (stats.left_late, stats.right_late, stats.late) == (1, 0, 1)
        assert (stats.left_window, stats.right_window) == (2, 2)
        assert stats.comparisons == sum(stats.worker_comparisons) == 4
        assert (stats.matches, stats.buffered_results, stats.payload_rows) == (2, 2, 4)
        assert sum(stats.latency.counts) == 2
        assert stats.window_bytes >= 4 * (8 + 8 + 4 + 4)  # ts, id, source and key of four tuples
        join.poll()
        assert (join.stats().matches, join.stats().buffered_results) == (2, 0)
        join.push("left", rows([40], [7]))  # out of reach: 30 ticks later
        join.push("right", rows([40], [7]))
        after = join.stats()
        assert (after.left_window, after.right_window, after.comparisons, after.matches) == (1, 1, 5, 3)
        join.finish()
        assert (join.stats().left_window, join.stats().right_window, join.stats().tuples) == (0, 0, 6)


@pytest.mark.parametrize("order", ["any", "timestamp"])
def test_latency_counts_every_match(order):
    left, right = random_rows(3000, 12), random_rows(3000, 13)
    with sj.open_join(equal_x(), order=order) as join:
        for at in range(0, 3000, 500):
            join.push("left", left.slice(at, 500))
            join.push("right", right.slice(at, 500))
        join.finish()
        stats = join.stats()
    assert stats.matches > 5000
    assert sum(stats.latency.counts) == stats.matches
    assert 0 < stats.latency.quantile(0.0) <= stats.latency.quantile(0.5) <= stats.latency.quantile(1.0) < 60


def test_quantiles_by_eye():
    nothing = sj.LatencyHistogram((0, 0, 0))
    assert math.isnan(nothing.quantile(0.5))
    # One result below 1 us, two below 4 us, one below 16 us.
    histogram = sj.LatencyHistogram((1, 0, 2, 0, 1))
    bounds = [histogram.quantile(q) for q in (0.01, 0.25, 0.5, 0.75, 0.76, 1.0)]
    assert bounds == pytest.approx([1e-6, 1e-6, 4e-6, 4e-6, 16e-6, 16e-6])


def test_explain_tells_predicate_windows_and_plan():
    def near(l, r):
        return abs(l.x - r.x) < 2

    text = sj.explain(equal_x(sj.TimeWindow(10, 3)))
    assert "left.x = right.x" in text
    assert "10 ticks" in text and "3 ticks" in text
    assert "three_step" in text and "scan" in text
    text = sj.explain(sj.JoinSpec(SCHEMA, SCHEMA, near, sj.RowWindow(1000), "ts", "ts"), order="timestamp")
    assert "near" in text and "1,000 rows" in text and "timestamp" in text


@pytest.mark.parametrize("order", ["any", "timestamp"])
def test_what_was_settled_stays_settled_when_sources_come_and_go(order):
    """Closing the last source, or opening one of a smaller name, must not take a promise back."""
    with sj.open_join(equal_x(sj.RowWindow(9)), order=order) as join:
        sources = [join.source("left", name) for name in "bc"]
        join.push("right", rows([4, 6], [7, 7]))
        for source in sources:
            source.push(rows([5], [7]))
        sources[0].close()
        assert in_order(join.poll()) == [(5, 7, 4, 7), (5, 7, 4, 7)]
        newcomer = join.source("left", "a")
        newcomer.push(rows([5], [7]))  # before what was settled
        assert join.stats().left_late == 1
        newcomer.close()
        sources[1].close()
        assert join.poll() == []
        assert in_order(join.finish()) == [(5, 7, 6, 7), (5, 7, 6, 7)]
