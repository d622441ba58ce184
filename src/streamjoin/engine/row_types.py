"""Check that a join can hold and return each column: before it opens, its steps are tried on a column of NULLs.

Arrow has types that it cannot gather, concatenate or encode, and which ones depends on its version. So there is no list
here: a type is refused if Arrow refuses it, and when the join is opened, not when its first result is built.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streamjoin.engine.intake import conform
from streamjoin.engine.rows import is_plain, restored, storage_schema
from streamjoin.semantics.errors import SpecError
from streamjoin.semantics.spec import SIDES, JoinSpec


def check_columns(spec: JoinSpec) -> None:
    """Raise `SpecError` for a column that a join could not hold or not return."""
    for side in SIDES:
        schema = spec.side_schema(side)
        for declared, held in zip(schema, storage_schema(schema), strict=True):
            if is_plain(declared.type):
                continue
            try:
                _try(conform(pa.nulls(1, declared.type), held, side), declared.type)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise SpecError(
                    f"{side} column {declared.name!r} has type {declared.type}, which pyarrow {pa.__version__} cannot "
                    f"copy row by row ({error}): convert the column to another type, or leave it out",
                    field=f"{side}.{declared.name}",
                    given=str(declared.type),
                    allowed="a type that pyarrow copies row by row",
                ) from error


def _try(row: pa.Array, declared: pa.DataType) -> None:
    """Copy held rows together, gather some of them, and give them back."""
    given = restored(pa.concat_arrays([row, row]).take(pa.array([1, 0])), declared)
    if given.type != declared:  # dictionaries of dictionaries are encoded once only
        raise pa.ArrowNotImplementedError(f"it would become {given.type}")
    for inner in _nested(row.type):
        if pa.types.is_run_end_encoded(inner):  # of which some are gathered without an error, and wrongly
            raise pa.ArrowNotImplementedError("run-end encoding inside another type")
        if pa.types.is_dictionary(inner):
            _try_to_unify(inner)


def _try_to_unify(kind: pa.DataType) -> None:
    """Copy rows of different dictionaries together."""
    index = pa.nulls(1, kind.index_type)
    parts = [
        pa.DictionaryArray.from_arrays(index, pa.nulls(size, kind.value_type), ordered=kind.ordered)
        for size in (0, 1)
    ]
    try:
        pa.concat_arrays(parts)
    except pa.ArrowInvalid:
        return  # Only because a NULL is in the dictionary itself, where a trial can have nothing else.


def _nested(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The type, and all types inside it."""
    yield kind
    if pa.types.is_dictionary(kind):
        yield from _nested(kind.value_type)
    elif isinstance(kind, pa.BaseExtensionType):
        yield from _nested(kind.storage_type)
    elif pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from _nested(kind.field(number).type)
