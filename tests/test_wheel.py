"""The wheel: installed into an empty environment, far from the checkout, it has all it needs and runs the README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import streamjoin as sj

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
DATA = [path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--out-dir", folder, ROOT, cwd=folder)
    assert len(list(folder.glob("streamjoin-*.tar.gz"))) == 1
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """The interpreter of an environment with the wheel and what it depends on, and nothing else."""
    place = wheel.parent / "environment"
    run(UV, "venv", "-q", "-p", sys.executable, place, cwd=wheel.parent)
    found = place / "bin" / "python"
    run(UV, "pip", "install", "-q", "-p", found, wheel, cwd=wheel.parent)
    return found


def run(*command: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {str(path.relative_to(ROOT / "src")) for path in DATA} <= names
    assert {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")} <= names
    assert "streamjoin/py.typed" in names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


def test_the_installed_package_is_not_the_checkout(python: Path, tmp_path: Path) -> None:
    place = run(python, "-c", "import streamjoin; print(streamjoin.__file__)", cwd=tmp_path).strip()
    assert not Path(place).is_relative_to(ROOT)
    assert run(python.with_name("streamjoin"), "--version", cwd=tmp_path).startswith(
        f"streamjoin {sj.__version__}\n"
    )


def test_the_examples_of_the_readme_run_without_extras(python: Path, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 2
    program = "\n".join(code for code, _ in blocks)
    assert run(python, "-c", program, cwd=tmp_path) == "".join(output for _, output in blocks)


def test_a_join_on_spark_without_the_extra_is_one_sentence(python: Path, tmp_path: Path) -> None:
    code = "try: import streamjoin.spark\nexcept ImportError as error: print(error)"
    assert "pip install 'pyspark[connect]" in run(python, "-c", code, cwd=tmp_path)
