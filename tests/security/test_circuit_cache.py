"""Built circuits are loaded into the process, so they come from a folder of this user alone."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import pytest

import streamjoin as sj
from streamjoin.hardware.tools import _fresh_folder, built_folder, cached


@pytest.fixture
def wanted(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the folder, in one that everybody may write to. Nothing is there yet."""
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(shared))
    _fresh_folder.cache_clear()
    return shared / f"hardware-{os.geteuid()}"


def build(folder: Path) -> None:
    (folder / "circuit.so").write_text("ours")


def not_again(folder: Path) -> None:
    pytest.fail("the circuit was built already")


def content() -> str:
    return (cached("simulator", ["source"], build) / "circuit.so").read_text()


def test_a_missing_folder_is_made_for_this_user_alone_whatever_the_umask(wanted):
    before = os.umask(0)
    try:
        with warnings.catch_warnings(action="error"):
            assert content() == "ours"
    finally:
        os.umask(before)
    found = wanted.lstat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.geteuid())


def test_a_built_circuit_is_found_again(wanted):
    first = cached("simulator", ["source"], build)
    assert first.parent == wanted
    assert cached("simulator", ["source"], not_again) == first


def check_refused(wanted: Path, problem: str) -> None:
    with pytest.warns(sj.StreamJoinWarning, match=problem):
        assert content() == "ours"
    fresh = built_folder()
    assert fresh != wanted
    assert stat.S_IMODE(fresh.lstat().st_mode) == 0o700
    with warnings.catch_warnings(action="error"):  # once
        assert cached("simulator", ["source"], not_again).parent == fresh


def test_a_folder_that_others_may_write_to_is_not_used(wanted):
    (cached("simulator", ["source"], build) / "circuit.so").write_text("theirs")
    wanted.chmod(0o777)
    check_refused(wanted, "open to other users")


def test_a_link_is_not_followed(wanted, tmp_path):
    tmp_path.chmod(0o700)
    wanted.symlink_to(tmp_path)
    check_refused(wanted, "symbolic link")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_user_is_not_used(wanted, as_stranger):
    as_stranger(lambda: wanted.mkdir(mode=0o700))
    check_refused(wanted, "belongs to user")


def test_a_folder_that_cannot_be_made_is_replaced(wanted):
    wanted.write_text("in the way")
    check_refused(wanted, "is not a folder")
