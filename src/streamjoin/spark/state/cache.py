"""Decoded runs, kept from one micro-batch to the next. The state store holds everything; a cache only saves time.

Spark hands a partition to any Python process of the host, so there are two levels: the runs that this process has
decoded and indexed, and files that all processes of the host read. Both are bounded. Every run gets a new random token
when it is written, and only a committed manifest names that token, so nothing asks for runs that a failed or repeated
task left behind. A file's name also contains the query's id, so that the files of a query that has ended can be
removed.

Files are in a folder that belongs to this user alone (`jit/own_folder.py`). Before a file is used, we check its seal
under a key from the manifest. No other user of the host can read rows or change them, or make us remove files that are
not ours.
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
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext

from streamjoin.jit.own_folder import SEAL_BYTES, NotOurs, OwnFolder, seal
from streamjoin.jit.source import StreamJoinWarning
from streamjoin.spark.state.sizes import size_setting

# Keep this much decoded in each Python process, and this much in files on each host.
MEMORY_BYTES = size_setting("STREAMJOIN_SPARK_MEMORY", 2 << 30)
FILE_BYTES = size_setting("STREAMJOIN_SPARK_FILES", 8 << 30)
UNUSED_SECONDS = 6 * 3600  # a file that was not used for this long belongs to no running query
LOOK_AFTER_BYTES = 256 << 20  # check the folder's size after writing this much
QUERY = "sql.streaming.queryId"  # the local property of a task that holds its query's id
# The name of a file: the query's id, the run's token, and a suffix while it is being written.
RUN_FILE = re.compile(r"([0-9a-f-]{36}\.)?[0-9a-f]{32}(\.[0-9a-f]+)?")


class Kept(Protocol):
    """A value that can be rebuilt from runs: a decoded run, or the layers of a side."""

    @property
    def nbytes(self) -> int: ...


class ContentCache:
    """Decoded and indexed runs of this process. `trim` drops the least recently used. `put` names a run's owner."""

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
        """Drop an owner's other runs. Another process may have merged them, or let them expire, in between."""
        for key in self._owned.get(owner, set()) - keys:
            self.remove(key)
        self._owned[owner] = keys & self._held.keys()

    def trim(self) -> None:
        """Drop runs until the bound holds. Indexes that were built after `put` count as well. O(held)."""
        sizes = {key: content.nbytes for key, content in self._held.items()}
        total = sum(sizes.values())
        for key, size in sizes.items():
            if total <= self.most:
                break
            del self._held[key]
            total -= size
        owned = ((owner, keys & self._held.keys()) for owner, keys in self._owned.items())
        self._owned = {owner: keys for owner, keys in owned if keys}  # forget queries that have ended

    def remove(self, key: Hashable) -> None:
        self._held.pop(key, None)


class FileCache:
    """Encoded runs as files of this host. If anything goes wrong with a file, the run is read from the state store.

    `folder` should be missing or belong to us alone (`OwnFolder`). If it does not, we warn and use a folder with a
    random name beside it; other processes of this user find and use the same one. A file holds the run's bytes and a
    seal under the key of the state that the run belongs to.
    """

    def __init__(self, folder: Path, most: int):
        self.wanted, self.most = folder, most
        self._folder = OwnFolder(folder)
        self._warned = False
        self._written = LOOK_AFTER_BYTES  # clean on the first write: earlier processes may have left files

    def get(self, token: str, nbytes: int, key: bytes) -> pa.Buffer | None:
        """The bytes of a run; None unless the file is complete and its seal is valid. We copy the bytes before we check
        the seal, because a mapped file could change after the check, or be cut, which kills the process. Reading takes
        a tenth of the time of the check."""
        with contextlib.suppress(OSError), self._own().file(self._name(token)) as file:
            content = pa.allocate_buffer(nbytes + SEAL_BYTES)
            file.readinto(memoryview(content))
            data, found = content.slice(0, nbytes), content.slice(nbytes)
            if hmac.compare_digest(seal(key, token, data), found):
                os.utime(file.fileno())
                return data
        return None

    def put(self, token: str, data: bytes, key: bytes) -> None:
        with contextlib.suppress(OSError):  # such as a full disk
            self._own(make=True).write(self._name(token), data, seal(key, token, data))
        self._written += len(data)
        if self._written > LOOK_AFTER_BYTES:
            self._written = 0
            self.clean()

    def remove(self, token: str) -> None:
        with contextlib.suppress(OSError):
            self._own().remove(self._name(token))

    def clean(self) -> None:
        """Remove files that were not used for hours, then the least recently used ones until the bound holds. Removes
        folders that replaced the wanted one, once they are empty."""
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
        """The folder to use. `make`: create it if it is missing. Raises `OSError` if there is none."""
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
        """The first folder beside the wanted one. Processes that create one at the same time may use two; `clean`
        removes the one that later processes do not use."""
        found = self._beside()
        if not found and make:
            made = Path(tempfile.mkdtemp(prefix=f"{self.wanted.name}-", dir=self.wanted.parent))
            found = self._beside()
            if not found:  # such as on a network disk that changes the owner of every file
                made.rmdir()
        if not found:
            raise FileNotFoundError(
                f"neither {self.wanted} nor a folder beside it belongs to this user alone"
            )
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
        """This user's folders that replace the wanted one, by name."""
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
    """The files of runs, including files that a process was writing when it died."""
    return {name: about for name, about in folder.files().items() if RUN_FILE.fullmatch(name)}


def cache_folder() -> Path:
    """The folder for files: one for this user alone in `STREAMJOIN_SPARK_CACHE_DIR`, or else in the system's folder for
    temporary files. We leave other files there alone."""
    around = os.environ.get("STREAMJOIN_SPARK_CACHE_DIR") or tempfile.gettempdir()
    return Path(around) / f"streamjoin-spark-{os.geteuid()}"


# The caches of this process. Read them as attributes of this module: `replaced_caches` exchanges them.
RUN_MEMORY = ContentCache(MEMORY_BYTES)
RUN_FILES = FileCache(cache_folder(), FILE_BYTES)


@contextlib.contextmanager
def replaced_caches(memory: ContentCache | None = None, files: FileCache | None = None) -> Iterator[None]:
    """Use these caches inside the block, in all threads of the process; None keeps the present one. For tests: a cache
    of its own stands for another process."""
    global RUN_MEMORY, RUN_FILES
    before = RUN_MEMORY, RUN_FILES
    RUN_MEMORY = RUN_MEMORY if memory is None else memory
    RUN_FILES = RUN_FILES if files is None else files
    try:
        yield
    finally:
        RUN_MEMORY, RUN_FILES = before
