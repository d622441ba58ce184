"""The version of a release is the same in the package, in the changelog and in what a build makes."""

from __future__ import annotations

import re
from email import message_from_bytes
from pathlib import Path

import pytest
from hatchling import build

import streamjoin as sj

ROOT = Path(__file__).parents[1]


def changelog_headings() -> list[tuple[str, str]]:
    """Version and date (or "unreleased") of every section of the changelog, the newest first."""
    return re.findall(r"^## (\S+)(?: \((.+)\))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_a_build_carries_the_version_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where a build front end would start it
    folder = tmp_path / build.prepare_metadata_for_build_wheel(str(tmp_path))
    assert message_from_bytes((folder / "METADATA").read_bytes())["Version"] == sj.__version__


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    (newest, date), *_ = changelog_headings()
    assert newest == sj.__version__
    assert re.fullmatch(r"unreleased|\d{4}-\d{2}-\d{2}", date)


def test_the_changelog_lists_versions_from_the_newest_to_the_oldest() -> None:
    versions = [tuple(map(int, version.split("."))) for version, _ in changelog_headings()]
    assert len(versions) > 1 and versions == sorted(versions, reverse=True)
