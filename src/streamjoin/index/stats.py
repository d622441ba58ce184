"""What windows report about themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SubwindowStats:
    """A part of a window: which structure finds its tuples, by which condition, and why."""

    structure: str
    condition: str
    tuples: int
    capacity: int
    reason: str


@dataclass(frozen=True)
class IndexStats:
    """The parts of a window, oldest first, and the latest changes of the choice."""

    subwindows: tuple[SubwindowStats, ...] = ()
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{part.structure} on {part.condition}, {part.tuples:,} of {part.capacity:,} tuples: {part.reason}"
            for part in self.subwindows
        ]
        return "\n".join([*lines, *(f"changed to {change}" for change in self.changes)])
