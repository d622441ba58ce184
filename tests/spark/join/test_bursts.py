"""Bursts: a few rows that match each other give millions of result rows, which leave in pieces of bounded rows and
bytes and take a worker little memory, however many partners one row has and however long its strings are.

Run as a program with the name of a case, this measures the memory that the results of one burst take:

    python tests/spark/join/test_bursts.py "long strings"
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.tws_tester import TwsTester

from streamjoin.engine import rows as held_rows
from streamjoin.engine.rows import Held, HeldRows
from streamjoin.kernels.scan.bands import MIN_SCAN_ROOM
from streamjoin.plan.options import INDEXES, STREAM_ORDERS, Options
from streamjoin.plan.spark_tuning import DEFAULT_SPARK_TUNING, SparkTuning
from streamjoin.semantics.keep import HOW
from streamjoin.semantics.spec import SIDES
from streamjoin.spark import window_join
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.pack import PARCEL, decode, encode
from streamjoin.spark.join.processor import JoinProcessor, join_group
from streamjoin.spark.join.task import BEGIN_OF_TIME, END_OF_TIME, TIE, JoinTask
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state import content, pieces
from streamjoin.spark.state.manifest import MemoryStore, State

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32(), "n": pa.int32(), "name": pa.string()})
EQUAL, NEAR, TEXT = "left.x = right.x", "abs(left.x - right.x) <= 1", "left.name <> right.name"
WINDOW = sj.TimeWindow(10)
# A score that reads the strings of both rows.
BY_NAME = "CASE WHEN left.name < right.name THEN right.n ELSE 0 END"
MOST_MEMORY = 256 << 20  # that the results of a worker may take


def make_task(
    on: Any = EQUAL,
    window: Any = WINDOW,
    how: Any = "inner",
    order: Any = "any",
    index: Any = "auto",
    tuning: SparkTuning = DEFAULT_SPARK_TUNING,
    keep: Any = "all",
) -> JoinTask:
    return JoinTask(
        sj.JoinSpec(SCHEMA, SCHEMA, on, window, "ts", "ts", how, keep=keep),
        Options(index=index, order=order, engine="spark"),
        tuning=tuning,
    )


def batch_of(count: int, name: str, ts: int = 1, x: int = 0) -> pa.RecordBatch:
    """Rows that differ in their number alone."""
    columns = [np.full(count, ts), np.full(count, x, np.int32), np.arange(count, dtype=np.int32)]
    return pa.record_batch([*columns, pa.array([name] * count)], schema=SCHEMA)


def frames_of(
    task: JoinTask, left: pa.RecordBatch, right: pa.RecordBatch
) -> Iterator[tuple[pa.ListArray, list[int] | None]]:
    """What the processor gives Spark for one micro-batch, frame by frame: values of rows, and its counts."""
    tester = TwsTester(JoinProcessor(task), timeMode="EventTime", eventTimeExtractor=lambda _row: 2**62)
    tester.handle.setGroupingKey(0)
    given = pd.DataFrame({"side": [0, 1], "rows": [encode(left), encode(right)]})
    frames = tester.processor.handleInputRows((0,), iter([given]), tester._getTimerValues())
    return ((pa.array(frame[0]), pa.array(frame[1]).to_pylist()[-1]) for frame in frames)


def step(
    task: JoinTask,
    left: Sequence[pa.RecordBatch],
    right: Sequence[pa.RecordBatch],
    watermark: int = BEGIN_OF_TIME,
) -> Iterator[pa.RecordBatch]:
    counts = Counts()
    worker = SparkWorker(task, 0, State(task, MemoryStore(), counts), counts)
    return worker.step({"left": left, "right": right}, watermark)


# Pieces


def test_pieces_have_bounded_rows_and_bytes():
    def cuts(count: int, sizes: pieces.Sizes, rows: int, nbytes: int) -> list[tuple[int, int]]:
        return [(piece.start, piece.stop) for piece in pieces.cut(count, sizes, rows, nbytes)]

    assert cuts(7, 10, 3, 1000) == [(0, 3), (3, 6), (6, 7)]
    assert cuts(7, 10, 100, 20) == [(0, 2), (2, 4), (4, 6), (6, 7)]
    assert cuts(3, 10, 100, 5) == [(0, 1), (1, 2), (2, 3)], "a row that is too large is a piece by itself"
    assert cuts(3, 0, 100, 5) == [(0, 3)]
    assert cuts(0, 10, 3, 20) == cuts(0, np.empty(0, np.int32), 3, 20) == []
    assert cuts(6, np.array([5, 5, 5, 90, 1, 1]), 100, 10) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert cuts(6, np.array([5, 5, 5, 90, 1, 1]), 1, 10) == [(n, n + 1) for n in range(6)]
    assert cuts(3, np.full(3, 2**31 - 1, np.int32), 100, 2**31) == [(0, 1), (1, 2), (2, 3)], "no overflow"


COLUMNS = {
    "numbers": pa.array([1, None, 3, 4], pa.int64()),
    "flags": pa.array([True, None, False, True]),
    "decimals": pa.array([1, None, 3, 4], pa.decimal128(38, 2)),
    "nothing": pa.nulls(4),
    "strings": pa.array(["a" * 100, None, "", "b" * 1000]),
    "large strings": pa.array(["a" * 100, None, "", "b" * 1000], pa.large_string()),
    "binaries": pa.array([b"a" * 100, None, b"", b"b" * 1000]),
    "lists": pa.array([[1, 2, 3], None, [], [4] * 500], pa.list_(pa.int64())),
    "lists of strings": pa.array([["a" * 100], None, [], ["b" * 10] * 500]),
    "large lists": pa.array([["a" * 100], None, [], ["b" * 10] * 500], pa.large_list(pa.string())),
    "structs": pa.array([{"a": "x" * 100, "b": 1}, None, {"a": None, "b": 2}, {"a": "y" * 1000, "b": 3}]),
    "maps": pa.array([[("k", "v" * 100)], None, [], [("k" * 900, "v")]], pa.map_(pa.string(), pa.string())),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_row_is_about_as_large_as_arrow_holds_it(name):
    column = COLUMNS[name]
    for part in (column, column.slice(1, 3), column.slice(3)):
        real = [part.slice(at, 1).nbytes for at in range(len(part))]
        assert pieces.sizes_of([part]).tolist() == pytest.approx(real, abs=16)
        width = pieces.width(part.type)
        assert width is None if max(real) > 100 else width in (None, *range(max(real) + 1))
    assert pieces.sizes_of([column.slice(4)]).tolist() == []
    assert pieces.sizes_of([column, column]).tolist() == (2 * pieces.sizes_of([column])).tolist()


# Literal cases


def test_a_burst_of_long_strings_leaves_in_pieces(own_cache):
    """1,500 rows of a side with one key: 2,250,000 results of 2 KB, more than a column of strings can hold."""
    left, right = batch_of(1500, "l" * 1000), batch_of(1500, "r" * 1000)
    seen, told = np.zeros((1500, 1500), np.int8), []
    for values, counts in frames_of(make_task(), left, right):
        rows = values.flatten()
        assert rows.nbytes <= 2 * DEFAULT_SPARK_TUNING.result_bytes
        assert (
            max(values.slice(at, 1).nbytes for at in range(len(values)))
            <= 2 * DEFAULT_SPARK_TUNING.value_bytes
        )
        np.add.at(seen, (np.asarray(rows.field("n")), np.asarray(rows.field("n_right"))), 1)
        assert rows.field("name")[-1].as_py() == "l" * 1000
        assert rows.field("name_right")[-1].as_py() == "r" * 1000
        told.append(counts)
    assert (seen == 1).all()
    assert told[:-1] == [None] * (len(told) - 1)
    assert told[-1] is not None


def test_a_burst_of_whole_tables_leaves_in_pieces(own_cache):
    parcels = [encode(batch_of(700, letter * 1000)) for letter in "lr"]
    batch = pa.record_batch([[0, 0], [0, 1], parcels], schema=PARCEL)
    found = [decode(value["rows"][0].as_buffer()) for value in join_group(make_task(), iter([batch]))]
    assert sum(rows.num_rows for rows in found) == 700 * 700
    assert max(rows.nbytes for rows in found) <= 2 * DEFAULT_SPARK_TUNING.result_bytes


@pytest.mark.parametrize("probing", SIDES)
def test_the_matches_of_one_row_leave_in_pieces(own_cache, probing):
    """The row comes after its partners, or together with them."""
    one, many = batch_of(1, "a"), batch_of(500_000, "b")
    for first in (False, True):
        task, counts, store = make_task(), Counts(), MemoryStore()
        state = State(task, store, counts)
        other = "right" if probing == "left" else "left"
        if first:
            assert list(SparkWorker(task, 0, state, counts).step({other: [many]}, BEGIN_OF_TIME)) == []
            given = {probing: [one]}
        else:
            given = {probing: [one], other: [many]}
        sizes = [rows.num_rows for rows in SparkWorker(task, 0, state, counts).step(given, BEGIN_OF_TIME)]
        assert sum(sizes) == 500_000
        assert max(sizes) <= 2 * (DEFAULT_SPARK_TUNING.result_rows + DEFAULT_SPARK_TUNING.pair_room)
        assert len(sizes) > 1


def test_one_long_row_does_not_make_all_pieces_small(own_cache, monkeypatch):
    made, joined = [], SparkWorker._rows

    def recorded(worker: SparkWorker, ids: Any) -> Iterator[pa.RecordBatch]:
        for rows in joined(worker, ids):
            made.append(rows.num_rows)
            yield rows

    monkeypatch.setattr(SparkWorker, "_rows", recorded)
    many = pa.concat_batches([batch_of(20_000, "b"), batch_of(1, "c" * (1 << 22))])
    assert sum(rows.num_rows for rows in step(make_task(), [batch_of(2, "a")], [many])) == 40_002
    assert sum(made) == 40_002
    assert len(made) <= 4


@pytest.mark.parametrize("how", ["left", "right", "full", "anti"])
def test_rows_without_partners_that_expire_together_leave_in_pieces(own_cache, how):
    left, right = (batch_of(300_000, name * 60, x=x) for x, name in enumerate("lr"))
    found = list(step(make_task(how=how), [left], [right], END_OF_TIME))
    sides = 2 if how == "full" else 1
    assert sum(rows.num_rows for rows in found) == sides * 300_000
    assert max(rows.nbytes for rows in found) <= 2 * DEFAULT_SPARK_TUNING.result_bytes
    assert len(found) > sides
    if how == "full":
        names = pa.Table.from_batches(found)
        assert names["name"].null_count == names["name_right"].null_count == 300_000


def test_a_condition_on_long_strings_is_checked_in_pieces(own_cache, monkeypatch):
    """Pairs are copied to be compared: 90,000 here, of strings of 2 KB."""
    task = make_task(TEXT, tuning=SparkTuning(result_bytes=1 << 20))
    taken = record_taken(monkeypatch)
    left, right = batch_of(300, "l" * 1000), batch_of(300, "r" * 1000)
    assert sum(rows.num_rows for rows in step(task, [left], [right])) == 90_000
    assert 1 < max(taken) <= 1 << 20


def test_a_score_of_long_strings_is_computed_in_pieces(own_cache, monkeypatch):
    """Of 90,000 pairs of strings of 2 KB, each left row keeps the two with the least scores."""
    task = make_task(tuning=SparkTuning(result_bytes=1 << 20), keep=sj.Nearest(BY_NAME, k=2))
    taken = record_taken(monkeypatch)
    left, right = tied(batch_of(300, "l" * 1000)), tied(batch_of(300, "r" * 1000))
    rows = pa.Table.from_batches(step(task, [left], [right], END_OF_TIME))
    assert sorted(rows["n_right"].to_pylist()) == [0] * 300 + [1] * 300
    assert 1 < max(taken) <= 1 << 20


def record_taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of columns that are copied from now on, copy by copy."""
    taken, columns = [], content.Contents.columns

    def recorded(contents: Any, ids: np.ndarray, names: tuple[str, ...]) -> list[pa.Array]:
        found = columns(contents, ids, names)
        taken.append(sum(column.nbytes for column in found))
        return found

    monkeypatch.setattr(content.Contents, "columns", recorded)
    return taken


def test_rows_are_taken_from_more_batches_than_one_column_can_hold():
    """Twelve batches of 200 MB, which is one in memory, and results of a few bytes."""
    batch = pa.record_batch({"name": ["x" * 200_000_000, "a"]})
    rows = HeldRows([2 * number for number in range(12)], [Held(batch)] * 12)
    ids = np.arange(1, 24, 2)
    assert rows.take(ids, batch.schema).column(0).to_pylist() == ["a"] * 12


@pytest.mark.parametrize("window", [WINDOW, sj.RowWindow(50)])
def test_a_worker_gets_more_strings_than_one_column_can_hold(own_cache, window):
    """Eight batches of 300 MB, which is one in memory, come in one micro-batch; what matches is short."""
    columns = [[1, 1], pa.array([0, 1], pa.int32()), pa.array([0, 1], pa.int32()), ["x" * 300_000_000, "a"]]
    left, right = (tied(batch) for batch in (pa.record_batch(columns, schema=SCHEMA), batch_of(1, "r", x=1)))
    (rows,) = step(make_task(window=window), [left] * 8, [right], END_OF_TIME)
    assert rows["name"].to_pylist() == ["a"] * 8


@pytest.mark.parametrize(("most", "runs"), [(1 << 28, [2]), (1000, [1, 1])])
def test_runs_are_merged_unless_that_makes_them_too_large(own_cache, most, runs):
    """Two micro-batches of a row with a long name."""
    tuning = SparkTuning(merged_run_bytes=most)
    task, counts, store = make_task(window=sj.TimeWindow(1000), tuning=tuning), Counts(), MemoryStore()
    for _ in range(2):
        state = State(task, store, counts)
        assert (
            list(SparkWorker(task, 0, state, counts).step({"left": [batch_of(1, "l" * 600)]}, BEGIN_OF_TIME))
            == []
        )
        state.save()
    assert [run.rows for run in State(task, store, counts).runs["left"]] == runs


def test_rows_are_taken_batch_by_batch_alike(monkeypatch):
    batches = [pa.record_batch({"name": [f"{number} {at}" for at in range(50)]}) for number in range(9)]
    rows = HeldRows([50 * number for number in range(9)], [Held(batch) for batch in batches])
    ids = np.random.default_rng(1).integers(0, 450, 2000)
    at_once = rows.take(ids, batches[0].schema)
    monkeypatch.setattr(held_rows, "AT_ONCE_BYTES", 10)
    assert rows.take(ids, batches[0].schema).equals(at_once)


# Every way to join


def callable_predicate(l: Any, r: Any) -> Any:
    return (l.x - r.x) * (l.x - r.x) <= 1


PREDICATES: dict[str, tuple[Any, Callable[[int, int], bool]]] = {
    "equality": (EQUAL, lambda l, r: l == r),
    "band": (NEAR, lambda l, r: abs(l - r) <= 1),
    "text": (f"{EQUAL} AND {TEXT}", lambda l, r: l == r),
    "arithmetic": ("left.x * right.x % 2 = 0", lambda l, r: l * r % 2 == 0),
    "function": (callable_predicate, lambda l, r: abs(l - r) <= 1),
}


@pytest.mark.parametrize("index", ["auto", *INDEXES])
@pytest.mark.parametrize("name", PREDICATES)
def test_pairs_come_once_however_small_the_stretches(own_cache, monkeypatch, name, index):
    """Enough pairs for every kernel to stop and resume, one of them for lack of room after every few probes."""
    on, matches = PREDICATES[name]
    try:
        task = make_task(on, index=index, tuning=SparkTuning(pair_room=16, result_rows=1000))
        task.plan()
    except sj.StreamJoinError:
        pytest.skip(f"{index} does not serve this predicate")
    handed, found_by = [], SparkWorker._found

    def recorded(worker: SparkWorker, pairs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        handed.append(len(pairs["left"]))
        return found_by(worker, pairs)

    monkeypatch.setattr(SparkWorker, "_found", recorded)
    xs = [np.random.default_rng(seed).integers(0, 2, 300).astype(np.int32) for seed in (1, 2)]
    sides = [
        batch_of(300, letter).set_column(1, "x", pa.array(x)) for letter, x in zip("lr", xs, strict=True)
    ]
    found: list[tuple[int, int]] = []
    for rows in step(task, [sides[0]], [sides[1]]):
        assert rows.num_rows <= 2000
        found += zip(rows["n"].to_pylist(), rows["n_right"].to_pylist(), strict=True)
    expected = [(l, r) for l in range(300) for r in range(300) if matches(xs[0][l], xs[1][r])]
    assert len(expected) > 20_000
    assert sorted(found) == expected
    assert max(handed) < 1000 + 2 * MIN_SCAN_ROOM, "what the kernels find is not collected"


ROWS = pa.schema({"ts": pa.int64(), "x": pa.int32(), "name": pa.string()})
WINDOWS = (sj.TimeWindow(30), sj.TimeWindow(30, 5), sj.RowWindow(40), (sj.TimeWindow(30), sj.RowWindow(20)))


@pytest.mark.parametrize("order", STREAM_ORDERS)
@pytest.mark.parametrize("how", HOW)
def test_oracle_in_tiny_pieces(start, oracle, own_cache, monkeypatch, how, order):
    """The rows that the oracle gives, none of them in a piece with more rows or bytes than allowed."""
    tuning = SparkTuning(result_rows=7, result_bytes=300, pair_room=16)
    joined = SparkWorker._rows

    def bounded(worker: SparkWorker, ids: Any) -> Iterator[pa.RecordBatch]:
        for rows in joined(worker, ids):
            assert rows.num_rows <= 7
            assert rows.num_rows == 1 or sum(map(text_bytes, rows.columns)) <= 300
            yield rows

    monkeypatch.setattr(SparkWorker, "_rows", bounded)
    random = Random(f"{how} {order}")
    for window in WINDOWS:
        on = random.choice([EQUAL, NEAR, TEXT])
        task = JoinTask(
            sj.JoinSpec(ROWS, ROWS, on, window, "ts", "ts", how),
            Options(order=order, engine="spark"),
            tuning=tuning,
        )
        left, right = (some_rows(random, letter) for letter in "lr")
        query = start(task)
        query.batch(left[:20], right[:30], 0)
        query.batch(left[20:], right[30:], 0)
        query.finish()
        assert sorted(query.rows, key=repr) == oracle(task, left, right), (on, window)


@pytest.mark.parametrize("order", STREAM_ORDERS)
@pytest.mark.parametrize("how", HOW)
def test_oracle_when_new_rows_are_several_runs(start, oracle, own_cache, monkeypatch, how, order):
    """As with large rows: those of a micro-batch become several runs, of which few are merged."""
    tuning = SparkTuning(run_bytes=300, merged_run_bytes=600)
    stepped, runs = SparkWorker.step, []

    def in_parts(worker: SparkWorker, batches: Any, watermark: int) -> Iterator[pa.RecordBatch]:
        parts = {
            side: [batch.slice(at, 5) for batch in given for at in range(0, batch.num_rows, 5)]
            for side, given in batches.items()
        }
        yield from stepped(worker, parts, watermark)
        runs.append(max(len(held) for held in worker.state.runs.values()))

    monkeypatch.setattr(SparkWorker, "step", in_parts)
    random = Random(f"{how} {order}")
    for window in WINDOWS:
        on = random.choice([EQUAL, NEAR, TEXT])
        task = JoinTask(
            sj.JoinSpec(ROWS, ROWS, on, window, "ts", "ts", how),
            Options(order=order, engine="spark"),
            tuning=tuning,
        )
        left, right = (sorted(some_rows(random, letter)) for letter in "lr")
        query = start(task)
        query.batch(left[:20], right[:20], 0)
        query.batch(left[20:], right[20:], min(left[20][0], right[20][0]) - 1)
        query.finish()
        assert sorted(query.rows, key=repr) == oracle(task, left, right), (on, window)
    assert max(runs) > 2


def some_rows(random: Random, letter: str) -> list[tuple[int, int, str]]:
    """Rows with few keys; now and then one with a long name."""
    lengths = [random.choice([0, 3, 3, 3, 400]) for _ in range(40)]
    return [(random.randrange(1, 30), random.randrange(3), letter * length) for length in lengths]


def text_bytes(column: pa.Array) -> int:
    return sum(len(text) for text in column.to_pylist() if isinstance(text, str))


# Memory

MEMORY: dict[str, Callable[[], Iterator[Any]]] = {
    "many pairs": lambda: frames_of(make_task(), batch_of(3000, "left"), batch_of(3000, "right")),
    "long strings": lambda: frames_of(make_task(), batch_of(1000, "l" * 1000), batch_of(1000, "r" * 1000)),
    "rows of a megabyte": lambda: frames_of(
        make_task(how="full"), batch_of(24, "l" * 10**6), batch_of(24, "r" * 10**6)
    ),
    "long strings compared": lambda: frames_of(
        make_task(TEXT), batch_of(700, "l" * 1000), batch_of(700, "r" * 1000)
    ),
    "a row window": lambda: step(
        make_task(NEAR, sj.RowWindow(5000)),
        [tied(batch_of(1000, "l" * 1000))],
        [tied(batch_of(1000, "r" * 1000))],
        END_OF_TIME,
    ),
    "no partners": lambda: step(
        make_task(how="full"),
        [batch_of(10**6, "l" * 100, x=0)],
        [batch_of(10**6, "r" * 100, x=1)],
        END_OF_TIME,
    ),
    "six thousand by six thousand": lambda: frames_of(
        make_task(), batch_of(6000, "left"), batch_of(6000, "right")
    ),
    "left, long strings": lambda: frames_of(
        make_task(how="left"), batch_of(1500, "l" * 1000), batch_of(1500, "r" * 1000)
    ),
    "full, six thousand by six thousand": lambda: frames_of(
        make_task(how="full"), batch_of(6000, "left"), batch_of(6000, "right")
    ),
    "as of, six thousand by six thousand": lambda: picks_of(sj.AsOf("nearest"), 6000, 4),
    "nearest, long strings scored": lambda: picks_of(sj.Nearest(BY_NAME), 700, 1000),
    "nearest, all of long strings": lambda: picks_of(sj.Nearest("right.n", k=1500), 1500, 1000),
    "nearest, a thousand of six thousand": lambda: picks_of(sj.Nearest("right.n", k=1000), 6000, 4),
}
SHORT = ("many pairs", "long strings", "rows of a megabyte", "nearest, long strings scored")


def picks_of(keep: Any, count: int, length: int) -> Iterator[pa.RecordBatch]:
    """What left rows pick among as many right rows of the same key and time."""
    left, right = (tied(batch_of(count, letter * length)) for letter in "lr")
    return step(make_task(keep=keep, how="left"), [left], [right], END_OF_TIME)


def tied(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(TIE, pa.array(np.arange(batch.num_rows)))


@pytest.mark.parametrize(
    "case", [name if name in SHORT else pytest.param(name, marks=pytest.mark.slow) for name in MEMORY]
)
def test_a_burst_takes_little_memory(case):
    done = subprocess.run([sys.executable, __file__, case], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < MOST_MEMORY


def measure(case: str) -> int:
    """Bytes by which this process grows at most while the results of a burst come."""
    for _ in frames_of(make_task(), batch_of(3, "l"), batch_of(3, "r")):
        pass  # compiles
    results = MEMORY[case]()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    for _ in results:
        peak = resident("VmHWM")
    return peak - before


def resident(name: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


# On Spark


class Bursts:
    """Two folders of files of rows that all have one key, and a join of them that counts what it finds."""

    def __init__(self, spark: SparkSession, folder: Path):
        self.spark, self.folder, self.found = spark, folder, [0, 0]

    def put(self, number: int, **counts: int) -> None:
        """One more file per side with that many rows, whose names have 1,000 letters."""
        for side, count in counts.items():
            times = pa.array(np.arange(count) + 1_700_000_000_000_000, pa.timestamp("us", "UTC"))
            table = pa.table({"ts": times, "x": np.zeros(count, np.int32), "name": [side[0] * 1000] * count})
            (self.folder / side).mkdir(exist_ok=True)
            pq.write_table(table, self.folder / side / f"{number}.parquet")

    def joined(self, streaming: bool) -> DataFrame:
        reader: Any = self.spark.readStream if streaming else self.spark.read
        left, right = (
            reader.schema("ts TIMESTAMP, x INT, name STRING").parquet(str(self.folder / side))
            for side in SIDES
        )
        lateness = "1 second" if streaming else None
        return window_join(
            left, right, EQUAL, window="1 minute", left_time="ts", right_time="ts", lateness=lateness, workers=2
        )  # fmt: skip

    def count(self, batch: DataFrame, _number: int = 0) -> None:
        letters = F.sum(F.length("name") + F.length("name_right"))
        row = batch.agg(F.count("*"), F.coalesce(letters, F.lit(0))).collect()[0]
        self.found = [self.found[0] + row[0], self.found[1] + row[1]]

    def run(self) -> None:
        """Start the query, or start it again, and let it read everything that is there."""
        writer = self.joined(True).writeStream.foreachBatch(self.count)
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()


@pytest.fixture
def bursts(spark: SparkSession, tmp_path: Path) -> Bursts:
    return Bursts(spark, tmp_path)


class WorkerMemory(threading.Thread):
    """Looks at the memory of Spark's Python processes until it is stopped."""

    def __init__(self, spark: SparkSession):
        super().__init__(daemon=True)
        self._java = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
        self._ended, self.first, self.peak = threading.Event(), self.largest(), 0

    def largest(self) -> int:
        sizes = [0]
        for process in self._java.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "python" in process.name():
                    sizes.append(process.memory_info().rss)
        return max(sizes)

    def run(self) -> None:
        while not self._ended.wait(0.02):
            self.peak = max(self.peak, self.largest())

    def stop(self) -> int:
        """By how much the largest process grew at most."""
        self._ended.set()
        self.join()
        return self.peak - self.first


@pytest.mark.slow
def test_a_query_survives_a_burst_and_goes_on_after_it(spark, bursts):
    bursts.put(0, left=2, right=2)
    bursts.run()
    assert bursts.found == [4, 4 * 2000]
    bursts.put(1, left=1498, right=1498)
    memory = WorkerMemory(spark)
    memory.start()
    bursts.run()
    assert memory.stop() < MOST_MEMORY
    assert bursts.found == [1500 * 1500, 1500 * 1500 * 2000]
    bursts.put(2, left=1)
    bursts.run()
    assert bursts.found[0] == 1501 * 1500


@pytest.mark.slow
def test_tables_survive_a_burst(spark, bursts):
    bursts.put(0, left=1500, right=1500)
    bursts.count(bursts.joined(False))
    assert bursts.found == [1500 * 1500, 1500 * 1500 * 2000]


if __name__ == "__main__":
    print(measure(sys.argv[1]))
