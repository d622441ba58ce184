"""Attacks on the cache of compiled kernels: no code runs that this user did not compile."""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import os
import pickle
import pwd
import shutil
import stat
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamjoin import StreamJoinWarning
from streamjoin.jit import source
from streamjoin.jit.decorator import _Entries
from streamjoin.jit.own_folder import OwnFolder

SOURCE = """
from streamjoin.jit.decorator import jit

@jit
def double(x):
    return x + x

@jit
def negate(x):
    return -x
"""

# For what may kill a process.
PROBE = """
import sys
from streamjoin.jit import source
module = source.load(sys.argv[1], "probe")
assert (module.double(21), module.negate(21)) == (42, -21)
"""


class Found(NamedTuple):
    """What a process did with its cache. `hits`: functions that it did not compile."""

    hits: int
    file: Path
    warnings: list[str]


def probe(base: Path) -> Found:
    """Compile as a new process would that has its cache in `base`. The results must be right in any case."""
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(record=True, action="always", category=StreamJoinWarning) as told,
    ):
        forget(patch)
        patch.setenv("STREAMJOIN_CACHE_DIR", str(base))
        module = source.load(SOURCE, "probe")
        assert (module.double(21), module.negate(21)) == (42, -21)
    hits = sum(sum(each.stats.cache_hits.values()) for each in (module.double, module.negate))
    assert module.__file__ is not None
    return Found(hits, Path(module.__file__), [str(each.message) for each in told])


def forget(patch: pytest.MonkeyPatch) -> None:
    """Forget what a new process would not know."""
    for name in ("_loaded", "_folders"):
        patch.setattr(source, name, {})


def entries(base: Path, function: str = "") -> list[Path]:
    """The compiled functions in the cache whose source is `SOURCE`."""
    return sorted(
        path for path in base.rglob("*.nbc") if path.name.startswith("probe_") and function in path.name
    )


class Payload:
    """An object that runs a command when it is unpickled."""

    def __init__(self, proof: Path):
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.proof),)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds everything; it must not be changed, so copy it."""
    base = tmp_path_factory.mktemp("filled")
    assert probe(base).hits == 0
    assert probe(base).hits == 2
    return base


@pytest.fixture
def base(filled: Path, tmp_path: Path) -> Path:
    """A copy of a cache that holds everything."""
    subprocess.run(["cp", "-a", str(filled), str(tmp_path / "base")], check=True)
    return tmp_path / "base"


# What an entry holds.


def test_a_forged_entry_is_not_unpickled(base, tmp_path):
    """A digest without the key, in the place of the keyed one, is not accepted."""
    proof, data = tmp_path / "proof", pickle.dumps(Payload(tmp_path / "proof"))
    for path in entries(base):
        path.write_bytes(hashlib.sha256(data).digest() + data)
    assert len(entries(base)) == 2
    assert probe(base).hits == 0
    assert not proof.exists()
    assert probe(base).hits == 2, "and compiled anew"


def test_intact_entries_with_exchanged_names_are_not_used(base):
    (double,), (negate,) = entries(base, "double"), entries(base, "negate")
    double.rename(base / "moved")
    negate.rename(double)
    (base / "moved").rename(negate)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, SOURCE],
        env=os.environ | {"STREAMJOIN_CACHE_DIR": str(base)},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"the process ended with {done.returncode}"
    assert probe(base).hits == 2, "and compiled anew"


def test_a_damaged_entry_is_not_used(base):
    for path in entries(base):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    assert probe(base).hits == 0


def test_entries_of_another_folder_are_not_used(base, tmp_path):
    """Another folder has another key, even if the same user filled it."""
    other = tmp_path / "other"
    probe(other)
    for path in entries(other):
        path.rename(base / path.relative_to(other))
    assert probe(base).hits == 0


def test_code_for_another_cpu_is_not_used(tmp_path):
    """Nor that of another version, source or signature: all of it is sealed, not only named."""
    folder = OwnFolder(tmp_path / "own")
    here, there = (_Entries(folder, "f-1.py311", (cpu, b"source")) for cpu in ("this CPU", "another CPU"))
    here.save("signature", "code for this CPU")
    (name,) = (name for name in folder.files() if name != "key")
    assert here.load("signature") == "code for this CPU"
    there.save("signature", "code for another CPU")
    (other,) = (each for each in folder.files() if each not in ("key", name))
    (folder.path / other).rename(folder.path / name)
    assert here.load("signature") is None


@pytest.mark.parametrize("kind", ["FIFO", "link", "folder"])
def test_what_is_no_regular_file_is_neither_read_nor_waited_for(base, tmp_path, in_time, kind):
    changed = [path for path in base.rglob("*") if path.is_file()]
    for path in changed:
        copy = tmp_path / path.name
        path.rename(copy)
        {"FIFO": os.mkfifo, "link": lambda at: at.symlink_to(copy), "folder": os.mkdir}[kind](path)  # noqa: B023
    assert len(changed) == 4
    assert in_time(lambda: probe(base)).hits == 0


@pytest.mark.filterwarnings("error")
def test_nothing_in_the_folder_is_read_by_its_path(tmp_path, monkeypatch, in_time):
    """An attacker who can exchange the folder between two checks could make us wait, or read another source."""
    write, fifos = OwnFolder.write, []

    def write_and_exchange(folder: OwnFolder, name: str, *parts: bytes, **options: Any) -> None:
        write(folder, name, *parts, **options)
        if name.endswith(".py"):
            fifos.append(folder.path / name)
            fifos[-1].unlink()
            os.mkfifo(fifos[-1])

    def load() -> list[str]:
        probe(tmp_path)
        file = str(fifos[0])
        linecache.checkcache(file)
        return linecache.getlines(file)

    monkeypatch.setattr(OwnFolder, "write", write_and_exchange)
    try:
        assert "".join(in_time(load)) == SOURCE
    finally:
        with contextlib.suppress(OSError):  # wakes a reader that should not be there
            os.close(os.open(fifos[0], os.O_WRONLY | os.O_NONBLOCK))


# Whose folder it is.


def own_folder(base: Path) -> Path:
    return base / f"kernels-{os.geteuid()}"


@pytest.mark.parametrize("place", ["the folder", "the folder around it"])
def test_what_another_user_prepared_is_not_used(shared, as_stranger, filled, place):
    """A copy of a whole cache, its key included, that another user put into its place."""
    base = shared / "base"
    copies = {path.relative_to(filled): path.read_bytes() for path in filled.rglob("*") if path.is_file()}

    def copy() -> None:
        for path, content in copies.items():
            (base / path).parent.mkdir(parents=True, exist_ok=True)
            (base / path).write_bytes(content)

    if place == "the folder":
        base.mkdir()
        base.chmod(0o777)
    as_stranger(copy)
    before = {path: path.stat().st_mtime_ns for path in base.rglob("*")}
    found = probe(base)
    assert found.hits == 0
    assert len(found.warnings) == 1 and "belongs to user 65533" in found.warnings[0]
    assert not found.file.exists(), "generated source is not written there either"
    assert {path: path.stat().st_mtime_ns for path in base.rglob("*")} == before


def test_a_folder_in_a_folder_of_another_user_is_ours_alone(shared, as_stranger):
    base = shared / "base"
    as_stranger(lambda: base.mkdir(mode=0o777))
    assert probe(base).warnings == []
    assert probe(base).hits == 2
    ours = own_folder(base)
    assert (ours.stat().st_uid, stat.S_IMODE(ours.stat().st_mode)) == (os.geteuid(), 0o700)
    with pytest.raises(AssertionError, match="could not"):
        as_stranger(lambda: list(ours.iterdir()))


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777])
def test_a_folder_that_others_can_reach_is_not_used(base, mode):
    own_folder(base).chmod(mode)
    found = probe(base)
    assert found.hits == 0
    assert len(found.warnings) == 1 and f"(mode {mode:o}); run chmod 700" in found.warnings[0]


def test_a_link_in_place_of_the_folder_is_not_followed(base):
    own_folder(base).rename(base / "moved")
    own_folder(base).symlink_to(base / "moved")
    found = probe(base)
    assert found.hits == 0
    assert len(found.warnings) == 1 and "symbolic link" in found.warnings[0]


def test_nobody_else_may_write_what_is_written_whatever_the_umask(tmp_path, modes):
    base, before = tmp_path / "new" / "base", os.umask(0)
    try:
        probe(base)
    finally:
        os.umask(before)
    found = modes(tmp_path)
    assert {mode for path, mode in found.items() if (tmp_path / path).is_dir()} == {0o700}
    assert {mode for path, mode in found.items() if (tmp_path / path).is_file()} == {0o600}
    assert len(found) == 7


def test_a_folder_that_vanishes_is_made_again_for_this_user_alone(tmp_path, monkeypatch, modes):
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path / "base"))
    forget(monkeypatch)
    module = source.load(SOURCE, "probe")
    before = os.umask(0)
    try:
        shutil.rmtree(tmp_path / "base")
        assert module.double(21) == 42
    finally:
        os.umask(before)
    assert sorted(modes(tmp_path).values()) == [0o600, 0o700, 0o700]
    assert len(entries(tmp_path)) == 1


# Where it is.


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user without a home, in an empty folder."""

    def unknown(_uid: int) -> None:
        raise KeyError("no such user")

    for name in ("STREAMJOIN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    forget(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("home", [None, "somewhere/else"])
def test_without_a_home_there_is_one_warning_and_no_file_in_the_current_folder(homeless, monkeypatch, home):
    if home is not None:
        monkeypatch.setenv("HOME", home)
    with pytest.warns(StreamJoinWarning, match=r"HOME.*set STREAMJOIN_CACHE_DIR"):
        module = source.load(f"VALUE = {home!r}", "homeless")
    with warnings.catch_warnings(action="error"):
        source.load(f"VALUE = [{home!r}]", "homeless")
    assert home == module.VALUE
    assert list(homeless.iterdir()) == []
    source.clear()


def test_a_relative_cache_folder_of_the_desktop_is_ignored(homeless, monkeypatch):
    """As its specification demands."""
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    monkeypatch.setenv("HOME", "/home/somebody")
    with warnings.catch_warnings(action="error"):
        assert source.folder() == Path(f"/home/somebody/.cache/streamjoin/kernels-{os.geteuid()}")
