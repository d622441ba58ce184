"""State has a version: state of this version stays readable, and state of another version is refused with a message.

`state_1.json` is the state of a left join after two micro-batches, as the first version 1 wrote it, and
`checkpoint_1.tar.gz` the checkpoint of a query after two micro-batches. In `state_1_keyed.json` and
`checkpoint_1_keyed.tar.gz`, which are younger, the manifest has two more optional fields, `token` and `key`. A change
of the format needs another version, and new files here, or a line in docs/compatibility.md that old state is refused:

    cd tests/spark/state && python test_versions.py state_2.json checkpoint_2.tar.gz
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streamjoin.plan.options import Options
from streamjoin.plan.routing import Routing
from streamjoin.spark.job.failure import query_failure
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.processor import JoinProcessor
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.sessions import ROCKSDB
from streamjoin.spark.state import manifest as state
from streamjoin.spark.state.manifest import MemoryStore, State
from streamjoin.spark.window_join import assemble, make_task, spec_of, watermarked, window_join

HERE = Path(__file__).parent
PROMISE = Path(__file__).parents[3] / "docs" / "compatibility.md"
SCHEMA = pa.schema({"ts": pa.timestamp("us", "UTC"), "x": pa.int32(), "name": pa.string()})
TASK = JoinTask(
    sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow("40 us"), "ts", "ts", "left"),
    Options(engine="spark"),
    Routing("hash", 1),
)


def rows(begin: int, seed: int) -> pa.RecordBatch:
    """Twenty rows, one a microsecond, of ten keys; some have none."""
    random = np.random.default_rng([begin, seed])
    keys = [None if key == 10 else int(key) for key in random.integers(0, 11, 20)]
    names = [f"{seed}-{begin + at}" for at in range(20)]
    return pa.record_batch([list(range(begin, begin + 20)), keys, names], schema=SCHEMA)


def step(store: MemoryStore, begin: int) -> list[str]:
    """A micro-batch of rows from `begin` on, all older ones settled; its results."""
    counts = Counts()
    held = State(TASK, store, counts)
    batches = {"left": [rows(begin, 1)], "right": [rows(begin, 2)]}
    results = list(SparkWorker(TASK, 0, held, counts).step(batches, begin - 1))
    held.save()
    return sorted(repr(row) for batch in results for row in batch.to_pylist())


def written() -> MemoryStore:
    """The state that this version writes."""
    store = MemoryStore()
    for begin in (0, 20):
        step(store, begin)
    return store


@pytest.mark.parametrize(("name", "keyed"), [("state_1.json", False), ("state_1_keyed.json", True)])
def test_state_that_version_1_has_written_is_read(own_cache, name, keyed):
    stored, read = json.loads((HERE / name).read_text()), MemoryStore()
    read.manifest = base64.b64decode(stored["manifest"])
    manifest = json.loads(read.manifest)
    assert manifest["version"] == 1
    assert ("key" in manifest, "token" in manifest) == (keyed, keyed)
    for name, data in stored["values"].items():
        kind, number = name.split("/")
        read.values[kind, int(number)] = base64.b64decode(data)
    fresh = written()
    for begin in (40, 60, 200):
        expected = step(fresh, begin)
        assert expected and step(read, begin) == expected


def test_the_compatibility_page_names_the_state_version_of_this_release():
    listed = dict(re.findall(r"^\| (\d+\.\d+) \| (\d+) \|", PROMISE.read_text(), re.MULTILINE))
    minor, _ = sj.__version__.rsplit(".", 1)
    assert listed[minor] == str(state.STATE_VERSION)


def join(spark: SparkSession, folder: Path, begin: int) -> list[str]:
    """Let a query that has its checkpoint in `folder` join the rows from `begin` on; its results."""
    for side, seed in (("left", 1), ("right", 2)):
        (folder / side).mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_batches([rows(begin, seed)]), folder / side / f"{begin}.parquet")
    left, right = (
        spark.readStream.schema("ts TIMESTAMP, x INT, name STRING").parquet(str(folder / side))
        for side in ("left", "right")
    )
    result = window_join(
        left, right, "left.x = right.x", window=TASK.spec.window, left_time="ts", right_time="ts",
        lateness="1 ms", workers=2,
    )  # fmt: skip
    found: list[str] = []
    writer = result.writeStream.foreachBatch(lambda batch, _: found.extend(told(batch.toArrow())))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    return sorted(found)


def told(results: pa.Table) -> list[str]:
    return [repr(tuple(row.values())) for row in results.to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkpoint_1.tar.gz", "checkpoint_1_keyed.tar.gz"])
def test_a_query_resumes_from_a_checkpoint_of_version_1(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """The rows of its first two micro-batches are in its state alone."""
    with tarfile.open(HERE / name) as stored:
        stored.extractall(tmp_path, filter="data")
    checkpoint = tmp_path / "checkpoint"
    for entry in (*checkpoint.glob("sources/*/[0-9]*"), *checkpoint.glob("state/0/_metadata/v2/[0-9]*")):
        moved = rf"file://{tmp_path}\1"  # they name files by their whole path
        entry.write_text(re.sub(r'file:/[^"]*?(/(?:left|right|checkpoint)/)', moved, entry.read_text()))
        entry.with_name(f".{entry.name}.crc").unlink()
    before, everything = (
        [pa.Table.from_batches([rows(begin, seed) for begin in range(0, end, 20)]) for seed in (1, 2)]
        for end in (40, 60)
    )
    spec = replace(TASK.spec, how="inner")  # as that of the query
    known, expected = (told(sj.oracle.join(left, right, spec)) for left, right in (before, everything))
    new = Counter(expected) - Counter(known)
    assert join(spark, tmp_path, 40) == sorted(new.elements())
    assert any("1-3" in row for row in new), "a row of the second micro-batch meets one of the third"


@contextmanager
def another_version() -> Iterator[None]:
    """What a later version of the library would write, in a worker that then serves other queries."""
    before, state.STATE_VERSION = state.STATE_VERSION, 99
    try:
        yield
    finally:
        state.STATE_VERSION = before


class LaterProcessor(JoinProcessor):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        with another_version():
            yield from super().handleInputRows(key, rows, timerValues)


@pytest.mark.slow
def test_a_checkpoint_of_another_version_is_refused_in_a_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    (tmp_path / "in").mkdir()

    def run(processor: Any, number: int) -> None:
        frame = spark.createDataFrame([(number, number)], "ts BIGINT, x INT").coalesce(1)
        frame.write.mode("append").parquet(str(tmp_path / "in"))
        left, right = (
            spark.readStream.schema("ts BIGINT, x INT").parquet(str(tmp_path / "in")) for _ in range(2)
        )
        spec = spec_of(left, right, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
        task = make_task(spec, "any", "auto", "auto", workers=2)
        result = assemble(*watermarked(task, left, right, 0), processor)
        writer = result.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run(LaterProcessor, 1)
    with pytest.raises(StreamingQueryException) as refused:
        run(JoinProcessor, 2)
    assert query_failure(str(refused.value)) == (
        f"the query failed: this checkpoint has state of version 99, and this streamjoin reads versions 1 "
        f"to {state.STATE_VERSION}: run the version that wrote it, or start with a new checkpoint"
    )


if __name__ == "__main__":
    store = written()
    assert store.manifest is not None
    values = {
        f"{kind}/{number}": base64.b64encode(data).decode() for (kind, number), data in store.values.items()
    }
    manifest = base64.b64encode(store.manifest).decode()
    Path(sys.argv[1]).write_text(json.dumps({"manifest": manifest, "values": values}, indent=1) + "\n")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", True)
    )
    with tempfile.TemporaryDirectory() as folder:
        for begin in (0, 20):
            join(session.getOrCreate(), Path(folder), begin)
        with tarfile.open(sys.argv[2], "w:gz") as stored:
            stored.add(Path(folder) / "checkpoint", "checkpoint")
