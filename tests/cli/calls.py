"""`streamjoin ...` run in the process of a test, with arguments that several tests use."""

from __future__ import annotations

import sys

import pytest

from streamjoin.cli import app as commands

EXPLAIN = ["explain", "abs(left.x - right.a) <= 10", "--left", "x int, y float", "--right", "a int, b float"]


JOB = """
[join]
on = "abs(left.x - right.a) <= 10"
window = "15 minutes"
lateness = "1 second"
[left]
source = { kind = "generator" }
[right]
source = { kind = "generator" }
[sink]
kind = "noop"
"""


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `streamjoin arguments`, run in this process."""
    monkeypatch.setattr(sys, "argv", ["streamjoin", *arguments])
    with pytest.raises(SystemExit) as ended:
        commands.main()
    return int(ended.value.code or 0)
