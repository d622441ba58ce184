"""The outside tools: which there are, where their files go, and what to install when one is missing."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from streamjoin.hardware.parameters import HardwareError

Heard = Callable[[str], None]
"""Is told each line a tool prints, as it comes."""
EXTRA = "pip install 'streamjoin[hardware]'"


class ToolError(HardwareError):
    """A tool is missing or failed; the message says which, and what to do."""


def need(module: str, what: str) -> None:
    """Refuse clearly if a Python package of the extra is not there."""
    if importlib.util.find_spec(module) is None:
        raise ToolError(f"{what} needs the package {module!r}, which is not installed: {EXTRA}")


def compiler() -> str:
    """The C++ compiler Verilator's output is compiled with."""
    found = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    if found is None:
        raise ToolError("simulation needs a C++ compiler: install g++ or clang++, or set CXX")
    return found


def cache_folder() -> Path:
    """Where built simulators and the tools' own caches are kept; STREAMJOIN_CACHE_DIR moves it."""
    chosen = os.environ.get("STREAMJOIN_CACHE_DIR")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = (Path(chosen).absolute() if chosen else user / "streamjoin") / "hardware"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cached(name: str, contents: Sequence[str], build: Callable[[Path], None]) -> Path:
    """A folder made by `build` once for these contents; it is moved into place whole, so that none is half there."""
    digest = hashlib.sha256("\0".join(contents).encode()).hexdigest()[:24]
    folder = cache_folder() / f"{name}-{digest}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            build(made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.exists():  # else another process was faster
                    raise
    return folder


def call(
    command: Sequence[str | Path],
    what: str,
    folder: Path,
    env: dict[str, str] | None = None,
    heard: Heard | None = None,
) -> None:
    """Run a tool in `folder`; `heard` is told each line it prints. A failure shows the last lines."""
    last: deque[str] = deque(maxlen=12)
    with subprocess.Popen(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as tool:
        assert tool.stdout is not None
        try:
            for line in tool.stdout:
                last.append(line.rstrip())
                if heard is not None:
                    heard(last[-1])
        except BaseException:
            tool.kill()  # who is interrupted must not wait for hours of routing
            raise
    if tool.returncode:
        raise ToolError("\n".join([f"{what} failed with exit code {tool.returncode}:", *last]))


def yosys(passes: Sequence[str], folder: Path, heard: Heard | None = None) -> None:
    """Run Yosys passes over one design, in a process of its own: Yosys ends the process on errors."""
    need("pyosys", "writing Verilog")
    program = (
        "import sys\nfrom pyosys import libyosys\ndesign = libyosys.Design()\n"
        "for line in sys.argv[1:]: libyosys.run_pass(line, design)"
    )
    call([sys.executable, "-u", "-c", program, *passes], "Yosys", folder, heard=heard)
