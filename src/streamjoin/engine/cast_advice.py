"""How to cast a column, written in the library of the table that was pushed; for messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.engine.frames import is_of


def cast_advice(data: Any, side: str, name: str, kind: pa.DataType) -> str:
    """An expression that casts column `name` of `data`, and changes values that do not fit."""
    if is_of("pandas", "DataFrame", data):
        return f"df.astype({{{_quoted(name)}: {_pandas_dtype(side, name, kind)}}})"
    if is_of("polars", "DataFrame", data):
        dtype = sys.modules["polars"].from_arrow(pa.nulls(0, kind)).dtype
        return f"pl.col({_quoted(name)}).cast(pl.{dtype!r}, strict=False)"
    python = _python_type(kind)
    if python and isinstance(data, Sequence):  # of dicts
        return f"{python}(row[{_quoted(name)}])"
    return f"pc.cast(table[{_quoted(name)}], {_arrow_type(side, name, kind)}, safe=False)"


def _python_type(kind: pa.DataType) -> str | None:
    """The type of Python that converts a value by a call; None if none does."""
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_floating(kind):
        return "float"
    return "str" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


def _pandas_dtype(side: str, name: str, kind: pa.DataType) -> str:
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return '"str"'
    if pa.types.is_primitive(kind) and not (zoned or pa.types.is_date(kind) or pa.types.is_time(kind)):
        return f'"{np.dtype(kind.to_pandas_dtype())}"'
    return f"pd.ArrowDtype({_type_in_spec(side, name)})"


def _arrow_type(side: str, name: str, kind: pa.DataType) -> str:
    try:
        return f'"{kind}"' if pa.type_for_alias(str(kind)) == kind else _type_in_spec(side, name)
    except ValueError:  # types with parameters have no alias
        return _type_in_spec(side, name)


def _type_in_spec(side: str, name: str) -> str:
    return f"spec.{side}.field({_quoted(name)}).type"


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
