"""What comes in: Arrow data is checked against the spec, and becomes the tuples that kernels read.

Everything that a push needs to know of its side is looked up once, when the join is opened. A small push of plain
columns is copied by one call of a kernel (`kernels/arrow.py`); all others are read column by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.codegen.columns import ColumnData, one_array, plain_dtype, to_column_data
from streamjoin.codegen.evaluate import key_dtype
from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.engine.cast_advice import cast_advice
from streamjoin.engine.column_copies import MOST_COPIED, ColumnCopier
from streamjoin.engine.frames import index_names, read_pushed
from streamjoin.engine.rows import one_batch, payload_fields, storage_schema, storage_type
from streamjoin.index.tuples import FIRST_KEY, NO_MARKS, TS, ProbingTuples
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.plan.choose import TRAITS
from streamjoin.plan.physical import Plan
from streamjoin.semantics.casts import cast_exactly, is_castable
from streamjoin.semantics.errors import InputError
from streamjoin.semantics.expressions import Column, Expr
from streamjoin.semantics.spec import OTHER, JoinSpec
from streamjoin.semantics.temporal import time_text
from streamjoin.semantics.types import TIME_SCALE, timestamp

TICKS = timestamp("ns")  # for columns in any unit: their integers are taken as they are
# What Arrow raises for values that it cannot convert; not for lack of memory.
_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowIndexError)
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


KNOWN = np.ones(MOST_COPIED, np.bool_)  # for small pushes without NULLs


@dataclass(slots=True, eq=False)
class CheckedRows:
    """Rows of one push that the join may take, with all columns. `values`: those of the columns that the intake copies,
    if none is NULL; None if columns are to be read from the batch."""

    batch: pa.RecordBatch
    ts: np.ndarray
    values: list[np.ndarray] | None = None

    def pick(self, chosen: np.ndarray) -> CheckedRows:
        """The rows for which `chosen` is true."""
        return CheckedRows(self.batch.filter(pa.array(chosen)), self.ts[chosen])

    def narrowed(self, names: list[str]) -> CheckedRows:
        """The rows with these columns of the batch alone."""
        return CheckedRows(self.batch.select(names), self.ts, self.values)


class TableReader:
    """How tables of one side become batches of `schema`, that of the spec in storage types."""

    def __init__(self, spec: JoinSpec, side: str):
        self.schema, self._side = storage_schema(spec.side_schema(side)), side
        # The columns that must not have NULLs: their numbers and names.
        self.required = [(number, f.name) for number, f in enumerate(self.schema) if not f.nullable]

    def batch(self, data: Any) -> pa.RecordBatch:
        """Arrow data of any kind as one batch of exactly `schema`, whose types may be the spec's or their storage
        types; copied only where chunks must be joined or a column has another layout of the same type."""
        try:
            if isinstance(data, pa.RecordBatch):
                batch = data
            elif isinstance(data, pa.Table):
                batch = one_batch(data)
            else:
                batch = one_batch(_imported(data, self.schema, self._side))
            if not batch.schema.equals(self.schema):
                batch = _conformed(batch, self.schema, self._side, data)
        except _REFUSED as error:
            raise InputError(
                f"{self._side} data cannot become one batch of the spec's types ({error}): push fewer rows at a time "
                "or convert its columns first",
                field=self._side,
                given=data,
                allowed=str(self.schema),
            ) from error
        for number, name in self.required:
            if batch.column(number).null_count:
                raise InputError(
                    f"{self._side} column {name!r} has nulls, but the spec says it is not nullable",
                    field=f"{self._side}.{name}",
                    given=None,
                    allowed="values that are not null",
                )
        return batch


class Intake:
    """How the data of one side is checked and becomes prepared tuples.

    `reader`: of whole rows, as they are pushed. `schema`: that of the rows as they are held, without the columns that
    nobody reads; `needed`: the names of its columns if some are left out, else None. `shared`: the columns whose values
    an index window reads as they came, and their positions in a tuple.
    """

    def __init__(self, plan: Plan, side: str):
        spec = plan.spec
        self.reader, self.schema = TableReader(spec, side), storage_schema(spec.needed[side])
        self.needed = self.schema.names if len(self.schema) < len(self.reader.schema) else None
        self._spec, self._side = spec, side
        self._time = self.reader.schema.get_field_index(spec.side_time(side))
        self._time_is_plain = _time_is_plain(self.reader.schema.field(self._time).type, spec)
        # The columns that the side's own window or its probes read: numbers in a batch, and types.
        self._own, self._opposite = plan.programs[side], plan.programs[OTHER[side]]
        stored, probing = self._own.stored_columns, self._opposite.probe_columns
        read = list(dict.fromkeys([*stored, *probing]))
        self._columns = [(self.schema.get_field_index(column.name), column.type) for column in read]
        self._stored, self._probing = [read.index(c) for c in stored], [read.index(c) for c in probing]
        # Whether keys and bounds are columns as they came: without NULLs in these, there are none.
        self._columns_only = self._own.keys.are_columns and self._opposite.bounds.are_columns
        self._columns_only &= self._own.block is None and self._opposite.block is None
        self.shared = shared_columns(plan, side, self.schema)
        self._copier = self._make_copier()
        self._last_source = (
            -1,
            np.empty(0, np.int32),
        )  # the source of the last small push, and its number many times
        # Where keys and bounds are columns as they came: their places among the values that are copied.
        self._keys, self._bounds = self._key_places(read), self._bound_places(read)

    def _make_copier(self) -> ColumnCopier | None:
        """Copies what small pushes need: event times, columns that are read, and payload; None if not all are plain."""
        pushed = self.reader.schema
        names = [self.schema.field(number).name for number, _ in self._columns]
        read = [(pushed.get_field_index(name), plain_dtype(pushed.field(name).type)) for name in names]
        if not self._time_is_plain or any(dtype is None for _, dtype in read):
            return None
        payload = [
            (pushed.get_field_index(f.name), f.dtype) for f in payload_fields(self.schema, self.shared)
        ]
        copied = [(self._time, np.dtype(np.int64)), *read, *payload]
        return ColumnCopier(
            [(number, cast(np.dtype, dtype)) for number, dtype in copied],
            [number for number, _ in self.reader.required],
        )

    def _key_places(self, read: list[Column]) -> list[int] | None:
        own = self._own
        if own.block is not None or not own.keys.are_columns:
            return None
        return self._places(read, own.keys.keys, own.keys.dtypes)

    def _bound_places(self, read: list[Column]) -> list[int] | None:
        opposite = self._opposite
        bands = [clause.bands[0] for clause in opposite.clauses if len(clause.bands) == 1]
        if (
            opposite.block is not None
            or len(bands) < len(opposite.clauses)
            or not opposite.bounds.are_columns
        ):
            return None
        return self._places(read, [band.lo for band in bands], [key_dtype(band.key.type) for band in bands])

    def _places(
        self, read: list[Column], wanted: Sequence[Expr | None], dtypes: Sequence[np.dtype]
    ) -> list[int] | None:
        """Where the values of columns are among those that are copied; None if some are held as another type."""
        found = [read.index(cast(Column, column)) for column in wanted]
        held = [plain_dtype(self.schema.field(self._columns[at][0]).type) for at in found]
        return [1 + at for at in found] if held == list(dtypes) else None

    def checked(self, data: Any) -> CheckedRows:
        """The rows that a push brings; `InputError` if they do not fit the spec."""
        copier = self._copier
        if copier is not None and isinstance(data, pa.RecordBatch) and data.schema.equals(self.reader.schema):
            values = copier.values(data)
            if values is not None:
                return CheckedRows(data, values[0], values)
        batch = self.reader.batch(data)
        return CheckedRows(batch, self.times(batch))

    def times(self, batch: pa.RecordBatch) -> np.ndarray:
        """The event times of a batch of `schema`, in ticks of the spec's unit, as int64."""
        column = batch.column(self._time)
        if self._time_is_plain and not column.null_count:
            return to_column_data(column, TICKS).parts[0]
        return _ticks(column, self._spec, self._side)

    def tuples(self, rows: CheckedRows, first: int, source: int) -> ProbingTuples:
        """The tuples of rows in both roles, with ids from `first` on."""
        ts, values = rows.ts, rows.values
        count = len(ts)
        sources = self._sources_of(source, count)
        ids = np.arange(first, first + count)
        if values is not None and self._keys is not None and self._bounds is not None:
            known, bounds = KNOWN[:count], tuple([values[at] for at in self._bounds])
            stored = Stored(tuple([values[at] for at in self._keys]), known)
            return ProbingTuples(
                ts, ids, sources, stored, False, Probing(known, bounds, bounds), marks=NO_MARKS
            )
        if values is not None and self._keys is not None:
            probing = self._opposite.probing_of_values([values[1 + at] for at in self._probing], count)
            stored = Stored(tuple([values[at] for at in self._keys]), KNOWN[:count])
            return ProbingTuples(ts, ids, sources, stored, not probing.all_known(), probing, marks=NO_MARKS)
        data = self._data(rows)
        probing = self._opposite.probing_of([data[at] for at in self._probing], count)
        stored = self._own.stored_of([data[at] for at in self._stored], count)
        nulls = not (self._columns_only or (stored.all_known() and probing.all_known()))
        for column in data:
            nulls |= column.valid is not None
        return ProbingTuples(ts, ids, sources, stored, nulls, probing, marks=NO_MARKS)

    def _sources_of(self, source: int, count: int) -> np.ndarray:
        """The number of a source, as often as there are rows."""
        if count > MOST_COPIED:
            return np.full(count, source, np.int32)
        if self._last_source[0] != source:
            self._last_source = source, np.full(MOST_COPIED, source, np.int32)
        return self._last_source[1][:count]

    def _data(self, rows: CheckedRows) -> list[ColumnData]:
        """The columns that are read."""
        if rows.values is not None:
            return [ColumnData((each,)) for each in rows.values[1 : 1 + len(self._columns)]]
        return [to_column_data(rows.batch.column(number), kind) for number, kind in self._columns]

    def payload_values(self, rows: CheckedRows) -> list[np.ndarray] | None:
        """The values of the payload columns, if they were read."""
        return None if rows.values is None else rows.values[1 + len(self._columns) :]

    def shared_values(self, tuples: ProbingTuples) -> list[np.ndarray] | None:
        """The values of the shared columns; None if there are none, or a key is NULL."""
        if not self.shared or (tuples.nulls and not tuples.stored.all_known()):
            return None
        keys = tuples.stored.columns
        return [tuples.ts if at == TS else keys[at - FIRST_KEY] for at in self.shared.values()]


def shared_columns(plan: Plan, side: str, schema: pa.Schema) -> Mapping[str, int]:
    """The columns of a side's rows that an index window holds as they came, and their positions in a tuple. Only where
    the topology lets its windows read them there."""
    if not TRAITS[plan.topology].shares_rows or plan.windows[side].kind == "scan":
        return {}
    shared = {
        key.name: FIRST_KEY + number
        for number, key in enumerate(plan.programs[side].keys.keys)
        if isinstance(key, Column) and _is_held_as(schema.field(key.name).type, key_dtype(key.type))
    }
    name = plan.spec.side_time(side)
    return {**shared, name: TS} if _time_is_plain(schema.field(name).type, plan.spec) else shared


def _time_is_plain(kind: pa.DataType, spec: JoinSpec) -> bool:
    """Whether values of a time column are ticks of the spec's unit as they are."""
    return bool(kind == pa.int64() if spec.time_unit is None else kind.unit == spec.time_unit)


def _is_held_as(kind: pa.DataType, dtype: np.dtype) -> bool:
    """Whether values of an Arrow type are numbers of exactly this one."""
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(number and np.dtype(kind.to_pandas_dtype()) == dtype)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema, side: str, data: Any) -> pa.RecordBatch:
    """The batch in the order and the types of the spec. `data`: what was pushed."""
    missing = [name for name in schema.names if name not in batch.schema.names]
    extra = [name for name in batch.schema.names if name not in schema.names]
    if missing or extra or len(batch.schema.names) != len(schema.names):
        raise InputError(
            f"{side} data has columns {batch.schema.names}, the spec says {schema.names}"
            + (f"; missing: {missing}" if missing else "")
            + (f"; not in the spec: {extra}" if extra else ""),
            field=side,
            given=batch.schema.names,
            allowed=schema.names,
        )
    columns = [conform(batch.column(field.name), field, side, data) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _imported(data: Any, schema: pa.Schema, side: str) -> pa.Table:
    """Data of another library. An index of pandas is a column only if the spec has it."""
    if isinstance(data, list) and not data:  # a poll of a source that had no rows
        return schema.empty_table()
    indexed = [name for name in index_names(data) if name in schema.names and name not in data.columns]
    return read_pushed(data.reset_index(indexed) if indexed else data, side)


def conform(column: pa.Array, field: pa.Field, side: str, data: Any = None) -> pa.Array:
    """The column in the spec's type, the same values: another layout is converted, another type cast if it can hold
    every value (`semantics/casts.py`), and all else refused. A column without any value has the type null in pandas
    and polars, and is one of the spec's type. `data`: what was pushed, which decides how an error words a cast."""
    if column.type == field.type:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), field.type)
    plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    alike = any(
        any(t(plain) for t in family) and any(t(field.type) for t in family) for family in (_TEXT, _BINARY)
    )
    if storage_type(plain) == storage_type(field.type) or alike:
        return one_array(column).cast(storage_type(plain)).cast(field.type)

    def advice() -> str:
        return cast_advice(data, side, field.name, field.type)

    if is_castable(plain, field.type):
        return cast_exactly(one_array(column), field.type, side, field.name, advice)
    if pa.types.is_timestamp(plain) and pa.types.is_timestamp(field.type):
        hint = "give it its zone, such as with pandas' dt.tz_localize or polars' dt.replace_time_zone"
    else:
        hint = f"cast it first, such as {advice()}"
    raise InputError(
        f"{side} column {field.name!r} has type {column.type}, the spec says {field.type}: {hint}",
        given=str(column.type),
        allowed=str(field.type),
        field=f"{side}.{field.name}",
    )


def event_times(batch: pa.RecordBatch, spec: JoinSpec, side: str) -> np.ndarray:
    """The time column in ticks of the spec's unit, as int64."""
    return _ticks(batch.column(batch.schema.get_field_index(spec.side_time(side))), spec, side)


def _ticks(column: pa.Array, spec: JoinSpec, side: str) -> np.ndarray:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InputError(
            f"{side} time column {spec.side_time(side)!r} is null at row {row}: every tuple needs an event time; "
            "leave such rows out",
            field=f"{side}_time",
            given=None,
            allowed="an event time",
        )
    ticks = to_column_data(column, TICKS).parts[0]
    if spec.time_unit is not None:
        unit = column.type.unit
        if unit == spec.time_unit:
            return ticks
        return _to_finer_unit(ticks, unit, spec, side)
    if ticks.dtype == np.uint64 and len(ticks) and ticks.max() > np.uint64(2**63 - 1):
        raise InputError(
            f"{side} time {ticks.max()} does not fit 64 signed bits",
            field=f"{side}_time",
            given=int(ticks.max()),
            allowed="signed integers of 64 bits",
        )
    return ticks.astype(np.int64, copy=False)


def as_ticks(ts: int | datetime, spec: JoinSpec) -> int:
    """A point in time in ticks of the spec's unit."""
    if isinstance(ts, (int, np.integer)) and not isinstance(ts, bool):
        if not INT64_MIN <= ts <= INT64_MAX:
            raise InputError(
                f"{ts} does not fit 64 signed bits, as every time does; call close() on a source that has ended",
                field="ts",
                given=ts,
                allowed="signed integers of 64 bits",
            )
        return int(ts)
    kind = spec.left.field(spec.left_time).type
    if isinstance(ts, datetime) and spec.time_unit is not None and (ts.tzinfo is None) == (kind.tz is None):
        return int(pa.scalar(ts, pa.timestamp(spec.time_unit, kind.tz)).value)
    allowed = "ticks, an integer" if spec.time_unit is None else f"ticks of {spec.time_unit}, or a datetime"
    zone = "" if spec.time_unit is None else f" {'with' if kind.tz else 'without'} a time zone"
    raise InputError(
        f"{ts!r} is not a time of this join; allowed: {allowed}{zone}",
        field="ts",
        given=ts,
        allowed=allowed + zone,
    )


def _to_finer_unit(ticks: np.ndarray, unit: str, spec: JoinSpec, side: str) -> np.ndarray:
    if not len(ticks):
        return ticks
    factor: int = 10 ** (TIME_SCALE[str(spec.time_unit)] - TIME_SCALE[unit])
    worst = max(int(ticks.max()), int(ticks.min()), key=abs)
    if not -(2**63) <= worst * factor < 2**63:
        raise InputError(
            f"{side} time {time_text(worst, unit)} overflows when converted to timestamp[{spec.time_unit}], the "
            "finer unit of the two time columns",
            field=f"{side}_time",
            given=worst,
            allowed=f"what fits timestamp[{spec.time_unit}]",
        )
    return ticks * factor
