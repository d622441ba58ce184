"""Draw the stored results of the circuits and copy their numbers into docs/hardware.md.

Reads benchmarks/results/hardware_*.json; only the waveform is made anew.

    python benchmarks/plots/hardware.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
sys.path.insert(
    0, str(Path(__file__).resolve().parents[2])
)  # what benchmarks share is imported from `benchmarks`
from matplotlib import pyplot

from benchmarks.plots.hardware_waveform import waveform

RESULTS = Path(__file__).resolve().parents[1] / "results"
DOCUMENT = RESULTS.parents[1] / "docs" / "hardware.md"
START, END = "<!-- measured: written by benchmarks/plots/hardware.py -->\n", "<!-- end of measured -->"
ECP5_CELLS = 83_640  # lookup tables, and as many flip-flops
PAPER_MHZ = 150  # "nearly 150 MHz" for 2 to 64 cores on a Virtex-6 (Oge et al., section V-B)
Row = dict[str, Any]


def lines(axes: Any, rows: list[Row], group: str, x: str, y: str, **style: Any) -> None:
    """One line for each value of `group`."""
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


def by_tuples(rows: list[Row]) -> dict[int, list[Row]]:
    """The rows of each length of the streams, the longest first."""
    lengths = sorted({row["tuples"] for row in rows}, reverse=True)
    return {tuples: [row for row in rows if row["tuples"] == tuples] for tuples in lengths}


def throughput(rows: list[Row], canvas: Any) -> None:
    long, short = by_tuples(rows).values()
    for axes, column, label in zip(
        canvas.subplots(1, 2),
        ("input_mtps", "output_mrps"),
        ("input, M tuples/s at 100 MHz", "output, M results/s at 100 MHz"),
        strict=True,
    ):
        lines(axes, long, "circuit", "match_rate", column)
        axes.set_prop_cycle(None)  # the same colours again
        lines(axes, short, "circuit", "match_rate", column, marker="", linestyle="--", label=None)
        axes.set(xlabel="match rate", ylabel=label, xscale="log", yscale="log")
    axes.plot(
        [], [], "--", color="grey", label=f"{short[0]['tuples']} instead of {long[0]['tuples']:,} tuples"
    )
    axes.legend(fontsize="x-small")


def clock(rows: list[Row], canvas: Any) -> None:
    axes = canvas.subplots()
    lines(axes, best(rows, ("design", "cores"), "mhz"), "design", "cores", "mhz")
    axes.axhline(PAPER_MHZ, linestyle=":", color="grey", label="the paper on a Virtex-6")
    axes.set(xlabel="cores", ylabel="MHz, best placement, ECP5-85F", ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.legend()


def resources(rows: list[Row], canvas: Any) -> None:
    panels = (("luts", "xc6v", "lookup tables, Virtex-6"), ("luts", "ecp5", "lookup tables, ECP5"),
              ("flip_flops", "ecp5", "flip-flops, both"))  # fmt: skip
    for axes, (column, target, label) in zip(canvas.subplots(1, 3), panels, strict=True):
        lines(axes, [row for row in rows if row["target"] == target], "design", "cores", column)
        axes.set(xlabel="cores", ylabel=label, ylim=(0, None))
        if target == "ecp5":
            axes.axhline(ECP5_CELLS, linestyle=":", color="grey", label="an ECP5-85F has")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    canvas.axes[1].legend(loc="upper left")


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
        if "paper_total" in own[0]:
            axes.plot(
                cores, [row["paper_total"] for row in own], "k_", markersize=24, label="total of the paper"
            )
        axes.set(title=name, xlabel="cores", ylabel="units: the paper's single core has 168")
    panels[1].legend()


def bisort(rows: list[Row], canvas: Any) -> None:
    largest = [row for row in rows if row["subwindow"] == max(row["subwindow"] for row in rows)]
    named = [{**row, "what": f"{row['units']} unit{'s' * (row['units'] > 1)}"} for row in largest]
    for axes, column in zip(canvas.subplots(1, 2), ("insert_mtps", "probe_mtps"), strict=True):
        lines(axes, named, "what", "batch", column)
        axes.set(xlabel=f"batch, items; subwindow of {largest[0]['subwindow']:,}", xscale="log", yscale="log")
        axes.set(ylabel=f"{column.split('_')[0]}, M tuples/s at 252.7 MHz")
        axes.set_xscale("log", base=2)
    batches = sorted({row["batch"] for row in largest})
    bound = [row["insert_mtps"] / row["insert_of_bandwidth"] for row in largest if row["units"] == 1]
    canvas.axes[0].plot(batches, bound, ":", color="grey", label="all of the memory's bandwidth")
    canvas.legend(*canvas.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)


def lanes(rows: list[Row], canvas: Any) -> None:
    axes = canvas.subplots()
    named = [{**row, "what": f"{row['lanes']} lane{'s' * (row['lanes'] > 1)}"} for row in rows]
    lines(axes, named, "what", "match_rate", "input_mtps")
    axes.set(xlabel="match rate", ylabel="input, M tuples/s at 100 MHz", xscale="log", yscale="log")
    axes.legend()


FIGURES: dict[str, Callable[[list[Row], Any], None]] = {
    "hardware_throughput": throughput,
    "hardware_lanes": lanes,
    "hardware_clock": clock,
    "hardware_resources": resources,
    "hardware_latency": latency,
    "hardware_power": power,
    "hardware_bisort": bisort,
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
    ratio = result["summary"]["least_ratio_2_to_50_percent"]
    note = (
        f"From 2 to 50 % the low-latency circuit takes at least {ratio:.2f} times the input of the paper's."
    )
    out: list[str] = []
    for tuples, rows in by_tuples(result["rows"]).items():
        streams = f"64 cores, {tuples:,} tuples a stream"
        title = f"Input throughput, M tuples/s at 100 MHz, {streams} (Figure 13)"
        out.append(table(title, rows, "match_rate", "circuit", "input_mtps", "" if out else note))
        title = f"Output throughput, M results/s at 100 MHz, {streams} (Figure 12)"
        out.append(table(title, rows, "match_rate", "circuit", "output_mrps"))
    return "\n".join(out)


def lane_tables(result: Row) -> str:
    rows = [{**row, "what": f"{row['lanes']} lane{'s' * (row['lanes'] > 1)}"} for row in result["rows"]]
    bitmaps = [
        {**row, "what": "results a bitmap", "input_mtps": row["results_a_bitmap"]}
        for row in rows
        if row["lanes"] == rows[0]["lanes"]
    ]
    title = "Input throughput by lanes, M tuples/s at 100 MHz, 16 cores; results that a bitmap would hold"
    cells = [f"{name.split('_')[1]}: {count:,}" for name, count in result["summary"].items()]
    note = f"Lookup tables on a Virtex-6 by lanes: {'; '.join(cells)}."
    return table(title, rows + bitmaps, "match_rate", "what", "input_mtps", note)


def clock_tables(result: Row) -> str:
    rows = best(result["rows"], ("design", "cores"), "mhz")
    failed = [row for row in result["rows"] if row.get("failed")]
    placements = [
        f"{row['design']}, {row['cores']} cores, {row['flow']}, seed {row['seed']}: {row['mhz']:.0f}"
        for row in result["rows"]
        if row["mhz"] is not None
    ]
    note = f"All placements, MHz: {'; '.join(placements)}."
    longest = max(rows, key=lambda row: (row["design"], row["cores"]))
    note += (
        f" The longest path of the {longest['design']} circuit with {longest['cores']} cores is "
        f"{longest['path_logic_ns']} ns of logic and {longest['path_routing_ns']} ns of wires, "
        f"from {longest['path_from']} to {longest['path_to']}."
    )
    note += "".join(f" {row['design']} with {row['cores']} cores: {row['failed']}." for row in failed)
    return table(
        "Clock on an ECP5-85F, MHz, best placement (Figure 10)", rows, "cores", "design", "mhz", note
    )


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
        "design": "design", "cores": "cores", "clock_mhz": "MHz needed", "net_toggles_per_tuple": "net toggles a tuple",
        "clock_toggles_per_tuple": "clock toggles a tuple", "luts": "LUTs", "flip_flops": "flip-flops",
        "block_rams": "block RAMs", "dynamic_units": "dynamic", "static_units": "static", "total_units": "total",
        "paper_total": "the paper's total",
    }  # fmt: skip
    out += [f"| {' | '.join(columns.values())} |", "|" + "---|" * len(columns)]
    for row in result["rows"]:
        out.append(f"| {' | '.join(cell(row[column]) for column in columns)} |")
    return "\n".join([*out, ""])


def bisort_tables(result: Row) -> str:
    largest = max(row["subwindow"] for row in result["rows"])
    rows = [
        {**row, "what": f"{row['units']} unit{'s' * (row['units'] > 1)}"}
        for row in result["rows"]
        if row["subwindow"] == largest
    ]
    out = [
        table(
            f"BI-Sort: insertion into {largest:,} items, cycles (Figure 14a)",
            rows,
            "batch",
            "what",
            "insert_cycles",
        ),
        table(
            f"BI-Sort: probing {largest:,} items, cycles (Figure 14b)", rows, "batch", "what", "probe_cycles"
        ),
    ]
    most = max(row["units"] for row in rows)
    every = [row for row in result["rows"] if row["units"] == most]
    for column in ("insert_mtps", "probe_mtps"):
        title = f"BI-Sort: {column.split('_')[0]}, M tuples/s at 252.7 MHz with {most} units, by subwindow"
        out.append(table(title, every, "batch", "subwindow", column))
    summary, kinds = result["summary"], ("luts", "flip_flops", "block_rams")
    out += [f"### BI-Sort: cells on a Virtex-6, subwindow of {largest:,}", ""]
    out += ["| units | lookup tables | flip-flops | block RAMs of 18 kbit |", "|---|---|---|---|"]
    for units in dict.fromkeys(row["units"] for row in rows):
        cells = " | ".join(cell(summary[f"{units}_units_{kind}"]) for kind in kinds)
        out.append(f"| {units} | {cells} |")
    return "\n".join([*out, ""])


TABLES: dict[str, Callable[[Row], str]] = {
    "hardware_throughput": throughput_tables,
    "hardware_lanes": lane_tables,
    "hardware_clock": clock_tables,
    "hardware_resources": resource_tables,
    "hardware_latency": latency_tables,
    "hardware_power": power_tables,
    "hardware_bisort": bisort_tables,
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
