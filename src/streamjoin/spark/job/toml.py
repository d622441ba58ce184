"""Reads the TOML of a job file, within limits. A `JobError` lists everything that is wrong with a file.

The size of the file, the size of its numbers and the depth of its tables are limited, so that no file takes long to
read or to refuse.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.shown import without_credentials, written_key

MAX_FILE_BYTES = 1 << 18
MAX_DEPTH = 32  # levels of tables and arrays in each other, and parts of a dotted name
MAX_MISTAKES = 20  # the most mistakes that one message lists
_KEY_PART = r"""(?:[\w\-]++|"[^"\n]*+"|'[^'\n]*+')"""
# tomllib takes minutes to parse a name of 50,000 parts, so such names are searched for first, even in strings.
_LONG_NAME = re.compile(rf"(?<![\w\-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{MAX_DEPTH},}}")


class JobError(SpecError):
    """A job file that is refused. `problems` are (dotted key, sentence) pairs, and `field` is the first key. The error
    does not hold the values, because any of them may be a secret."""

    def __init__(self, where: str, problems: Sequence[tuple[str, str]]):
        self.where = where
        self.problems = tuple((key, without_credentials(told)) for key, told in problems)
        if not problems[0][0]:  # the problem is the file itself: no key was read
            super().__init__(
                f"{where}: {self.problems[0][1]}", field="path", given=where, allowed="a TOML file"
            )
            return
        count = "a mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        lines = [f"  {key}: {told}" for key, told in self.problems[:MAX_MISTAKES]]
        more = [f"  and {len(problems) - MAX_MISTAKES} more"] if len(problems) > MAX_MISTAKES else []
        message = "\n".join([f"{where} has {count}", *lines, *more])
        super().__init__(message, field=problems[0][0], allowed="the keys of `streamjoin schema`")


def read_toml(path: Path) -> dict[str, Any]:
    """The TOML in a file; a `JobError` if it is missing, too large or not TOML."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise JobError(
                str(path),
                [("", f"the file has more than {MAX_FILE_BYTES:,} bytes, the limit for a job file")],
            )
        return parse_toml(
            data.decode("utf-8-sig"), path
        )  # some editors begin the file with a byte order mark
    except FileNotFoundError:
        problem = "no such file"
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the file cannot be read: {error}"
    raise JobError(str(path), [("", problem)])


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Parse a text, within the limits."""
    deep = f"tables, arrays or parts of a name are nested more than {MAX_DEPTH} deep"
    if (long := _LONG_NAME.search(text)) is not None:
        line = text.count("\n", 0, long.start()) + 1
        raise JobError(str(path), [("", f"{deep} (at line {line}): use fewer levels")])
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobError(str(path), [("", f"the file is not TOML: {error}")]) from None
    except RecursionError:
        raise JobError(str(path), [("", f"{deep}: use fewer levels")]) from None
    except ValueError:  # an integer that Python refuses to convert
        large = "a number has thousands of digits; allowed: 64-bit integers"
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
    """All values of a table with their names, down to the first level that is too deep."""
    waiting: list[tuple[tuple[str, ...], object]] = [((), values)]
    while waiting:
        names, value = waiting.pop()
        yield names, value
        if len(names) > MAX_DEPTH:
            continue
        if isinstance(value, dict):
            waiting += [((*names, name), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*names, f"[{at}]"), inner) for at, inner in enumerate(value)]


def beyond_bounds(names: tuple[str, ...], value: object, deep: str) -> str | None:
    """What is wrong with the size of a value, if anything."""
    if len(names) > MAX_DEPTH:
        return f"is too deep: {deep}"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "is too large or too small; allowed: 64-bit integers"
    return None
