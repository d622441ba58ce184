"""From Arrow to what kernels read: the columns of a pushed batch, and of rows that are fetched again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamjoin.codegen.columns import ColumnData, to_column_data
from streamjoin.codegen.evaluate import key_dtype
from streamjoin.codegen.programs import WindowProgram
from streamjoin.engine.results import ResultBuffer
from streamjoin.index.tuples import FIRST_KEY, TS, ProbingTuples
from streamjoin.plan.choose import TRAITS
from streamjoin.plan.physical import Plan
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.spec import OTHER
from streamjoin.semantics.types import Type


@dataclass(frozen=True)
class Reading:
    """How a side's batches become prepared tuples: which of their columns its own window, or a probe into the other
    one, reads, looked up once."""

    schema: pa.Schema  # of a batch
    own: WindowProgram
    opposite: WindowProgram
    columns: tuple[tuple[int, Type], ...]  # numbers in a batch
    stored: tuple[int, ...]  # which of `columns`, in the order the programs read them
    probing: tuple[int, ...]
    shared: Mapping[str, int]  # columns whose values the window reads as they are: their positions in a tuple

    @classmethod
    def of(cls, plan: Plan, side: str, schema: pa.Schema) -> Reading:
        own, opposite = plan.programs[side], plan.programs[OTHER[side]]
        read = list(dict.fromkeys([*own.stored_columns, *opposite.probe_columns]))
        columns = tuple((schema.get_field_index(column.name), column.type) for column in read)
        stored, probing = (
            tuple(map(read.index, chosen)) for chosen in (own.stored_columns, opposite.probe_columns)
        )
        return cls(schema, own, opposite, columns, stored, probing, shared_columns(plan, side, schema))

    def tuples(self, batch: pa.RecordBatch, ts: np.ndarray, first: int, source: int) -> ProbingTuples:
        """A batch's tuples in both roles, with ids from `first` on."""
        count = len(ts)
        data = [to_column_data(batch.column(number), kind) for number, kind in self.columns]
        stored = self.own.stored_of([data[number] for number in self.stored], count)
        probing = self.opposite.probing_of([data[number] for number in self.probing], count)
        nulls = not (stored.all_known() and probing.all_known())
        for column in data:
            nulls |= column.valid is not None
        sources = np.empty(count, np.int32)
        sources.fill(source)
        return ProbingTuples(ts, np.arange(first, first + count), sources, stored, nulls, probing)

    def shared_values(self, tuples: ProbingTuples) -> list[np.ndarray] | None:
        """The values of the shared columns; None if there are none, or a key is NULL."""
        if not self.shared or not tuples.stored.all_known():
            return None
        keys = tuples.stored.columns
        return [tuples.ts if at == TS else keys[at - FIRST_KEY] for at in self.shared.values()]


def shared_columns(plan: Plan, side: str, schema: pa.Schema) -> dict[str, int]:
    """The columns of a side's rows that an index window holds as they came, and their positions in a tuple. Only where
    the topology lets its windows read them there."""
    if not TRAITS[plan.topology].shares_rows or plan.windows[side].kind == "scan":
        return {}
    shared = {
        key.name: FIRST_KEY + number
        for number, key in enumerate(plan.programs[side].keys.keys)
        if isinstance(key, Column) and holds(schema.field(key.name).type, key_dtype(key.type))
    }
    spec, name = plan.spec, plan.spec.side_time(side)
    kind = schema.field(name).type
    as_it_came = kind == pa.int64() if spec.time_unit is None else kind.unit == spec.time_unit
    return {**shared, name: TS} if as_it_came else shared


def holds(kind: pa.DataType, dtype: np.dtype) -> bool:
    """Whether values of an Arrow type are numbers of exactly this one."""
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(number and np.dtype(kind.to_pandas_dtype()) == dtype)


def fetch(
    results: ResultBuffer,
    schemas: Mapping[str, pa.Schema],
    side: str,
    columns: tuple[Column, ...],
    ids: np.ndarray,
) -> dict[Column, ColumnData]:
    """Payload columns of some rows. Knows nothing of the join, so that a thread which calls it does not keep one
    alive that nobody holds any more."""
    if not columns:
        return {}
    with results.lock():
        view = results.payload[side].view()
    rows = view.take(ids, pa.schema([schemas[side].field(column.name) for column in columns]))
    return {column: to_column_data(rows.column(column.name), column.type) for column in columns}
