"""Where pushed rows live: by side and number, as Arrow holds them, until neither a window nor a result needs them.

Their columns are read when a result row is built, and by conditions that no index covers. Batches stay as they came,
unless they are small. Columns that a window also reads are copied into memory that both use (`SharedColumns`;
index/sliding.py says who owns it), and the batch is held without them, so that each value is stored once. That ends,
for good, with the first NULL in one of them: what is held by then becomes batches over the same memory.

If all other columns are plain and narrow, they are copied to the same place (the *payload columns*), and no batch is
held: a result row is then picked by row number, whatever the size of the pushes. That ends, for good, with the first
NULL in a payload column: the values held by then become a batch.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamjoin.codegen.columns import ColumnData, to_column_data
from streamjoin.index.sliding import RowColumns
from streamjoin.kernels.gather import BITS, gather, gather_columns, gather_numbered
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.spec import SIDES

# Copy FANIN small batches into one, and each row at most MERGED_TIMES times: a window of single rows is then
# held in a few dozen batches.
FANIN, MERGED_TIMES = 16, 4
FEW_ROWS = 64  # look up the batches of up to this many rows one by one
PAYLOAD_BYTES = 64  # copy payload columns of at most this many bytes a row
LARGE_BATCH, LARGE_BYTES = 65_536, 1 << 22  # leave a batch as it came from this many rows or bytes on

# Measured, in seconds: gathering variable-size columns batch by batch, and all at once, which copies them whole.
_PER_BATCH, _PER_ROW, _PER_HELD_ROW = 15e-6, 0.3e-6, 8e-9
AT_ONCE_BYTES = 1 << 26  # that are copied whole at most: memory, and a column of strings ends at 2 GiB


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values are held: Arrow cannot gather from views, at any depth."""
    if kind in (pa.string_view(), pa.binary_view()):
        return pa.large_string() if kind == pa.string_view() else pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(storage_type(field.type)) for field in kind.fields])
    if pa.types.is_map(kind):
        key, item = (field.with_type(storage_type(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item, kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(storage_type(kind.value_type)), kind.list_size)
    for is_list, make in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_list(kind):
            return make(kind.value_field.with_type(storage_type(kind.value_type)))
    return kind


def storage_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in which rows are held. Every batch may have its own dictionary, and Arrow joins them only as far
    as the indices reach, so columns are held decoded."""
    types = [
        f.type.value_type if pa.types.is_dictionary(f.type) and not f.type.ordered else f.type for f in schema
    ]
    return pa.schema([f.with_type(storage_type(kind)) for f, kind in zip(schema, types, strict=True)])


def restored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A held column in the type the spec declares."""
    if column.type == kind:
        return column
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    encoded = column.cast(kind.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), encoded.dictionary)


class Held:
    """A batch, and where those of its columns are that were asked for: most are copied elsewhere before they are."""

    __slots__ = ("_addresses", "_nbytes", "batch")

    def __init__(self, batch: pa.RecordBatch):
        self.batch, self._addresses = batch, dict[str, int]()
        self._nbytes = -1  # not known yet

    @property
    def nbytes(self) -> int:
        """The size of the batch, which takes Arrow some microseconds a column: asked once."""
        if self._nbytes < 0:
            self._nbytes = int(self.batch.nbytes)
        return self._nbytes

    def address(self, field: Field) -> int:
        """The address of a plain column's values; 0 if they cannot be gathered by address, because some are NULL."""
        address = self._addresses.get(field.name)
        if address is None:
            address, column = 0, self.batch.column(field.name)
            if not column.null_count and len(column):
                assert field.dtype is not None
                address = column.buffers()[1].address + column.offset * field.dtype.itemsize
            self._addresses[field.name] = address
        return address


class Field(NamedTuple):
    """A column of rows that are asked for."""

    name: str
    type: pa.DataType
    dtype: np.dtype | None  # integers of the size of its values, if they are plain


def fields_of(schema: pa.Schema) -> tuple[Field, ...]:
    """The columns of a schema, looked up once."""
    return tuple(
        Field(f.name, f.type, np.dtype(f"i{f.type.bit_width // 8}") if is_plain(f.type) else None)
        for f in schema
    )


def is_plain(kind: pa.DataType) -> bool:
    """Whether values are whole bytes of a size that a register holds."""
    return pa.types.is_primitive(kind) and not pa.types.is_boolean(kind) and kind.bit_width in BITS


def row_bytes(schema: pa.Schema) -> float:
    """The size of a row, with a byte for each NULL; infinity where it is not the same for all."""
    if not all(map(is_plain, schema.types)):
        return math.inf
    return float(sum(1 + kind.bit_width // 8 for kind in schema.types))


@dataclass(frozen=True)
class SharedColumns:
    """Columns of rows which a window reads, too: their names, and their positions in a tuple."""

    schema: pa.Schema  # of whole rows
    names: Mapping[str, int]
    columns: RowColumns

    @property
    def others(self) -> list[Field]:
        """The columns that no window reads."""
        return [each for each in fields_of(self.schema) if each.name not in self.names]

    def whole(self, batch: pa.RecordBatch | None, first: int, end: int) -> pa.RecordBatch:
        """The rows first..end-1, of which a batch has the other columns, over the memory of the shared ones."""
        numbers = {name: number for number, name in enumerate(self.names)}
        arrays = []
        for f in self.schema:
            if f.name in numbers:
                arrays.append(_as_arrow(self.columns.column(numbers[f.name], first, end), f.type))
            elif batch is not None:
                arrays.append(batch.column(f.name))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class RowMemory(NamedTuple):
    """Columns that are held by row number, at one moment: the arrays that own their memory, and the address that row
    number 0 would have in each."""

    names: tuple[str, ...]
    arrays: Sequence[np.ndarray | None]
    origins: np.ndarray

    def columns(self, ids: np.ndarray, fields: Sequence[Field]) -> dict[str, pa.Array]:
        """Those of the columns that are here, of some rows."""
        columns = {}
        for name, kind, dtype in fields:
            if name in self.names:
                values = np.empty(len(ids), dtype)
                gather_numbered(self.origins[self.names.index(name)], ids, values)
                columns[name] = pa.Array.from_buffers(kind, len(ids), [None, pa.py_buffer(values)])
        return columns


@dataclass(slots=True, eq=False)
class HeldRows:
    """A view of the rows held at one moment: batches and the number of each one's first row; and columns that are held
    by row number."""

    starts: Sequence[int]
    held: Sequence[Held]
    memory: RowMemory | None = None

    @property
    def batches(self) -> list[pa.RecordBatch]:
        return [held.batch for held in self.held]

    def take(self, ids: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
        """The columns of `schema`, of the rows numbered `ids`, in that order; all must be held."""
        return pa.RecordBatch.from_arrays(self.columns(ids, fields_of(schema)), schema=schema)

    def between(self, ids: np.ndarray, names: list[str]) -> pa.RecordBatch | None:
        """Columns of consecutive rows, without a copy where one batch has them; None if the rows are not consecutive,
        there are none, or some column is held by number."""
        if not len(ids):
            return None
        first, end = int(ids[0]), int(ids[-1]) + 1
        held = () if self.memory is None else self.memory.names
        if end - first != len(ids) or any(name in held for name in names) or not (ids[1:] > ids[:-1]).all():
            return None
        numbers = range(bisect_right(self.starts, first) - 1, bisect_right(self.starts, end - 1))
        pieces = []
        for number in numbers:
            start, batch = self.starts[number], self.held[number].batch.select(names)
            begin = max(first - start, 0)
            pieces.append(batch.slice(begin, end - start - begin))
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def columns(self, ids: np.ndarray, fields: Sequence[Field]) -> list[pa.Array]:
        """As `take`. Plain columns without nulls cost a few nanoseconds a value; the others are left to Arrow."""
        if not len(ids):
            return [pa.nulls(0, field.type) for field in fields]
        columns = {} if self.memory is None else self.memory.columns(ids, fields)
        if len(columns) == len(fields):
            return [*columns.values()]
        columns |= self._from_batches(ids, [f for f in fields if f.name not in columns])
        return [columns[field.name] for field in fields]

    def _from_batches(self, ids: np.ndarray, fields: Sequence[Field]) -> dict[str, pa.Array]:
        held, of, places = self._places(ids)
        columns: dict[str, pa.Array] = {}
        addresses: dict[Field, list[int]] = {}
        for f in fields:
            if f.dtype is not None and 0 not in (found := [each.address(f) for each in held]):
                addresses[f] = found
        if len(ids) < FEW_ROWS:
            columns = _gathered_together(addresses, of, places)
        else:
            columns = {f.name: _gathered(np.array(each), of, places, f) for f, each in addresses.items()}
        others = [field.name for field in fields if field.name not in columns]
        if others:
            used = np.unique(of)
            taken = _taken_by_arrow([held[number] for number in used], others, used.searchsorted(of), places)
            columns |= dict(zip(others, taken.columns, strict=True))
        return columns

    def _places(self, ids: np.ndarray) -> tuple[Sequence[Held], np.ndarray, np.ndarray]:
        """Batches, and of each row which of them has it and where. Of few rows no other batch need be looked at."""
        if len(ids) >= FEW_ROWS:
            starts = np.asarray(self.starts)
            of = starts.searchsorted(ids, "right") - 1
            return self.held, of, ids - starts[of]
        numbers = [bisect_right(self.starts, row) - 1 for row in ids.tolist()]
        used = sorted(set(numbers))
        place_of = dict(zip(used, range(len(used)), strict=True))
        of = np.array([place_of[number] for number in numbers])
        starts = np.array([self.starts[number] for number in numbers])
        return [self.held[number] for number in used], of, ids - starts


def _taken_by_arrow(held: list[Held], names: list[str], of: np.ndarray, places: np.ndarray) -> pa.RecordBatch:
    """Some columns of row places[i] of held[of[i]] for each i; every batch has some."""
    batches = [each.batch.select(names) for each in held]
    if len(batches) == 1:
        return batches[0].take(pa.array(places))
    rows = sum(batch.num_rows for batch in batches)
    at_once = _PER_HELD_ROW * rows < _PER_BATCH * len(batches) + _PER_ROW * len(of)
    at_once = at_once and sum(each.nbytes for each in held) <= AT_ONCE_BYTES
    return (_taken_at_once if at_once else _taken_by_batch)(batches, of, places)


def _taken_at_once(batches: list[pa.RecordBatch], of: np.ndarray, places: np.ndarray) -> pa.RecordBatch:
    starts = np.cumsum([0, *(batch.num_rows for batch in batches[:-1])])
    return one_batch(pa.Table.from_batches(batches).take(pa.array(places + starts[of])))


def _taken_by_batch(batches: list[pa.RecordBatch], of: np.ndarray, places: np.ndarray) -> pa.RecordBatch:
    order = np.argsort(of, kind="stable")
    cuts = np.searchsorted(of[order], np.arange(1, len(batches)))
    groups = np.split(places[order], cuts)
    parts = [batch.take(pa.array(group)) for batch, group in zip(batches, groups, strict=True)]
    back = np.empty(len(of), np.int64)
    back[order] = np.arange(len(of))
    return pa.concat_batches(parts).take(pa.array(back))


def _gathered(addresses: np.ndarray, of: np.ndarray, places: np.ndarray, field: Field) -> pa.Array:
    out = np.empty(len(of), field.dtype)
    gather(addresses, of, places, out)
    return _as_arrow(out, field.type)


def _gathered_together(
    addresses: Mapping[Field, list[int]], of: np.ndarray, places: np.ndarray
) -> dict[str, pa.Array]:
    """Plain columns of a few rows, by name: one call and one piece of memory for all of them."""
    if not addresses:
        return {}
    count, end = len(of), 0
    widths, offsets = [], []
    for f in addresses:
        assert f.dtype is not None
        widths.append(f.dtype.itemsize)
        offsets.append(end)
        end += -(-count * f.dtype.itemsize // 8) * 8
    out = np.empty(end, np.uint8)
    gather_columns(np.array([*addresses.values()]), of, places, np.array(widths), np.array(offsets), out)
    memory = pa.py_buffer(out)
    return {
        f.name: pa.Array.from_buffers(f.type, count, [None, memory.slice(offset, count * width)])
        for f, offset, width in zip(addresses, offsets, widths, strict=True)
    }


def _as_arrow(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Values of a plain type, without a copy."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


class PayloadStore:
    """The rows of one side, numbered in the order they come, until they are released."""

    def __init__(self, shared: SharedColumns | None = None) -> None:
        self._shared = shared
        self._payload = payload_fields(shared.schema, shared.names) if shared is not None else ()
        self._names = _names_of(shared, self._payload)
        # Names of the columns that batches hold; None: all.
        self._others = (
            [f.name for f in shared.others if f not in self._payload] if shared is not None else None
        )
        self._held: list[Held] = []
        self._starts: list[int] = []
        self._generations: list[int] = []
        self.next_id = 0  # the number of the next row
        self._row_bytes: float | None = None  # of the schema; infinity if rows differ
        self._view: HeldRows | None = None

    @property
    def first_id(self) -> int:
        if self._starts:
            return self._starts[0]
        return self.next_id if self._shared is None else self._shared.columns.first

    @property
    def row_count(self) -> int:
        return self.next_id - self.first_id

    def append(
        self,
        batch: pa.RecordBatch,
        shared: Sequence[np.ndarray] | None = None,
        payload: Sequence[np.ndarray] | None = None,
    ) -> None:
        """Hold the rows of `batch`; the first one gets number `next_id`. `shared` has the values of their shared
        columns, None if some are NULL; `payload` those of their payload columns, None if they were not read yet. Of the
        other columns, large batches are not copied, and rows of small ones at most MERGED_TIMES times.
        """
        columns = self._shared.columns if self._shared is not None else None
        if columns is not None:
            if not self._payload:
                payload = []
            elif payload is None:
                payload = _values_of(batch, self._payload)
            if payload is None:
                self._end_payload()
            if shared is None:
                self._end_sharing()
        if self._others != []:
            self._append(batch)
        if columns is not None and shared is not None:
            columns.append([*shared, *payload] if payload else shared, batch.num_rows)
        self.next_id += batch.num_rows
        self._view = None

    def append_copies(self, ids: np.ndarray, schema: pa.Schema) -> int:
        """Append copies of rows that are held; the number of the first copy."""
        first, batch = self.next_id, self.view().take(ids, schema)
        shared = None if self._shared is None else self._shared.names
        fields = [field for name in shared or () for field in fields_of(schema) if field.name == name]
        self.append(batch, None if shared is None else _values_of(batch, tuple(fields)))
        return first

    def _append(self, batch: pa.RecordBatch) -> None:
        held = Held(batch)
        small = self._is_small(held)
        if not small:
            held = Held(self._rest(batch))
        self._starts.append(self.next_id)
        self._generations.append(0 if small else MERGED_TIMES)
        self._held.append(held)  # last: an interrupt before leaves it as it was, to be released
        while (age := self._generations[-1]) < MERGED_TIMES and self._generations[-FANIN:] == [age] * FANIN:
            try:
                merged = pa.concat_batches([self._rest(held.batch) for held in self._held[-FANIN:]])
            except pa.ArrowInvalid:  # dictionaries that are too large together for their indices stay apart
                self._generations[-FANIN:] = [MERGED_TIMES] * FANIN
                break
            self._held[-FANIN:], self._starts[-FANIN:] = [Held(merged)], [self._starts[-FANIN]]
            self._generations[-FANIN:] = [age + 1 if merged.num_rows < LARGE_BATCH else MERGED_TIMES]

    def _rest(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are not shared."""
        return batch if self._others is None else batch.select(self._others)

    def _end_payload(self) -> None:
        """Hold the payload columns in batches from now on."""
        assert self._shared is not None
        columns, payload = self._shared.columns, self._payload
        self._others, self._payload = [f.name for f in payload], ()
        self._names = _names_of(self._shared, ())
        values = columns.cut_off(len(self._shared.names))
        if len(columns):
            arrays = [_as_arrow(each, f.type) for each, f in zip(values, payload, strict=True)]
            schema = pa.schema([self._shared.schema.field(name) for name in self._others])
            self._held = [Held(pa.RecordBatch.from_arrays(arrays, schema=schema))]
            self._starts, self._generations = [columns.first], [MERGED_TIMES]

    def _end_sharing(self) -> None:
        """Hold whole batches from now on. The columns stay as they are, and go with the last that needs them."""
        if self._payload:
            self._end_payload()
        shared = self._shared
        assert shared is not None
        first, end = shared.columns.first, shared.columns.end
        if self._others:
            starts = [max(start, first) for start in self._starts]
            rests = [
                held.batch.slice(start - at)
                for start, at, held in zip(starts, self._starts, self._held, strict=True)
            ]
            whole = [
                shared.whole(rest, start, start + rest.num_rows)
                for rest, start in zip(rests, starts, strict=True)
            ]
            self._held, self._starts = [Held(batch) for batch in whole], starts
        elif first < end:
            self._held, self._starts = [Held(shared.whole(None, first, end))], [first]
            self._generations = [MERGED_TIMES]
        shared.columns.ended = True
        self._shared = self._others = None

    def _is_small(self, held: Held) -> bool:
        """Whether a batch has few rows and few bytes."""
        if self._row_bytes is None:
            self._row_bytes = row_bytes(held.batch.schema)
        rows: int = held.batch.num_rows
        return rows < LARGE_BATCH and (rows * self._row_bytes < LARGE_BYTES or held.nbytes < LARGE_BYTES)

    def release(self, before: int) -> None:
        """Let go of batches whose rows are all numbered below `before`."""
        gone = 0
        while gone < len(self._held) and self._starts[gone] + self._held[gone].batch.num_rows <= before:
            gone += 1
        if gone:
            del self._held[:gone], self._starts[:gone], self._generations[:gone]
            self._view = None
        if self._shared is not None and before > self._shared.columns.first:
            columns = self._shared.columns
            columns.drop(min(before, columns.end) - columns.first)
            self._view = None

    def view(self) -> HeldRows:
        """The rows held now. To read them while others come, or go, in another thread, `begin_reading`."""
        if self._view is None:
            rows = self._starts.copy(), self._held.copy()
            if self._shared is None:
                self._view = HeldRows(*rows)
            else:
                columns = self._shared.columns
                self._view = HeldRows(*rows, RowMemory(self._names, *columns.memory()))
        return self._view

    def begin_reading(self) -> HeldRows:
        """As `view`, of rows that stay as they are until `end_reading`, but for those that are released."""
        view = self.view()
        if self._shared is not None:
            self._shared.columns.readers += 1
        return view

    def end_reading(self) -> None:
        if self._shared is not None:
            self._shared.columns.readers -= 1


def payload_fields(schema: pa.Schema, shared: Collection[str]) -> tuple[Field, ...]:
    """The payload columns of rows, where windows read the columns named `shared`."""
    others = tuple(each for each in fields_of(schema) if each.name not in shared) if shared else ()
    widths = [math.inf if f.dtype is None else f.dtype.itemsize for f in others]
    return others if sum(widths) <= PAYLOAD_BYTES else ()


def _names_of(shared: SharedColumns | None, payload: tuple[Field, ...]) -> tuple[str, ...]:
    """The names of the columns that are held by row number."""
    return () if shared is None else (*shared.names, *(f.name for f in payload))


def _values_of(batch: pa.RecordBatch, fields: Sequence[Field]) -> list[np.ndarray] | None:
    """The values of plain columns, as integers of their size; None if one is NULL."""
    values, count = [], batch.num_rows
    for name, _, dtype in fields:
        column = batch.column(name)
        if column.null_count:
            return None
        assert dtype is not None
        memory = column.buffers()[1] if count else b""
        values.append(np.frombuffer(memory, dtype, count, column.offset * dtype.itemsize if count else 0))
    return values


class PushedRows:
    """The rows of both sides.

    Hold `lock` to change or view them. The result buffer has the same lock: pairs leave it together with a view of the
    rows they need, so that rows can go as soon as neither a window nor a waiting pair needs them.
    """

    def __init__(self, schemas: Mapping[str, pa.Schema], shared: Mapping[str, SharedColumns]):
        """`schemas`: in which rows are held. `shared`: what an index window of a side also reads."""
        self.lock = threading.RLock()
        self.schemas = schemas
        self.stores = {side: PayloadStore(shared.get(side)) for side in SIDES}

    def copy_rows(self, side: str, ids: np.ndarray) -> int:
        """Hold copies of rows as new rows; the number of the first one."""
        with self.lock:
            store = self.stores[side]
            return store.append_copies(ids, self.schemas[side])

    def fetch(self, side: str, columns: tuple[Column, ...], ids: np.ndarray) -> dict[Column, ColumnData]:
        """Columns of some rows of a side, for conditions that are checked on candidate pairs."""
        if not columns:
            return {}
        with self.lock:
            view = self.stores[side].view()
        rows = view.between(ids, [column.name for column in columns])
        if rows is None:
            rows = view.take(ids, pa.schema([self.schemas[side].field(column.name) for column in columns]))
        return {column: to_column_data(rows.column(column.name), column.type) for column in columns}


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as a single batch; a copy only where it has several chunks."""
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if batches:
        return pa.concat_batches(batches)
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in table.schema.types], schema=table.schema)
