"""The commands as a whole: how the package starts them, their groups, and what a mistake prints."""

from __future__ import annotations

import runpy
import sys

import pytest
from tests.cli.calls import EXPLAIN, call


def test_the_package_is_run_as_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["streamjoin", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("streamjoin", run_name="__main__")
    assert not ended.value.code
    assert "explain" in capsys.readouterr().out


def test_developers_commands_have_a_group_and_keep_their_old_names(monkeypatch, capsys):
    assert call(monkeypatch, "--help") == 0
    commands = capsys.readouterr().out.split("Commands")[1]
    assert " dev " in commands and " hw " not in commands and " bench " not in commands
    for names in (["dev", "hw"], ["hw"], ["dev", "bench"], ["bench"]):
        assert call(monkeypatch, *names, "--help") == 0
        assert names[-1] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "left.q = right.a", "--left", "x int", "--right", "a int", "--window", "1 s"], "q"),
        ([*EXPLAIN, "--window", "-3 minutes"], "negative"),
        ([*EXPLAIN, "--window", "soon"], "soon"),
        (
            ["explain", "left.x = right.a", "--left", "x money", "--right", "a int", "--window", "1 s"],
            "money",
        ),
        (EXPLAIN, "--window"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(monkeypatch, capsys, arguments, message):
    assert call(monkeypatch, *arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
