"""Paths in a job file: relative to the file, or URIs that are left to Spark; and what Parquet files below them tell."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_schema

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.shown import shown
from streamjoin.spark.job.toml import REQUIRED, TomlTable

SCHEMA = "the columns as Spark writes them, such as 'ts TIMESTAMP, x INT'"
MOST_FOLDERS = 1000  # in which a Parquet file is looked for


def is_remote(path: str) -> bool:
    """Whether a path is a URI, which is left to Spark; `file:` as well, because a cluster may have another default."""
    return re.match(r"[A-Za-z][\w+.-]*:/", path) is not None


def read_path(
    table: TomlTable, name: str, wanted: str, folder: Path, default: str | None = REQUIRED
) -> str | None:
    """The path that a key gives, relative to the file's folder; None if there is none, or a mistake."""
    path = table.text(name, wanted, default)
    return None if path is None else table.checked(name, lambda: local_path(path, folder), None)


def local_path(path: str, folder: Path) -> str | None:
    """A path of a job file: relative to the file's folder, unless it is a URI."""
    if is_remote(path):
        return path
    try:
        return str(folder / Path(path).expanduser())
    except RuntimeError:
        raise SpecError(
            f"is {shown(path)}, but the home of that user is unknown: write the path without ~"
        ) from None


def parquet_columns(path: str) -> types.StructType:
    """The columns of the first Parquet file below a local path."""
    if is_remote(path):
        raise SpecError(
            f"is missing, and {shown(path)} can not be looked at before Spark runs: give {SCHEMA}"
        )
    found = next(parquet_files(path), None)
    if found is None:
        raise SpecError(
            f"is missing, and there is no Parquet file in {shown(path)} to read it from: give {SCHEMA}"
        )
    try:
        columns: types.StructType = from_arrow_schema(pq.read_schema(found))
    except (pa.ArrowException, OSError, PySparkException) as error:
        raise SpecError(
            f"is missing, and {shown(str(found))} does not tell it ({error}): give {SCHEMA}"
        ) from None
    for column in columns:
        column.nullable = True  # this file has no NULL there, but others may
    return columns


def parquet_files(path: str) -> Iterator[Path]:
    """The data files of the folders, or the files, that a path or pattern matches; of many folders, those of the first.
    Spark skips names that begin with _ or a dot."""
    folders = 0
    for top in sorted(islice(glob.iglob(path), MOST_FOLDERS)):
        if os.path.isfile(top):
            yield Path(top)
        for folder, below, files in os.walk(top):
            below.sort()
            yield from (Path(folder, name) for name in sorted(files) if is_parquet(name))
            folders += 1
            if folders == MOST_FOLDERS:
                return


def is_parquet(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(("_", "."))
