"""A run: immutable rows of one side, as the manifest names it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Run:
    """Immutable rows of one side in the total order. `token` is unique; `nbytes` is known once the run is written."""

    number: int
    token: str
    level: int
    rows: int
    oldest: int
    newest: int
    nbytes: int = 0
    crc: int = 0  # the CRC-32 that earlier versions wrote and want to find; nothing reads it any more
