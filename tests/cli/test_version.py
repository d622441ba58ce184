"""What `--version` prints."""

from __future__ import annotations

import platform

import numpy as np
from tests.cli.calls import call

import streamjoin as sj
from streamjoin.cli.version import version_lines


def test_version_prints_those_of_python_and_of_every_package(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.splitlines() == version_lines()
    first, python, system, *packages = version_lines(("numpy", "no-such-package"))
    assert first == f"streamjoin {sj.__version__}"
    assert platform.python_version() in python and platform.machine() in system
    assert packages == [f"numpy {np.__version__}", "no-such-package not installed"]
