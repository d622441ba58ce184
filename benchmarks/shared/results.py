"""Stored results: where they are, and the commit they belong to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def path_of(name: str, quick: bool = False) -> Path:
    """The file that stores a benchmark's result; quick runs never replace full ones."""
    return RESULTS / f"{name}{'.quick' if quick else ''}.json"


def stored(name: str, quick: bool = False) -> dict[str, Any] | None:
    """A benchmark's stored result; None if there is none, or if it measured nothing."""
    path = path_of(name, quick)
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": []}
    return result if result["rows"] else None


def git(*arguments: str) -> str | None:
    """The output of a git command in the checkout; None without git or outside a repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
