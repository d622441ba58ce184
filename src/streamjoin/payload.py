"""Pushed rows, by number, as Arrow holds them: touched once, when a result row is built."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

FAN = 16  # small batches are copied together this many at a time
GENERATIONS = 4  # how often at most: a window of single rows is held in a few dozen batches
LARGE, LARGE_BYTES = 65_536, 1 << 22  # rows, or bytes, from which a batch is left as it came

# Measured, in seconds: gathering variable-size columns batch by batch, and all at once, which copies them whole.
_PER_BATCH, _PER_ROW, _PER_HELD_ROW = 15e-6, 0.3e-6, 8e-9


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values are held: Arrow can not gather from views, at any depth."""
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


@dataclass(frozen=True)
class Rows:
    """A view of the rows held at one moment: batches and the number of each one's first row."""

    starts: np.ndarray
    batches: tuple[pa.RecordBatch, ...]

    def take(self, ids: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
        """The columns of `schema`, of the rows numbered `ids`, in that order; all must be held."""
        of = np.searchsorted(self.starts, ids, "right") - 1
        used = np.unique(of)
        if not len(used):
            return pa.RecordBatch.from_pylist([], schema=schema)
        if len(used) == 1:
            return self.batches[used[0]].select(schema.names).take(pa.array(ids - self.starts[used[0]]))
        columns: dict[str, pa.Array] = {}
        for fixed in (True, False):
            names = [field.name for field in schema if is_fixed_width(field.type) == fixed]
            if names:
                batches = [self.batches[b].select(names) for b in used]
                held = 0 if fixed else sum(batch.num_rows for batch in batches)
                at_once = _PER_HELD_ROW * held < _PER_BATCH * len(used) + _PER_ROW * len(ids)
                gather = self._take_at_once if at_once else self._take_by_batch
                columns |= dict(zip(names, gather(ids, of, used, batches).columns, strict=True))
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _take_at_once(
        self, ids: np.ndarray, of: np.ndarray, used: np.ndarray, batches: list[pa.RecordBatch]
    ) -> pa.RecordBatch:
        ends = np.cumsum([batch.num_rows for batch in batches])
        shift = np.concatenate([[0], ends[:-1]]) - self.starts[used]
        table = pa.Table.from_batches(batches).take(pa.array(ids + shift[np.searchsorted(used, of)]))
        return one_batch(table)

    def _take_by_batch(
        self, ids: np.ndarray, of: np.ndarray, used: np.ndarray, batches: list[pa.RecordBatch]
    ) -> pa.RecordBatch:
        order = np.argsort(of, kind="stable")
        cuts = np.searchsorted(of[order], used, "left")
        groups = np.split(ids[order], cuts[1:])
        parts = [b.take(pa.array(g - self.starts[u])) for b, g, u in zip(batches, groups, used, strict=True)]
        back = np.empty(len(ids), np.int64)
        back[order] = np.arange(len(ids))
        return pa.concat_batches(parts).take(pa.array(back))


def is_fixed_width(kind: pa.DataType) -> bool:
    """Whether Arrow gathers from many batches of this type without copying them whole."""
    return any(
        test(kind) for test in (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_fixed_size_binary)
    )


class PayloadStore:
    """The rows of one side, numbered in the order they come, until they are released."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self._generations: list[int] = []
        self._next = 0
        self._view: Rows | None = None

    @property
    def next_id(self) -> int:
        return self._next

    @property
    def first_id(self) -> int:
        return self._starts[0] if self._starts else self._next

    @property
    def row_count(self) -> int:
        return self._next - self.first_id

    def append(self, batch: pa.RecordBatch) -> None:
        """Hold the rows of `batch`, the first being number `next_id`. Large batches are not copied, the rows of
        small ones at most GENERATIONS times."""
        self._batches.append(batch)
        self._starts.append(self._next)
        small = batch.num_rows < LARGE and batch.nbytes < LARGE_BYTES
        self._generations.append(0 if small else GENERATIONS)
        self._next += batch.num_rows
        self._view = None
        while (age := self._generations[-1]) < GENERATIONS and self._generations[-FAN:] == [age] * FAN:
            merged = pa.concat_batches(self._batches[-FAN:])
            self._batches[-FAN:], self._starts[-FAN:] = [merged], [self._starts[-FAN]]
            self._generations[-FAN:] = [age + 1 if merged.num_rows < LARGE else GENERATIONS]

    def release(self, before: int) -> None:
        """Let go of batches whose rows are all numbered below `before`."""
        gone = 0
        while gone < len(self._batches) and self._starts[gone] + self._batches[gone].num_rows <= before:
            gone += 1
        if gone:
            del self._batches[:gone], self._starts[:gone], self._generations[:gone]
            self._view = None

    def view(self) -> Rows:
        if self._view is None:
            self._view = Rows(np.array(self._starts, np.int64), tuple(self._batches))
        return self._view


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as a single batch; a copy only where it has several chunks."""
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
