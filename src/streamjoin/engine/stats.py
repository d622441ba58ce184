"""Counts and sizes that a running join reports."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from streamjoin.engine.latency import LatencyHistogram
from streamjoin.index.stats import IndexStats
from streamjoin.semantics.html import html_table


@dataclass(frozen=True, repr=False)
class Stats:
    """Counts since the join was opened, and current sizes. Sizes of windows and buffers are in tuples or rows.

    `left_window` and `right_window` count the tuples held; an indexed window drops whole subwindows, so it
    holds somewhat more than can still match. `comparisons` counts pairs compared by scans, and candidates found by
    indexes. `left_index` and `right_index` describe the windows, if the topology has one per side.
    `left_watermark` and `right_watermark`: tuples before this time are not taken any more, in ticks of the finer unit
    of the time columns; None before the first data, and once the side has ended.
    """

    left_tuples: int
    right_tuples: int
    left_late: int
    right_late: int
    left_window: int
    right_window: int
    comparisons: int
    matches: int
    buffered_results: int
    payload_rows: int
    window_bytes: int
    worker_comparisons: tuple[int, ...]
    latency: LatencyHistogram = field(repr=False)
    left_index: IndexStats = field(default=IndexStats(), repr=False)
    right_index: IndexStats = field(default=IndexStats(), repr=False)
    left_watermark: int | None = field(default=None, repr=False)
    right_watermark: int | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """One field on a line, with the latency as quantiles."""
        return "\n".join(["Stats", *(f"  {name:<19} {text}" for name, text in self._parts())])

    def _repr_html_(self) -> str:
        return html_table("Stats", self._parts())

    def _parts(self) -> list[tuple[str, str]]:
        numbers = [(part.name, getattr(self, part.name)) for part in fields(self) if part.repr]
        shown = [
            (name, ", ".join(f"{each:,}" for each in (value if isinstance(value, tuple) else (value,))))
            for name, value in numbers
        ]
        return [*shown, ("latency", str(self.latency))]

    @property
    def tuples(self) -> int:
        return self.left_tuples + self.right_tuples

    @property
    def late(self) -> int:
        return self.left_late + self.right_late
