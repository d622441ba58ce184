"""Run benchmarks and store what they measured.

A benchmark is a file in one of the subject folders (SUBJECTS) with `run(quick: bool) -> {"rows": [...], "summary":
{...}}`. The rows are the points of its figures; the summary holds the few numbers that matter. A benchmark fixes its
seeds, warms up, and repeats each measurement at least five times. The harness adds the commit and the machine, and
writes `results/<name>.json`. Names are unique across subjects. Code that several benchmarks use lives in `shared/`;
a benchmark never imports another one.

    python benchmarks/harness.py --list
    python benchmarks/harness.py three_step --quick
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # makes the folder `benchmarks` importable
from benchmarks.shared.results import RESULTS, git, path_of
from benchmarks.shared.timing import core_count

os.environ.setdefault("STREAMJOIN_COMPILE", "wait")  # benchmarks measure compiled kernels
HERE = Path(__file__).resolve().parent
VECTOR_FLAGS = {"sse4.2", "avx", "avx2", "avx512f", "avx512bw", "avx512vl", "neon", "sve"}
SUBJECTS = ("kernels", "indexes", "engine", "topologies", "spark", "hardware")


def paths() -> dict[str, Path]:
    """Every benchmark's file by name, subject by subject."""
    return {path.stem: path for subject in SUBJECTS for path in sorted((HERE / subject).glob("*.py"))}


def load(name: str) -> Any:
    """Import a benchmark's module."""
    return importlib.import_module(f"benchmarks.{paths()[name].parent.name}.{name}")


def title(path: Path) -> str:
    """The first line of a benchmark's docstring, read without importing it."""
    return path.read_text().splitlines()[0].strip('"')


def cpu_model() -> str:
    """The processor's name as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith(("model name", "cpu model")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_gib() -> float:
    """Physical memory in GiB."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def machine() -> dict[str, Any]:
    """The facts a reader needs to compare these numbers with their own."""
    from llvmlite import binding

    vector = [flag for flag, on in binding.get_host_cpu_features().items() if on and flag in VECTOR_FLAGS]
    packages = ("numpy", "numba", "llvmlite", "pyarrow")
    return {
        "cpu": cpu_model(),
        "llvm_cpu": binding.get_host_cpu_name(),
        "vector": sorted(vector),
        "architecture": platform.machine(),
        "cores": core_count(),
        "memory_gib": memory_gib(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {package: metadata.version(package) for package in packages},
    }


@contextlib.contextmanager
def unpinned_afterwards() -> Iterator[None]:
    """Restore the process's cores after a benchmark that pins itself."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        yield
    finally:
        if allowed is not None:
            os.sched_setaffinity(0, allowed)


def execute(name: str, quick: bool) -> dict[str, Any]:
    """Run one benchmark and return the result to store."""
    # Read these first: the run may pin itself to a core, and files may change meanwhile.
    commit, status, facts = (
        git("rev-parse", "HEAD"),
        git("status", "--porcelain", "--untracked-files=no"),
        machine(),
    )
    started = datetime.datetime.now(datetime.UTC)
    with unpinned_afterwards():
        outcome = load(name).run(quick)
    seconds = (datetime.datetime.now(datetime.UTC) - started).total_seconds()
    changed = [line for line in (status or "").splitlines() if "benchmarks/results/" not in line]
    return {
        "benchmark": name,
        "quick": quick,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "commit": commit,
        # Whether the code differs from the commit, so that nobody can reproduce the result. Stored results may differ.
        "dirty": None if status is None else bool(changed),
        "machine": facts,
        "rows": outcome["rows"],
        "summary": outcome["summary"],
    }


def show(result: dict[str, Any]) -> None:
    """Print the rows as aligned columns, then the summary."""
    rows = result["rows"]
    if rows:
        table = [list(rows[0])] + [[cell(value) for value in row.values()] for row in rows]
        widths = [max(len(line[i]) for line in table if i < len(line)) for i in range(len(table[0]))]
        for line in table:
            print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=False)))
    for key, value in result["summary"].items():
        print(f"{key}: {cell(value)}")


def cell(value: Any) -> str:
    """A value as text; numbers with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show_list(found: dict[str, Path]) -> None:
    """Print each subject with its benchmarks."""
    width = max(map(len, found))
    for subject in SUBJECTS:
        print(f"{subject}:")
        for name, path in found.items():
            if path.parent.name == subject:
                print(f"  {name:{width}}  {title(path)}")


def main() -> int:
    found = paths()
    parser = argparse.ArgumentParser(description="Run benchmarks, store and print what they measured.")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(found)}; none runs all")
    parser.add_argument("--quick", action="store_true", help="smaller inputs; stored as <name>.quick.json")
    parser.add_argument("--list", action="store_true", help="list the benchmarks by subject")
    options = parser.parse_args()
    if options.list:
        show_list(found)
        return 0
    unknown = [name for name in options.name if name not in found]
    if unknown:
        print(f"no benchmark named {unknown[0]!r}; there are: {', '.join(found)}", file=sys.stderr)
        return 2
    RESULTS.mkdir(exist_ok=True)
    for name in options.name or found:
        print(f"==> {name}", flush=True)
        result = execute(name, options.quick)
        path = path_of(name, options.quick)
        path.write_text(json.dumps(result, indent=1) + "\n")
        show(result)
        print(f"stored {os.path.relpath(path)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
