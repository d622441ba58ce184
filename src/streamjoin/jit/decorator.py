"""The one decorator of every kernel: `nogil`, IEEE arithmetic, division as NumPy does it, cached on disk.

Numba's own cache is replaced in two places: an entry also depends on `source.fingerprint()`, since
Numba does not notice a changed callee in another file; and each entry is a file of its own with a
checksum, since Numba's shared index can pair a signature with another one's code when two
processes write at once, and fails on a truncated file.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, serialize
from numba.core.dispatcher import Dispatcher

from streamjoin.jit import source


def jit(function: Callable[..., Any] | None = None, cached: bool = True, **options: Any) -> Any:
    """Compile `function` on its first call, without the GIL; `options` go to `numba.njit`.

    `cached=False` is for functions of users: what they close over is not part of any digest.
    """
    if function is None:
        return lambda decorated: jit(decorated, cached, **options)
    options = {"nogil": True, "fastmath": False, "error_model": "numpy", "boundscheck": False, **options}
    compiled = numba.njit(**options)(function)
    # With NUMBA_DISABLE_JIT=1 `njit` hands the plain function back; generated code may have no file.
    if cached and isinstance(compiled, Dispatcher) and os.path.exists(function.__code__.co_filename):
        if source.usable_folder() is not None:
            compiled._cache = _Cache(function)
    return compiled


def inner(function: Callable[..., Any]) -> Any:
    """As `jit`, for functions that only compiled code calls: without a wrapper for Python they compile sooner."""
    return jit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


class _Locator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    def __init__(self, function: Callable[..., Any], file: str):
        self._py_file, self._lineno = file, function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(source.folder() / "compiled")

    def get_source_stamp(self) -> tuple[str, bytes]:
        return source.fingerprint(), super().get_source_stamp()


class _CacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]


class _Entries:
    """One file per compiled signature: a SHA-256 of the rest, then the pickled code."""

    def __init__(self, folder: str, base: str, stamp: tuple[str, bytes]):
        self.folder, self.base, self.stamp = Path(folder), base, stamp

    def _path(self, key: object) -> Path:
        digest = hashlib.sha256(repr((self.stamp, key)).encode()).hexdigest()[:24]
        return self.folder / f"{self.base}.{digest}.nbc"

    def load(self, key: object) -> Any:
        """The entry, or None if it is missing or damaged."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        digest, data = content[:32], content[32:]
        return pickle.loads(data) if hashlib.sha256(data).digest() == digest else None

    def save(self, key: object, entry: object) -> None:
        data = serialize.dumps(entry)
        source.write_atomically(self._path(key), hashlib.sha256(data).digest() + data)

    def flush(self) -> None:
        for file in self.folder.glob(f"{self.base}.*.nbc"):
            file.unlink(missing_ok=True)


class _Cache(caching.FunctionCache):
    """A cache that never fails: what can not be read is compiled, what can not be written stays in memory."""

    _impl_class = _CacheImpl

    def __init__(self, function: Callable[..., Any]):
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = _Entries(self._cache_path, self._impl.filename_base, locator.get_source_stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        try:
            return self._load_overload(sig, target_context)
        except Exception:  # whatever a foreign or damaged entry makes Numba raise, compiling is right
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            self._save_overload(sig, data)
        except OSError:
            self.disable()
