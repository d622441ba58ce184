"""Tables of other libraries: their columns as Arrow, and results in the caller's own kind.

A kind of table is a `FrameKind`. Libraries are never imported here: a caller who has one of their tables has imported
it (`sys.modules`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from streamjoin.semantics.errors import InputError, short_repr

ALLOWED = (
    "a pandas or Polars DataFrame, a Polars LazyFrame, a DuckDB relation, a pyarrow Table or RecordBatch, a list of "
    "dicts, a dict of lists, or anything with the Arrow PyCapsule interface"
)
PUSHED = (
    "a pyarrow RecordBatch or Table, a table with the Arrow PyCapsule interface (pandas, polars, ...), or a list of "
    "dicts"
)


class Origin(NamedTuple):
    """Where a column of a result comes from: the caller's table, its column there, and whether rows can lack it."""

    frame: Any
    name: str
    missing: bool


class FrameKind(Protocol):
    """A kind of table. `side` is for messages."""

    chooses: bool  # whether columns are known, and can be chosen, before rows are converted
    pushed: bool  # whether rows exist, so that tables of the kind can be pushed to a stream

    def fits(self, data: Any) -> bool:
        """Whether this is a table of the kind."""

    def schema(self, data: Any, side: str) -> pa.Schema:
        """The columns. O(1) if it `chooses`."""

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        """The rows as Arrow; only the columns `names`, if given."""

    def give(self, result: pa.Table, origins: Sequence[Origin], left: Any) -> Any:
        """A result as a table of the kind. `origins`: of its columns, in their order. `left`: the caller's
        table of this kind."""


def kind_of(data: Any, side: str, allowed: str = ALLOWED) -> FrameKind:
    """The kind of a caller's table. `allowed` are the kinds that an error names."""
    for kind in KINDS:
        if kind.fits(data):
            return kind
    message = f"{side} data is a {type(data).__name__}: {_advice(data, allowed)}"
    raise InputError(message, field=side, given=data, allowed=allowed)


def _advice(data: Any, allowed: str) -> str:
    """What to do with something other than a table."""
    if type(data).__module__.startswith("pyspark."):
        return "for Spark call streamjoin.spark.window_join(left, right, ...)"
    if isinstance(data, (str, bytes)) or hasattr(data, "__fspath__"):
        return f"read a file first, such as with pandas.read_csv or polars.read_parquet; allowed: {allowed}"
    if hasattr(data, "__next__"):
        return f"collect its rows first, as in list(rows); allowed: {allowed}"
    return f"give {allowed}"


def chosen_or_read(data: Any, side: str) -> Any:
    """A caller's table if columns of it can be chosen, else its rows as Arrow: so nothing is read twice."""
    return _reading(data, side, lambda kind: data if kind.chooses else kind.read(data, side))


def frame_schema(data: Any, side: str) -> pa.Schema:
    """The columns of a table of any kind."""
    return _reading(data, side, lambda kind: kind.schema(data, side)).remove_metadata()


def read_frame(data: Any, side: str, names: Sequence[str]) -> pa.Table:
    """Some columns of a table of any kind."""
    return _reading(data, side, lambda kind: kind.read(data, side, names)).replace_schema_metadata()


def read_pushed(data: Any, side: str) -> pa.Table:
    """The rows of a table of a kind that can be pushed: its rows exist, one beside the other."""

    def read(kind: FrameKind) -> pa.Table:
        if not kind.pushed:
            message = f"{side} data is a {type(data).__name__}: {_as_pushed(data)}; allowed: {PUSHED}"
            raise InputError(message, field=side, given=data, allowed=PUSHED)
        return kind.read(data, side)

    return _reading(data, side, read, PUSHED)


def _as_pushed(data: Any) -> str:
    """How to push a lazy table or a dict."""
    if hasattr(data, "collect"):
        return "collect it first"
    lists = any(hasattr(value, "__len__") and not isinstance(value, (str, bytes)) for value in data.values())
    return "make it a table with pyarrow.table(columns)" if lists else "push one row as [row]"


def _reading(data: Any, side: str, read: Callable[[FrameKind], Any], allowed: str = ALLOWED) -> Any:
    """Read a table as its kind does. Whatever its library raises becomes an error of the input."""
    try:
        return read(kind_of(data, side, allowed))
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"{side} data is a {type(data).__name__}, and reading it raised {error!r}: nothing of it was taken; "
            f"give {allowed}",
            field=side,
            given=data,
            allowed=allowed,
        ) from error


class ArrowTables:
    """Tables of pyarrow."""

    chooses, pushed = True, True

    def fits(self, data: Any) -> bool:
        return isinstance(data, pa.Table)

    def schema(self, data: Any, side: str) -> pa.Schema:
        return data.schema

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        return data if names is None else data.select(list(names))

    def give(self, result: pa.Table, origins: Sequence[Origin], left: Any) -> Any:
        return result


class ArrowBatches(ArrowTables):
    """Record batches. Results are one batch."""

    def fits(self, data: Any) -> bool:
        return isinstance(data, pa.RecordBatch)

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        return super().read(pa.Table.from_batches([data]), side, names)

    def give(self, result: pa.Table, origins: Sequence[Origin], left: Any) -> Any:
        columns = [column.combine_chunks() for column in result.columns]
        return pa.RecordBatch.from_arrays(columns, schema=result.schema)


class ArrowReaders(ArrowTables):
    """Readers of record batches, which are read to their end. Results are readers, too."""

    def fits(self, data: Any) -> bool:
        return isinstance(data, pa.RecordBatchReader)

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        return super().read(data.read_all(), side, names)

    def give(self, result: pa.Table, origins: Sequence[Origin], left: Any) -> Any:
        return result.to_reader()


class ArrowCapsules(ArrowTables):
    """Whatever else has the Arrow PyCapsule interface. Results are tables of pyarrow."""

    chooses, pushed = False, True

    def fits(self, data: Any) -> bool:
        return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")

    def schema(self, data: Any, side: str) -> pa.Schema:
        return pa.schema(data) if hasattr(data, "__arrow_c_schema__") else self.read(data, side).schema

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        streams = hasattr(data, "__arrow_c_stream__")
        return super().read(pa.table(data) if streams else pa.table(pa.record_batch(data)), side, names)


class PandasFrames:
    """DataFrames of pandas. Their index is left out, and results have a new one."""

    chooses, pushed = False, True

    def fits(self, data: Any) -> bool:
        return is_of("pandas", "DataFrame", data)

    def schema(self, data: Any, side: str) -> pa.Schema:
        return self.read(data, side).schema  # the types of object columns follow from their values

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        for name in data.columns:
            if not isinstance(name, str):
                told = f"{side} has a column named {name!r}: the names of columns must be strings; rename it"
                raise InputError(told, field=side, given=name, allowed="names that are strings")
        if not data.columns.is_unique:
            repeated = data.columns[data.columns.duplicated()][0]
            told = f"{side} has several columns named {repeated!r}: rename them"
            raise InputError(told, field=side, given=repeated, allowed="unique names")
        return pa.Table.from_pandas(data if names is None else data[list(names)], preserve_index=False)

    def give(self, result: pa.Table, origins: Sequence[Origin], left: Any) -> Any:
        pandas = sys.modules["pandas"]
        columns = {
            name: _as_series(pandas, column, origin)
            for name, column, origin in zip(result.column_names, result.columns, origins, strict=True)
        }
        return pandas.DataFrame(columns, copy=False)


def _as_series(pandas: Any, column: pa.ChunkedArray, origin: Origin) -> Any:
    """A column of a result in pandas, of the dtype that it had there. Integers and booleans that can be missing get the
    dtypes of pandas that know NA (`Int64`, `boolean`): floats would change large integers."""
    known = isinstance(origin.frame, pandas.DataFrame)
    dtype = origin.frame[origin.name].dtype if known else None
    whole = pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)
    if whole and (origin.missing if known else column.null_count) and not hasattr(dtype, "__from_arrow__"):
        name = str(column.type)  # int64, uint8, bool
        dtype = pandas.api.types.pandas_dtype(
            "boolean" if name == "bool" else name.replace("int", "Int").replace("u", "U")
        )
    if dtype is not None and hasattr(dtype, "__from_arrow__"):
        return pandas.Series(dtype.__from_arrow__(column))
    series = column.to_pandas()
    return series.astype(dtype) if isinstance(dtype, pandas.CategoricalDtype) else series


class PolarsFrames:
    """DataFrames of Polars."""

    chooses, pushed = True, True

    def fits(self, data: Any) -> bool:
        return is_of("polars", "DataFrame", data)

    def schema(self, data: Any, side: str) -> pa.Schema:
        return data.clear().to_arrow().schema

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        return (data if names is None else data.select(list(names))).to_arrow()

    def give(self, result: pa.Table, origins: Sequence[Origin], left: Any) -> Any:
        return sys.modules["polars"].from_arrow(result)


class PolarsLazyFrames(PolarsFrames):
    """LazyFrames of Polars, which are collected. Results are lazy, too, though they are computed."""

    pushed = False

    def fits(self, data: Any) -> bool:
        return is_of("polars", "LazyFrame", data)

    def schema(self, data: Any, side: str) -> pa.Schema:
        return data.clear().collect().to_arrow().schema

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        return (data if names is None else data.select(list(names))).collect().to_arrow()

    def give(self, result: pa.Table, origins: Sequence[Origin], left: Any) -> Any:
        return super().give(result, origins, left).lazy()


class DuckDBRelations:
    """Relations of DuckDB, which are executed. A result is a relation of the same connection."""

    chooses, pushed = True, True

    def fits(self, data: Any) -> bool:
        return is_of("duckdb", "DuckDBPyRelation", data)

    def schema(self, data: Any, side: str) -> pa.Schema:
        return pa.table(data.limit(0)).schema

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        if names is None:
            return pa.table(data)
        quoted = ['"' + name.replace('"', '""') + '"' for name in names]
        return pa.table(data.project(", ".join(quoted)))

    def give(self, result: pa.Table, origins: Sequence[Origin], left: Any) -> Any:
        return left.query("streamjoin_left", "SELECT * FROM result")  # DuckDB finds the variable by its name


class RecordLists:
    """Lists of dicts, one for each row. A key that a row lacks is NULL in it."""

    chooses, pushed = False, True

    def fits(self, data: Any) -> bool:
        return isinstance(data, Sequence) and not isinstance(data, (str, bytes, bytearray, memoryview))

    def schema(self, data: Any, side: str) -> pa.Schema:
        return self.read(data, side).schema

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        for number, row in enumerate(data):
            if not isinstance(row, Mapping):
                told = f"row {number} of {side} is a {type(row).__name__}: give every row as a dict"
                raise InputError(told, field=side, given=row, allowed=ALLOWED)
        if not data:
            told = f"{side} is an empty list, which has no columns: give an empty pyarrow.Table with a schema"
            raise InputError(told, field=side, given=data, allowed=ALLOWED)
        found = list(dict.fromkeys(name for row in data for name in row)) if names is None else names
        return _table_of({name: [row.get(name) for row in data] for name in found}, side)

    def give(self, result: pa.Table, origins: Sequence[Origin], left: Any) -> Any:
        return result.to_pylist()


class ColumnDicts:
    """Dicts of lists or arrays, one for each column."""

    chooses = pushed = False

    def fits(self, data: Any) -> bool:
        return isinstance(data, Mapping)

    def schema(self, data: Any, side: str) -> pa.Schema:
        return self.read(data, side).schema

    def read(self, data: Any, side: str, names: Sequence[str] | None = None) -> pa.Table:
        lengths = {name: len(column) for name, column in data.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(
                f"the columns of {side} have different lengths: {lengths}",
                field=side,
                given=lengths,
                allowed="columns of one length",
            )
        return _table_of(data if names is None else {name: data[name] for name in names}, side)

    def give(self, result: pa.Table, origins: Sequence[Origin], left: Any) -> Any:
        return result.to_pydict()


def _table_of(columns: Mapping[Any, Any], side: str) -> pa.Table:
    """Columns of Python values as Arrow, each of the type that its values have."""
    arrays = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            told = f"{side} has a column named {name!r}: the names of columns must be strings"
            raise InputError(told, field=side, given=name, allowed="names that are strings")
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            told = f"{side} column {name!r} cannot be one Arrow column ({error}){_odd_one(values)}"
            raise InputError(told, field=side, given=values, allowed="values of one Arrow type") from error
        if pa.types.is_timestamp(arrays[name].type):
            _check_zones(name, values, side)
    return pa.table(arrays)


def _check_zones(name: str, values: Sequence[Any], side: str) -> None:
    """Refuse datetimes with and without a time zone in one column: Arrow would take the latter as UTC."""
    zoned = {value.tzinfo is not None for value in values if isinstance(value, datetime)}
    if len(zoned) > 1:
        told = (
            f"{side} column {name!r} has datetimes with a time zone and without: give all of them one, such as with "
            "replace(tzinfo=UTC)"
        )
        raise InputError(
            told, field=side, given=values, allowed="datetimes that all have a time zone, or none"
        )


def _odd_one(values: Sequence[Any]) -> str:
    """Which value does not have the type of those before it."""
    kinds = [(number, type(value)) for number, value in enumerate(values) if value is not None]
    for number, kind in kinds:
        if kind is not kinds[0][1]:
            before = f"rows before it have {kinds[0][1].__name__}"
            return f": row {number} is {short_repr(values[number])}, and {before}; give all rows one type"
    return "; give values of one type"


def index_names(data: Any) -> Sequence[Any]:
    """The names of the levels of a pandas index; nothing for other tables."""
    return list(data.index.names) if is_of("pandas", "DataFrame", data) else []


def is_of(library: str, name: str, data: Any) -> bool:
    """Whether `data` is of a class of a library, which is not imported for that."""
    module = sys.modules.get(library)
    return isinstance(data, getattr(module, name, ()))


# The first one that fits: tables of pandas and Polars have the PyCapsule interface, too.
KINDS: tuple[FrameKind, ...] = (
    ArrowTables(), ArrowBatches(), ArrowReaders(), PandasFrames(), PolarsFrames(), PolarsLazyFrames(),
    DuckDBRelations(), RecordLists(), ColumnDicts(), ArrowCapsules(),
)  # fmt: skip
