"""Tests change sizes and thresholds through parameters (`plan/tuning.py`, constructors) and not by replacing globals of
modules. The globals that they still replace are listed here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
CONSTANT = re.compile(r"(?:^|.*\.)(_?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)$")
REPLACING = ("setattr", "delattr", "patch", "patch.object")
# Global -> why it is no parameter, and how many tests replace it.
ALLOWED = {
    "AT_ONCE_BYTES": ("a function of rows that are held has no plan", 1),
    "CHECKOUT": ("where the package lies", 1),
    "FEW_MATCHES": ("tests change it while a join runs", 2),
    "FOLLOW_SHARE": (
        "functions of sorted arrays, which Spark and both kinds of windows call, have no plan",
        1,
    ),
    "LOOP_VECTORIZE": ("an option of Numba", 1),
    "MAX_FILES": ("one cache of compiled code for the whole process", 1),
    "MOST": ("all of a process compile alike, so that they share code in the cache", 2),
    "MOST_OF_BANDS": ("as MOST", 1),
    "RUN_FILES": ("the cache of a Spark worker's process, which tests replace", 1),
    "SILENT": ("when waits are logged, the same everywhere", 4),
    "SORTED_FROM": ("as FOLLOW_SHARE", 1),
    "SORT_BYTES": ("as FOLLOW_SHARE", 2),
    "STATE_VERSION": ("a fact about the format", 2),
    "UNITS": ("a scan's pace until it checks for a stop, which kernels get by their caller", 1),
}


def replaced(tree: ast.Module) -> Iterator[str]:
    """The globals of modules, in capitals, that a test replaces."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(REPLACING):
            for given in node.args[:2]:
                if isinstance(given, ast.Constant) and (found := CONSTANT.fullmatch(str(given.value))):
                    yield found[1]
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(each, ast.Attribute) and ast.unparse(each.value) != "self":
                        yield from CONSTANT.findall(each.attr)


def test_few_globals_are_replaced_by_tests() -> None:
    found = [name for path in sorted(TESTS.rglob("*.py")) for name in replaced(ast.parse(path.read_text()))]
    counts = {name: found.count(name) for name in sorted(set(found))}
    more = {name: count for name, count in counts.items() if count > ALLOWED.get(name, ("", 0))[1]}
    assert more == {}, "make it a parameter of `Tuning`, or of a constructor"
    assert set(ALLOWED) <= set(counts), "the others are replaced no longer"


def test_replacing_a_global_is_seen() -> None:
    source = """
monkeypatch.setattr(module, "MOST_ROWS", 3)
patch("package.module.MOST_BYTES", 4)
module.LIMIT = 5
before, module.OTHER = module.OTHER, 6
self.LIMIT = 7
monkeypatch.setattr(module, "function", None)
"""
    assert sorted(replaced(ast.parse(source))) == ["LIMIT", "MOST_BYTES", "MOST_ROWS", "OTHER"]
