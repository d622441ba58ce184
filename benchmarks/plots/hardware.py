"""Draw the stored results of the circuits, copy them into docs/hardware.md, and draw the waveform of one join step.

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
DOCUMENT = RESULTS.parents[1] / "docs" / "hardware.md"
START, END = "<!-- measured: written by benchmarks/plots/hardware.py -->\n", "<!-- end of measured -->"
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


def draw(name: str, result: Row) -> None:
    """One stored result as a picture beside it."""
    canvas = pyplot.figure(figsize=(9, 4), layout="constrained")
    FIGURES[name](result["rows"], canvas)
    canvas.suptitle(f"commit {(result['commit'] or 'unknown')[:10]}", fontsize="small")
    canvas.savefig(RESULTS / f"{name}.png", dpi=110, metadata={"Software": None})
    pyplot.close(canvas)


# ---- the tables of docs/hardware.md


def table(title: str, rows: list[Row], pivot: str, across: str, value: str, note: str = "") -> str:
    """Rows by `pivot`, columns by `across`."""
    columns = list(dict.fromkeys(row[across] for row in rows))
    out = [f"### {title}", "", f"| {pivot.replace('_', ' ')} | {' | '.join(map(str, columns))} |"]
    out.append("|---|" + "---|" * len(columns))
    for key in dict.fromkeys(row[pivot] for row in rows):
        cells = {row[across]: row[value] for row in rows if row[pivot] == key}
        out.append(f"| {cell(key)} | {' | '.join(cell(cells.get(column)) for column in columns)} |")
    return "\n".join([*out, "", note, ""] if note else [*out, ""])


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value}"


def throughput_tables(result: Row) -> str:
    most = max(row["tuples"] for row in result["rows"])
    rows = [row for row in result["rows"] if row["tuples"] == most]
    ratio = result["summary"]["least_ratio_2_to_50_percent"]
    title = f"Input throughput, M tuples/s at 100 MHz, 64 cores, {most:,} tuples a stream (Figure 13)"
    note = (
        f"From 2 to 50 % the low-latency circuit takes at least {ratio:.2f} times the input of the paper's."
    )
    taken = table(title, rows, "match_rate", "circuit", "input_mtps", note)
    given = table("Output throughput, M results/s (Figure 12)", rows, "match_rate", "circuit", "output_mrps")
    return f"{taken}\n{given}"


def clock_tables(result: Row) -> str:
    rows = best(result["rows"], ("design", "cores"), "mhz")
    failed = [row for row in result["rows"] if row.get("failed")]
    seeds = {
        f"{row['design']}, {row['cores']}": [
            f"{other['mhz']:.0f}" for other in result["rows"] if other["mhz"] and other["cores"] == row["cores"]
            and other["design"] == row["design"]
        ]
        for row in rows
    }  # fmt: skip
    note = "All seeds, MHz: " + "; ".join(f"{point}: {', '.join(mhz)}" for point, mhz in seeds.items()) + "."
    longest = max(rows, key=lambda row: (row["design"], row["cores"]))
    note += (
        f" The longest path of the {longest['design']} circuit with {longest['cores']} cores is "
        f"{longest['path_logic_ns']} ns of logic and {longest['path_routing_ns']} ns of wires, "
        f"from {longest['path_from']} to {longest['path_to']}."
    )
    note += "".join(f" {row['design']} with {row['cores']} cores: {row['failed']}." for row in failed)
    return table("Clock on an ECP5-85F, MHz, best seed (Figure 10)", rows, "cores", "design", "mhz", note)


def resource_tables(result: Row) -> str:
    out = []
    for target, name in (("xc6v", "Virtex-6"), ("ecp5", "ECP5")):
        rows = [row for row in result["rows"] if row["target"] == target]
        for column in ("luts", "flip_flops"):
            what = "Lookup tables" if column == "luts" else "Flip-flops"
            out.append(table(f"{what}, {name} (Figure 11)", rows, "cores", "design", column))
    slices = [
        row
        for row in result["rows"]
        if row["target"] == "xc6v" and row["cores"] == result["summary"]["cores"]
    ]
    texts = [
        f"{row['design']} {row['slices_at_best']:.0%} to {row['slices_half_full']:.0%}" for row in slices
    ]
    out.append(
        f"Slices of the paper's XC6VLX240T with {result['summary']['cores']} cores, full to half full: "
        f"{'; '.join(texts)}. The paper reports nearly 80 %.\n"
    )
    return "\n".join(out)


def latency_tables(result: Row) -> str:
    title = "Longest wait from the later tuple to the result, cycles; a tuple of each stream every 64 cycles"
    return table(title, result["rows"], "window", "design", "most_cycles")


def power_tables(result: Row) -> str:
    out = [
        "### Cores against clock for 500,000 tuples/s, windows of 100 (Teubner & Mueller, Tables 1 and 2)",
        "",
    ]
    columns = {
        "design": "design", "cores": "cores", "clock_mhz": "MHz needed", "g_toggles_per_s": "G toggles/s",
        "luts": "LUTs", "dynamic_units": "dynamic", "static_units": "static", "total_units": "total",
    }  # fmt: skip
    out += [f"| {' | '.join(columns.values())} |", "|" + "---|" * len(columns)]
    for row in result["rows"]:
        out.append(f"| {' | '.join(cell(row[column]) for column in columns)} |")
    return "\n".join(
        [
            *out,
            "",
            "Dynamic is proportional to counted toggles, static to lookup tables; the scale is that of the paper's "
            "single core, 100 and 68 mW (its total for 1, 2, 5 and 10 cores: 168, 133, 150, 188).",
            "",
        ]
    )


TABLES: dict[str, Callable[[Row], str]] = {
    "hardware_throughput": throughput_tables,
    "hardware_clock": clock_tables,
    "hardware_resources": resource_tables,
    "hardware_latency": latency_tables,
    "hardware_power": power_tables,
}


def write_tables(results: dict[str, Row]) -> None:
    """The stored numbers between the markers of the document."""
    before, rest = DOCUMENT.read_text().split(START)
    parts = [
        f"{TABLES[name](result)}\n![{name}](../benchmarks/results/{name}.png)\n"
        for name, result in results.items()
    ]
    text = "\n".join(parts) or "No results are stored yet.\n"
    DOCUMENT.write_text(before + START + text + END + rest.split(END)[1])


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
    paths = {name: RESULTS / f"{name}.json" for name in FIGURES}
    results = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    for name, result in results.items():
        draw(name, result)
    write_tables(results)
    waveform(RESULTS / "hardware_waveform.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
