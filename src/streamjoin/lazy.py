"""Classes by name, imported on first use, so that unused ones do not slow down the start."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Generic, TypeVar

Registered = TypeVar("Registered")


class LazyRegistry(dict[str, Any], Generic[Registered]):
    """A dictionary whose values are given as "module:name" and become that object on first use."""

    def __getitem__(self, name: str) -> Registered:
        value = super().__getitem__(name)
        if isinstance(value, str):
            module, _, attribute = value.partition(":")
            value = getattr(import_module(module), attribute)
            self[name] = value
        found: Registered = value
        return found
