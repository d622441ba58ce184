"""Draw stored results. Reads benchmarks/results/<name>.json, writes <name>.png beside it; runs no benchmark.

A figure is described by the columns of the rows: `x`, the lines over it, and the labels of the axes.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Figure:
    """Lines (column -> legend) over the column `x`; bars if x is no number. `unit` divides the values."""

    x: str
    lines: dict[str, str]
    x_label: str
    y_label: str
    unit: float = 1.0


FIGURES = {
    "three_step": Figure(
        "batch",
        {"engine_comparisons_per_s": "three-step engine", "kernel_comparisons_per_s": "bare kernel"},
        "tuples per batch",
        "G comparisons/s, one core",
        1e9,
    ),
    "first_result": Figure(
        "cache",
        {"import": "import", "spec": "spec", "open": "open", "first_push": "first push"},
        "kernel cache",
        "seconds to the first result",
    ),
}


def draw(name: str) -> Path:
    """Draw one stored result."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, result = FIGURES[name], json.loads((RESULTS / f"{name}.json").read_text())
    canvas, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    if isinstance(result["rows"][0][figure.x], str):
        stacked_bars(axes, figure, result["rows"])
    else:
        for column, label in figure.lines.items():
            points = [(row[figure.x], row[column] / figure.unit) for row in result["rows"]]
            axes.plot(*zip(*points, strict=True), marker="o", label=label)
        axes.set_xscale("log", base=2)
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label, ylim=(0, None))
    axes.set_title(
        f"{result['machine']['cpu']}, commit {(result['commit'] or 'unknown')[:10]}", fontsize="small"
    )
    axes.legend()
    path = RESULTS / f"{name}.png"
    canvas.savefig(path, dpi=120, metadata={"Software": None})
    pyplot.close(canvas)
    return path


def stacked_bars(axes: Any, figure: Figure, rows: list[dict[str, Any]]) -> None:
    """One bar per value of x, the medians of the columns on top of each other."""
    import numpy as np

    groups = list(dict.fromkeys(row[figure.x] for row in rows))
    bottom = np.zeros(len(groups))
    for column, label in figure.lines.items():
        values = [np.median([row[column] for row in rows if row[figure.x] == group]) for group in groups]
        heights = np.array(values) / figure.unit
        axes.bar(groups, heights, bottom=bottom, label=label, width=0.5)
        bottom += heights


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw stored benchmark results.")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(FIGURES)}; none draws all that are stored")
    chosen = parser.parse_args().name or [name for name in FIGURES if (RESULTS / f"{name}.json").exists()]
    for name in chosen:
        if name not in FIGURES or not (RESULTS / f"{name}.json").exists():
            print(f"{name}: no figure or no stored result; figures: {', '.join(FIGURES)}", file=sys.stderr)
            return 2
        print(draw(name))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
