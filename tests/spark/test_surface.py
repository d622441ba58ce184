"""The public names on Spark: the package exports what the pages import, and every name has a docstring."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

import streamjoin.spark
from streamjoin.spark import window_join

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def imported_by_pages() -> set[str]:
    """The names that pages import from `streamjoin.spark`, or call as `streamjoin.spark.name`."""
    text = "\n".join(page.read_text() for page in PAGES)
    lines = re.findall(r"from streamjoin\.spark import ([\w, ]+)", text)
    called = re.findall(r"`streamjoin\.spark\.([a-zA-Z]\w+)", text)
    return {name.strip() for line in lines for name in line.split(",")} | set(called)


def test_the_package_exports_what_the_pages_name():
    exported = set(streamjoin.spark.__all__)
    assert exported == {
        "HotKeySample",
        "JoinState",
        "Rescaled",
        "SessionError",
        "SideState",
        "StateError",
        "WorkerState",
        "configure",
        "explain",
        "in_time_order",
        "join_metrics",
        "read_state",
        "rescale",
        "serve_page",
        "session",
        "window_join",
    }
    assert imported_by_pages() <= exported
    text = (ROOT / "docs" / "spark.md").read_text()
    assert all(name in text for name in exported), "docs/spark.md names every public name"


@pytest.mark.parametrize("package", [sj, streamjoin.spark], ids=["streamjoin", "spark"])
def test_every_public_name_exists_and_has_a_docstring(package):
    for name in package.__all__:
        assert inspect.getdoc(getattr(package, name)), name


def test_window_join_explains_every_argument():
    text, page = inspect.getdoc(window_join), (ROOT / "docs" / "spark.md").read_text()
    assert text is not None
    explained = re.findall(
        r"^    ([a-z_, ]+): ", text.split("Arguments:")[1].split("Returns")[0], re.MULTILINE
    )
    names = [name for line in explained for name in line.split(", ")]
    assert sorted(names) == sorted(inspect.signature(window_join).parameters)
    assert all(f"`{name}`" in page for name in names if name not in ("left", "right"))


def test_the_example_of_window_join_runs(spark: SparkSession):
    text = inspect.getdoc(window_join)
    assert text is not None
    code = [
        line.strip()[4:]
        for line in text.split("Example:")[1].splitlines()
        if line.strip()[:3] in (">>>", "...")
    ]
    *program, last = "\n".join(code).rsplit("\n", 1)
    given = {"spark": spark, "window_join": window_join}
    exec(program[0], given)
    assert eval(last, given) == int(text.rstrip().rsplit("\n", 1)[1])
