"""`streamjoin explain`: the plan, as text and as a tree."""

from __future__ import annotations

import re

from tests.cli.calls import EXPLAIN, call

import streamjoin as sj
from streamjoin.cli.schema import parse_schema
from streamjoin.cli.tree import say_tree


def test_explain_prints_the_plan(monkeypatch, capsys):
    assert call(monkeypatch, *EXPLAIN, "--window", "15 minutes") == 0
    printed = capsys.readouterr().out
    assert "left.x" in printed
    assert "right.a" in printed


def test_explain_is_a_tree_whose_lines_are_those_of_the_api(monkeypatch, capsys):
    spec = sj.JoinSpec(
        parse_schema("ts timestamp, x int"),
        parse_schema("ts timestamp, a int"),
        "left.x = right.a\nAND left.x > 3",
        sj.TimeWindow("15 minutes"),
        "ts",
        "ts",
    )
    say_tree(sj.explain(spec), "a join")
    title, *drawn = capsys.readouterr().out.splitlines()
    assert title == "a join"
    assert drawn[0] == "├── join  left.x = right.a"
    assert drawn[1] == "│   ├── AND left.x > 3"
    words = [re.sub(r"^[│├└─ ]+", "", line).replace("  ", " ") for line in drawn]
    assert words == [" ".join(line.split()) for line in sj.explain(spec).splitlines()]


def test_explain_takes_row_windows(monkeypatch, capsys):
    assert call(monkeypatch, *EXPLAIN, "--rows", "1000") == 0
    assert "1,000 rows" in capsys.readouterr().out
