"""A folder that belongs to this user alone, for caches that trust what they read from it.

The folder around it may be open to all users (`/tmp`, a shared disk). Other users can then put a folder, a symbolic
link or a FIFO at our path before we do, or exchange our folder later, so a path proves nothing. Every use opens the
folder without following a link, checks the descriptor (a folder, owned by this user, mode 0700), and reaches files
through that descriptor only. That costs about 10 microseconds. Files are created exclusively, with mode 0600. Only
regular files of this user are opened.

`seal` protects content: it is a digest of data and name under a key that other users do not know. It detects files that
are damaged, renamed, or forged while the folder was open to others.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import secrets
import stat
from collections.abc import Iterator
from functools import cached_property
from io import BufferedReader
from pathlib import Path

KEY, KEY_BYTES = "key", 32
SEAL_BYTES = 32


class NotOurs(OSError):
    """A folder or a file that does not belong to this user alone."""


def seal(key: bytes, name: str, data: bytes | memoryview) -> bytes:
    """A keyed digest of content and of the name it is kept under, which has no NUL. HMAC-SHA256: where the CPU has
    instructions for SHA it is twice as fast as BLAKE2b."""
    digest = hmac.new(key, name.encode() + b"\0", "sha256")
    digest.update(data)
    return digest.digest()


class OwnFolder:
    """A folder of this user alone. Nothing is remembered between calls, so it may vanish at any time.

    Methods raise `FileNotFoundError` if the folder or the file is missing, `NotOurs` if it does not belong to this user
    alone, and any other `OSError` that the system reports.
    """

    def __init__(self, path: Path):
        self.path = path

    @contextlib.contextmanager
    def opened(self, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder; with `make` it is created if it is missing, and so are the folders around it."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            if not make:
                raise
            _make(self.path)
            found = os.lstat(self.path)
        self._check(found)
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            self._check(os.fstat(folder))
            yield folder
        finally:
            os.close(folder)

    def _check(self, found: os.stat_result) -> None:
        if stat.S_ISLNK(found.st_mode):
            raise NotOurs(f"{self.path} is a symbolic link; name the folder that it leads to, or remove it")
        if not stat.S_ISDIR(found.st_mode):
            raise NotOurs(f"{self.path} is not a folder; remove it")
        if found.st_uid != os.geteuid():
            raise NotOurs(f"{self.path} belongs to user {found.st_uid}, and this is user {os.geteuid()}")
        if found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise NotOurs(f"{self.path} is open to other users (mode {mode:o}); run chmod 700, or remove it")

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[BufferedReader]:
        """A file to be read. Never waits: what is not a regular file is not opened."""
        with self.opened() as folder:
            self._check_file(name, os.stat(name, dir_fd=folder, follow_symlinks=False))
            # Should a FIFO take its place now, opening it does not wait for a writer.
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            self._check_file(name, os.fstat(handle))
            with open(handle, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(handle)

    def _check_file(self, name: str, found: os.stat_result) -> None:
        if not _is_own_file(found):
            raise NotOurs(f"{self.path / name} is not a regular file of this user; remove it")

    def read(self, name: str) -> bytes:
        with self.file(name) as file:
            return file.read()

    def write(self, name: str, *parts: bytes, replace: bool = True) -> None:
        """Write a whole file or nothing: readers and other writers never see a part of it. Without `replace`, a file of
        that name stays as it is."""
        unfinished = f"{name}.{secrets.token_hex(8)}"
        with self.opened(make=True) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            handle = os.open(unfinished, flags, 0o600, dir_fd=folder)
            try:
                with open(handle, "wb") as file:
                    for part in parts:
                        file.write(part)
                if replace:
                    os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
                else:
                    with contextlib.suppress(FileExistsError):
                        os.link(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:  # renamed, linked, or half a file on a full disk, which would only keep it full
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(unfinished, dir_fd=folder)

    def remove(self, *names: str) -> None:
        """Remove files; those that are missing or cannot be removed are skipped."""
        with self.opened() as folder:
            for name in names:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)

    def files(self) -> dict[str, os.stat_result]:
        """All regular files of this user, by name; O(files)."""
        found = {}
        with self.opened() as folder, os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process removed it
                    about = entry.stat(follow_symlinks=False)
                    if _is_own_file(about):
                        found[entry.name] = about
        return found

    def lock(self, name: str) -> int | None:
        """A descriptor whose file this process has locked until it closes it or ends; None while another has."""
        with self.opened(make=True) as folder:
            handle = os.open(
                name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=folder
            )
        try:
            self._check_file(name, os.fstat(handle))
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except BaseException:
            os.close(handle)
            raise
        return handle

    @cached_property
    def key(self) -> bytes:
        """The folder's secret for `seal`: a file, drawn by the first process that asks for it. One that a crash cut
        short is drawn again; what was sealed with the old one is then lost."""
        for _ in range(2):
            try:
                key = self._read_key()
                if key is not None:
                    return key
                self.remove(KEY)
            except FileNotFoundError:
                pass
            self.write(KEY, secrets.token_bytes(KEY_BYTES), replace=False)
        raise NotOurs(f"{self.path / KEY} is not a file of {KEY_BYTES} bytes and mode 600; remove it")

    def _read_key(self) -> bytes | None:
        """The key, or None if there is something else in its place."""
        with contextlib.suppress(NotOurs), self.file(KEY) as file:
            key, about = file.read(KEY_BYTES + 1), os.fstat(file.fileno())
            if len(key) == KEY_BYTES and not about.st_mode & 0o077:
                return key
        return None


def _is_own_file(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def _make(path: Path) -> None:
    """Create a folder, and those around it, for this user alone whatever the umask is."""
    if not path.parent.exists():
        _make(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
