"""A folder of this user alone: which folders are refused, even if exchanged at the worst moment, and its key."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamjoin.jit.own_folder import KEY_BYTES, NotOurs, OwnFolder, seal


@pytest.fixture
def folder(tmp_path: Path) -> OwnFolder:
    return OwnFolder(tmp_path / "around" / "own")


def test_files_are_written_whole_and_read_back(folder):
    folder.write("one", b"ab", b"c")
    assert (folder.read("one"), list(folder.files())) == (b"abc", ["one"])
    folder.write("one", b"d", replace=False)
    assert folder.read("one") == b"abc"
    folder.write("one", b"d")
    assert folder.read("one") == b"d"
    with pytest.raises(TypeError):
        folder.write("one", b"half", "no bytes")
    assert (folder.read("one"), list(folder.files())) == (b"d", ["one"])
    folder.remove("one", "missing")
    assert folder.files() == {}
    with pytest.raises(FileNotFoundError):
        folder.read("one")


def test_a_folder_is_made_by_writing_alone(folder):
    for use in (lambda: folder.read("one"), lambda: folder.remove("one"), folder.files):
        with pytest.raises(FileNotFoundError):
            use()
    assert not folder.path.parent.exists()
    folder.write("one", b"")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder.path, folder.path.parent)] == [0o700] * 2


def exchange_when(name: str, monkeypatch: pytest.MonkeyPatch, exchange: Callable[[], Any]) -> None:
    """Let another process act right after a function of `os` has checked."""
    look = getattr(os, name)

    def looking(*arguments: Any, **options: Any) -> Any:
        found = look(*arguments, **options)
        monkeypatch.setattr(os, name, look)
        exchange()
        return found

    monkeypatch.setattr(os, name, looking)


@pytest.mark.parametrize("kind", ["link", "open folder", "FIFO"])
def test_a_folder_exchanged_after_the_first_look_is_refused(folder, monkeypatch, in_time, kind):
    folder.write("one", b"ours")
    moved = folder.path.with_name("moved")

    def exchange() -> None:
        folder.path.rename(moved)
        if kind == "link":
            folder.path.symlink_to(moved)
        elif kind == "FIFO":
            os.mkfifo(folder.path)
        else:
            folder.path.mkdir()
            folder.path.chmod(0o777)
            (folder.path / "one").write_bytes(b"theirs")

    exchange_when("lstat", monkeypatch, exchange)

    def read() -> Any:
        with contextlib.suppress(OSError):
            return folder.read("one")

    assert in_time(read) is None


def test_a_folder_exchanged_after_it_was_opened_makes_no_difference(folder):
    folder.write("one", b"ours")
    with folder.opened() as descriptor:
        folder.path.rename(folder.path.with_name("moved"))
        folder.path.mkdir()
        assert os.listdir(descriptor) == ["one"]


@pytest.mark.parametrize("kind", ["link", "FIFO", "folder"])
def test_a_file_exchanged_after_the_first_look_is_refused(folder, monkeypatch, in_time, kind):
    folder.write("one", b"ours")
    path, moved = folder.path / "one", folder.path / "moved"

    def exchange() -> None:
        path.rename(moved)
        {"link": lambda: path.symlink_to(moved), "FIFO": lambda: os.mkfifo(path), "folder": path.mkdir}[
            kind
        ]()

    exchange_when("stat", monkeypatch, exchange)

    def read() -> Any:
        with contextlib.suppress(OSError):
            return folder.read("one")

    assert in_time(read) is None


def test_a_file_of_another_user_is_refused(folder, as_stranger):
    """Root could have moved it there."""
    folder.write("one", b"theirs")
    os.chown(folder.path / "one", 65_533, 65_533)
    with pytest.raises(NotOurs, match="not a regular file of this user"):
        folder.read("one")
    assert folder.files() == {}


def test_what_is_written_never_goes_through_a_link(folder, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    folder.write("two", b"")
    (folder.path / "one").symlink_to(victim)
    folder.write("one", b"ours")
    assert (victim.read_bytes(), folder.read("one")) == (b"precious", b"ours")


# The key.


def test_all_who_ask_for_the_key_at_once_get_the_same(tmp_path):
    for number in range(20):
        keys, barrier = [], threading.Barrier(8)

        def ask(path: Path = tmp_path / str(number)) -> None:
            barrier.wait()  # noqa: B023  # threads end in the same round
            keys.append(OwnFolder(path).key)  # noqa: B023

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(keys) == 8 and len(set(keys)) == 1
        assert [path.name for path in (tmp_path / str(number)).iterdir()] == ["key"]


def test_the_key_stays_is_secret_and_differs_between_folders(tmp_path):
    one, again, other = OwnFolder(tmp_path / "one"), OwnFolder(tmp_path / "one"), OwnFolder(tmp_path / "two")
    assert len(one.key) == KEY_BYTES and one.key == again.key != other.key
    assert stat.S_IMODE((one.path / "key").stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", ["cut", "longer", "readable", "link", "FIFO"])
def test_a_key_that_is_no_secret_of_ours_is_drawn_again(folder, tmp_path, in_time, damage):
    first, path = folder.key, folder.path / "key"
    if damage == "cut":
        path.write_bytes(first[:-1])
    elif damage == "longer":
        path.write_bytes(first + b"x")
    elif damage == "readable":
        path.chmod(0o644)
    else:
        path.rename(tmp_path / "key")
        os.mkfifo(path) if damage == "FIFO" else path.symlink_to(tmp_path / "key")
    drawn = in_time(lambda: OwnFolder(folder.path).key)
    assert len(drawn) == KEY_BYTES
    assert first != drawn == OwnFolder(folder.path).key
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600 and stat.S_ISREG(path.lstat().st_mode)


def test_a_folder_in_place_of_the_key_is_reported(folder):
    folder.write("one", b"")
    (folder.path / "key").mkdir()
    with pytest.raises(NotOurs, match="key is not a file of 32 bytes"):
        _ = folder.key


def test_a_seal_is_of_one_key_one_name_and_one_content():
    seals = {
        seal(key, name, data)
        for key, name, data in [
            (b"k", "name", b"data"),
            (b"l", "name", b"data"),
            (b"k", "named", b"data"),
            (b"k", "name", b"date"),
            (b"k", "nam", b"edata"),
            (b"k", "named", b"ata"),
        ]
    }
    assert len(seals) == 6
