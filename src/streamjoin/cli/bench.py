"""`streamjoin dev bench`: run the benchmarks of the checkout that the package was installed from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import streamjoin as sj

CHECKOUT = Path(__file__).parents[3]


def run_benchmark(name: str | None, quick: bool, roots: Sequence[Path] | None = None) -> int:
    """Run a benchmark, or list all of them; the exit code. `roots` are the folders to search for the harness: by
    default the checkout, then the current folder."""
    harness = find_harness((CHECKOUT, Path.cwd()) if roots is None else roots)
    arguments = [name] if name else ["--list"]
    return subprocess.run(
        [sys.executable, str(harness), *arguments, *(["--quick"] if quick else [])]
    ).returncode


def find_harness(roots: Sequence[Path]) -> Path:
    for root in roots:
        harness = root / "benchmarks" / "harness.py"
        if harness.exists():
            return harness
    raise sj.StreamJoinError(
        "the benchmarks are not here: streamjoin was installed without its checkout. Clone the repository and run "
        "`streamjoin dev bench` (or `make bench`) in it"
    )
