"""A table of a TOML file, read key by key: each value is checked, and every mistake is kept with its dotted path.

Reading goes on after a mistake, so that one run tells all of them; `JobError` carries the list.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from datetime import date
from datetime import time as clock
from typing import Any, TypeVar

from streamjoin.semantics.errors import SpecError, StreamJoinError

REQUIRED: Any = object()
T = TypeVar("T")


class JobError(SpecError):
    """A job that can not be run as it is written. `problems` are (dotted key, sentence) pairs."""

    def __init__(self, where: str, problems: Sequence[tuple[str, str]]):
        self.where, self.problems = where, tuple(problems)
        if not problems[0][0]:  # of the file as a whole: none of its keys was read
            super().__init__(f"{where}: {problems[0][1]}")
            return
        count = "a mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        super().__init__("\n".join([f"{where} has {count}", *(f"  {key}: {told}" for key, told in problems)]))


class TomlTable:
    """One table of the file at the dotted `path`; tables below it report into the same `problems`."""

    def __init__(self, values: dict[str, Any], path: str, problems: list[tuple[str, str]]):
        self.values, self.path, self.problems = values, path, problems
        self.known: list[str] = []

    def key(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def complain(self, name: str, sentence: str) -> None:
        """Keep a mistake. Sentences of other parts of the library may begin with the name, which is told anyway."""
        self.problems.append((self.key(name) if name else self.path, sentence.removeprefix(f"{name} ")))

    def take(self, name: str, kind: type | tuple[type, ...], wanted: str, default: T = REQUIRED) -> Any | T:
        """The value of a key if it is there and of the right kind; else the default, and a complaint if due."""
        self.known.append(name)
        if name not in self.values:
            if default is REQUIRED:
                self.complain(name, f"is missing: give {wanted}")
                return None
            return default
        value = self.values[name]
        # A TOML boolean is a Python int, but `rows = true` is a slip.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.complain(name, f"is {shown(value)}: give {wanted}")
            return None if default is REQUIRED else default
        return value

    def text(self, name: str, wanted: str, default: str | None = REQUIRED) -> Any:
        """A string that is not blank."""
        value = self.take(name, str, wanted, default)
        if isinstance(value, str) and not value.strip():
            self.complain(name, f"is blank: give {wanted}")
            return None if default is REQUIRED else default
        return value

    def choice(self, name: str, allowed: Sequence[str], default: str = REQUIRED) -> Any:
        """One of the words in `allowed`."""
        value = self.take(name, str, f"one of {', '.join(allowed)}", default)
        if value is None or value in allowed:
            return value
        self.complain(name, f"is {shown(value)}; allowed: {', '.join(allowed)}{suggestion(value, allowed)}")
        return None if default is REQUIRED else default

    def whole(
        self, name: str, wanted: str, default: int | None = REQUIRED, least: int = 1, most: int = 2**31 - 1
    ) -> Any:
        """A whole number from `least` to `most`."""
        value = self.take(name, int, f"a whole number: {wanted}", default)
        if isinstance(value, int) and not least <= value <= most:
            self.complain(name, f"is {value}; allowed: {least} to {most}")
            return None if default is REQUIRED else default
        return value

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.take(name, bool, "true or false", default))

    def texts(self, name: str, wanted: str, default: tuple[str, ...] = REQUIRED) -> tuple[str, ...]:
        """A list of strings; a single string stands for a list of one."""
        value = self.take(name, (str, list), wanted, default)
        values = [value] if isinstance(value, str) else list(value or ())
        if not all(isinstance(item, str) and item.strip() for item in values):
            self.complain(name, f"is {shown(value)}: give {wanted}")
            return ()
        if not values and self.values.get(name) == []:
            self.complain(name, f"is empty: give {wanted}")
        return tuple(values)

    def settings(self, name: str, example: str) -> dict[str, str]:
        """A table of names and plain values, as Spark takes options: text, numbers, true and false."""
        values: dict[str, Any] = self.take(name, dict, f"a table, such as {{ {example} }}", {})
        settings = {}
        for key, value in flattened(values):
            if isinstance(value, (str, int, float)):
                settings[key] = str(value).lower() if isinstance(value, bool) else str(value)
            else:
                self.complain(f"{name}.{key}", f"is {shown(value)}: give text, a number, true or false")
        return settings

    def table(self, name: str, wanted: str, optional: bool = False) -> TomlTable:
        """The table below `name`; an empty one if it is missing, with a complaint unless it is optional."""
        values = self.take(name, dict, wanted, {} if optional else REQUIRED)
        if values is None:  # which is one mistake, whatever its keys would have been
            return TomlTable({}, self.key(name), [])
        return TomlTable(values, self.key(name), self.problems)

    def tables(self, name: str, wanted: str) -> list[TomlTable]:
        """The tables `[[name]]`; `[name]` is a list of one."""
        values = self.take(name, (list, dict), wanted)
        if isinstance(values, dict):
            return [TomlTable(values, self.key(name), self.problems)]
        if values is not None and (not values or not all(isinstance(item, dict) for item in values)):
            self.complain(name, f"is {shown(values)}: give {wanted}")
            return []
        return [
            TomlTable(item, f"{self.key(name)}[{at}]", self.problems) for at, item in enumerate(values or ())
        ]

    def checked(self, name: str, check: Callable[[], T], otherwise: T) -> T:
        """The result of `check`; what it refuses becomes a complaint about `name`."""
        try:
            return check()
        except StreamJoinError as error:
            self.complain(name, str(error).strip())
            return otherwise

    def close(self) -> None:
        """Complain about the keys that nobody asked for."""
        for name in self.values:
            if name not in self.known:
                allowed = ", ".join(sorted(self.known))
                self.complain(name, f"is no key here; allowed: {allowed}{suggestion(name, self.known)}")


def flattened(values: dict[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Dotted names and values: TOML reads `spark.ui.enabled = false` as tables in tables."""
    found = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            found += flattened(value, f"{above}{name}.")
        else:
            found.append((f"{above}{name}", value))
    return found


def suggestion(given: str, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(given, allowed, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def shown(value: object) -> str:
    """A value as the file has it, shortened."""
    if isinstance(value, bool):
        return str(value).lower()
    text = value.isoformat() if isinstance(value, (date, clock)) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
