"""Calls every kernel that the windows of a plan may call, on a few tuples, so that all are compiled or loaded from
the cache before the first push."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa

from streamjoin.codegen.columns import ColumnData, to_column_data
from streamjoin.codegen.evaluate import Filter
from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import WindowProgram, new_cursor
from streamjoin.codegen.searched import search_columns, searched_dtype
from streamjoin.index.access import Access, ask, check_bands
from streamjoin.index.structures import STRUCTURE_CLASSES, Structure
from streamjoin.index.structures.bisort import BISortSubwindow, Merging
from streamjoin.index.window import Subwindow, Together
from streamjoin.kernels.gather import BITS, gather, gather_columns, gather_numbered, gather_rows
from streamjoin.kernels.hash.last_rows import (
    add_widths,
    append_text,
    append_words,
    count_needed,
    find_last,
    move_earlier,
    move_last,
)
from streamjoin.kernels.hash.last_rows_forms import COLUMNS, FREE, KEYS_FROM
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan.bands import MIN_SCAN_ROOM
from streamjoin.kernels.scan.check import goes_on
from streamjoin.kernels.sorted.block_lists import KeyedRows, Searches, make_blocks
from streamjoin.kernels.sorted.blocks import search_rows, slide
from streamjoin.kernels.sorted.probe import rises
from streamjoin.kernels.sorted.runs import rising_places
from streamjoin.plan.physical import Plan
from streamjoin.plan.searching import SearchPlan
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.spec import SIDES

Schemas = Mapping[str, pa.Schema]
REHEARSED_TUPLES = (
    1_200  # enough for the first growth of a hash table and the first adjustment of a RaP-Table
)
NO_NUMBERS = np.empty(0, np.int64)


def rehearse_scan(program: WindowProgram, schemas: Schemas) -> None:
    """Compile the code that prepares and scans tuples."""
    for nulls in (False, True):
        stored, probing = prepared(program, schemas, nulls)
        if program.block is not None or not nulls:
            _scan_nothing(program, stored, probing, nulls)


def rehearse_callable(plan: Plan) -> None:
    """Compile a Python function as predicate, in one of the four scans that may call it, so that a mistake shows."""
    program = plan.programs["left"]
    if isinstance(program.block, CallablePredicate):
        stored, probing = prepared(program, {side: plan.spec.side_schema(side) for side in SIDES}, False)
        _scan_nothing(program, stored, probing, False)


def _scan_nothing(program: WindowProgram, stored: Stored, probing: Probing, nulls: bool) -> None:
    program.scanner(stored, probing, nulls)(NO_NUMBERS, NO_NUMBERS, new_cursor(), PairBuffer(MIN_SCAN_ROOM))


def rehearse_residual(program: WindowProgram, schemas: Schemas) -> None:
    """Compile the check of the residual condition, if there is one."""
    if program.residual is not None:
        residual = Filter(program.residual)
        for nulls in (False, True):
            residual(no_rows(residual.columns, schemas, nulls), 0)


def rehearse_rows(schemas: Schemas) -> None:
    """Compile the code that gathers payload, for residual conditions and results."""
    kinds = [
        field.type for schema in schemas.values() for field in schema if pa.types.is_primitive(field.type)
    ]
    for bits in {kind.bit_width for kind in kinds}.intersection(BITS):
        values = np.empty(0, f"i{bits // 8}")
        gather(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, values)
        gather_numbered(0, NO_NUMBERS, values)
    gather_columns(
        np.empty((0, 0), np.int64), NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, np.empty(0, np.uint8)
    )
    none = NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, NO_NUMBERS
    gather_rows(*none, NO_NUMBERS, 0, NO_NUMBERS, NO_NUMBERS, 0, np.empty(0, np.uint8))
    # Called when many probes look up their reach in a window
    rising_places(NO_NUMBERS, NO_NUMBERS, False, 0, NO_NUMBERS)


def rehearse_last_rows(programs: Mapping[str, WindowProgram], schemas: Schemas) -> None:
    """Compile the code that prepares tuples, and that looks up the last right row of a key."""
    for program in programs.values():
        for nulls in (False, True):
            prepared(program, schemas, nulls)
    right = programs["right"]
    stored, _ = prepared(right, schemas, False)
    (band,) = right.indexable(True)
    known, one, none = np.empty(0, np.bool_), np.zeros(1, np.int64), np.empty(0, np.uint8)
    side = NO_NUMBERS, right.key_of_band(stored, band), known, NO_NUMBERS, NO_NUMBERS
    table = np.full((1, COLUMNS), FREE)
    used = np.zeros(KEYS_FROM + 1, np.int64)
    source = None if right.is_one_equality else none
    find_last(side, side, NO_NUMBERS, source, 0, 0, 0, 0, table, none, table, used, NO_NUMBERS)
    count_needed(table, table, used, 0, 0)
    move_earlier(table, 0, 0, 0, table, used, NO_NUMBERS)
    move_last(table, none, NO_NUMBERS, NO_NUMBERS, table, none, used)
    add_widths(one, NO_NUMBERS)
    append_text(one, none, NO_NUMBERS, none)
    for number in right.number_keys:
        append_words(right.key_of_band(stored, number), NO_NUMBERS, none)


def rehearse_search(search: SearchPlan, programs: Mapping[str, WindowProgram], schemas: Schemas) -> None:
    """Compile the code that prepares tuples, and that searches for the nearest rows."""
    dtype = searched_dtype(search.shape.key.type)
    columns = search_columns(search.shape, search.equalities, search.conditions)
    residual = None if search.residual is None else Filter(search.residual)
    for nulls in (False, True):
        for side, program in programs.items():
            prepared(program, schemas, nulls)
            columns[side](no_rows(columns[side].columns, schemas, nulls), 0)
        if residual is not None:
            residual(no_rows(residual.columns, schemas, nulls), 0)
    numbers, known = np.empty(0, dtype), np.empty(0, np.bool_)
    blocks, rows = make_blocks(1, dtype), KeyedRows(NO_NUMBERS, numbers, known, 0)
    slide(blocks, rows, 0, 0, 1)
    searches = Searches(NO_NUMBERS, numbers, known, NO_NUMBERS, NO_NUMBERS)
    places = np.empty((0, 1), np.int64)
    search_rows(blocks, rows, searches, False, dtype.type(0), 1, numbers, places, NO_NUMBERS)


def rehearse_index(program: WindowProgram, structure: str, access: Access, schemas: Schemas) -> None:
    """Compile a structure for the keys of an access, and the check of its candidates."""
    make = STRUCTURE_CLASSES[structure]
    rehearse_structure(make, access.dtype)
    if structure == "bisort":
        rehearse_merging(access.dtype)
    for nulls in (False, True):
        stored, probing = prepared(program, schemas, nulls)
    pairs = PairBuffer(1)
    subwindow = make(1, access.dtype, None)
    subwindow.insert(access.keys(stored), NO_NUMBERS.astype(np.int32))
    for _ in ask(subwindow.probe, access.questions(probing), NO_NUMBERS, NO_NUMBERS, pairs):
        pass
    check_bands(access, lambda: stored.columns, probing, pairs, 0)
    check_bands(access, lambda: stored.columns, probing, pairs, 0, NO_NUMBERS, (NO_NUMBERS, NO_NUMBERS))
    goes_on(NO_NUMBERS, NO_NUMBERS.astype(np.int32), 0, 0)


def rehearse_structure(make: Structure, dtype: np.dtype) -> None:
    """Fill, probe and seal a subwindow and its successor."""
    keys = (np.arange(REHEARSED_TUPLES) * 7919 % REHEARSED_TUPLES).astype(dtype)
    predecessor: Subwindow | None = None
    for _ in range(2):
        subwindow = make(REHEARSED_TUPLES, dtype, predecessor)
        slots = np.arange(REHEARSED_TUPLES, dtype=np.int32)
        for part in (
            slice(0, 1),
            slice(1, REHEARSED_TUPLES),
        ):  # single tuples and batches call different kernels
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
    rises(subwindow.sorted_keys)  # called for probes of arrays that exceed the caches
    merging = Merging(subwindow, subwindow, 1)
    merging.advance(2)
    merging.finished()


def probe_some(subwindow: Subwindow, keys: np.ndarray) -> None:
    pairs = PairBuffer()
    start, stop = np.zeros(len(keys), np.int64), np.full(len(keys), REHEARSED_TUPLES)
    probes = keys, keys.copy(), start, stop, pairs
    for _ in subwindow.probe(*probes):
        pass
    if subwindow.parts is not None:
        for _ in cast(Together, subwindow).probe_all(subwindow.parts, 0, *probes):
            pass


def prepared(program: WindowProgram, schemas: Schemas, nulls: bool) -> tuple[Stored, Probing]:
    """Empty tuples, in the roles of stored and of probing tuples."""
    stored = program.prepare_stored(no_rows(program.stored_columns, schemas, nulls), 0)
    return stored, program.prepare_probe(no_rows(program.probe_columns, schemas, nulls), 0)


def no_rows(columns: tuple[Column, ...], schemas: Schemas, nulls: bool) -> dict[Column, ColumnData]:
    """Columns without rows, in the form of data that may be NULL or of data that may not."""
    empty = {c: to_column_data(pa.nulls(0, schemas[c.side].field(c.name).type), c.type) for c in columns}
    if not nulls:
        return empty
    return {column: replace(data, valid=np.empty(0, np.bool_)) for column, data in empty.items()}
