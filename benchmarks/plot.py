"""Draw stored results, and copy their main numbers into docs/lab/README.md, hardware.md and outcomes.md.

Reads results/<name>.json and runs no benchmark. Each benchmark describes its own figures (`FIGURES`, see
shared/figures.py), its lines of docs/lab/README.md (`main_rows`) and its tables of docs/lab/hardware.md (`tables`);
this file draws and writes them. docs/lab/outcomes.md has whole summaries.

    python benchmarks/plot.py
    python benchmarks/plot.py three_step
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # makes the folder `benchmarks` importable
from benchmarks import harness
from benchmarks.shared.figures import Figure, Panels, Row
from benchmarks.shared.results import RESULTS, ROOT, stored

WIDE = 20  # x axes that span more than this factor are logarithmic
STROKES = ("-", "--", ":", "-.")
START, END = "<!-- measured: written by benchmarks/plot.py -->\n", "<!-- end of measured -->"
# The benchmarks whose numbers a page shows, in its order.
MAIN = ("scan_kernel", "three_step", "first_result")
IN_HARDWARE = tuple(
    f"hardware_{what}" for what in ("throughput", "lanes", "clock", "resources", "latency", "power", "bisort")
)
IN_OUTCOMES = ("as_of", "nearest", "outer", "spark_outer")


def figures(name: str) -> dict[str, Figure | Panels]:
    """The figures that a benchmark declares, by the name of the picture."""
    declared: dict[str, Figure | Panels] = getattr(harness.load(name), "FIGURES", {})
    return declared


def draw(picture: str, figure: Figure | Panels, result: Row) -> Path:
    """Draw one figure of a stored result."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    commit = f"commit {(result['commit'] or 'unknown')[:10]}"
    if isinstance(figure, Figure):
        canvas = pyplot.figure(figsize=(8, 4), layout="constrained")
        axes = canvas.subplots()
        draw_figure(axes, figure, figure.points(result["rows"]))
        axes.set_title(f"{result['machine']['cpu']}, {commit}", fontsize="small")
    else:
        canvas = pyplot.figure(figsize=figure.size, layout="constrained")
        figure.draw(result["rows"], canvas)
        canvas.suptitle(commit, fontsize="small")
    path = RESULTS / f"{picture}.png"
    canvas.savefig(path, dpi=120 if isinstance(figure, Figure) else 110, metadata={"Software": None})
    pyplot.close(canvas)
    return path


def draw_figure(axes: Any, figure: Figure, rows: list[Row]) -> None:
    """Draw lines or bars, axes and legend."""
    if isinstance(rows[0][figure.x], str):
        stacked_bars(axes, figure, rows)
    else:
        draw_curves(axes, figure, rows)
        least, most = (choose(row[figure.x] for row in rows) for choose in (min, max))
        if least > 0 and most >= WIDE * least:
            axes.set_xscale("log", base=2)
        elif figure.x == "workers":
            axes.set_xticks(sorted({row["workers"] for row in rows}))
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label)
    if figure.log:
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
    else:
        axes.set_ylim(0, None)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))


def draw_curves(axes: Any, figure: Figure, rows: list[Row]) -> None:
    """Draw the lines. Those whose legends start with the same word share a colour and differ in their strokes."""
    seen: dict[str, int] = {}
    for legend, points in figure.curves(rows):
        head = legend.partition(",")[0]
        number = seen[head] = seen.get(head, -1) + 1
        colour, stroke = f"C{list(seen).index(head)}", STROKES[number % len(STROKES)]
        axes.plot(*zip(*points, strict=True), color=colour, linestyle=stroke, marker="o", ms=4, label=legend)
    if figure.ceiling is not None:
        column, legend = figure.ceiling
        heights = {row[figure.x]: row[column] / figure.unit for row in rows}
        axes.plot(*zip(*sorted(heights.items()), strict=True), color="grey", linewidth=1, label=legend)
    if figure.diagonal:
        ends = [min(row[figure.x] for row in rows), max(row[figure.x] for row in rows)]
        axes.plot(ends, ends, color="grey", linewidth=1, label=figure.diagonal)


def stacked_bars(axes: Any, figure: Figure, rows: list[Row]) -> None:
    """Draw one bar per value of x, with the medians of the columns stacked."""
    import numpy as np

    groups = list(dict.fromkeys(row[figure.x] for row in rows))
    names = [group.replace(", ", "\n").replace("_", " ").replace("latency ", "latency\n") for group in groups]
    bottom = np.zeros(len(groups))
    for column, label in figure.lines.items():
        values = [np.median([row[column] for row in rows if row[figure.x] == group]) for group in groups]
        heights = np.array(values) / figure.unit
        axes.bar(names, heights, bottom=bottom, label=label, width=0.5)
        bottom += heights


def results(names: Iterable[str]) -> dict[str, Row]:
    """The stored results of those benchmarks that have one."""
    found = {name: stored(name) for name in names}
    return {name: result for name, result in found.items() if result is not None}


def machine_text(result: Row) -> str:
    """The machine that a result comes from."""
    facts = result["machine"]
    return f"{facts['cpu']} ({facts['llvm_cpu']}), {facts['cores']} cores, Numba {facts['packages']['numba']}"


def main_block() -> str:
    """The main numbers as a Markdown table, and the machines they come from."""
    lines, machines = [], set()
    for name, result in results(MAIN).items():
        lines += [f"| {what} | {value} |" for what, value in harness.load(name).main_rows(result)]
        machines.add(machine_text(result))
    if not lines:
        return "No results are stored yet: `make bench` measures on your machine.\n"
    return "\n".join(
        ["| what | measured |", "|---|---|", *lines, "", f"Machine: {'; '.join(sorted(machines))}.", ""]
    )


def hardware_block() -> str:
    """The tables of the circuits, each followed by its figure."""
    parts = [
        f"{harness.load(name).tables(result)}\n![{name}](../../benchmarks/results/{name}.png)\n"
        for name, result in results(IN_HARDWARE).items()
    ]
    return "\n".join(parts) or "No results are stored yet.\n"


def outcomes_block() -> str:
    """Of outer, as-of and nearest joins: the summary of each benchmark and its figure."""
    parts = []
    for name, result in results(IN_OUTCOMES).items():
        lines = [f"| {what} | {readable(value)} |" for what, value in result["summary"].items()]
        table = "\n".join(["| what | measured |", "|---|---|", *lines])
        head, image = harness.title(harness.paths()[name]), f"../../benchmarks/results/{name}.png"
        parts.append(
            f"### {head.rstrip('.')}\n\n{table}\n\n![{name}]({image})\n\nMachine: {machine_text(result)}.\n"
        )
    return "\n".join(parts) or "No results are stored yet.\n"


def readable(value: Any) -> str:
    """A number for a page: three digits, or a whole number from 1,000 on."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if abs(value) < 1_000 else f"{value:,.0f}"


PAGES: dict[str, Callable[[], str]] = {
    "docs/lab/README.md": main_block,
    "docs/lab/hardware.md": hardware_block,
    "docs/lab/outcomes.md": outcomes_block,
}


def with_measured(page: str) -> str:
    """A page's text with the stored numbers between its markers."""
    before, rest = (ROOT / page).read_text().split(START)
    return before + START + PAGES[page]() + END + rest.split(END)[1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Draw stored benchmark results; write their numbers to pages of docs/lab."
    )
    parser.add_argument("name", nargs="*", help="benchmarks; none draws all that have a stored result")
    chosen = parser.parse_args().name
    found = results(chosen or harness.paths())
    for name in chosen:
        if name not in found:
            print(
                f"no stored result named {name!r}; there are: {', '.join(results(harness.paths()))}",
                file=sys.stderr,
            )
            return 2
    for name, result in found.items():
        for picture, figure in figures(name).items():
            print(draw(picture, figure, result))
    for page in PAGES:
        (ROOT / page).write_text(with_measured(page))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
