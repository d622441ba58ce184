"""Values of a job file as messages show them: short, on one line, and without secrets.

An option or setting may hold a password, so no message shows its value. Paths and servers are shown without the
credentials that a URL can carry. What Spark says of a failure is searched for the secrets that the file holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from datetime import time as clock
from itertools import islice

from streamjoin.semantics.errors import CONTROL

MOST_CHARACTERS = 60  # of a value in a message
MOST_ITEMS = 8  # of an array
HIDDEN = "***"
_BARE = re.compile(r"[\w\-.\[\]]+")  # a key that needs no quotes; parts may be joined already
# Names of options whose values are secrets, as far as names tell.
_SECRET = re.compile(
    r"secret|passw|passphrase|token|credential|jaas|access.?key|account.?key|api.?key|keystore\.key|[._]sas[._]",
    re.I,
)
_CREDENTIALS = (
    re.compile(r"(?<=//)[^\s/'\"]+@"),  # scheme://user:password@host
    re.compile(r"[^\s/,'\"@:]+:[^\s/,'\"]*@"),  # user:password@host:port
    re.compile(r"(?<=[?&;])([\w.-]*(?:secret|passw|token|key|sig)[\w.-]*=)[^&;\s'\"]+", re.I),
)
_LEAST_SECRET = 4  # characters; to hide shorter ones would garble messages and hide nothing


def kind_of(value: object) -> str:
    """What a value is in TOML's terms, without the value."""
    if isinstance(value, bool):
        return "true or false"
    kinds = {str: "text", int: "a whole number", float: "a number", list: "an array", dict: "a table"}
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), "a date or a time")


def shown(value: object) -> str:
    """A value as the file has it, shortened; of what lies in arrays and tables only the outermost level."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"a table with {shortened(', '.join(map(written_key, islice(value, MOST_ITEMS))))}"
    if isinstance(value, list):
        items = (kind_of(item) if isinstance(item, (list, dict)) else shown(item) for item in value)
        return shortened(f"[{', '.join(islice(items, MOST_ITEMS))}]")
    if isinstance(value, str):
        return shortened(without_credentials(repr(value[: 2 * MOST_CHARACTERS])))
    return shortened(value.isoformat() if isinstance(value, (date, clock)) else repr(value))


def shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def written_key(name: str) -> str:
    """A key as the file has it, quoted where it must be."""
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
    """The values of options whose names say that they are secret; of a login configuration also what it quotes."""
    values = {value for each in settings for name, value in each.items() if _SECRET.search(name)}
    values |= {quoted for value in values for quoted in re.findall(r'"([^"]+)"', value)}
    return {value for value in values if len(value) >= _LEAST_SECRET}


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text without these secrets, wherever they occur, and without the credentials of URLs."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return without_credentials(text)
