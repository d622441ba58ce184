"""How a benchmark describes its figures. This module draws nothing and needs no Matplotlib: plot.py draws.

A benchmark declares `FIGURES = {"<picture>": Figure(...)}`. A picture has the name of the benchmark, or
`<benchmark>-<part>` if its rows fill several pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """Lines (column -> legend) over the column `x`; stacked bars if `x` is not a number.

    `unit` divides the values. `where` selects rows: a column has this value, or one of a tuple of values. With `by`,
    every line is drawn once for each value of that column, and the legend names the value. `log` sets a logarithmic
    y axis. `ceiling` is a column to draw once in grey, with its legend; `diagonal` is the legend of a grey line y = x.
    """

    x: str
    lines: dict[str, str]
    x_label: str
    y_label: str
    unit: float = 1.0
    where: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    log: bool = False
    ceiling: tuple[str, str] | None = None
    diagonal: str = ""

    def points(self, rows: list[Row]) -> list[Row]:
        """The rows that belong to the figure."""
        return [
            row
            for row in rows
            if all(row[c] in v if isinstance(v, tuple) else row[c] == v for c, v in self.where.items())
        ]

    def curves(self, rows: list[Row]) -> Iterator[tuple[str, list[tuple[float, float]]]]:
        """The legend and the points of each line."""
        for group in dict.fromkeys(row[self.by] for row in rows) if self.by else [None]:
            own = [row for row in rows if group is None or row[self.by] == group]
            for column, legend in self.lines.items():
                points = [(row[self.x], row[column] / self.unit) for row in own if row[column] is not None]
                if points:
                    yield " ".join(str(word) for word in (group, legend) if word not in (None, "")), points


@dataclass(frozen=True)
class Panels:
    """A figure that draws itself: `draw(rows, canvas)` fills an empty Matplotlib figure of `size` inches.

    For circuits, whose results are exact cycles and cells: the title does not name the machine.
    """

    draw: Callable[[list[Row], Any], None]
    size: tuple[float, float] = (9, 4)
