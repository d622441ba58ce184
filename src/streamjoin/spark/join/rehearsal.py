"""Calls every kernel that the workers of a join may call, on a few rows and without Spark, so that all of them are
compiled into the cache before workers need them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamjoin.index.build import compile_plan
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.pack import divided
from streamjoin.spark.join.task import END_OF_TIME, TIE, JoinTask
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state.manifest import MemoryStore, State

REHEARSED_ROWS = 64  # of each side
VALUES = 8  # different values in each column


def rehearse_task(task: JoinTask) -> None:
    """Compile what a join on Spark may call, or load it from the cache: first what small micro-batches need, then the
    structures of larger ones."""
    for nulls in (False, True):
        parcels = {side: divided(task, side, _rehearsed_rows(task, side, nulls)) for side in SIDES}
        number = max(range(task.routing.workers), key=lambda k: parcels["left"][k].num_rows)
        state = State(task, MemoryStore(), Counts())
        given = {side: [parcels[side][number]] for side in SIDES}
        for _ in SparkWorker(task, number, state, Counts()).step(given, END_OF_TIME):
            pass
    compile_plan(task.compiled.plan)


def _rehearsed_rows(task: JoinTask, side: str, nulls: bool) -> pa.RecordBatch:
    """Rows of a side, as the packer has them. With `nulls`, the first row is NULL but for its time."""
    schema, time = task.spec.side_schema(side), task.spec.side_time(side)
    columns = [
        _column(field.type, np.arange(REHEARSED_ROWS), False)
        if field.name == time
        else _column(field.type, np.arange(REHEARSED_ROWS) % VALUES, nulls and field.nullable)
        for field in schema
    ]
    names = schema.names
    if task.tied:
        columns, names = [*columns, pa.array(np.arange(REHEARSED_ROWS))], [*names, TIE]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _column(kind: pa.DataType, numbers: np.ndarray, null: bool) -> pa.Array:
    """A column with these numbers as values of a type; NULL if the type has none for them, as a list."""
    given = pa.array(numbers, mask=(numbers == 0) if null else None)
    for before in (kind, pa.int32(), pa.string()):
        try:
            return given.cast(before).cast(kind)
        except pa.ArrowException:
            continue
    return pa.nulls(len(numbers), kind)
