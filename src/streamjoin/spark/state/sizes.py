"""Sizes from environment variables: `2147483648`, `2GiB`, `500 MB`, or `2g` as Spark writes them."""

from __future__ import annotations

import os
import re

from streamjoin.semantics.errors import SpecError

SIZE_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", 1):
    # In Spark, `2g` means 2 * 1024**3 bytes, so a single letter counts in powers of 1024.
    SIZE_UNITS |= {_letter: 1024**_power, f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power}
_SIZE = re.compile(r"\s*([0-9]{1,18})\s*([a-zA-Z]*)\s*")


def size_setting(name: str, default: int) -> int:
    """The number of bytes that the environment variable `name` gives; the default if it is not set."""
    text = os.environ.get(name)
    if text is None:
        return default
    size = _SIZE.fullmatch(text)
    if size is None or size[2].lower() not in SIZE_UNITS:
        raise SpecError(
            f"the environment variable {name} is {text[:40]!r}; allowed: a whole number of bytes, or one with a unit, "
            "such as 512MiB, 2GiB or 2GB",
            field=name,
            given=text,
            allowed="a whole number of bytes, or one with a unit",
        )
    return int(size[1]) * SIZE_UNITS[size[2].lower()]
