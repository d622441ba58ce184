"""A run: immutable rows of one side, as the manifest records them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StoredRun:
    """Immutable rows of one side in the total order. `token` is unique; `nbytes` is known once the run is written."""

    number: int
    token: str
    level: int
    rows: int
    oldest: int
    newest: int
    nbytes: int = 0
    crc: int = 0  # earlier versions wrote a CRC-32 here and expect the key; nothing reads it now
