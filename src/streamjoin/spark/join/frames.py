"""Result rows as Spark takes them from a stateful operator, which can return nothing else: Arrow data inside pandas
DataFrames. Only the processes that join streams import this module, and pandas with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.page.model import rows_as_text
from streamjoin.spark.join.pack import Labelled, utc_type
from streamjoin.spark.join.task import JoinTask

COUNTS = pa.list_(pa.int64())


class Untouched(pd.arrays.ArrowExtensionArray):  # type: ignore[misc]  # pandas has no types
    """Arrow data that passes through pandas to Spark unchanged. Spark converts values of nested types one by one before
    it makes Arrow data of them, with `Series.apply`. That calls `map` and then looks at the first value, which Python
    may not be able to represent. So `map` returns the data, and an item is an Arrow scalar."""

    def map(self, mapper: Any, na_action: Any = None) -> Untouched:
        return self

    def __getitem__(self, item: Any) -> Any:
        return self._pa_array[item] if isinstance(item, int) else super().__getitem__(item)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
        """The data, labelled with the session's time zone if that is what differs."""
        held = self._pa_array
        data = held.chunk(0) if held.num_chunks == 1 else held.combine_chunks()
        if type is None or type == data.type or utc_type(type) != utc_type(data.type):
            return data
        return pa.array(Labelled(data, type))


def result_values(schema: pa.Schema, rows: pa.RecordBatch | None, nbytes: int) -> pa.Array:
    """Result rows for Spark, about `nbytes` in each value; a single NULL if there are none."""
    if rows is None or not rows.num_rows:
        return pa.nulls(1, rows_type(schema))
    step = max(1, nbytes * rows.num_rows // max(1, rows.nbytes))
    ends = pa.array([*range(0, rows.num_rows, step), rows.num_rows], pa.int32())
    together = pa.StructArray.from_arrays(rows.columns, fields=list(schema))
    return pa.ListArray.from_arrays(ends, together, rows_type(schema))


def output_frame(
    values: pa.Array, told: Sequence[int] | None = None, shown: Sequence[str] | None = None
) -> pd.DataFrame:
    """A frame for Spark: result rows, and next to the last of them the worker's id and counts. Counts have no frame of
    their own, because every frame costs Spark a millisecond. `shown`: for the column `SHOWN`; None if there is none."""
    before = [None] * (len(values) - 1)
    columns = [values, pa.array([*before, told], COUNTS)]
    if shown is not None:
        columns.append(pa.array([*before, shown or None], pa.list_(pa.string())))
    # Spark takes columns without names in their order, which saves a copy of the frame.
    return pd.DataFrame({at: Untouched(column) for at, column in enumerate(columns)}, copy=False)


def shown_of(task: JoinTask, rows: pa.RecordBatch | None) -> list[str] | None:
    """The last of these result rows as JSON, for `output_frame`; without rows that came too late."""
    if not task.shown_rows:
        return None
    if rows is None:
        return []
    last = rows.slice(max(0, rows.num_rows - task.shown_rows))
    if task.late is not None:
        last = last.filter(pc.invert(last.column(task.late)))
    return [json.dumps(row) for row in rows_as_text(last.select(task.columns))]


def rows_type(schema: pa.Schema) -> pa.DataType:
    """The type of a value that holds any number of rows."""
    return pa.list_(pa.field("element", pa.struct(list(schema)), nullable=False))
