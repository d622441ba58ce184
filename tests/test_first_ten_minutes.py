"""What a newcomer does in the first ten minutes works, and is quick enough: scripts/first_ten_minutes.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripts.first_ten_minutes import examples

ROOT = Path(__file__).parents[1]


def test_the_script_finds_the_examples_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    for kind in ("python", "py"):
        code, printed = examples(readme, kind)
        assert "import" in code and printed.strip()


@pytest.mark.slow
def test_the_first_ten_minutes(tmp_path: Path) -> None:
    """Installs from the package index, so it needs the network."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "first_ten_minutes.py"), str(tmp_path)],
        capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
