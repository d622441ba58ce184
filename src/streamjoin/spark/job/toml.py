"""A table of a TOML file, read key by key: each value is checked, and every mistake is kept with its dotted path.

Reading goes on after a mistake, so that one run tells all of them; `JobError` carries the list. The size of a file, of
a text and of a number is bounded, and so is the depth of tables in each other: a file beyond a bound is refused before
it can take long.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from streamjoin.semantics.errors import CONTROL, SpecError, StreamJoinError
from streamjoin.spark.job.shown import kind_of, shown, without_credentials, written_key

MOST_BYTES = 1 << 18  # of a file
MOST_DEPTH = 32  # of tables and arrays in each other, and of the parts of a dotted name
MOST_CHARACTERS = 4096  # of a text on one line: a name, a path, an address
MOST_TOLD = 20  # mistakes in one message
REQUIRED: Any = object()
T = TypeVar("T")
_PART = r"""(?:[\w\-]++|"[^"\n]*+"|'[^'\n]*+')"""
# Wherever it stands: tomllib takes minutes for a name of 50,000 parts, before it can be asked about it.
_LONG_NAME = re.compile(rf"(?<![\w\-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MOST_DEPTH},}}")


class JobError(SpecError):
    """A job that can not be run as it is written. `problems` are (dotted key, sentence) pairs."""

    def __init__(self, where: str, problems: Sequence[tuple[str, str]]):
        self.where = where
        self.problems = tuple((key, without_credentials(told)) for key, told in problems)
        if not problems[0][0]:  # of the file as a whole: none of its keys was read
            super().__init__(f"{where}: {self.problems[0][1]}")
            return
        count = "a mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        lines = [f"  {key}: {told}" for key, told in self.problems[:MOST_TOLD]]
        more = [f"  and {len(problems) - MOST_TOLD} more"] if len(problems) > MOST_TOLD else []
        super().__init__("\n".join([f"{where} has {count}", *lines, *more]))


def read_toml(path: Path) -> dict[str, Any]:
    """The TOML in a file; one that is missing, too large or no TOML is a `JobError`."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise JobError(
                str(path), [("", f"it has more than {MOST_BYTES:,} bytes, which no job file needs")]
            )
        return parse_toml(data.decode("utf-8-sig"), path)  # some editors put a mark in front
    except FileNotFoundError:
        problem = "there is no such file"
    except (OSError, UnicodeDecodeError) as error:
        problem = f"it can not be read: {error}"
    raise JobError(str(path), [("", problem)])


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """The tables of a text, within bounds."""
    deep = f"tables, arrays or the parts of a name lie more than {MOST_DEPTH} deep in each other"
    if (long := _LONG_NAME.search(text)) is not None:
        line = text.count("\n", 0, long.start()) + 1
        raise JobError(str(path), [("", f"{deep} (at line {line}): write fewer")])
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobError(str(path), [("", f"it is no TOML: {error}")]) from None
    except RecursionError:
        raise JobError(str(path), [("", f"{deep}: write fewer")]) from None
    except ValueError:  # of an integer that Python does not convert
        large = "it has a number of thousands of digits; allowed: whole numbers of 64 bits"
        raise JobError(str(path), [("", large)]) from None
    problems = [
        (".".join(map(written_key, names)), told)
        for names, value in every_value(values)
        if (told := beyond_bounds(names, value, deep)) is not None
    ]
    if problems:
        raise JobError(str(path), problems)
    return values


def every_value(values: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], object]]:
    """All values of a table, at any depth, with their names; of what lies too deep no more than the first level."""
    waiting: list[tuple[tuple[str, ...], object]] = [((), values)]
    while waiting:
        names, value = waiting.pop()
        yield names, value
        if len(names) > MOST_DEPTH:
            continue
        if isinstance(value, dict):
            waiting += [((*names, name), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*names, f"[{at}]"), inner) for at, inner in enumerate(value)]


def beyond_bounds(names: tuple[str, ...], value: object, deep: str) -> str | None:
    """What is wrong with the size of a value, if anything."""
    if len(names) > MOST_DEPTH:
        return f"is out of bounds: {deep}"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "is a number that does not fit; allowed: whole numbers of 64 bits"
    return None


class TomlTable:
    """One table of the file at the dotted `path`; tables below it report into the same `problems`."""

    def __init__(self, values: dict[str, Any], path: str, problems: list[tuple[str, str]]):
        self.values, self.path, self.problems = values, path, problems
        self.known: list[str] = []

    def key(self, name: str) -> str:
        return f"{self.path}.{written_key(name)}" if self.path else written_key(name)

    def complain(self, name: str, sentence: str) -> None:
        """Keep a mistake. Sentences of other parts of the library may begin with the name, which is told anyway."""
        self.problems.append((self.key(name) if name else self.path, sentence.removeprefix(f"{name} ")))

    def take(
        self,
        name: str,
        kind: type | tuple[type, ...],
        wanted: str,
        default: T = REQUIRED,
        told: Callable[[object], str] = shown,
    ) -> Any | T:
        """The value of a key if it is there and of the right kind; else the default, and a complaint if due, in which
        the value is `told`."""
        self.known.append(name)
        if name not in self.values:
            if default is REQUIRED:
                self.complain(name, f"is missing: give {wanted}")
                return None
            return default
        value = self.values[name]
        # A TOML boolean is a Python int, but `rows = true` is a slip.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.complain(name, f"is {told(value)}: give {wanted}")
            return None if default is REQUIRED else default
        return value

    def text(self, name: str, wanted: str, default: str | None = REQUIRED, lines: bool = False) -> Any:
        """A string that is not blank. With `lines` it may be of any length and have line breaks and tabs. Other control
        characters are refused: they would reach the terminal."""
        value = self.take(name, str, wanted, default)
        if not isinstance(value, str) or (value.strip() and self.is_clean(name, value, lines)):
            return value
        if not value.strip():
            self.complain(name, f"is blank: give {wanted}")
        return None if default is REQUIRED else default

    def is_clean(self, name: str, value: str, lines: bool = False) -> bool:
        """Whether text is short enough and has no control characters; a complaint if not."""
        if len(value) > MOST_CHARACTERS and not lines:
            self.complain(name, f"has {len(value):,} characters; allowed: {MOST_CHARACTERS:,}")
            return False
        found = CONTROL.search(re.sub(r"[\t\r\n]", "", value) if lines else value)
        if found is not None:
            self.complain(name, f"has the control character {found[0]!a}: leave it out")
        return found is None

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

    def texts(
        self, name: str, wanted: str, default: tuple[str, ...] = REQUIRED, lines: bool = False
    ) -> tuple[str, ...]:
        """A list of strings, each like a `text`; a single string stands for a list of one."""
        value = self.take(name, (str, list), wanted, default)
        values = [value] if isinstance(value, str) else list(value or ())
        if not all(isinstance(item, str) and item.strip() for item in values):
            self.complain(name, f"is {shown(value)}: give {wanted}")
            return ()
        if not values and self.values.get(name) == []:
            self.complain(name, f"is empty: give {wanted}")
        return tuple(values) if all(self.is_clean(name, item, lines) for item in values) else ()

    def settings(self, name: str, example: str) -> dict[str, str]:
        """A table of names and plain values, as Spark takes options: text, numbers, true and false. Any of them may be
        a secret, so none is told."""
        values: dict[str, Any] = self.take(name, dict, f"a table, such as {{ {example} }}", {}, kind_of)
        settings = {}
        for key, value in flattened(values):
            if isinstance(value, (str, int, float)):
                settings[key] = str(value).lower() if isinstance(value, bool) else str(value)
            else:
                self.complain(f"{name}.{key}", f"is {kind_of(value)}: give text, a number, true or false")
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
        allowed = ", ".join(sorted(self.known))
        for name in self.values:
            if name not in self.known:
                meant = suggestion(name, self.known) if len(self.problems) < MOST_TOLD else ""
                self.complain(name, f"is no key here; allowed: {allowed}{meant}")


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
