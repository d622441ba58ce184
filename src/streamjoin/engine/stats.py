"""Counts and sizes that a running join reports."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from streamjoin.engine.latency import LatencyHistogram
from streamjoin.index.stats import IndexStats
from streamjoin.semantics.html import html_table


@dataclass(frozen=True, repr=False)
class Stats:
    """Counts since the join was opened, and sizes now. Windows and buffers are in tuples or rows.

    `left_window` and `right_window` count the tuples held; an indexed window lets whole subwindows expire, so it
    holds somewhat more than can still match. `comparisons` are pairs compared, by an index candidates found.
    `left_index` and `right_index` tell what the windows are made of, where the topology has one a side.
    `left_watermark` and `right_watermark`: no tuple before this time is taken any more, in ticks of the finer unit of
    the time columns; None as long as no data has said so, and once the side has ended.
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
