"""Paths in a job file: relative to the file, or URIs that Spark resolves. Also reads the columns of Parquet files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path, PurePath

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_schema

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.shown import shown

SCHEMA = "the columns as Spark writes them, such as 'ts TIMESTAMP, x INT'"
MAX_FOLDERS = 1000  # the most folders to search for a Parquet file


def is_remote(path: str) -> bool:
    """Whether Spark must resolve a path: any URI, also `file:`, because a cluster may have another default."""
    return re.match(r"[A-Za-z][\w+.-]*:/", path) is not None


def in_the_way(folder: str) -> str | None:
    """Why a local folder cannot exist: a file is in its place or above it, or the system refuses the name."""
    path = Path(folder)
    if is_remote(folder):
        return None
    try:
        there = next(each for each in (path, *path.parents) if each.exists())
    except OSError as error:
        return f"which cannot be created ({error.strerror})"
    if there.is_dir():
        return None
    return "which is a file" if there == path else f"and {str(there)!r} is a file"


def lies_in(place: str, pattern: str) -> bool:
    """Whether a place is a folder that the pattern matches, or lies in one."""
    inner, outer = (PurePath(os.path.normpath(path).removeprefix("file:")).parts for path in (place, pattern))
    return len(inner) >= len(outer) and all(map(fnmatch, inner, outer))


def local_path(path: str, folder: Path) -> str:
    """A path of a job file: relative to the file's folder, unless it is a URI."""
    if is_remote(path):
        return path
    try:
        return str(folder / Path(path).expanduser())
    except RuntimeError:
        raise SpecError(
            f"is {shown(path)}, but the home folder of that user is unknown: write the path without ~"
        ) from None


def parquet_columns(path: str) -> types.StructType:
    """The columns of the first Parquet file below a local path."""
    if is_remote(path):
        raise SpecError(f"is missing, and {shown(path)} cannot be read before Spark runs: give {SCHEMA}")
    found = next(parquet_files(path), None)
    if found is None:
        raise SpecError(
            f"is missing, and there is no Parquet file in {shown(path)} to read it from: give {SCHEMA}"
        )
    try:
        columns: types.StructType = from_arrow_schema(pq.read_schema(found))
    except (pa.ArrowException, OSError, PySparkException) as error:
        raise SpecError(
            f"is missing, and cannot be read from {shown(str(found))} ({error}): give {SCHEMA}"
        ) from None
    for column in columns:
        column.nullable = True  # other files may have NULL where this one has none
    return columns


def parquet_files(path: str, max_folders: int = MAX_FOLDERS) -> Iterator[Path]:
    """The data files of the folders, or the files, that a path or pattern matches; at most `max_folders` are searched.
    Like Spark, skip names that begin with _ or a dot."""
    folders = 0
    for top in sorted(islice(glob.iglob(path), max_folders)):
        if os.path.isfile(top):
            yield Path(top)
        for folder, below, files in os.walk(top):
            below.sort()
            yield from (Path(folder, name) for name in sorted(files) if is_parquet(name))
            folders += 1
            if folders == max_folders:
                return


def is_parquet(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(("_", "."))
