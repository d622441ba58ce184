"""The layout of benchmarks/: what the harness finds, and what a benchmark may import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.shared.results import RESULTS

FOLDER = Path(harness.__file__).parent
PATHS = harness.paths()
SHARED = sorted((FOLDER / "shared").glob("*.py"))
LOAD = """
import json
from benchmarks import harness, plot
for name in harness.paths():
    assert callable(harness.load(name).run), name
print(json.dumps({name: list(plot.figures(name)) for name in harness.paths()}))
"""


def imported_benchmarks(path: Path) -> set[str]:
    """The dotted names below `benchmarks` that a file imports, at whatever depth it is written."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == "benchmarks"}


def test_a_benchmark_lies_in_a_subject_folder_and_nothing_else_does() -> None:
    files = [path for path in FOLDER.rglob("*.py") if path.relative_to(FOLDER).parts[0] != "shared"]
    assert {path.stem for path in files if path.parent == FOLDER} == {"harness", "plot"}
    assert {path for path in files if path.parent != FOLDER} == set(PATHS.values())


def test_no_two_benchmarks_share_a_name() -> None:
    names = Counter(path.stem for subject in harness.SUBJECTS for path in (FOLDER / subject).glob("*.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("name", PATHS)
def test_a_benchmark_has_run_and_a_docstring_that_starts_with_a_sentence(name: str) -> None:
    module = ast.parse(PATHS[name].read_text())
    runs = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    assert [[argument.arg for argument in run.args.args] for run in runs] == [["quick"]]
    assert ast.get_docstring(runs[0])
    first = (ast.get_docstring(module) or "").splitlines()[0]
    assert first == harness.title(PATHS[name])
    assert first.endswith((".", "?")), f"the first line is no whole sentence: {first}"


@pytest.mark.parametrize("path", [*PATHS.values(), *SHARED], ids=lambda path: path.stem)
def test_a_benchmark_imports_only_shared_code(path: Path) -> None:
    assert {name for name in imported_benchmarks(path) if not name.startswith("benchmarks.shared.")} == set()


def test_every_benchmark_loads_and_declares_the_pictures_that_are_stored() -> None:
    # In its own process: some benchmarks set environment variables for the libraries that they import.
    done = subprocess.run([sys.executable, "-c", LOAD], cwd=FOLDER.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    drawn = json.loads(done.stdout)
    assert drawn.keys() == PATHS.keys()
    for name, pictures in drawn.items():
        assert [each for each in pictures if each.partition("-")[0] != name] == []
    stored = {path.stem for path in RESULTS.glob("*.png")}
    assert stored - {picture for pictures in drawn.values() for picture in pictures} == set()


def test_every_stored_result_belongs_to_a_benchmark() -> None:
    stored = {path.name.removesuffix(".quick.json").removesuffix(".json") for path in RESULTS.glob("*.json")}
    assert stored
    assert stored - PATHS.keys() == set()
    assert {path.stem.partition("-")[0] for path in RESULTS.glob("*.png")} - stored == set()


def test_the_list_groups_benchmarks_by_subject(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["harness.py", "--list"])
    assert harness.main() == 0
    listed: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if not line.startswith(" "):
            subject = line.removesuffix(":")
        else:
            listed.setdefault(subject, []).append(line.split()[0])
    assert listed == {
        subject: [name for name, path in PATHS.items() if path.parent.name == subject]
        for subject in harness.SUBJECTS
    }
    assert all(listed.values())
