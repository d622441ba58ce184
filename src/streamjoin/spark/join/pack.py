"""Pack rows for their way between Spark and a worker. Rows of any type stay Arrow from the first Python process to the
last.

On the way to a worker, many rows are one binary value, an Arrow IPC stream: Spark moves, sorts and hands over a few
values per micro-batch instead of every row. `pack` makes these values before the shuffle, with `mapInArrow`. Result
rows of a join of tables are binary values again, which `unpack` reads; those of streams are frames (`frames.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, ByteType, IntegerType, StructField

from streamjoin.codegen.columns import to_column_data
from streamjoin.codegen.programs import combined
from streamjoin.semantics.errors import InputError
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.join.kernels import use_forms
from streamjoin.spark.join.metrics import MALFORMED
from streamjoin.spark.join.process import GARBAGE
from streamjoin.spark.join.routing import (
    are_first_copies,
    gets_first_copy,
    range_of,
    rows_by_hash,
    rows_by_key,
    rows_by_range,
    worker_ids,
)
from streamjoin.spark.join.task import TIE, JoinTask

PARCEL = pa.schema({"worker": pa.int32(), "side": pa.int8(), "rows": pa.binary()})
PARCEL_COLUMNS = (
    StructField("worker", IntegerType()),
    StructField("side", ByteType()),
    StructField("rows", BinaryType()),
)
# A parcel with the number of malformed rows that were dropped.
COUNTED = PARCEL.append(pa.field(MALFORMED, pa.int64()))
# A further column of parcels from which Spark computes the watermark: the time of the newest row, malformed ones
# included, of the input that was divided into this parcel and others.
NEWEST = "newest"
# A stream's worker returns result rows and, with the last of them, its id and counts as in `Counts`.
ROWS_COLUMN, COUNTS_COLUMN = "rows", "told"

PackBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def encode(batch: pa.RecordBatch) -> bytes:
    """A batch as bytes, its schema included."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """The batch that `encode` was given, without a copy of the data. Every column is declared nullable, because what
    Spark knows about NULL can change when a query restarts, and old and new rows must fit together."""
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    if all(field.nullable for field in batch.schema):
        return batch
    return pa.record_batch(Labelled(batch, pa.schema([field.with_nullable(True) for field in batch.schema])))


def packer(task: JoinTask, side: str) -> PackBatches:
    """The function that divides one side's rows among the workers. Worker 0 gets a parcel from every partition, so
    that it runs whenever there is input and can check that its state belongs to this join. The columns are those of the
    side in their order, under any names, and then the tie if rows need one."""
    names = [*task.spec.side_schema(side).names, *([TIE] if task.tied else [])]

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        use_forms(task)
        number, ids = SIDES.index(side), worker_ids(task.routing.workers)
        marked = side in dict(task.delays_ms)
        for batch in gathered(batches, task.tuning.parcel_rows, task.tuning.parcel_bytes):
            batch = batch.rename_columns(names)
            joinable, malformed = without_malformed(task, side, batch)
            parts = divided(task, side, in_utc(narrowed(joinable)))
            parcels = [
                (k, parcel)
                for k, part in enumerate(parts)
                if part.num_rows or k == 0
                for parcel in _in_parcels(part, task.tuning.parcel_value_bytes)
            ]
            columns = {
                "worker": pa.array([ids[k] for k, _ in parcels], pa.int32()),
                "side": pa.array([number] * len(parcels), pa.int8()),
                "rows": pa.array([encode(parcel) for _, parcel in parcels], pa.binary()),
            }
            if task.malformed == "drop":
                columns[MALFORMED] = pa.array([malformed, *[0] * (len(parcels) - 1)], pa.int64())
            if marked:
                newest = pc.max(batch.column(task.spec.side_time(side)))
                columns[NEWEST] = pa.array([newest] * len(parcels), newest.type)
            yield pa.record_batch(columns)
        GARBAGE.end_task()

    return pack


def _in_parcels(rows: pa.RecordBatch, nbytes: int) -> list[pa.RecordBatch]:
    """The same rows in batches of about this size; a single batch if there are none."""
    step = max(1, nbytes * rows.num_rows // max(1, rows.nbytes))
    return [rows.slice(at, step) for at in range(0, max(1, rows.num_rows), step)]


def without_malformed(task: JoinTask, side: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """The rows with a time and with a value in every NOT NULL column, and the number of other rows. O(columns) if
    there are no others."""
    spec, time = task.spec, task.spec.side_time(side)
    required = [time, *(f.name for f in spec.side_schema(side) if not f.nullable and f.name != time)]
    missing = [name for name in required if batch.column(name).null_count]
    if not missing:
        return batch, 0
    if task.malformed == "fail":
        what = "is the time" if missing[0] == time else "is declared NOT NULL"
        raise InputError(
            f"a row of {side} has NULL in {missing[0]!r}, which {what}: filter such rows out before the join, or give "
            'malformed="drop" to leave them out and count them',
            field=f"{side}.{missing[0]}",
            given=None,
            allowed='values that are not null, or malformed="drop"',
        )
    whole = reduce(pc.and_, [batch.column(name).is_valid() for name in missing])
    joinable = batch.filter(whole)
    return joinable, batch.num_rows - joinable.num_rows


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same instants, labelled UTC. Spark labels them with the session's time zone, which does not matter to a join.
    It may change when a query restarts, and old and new rows must fit together."""
    fields = [field.with_type(utc_type(field.type)) for field in batch.schema]
    if all(field.type == old for field, old in zip(fields, batch.schema.types, strict=True)):
        return batch
    return pa.record_batch(Labelled(batch, pa.schema(fields)))


class Labelled:
    """A batch with another schema, or an array with another type, whose values have the same layout. Arrow imports it
    through its C data interface, without copies or checks. A cast would refuse NULL for a struct whose fields are not
    nullable."""

    def __init__(self, data: pa.RecordBatch | pa.Array, label: pa.Schema | pa.DataType):
        self._data, self._label = data, label

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._label.__arrow_c_schema__(), self._data.__arrow_c_array__()[1]


def utc_type(kind: pa.DataType) -> pa.DataType:
    """The type with UTC in place of any time zone, inside nested types as well."""

    def in_utc(part: pa.DataType) -> pa.DataType:
        zoned = pa.types.is_timestamp(part) and part.tz is not None
        return pa.timestamp(part.unit, "UTC") if zoned else part

    return retyped(kind, in_utc)


def narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, strings and binaries with offsets of 32 bits, as state holds them. Spark gives 64 bits if
    spark.sql.execution.arrow.useLargeVarTypes is set, and the setting may change when a query restarts."""
    narrow = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    kinds = [retyped(kind, lambda part: narrow.get(part, part)) for kind in batch.schema.types]
    if kinds == batch.schema.types:
        return batch
    columns = [column.cast(kind) for column, kind in zip(batch.columns, kinds, strict=True)]
    fields = [field.with_type(kind) for field, kind in zip(batch.schema, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def retyped(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with its innermost types changed."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(retyped(field.type, change)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(retyped(kind.value_type, change)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(retyped(kind.key_type, change)),
            kind.item_field.with_type(retyped(kind.item_type, change)),
        )
    return change(kind)


def divided(task: JoinTask, side: str, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The rows for each worker."""
    if task.routing.kind == "range":
        targets = rows_by_range(task.routing, *reached_keys(task, side, batch))
        return [batch.take(pa.array(rows)) for rows in targets]
    if task.routing.kind == "hash":
        hashes, ok = equality_hashes(task, side, batch)
        if not ok.all() and side not in task.alone and not task.late:  # a NULL key matches nothing
            batch, hashes = batch.filter(pa.array(ok)), hashes[ok]
    else:
        hashes = np.asarray(batch.column(TIE))
    ties = np.asarray(batch.column(TIE)) if task.routing.divides_keys else hashes
    if task.tied and task.routing.kind != "every" and not task.ordered:
        batch = batch.drop_columns([TIE])
    if task.routing.hot:
        targets = rows_by_key(task.routing, side, hashes, ties)
    else:
        targets = rows_by_hash(task.routing, side, hashes)
    if len(targets) == 1:
        return [batch]
    return [batch.take(pa.array(rows)) for rows in targets]


def equality_hashes(task: JoinTask, side: str, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """A hash of the equality keys, the same on both sides, and which rows can match at all. Rows that cannot, such as
    those with a NULL key, get a hash of their time."""
    program, band = task.equality()  # left rows are stored, right rows probe
    count = batch.num_rows
    columns = program.stored_columns if side == "left" else program.probe_columns
    data = {column: to_column_data(batch.column(column.name), column.type) for column in columns}
    if side == "left":
        stored = program.prepare_stored(data, count)
        keys, ok = program.key_of_band(stored, band), stored.known
        assert ok is not None
    else:
        probing = program.prepare_probe(data, count)
        keys, ok = program.bounds_of_band(probing, band)[0], probing.known
    hashes = combined([keys])
    return (hashes if ok.all() else np.where(ok, hashes, combined([task.times(batch, side)]))), ok


def reached_keys(task: JoinTask, side: str, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest key that each row may meet, NaN if it meets none. Rows of the side that goes to one
    worker get their own key twice. If they match nothing but may be results, their time serves as a key."""
    ranged, once = task.compiled.ranged(task.routing), task.routing.once
    lows, highs = [ranged.keys(batch)] * 2 if side == once else ranged.intervals(batch)
    if side in task.alone or task.late is not None:
        times, nowhere = task.times(batch, side).astype(np.float64), ~(lows <= highs)
        lows, highs = (np.where(nowhere, times, ends) for ends in (lows, highs))
    return lows, highs


def first_copies(task: JoinTask, worker: int, side: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Those rows of a worker that are at their first worker, of all that have a copy of them: every row is at one."""
    routing = task.routing
    if routing.divides_keys:
        hashes, _ = equality_hashes(task, side, rows)
        return rows.filter(pa.array(are_first_copies(routing, side, hashes, worker)))
    if routing.kind != "range":
        return rows if gets_first_copy(routing, side, worker) else rows.slice(0, 0)
    lows, _ = reached_keys(task, side, rows)
    return rows.filter(pa.array(range_of(lows, routing.width) % routing.workers == worker))


def gathered(batches: Iterator[pa.RecordBatch], rows: int, nbytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, each of about `rows` rows or `nbytes` bytes. Leaves out empty batches."""
    return (concatenated_batches(group) for group in groups(batches, nbytes, rows))


def groups(
    batches: Iterable[pa.RecordBatch], nbytes: int, rows: float = math.inf
) -> Iterator[list[pa.RecordBatch]]:
    """Group consecutive batches until a group has at least `rows` rows or `nbytes` bytes; the last group may have less.
    Leaves out empty batches."""
    group: list[pa.RecordBatch] = []
    group_rows = group_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        group.append(batch)
        group_rows, group_bytes = group_rows + batch.num_rows, group_bytes + batch.nbytes
        if group_rows >= rows or group_bytes >= nbytes:
            yield group
            group, group_rows, group_bytes = [], 0, 0
    if group:
        yield group


def concatenated_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in one batch; copies only if there are several batches."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def binary_value(data: bytes, kind: pa.DataType) -> pa.Array:
    """One value of a binary type, without a copy of the data."""
    offsets = np.array([0, len(data)], np.int64 if kind == pa.large_binary() else np.int32)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Result rows from the binary values of a table's workers."""
    for batch in batches:
        for value in batch.column("rows"):
            yield decode(value.as_buffer())
    GARBAGE.end_task()
