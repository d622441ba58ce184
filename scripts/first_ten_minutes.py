"""Does what a newcomer does in the first ten minutes, in a fresh clone and an empty environment, and times every step.

    python scripts/first_ten_minutes.py [FOLDER]

FOLDER, by default a temporary one that is removed, gets the clone, the environment and an empty home. Only what is
committed is tried. Prints a line for each step, with its seconds and its bound, and fails if a step fails or takes
longer. Needs Python and git alone; Java is looked for as `make demo` does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = r"^```{kind}\n(.*?)^```\n\n```text\n(.*?)^```"


@dataclass(frozen=True)
class Step:
    """What a newcomer types, how long it may take, and what must be printed (None: anything)."""

    name: str
    command: list[str]
    seconds: float
    printed: str | None = None


def examples(readme: str, kind: str) -> tuple[str, str]:
    """The code of the README's blocks of a kind, and what they print."""
    found = re.findall(BLOCK.format(kind=kind), readme, re.MULTILINE | re.DOTALL)
    assert found, f"the README has no block {kind}"
    return "\n".join(code for code, _ in found), "".join(printed for _, printed in found)


def steps(clone: Path) -> Iterator[Step]:
    python, pip = str(clone / "own/bin/python"), [str(clone / "own/bin/pip"), "install", "-q"]
    readme = (ROOT / "README.md").read_text()
    ten_lines, printed = examples(readme, "python")
    on_spark, shown = examples(readme, "py")
    yield Step("make an environment", [sys.executable, "-m", "venv", str(clone / "own")], 60)
    yield Step("pip install .", [*pip, "."], 240)
    yield Step("the README's ten lines, cold", [python, "-c", ten_lines], 20, printed)
    yield Step("the same again", [python, "-c", ten_lines], 10, printed)
    yield Step("pip install '.[spark]'", [*pip, ".[spark]"], 300)
    yield Step("the README on Spark", [python, "-c", on_spark], 90, shown)
    yield Step("make demo, with its own environment", ["make", "demo"], 420)
    yield Step("make demo, installed", ["make", "demo"], 90)


def environment(home: Path) -> dict[str, str]:
    """Nothing of the caller's but where programs are, and how packages are fetched."""
    kept = ("PATH", "LANG", "JAVA_HOME", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    found |= {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name.lower().endswith("_proxy")
    }
    return found | {"HOME": str(home)}


def run(step: Step, clone: Path, home: Path) -> bool:
    began = time.perf_counter()
    done = subprocess.run(step.command, cwd=clone, env=environment(home), capture_output=True, text=True)
    took = time.perf_counter() - began
    problems = []
    if done.returncode != 0:
        problems.append(f"exit code {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    elif step.printed is not None and done.stdout != step.printed:
        problems.append(f"printed {done.stdout!r} instead of {step.printed!r}")
    if took > step.seconds:
        problems.append("too slow")
    print(f"{took:7.1f} s of {step.seconds:5.0f}  {step.name}", *problems, sep="\n    ", flush=True)
    return not problems


def first_ten_minutes(folder: Path) -> bool:
    clone, home = folder / "streamjoin", folder / "home"
    home.mkdir(parents=True)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    return all(run(step, clone, home) for step in steps(clone))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        raise SystemExit(not first_ten_minutes(Path(sys.argv[1]).absolute()))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        raise SystemExit(not first_ten_minutes(Path(place)))
