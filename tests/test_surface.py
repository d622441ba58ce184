"""What is public: names in the `__all__` of a public package. Pages and examples use no others."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "streamjoin"
PUBLIC = {"streamjoin": PACKAGE / "__init__.py", "streamjoin.spark": PACKAGE / "spark" / "__init__.py"}
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/**/*.py"))


def exported(path: Path) -> list[str] | None:
    """The `__all__` of a module; None if it has none."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(name) for name in node.targets] == ["__all__"]:
            return list(ast.literal_eval(node.value))
    return None


def snippets(page: Path) -> list[str]:
    """The Python code of a page: its `python` blocks, without prompts and results."""
    found = []
    for block in re.findall(r"^```(?:python|pycon)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        lines = block.splitlines()
        if any(line.startswith(">>>") for line in lines):
            lines = [line[4:] for line in lines if line.startswith((">>>", "..."))]
        found.append("\n".join(lines))
    return found


def used(code: str, alias: str | None = None) -> set[tuple[str, str]]:
    """The names that code takes from modules of streamjoin, as (module, name). `alias`: what earlier code of the same
    page calls the package."""
    tree = ast.parse(code)
    found, aliases = set(), {} if alias is None else {alias: "streamjoin"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "streamjoin":
            found |= {(str(node.module), name.name) for name in node.names}
        if isinstance(node, ast.Import):
            aliases |= {
                n.asname or n.name: n.name for n in node.names if n.name.split(".")[0] == "streamjoin"
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := aliases.get(ast.unparse(node.value))):
            found.add((module, node.attr))
    return found


def names_of_pages() -> list[tuple[str, str, str]]:
    """Every name of streamjoin that a page or an example uses, as (file, module, name)."""
    codes: list[tuple[Path, str, str | None]] = [
        (page, code, "sj") for page in PAGES for code in snippets(page)
    ]
    codes += [(path, path.read_text(), None) for path in EXAMPLES]
    return sorted(
        {
            (str(path.relative_to(ROOT)), module, name)
            for path, code, alias in codes
            for module, name in used(code, alias)
        }
    )


@pytest.mark.parametrize(("page", "module", "name"), names_of_pages())
def test_pages_use_public_names(page: str, module: str, name: str) -> None:
    if module == "streamjoin" and name == "spark":
        return
    assert module in PUBLIC, f"{page} uses {module}, which is not public"
    assert name in (exported(PUBLIC[module]) or ()), f"{page} uses {name}, which is not in {module}.__all__"
    if module == "streamjoin.spark":
        pytest.importorskip("pyspark")
    assert hasattr(importlib.import_module(module), name)


def test_pages_use_the_main_names() -> None:
    """The test above sees the code of pages."""
    names = {(module, name) for _, module, name in names_of_pages()}
    assert {
        ("streamjoin", "open_join"),
        ("streamjoin", "TimeWindow"),
        ("streamjoin.spark", "window_join"),
    } <= names


def test_only_public_packages_have_an_all() -> None:
    having = {path for path in PACKAGE.rglob("*.py") if exported(path) is not None}
    assert having == set(PUBLIC.values())


def test_the_compatibility_page_names_the_public_packages() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text()
    assert all(f"`{module}.__all__`" in text for module in PUBLIC)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from streamjoin.engine.join import open_join", {("streamjoin.engine.join", "open_join")}),
        ("import streamjoin as s\ns.no_such_name()", {("streamjoin", "no_such_name")}),
        ("sj.oracle.rows(1)", {("streamjoin", "oracle")}),
        ("import numpy as np\nnp.sum(1)", set()),
    ],
)
def test_names_are_found(code: str, names: set[tuple[str, str]]) -> None:
    assert used(code, "sj") == names
