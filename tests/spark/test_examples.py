"""The Spark examples run, in the Spark of the tests."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("spark_*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(spark, capsys, path):
    runpy.run_path(str(path))["run"](spark)
    assert "two streams:" in capsys.readouterr().out


def test_there_is_an_example() -> None:
    assert EXAMPLES
