"""Rows between Spark and a worker: many as one binary value, an Arrow IPC stream.

Spark moves, sorts and hands over a few binary values a micro-batch instead of every row, and rows of any type
stay Arrow from the first Python process to the last. `pack` runs before the shuffle and `unpack` after the join,
both as `mapInArrow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from streamjoin.codegen.columns import to_column_data
from streamjoin.codegen.programs import combined
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.process import GARBAGE
from streamjoin.spark.routing import worker_ids
from streamjoin.spark.task import TIE, JoinTask

PARCEL = pa.schema({"worker": pa.int32(), "side": pa.int8(), "rows": pa.binary()})
PARCEL_DDL = "worker INT, side TINYINT, rows BINARY"
PARCEL_ROWS, PARCEL_BYTES = 1 << 17, 1 << 25  # what is gathered before it is divided among the workers

PackBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def encode(batch: pa.RecordBatch) -> bytes:
    """A batch as bytes, its schema included."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """What `encode` was given, without a copy of the data."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def packer(task: JoinTask, side: str) -> PackBatches:
    """The function that divides one side's rows among the workers. Worker 0 hears of every partition, so that it
    runs whenever there is input and can see whether the join is still the one its state belongs to."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, ids = SIDES.index(side), worker_ids(task.routing.workers)
        for batch in gathered(batches, PARCEL_ROWS, PARCEL_BYTES):
            parcels = divided(task, side, in_utc(batch))
            chosen = [k for k, parcel in enumerate(parcels) if parcel.num_rows or k == 0]
            yield pa.record_batch(
                {
                    "worker": pa.array([ids[k] for k in chosen], pa.int32()),
                    "side": pa.array([number] * len(chosen), pa.int8()),
                    "rows": pa.array([encode(parcels[k]) for k in chosen], pa.binary()),
                },
                PARCEL,
            )
        GARBAGE.end_task()

    return pack


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same instants, labelled UTC. Spark labels them with the session's time zone, which means nothing to a join
    and may be another one after a restart; rows of both must go together."""
    fields = [field.with_type(utc_type(field.type)) for field in batch.schema]
    if all(field.type == old for field, old in zip(fields, batch.schema.types, strict=True)):
        return batch
    return pa.record_batch(Labelled(batch, pa.schema(fields)))


class Labelled:
    """The rows of a batch under another schema, in which they look the same: Arrow takes them over by its C data
    interface, copies nothing and checks nothing. A cast would refuse NULL for a struct of fields that can not be it."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema):
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]


def utc_type(kind: pa.DataType) -> pa.DataType:
    """The type with UTC in place of any time zone, inside nested types as well."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(utc_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(utc_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(utc_type(kind.key_type)),
            kind.item_field.with_type(utc_type(kind.item_type)),
        )
    return kind


def divided(task: JoinTask, side: str, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The rows for each worker."""
    if task.routing.kind == "range":
        targets = task.routing.ranges(*reached_keys(task, side, batch))
        return [batch.take(pa.array(rows)) for rows in targets]
    if task.routing.kind == "hash":
        hashes, ok = equality_hashes(task, side, batch)
        if not ok.all() and side not in task.kept:  # a NULL key matches nothing
            batch, hashes = batch.filter(pa.array(ok)), hashes[ok]
    else:
        hashes = np.asarray(batch.column(TIE))
        if task.routing.kind == "matrix" and not task.settles:
            batch = batch.drop_columns([TIE])
    targets = task.routing.targets(side, hashes)
    if len(targets) == 1:
        return [batch]
    return [batch.take(pa.array(rows)) for rows in targets]


def equality_hashes(task: JoinTask, side: str, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """A hash of the equality keys, the same on both sides, and which rows can match at all. The others, such as those
    with a NULL key, are spread by their time."""
    program, band = task.equality()  # left rows as it stores them, right rows as they probe it
    count = batch.num_rows
    columns = program.stored_columns if side == "left" else program.probe_columns
    data = {column: to_column_data(batch.column(column.name), column.type) for column in columns}
    if side == "left":
        stored = program.prepare_stored(data, count)
        keys, ok = program.key_of_band(stored, band), stored["key_ok"]
    else:
        probing = program.prepare_probe(data, count)
        keys, ok = program.bounds_of_band(probing, band)[0], probing["probe_ok"]
    hashes = combined([keys])
    return (hashes if ok.all() else np.where(ok, hashes, combined([task.times(batch, side)]))), ok


def reached_keys(task: JoinTask, side: str, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest key that each row may meet, NaN if none; of the side that goes to one worker, the key
    of the row. Rows of that side that match nothing, but may be asked for, get some key by their time."""
    ranged, once = task.compiled.ranges[task.routing.once], task.routing.once
    if side != once:
        return ranged.intervals(batch)
    keys = ranged.keys(batch)
    if once in task.kept:
        keys = np.where(np.isnan(keys), task.times(batch, side).astype(np.float64), keys)
    return keys, keys


def gathered(batches: Iterator[pa.RecordBatch], rows: int, nbytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, of about so many rows or bytes; batches without rows are left out."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
        if sum(b.num_rows for b in waiting) >= rows or sum(b.nbytes for b in waiting) >= nbytes:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def in_parts(batch: pa.RecordBatch, nbytes: int) -> list[pa.RecordBatch]:
    """The same rows in batches of about so many bytes."""
    rows = max(1, nbytes * batch.num_rows // max(1, batch.nbytes))
    return [batch.slice(begin, rows) for begin in range(0, batch.num_rows, rows)]


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Result rows from the binary values of the workers; a row of counts alone has none."""
    for batch in batches:
        for value in batch.column("rows"):
            if value.is_valid:
                yield decode(value.as_buffer())
    GARBAGE.end_task()
