"""`streamjoin --version`: the versions and the machine that a bug report needs, one per line."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata

import streamjoin as sj

PACKAGES = ("numpy", "numba", "llvmlite", "pyarrow", "sqlglot", "pandas", "pyspark")


def version_lines(packages: Sequence[str] = PACKAGES) -> list[str]:
    """The version of streamjoin, then Python, the platform and the packages that results or speed depend on."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.release()} on {platform.machine()}"
    return [
        f"streamjoin {sj.__version__}",
        python,
        system,
        *(f"{name} {_installed(name)}" for name in packages),
    ]


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
