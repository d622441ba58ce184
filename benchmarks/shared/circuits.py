"""Lines and Markdown tables of the circuits' results, for figures and for docs/lab/hardware.md."""

from __future__ import annotations

from typing import Any

from benchmarks.shared.figures import Row


def lines(axes: Any, rows: list[Row], group: str, x: str, y: str, **style: Any) -> None:
    """Draw one line for each value of `group`."""
    for name in dict.fromkeys(row[group] for row in rows):
        points = [(row[x], row[y]) for row in rows if row[group] == name and row[y] is not None]
        if points:
            axes.plot(*zip(*points, strict=True), **{"marker": "o", "markersize": 3, "label": name, **style})


def best(rows: list[Row], keys: tuple[str, ...], value: str) -> list[Row]:
    """The row with the largest value for each combination of keys."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        if row[value] is not None and (key not in found or row[value] > found[key][value]):
            found[key] = row
    return list(found.values())


def counted(rows: list[Row], column: str) -> list[Row]:
    """The rows with a column `count`, which spells the number in `column`: 1 lane, 2 lanes."""
    return [{**row, "count": f"{row[column]} {column[:-1]}{'s' * (row[column] > 1)}"} for row in rows]


def table(title: str, rows: list[Row], pivot: str, across: str, value: str, note: str = "") -> str:
    """A Markdown table with a line per value of `pivot` and a column per value of `across`."""
    columns = list(dict.fromkeys(row[across] for row in rows))
    out = [f"### {title}", "", f"| {pivot.replace('_', ' ')} | {' | '.join(map(str, columns))} |"]
    out.append("|---|" + "---|" * len(columns))
    for key in dict.fromkeys(row[pivot] for row in rows):
        cells = {row[across]: row[value] for row in rows if row[pivot] == key}
        out.append(f"| {cell(key)} | {' | '.join(cell(cells.get(column)) for column in columns)} |")
    return "\n".join([*out, "", note, ""] if note else [*out, ""])


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value}"
