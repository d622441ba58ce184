"""Every example runs in its own process, as a reader would start it; the notebook cell by cell."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
ALL = sorted(FOLDER.glob("*.py"))
EXAMPLES = [
    path for path in ALL if not path.stem.startswith("spark_")
]  # tests/spark runs those, in one Spark


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows something"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell of a notebook; its last line's value, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_runs_and_shows_what_is_stored_in_it() -> None:
    pytest.importorskip("pandas")
    names: dict[str, Any] = {}
    shown = pictures = 0
    cells = json.loads((FOLDER / "notebook.ipynb").read_text())["cells"]
    for cell in (each for each in cells if each["cell_type"] == "code"):
        value = run_cell("".join(cell["source"]), names)
        for output in cell["outputs"]:
            shown += 1
            assert repr(value) == "".join(output["data"]["text/plain"])
            pictures += "<svg" in value._repr_html_() and "<svg" in "".join(output["data"]["text/html"])
    assert (shown, pictures) == (4, 1)
