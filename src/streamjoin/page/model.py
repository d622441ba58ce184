"""What a page shows: figures of a running join as plain data, the same for both engines.

Counts are totals since the join was opened, or since this run of a query began. Rates follow from two snapshots
(page/history.py), so the code that makes a snapshot need not keep an earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

QUANTILES = {"half": 0.5, "90 %": 0.9, "99 %": 0.99, "all": 1.0}
LAST_ROWS = 20
LONGEST_CELL = 80  # characters
UNPRINTABLE = "\ufffd"


@dataclass(frozen=True)
class SideFigures:
    """One side, or both together where an engine does not tell them apart.

    `held`: rows kept for later partners. `watermark`: no row before this time is accepted any more, as text, and in
    seconds since 1970 unless times are plain integers. `lag_seconds`: how far the newest row is behind the clock.
    """

    rows: int
    late: int
    held: int
    watermark: str
    watermark_seconds: float | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True)
class WorkerFigures:
    """What one worker did. `seconds`, by kind of work, and `held` are known on Spark alone."""

    name: str
    comparisons: int
    seconds: Mapping[str, float] = field(default_factory=dict)
    held: int | None = None


@dataclass(frozen=True)
class Durations:
    """How long something took. `counts`: how often, up to each of `bounds` in seconds, and longer than the last one.
    `quantiles`: those of `QUANTILES`; empty if nothing was measured."""

    of: str
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    seconds: float  # all together
    quantiles: Mapping[str, float]


@dataclass(frozen=True)
class Snapshot:
    """The figures of a join at a moment. `at`: when they were right, in seconds since 1970. `state`: `starting`,
    `running`, `ended` or `failed`. `further`: figures that only one engine has, by name. `rows`: the last result rows
    as text, the newest last, None for NULL."""

    at: float
    state: str
    matches: int
    sides: Mapping[str, SideFigures]
    state_bytes: int
    workers: Sequence[WorkerFigures]
    durations: Durations
    further: Mapping[str, float]
    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]

    @property
    def taken(self) -> int:
        """Rows of both sides."""
        return sum(side.rows for side in self.sides.values())


class View(Protocol):
    """What a page asks of an engine, from the page's own thread."""

    name: str
    engine: str

    def plan(self) -> Mapping[str, Any] | None:
        """The plan (`Plan.to_dict`) without secrets; None as long as it is unknown."""

    def snapshot(self) -> Snapshot | None:
        """The figures now; None if the join is gone."""

    def close(self) -> None:
        """The page has ended."""


def durations_of(
    of: str, bounds: Sequence[float], counts: Sequence[int], seconds: float, at: Any
) -> Durations:
    """`at(q)` gives a quantile, NaN if nothing was measured."""
    found = {name: at(q) for name, q in QUANTILES.items()}
    known = {name: value for name, value in found.items() if not math.isnan(value)}
    return Durations(of, tuple(bounds), tuple(counts), seconds, known)


def rows_as_text(batch: pa.RecordBatch, most: int = LAST_ROWS) -> list[list[str | None]]:
    """The last rows of a batch as text; holds no memory of the batch."""
    last = batch.slice(max(0, batch.num_rows - most))
    return [list(row) for row in zip(*map(_cell_texts, last.columns), strict=True)]


def _cell_texts(column: pa.Array) -> list[str | None]:
    if pa.types.is_temporal(column.type) or pa.types.is_floating(column.type):
        # Python's times have no nanoseconds, and its floats show more digits than a float32 has.
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            column = column.cast(pa.string())
    return [cell_text(_value(scalar)) if scalar.is_valid else None for scalar in column]


def _value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except (ValueError, LookupError):  # a time that Python cannot hold, a time zone that it does not know
        return str(scalar)


def cell_text(value: object) -> str:
    """A value on one line, cut, without characters that could steer a terminal or turn the text around."""
    text = value if isinstance(value, str) else str(value)
    short = text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
    return "".join(each if each.isprintable() else UNPRINTABLE for each in short)
