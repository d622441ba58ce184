"""Measures this checkout beside an earlier one, in alternating processes of one run.

Set STREAMJOIN_BASE to the other checkout. A benchmark measured this way uses only names that both checkouts have.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

TREE, BASE = "tree", "base"  # this checkout, the other one
Array = np.ndarray[Any, Any]


def base_checkout() -> Path | None:
    """The checkout that STREAMJOIN_BASE names."""
    named = os.environ.get("STREAMJOIN_BASE")
    return Path(named) if named else None


def measured(script: Path, checkout: Path, *arguments: object) -> list[float]:
    """The numbers that a script prints as JSON, run with the code of a checkout in a new process."""
    path = os.pathsep.join([str(checkout / "src"), str(script.parents[2])])
    environment = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring {checkout} failed:\n{done.stderr}")
    return [float(each) for each in json.loads(done.stdout)]


def alternated(script: Path, runs: int, *arguments: object) -> dict[str, Array]:
    """The numbers of every run, a row each, by checkout: this one, and the other if it is named. One more run before
    them warms up."""
    base = base_checkout()
    checkouts = {TREE: script.parents[2]} | ({BASE: base} if base else {})
    found: dict[str, list[list[float]]] = {name: [] for name in checkouts}
    for _ in range(runs + 1):
        for name, checkout in checkouts.items():
            found[name].append(measured(script, checkout, *arguments))
    return {name: np.array(numbers[1:]) for name, numbers in found.items()}
