"""The one decorator of every kernel: `nogil`, IEEE arithmetic, division as NumPy does it, cached on disk.

Numba's own cache is replaced in two places: an entry also depends on `source.fingerprint()`, since
Numba does not notice a changed callee in another file; and each entry is a file of its own, since Numba's
shared index can pair a signature with another one's code when two processes write at once, and fails on a
truncated file.

An entry is code and is unpickled, so it must be what this user compiled: it is in a folder of this user alone, and
begins with a seal under that folder's key over the code and all that it was compiled for.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import os
import pickle
from collections.abc import Callable
from typing import Any

import numba
from numba.core import caching, serialize
from numba.core.dispatcher import Dispatcher

from streamjoin.jit import readiness, source
from streamjoin.jit.own_folder import SEAL_BYTES, OwnFolder, seal


def jit(
    function: Callable[..., Any] | None = None,
    cached: bool = True,
    fallback: Callable[..., Any] | None = None,
    **options: Any,
) -> Any:
    """Compile `function` on its first call, without the GIL; `options` go to `numba.njit`.

    `cached=False` is for functions of users: what they close over is not part of any digest. `fallback` is a NumPy form
    of the function, which may run instead while the function is being compiled (`readiness`).
    """
    if function is None:
        return lambda decorated: jit(decorated, cached, fallback, **options)
    options = {"nogil": True, "fastmath": False, "error_model": "numpy", "boundscheck": False, **options}
    compiled = numba.njit(**options)(function)
    # With NUMBA_DISABLE_JIT=1 `njit` returns the plain function; generated code may have no file.
    if isinstance(compiled, Dispatcher):
        folder = source.usable_folder() if cached and os.path.exists(function.__code__.co_filename) else None
        if folder is not None:
            compiled._cache = _Cache(function, folder)
        compiled._compile_for_args = _FirstCall(compiled, fallback)
    return compiled


def with_fallback(kernel: Any, fallback: Callable[..., Any]) -> Any:
    """Give generated code a NumPy form; returns the kernel."""
    if isinstance(kernel, Dispatcher):
        kernel._compile_for_args = _FirstCall(kernel, fallback)
    return kernel


def is_ready(kernel: Any, *args: Any) -> bool:
    """Whether a caller that has a NumPy form should call this kernel (a function or a `partial`). False while another
    thread prepares it: the caller should not even load it, since the first load takes half a second."""
    if not readiness.substitutes():
        return True
    while isinstance(kernel, functools.partial):
        kernel, args = kernel.func, (*kernel.args, *args)
    return not isinstance(kernel, Dispatcher) or _signature(kernel, args) in kernel.overloads


def _signature(kernel: Dispatcher, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(kernel.typeof_pyval(each) for each in args)


def _is_cached(kernel: Dispatcher, args: tuple[Any, ...]) -> bool:
    """Whether there is code for arguments of these types, in memory or in the cache."""
    signature, cache = _signature(kernel, args), kernel._cache
    return signature in kernel.overloads or (
        isinstance(cache, _Cache) and cache.has(signature, kernel.targetctx)
    )


class _FirstCall:
    """What Numba's dispatcher calls for arguments of new types: returns the function that it then calls. Calls of
    compiled code do not come here."""

    def __init__(self, kernel: Dispatcher, fallback: Callable[..., Any] | None):
        self._kernel, self._compile = kernel, kernel._compile_for_args
        self._fallback = None if fallback is None else readiness.timed(fallback)

    def __call__(self, *args: Any, **named: Any) -> Any:
        if readiness.is_loading() and not _is_cached(self._kernel, args):
            raise readiness.NotReady(self._kernel.__name__, isinstance(self._kernel._cache, _Cache))
        if self._fallback is not None and not is_ready(self._kernel, *args):
            return self._fallback
        return self._compile(*args, **named)


def inner(function: Callable[..., Any]) -> Any:
    """As `jit`, for functions that only compiled code calls: without a wrapper for Python they compile sooner."""
    return jit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


class _Locator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    def __init__(self, function: Callable[..., Any], file: str):
        self._py_file, self._lineno = file, function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(source.folder())

    def ensure_cache_path(self) -> None:
        """Nothing: entries make their folder."""

    def get_source_stamp(self) -> tuple[str, bytes]:
        """Generated source is named by its digest; nothing in the cache folder is read by its path."""
        generated = source.is_generated(self._py_file)
        return source.fingerprint(), b"" if generated else super().get_source_stamp()


class _CacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]


class _Entries:
    """One file per compiled signature: a seal of the rest, then the pickled code."""

    def __init__(self, folder: OwnFolder, base: str, stamp: tuple[str, bytes]):
        self.folder, self.base, self.stamp = folder, base, stamp

    def _name(self, key: object) -> tuple[str, str]:
        """An entry's file, and what it is: function, source, versions, CPU and signature."""
        identity = repr((self.base, self.stamp, key))
        return f"{self.base}.{hashlib.sha256(identity.encode()).hexdigest()[:24]}.nbc", identity

    def load(self, key: object) -> Any:
        """The entry, or None if it is missing, damaged, or belongs to something else."""
        name, identity = self._name(key)
        try:
            content = self.folder.read(name)
        except OSError:
            return None
        found, data = content[:SEAL_BYTES], content[SEAL_BYTES:]
        return pickle.loads(data) if hmac.compare_digest(self._seal(identity, data), found) else None

    def has(self, key: object) -> bool:
        """Whether there is a file for the entry; O(1), reads nothing."""
        return (self.folder.path / self._name(key)[0]).exists()

    def save(self, key: object, entry: object) -> None:
        name, identity = self._name(key)
        data = serialize.dumps(entry)
        self.folder.write(name, self._seal(identity, data), data)

    def _seal(self, identity: str, data: bytes) -> bytes:
        return seal(self.folder.key, identity, data)

    def flush(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            files = self.folder.files()
            self.folder.remove(*(name for name in files if name.startswith(f"{self.base}.")))


class _Cache(caching.FunctionCache):
    """A cache that never fails: an entry that cannot be read is compiled, one that cannot be written stays in
    memory."""

    _impl_class = _CacheImpl

    def __init__(self, function: Callable[..., Any], folder: OwnFolder):
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Entries(folder, self._impl.filename_base, stamp)

    def has(self, signature: Any, target_context: Any) -> bool:
        """Whether the cache seems to have code for a signature."""
        return self._cache_file.has(self._index_key(signature, target_context.codegen()))

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
