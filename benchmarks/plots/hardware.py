"""Draw the stored results of the circuits, print them as Markdown tables, and draw the waveform of one join step.

Reads benchmarks/results/hardware_*.json; only the waveform is made here, by running two tuples through two cores.

    python benchmarks/plots/hardware.py
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

RESULTS = Path(__file__).resolve().parents[1] / "results"
PAPER_MHZ = 150  # "nearly 150 MHz" for 2 to 64 cores on a Virtex-6 (Oge et al., section V-B)
Row = dict[str, Any]


def lines(axes: Any, rows: list[Row], group: str, x: str, y: str) -> None:
    """One line for each value of `group`."""
    for name in dict.fromkeys(row[group] for row in rows):
        points = [(row[x], row[y]) for row in rows if row[group] == name and row[y] is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)


def best(rows: list[Row], keys: tuple[str, ...], value: str) -> list[Row]:
    """The row with the largest value for each combination of keys."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        if row[value] is not None and (key not in found or row[value] > found[key][value]):
            found[key] = row
    return list(found.values())


def throughput(rows: list[Row], canvas: Any) -> None:
    longest = [row for row in rows if row["tuples"] == max(row["tuples"] for row in rows)]
    for axes, column, label in zip(
        canvas.subplots(1, 2),
        ("input_mtps", "output_mrps"),
        ("input, M tuples/s at 100 MHz", "output, M results/s at 100 MHz"),
        strict=True,
    ):
        lines(axes, longest, "circuit", "match_rate", column)
        axes.set(xlabel="match rate", ylabel=label, xscale="log", yscale="log")
    axes.legend(fontsize="x-small")


def clock(rows: list[Row], canvas: Any) -> None:
    axes = canvas.subplots()
    lines(axes, best(rows, ("design", "cores"), "mhz"), "design", "cores", "mhz")
    axes.axhline(PAPER_MHZ, linestyle=":", color="grey", label="the paper on a Virtex-6")
    axes.set(xlabel="cores", ylabel="MHz, best seed, ECP5-85F", ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.legend()


def resources(rows: list[Row], canvas: Any) -> None:
    for axes, column in zip(canvas.subplots(1, 2), ("luts", "flip_flops"), strict=True):
        for target in ("xc6v", "ecp5"):
            mapped = [
                {**row, "what": f"{row['design']}, {target}"} for row in rows if row["target"] == target
            ]
            lines(axes, mapped, "what", "cores", column)
        axes.set(xlabel="cores", ylabel=column.replace("_", " "), ylim=(0, None))
    axes.legend()


def latency(rows: list[Row], canvas: Any) -> None:
    axes = canvas.subplots()
    lines(axes, rows, "design", "window", "most_cycles")
    axes.set(xlabel="window, tuples", ylabel="longest wait for a result, cycles", yscale="log")
    axes.set_xscale("log", base=2)
    axes.legend()


def power(rows: list[Row], canvas: Any) -> None:
    panels = canvas.subplots(1, 2, sharey=True)
    for axes, name in zip(panels, dict.fromkeys(row["design"] for row in rows), strict=True):
        own = [row for row in rows if row["design"] == name]
        cores = [str(row["cores"]) for row in own]
        dynamic = [row["dynamic_units"] for row in own]
        axes.bar(cores, dynamic, label="dynamic: toggles")
        axes.bar(cores, [row["static_units"] for row in own], bottom=dynamic, label="static: area")
        axes.set(title=name, xlabel="cores", ylabel="the paper's single core is 168")
    panels[0].legend()


FIGURES: dict[str, Callable[[list[Row], Any], None]] = {
    "hardware_throughput": throughput,
    "hardware_clock": clock,
    "hardware_resources": resources,
    "hardware_latency": latency,
    "hardware_power": power,
}


def draw(name: str) -> None:
    """One stored result as a picture beside it, and as a table on standard output."""
    result = json.loads((RESULTS / f"{name}.json").read_text())
    canvas = pyplot.figure(figsize=(9, 4), layout="constrained")
    FIGURES[name](result["rows"], canvas)
    canvas.suptitle(f"commit {(result['commit'] or 'unknown')[:10]}", fontsize="small")
    canvas.savefig(RESULTS / f"{name}.png", dpi=110, metadata={"Software": None})
    pyplot.close(canvas)
    columns = list(dict.fromkeys(column for row in result["rows"] for column in row))
    print(f"\n{name}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in result["rows"]:
        print(f"| {' | '.join(cell(row.get(column)) for column in columns)} |")


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else f"{value}"


# ---- the waveform of one join step

SIGNALS = {
    "left.valid": "bench.top.left__valid",
    "left.ready": "bench.top.left__ready",
    "right.valid": "bench.top.right__valid",
    "right.ready": "bench.top.right__ready",
    "core 0: tuple arrives": "bench.top.core_0.command__valid",
    "core 0: handed on": "bench.top.core_0.forward__valid",
    "core 0: keys are read": "bench.top.core_0.window.scan_row",
    "core 0: stored": "bench.top.core_0.window.store",
    "core 0: payload fetched": "bench.top.core_0.window.fetch",
    "core 1: tuple arrives": "bench.top.core_1.command__valid",
    "core 0: result written": "bench.top.core_0.fifo.write_valid",
    "output.valid": "bench.top.output__0__valid",
}
PERIOD = 10_000_000  # femtoseconds of a cycle


def read_vcd(text: str) -> dict[str, list[tuple[int, int]]]:
    """Signals of a VCD file by their full name: (cycle, value) of each change."""
    scope: list[str] = []
    names: dict[str, list[str]] = {}
    changes: dict[str, list[tuple[int, int]]] = {}
    time = 0
    for line in text.splitlines():
        words = line.split()
        if line.startswith("$scope"):
            scope.append(words[2])
        elif line.startswith("$upscope"):
            scope.pop()
        elif line.startswith("$var"):
            names.setdefault(words[3], []).append(".".join([*scope, words[4]]))
        elif line.startswith("#"):
            time = int(line[1:])
        elif change := re.fullmatch(r"b([01]+) (\S+)|([01])(\S+)", line):
            value, key = (change[1], change[2]) if change[1] else (change[3], change[4])
            for name in names.get(key, ()):
                changes.setdefault(name, []).append((time, int(value, 2)))
    return changes


def sampled(changes: list[tuple[int, int]], first: int, cycles: int) -> Iterator[int]:
    """The value at the end of each cycle."""
    for cycle in range(first, first + cycles):
        yield ([0] + [value for time, value in changes if time <= cycle * PERIOD + PERIOD // 2 - 1])[-1]


def waveform(path: Path, first: int = 11, cycles: int = 15) -> None:
    """A left tuple, then a right one with its key: from both edges to the result."""
    from streamjoin.hardware.designs import DESIGNS
    from streamjoin.hardware.interpret import Interpreter
    from streamjoin.hardware.simulate import Stream

    design = DESIGNS["low-latency"]
    circuit = design.build(design.parameters(cores=2, lanes=1))
    with tempfile.TemporaryDirectory() as scratch:
        waves = Path(scratch) / "join.vcd"
        Interpreter(circuit).run(Stream([7], [1], None, [12]), Stream([7], [2], None, [12]), waves=waves)
        changes = read_vcd(waves.read_text())
    canvas, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    for row, name in enumerate(SIGNALS.values()):
        values = list(sampled(changes[name], first, cycles))
        top = max([*values, 1])
        axes.step(
            range(cycles + 1), [-row + 0.7 * value / top for value in [*values, values[-1]]], where="post"
        )
    axes.set_yticks([-row + 0.3 for row in range(len(SIGNALS))], list(SIGNALS))
    axes.set(xlabel="cycle", xlim=(0, cycles))
    axes.grid(axis="x", alpha=0.3)
    canvas.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(canvas)


def main() -> int:
    for name in FIGURES:
        if (RESULTS / f"{name}.json").exists():
            draw(name)
    waveform(RESULTS / "hardware_waveform.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
