"""Pipelines whose costs are compared: Spark alone, an operator that drops everything, and the join.

All are queries of one session and take turns, so that they see the same Java and the same machine. Each can also run as
it did before Java was relieved (`before`): a watermark that looks at every row, batches for Python that Spark measures
after each row, and Spark's own way to write the files of a checkpoint.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.shared.band import PREDICATE
from benchmarks.shared.processor_time import Spent, spent
from benchmarks.shared.spark import (
    MICROSECONDS_PER_ROW,
    NAMES,
    SCHEMAS,
    batches_of,
    domain_of,
    window_of,
    write_files,
)
from streamjoin.spark.batch_limit import BATCH_BYTES, OURS, lift_limit
from streamjoin.spark.job.session import FILE_MANAGER, FILE_MANAGER_SETTING
from streamjoin.spark.join import process
from streamjoin.spark.join.processor import JoinProcessor
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.sessions import SHUFFLE_PARTITIONS
from streamjoin.spark.window_join import assemble, make_task, spec_of, watermarked

WINDOW = 1_000_000  # rows of a side
FILES = 2  # of a side in a micro-batch, so that both cores read
WARM_UP, FILLING = (
    6,
    3,
)  # micro-batches before the first that counts: of a session's first pipelines, and of others
# Workers cannot import this file: Drop is sent to them by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Drop(StatefulProcessor):
    """An operator that reads its input and returns nothing."""

    def __init__(self, _task: JoinTask):
        pass

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("nothing", "data BINARY")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        for _ in rows:
            pass
        return iter(())

    def close(self) -> None:
        process.GARBAGE.end_task()  # as the join does, so that only the joining itself differs


class Kind(NamedTuple):
    """A pipeline. `processor`: None for reading and shuffling without Python. `before`: as before Java was relieved."""

    name: str
    processor: Callable[[JoinTask], StatefulProcessor] | None
    before: bool = False


KINDS = (
    Kind("read and shuffle", None),
    Kind("drop", Drop),
    Kind("drop, before", Drop, before=True),
    Kind("join", JoinProcessor),
    Kind("join, before", JoinProcessor, before=True),
)


class Pipeline:
    """A query that lives through the run and works while it is fed."""

    def __init__(self, session: SparkSession, files: Path, kind: Kind, partitions: int):
        self.session, self.files, self.kind, self._fed, self._last = session, files, kind, 0, -1
        self.folder = Path(tempfile.mkdtemp(prefix="pipeline"))
        for side in NAMES:
            (self.folder / side).mkdir()
        with settings(session, kind, partitions):
            writer = self._frame(partitions).writeStream.format("noop")
            self.query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def _frame(self, partitions: int) -> DataFrame:
        left, right = (
            self.session.readStream.schema(schema)
            .option("maxFilesPerTrigger", FILES)
            .parquet(str(self.folder / side))
            for side, schema in SCHEMAS.items()
        )
        if self.kind.processor is None:
            return left.unionAll(right).repartition(partitions, "x")
        if self.kind.before:
            delay = f"{WINDOW * MICROSECONDS_PER_ROW // 1000 + 1001} milliseconds"
            left, right = (frame.withWatermark("ts", delay) for frame in (left, right))
        spec = spec_of(left, right, PREDICATE, window_of(WINDOW), "ts", "ts")
        task, frames = watermarked(
            make_task(spec, "any", "auto", "auto", partitions), left, right, "1 second"
        )
        if not self.kind.before:
            task = lift_limit(self.session, task)
        return assemble(task, frames, self.kind.processor)

    def feed(self, count: int) -> dict[str, float]:
        """Let it join `count` micro-batches; return what they cost together."""
        for number in range(self._fed * FILES, (self._fed + count) * FILES):
            for side in NAMES:
                os.link(
                    self.files / side / f"{number:05}.parquet", self.folder / side / f"{number:05}.parquet"
                )
        self._fed += count
        before, began = spent(self.session), time.perf_counter()
        self.query.processAllAvailable()
        seconds, cost = time.perf_counter() - began, spent(self.session).since(before)
        new = [each for each in batches_of(self.query) if each["batch"] > self._last]
        self._last = new[-1]["batch"]
        return figures(cost, seconds, sum(each["rows"] for each in new), len(new))

    def stop(self) -> None:
        self.query.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def figures(cost: Spent, seconds: float, rows: int, batches: int) -> dict[str, float]:
    """What some micro-batches cost, per row and per micro-batch."""
    return {
        "java_us": cost.java * 1e6 / rows,
        "forked_us": cost.forked * 1e6 / rows,
        "python_us": cost.python * 1e6 / rows,
        "core_us": sum(cost) * 1e6 / rows,
        "core_ms_a_batch": sum(cost) * 1e3 / batches,
        "rows_per_second": rows / seconds,
        "seconds_a_batch": seconds / batches,
    }


@contextmanager
def settings(session: SparkSession, kind: Kind, partitions: int) -> Iterator[None]:
    """The settings of a pipeline, which its query copies when it starts."""
    session.conf.set(SHUFFLE_PARTITIONS, str(partitions))
    if not kind.before:
        session.conf.set(FILE_MANAGER_SETTING, FILE_MANAGER)
    try:
        yield
    finally:
        for name in (FILE_MANAGER_SETTING, BATCH_BYTES, OURS):
            session.conf.unset(name)


def taking_turns(
    session: SparkSession, rows: int, partitions: int, turns: int, batches: int, warm_up: int = FILLING
) -> Mapping[str, Sequence[dict[str, float]]]:
    """The cost of every turn of each pipeline: `batches` micro-batches of `rows` rows."""
    folder = Path(tempfile.mkdtemp(prefix="files"))
    pipelines: dict[str, Pipeline] = {}
    try:
        count = (warm_up + turns * batches) * FILES
        write_files(folder, [rows // 2 // FILES] * count, domain_of(WINDOW))
        for kind in KINDS:
            pipelines[kind.name] = Pipeline(session, folder, kind, partitions)
            pipelines[kind.name].feed(warm_up)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in pipelines}
        for number in range(turns):
            for name in list(pipelines)[:: -1 if number % 2 else 1]:
                found[name].append(pipelines[name].feed(batches))
        return found
    finally:
        for pipeline in pipelines.values():
            pipeline.stop()
        shutil.rmtree(folder, ignore_errors=True)


def point(name: str, rows: int, partitions: int, turns: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The row of a pipeline: the medians of its turns, and the least processor time."""
    return {
        "pipeline": name,
        "rows_a_batch": rows,
        "partitions": partitions,
        "turns": len(turns),
        **{key: statistics.median(turn[key] for turn in turns) for key in turns[0]},
        "least_core_us": min(turn["core_us"] for turn in turns),
        "least_core_ms_a_batch": min(turn["core_ms_a_batch"] for turn in turns),
    }
