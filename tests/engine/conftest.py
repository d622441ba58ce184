"""Kernel caches for processes that start without their own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cold_runs import PREDICATES, run


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has all kernels of the equality."""
    home = Path(os.environ["STREAMJOIN_CACHE_DIR"])
    run(home, PREDICATES["equality"], STREAMJOIN_COMPILE="wait")
    copy = tmp_path_factory.mktemp("filled") / "cache"
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("hardware-*"))
    return copy


@pytest.fixture
def nearly_filled(filled: Path, tmp_path: Path) -> Path:
    """The same without one kernel, so that compiling the rest takes another process a moment only."""
    cache = tmp_path / "cache"
    shutil.copytree(filled, cache)
    missing = list(cache.glob("kernels-*/stamping.falls*.nbc"))
    assert missing
    for file in missing:
        file.unlink()
    return cache
