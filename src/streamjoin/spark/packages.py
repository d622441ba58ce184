"""The packages that joins on Spark need. Imports none of them, so that it can say in one sentence which are missing, or
that PySpark has another version than this release runs on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from streamjoin.semantics.errors import StreamJoinError

INSTALL = "pip install 'pyspark[connect]>=4.0,<4.4' 'pandas>=2.2,<3'"
OLDEST_PYSPARK, NEWEST_PYSPARK = (4, 0), (4, 3)  # the minor versions of PySpark that the core suite passes on
TO_BUILD = ("pyspark", "pandas")  # `import streamjoin.spark` needs them
TO_STREAM = ("google.protobuf",)  # PySpark talks to the state store of a stateful operator through it


class MissingPackageError(StreamJoinError, ModuleNotFoundError):
    """A package that joins on Spark need is not installed; `name` is the first one."""

    def __init__(self, message: str, name: str):
        super().__init__(message)
        self.name = name


class UnsupportedVersionError(StreamJoinError, ImportError):
    """PySpark is installed in a version that this release does not run on."""


def require_packages(names: Sequence[str], what: str) -> None:
    """Raise unless all of these can be imported, and PySpark has the right version."""
    missing = [name for name in names if not importable(name)]
    if missing:
        raise MissingPackageError(
            f"{what}, and this Python has no {' and no '.join(missing)}: {INSTALL}", missing[0]
        )
    found = pyspark_version()
    if found is not None and not OLDEST_PYSPARK <= minor_version(found) <= NEWEST_PYSPARK:
        wanted = " to ".join(".".join(map(str, each)) for each in (OLDEST_PYSPARK, NEWEST_PYSPARK))
        raise UnsupportedVersionError(
            f"{what}, and needs PySpark {wanted}; this Python has {found}: {INSTALL}"
        )


def pyspark_version() -> str | None:
    """The version of the installed PySpark; None if it is not installed as a package, as on some platforms."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


def minor_version(text: str) -> tuple[int, ...]:
    """(4, 3) for '4.3.1'."""
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def importable(name: str) -> bool:
    """Whether a module can be found, without importing it."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a parent package
        return False
