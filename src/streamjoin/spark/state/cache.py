"""Decoded runs, kept from one micro-batch to the next. The state store has the truth; nothing depends on this.

Spark hands a partition to any Python process of the host, so there are two levels: what this process decoded and
indexed, and files that all processes of the host read. Both are bounded. A run is known by a token that
is drawn anew whenever one is written, and only a committed manifest names it: what a failed or repeated task
left behind is never asked for. A file is named after its query as well, so that those of one that has ended can be
removed.

Files lie in a folder of this user alone (`jit/own_folder.py`), and a seal under a key from the manifest is checked
before a file is used: no other user of the host can read rows, change them, or have files removed that are not ours.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import tempfile
import time
import warnings
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext

from streamjoin.jit.own_folder import SEAL_BYTES, NotOurs, OwnFolder, seal
from streamjoin.jit.source import StreamJoinWarning
from streamjoin.spark.state.sizes import size_setting

MEMORY_BYTES = size_setting("STREAMJOIN_SPARK_MEMORY", 2 << 30)  # of decoded runs, in each Python process
FILE_BYTES = size_setting("STREAMJOIN_SPARK_FILES", 8 << 30)  # of files, on each host
UNUSED_SECONDS = 6 * 3600  # after which a file belongs to no running query
LOOK_AFTER_BYTES = 256 << 20  # written by this process before it looks at the size of the folder again
QUERY = "sql.streaming.queryId"  # the property of a task that says for which query it is
# The name of a file: the query's id, the run's token, and a suffix while it is being written.
FILE = re.compile(r"([0-9a-f-]{36}\.)?[0-9a-f]{32}(\.[0-9a-f]+)?")


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
    """Encoded runs as files of this host. Whatever goes wrong with a file, the run is read from the state store.

    `folder` should be missing or ours alone (`OwnFolder`). If it is not, a folder with a random name beside it is used,
    the same one in all processes of this user that find it; a warning says so. A file holds the run's bytes and a seal
    under the key of the state that the run belongs to.
    """

    def __init__(self, folder: Path, most: int):
        self.wanted, self.most = folder, most
        self._folder = OwnFolder(folder)
        self._warned = False
        self._written = LOOK_AFTER_BYTES  # look at what earlier processes left behind at once

    def get(self, token: str, nbytes: int, key: bytes) -> pa.Buffer | None:
        """The bytes of a run, if the file is whole and ours. They are a private copy, made before the seal is checked:
        a mapped file could change afterwards, or be cut, which kills the process. Reading takes a tenth of the time of
        the check."""
        with contextlib.suppress(OSError), self._own().file(self._name(token)) as file:
            content = pa.allocate_buffer(nbytes + SEAL_BYTES)
            file.readinto(memoryview(content))
            data, found = content.slice(0, nbytes), content.slice(nbytes)
            if hmac.compare_digest(seal(key, token, data), found):
                os.utime(file.fileno())
                return data
        return None

    def put(self, token: str, data: bytes, key: bytes) -> None:
        with contextlib.suppress(OSError):  # a disk that is full, say
            self._own(make=True).write(self._name(token), data, seal(key, token, data))
        self._written += len(data)
        if self._written > LOOK_AFTER_BYTES:
            self._written = 0
            self.clean()

    def remove(self, token: str) -> None:
        with contextlib.suppress(OSError):
            self._own().remove(self._name(token))

    def clean(self) -> None:
        """Remove files that nobody used for hours, then the least recently used beyond the bound. Folders that served
        instead of the one asked for are removed when they are empty."""
        with contextlib.suppress(OSError):
            for path in {self._folder.path, *self._beside()}:
                with contextlib.suppress(OSError):
                    self._trim(OwnFolder(path))
                    if path != self._folder.path:
                        path.rmdir()

    def _trim(self, folder: OwnFolder) -> None:
        files = [(about.st_mtime, about.st_size, name) for name, about in runs_in(folder).items()]
        total, removed = sum(size for _, size, _ in files), []
        for used, size, name in sorted(files):
            if total <= self.most and used > time.time() - UNUSED_SECONDS:
                break
            removed.append(name)
            total -= size
        folder.remove(*removed)

    def remove_all_of(self, query: str) -> None:
        """Remove the files of a query that has ended; if it resumes, it reads its runs from the state store."""
        with contextlib.suppress(OSError):
            folder = self._own()
            folder.remove(*(name for name in runs_in(folder) if name.startswith(f"{query}.")))

    def _own(self, make: bool = False) -> OwnFolder:
        """The folder to use, made if asked for and missing. Raises `OSError` if there is none."""
        try:
            try:
                with self._folder.opened(make):
                    pass
            except NotOurs as error:
                self._folder = self._instead(make)
                self._warn(f"{error}. {self._folder.path} is used instead")
        except OSError as error:
            if make:
                self._warn(f"{error}. Runs are read from the state store instead, which is slower")
            raise
        return self._folder

    def _instead(self, make: bool) -> OwnFolder:
        """The first folder beside the one asked for. Processes that make one at the same time agree on it, or use two:
        `clean` removes the one that later processes do not find."""
        found = self._beside()
        if not found and make:
            made = Path(tempfile.mkdtemp(prefix=f"{self.wanted.name}-", dir=self.wanted.parent))
            found = self._beside()
            if not found:  # on a network disk that gives everything another owner, say
                made.rmdir()
        if not found:
            raise FileNotFoundError(f"{self.wanted} is not ours, and nor is a folder that we make beside it")
        return OwnFolder(found[0])

    def _warn(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the folder for files of Spark's workers cannot be used: {problem}. To choose another, set "
                "STREAMJOIN_SPARK_CACHE_DIR to a folder that this user can write",
                StreamJoinWarning,
                stacklevel=2,
            )

    def _beside(self) -> list[Path]:
        """Folders of this user that serve instead of the one asked for, by name."""
        prefix, found = f"{self.wanted.name}-", []
        for path in sorted(self.wanted.parent.iterdir()):
            if path.name.startswith(prefix):
                with contextlib.suppress(OSError), OwnFolder(path).opened():
                    found.append(path)
        return found

    def _name(self, token: str) -> str:
        task = TaskContext.get()
        query = None if task is None else task.getLocalProperty(QUERY)
        return token if query is None else f"{query}.{token}"


def runs_in(folder: OwnFolder) -> dict[str, os.stat_result]:
    """The files of runs, and of those that were being written when a process died."""
    return {name: about for name, about in folder.files().items() if FILE.fullmatch(name)}


def cache_folder() -> Path:
    """Where files are kept: a folder for this user alone in `STREAMJOIN_SPARK_CACHE_DIR`, or else in the system's
    folder for temporary files. What else lies there is left alone."""
    around = os.environ.get("STREAMJOIN_SPARK_CACHE_DIR") or tempfile.gettempdir()
    return Path(around) / f"streamjoin-spark-{os.geteuid()}"


MEMORY = ContentCache(MEMORY_BYTES)
FILES = FileCache(cache_folder(), FILE_BYTES)
