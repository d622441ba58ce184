"""Sizes in environment variables."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from streamjoin.spark.state.sizes import size_setting

NAME = "STREAMJOIN_SPARK_MEMORY"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("12345", 12345),
        ("2GiB", 2 << 30),
        (" 2 gib ", 2 << 30),
        ("2g", 2 << 30),
        ("2GB", 2 * 10**9),
        ("7kB", 7000),
    ],
)
def test_a_size_is_bytes_or_has_a_unit(monkeypatch, text, size):
    monkeypatch.setenv(NAME, text)
    assert size_setting(NAME, 5) == size


def test_without_the_variable_the_default_holds(monkeypatch):
    monkeypatch.delenv(NAME, raising=False)
    assert size_setting(NAME, 5) == 5


@pytest.mark.parametrize("text", ["", "lots", "2 gigs", "-1", "1.5GiB", "٢GiB", "9" * 5000, "2GiB\x1b[2J"])
def test_what_is_no_size_is_refused_in_a_sentence(monkeypatch, text):
    monkeypatch.setenv(NAME, text)
    with pytest.raises(
        sj.SpecError, match=rf"{NAME} is .*; allowed: a whole number of bytes.*2GiB"
    ) as refused:
        size_setting(NAME, 5)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 250


@pytest.mark.parametrize("name", [NAME, "STREAMJOIN_SPARK_FILES"])
def test_the_command_line_tells_a_wrong_size(tmp_path, name):
    job = tmp_path / "job.toml"
    job.touch()
    command = [sys.executable, "-m", "streamjoin.cli", "run", str(job), "--dry-run"]
    done = subprocess.run(command, env=os.environ | {name: "lots"}, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"streamjoin: the environment variable {name} is 'lots'; allowed:")
