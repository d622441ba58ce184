"""What a running join tells of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamjoin.engine.latency import LatencyHistogram
from streamjoin.index.adaptive import AdaptiveWindow
from streamjoin.index.chain import ChainWindow
from streamjoin.index.scan import ScanWindow


@dataclass(frozen=True)
class SubwindowStats:
    """A part of a window: how tuples are found in it, by which condition, and why."""

    structure: str
    condition: str
    tuples: int
    capacity: int
    reason: str


@dataclass(frozen=True)
class IndexStats:
    """What a window is made of, oldest part first, and how the choice has changed lately."""

    subwindows: tuple[SubwindowStats, ...] = ()
    changes: tuple[str, ...] = ()

    @classmethod
    def of(cls, window: object) -> IndexStats:
        """Of a window that is not changing meanwhile; empty for one that is not a scan or a chain."""
        inner = window.window if isinstance(window, AdaptiveWindow) else window
        parts: tuple[SubwindowStats, ...] = ()
        if isinstance(inner, ScanWindow):
            reason = "few comparisons a push" if inner is not window else "the plan's choice"
            parts = (SubwindowStats("scan", "every condition", len(inner), len(inner), reason),)
        elif isinstance(inner, ChainWindow):
            parts = tuple(
                SubwindowStats(
                    link.choice.structure,
                    link.access.condition,
                    link.count,
                    link.capacity,
                    link.choice.reason,
                )
                for link in inner.links
            )
        if isinstance(window, (AdaptiveWindow, ChainWindow)):
            return cls(parts, tuple(window.workload.changes))
        return cls(parts)

    def __str__(self) -> str:
        lines = [
            f"{part.structure} on {part.condition}, {part.tuples:,} of {part.capacity:,} tuples: {part.reason}"
            for part in self.subwindows
        ]
        return "\n".join([*lines, *(f"changed to {change}" for change in self.changes)])


@dataclass(frozen=True)
class Stats:
    """Counts since the join was opened, and sizes now. Windows and buffers are in tuples or rows.

    `left_window` and `right_window` count the tuples held; an indexed window lets whole subwindows expire, so it
    holds somewhat more than can still match. `comparisons` are pairs compared, by an index candidates found.
    `left_index` and `right_index` tell what the windows are made of, where the topology has one a side.
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

    @property
    def tuples(self) -> int:
        return self.left_tuples + self.right_tuples

    @property
    def late(self) -> int:
        return self.left_late + self.right_late
