"""One local Spark for all tests, and the stateful processor without Spark.

Spark listens on loopback only, shows no user interface, and has as many shuffle partitions as workers.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.tws_tester import TwsTester

from streamjoin.semantics.spec import SIDES
from streamjoin.spark.join import routing
from streamjoin.spark.join.metrics import METRIC_NAMES
from streamjoin.spark.join.pack import divided, encode
from streamjoin.spark.join.processor import JoinProcessor
from streamjoin.spark.join.task import TIE, JoinTask
from streamjoin.spark.state import cache

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # The only state store with the column families that transformWithState needs.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The quick compiler suits a short run: the other one takes half of Java's time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # A machine that pauses for two minutes is not a lost executor.
    "spark.network.timeout": "3600s",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers need the packages installed here
    os.environ["STREAMJOIN_SPARK_CACHE_DIR"] = str(tmp_path_factory.mktemp("runs"))
    builder = SparkSession.builder.master("local[2,4]").appName("tests")  # a failed task is tried again
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.config(
        "spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse"))
    ).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    return SETTINGS


@pytest.fixture
def own_cache(tmp_path: Path) -> Iterator[Path]:
    """An empty cache for this test alone; the folder of its files."""
    folder = tmp_path / "runs"
    with cache.replaced_caches(cache.ContentCache(1 << 30), cache.FileCache(folder, 1 << 30)):
        yield folder


Row = tuple[Any, ...]


class Query:
    """A running query without Spark: packs, lets the processor join on Spark's own in-memory handle.

    Times are integers, so a tick of the data is a millisecond of the watermark. `whole`: the columns of the rows that
    come, if the task has fewer.
    """

    def __init__(self, task: JoinTask, whole: pa.Schema | None = None):
        self.task, self.ids, self.whole = task, routing.worker_ids(task.routing.workers), whole
        # The processor itself decides which rows are late.
        self.tester = TwsTester(
            JoinProcessor(task), timeMode="EventTime", eventTimeExtractor=lambda _row: 2**62
        )
        self.rows: list[Row] = []
        self.counts = dict.fromkeys(METRIC_NAMES, 0)

    def batch(
        self, left: Sequence[Row] = (), right: Sequence[Row] = (), watermark: int | None = None
    ) -> list[Row]:
        """One micro-batch: its result rows. As Spark runs it: by a processor of its own, rows first, then the timers
        that are due."""
        before = len(self.rows)
        self._begin(JoinProcessor(self.task))
        if watermark is not None and watermark > self.tester._currentWatermarkMs:
            self.tester._currentWatermarkMs = watermark
            self.tester.handle.setWatermark(watermark)
        parcels: dict[int, list[tuple[int, bytes]]] = {}
        for number, (side, rows) in enumerate(zip(SIDES, (left, right), strict=True)):
            if rows:
                parts = divided(self.task, side, self._packed(side, rows))
                for worker, part in zip(self.ids, parts, strict=True):
                    if part.num_rows or worker == 0:
                        parcels.setdefault(worker, []).append((number, encode(part)))
        for worker, values in parcels.items():
            frame = pd.DataFrame({"side": [s for s, _ in values], "rows": [data for _, data in values]})
            self._take(self.tester.testInPandas(worker, frame))
        self._take(self.tester._handleExpiredTimers())
        return self.rows[before:]

    def _begin(self, processor: JoinProcessor) -> None:
        self.tester.processor = processor
        processor.init(self.tester.handle)

    def _packed(self, side: str, rows: Sequence[Row]) -> pa.RecordBatch:
        schema = self.whole or self.task.spec.side_schema(side)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(list(column), field.type)
                for column, field in zip(zip(*rows, strict=True), schema, strict=True)
            ],
            schema=schema,
        ).select(self.task.spec.side_schema(side).names)
        if not self.task.tied:
            return batch
        return batch.append_column(TIE, pa.array([tie(row) for row in rows], pa.int64()))

    def _take(self, frame: pd.DataFrame) -> None:
        if not len(frame):  # a list if there is nothing
            return
        for rows, told in zip(*(pa.array(frame[place]).to_pylist() for place in (0, 1)), strict=True):
            self.rows += [tuple(row.values()) for row in rows or ()]
            if told is not None:
                worker, *counts = told
                assert worker in self.ids
                for name, count in zip(METRIC_NAMES, counts, strict=True):
                    self.counts[name] += count

    def finish(self, far: int = 10**9) -> list[Row]:
        """Let the watermark pass everything."""
        return self.batch(watermark=far)

    def restart(self) -> None:
        """The join as another process would see it: unpickled, with nothing but the state."""
        self.task = pickle.loads(pickle.dumps(self.task))
        cache.RUN_MEMORY._held.clear()

    def runs(self) -> int:
        """How many values the state store holds."""
        return sum(len(runs) for runs in self.tester.handle.map_states["runs"].state.values())

    def snapshot(self) -> bytes:
        handle = self.tester.handle
        maps = {name: held.state for name, held in handle.map_states.items()}
        return pickle.dumps((maps, handle.value_states["manifest"].state, handle._timers._key_to_timers))

    def restore(self, snapshot: bytes) -> None:
        """Back to what was committed, as Spark does when a task fails."""
        handle = self.tester.handle
        maps, handle.value_states["manifest"].state, handle._timers._key_to_timers = pickle.loads(snapshot)
        for name, values in maps.items():
            handle.map_states[name].state = values


def tie(row: Row) -> int:
    """A hash of a row's content, as Spark's `xxhash64` is one."""
    return int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=8).digest(), signed=True)


@pytest.fixture(scope="session")
def start() -> type[Query]:
    return Query


def expected(task: JoinTask, left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """The oracle's rows of a stream, sorted. Rows of equal time are ordered by their ties. The last rows of a row
    window can meet what comes next for ever, so none of them is without partners yet, or picks."""
    spec = task.spec
    rows, tables = {}, []
    for side, given in (("left", left), ("right", right)):
        rows[side], schema = sorted(given, key=lambda row: (row[0], tie(row))), spec.side_schema(side)
        columns = [
            pa.array([row[place] for row in rows[side]], field.type) for place, field in enumerate(schema)
        ]
        tables.append(pa.table(columns, schema=schema))
    nothing = {side: (None,) * len(spec.side_schema(side)) for side in SIDES}
    found: list[Row] = []
    later = spec.keep != "all" and spec.left_window.rows and getattr(spec.keep, "direction", "") != "backward"
    decided = len(rows["left"]) - (spec.left_window.size if later else 0)
    for time, l, r in sj.oracle.rows(tables[0], tables[1], spec):
        waits = spec.side_window("right" if l is None else "left").rows and time == sj.oracle.END_OF_STREAMS
        if None in (l, r) and spec.how != "semi" and waits:
            continue
        if l is not None and l >= decided:
            continue
        sides = [nothing["left"] if l is None else rows["left"][l]]
        if spec.how not in ("semi", "anti"):
            sides.append(nothing["right"] if r is None else rows["right"][r])
        found.append(sum(sides, ()))
    return sorted(found, key=repr)


@pytest.fixture(scope="session")
def oracle() -> Any:
    return expected
