"""Count what makes the code base hard to read. `tests/test_house.py` holds the counts to their limits.

    python scripts/house.py

- import cycles between modules, with imports inside functions, under TYPE_CHECKING, and by name in a `LazyRegistry`
- isinstance tests on windows and structures outside `plan/` and the module that defines the class
- column names made by f-strings
- names defined at the top of more than one module
- Python calls and changes of module during a push of one row in steady state
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType

PACKAGE = Path(__file__).parents[1] / "src" / "streamjoin"
WINDOWS = re.compile(r"(Window|Subwindow|Rule|Access|Run|RunIndex)$")
NOT_WINDOWS = {"TimeWindow", "RowWindow", "Interval"}  # windows of a spec
COLUMN = re.compile(r"^(key|low|high|stored|probe|c)$")


def modules() -> dict[str, ast.Module]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


def imports(tree: ast.Module, known: set[str]) -> set[str]:
    """The modules of the package that a module imports, at whatever depth, or names in a string "module:name"."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and ":" in str(node.value):
            found.add(str(node.value).partition(":")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return found & known


def cycles(trees: dict[str, ast.Module]) -> list[list[str]]:
    """Groups of modules that import each other (Tarjan's strongly connected components of more than one)."""
    graph = {name: imports(tree, set(trees)) - {name} for name, tree in trees.items()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            group = []
            while not group or group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def top_names(tree: ast.Module) -> Iterator[str]:
    """Classes, functions and constants that a module defines at its top."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def repeated_names(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Names that several modules define, and which ones."""
    homes: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees.items():
        for name in top_names(tree):
            homes[name].add(module)
    return {
        name: sorted(where)
        for name, where in sorted(homes.items())
        if len(where) > 1 and not name.startswith("__")
    }


def class_tests(trees: dict[str, ast.Module]) -> list[str]:
    """isinstance tests on windows and structures outside `plan/` and the module that defines the class."""
    found = []
    for module, tree in trees.items():
        own = set(top_names(tree))
        for node in ast.walk(tree):
            called = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
            if not called or module.startswith("streamjoin.plan"):
                continue
            assert isinstance(node, ast.Call)
            for each in ast.walk(node.args[1]):
                name = getattr(each, "id", getattr(each, "attr", ""))
                if WINDOWS.search(name) and name not in NOT_WINDOWS | own and "semantics" not in module:
                    found.append(f"{module}:{node.lineno} {name}")
    return found


def column_names(trees: dict[str, ast.Module]) -> list[str]:
    """f-strings that make the name of a column outside `codegen` and `kernels`, which write source."""
    found = []
    for module, tree in trees.items():
        if module.startswith(("streamjoin.codegen", "streamjoin.kernels", "streamjoin.hardware")):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
                first = node.values[0]
                if isinstance(first, ast.Constant) and COLUMN.match(str(first.value)):
                    found.append(f"{module}:{node.lineno}")
    return found


def push_calls(on: str = "left.k = right.k") -> tuple[int, int]:
    """Python calls, and changes from one module to another, of a push of one row in steady state."""
    import os

    import numpy as np
    import pyarrow as pa

    import streamjoin as sj

    os.environ.setdefault("STREAMJOIN_COMPILE", "wait")

    schema = pa.schema({"ts": pa.int64(), "k": pa.int32(), "v": pa.float32()})

    def rows(first: int, count: int) -> pa.RecordBatch:
        ts = np.arange(first, first + count)
        columns = [pa.array(ts), pa.array(ts.astype(np.int32)), pa.array(np.zeros(count, np.float32))]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    files: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.append(frame.f_code.co_filename)

    spec = sj.JoinSpec(schema, schema, on, sj.TimeWindow(5_000), "ts", "ts")
    with sj.open_join(spec, topology="three_step", workers=1) as join:
        sizes = [1_000] * 20 + [1] * 100
        at = 0
        for size in sizes:
            for side in ("left", "right"):
                join.push(side, rows(at, size))
                join.poll()
            at += size
        last = rows(at, 1)
        sys.setprofile(note)
        join.push("left", last)
        sys.setprofile(None)
    return len(files), sum(one != other for one, other in pairwise(files))


def main() -> int:
    trees = modules()
    repeated = repeated_names(trees)
    calls, changes = push_calls()
    print(f"import cycles: {cycles(trees)}")
    print(f"isinstance on windows and structures: {class_tests(trees)}")
    print(f"column names from f-strings: {column_names(trees)}")
    print(f"names defined in several modules: {len(repeated)}")
    for name, where in repeated.items():
        print(f"  {name}: {', '.join(each.removeprefix('streamjoin.') for each in where)}")
    print(f"a push of one row: {calls} calls, {changes} changes of module")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
