"""External tools: how they are found and run, where their files are cached, what to install if one is missing."""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from streamjoin.hardware.parameters import HardwareError
from streamjoin.jit.own_folder import OwnFolder
from streamjoin.jit.source import StreamJoinWarning

Heard = Callable[[str], None]
"""Called with each line that a tool prints, as it is printed."""
INSTALL_EXTRA = "pip install 'streamjoin[hardware]', or in a clone pip install '.[hardware]'"


class ToolError(HardwareError):
    """A tool is missing or failed; the message names it and says what to do."""


def need(module: str, what: str) -> None:
    """Raise ToolError if a Python package of the extra `hardware` is missing."""
    if importlib.util.find_spec(module) is None:
        raise ToolError(f"{what} needs the package {module!r}, which is not installed: {INSTALL_EXTRA}")


def compiler() -> str:
    """The path of the C++ compiler for Verilator's output."""
    found = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    if found is None:
        raise ToolError("simulation needs a C++ compiler: install g++ or clang++, or set CXX")
    return found


def built_folder() -> Path:
    """The folder of built circuits and of the tools' own caches: `hardware-<user id>` in STREAMJOIN_CACHE_DIR, else
    in `streamjoin` in the user's cache folder.

    Simulators are loaded into this process, so the folder must belong to this user alone (`jit/own_folder.py`). If it
    does not, or cannot be made, a warning says so, and a fresh folder serves until this process ends.
    """
    chosen, base = os.environ.get("STREAMJOIN_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME", "")
    user = Path(os.path.expanduser(base if os.path.isabs(base) else "~/.cache")) / "streamjoin"
    return _own_folder((Path(chosen) if chosen else user).absolute() / f"hardware-{os.geteuid()}")


def _own_folder(wanted: Path) -> Path:
    try:
        with OwnFolder(wanted).opened(make=True):
            return wanted
    except OSError as error:
        return _fresh_folder(f"{error}")


@functools.cache
def _fresh_folder(problem: str) -> Path:
    """A folder that is removed when this process ends, one for each problem; warns of it."""
    fresh = tempfile.TemporaryDirectory(prefix="streamjoin-hardware-")
    atexit.register(fresh.cleanup)
    warnings.warn(
        f"the folder for built circuits cannot be used: {problem}. They are built again in each process. To keep them, "
        "set STREAMJOIN_CACHE_DIR to a folder that this user can write",
        StreamJoinWarning,
        stacklevel=5,
    )
    return Path(fresh.name)


def cached(name: str, contents: Sequence[str], build: Callable[[Path], None]) -> Path:
    """The folder that `build` fills once for these contents. It is moved into place whole, so none is ever
    incomplete."""
    digest = hashlib.sha256("\0".join(contents).encode()).hexdigest()[:24]
    around = built_folder()
    folder = around / f"{name}-{digest}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=around) as scratch:
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
    """Run a tool in `folder`; `heard` gets each line it prints. On failure, raise ToolError with the last lines."""
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
            tool.kill()  # an interrupt must not wait for hours of routing
            raise
    if tool.returncode:
        raise ToolError("\n".join([f"{what} failed with exit code {tool.returncode}:", *last]))


def yosys(passes: Sequence[str], folder: Path, heard: Heard | None = None) -> None:
    """Run Yosys passes over one design, in a separate process, since Yosys exits the process on errors."""
    need("pyosys", "writing Verilog")
    program = (
        "import sys\nfrom pyosys import libyosys\ndesign = libyosys.Design()\n"
        "for line in sys.argv[1:]: libyosys.run_pass(line, design)"
    )
    call([sys.executable, "-u", "-c", program, *passes], "Yosys", folder, heard=heard)
