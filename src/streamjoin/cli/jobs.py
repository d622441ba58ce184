"""Modules of `streamjoin.spark.job`, imported when a command needs them: the other commands run without Spark."""

from __future__ import annotations

import importlib
from types import ModuleType

import streamjoin as sj


def job_module(name: str) -> ModuleType:
    """A module of `streamjoin.spark.job`; without PySpark, an error that says how to install it."""
    try:
        return importlib.import_module(f"streamjoin.spark.job.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("streamjoin"):
            raise
        raise sj.StreamJoinError(
            f"jobs run on Spark, and {error.name} is not installed: pip install 'streamjoin[spark]', or in a clone "
            "pip install '.[spark]' (`streamjoin demo --embedded` needs neither Spark nor Java)"
        ) from None
