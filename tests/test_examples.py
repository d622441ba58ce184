"""Every example runs in its own process, as a reader would start it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ALL = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
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
