"""Classes by name that are imported when they are first asked for: what nobody uses costs nothing at start."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class LazyRegistry(dict[str, Any], Generic[Value]):
    """A dictionary whose values are given as "module:name" and become that object on first use."""

    def __getitem__(self, name: str) -> Value:
        value = super().__getitem__(name)
        if isinstance(value, str):
            module, _, attribute = value.partition(":")
            value = getattr(import_module(module), attribute)
            self[name] = value
        found: Value = value
        return found
