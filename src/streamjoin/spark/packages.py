"""The packages that joins on Spark need. Imports none of them, so that it can say in one sentence which are missing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from streamjoin.semantics.errors import StreamJoinError

INSTALL = "pip install 'pyspark[connect]>=4.3,<4.4' 'pandas>=2.2,<3'"
TO_BUILD = ("pyspark", "pandas")  # `import streamjoin.spark` needs them
TO_STREAM = ("google.protobuf",)  # PySpark talks to the state store of a stateful operator through it


class MissingPackageError(StreamJoinError, ModuleNotFoundError):
    """A package that joins on Spark need is not installed; `name` is the first one."""

    def __init__(self, message: str, name: str):
        super().__init__(message)
        self.name = name


def require_packages(names: Sequence[str], what: str) -> None:
    """Raise unless all of these can be imported."""
    missing = [name for name in names if not importable(name)]
    if missing:
        raise MissingPackageError(
            f"{what}, and this Python has no {' and no '.join(missing)}: {INSTALL}", missing[0]
        )


def importable(name: str) -> bool:
    """Whether a module can be found, without importing it."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a parent package
        return False
