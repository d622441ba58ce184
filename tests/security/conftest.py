"""Another user of the host, a folder that both may write to, and a limit for tests that may hang."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

STRANGER = 65_533  # the other user: any id that is neither root's nor in use
PATIENCE = 60.0  # a call that takes milliseconds on an idle machine is taken to hang after this many seconds

Act = Callable[[Callable[[], Any]], None]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp: everybody may create files in it, and remove their own."""
    folder = Path(tempfile.mkdtemp(prefix="shared-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_stranger() -> Act:
    """Run a function as another user, in its own process. Needs root."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    return act_as_stranger


def act_as_stranger(function: Callable[[], Any]) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            os.umask(0)
            function()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    end = time.monotonic() + PATIENCE
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, 9)
        time.sleep(0.01)
    assert ended[1] == 0, "the other user could not do it"


@pytest.fixture
def in_time() -> Callable[[Callable[[], Any]], Any]:
    """Call a function that may hang forever, in a thread, and return its result."""

    def call(function: Callable[[], Any]) -> Any:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"no answer within {PATIENCE:.0f} s"
        return results[0]

    return call


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def modes() -> Callable[[Path], dict[str, int]]:
    """The permissions of everything below a folder, by path."""
    return lambda folder: {str(path.relative_to(folder)): mode_of(path) for path in sorted(folder.rglob("*"))}
