"""Counts of what makes the code base hard to read stay within their limits (`scripts/house.py` counts)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "house.py"
CALLS, CHANGES = 120, 60  # of a push of one row
REPEATED = 5  # names defined in several modules: lower this whenever it can be


@pytest.fixture(scope="module")
def house() -> Any:
    spec = importlib.util.spec_from_file_location("house", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trees(house: Any) -> Any:
    return house.modules()


def test_no_modules_import_each_other(house, trees):
    assert house.cycles(trees) == []


def test_nobody_asks_for_the_class_of_a_window_or_structure(house, trees):
    assert house.class_tests(trees) == []


def test_no_column_is_named_by_an_f_string(house, trees):
    assert house.column_names(trees) == []


def test_few_names_are_defined_in_several_modules(house, trees):
    repeated = house.repeated_names(trees)
    assert len(repeated) <= REPEATED, list(repeated)


@pytest.mark.parametrize("on", ["left.k = right.k"], ids=["equality"])
def test_a_push_of_one_row_is_short(house, on):
    calls, changes = house.push_calls(on)
    assert calls <= CALLS
    assert changes <= CHANGES
