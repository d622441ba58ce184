"""Decoded runs, kept from one micro-batch to the next. The state store has the truth; nothing depends on this.

Spark hands a partition to any Python process of the host, so there are two levels: what this process decoded and
indexed, and files that all processes of the host map into memory. Both are bounded. A run is known by a token that
is drawn anew whenever one is written, and only a committed manifest names it: what a failed or repeated task
left behind is never asked for. A file is named after its query as well, so that those of one that has ended can be
removed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import zlib
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext

MEMORY_BYTES = int(
    os.environ.get("STREAMJOIN_SPARK_MEMORY", 2 << 30)
)  # of decoded runs, in each Python process
FILE_BYTES = int(os.environ.get("STREAMJOIN_SPARK_FILES", 8 << 30))  # of files, on each host
UNUSED_SECONDS = 6 * 3600  # after which a file belongs to no running query
LOOK_AFTER_BYTES = 256 << 20  # written by this process before it looks at the size of the folder again
QUERY = "sql.streaming.queryId"  # the property of a task that says for which query it is


class Kept(Protocol):
    """What can be made again from runs: one that is decoded, or several merged."""

    @property
    def nbytes(self) -> int: ...


class ContentCache:
    """Decoded and indexed runs of this process; the least recently used go first. Whoever puts a run is its owner."""

    def __init__(self, most: int):
        self.most = most
        self._held: OrderedDict[Hashable, Kept] = OrderedDict()
        self._owned: dict[Hashable, set[Hashable]] = {}

    def get(self, key: Hashable) -> Kept | None:
        content = self._held.get(key)
        if content is not None:
            self._held.move_to_end(key)
        return content

    def put(self, key: Hashable, content: Kept, owner: Hashable = None) -> None:
        self._held[key] = content
        self._held.move_to_end(key)
        self._owned.setdefault(owner, set()).add(key)

    def keep(self, owner: Hashable, keys: set[Hashable]) -> None:
        """Drop an owner's other runs: it may have merged them, or let them expire, while another process ran it."""
        for key in self._owned.get(owner, set()) - keys:
            self.remove(key)
        self._owned[owner] = keys & self._held.keys()

    def trim(self) -> None:
        """Drop until the bound holds; indexes made since count as well. O(held)."""
        sizes = {key: content.nbytes for key, content in self._held.items()}
        total = sum(sizes.values())
        for key, size in sizes.items():
            if total <= self.most:
                break
            del self._held[key]
            total -= size
        owned = ((owner, keys & self._held.keys()) for owner, keys in self._owned.items())
        self._owned = {owner: keys for owner, keys in owned if keys}  # queries come and go

    def remove(self, key: Hashable) -> None:
        self._held.pop(key, None)


class FileCache:
    """Encoded runs as files of this host. Whatever goes wrong with a file, the run is read from the state store."""

    def __init__(self, folder: Path, most: int):
        self.folder, self.most = folder, most
        self._written = LOOK_AFTER_BYTES  # look at what earlier processes left behind at once

    def get(self, token: str, nbytes: int, crc: int) -> pa.Buffer | None:
        """The bytes of a run, mapped into memory, if the file is whole."""
        with contextlib.suppress(OSError):
            path = self._path(token)
            buffer = pa.memory_map(path).read_buffer()
            if buffer.size == nbytes and zlib.crc32(buffer) == crc:
                os.utime(path)
                return buffer
        return None

    def put(self, token: str, data: bytes) -> None:
        path = self._path(token)
        unfinished = f"{path}.{os.getpid()}"
        try:
            if not os.path.isdir(self.folder):  # the first file, or somebody removed them all
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(unfinished, "wb") as file:
                file.write(data)
            os.rename(unfinished, path)
        except OSError:  # a disk that is full, say, which half a file would only keep full
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
        self._written += len(data)
        if self._written > LOOK_AFTER_BYTES:
            self._written = 0
            self.clean()

    def remove(self, token: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path(token))

    def clean(self) -> None:
        """Remove files that nobody used for hours, then the least recently used beyond the bound."""
        with contextlib.suppress(OSError):
            files = []
            for path in self.folder.iterdir():
                with contextlib.suppress(OSError):
                    found = path.stat()
                    files.append((found.st_mtime, found.st_size, path))
            total = sum(size for _, size, _ in files)
            for used, size, path in sorted(files):
                if total <= self.most and used > time.time() - UNUSED_SECONDS:
                    return
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= size

    def remove_all_of(self, query: str) -> None:
        """Remove the files of a query that has ended; should it go on, it reads its runs from the state store."""
        with contextlib.suppress(OSError):
            for path in self.folder.glob(f"{query}.*"):
                path.unlink(missing_ok=True)

    def _path(self, token: str) -> str:
        """As text: a quarter of the time of writing a file went into a `Path`."""
        task = TaskContext.get()
        query = None if task is None else task.getLocalProperty(QUERY)
        return f"{self.folder}/{token if query is None else f'{query}.{token}'}"


def cache_folder() -> Path:
    """Where files are kept: `STREAMJOIN_SPARK_CACHE_DIR`, or a folder of this user among the temporary ones."""
    chosen = os.environ.get("STREAMJOIN_SPARK_CACHE_DIR")
    return Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"streamjoin-spark-{os.getuid()}"


MEMORY = ContentCache(MEMORY_BYTES)
FILES = FileCache(cache_folder(), FILE_BYTES)
