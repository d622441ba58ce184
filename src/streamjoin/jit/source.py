"""Generated source as importable modules, kept in a cache folder so that a fresh process need not compile.

The file name holds a digest of the source and of everything else the machine code depends on, so
a cached file is never stale: another Numba, another CPU or an edited kernel gives another name.
Functions that generated source calls must live in `streamjoin.kernels` (its files are part of the
digest) or in the generated source itself.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import platform
import shutil
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from types import ModuleType

import llvmlite
import llvmlite.binding
import numba
import numpy as np

MAX_FILES = 4096  # generated and compiled files kept; a predicate makes two to ten


# Of Numba's settings, which its environment variables make, those that change machine code.
SETTINGS = (
    "CPU_NAME", "CPU_FEATURES", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "DISABLE_INTEL_SVML",
    "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS",
)  # fmt: skip


class StreamJoinWarning(UserWarning):
    """Something is slower or less than it could be, and still right."""


_lock = threading.RLock()
_loaded: dict[str, ModuleType] = {}
_usable: dict[Path, bool] = {}


def folder() -> Path:
    """The cache folder: STREAMJOIN_CACHE_DIR, else `streamjoin` in the user's cache folder. It may not exist."""
    chosen = os.environ.get("STREAMJOIN_CACHE_DIR")
    if chosen:
        return Path(chosen).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)).absolute() / "streamjoin"


def usable_folder() -> Path | None:
    """The cache folder, made if need be; None, with one warning a folder, if it can not be written."""
    path = folder()
    with _lock:
        if path not in _usable:
            try:
                path.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=path).close()
                _usable[path] = True
            except OSError as error:
                _usable[path] = False
                warnings.warn(
                    f"the kernel cache folder {path} can not be written ({error.strerror or error}): kernels are "
                    "compiled anew in every process; set STREAMJOIN_CACHE_DIR to a writable folder",
                    StreamJoinWarning,
                    stacklevel=2,
                )
        return path if _usable[path] else None


@functools.cache
def fingerprint() -> str:
    """Digest of what compiled code depends on besides its own source: versions, CPU, how Numba is told to compile, and
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


def clear() -> None:
    """Remove what is cached on disk; modules already loaded go on working."""
    path = folder()
    with _lock:
        for file in path.glob("*.py"):
            file.unlink(missing_ok=True)
        shutil.rmtree(path / "compiled", ignore_errors=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file or nothing: readers and other writers never see a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _run(source: str, name: str) -> ModuleType:
    module = ModuleType(f"_streamjoin_{name}")
    module.__file__ = filename = _file_of(source, name)
    sys.modules[module.__name__] = module
    try:
        # From memory even if the file is there: whatever happens to the file, this is what was asked for.
        exec(compile(source, filename, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _file_of(source: str, name: str) -> str:
    """The file that holds `source`, (re)written unless its content is right; a placeholder if there is no folder."""
    path = usable_folder()
    if path is not None:
        file, content = path / f"{name}.py", source.encode()
        try:
            if not (file.is_file() and file.read_bytes() == content):
                write_atomically(file, content)
                _forget_oldest(path)
            return str(file)
        except OSError:  # the folder vanished, or the disk is full
            pass
    placeholder = f"<streamjoin {name}>"
    linecache.cache[placeholder] = (len(source), None, source.splitlines(keepends=True), placeholder)
    return placeholder


def _forget_oldest(path: Path) -> None:
    """Keep the newest half when the folder holds more than MAX_FILES; a removed file is just made again."""
    files = [*path.glob("*.py"), *(path / "compiled").glob("*")]
    if len(files) > MAX_FILES:
        ages = {}
        for file in files:
            try:
                ages[file] = file.stat().st_mtime
            except OSError:  # another process was faster
                continue
        for file in sorted(ages, key=ages.__getitem__)[: len(files) - MAX_FILES // 2]:
            file.unlink(missing_ok=True)
