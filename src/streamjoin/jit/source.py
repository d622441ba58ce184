"""Generated source as importable modules, kept in a cache folder so that a fresh process need not compile.

The file name holds a digest of the source and of everything else the machine code depends on, so
a cached file is never stale: another Numba, another CPU or an edited kernel gives another name.
Functions that generated source calls must live in `streamjoin.kernels` (its files are part of the
digest) or in the generated source itself.

The folder belongs to this user alone (`own_folder`), and source is always executed from memory: files are for people to
read, and for debuggers. Without such a folder nothing is cached, and one warning says why.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import linecache
import os
import platform
import re
import sys
import threading
import warnings
from pathlib import Path
from types import ModuleType

import llvmlite
import llvmlite.binding
import numba
import numpy as np

from streamjoin.jit.own_folder import OwnFolder

MAX_FILES = 4096  # generated and compiled files kept; a predicate makes two to ten
FILE = re.compile(r".+\.(py|nbc)(\.[0-9a-f]{16})?")  # the suffix: a process died while it wrote the file

# The settings of Numba, made by environment variables, that change machine code.
SETTINGS = (
    "CPU_NAME", "CPU_FEATURES", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "DISABLE_INTEL_SVML",
    "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS",
)  # fmt: skip


class StreamJoinWarning(UserWarning):
    """Something is slower or smaller than it could be; results are still correct."""


_lock = threading.RLock()
_loaded: dict[str, ModuleType] = {}
_generated: set[str] = set()  # the files of modules loaded
_folders: dict[Path | None, OwnFolder | None] = {}  # by path; None if the folder cannot be used


def folder() -> Path | None:
    """The cache folder, which may not exist: `kernels-<user id>` in STREAMJOIN_CACHE_DIR, else in `streamjoin` in the
    user's cache folder. None for a user without a home."""
    chosen = os.environ.get("STREAMJOIN_CACHE_DIR")
    if chosen:
        around = Path(chosen).absolute()
    elif sys.platform == "darwin":
        around = Path(os.path.expanduser("~/Library/Caches")) / "streamjoin"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        around = Path(os.path.expanduser(base if os.path.isabs(base) else "~/.cache")) / "streamjoin"
    return around / f"kernels-{os.geteuid()}" if around.is_absolute() else None


def usable_folder() -> OwnFolder | None:
    """The cache folder, made if need be; None, with one warning a folder, if it is not ours alone or cannot be
    written."""
    path = folder()
    with _lock:
        if path not in _folders:
            _folders[path] = None
            try:
                _folders[path] = _made(path)
            except OSError as error:
                warnings.warn(
                    f"there is no cache of compiled kernels, so every process compiles its own: {error}. To choose "
                    "another folder for it, set STREAMJOIN_CACHE_DIR to one that this user can write",
                    StreamJoinWarning,
                    stacklevel=2,
                )
        return _folders[path]


def _made(path: Path | None) -> OwnFolder:
    if path is None:
        raise FileNotFoundError("this user has no home folder (HOME is not set to an absolute path)")
    made = OwnFolder(path)
    made.key  # also makes the folder, and raises if something is wrong with it
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{path} cannot be written")
    return made


@functools.cache
def fingerprint() -> str:
    """Digest of what compiled code depends on besides its own source: versions, CPU, Numba's settings, and
    the files of `kernels` and `jit`."""
    features = llvmlite.binding.get_host_cpu_features().flatten()
    facts = [platform.python_version(), np.__version__, numba.__version__, llvmlite.__version__]
    facts += [platform.machine(), llvmlite.binding.get_host_cpu_name(), features]
    facts += [f"{name}={getattr(numba.config, name, None)}" for name in SETTINGS]
    digest = hashlib.sha256(repr(facts).encode())
    package = Path(__file__).parents[1]
    for file in sorted([*package.glob("kernels/**/*.py"), *package.glob("jit/*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def load(source: str, name: str) -> ModuleType:
    """Return `source` as a module, `name` being part of its file name; the same source gives the same module.

    The module is in `sys.modules` before its code runs, because Numba looks it up by name when it
    revives a compiled function. Without a usable cache folder it lives in memory alone.
    """
    if not name.isidentifier():
        raise ValueError(f"a generated module's name must be an identifier, not {name!r}")
    digest = hashlib.sha256(f"{fingerprint()}\n{name}\n{source}".encode()).hexdigest()[:24]
    with _lock:
        if digest not in _loaded:
            _loaded[digest] = _run(source, f"{name}_{digest}")
        return _loaded[digest]


def is_generated(filename: str) -> bool:
    """Whether `filename` is that of a module loaded here; its name holds a digest of its source."""
    return filename in _generated


def clear() -> None:
    """Remove what is cached on disk; modules already loaded keep working."""
    place = usable_folder()
    if place is not None:
        with contextlib.suppress(FileNotFoundError):
            place.remove(*_files(place))


def _run(source: str, name: str) -> ModuleType:
    module = ModuleType(f"_streamjoin_{name}")
    module.__file__ = filename = _file_of(source, name)
    sys.modules[module.__name__] = module
    try:
        # From memory even if the file exists: whatever happens to the file, this is the requested source.
        exec(compile(source, filename, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _file_of(source: str, name: str) -> str:
    """The file that holds `source`, (re)written unless its content is right; a placeholder if there is no folder.
    Tracebacks show `source` itself."""
    place, content = usable_folder(), source.encode()
    filename = f"<streamjoin {name}>"
    if place is not None:
        try:
            if _read(place, f"{name}.py") != content:
                place.write(f"{name}.py", content)
                _forget_oldest(place)
            filename = str(place.path / f"{name}.py")
        except OSError:  # the folder vanished, or the disk is full
            pass
    _generated.add(filename)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return filename


def _read(place: OwnFolder, name: str) -> bytes | None:
    try:
        return place.read(name)
    except OSError:
        return None


def _files(place: OwnFolder) -> dict[str, os.stat_result]:
    return {name: about for name, about in place.files().items() if FILE.fullmatch(name)}


def _forget_oldest(place: OwnFolder) -> None:
    """Keep the newest half when the folder holds more than MAX_FILES; a removed file is just made again."""
    files = _files(place)
    if len(files) > MAX_FILES:
        oldest = sorted(files, key=lambda name: files[name].st_mtime)
        place.remove(*oldest[: len(files) - MAX_FILES // 2])
