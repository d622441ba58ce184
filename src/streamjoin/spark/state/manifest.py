"""What a worker keeps between micro-batches: immutable runs of rows, and a manifest that names them.

A micro-batch adds one run per side. Runs of one level are merged, `RUNS_TO_MERGE` at a time, until one is as large as
a subwindow should be (Pan & Jacobsen 2018, section III-A: a window is a chain of subwindows, of which only the newest
changes and the oldest is dropped as a whole). Only runs that still exist at the end of the micro-batch are written. So
a row is written a few times at most, whatever the size of the window.

Everything is written through one state store, which Spark commits or discards as a whole with the micro-batch. So after
a restart the manifest, the runs that it names and the input that Spark reads next belong together.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import uuid
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from streamjoin.index.tuples import ProbingTuples
from streamjoin.jit.own_folder import KEY_BYTES
from streamjoin.semantics.errors import StreamJoinError
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.pack import decode, encode
from streamjoin.spark.join.task import BEGIN_OF_TIME, JoinTask, differences
from streamjoin.spark.state import cache
from streamjoin.spark.state.content import (
    AnyContent,
    Content,
    Contents,
    StoredRows,
    UnloadedContent,
    expect,
    in_order,
)
from streamjoin.spark.state.layers import Layers
from streamjoin.spark.state.runs import StoredRun

# Versions of the manifest's and the runs' format. Version 2 adds `shift`; a state without one is written as version 1,
# which earlier releases read.
STATE_VERSION, UNSHIFTED_VERSION = 2, 1
RUNS_TO_MERGE = 2  # merge this many runs of one level; sealed runs are merged only in memory (`layers`)
SEALED_ROWS = 1 << 18  # do not merge runs beyond this size
# Do not merge runs beyond 1/32 of the window: writing rows again costs more than merging them in memory.
RUN_OF_WINDOW = 32
INDEXED_ROW_BYTES = (
    64  # about what a row takes in memory besides its columns: keys, times, its part of an index
)
GROUPS = 4  # if the state does not fit in memory, probe it in groups of a quarter of the memory
SEALED = 99  # the level of runs that are not merged any more


class StateError(StreamJoinError, RuntimeError):
    """A checkpoint from which this join cannot resume, or state that Spark refuses."""


def check_version(version: int) -> None:
    """Raise unless this release reads state of this version."""
    if version not in (STATE_VERSION, UNSHIFTED_VERSION):
        raise StateError(
            f"this checkpoint has state of version {version}, and this streamjoin reads versions "
            f"{UNSHIFTED_VERSION} to {STATE_VERSION}: run the version that wrote it, or start with a new checkpoint"
        )


class StateStore(Protocol):
    """Where state is kept: one manifest, and values of two kinds ("runs" and "matched"), by number."""

    def read_manifest(self) -> bytes | None: ...
    def write_manifest(self, data: bytes) -> None: ...
    def read(self, kind: str, number: int) -> bytes: ...
    def write(self, kind: str, number: int, data: bytes) -> None: ...
    def remove(self, kind: str, number: int) -> None: ...


class State:
    """The state of one worker, read from the last committed micro-batch; `save` writes it.

    `acted`: the watermark up to which rows have settled, been decided and expired. `decided`: by side, the last decided
    row of a row window, as (ts, tie, number of rows with this ts and tie). `timer`: the Spark watermark at which Spark
    will call the worker. `shift_ms`: by how much its watermarks are shifted (`join/epoch.py`). `token`: a random name
    of this worker's state, drawn when the manifest is first written; another query of the same join, with its own
    checkpoint, has another. `key`: the secret that seals copies of runs outside the store.
    """

    def __init__(self, task: JoinTask, store: StateStore, counts: Counts):
        self.task, self.store, self.counts = task, store, counts
        self.token, self.key = uuid.uuid4().hex, secrets.token_bytes(KEY_BYTES)
        self.runs: dict[str, list[StoredRun]] = {side: [] for side in SIDES}
        self.acted, self.timer, self._next, self.shift_ms = BEGIN_OF_TIME, None, 0, 0
        self.decided: dict[str, tuple[int, int, int] | None] = dict.fromkeys(SIDES)
        self._unwritten: dict[int, tuple[Content, np.ndarray | None]] = {}  # new runs by number
        self._last_read: tuple[str, Content] | None = None
        self._dropped: list[tuple[str, int]] = []  # kind and number of values that `save` will remove
        data = store.read_manifest()
        if data is not None:
            self._load(json.loads(data), hashlib.sha256(data).hexdigest())
        # A cached content or index serves only joins with the same index and predicate.
        self._owner = (task.digest, self.token)

    acted: int
    timer: int | None

    def _load(self, manifest: dict, digest: str) -> None:  # type: ignore[type-arg]  # JSON
        check_version(manifest["version"])
        changed = differences(manifest["join"], self.task.signature)
        if changed:
            raise StateError(
                f"this checkpoint belongs to another join: {'; '.join(changed)}. "
                "Give the settings it was started with, or start with a new checkpoint"
            )
        # Older checkpoints have no token. The digest serves as one: it covers the unique tokens of the runs.
        self.token = manifest.get("token", digest)
        if "key" in manifest:  # earlier versions wrote none: keep the new one, which `save` will write
            self.key = bytes.fromhex(manifest["key"])
        self.runs = {side: [StoredRun(**run) for run in manifest["runs"][side]] for side in SIDES}
        self.acted, self.timer, self._next = manifest["acted"], manifest["timer"], manifest["next"]
        self.shift_ms = manifest.get("shift", 0)
        self.decided = {
            side: None if cut is None else (cut[0], cut[1], cut[2])
            for side, cut in manifest["decided"].items()
        }

    def save(self) -> None:
        """Write new runs and the manifest, which the next micro-batch finds if Spark commits this one. Reads nothing
        from the store."""
        self._last_read = None
        for dropped in self._dropped:
            self.store.remove(*dropped)
        self._dropped.clear()
        for run in (run for runs in self.runs.values() for run in runs):
            if run.number in self._unwritten:
                self._write(run, *self._unwritten.pop(run.number))
        self.counts.state_rows, self.counts.state_bytes = self.rows, self.nbytes
        manifest = {
            "version": STATE_VERSION if self.shift_ms else UNSHIFTED_VERSION,
            "join": self.task.signature,
            "token": self.token,
            "key": self.key.hex(),
            "runs": {side: [vars(run) for run in runs] for side, runs in self.runs.items()},
            "acted": self.acted,
            "decided": self.decided,
            "timer": self.timer,
            "next": self._next,
            **({"shift": self.shift_ms} if self.shift_ms else {}),
        }
        self.store.write_manifest(json.dumps(manifest).encode())
        names = [*SIDES, *(run.token for runs in self.runs.values() for run in runs)]
        cache.RUN_MEMORY.keep(self._owner, {self._key(name) for name in names})
        cache.RUN_MEMORY.trim()

    @property
    def rows(self) -> int:
        return sum(run.rows for runs in self.runs.values() for run in runs)

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for runs in self.runs.values() for run in runs)

    # Reading

    @property
    def fits(self) -> bool:
        """Whether all runs, with their indexes, fit in the memory of this process."""
        held = sum(_memory_of(run) for runs in self.runs.values() for run in runs)
        return held <= cache.RUN_MEMORY.most

    def all_contents(self, side: str, loaded: bool) -> list[AnyContent]:
        """The rows of every run of a side; `loaded`: in memory, instead of read again whenever they are needed."""
        if loaded:
            return [self.content(side, run) for run in self.runs[side]]
        cache.RUN_MEMORY.remove(self._key(side))
        return [UnloadedContent(run, partial(self._read_again, side, run)) for run in self.runs[side]]

    def _read_again(self, side: str, run: StoredRun) -> Content:
        """The rows of a run, and keep those of the last one, which may be larger than the cache."""
        if self._last_read is not None and self._last_read[0] == run.token:
            return self._last_read[1]
        known = cache.RUN_MEMORY.get(self._key(run.token))
        if isinstance(known, Content):
            return known
        content = self.content(side, run)
        self._last_read = run.token, content
        cache.RUN_MEMORY.trim()
        return content

    def groups(self, side: str) -> Iterator[slice]:
        """The places of consecutive runs that take a part of the memory together."""
        begin = nbytes = 0
        for place, run in enumerate(self.runs[side]):
            if nbytes and nbytes + _memory_of(run) > cache.RUN_MEMORY.most // GROUPS:
                yield slice(begin, place)
                begin, nbytes = place, 0
            nbytes += _memory_of(run)
        if nbytes:
            yield slice(begin, len(self.runs[side]))

    def content(self, side: str, run: StoredRun) -> Content:
        """The rows of a run, from the memory of this process, a file of this host, or the store."""
        if run.number in self._unwritten:
            return self._unwritten[run.number][0]
        content = cache.RUN_MEMORY.get(self._key(run.token))
        if isinstance(content, Content):
            self.counts.cache_hits += 1
            return content
        data = cache.RUN_FILES.get(run.token, run.nbytes, self.key)
        if data is not None:
            self.counts.cache_hits += 1
        else:
            self.counts.cache_misses += 1
            data = self.store.read("runs", run.number)
            cache.RUN_FILES.put(run.token, data, self.key)
        content = Content(self.task, side, decode(data))
        cache.RUN_MEMORY.put(self._key(run.token), content, self._owner)
        return content

    def layered(self, side: str, contents: Contents, ahead: bool = False) -> list[StoredRows]:
        """The runs of a side as layers for probing. `contents`: the contents of these runs, perhaps followed by others.
        `ahead`: this is background work that no result waits for."""
        runs, layers = self.runs[side], cache.RUN_MEMORY.get(self._key(side))
        if not isinstance(layers, Layers):
            if not runs:
                return []
            layers = Layers(self.task.tuning)
            cache.RUN_MEMORY.put(self._key(side), layers, self._owner)
        sealed = [place for place, run in enumerate(runs) if run.level == SEALED]
        return layers.over(runs, contents, sealed[-1] + 1 if sealed else 0, ahead)

    def prepare(self, side: str, probes: ProbingTuples) -> None:
        """Merge and index the runs of a side in memory for the next micro-batch, assuming probes like these. Reads
        nothing from files or the store: if a run is not in memory, or not all fit in it, this does nothing."""
        if not self.fits:
            return
        found = [cache.RUN_MEMORY.get(self._key(run.token)) for run in self.runs[side]]
        contents = [content for content in found if isinstance(content, Content)]
        if len(contents) == len(found):
            expect(self.layered(side, Contents(contents), ahead=True), probes)

    def _key(self, name: str) -> Hashable:
        """The cache's key for the layers of a side, or for the content of the run with this token."""
        return (*self._owner, name)

    def matched(self, side: str, run: StoredRun) -> np.ndarray:
        """Which rows of a run found a partner."""
        if run.number in self._unwritten:
            flags = self._unwritten[run.number][1]
            assert flags is not None
            return flags
        return unpacked(self.store.read("matched", run.number), run.rows)

    # Writing

    def add(self, side: str, content: Content, matched: np.ndarray | None, sealed: bool = False) -> None:
        """Add new rows as a run. `sealed`: it is never merged with others, as a run of SEALED_ROWS."""
        self._keep(side, content, SEALED if sealed or len(content) >= SEALED_ROWS else 0, matched)

    def _keep(self, side: str, content: Content, level: int, matched: np.ndarray | None) -> None:
        oldest, newest = int(content.ts[0]), int(content.ts[-1])
        self.runs[side].append(StoredRun(self._next, uuid.uuid4().hex, level, len(content), oldest, newest))
        self._unwritten[self._next] = content, matched
        self._next += 1

    def _write(self, run: StoredRun, content: Content, matched: np.ndarray | None) -> None:
        data = encode(content.batch)
        run.nbytes = len(data)
        self.store.write("runs", run.number, data)
        self.counts.written_bytes += len(data)
        if matched is not None:
            self.mark(run, matched)
        cache.RUN_FILES.put(run.token, data, self.key)
        cache.RUN_MEMORY.put(self._key(run.token), content, self._owner)

    def mark(self, run: StoredRun, matched: np.ndarray) -> None:
        """Write which rows of a run found a partner, one bit per row."""
        data = np.packbits(matched).tobytes()
        self.store.write("matched", run.number, data)
        self.counts.written_bytes += len(data)

    def drop(self, side: str, run: StoredRun) -> None:
        """Drop a run; `save` removes it from the store."""
        self.runs[side].remove(run)
        if self._unwritten.pop(run.number, None) is not None:
            return
        self._dropped.append(("runs", run.number))
        if side in self.task.kept:
            self._dropped.append(("matched", run.number))
        cache.RUN_MEMORY.remove(self._key(run.token))
        cache.RUN_FILES.remove(run.token)

    def merge(self, side: str) -> None:
        """Merge the newest runs while the last `RUNS_TO_MERGE` have one level. So a row is written at most once per
        level."""
        runs = self.runs[side]
        while (level := runs[-1].level if runs else SEALED) < SEALED and all(
            run.level == level for run in runs[-RUNS_TO_MERGE:]
        ):
            if len(runs) < RUNS_TO_MERGE:
                return
            last = runs[-RUNS_TO_MERGE:]
            if not self._worth_merging(side, last):
                for run in last:
                    run.level = SEALED
                return
            self._merge(side, last, level + 1)

    def _worth_merging(self, side: str, runs: Sequence[StoredRun]) -> bool:
        window, rows = self.task.spec.side_window(side), sum(run.rows for run in runs)
        if sum(map(self._bytes, runs)) > self.task.tuning.merged_run_bytes:
            return False
        if window.rows:
            return rows <= min(SEALED_ROWS, max(window.size // RUN_OF_WINDOW, 1024))
        lasts = max(run.newest for run in runs) - min(run.oldest for run in runs)
        kept = self.task.waits[side].kept
        return rows <= SEALED_ROWS and lasts <= (window.size if kept is None else kept) // RUN_OF_WINDOW

    def _bytes(self, run: StoredRun) -> int:
        new = self._unwritten.get(run.number)
        return run.nbytes if new is None else new[0].held.nbytes

    def _merge(self, side: str, runs: Sequence[StoredRun], level: int) -> None:
        content, order = in_order(self.task, side, [self.content(side, run).batch for run in runs])
        matched = None
        if side in self.task.kept:
            matched = np.concatenate([self.matched(side, run) for run in runs])
            matched = matched if order is None else matched[order]
        for run in runs:
            self.drop(side, run)
        self._keep(side, content, level, matched)


def _memory_of(run: StoredRun) -> int:
    """About how much memory a run takes when it is indexed."""
    return run.nbytes + INDEXED_ROW_BYTES * run.rows


def unpacked(data: bytes, rows: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(data, np.uint8), count=rows).view(np.bool_)


class MemoryStore:
    """A store in the memory of this process, for joins of tables."""

    def __init__(self) -> None:
        self.manifest: bytes | None = None
        self.values: dict[tuple[str, int], bytes] = {}

    def read_manifest(self) -> bytes | None:
        return self.manifest

    def write_manifest(self, data: bytes) -> None:
        self.manifest = data

    def read(self, kind: str, number: int) -> bytes:
        return self.values[kind, number]

    def write(self, kind: str, number: int, data: bytes) -> None:
        self.values[kind, number] = data

    def remove(self, kind: str, number: int) -> None:
        del self.values[kind, number]
