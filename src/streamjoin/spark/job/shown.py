"""How messages show values of a job file: short, on one line, and without secrets.

An option or setting may be a password, so no message shows its value. Paths and servers are shown without the
credentials that a URL can contain. Secrets of the file are removed from Spark's error messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from datetime import time as clock
from itertools import islice

from streamjoin.semantics.errors import CONTROL

MAX_SHOWN = 60  # characters of a value in a message
MAX_SHOWN_ITEMS = 8  # items of an array in a message
HIDDEN = "***"
_BARE = re.compile(r"[\w\-.\[\]]+")  # a key that needs no quotes; it may have several parts
# Options with such names usually have secret values.
_SECRET = re.compile(
    r"secret|passw|passphrase|token|credential|jaas|access.?key|account.?key|api.?key|keystore\.key|[._]sas[._]",
    re.I,
)
_CREDENTIALS = (
    re.compile(r"(?<=//)[^\s/'\"]+@"),  # scheme://user:password@host
    re.compile(r"[^\s/,'\"@:]+:[^\s/,'\"]*@"),  # user:password@host:port
    re.compile(r"(?<=[?&;])([\w.-]*(?:secret|passw|token|key|sig)[\w.-]*=)[^&;\s'\"]+", re.I),
)
_MIN_SECRET = 4  # characters: hiding shorter values would garble messages and protect nothing


def toml_kind(value: object) -> str:
    """The TOML type of a value, in words."""
    if isinstance(value, bool):
        return "true or false"
    kinds = {str: "text", int: "a whole number", float: "a number", list: "an array", dict: "a table"}
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), "a date or a time")


def shown(value: object) -> str:
    """A value as in the file, shortened. Arrays and tables are shown one level deep."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"a table with {shortened(', '.join(map(written_key, islice(value, MAX_SHOWN_ITEMS))))}"
    if isinstance(value, list):
        items = (toml_kind(item) if isinstance(item, (list, dict)) else shown(item) for item in value)
        return shortened(f"[{', '.join(islice(items, MAX_SHOWN_ITEMS))}]")
    if isinstance(value, str):
        return shortened(without_credentials(repr(value[: 2 * MAX_SHOWN])))
    return shortened(value.isoformat() if isinstance(value, (date, clock)) else repr(value))


def shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def written_key(name: str) -> str:
    """A key as in the file, quoted where TOML needs quotes."""
    short = shortened(name)
    if _BARE.fullmatch(short):
        return short
    return json.dumps(short, ensure_ascii=CONTROL.search(short) is not None)


def without_credentials(text: str) -> str:
    """The text, with user names and passwords of URLs and servers hidden."""
    whole, bare, query = _CREDENTIALS
    text = bare.sub(f"{HIDDEN}@", whole.sub(f"{HIDDEN}@", text))
    return query.sub(rf"\1{HIDDEN}", text)


def secrets_in(settings: Iterable[Mapping[str, str]]) -> set[str]:
    """The values of options with secret-looking names, and the quoted parts of those values (login configurations)."""
    values = {value for each in settings for name, value in each.items() if _SECRET.search(name)}
    values |= {quoted for value in values for quoted in re.findall(r'"([^"]+)"', value)}
    return {value for value in values if len(value) >= _MIN_SECRET}


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text without these secrets, wherever they occur, and without the credentials of URLs."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return without_credentials(text)
