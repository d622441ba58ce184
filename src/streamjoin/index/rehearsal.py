"""Every kernel that windows of a plan may call, called once on a few tuples: compiled, or loaded from the cache, before
the first push."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamjoin.codegen.columns import ColumnData, to_column_data
from streamjoin.codegen.evaluate import Filter
from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import WindowProgram, new_cursor
from streamjoin.index.access import Access, ask, check_bands
from streamjoin.index.structures import STRUCTURES, Structure
from streamjoin.index.structures.bisort import BISortSubwindow, Merging
from streamjoin.index.window import Subwindow
from streamjoin.kernels.gather import BITS, gather
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan.bands import MIN_ROOM
from streamjoin.kernels.scan.check import goes_on
from streamjoin.kernels.sorted.probe import rises
from streamjoin.kernels.sorted.runs import rising_places
from streamjoin.semantics.expressions import Column

Schemas = Mapping[str, pa.Schema]
TUPLES = 1_200  # past the first growth of a hash table and the first adjustment of a RaP-Table
NONE = np.empty(0, np.int64)


def rehearse_scan(program: WindowProgram, schemas: Schemas) -> None:
    """Compile how tuples are prepared and scanned."""
    for nulls in (False, True):
        stored, probing = prepared(program, schemas, nulls)
        if program.block is not None or not nulls:
            scan = program.scanner(stored, probing, nulls)
            scan(NONE, NONE, new_cursor(), PairBuffer(MIN_ROOM))


def rehearse_residual(program: WindowProgram, schemas: Schemas) -> None:
    """Compile what is checked on pairs, if anything is."""
    if program.residual is not None:
        residual = Filter(program.residual)
        for nulls in (False, True):
            residual(no_rows(residual.columns, schemas, nulls), 0)


def rehearse_rows(schemas: Schemas) -> None:
    """Compile how payload is gathered, for residual conditions and results."""
    kinds = [
        field.type for schema in schemas.values() for field in schema if pa.types.is_primitive(field.type)
    ]
    for bits in {kind.bit_width for kind in kinds}.intersection(BITS):
        gather(NONE, NONE, NONE, np.empty(0, f"i{bits // 8}"))
    rising_places(NONE, NONE, False, 0, NONE)  # where many probes reach in a window


def rehearse_index(program: WindowProgram, structure: str, access: Access, schemas: Schemas) -> None:
    """Compile a structure for the keys of an access, and what the access does with its candidates."""
    make = STRUCTURES[structure]
    rehearse_structure(make, access.dtype)
    if structure == "bisort":
        rehearse_merging(access.dtype)
    for nulls in (False, True):
        stored, probing = prepared(program, schemas, nulls)
    pairs = PairBuffer(1)
    subwindow = make(1, access.dtype, None)
    subwindow.insert(access.keys(stored), NONE.astype(np.int32))
    for _ in ask(subwindow, access.questions(probing), NONE, NONE, pairs):
        pass
    check_bands(access, lambda: stored.columns, probing, pairs, 0)
    check_bands(access, lambda: stored.columns, probing, pairs, 0, NONE, (NONE, NONE))
    goes_on(NONE, NONE.astype(np.int32), 0, 0)


def rehearse_structure(make: Structure, dtype: np.dtype) -> None:
    """Fill, probe and seal a subwindow and its successor."""
    keys = (np.arange(TUPLES) * 7919 % TUPLES).astype(dtype)
    predecessor: Subwindow | None = None
    for _ in range(2):
        subwindow = make(TUPLES, dtype, predecessor)
        slots = np.arange(TUPLES, dtype=np.int32)
        for part in (slice(0, 1), slice(1, TUPLES)):  # single tuples and batches go different ways
            subwindow.insert(keys[part], slots[part])
        probe_some(subwindow, keys[:32])
        subwindow.seal()
        probe_some(subwindow, keys[:32])
        predecessor = subwindow


def rehearse_merging(dtype: np.dtype) -> None:
    """Merge two sorted subwindows."""
    subwindow = BISortSubwindow(1, dtype)
    subwindow.insert(np.zeros(1, dtype), np.zeros(1, np.int32))
    subwindow.seal()
    rises(subwindow.sorted_keys)  # asked of probes into arrays that no cache holds
    merging = Merging(subwindow, subwindow, 1)
    merging.advance(2)
    merging.finished()


def probe_some(subwindow: Subwindow, keys: np.ndarray) -> None:
    pairs = PairBuffer()
    start, stop = np.zeros(len(keys), np.int64), np.full(len(keys), TUPLES)
    for _ in subwindow.probe(keys, keys.copy(), start, stop, pairs):
        pass


def prepared(program: WindowProgram, schemas: Schemas, nulls: bool) -> tuple[Stored, Probing]:
    """No tuples, in the roles of stored ones and of probes."""
    stored = program.prepare_stored(no_rows(program.stored_columns, schemas, nulls), 0)
    return stored, program.prepare_probe(no_rows(program.probe_columns, schemas, nulls), 0)


def no_rows(columns: tuple[Column, ...], schemas: Schemas, nulls: bool) -> dict[Column, ColumnData]:
    """Columns without rows, as data that may be NULL has them or as other data has."""
    empty = {c: to_column_data(pa.array([], schemas[c.side].field(c.name).type), c.type) for c in columns}
    if not nulls:
        return empty
    return {column: replace(data, valid=np.empty(0, np.bool_)) for column, data in empty.items()}
