"""Attacks on the files that Spark's Python workers share: nothing is removed, read or trusted that is not the cache's
own, and the results stay right."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from streamjoin import StreamJoinWarning
from streamjoin.plan.options import Options
from streamjoin.plan.routing import Routing
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state import cache
from streamjoin.spark.state.manifest import MemoryStore, State

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
TASK = JoinTask(
    sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(4_000), "ts", "ts"),
    Options(engine="spark"),
    Routing("hash", 1),
)
LONG_AGO = time.time() - 7 * 86_400


def rows(begin: int, count: int) -> pa.RecordBatch:
    ts = np.arange(begin, begin + count)
    return pa.record_batch([ts, (ts * 7919 % 1009).astype(np.int32)], schema=SCHEMA)


def step(store: MemoryStore, begin: int = 0, count: int = 10) -> None:
    """A micro-batch of the rows from `begin` on."""
    held = State(TASK, store, Counts())
    batches = {side: [rows(begin, count)] for side in ("left", "right")}
    list(SparkWorker(TASK, 0, held, Counts()).step(batches, begin - 1))
    held.save()


def read_again(store: MemoryStore) -> Counts:
    """Let another process read the state; where it found the two runs of `step`, whose rows must be right."""
    counts = Counts()
    cache.RUN_MEMORY._held.clear()
    held = State(TASK, store, counts)
    for side, runs in held.runs.items():
        assert [held.content(side, run).batch for run in runs] == [rows(0, 10)]
    return counts


def from_files(store: MemoryStore) -> int:
    return read_again(store).cache_hits


@pytest.fixture(autouse=True)
def own_memory() -> Iterator[None]:
    """An empty cache in memory; afterwards the files are those of before, too."""
    with cache.replaced_caches(cache.ContentCache(1 << 30)):
        yield


def use(monkeypatch: pytest.MonkeyPatch, base: Path, most: int = 1 << 30) -> cache.FileCache:
    """The cache as a new process would find it."""
    monkeypatch.setenv("STREAMJOIN_SPARK_CACHE_DIR", str(base))
    files = cache.FileCache(cache.cache_folder(), most)
    cache.RUN_FILES = files  # until `own_memory` ends
    return files


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that STREAMJOIN_SPARK_CACHE_DIR names."""
    use(monkeypatch, tmp_path / "base")
    return tmp_path / "base"


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def old_file(path: Path, text: str = "precious") -> Path:
    path.write_text(text)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


# What is removed.


def test_a_folder_with_files_of_others_may_be_named_and_they_stay(base, monkeypatch):
    base.mkdir()
    base.chmod(0o755)
    (base / "folder").mkdir()
    kept = [old_file(base / name) for name in ("notes.txt", "data.parquet", "folder/deep", "a" * 32)]
    files, store = use(monkeypatch, base, most=0), MemoryStore()
    step(store)
    files.clean()
    files.remove_all_of("notes")
    assert [path.read_text() for path in kept] == ["precious"] * 4
    assert set(files_in(base)) == set(kept), "and ours have gone: the bound is 0"


def test_only_files_of_the_caches_own_names_are_removed(base):
    store = MemoryStore()
    step(store)
    (folder,) = {path.parent for path in files_in(base)}
    (base / "elsewhere").write_text("precious")
    kept = [old_file(folder / name) for name in ("notes.txt", "f" * 31, "G" * 32, "a.b.c")]
    name = "0" * 32
    (folder / name).symlink_to(base / "elsewhere")
    os.mkfifo(folder / ("1" * 32))
    (folder / ("2" * 32)).mkdir()
    for path in folder.iterdir():
        os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    cache.RUN_FILES.clean()
    left = {path.name for path in folder.iterdir()}
    assert left == {*(path.name for path in kept), name, "1" * 32, "2" * 32}
    assert (base / "elsewhere").read_text() == "precious"


def test_a_link_that_another_user_put_in_place_of_the_folder_is_not_followed(
    shared, tmp_path, as_stranger, monkeypatch
):
    """Root's run must not empty the folder that the link leads to, be it root's own."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    kept = [old_file(victim / name) for name in ("letter", "b" * 32)]
    files, store, folder = use(monkeypatch, shared), MemoryStore(), cache.cache_folder()
    as_stranger(lambda: folder.symlink_to(victim))
    with pytest.warns(StreamJoinWarning, match="symbolic link"):
        step(store)
    files.clean()
    assert [path.read_text() for path in kept] == ["precious"] * 2
    assert set(files_in(victim)) == set(kept)
    assert from_files(store) == 2, "a folder of our own serves instead"


def test_a_link_of_ones_own_is_not_followed_either(base, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    kept = old_file(victim / ("b" * 32))
    base.mkdir()
    cache.cache_folder().symlink_to(victim)
    store = MemoryStore()
    with pytest.warns(StreamJoinWarning, match="symbolic link"):
        step(store)
    cache.RUN_FILES.clean()
    assert files_in(victim) == [kept]
    assert from_files(store) == 2


# Whose folder it is.


def test_a_folder_that_another_user_made_gets_no_rows(shared, as_stranger, monkeypatch):
    use(monkeypatch, shared)
    theirs, store = cache.cache_folder(), MemoryStore()
    as_stranger(lambda: theirs.mkdir(mode=0o777))
    with pytest.warns(StreamJoinWarning, match=r"belongs to user 65533"):
        step(store)
    assert list(theirs.iterdir()) == []
    (ours,) = {path.parent for path in files_in(shared)}
    assert (ours.stat().st_uid, stat.S_IMODE(ours.stat().st_mode)) == (os.geteuid(), 0o700)
    assert from_files(store) == 2
    with pytest.raises(AssertionError, match="could not"):
        as_stranger(lambda: list(ours.iterdir()))


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777, 0o701])
def test_a_folder_that_others_can_reach_is_not_used(base, mode):
    base.mkdir()
    cache.cache_folder().mkdir()
    cache.cache_folder().chmod(mode)
    store = MemoryStore()
    with pytest.warns(StreamJoinWarning, match=rf"{mode:o}.*chmod 700"):
        step(store)
    assert list(cache.cache_folder().iterdir()) == []
    assert from_files(store) == 2


def test_what_another_user_prepared_is_not_read(shared, as_stranger, monkeypatch):
    """Another user who somehow has our files: here a copy of the folder, put into its place."""
    use(monkeypatch, shared)
    store = MemoryStore()
    step(store)
    ours = cache.cache_folder()
    copies = {path.name: path.read_bytes() for path in ours.iterdir()}
    shutil.rmtree(ours)

    def copy() -> None:
        ours.mkdir()
        for name, data in copies.items():
            (ours / name).write_bytes(data)

    as_stranger(copy)
    use(monkeypatch, shared)
    with pytest.warns(StreamJoinWarning, match="belongs to user"):
        assert from_files(store) == 0


def test_a_folder_that_is_exchanged_while_we_run_is_noticed(shared, as_stranger, monkeypatch):
    """Where the folder around ours has no sticky bit, others can move ours away."""
    shared.chmod(0o777)
    use(monkeypatch, shared)
    store = MemoryStore()
    step(store)
    assert from_files(store) == 2
    ours = cache.cache_folder()

    def exchange() -> None:
        ours.rename(shared / "moved")
        ours.mkdir()

    as_stranger(exchange)
    with pytest.warns(StreamJoinWarning, match="belongs to user"):
        assert from_files(store) == 0
    assert list(ours.iterdir()) == []
    assert from_files(store) == 2


def test_nobody_else_may_read_what_is_written_whatever_the_umask(base, modes):
    before = os.umask(0)
    try:
        step(MemoryStore())
    finally:
        os.umask(before)
    found = modes(base)
    assert stat.S_IMODE(base.stat().st_mode) == 0o700
    assert sorted(found.values()) == [0o600, 0o600, 0o700]


# The folder that serves instead.


def squat(base: Path) -> None:
    """Something else has the name of the folder."""
    base.mkdir(exist_ok=True)
    cache.cache_folder().write_text("in the way")


def test_processes_share_the_folder_that_serves_instead(base, monkeypatch):
    squat(base)
    store = MemoryStore()
    with pytest.warns(StreamJoinWarning, match="is not a folder"):
        step(store)
    for _ in range(5):
        use(monkeypatch, base)
        with pytest.warns(StreamJoinWarning):
            assert from_files(store) == 2
        with warnings.catch_warnings(action="error"):
            assert from_files(store) == 2, "one warning is enough"
    assert len({path.parent for path in files_in(base)} - {base}) == 1


def test_files_of_a_query_that_has_ended_are_removed_from_the_folder_that_serves_instead(base, monkeypatch):
    query = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    squat(base)
    running = SimpleNamespace(getLocalProperty={cache.QUERY: query}.get)
    monkeypatch.setattr("streamjoin.spark.state.cache.TaskContext.get", lambda: running)
    with pytest.warns(StreamJoinWarning):
        step(MemoryStore())
    driver = use(monkeypatch, base)
    assert len(files_in(base)) == 3
    with pytest.warns(StreamJoinWarning):
        driver.remove_all_of(query)
    assert files_in(base) == [cache.cache_folder()]


def test_folders_that_served_instead_are_removed_when_nobody_uses_them(base, monkeypatch):
    """Two processes that start at once may make one each. They keep it when the name is free again."""
    squat(base)
    for _ in range(2):
        with pytest.warns(StreamJoinWarning):
            step(MemoryStore())
        for folder in base.glob("*-*-*-*"):
            folder.rename(base / f"hidden-{time.monotonic_ns()}")
        use(monkeypatch, base)
    name = cache.cache_folder().name
    for number, folder in enumerate(base.glob("hidden-*")):
        folder.rename(base / f"{name}-{number}")
    (base / f"{name}-mine").mkdir()
    old_file(base / f"{name}-mine" / "letter")
    for path in files_in(base):
        os.utime(path, (LONG_AGO, LONG_AGO))
    cache.cache_folder().unlink()
    step(MemoryStore())
    assert sorted(path.name for path in base.iterdir()) == [name, f"{name}-mine"]
    assert (base / f"{name}-mine" / "letter").read_text() == "precious"


def test_folders_beside_that_are_not_ours_are_passed_over(base, monkeypatch):
    """Another user may have prepared more than one name."""
    squat(base)
    folder, store = cache.cache_folder(), MemoryStore()
    for name, mode in (("0", 0o777), ("1", 0o755)):
        folder.with_name(f"{folder.name}-{name}").mkdir()
        folder.with_name(f"{folder.name}-{name}").chmod(mode)
    folder.with_name(f"{folder.name}-2").symlink_to(base)
    with pytest.warns(StreamJoinWarning):
        step(store)
    assert from_files(store) == 2
    (used,) = {path.parent for path in files_in(base)} - {base}
    assert stat.S_IMODE(used.stat().st_mode) == 0o700


def test_a_disk_that_gives_everything_another_owner_is_not_filled_with_folders(base, monkeypatch):
    """As NFS does with files that root creates."""
    store, owner = MemoryStore(), os.geteuid()
    folder = cache.cache_folder()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    for number in range(5):
        with (
            contextlib.nullcontext()
            if number
            else pytest.warns(StreamJoinWarning, match="belongs to this user alone")
        ):
            step(store, 10 * number)
    assert list(base.iterdir()) == [folder]
    assert list(folder.iterdir()) == []


def test_without_any_folder_there_is_one_warning_and_a_right_result(base):
    base.write_text("in the way")
    store = MemoryStore()
    with pytest.warns(StreamJoinWarning, match="STREAMJOIN_SPARK_CACHE_DIR"):
        step(store)
    with warnings.catch_warnings(action="error"):
        assert read_again(store).cache_misses == 2


# What a file holds.


def same_crc(data: bytes, wanted: int, place: int) -> bytes:
    """`data` with the four bytes at `place` changed so that its CRC-32 is `wanted`. CRC-32 is linear: each of these
    bits changes it by a pattern of its own."""

    def with_bits(bits: int) -> bytes:
        return data[:place] + bits.to_bytes(4, "little") + data[place + 4 :]

    zero = zlib.crc32(with_bits(0))
    patterns = {1 << bit: zlib.crc32(with_bits(1 << bit)) ^ zero for bit in range(32)}
    basis: dict[int, tuple[int, int]] = {}
    for bits, pattern in patterns.items():
        for top, (other, its_bits) in basis.items():
            if pattern >> top & 1:
                pattern, bits = pattern ^ other, bits ^ its_bits
        if pattern:
            basis[pattern.bit_length() - 1] = pattern, bits
    left, chosen = wanted ^ zero, 0
    for top in sorted(basis, reverse=True):
        if left >> top & 1:
            pattern, bits = basis[top]
            left, chosen = left ^ pattern, chosen ^ bits
    assert left == 0
    return with_bits(chosen)


def test_content_of_equal_size_and_crc_is_refused(base):
    store = MemoryStore()
    step(store)
    run = State(TASK, store, Counts()).runs["left"][0]
    data = store.values["runs", run.number]
    x = data.index(np.asarray(rows(0, 10).column("x")).tobytes())
    forged = same_crc(data[:x] + (7).to_bytes(4, "little") + data[x + 4 :], zlib.crc32(data), x + 8)
    assert forged != data and len(forged) == len(data) and zlib.crc32(forged) == zlib.crc32(data)
    assert pa.ipc.open_stream(forged).read_next_batch().column("x")[0].as_py() == 7
    for path in files_in(base):
        path.write_bytes(forged + path.read_bytes()[len(data) :])
    assert from_files(store) == 0


def test_intact_files_with_exchanged_names_are_refused(base):
    """Both hold the same rows, so that size and CRC agree."""
    store = MemoryStore()
    step(store)
    one, other = files_in(base)
    assert one.stat().st_size == other.stat().st_size
    one.rename(base / "moved")
    other.rename(one)
    (base / "moved").rename(other)
    assert from_files(store) == 0


def test_a_file_of_another_state_is_refused(base):
    """The key belongs to one worker's state: a user with a query of their own cannot make files for another query."""
    stores = MemoryStore(), MemoryStore()
    for store in stores:
        step(store)
    manifests = [json.loads(store.manifest or b"") for store in stores]
    manifests[0]["runs"] = manifests[1]["runs"]
    stores[0].manifest = json.dumps(manifests[0]).encode()
    assert (from_files(stores[1]), from_files(stores[0])) == (2, 0)


def test_the_key_is_in_no_file_and_in_no_name(base):
    store = MemoryStore()
    step(store)
    key = json.loads(store.manifest or b"")["key"]
    assert len(bytes.fromhex(key)) == 32
    for path in files_in(base):
        assert key not in path.name
        assert key.encode() not in path.read_bytes() and bytes.fromhex(key) not in path.read_bytes()


def test_state_of_an_earlier_version_is_given_a_key_when_it_is_written(base):
    store = MemoryStore()
    step(store)
    manifest = json.loads(store.manifest or b"")
    del manifest["key"]
    store.manifest = json.dumps(manifest).encode()
    assert read_again(store).cache_misses == 2, "files under a key that is lost"
    assert read_again(store).cache_misses == 2, "that of the attempt before was not committed"
    State(TASK, store, Counts()).save()
    assert "key" in json.loads(store.manifest)
    assert (read_again(store).cache_misses, from_files(store)) == (2, 2)


# What is not a file.


@pytest.mark.parametrize("kind", ["FIFO", "socket", "link", "broken link", "folder", "device", "huge"])
def test_what_is_no_regular_file_of_the_right_size_is_not_read(base, tmp_path, in_time, kind):
    store = MemoryStore()
    step(store)
    for path in files_in(base):
        copy = tmp_path / path.name
        path.rename(copy)
        put_in_place(kind, path, copy)
    assert in_time(lambda: from_files(store)) == 0
    assert in_time(lambda: from_files(store)) == (0 if kind == "folder" else 2), "and it is replaced"


def put_in_place(kind: str, path: Path, copy: Path) -> None:
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        bind(path)
    elif kind == "link":
        path.symlink_to(copy)
    elif kind == "broken link":
        path.symlink_to(copy.with_suffix(".gone"))
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero, which never ends
        except PermissionError:
            pytest.skip("this user may not make device files")
    else:
        path.touch()
        os.truncate(path, 1 << 40)


def bind(path: Path) -> None:
    """A socket at a path that may be longer than the 108 bytes that a name can have."""
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.fchdir(before)
        os.close(before)


CUT = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from streamjoin.spark.state import cache
sys.path.insert(0, sys.argv[1])
import test_spark_cache as test
store = test.MemoryStore()
test.step(store, 0, 100_000)
cache.RUN_MEMORY._held.clear()
counts = test.Counts()
held = test.State(test.TASK, store, counts)
contents = [held.content(side, run) for side, runs in held.runs.items() for run in runs]
assert counts.cache_hits == 2
for path in test.files_in(Path(sys.argv[2])):
    os.truncate(path, 0)
assert all(content.batch == test.rows(0, 100_000) for content in contents)
"""


def test_a_file_that_is_cut_after_it_was_opened_kills_nobody(tmp_path):
    environment = os.environ | {"STREAMJOIN_SPARK_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CUT, str(Path(__file__).parent), str(tmp_path)],
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode != -signal.SIGBUS, "the process was killed by SIGBUS"
    assert done.returncode == 0


def test_a_file_that_is_cut_while_it_is_read_is_not_used(base, monkeypatch):
    store = MemoryStore()
    step(store)
    allocate = pa.allocate_buffer

    def cutting(size: int) -> pa.Buffer:
        """Between opening a file and reading it."""
        for path in files_in(base):
            os.truncate(path, 40)
        return allocate(size)

    monkeypatch.setattr("streamjoin.spark.state.cache.pa.allocate_buffer", cutting)
    assert from_files(store) == 0
