"""Draw stored results, and copy their main numbers into the README. Reads results/<name>.json, runs no benchmark.

A figure is described by the columns of the rows: `x`, the lines over it, and the labels of the axes.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
README = RESULTS.parents[1] / "README.md"
START, END = "<!-- measured: written by benchmarks/plot.py -->\n", "<!-- end of measured -->"


@dataclass(frozen=True)
class Figure:
    """Lines (column -> legend) over the column `x`; bars if x is no number. `unit` divides the values."""

    x: str
    lines: dict[str, str]
    x_label: str
    y_label: str
    unit: float = 1.0
    where: dict[str, Any] = field(default_factory=dict)

    def points(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows that belong to the figure."""
        return [row for row in rows if all(row[column] == value for column, value in self.where.items())]


FIGURES = {
    "scan_kernel": Figure(
        "batch",
        {"kernel_gcps": "generated kernel", "c_gcps": "C, -O3 -march=native"},
        "probes per batch, window of 262,144 tuples",
        "G comparisons/s, one core",
        where={"series": "band", "window": 1 << 18},
    ),
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
    rows = figure.points(result["rows"])
    canvas, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    if isinstance(rows[0][figure.x], str):
        stacked_bars(axes, figure, rows)
    else:
        for column, label in figure.lines.items():
            points = [(row[figure.x], row[column] / figure.unit) for row in rows]
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


def load(name: str) -> dict[str, Any] | None:
    """A stored result that measured something."""
    path = RESULTS / f"{name}.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": []}
    return result if result["rows"] else None


def measured() -> str:
    """The main numbers of the stored results as a Markdown table; a sentence if there are none."""
    lines, machines = [], set()
    for name in ("scan_kernel", "three_step", "first_result"):
        if (result := load(name)) is None:
            continue
        lines += [f"| {what} | {value} |" for what, value in NUMBERS[name](result)]
        facts = result["machine"]
        machines.add(
            f"{facts['cpu']} ({facts['llvm_cpu']}), {facts['cores']} cores, Numba {facts['packages']['numba']}"
        )
    if not lines:
        return "No results are stored yet: `make bench` measures on your machine.\n"
    return "\n".join(
        ["| what | measured |", "|---|---|", *lines, "", f"Machine: {'; '.join(sorted(machines))}.", ""]
    )


def scan_numbers(result: dict[str, Any]) -> list[tuple[str, str]]:
    summary = result["summary"]
    return [
        ("scan kernel, 2-D band, one core", f"{summary['best_gcps']:.1f} G comparisons/s"),
        ("the same against C, batches of 4 and more", f"at least {summary['least_ratio']:.2f} of its rate"),
    ]


def engine_numbers(result: dict[str, Any]) -> list[tuple[str, str]]:
    window = result["rows"][0]["window"]
    what = f"engine, scan, full windows of {window:,} tuples, one core"
    return [
        (
            f"{what}, batches of {row['batch']:,}",
            f"{row['engine_comparisons_per_s'] / 1e9:.1f} G comparisons/s, {row['ratio']:.2f} of the bare kernel",
        )
        for row in result["rows"]
    ]


def first_numbers(result: dict[str, Any]) -> list[tuple[str, str]]:
    summary = result["summary"]
    return [
        ("first result of a fresh process, kernels compiled", f"{summary['cold_total_s']:.2f} s"),
        ("first result of a fresh process, kernels cached", f"{summary['warm_total_s']:.2f} s"),
    ]


NUMBERS = {"scan_kernel": scan_numbers, "three_step": engine_numbers, "first_result": first_numbers}


def with_measured(text: str) -> str:
    """The README's text with the stored numbers between the markers."""
    before, rest = text.split(START)
    return before + START + measured() + END + rest.split(END)[1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Draw stored benchmark results, write their numbers to the README."
    )
    parser.add_argument("name", nargs="*", help=f"of {', '.join(FIGURES)}; none draws all that are stored")
    chosen = parser.parse_args().name or [name for name in FIGURES if load(name)]
    for name in chosen:
        if name not in FIGURES or not load(name):
            print(f"{name}: no figure or no stored result; figures: {', '.join(FIGURES)}", file=sys.stderr)
            return 2
        print(draw(name))
    README.write_text(with_measured(README.read_text()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
