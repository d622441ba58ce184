"""Draw stored results, and copy their main numbers into the README. Reads results/<name>.json, runs no benchmark.

A figure is described by the columns of the rows: `x`, the lines over it, and the labels of the axes. The rows of one
result may fill several figures, which are named <result>-<what they show>.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
README = RESULTS.parents[1] / "README.md"
WIDE = 20  # x axes that span more than this factor are logarithmic
STROKES = ("-", "--", ":", "-.")
START, END = "<!-- measured: written by benchmarks/plot.py -->\n", "<!-- end of measured -->"


@dataclass(frozen=True)
class Figure:
    """Lines (column -> legend) over the column `x`; bars if x is no number. `unit` divides the values.

    With `by`, each column is drawn once for every value of that one, which the legend names. `log` is for the y axis.
    `ceiling` is a column that is drawn once in grey, and its legend; `diagonal` the legend of the line on which y is x.
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

    def points(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows that belong to the figure."""
        return [
            row
            for row in rows
            if all(row[c] in v if isinstance(v, tuple) else row[c] == v for c, v in self.where.items())
        ]

    def curves(self, rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[tuple[float, float]]]]:
        """Legend and points of each line."""
        for group in dict.fromkeys(row[self.by] for row in rows) if self.by else [None]:
            own = [row for row in rows if group is None or row[self.by] == group]
            for column, legend in self.lines.items():
                points = [(row[self.x], row[column] / self.unit) for row in own if row[column] is not None]
                if points:
                    yield " ".join(str(word) for word in (group, legend) if word not in (None, "")), points


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
    "bisort_probe": Figure(
        "batch",
        {
            "records_per_s": "BI-Sort, records",
            "bisort_per_s": "BI-Sort, pairs",
            "numpy_2_per_s": "NumPy, probes sorted first",
            "numpy_per_s": "NumPy",
            "polars_per_s": "polars join_where",
        },
        "probes per batch; 8M keys, 4 matches a probe",
        "probes/s, one thread",
        where={"part": "probe"},
        log=True,
    ),
    "hash_probe": Figure(
        "batch",
        {
            "ours_probes_per_s": "hash subwindow",
            "pandas_index_probes_per_s": "pandas Index.get_indexer",
            "polars_probes_per_s": "polars join",
            "duckdb_probes_per_s": "DuckDB join",
            "pandas_probes_per_s": "pandas merge",
        },
        "probes per batch; 8M keys, one match a probe",
        "probes/s, one thread",
        where={"window": 8 << 20},
        log=True,
    ),
    **{
        f"raptable_balance-{partitions}": Figure(
            "adjustment",
            {"error": ""},
            f"adjustments; {partitions:,} partitions, 2M tuples",
            "mean error of a partition's size",
            where={"partitions": partitions},
            by="keys",
            log=True,
        )
        for partitions in (64, 1024, 65_536)
    },
    "structure_insert-batch": Figure(
        "batch",
        {"inserts_per_s": ""},
        "tuples per batch; subwindow of 8M",
        "tuples inserted/s, one thread",
        where={"part": "insert", "size": 1 << 23},
        by="series",
        log=True,
    ),
    "structure_insert-size": Figure(
        "size",
        {"inserts_per_s": ""},
        "tuples of the subwindow; batches of 256",
        "tuples inserted/s, one thread",
        where={"part": "insert", "batch": 256, "partitions": (None, 1024)},
        by="series",
        log=True,
    ),
    "structure_insert-buffer": Figure(
        "batch",
        {"inserts_per_s": "tuples buffered at most"},
        "tuples per batch; BI-Sort subwindow of 64K",
        "tuples inserted/s, one thread",
        where={"part": "buffer"},
        by="buffer",
        log=True,
    ),
    "structure_probe-batch": Figure(
        "batch",
        {"probes_per_s": ""},
        "probes per batch; subwindow of 8M, equality, one match",
        "probes/s, one thread",
        where={"size": 1 << 23},
        by="series",
        log=True,
    ),
    "structure_probe-size": Figure(
        "size",
        {"probes_per_s": ""},
        "tuples of the subwindow; batches of 256, equality, one match",
        "probes/s, one thread",
        where={"batch": 256, "partitions": None},
        by="series",
        log=True,
    ),
    **{
        f"structure_select-{kind}": Figure(
            "matches",
            {"probes_per_s": ""},
            f"matches a probe; {what}, subwindow of 8M, batches of 32K",
            "probes/s, one thread",
            where={"kind": kind},
            by="series",
            log=True,
        )
        for kind, what in (("equi", "equality"), ("band", "band"))
    },
    "engine_select": Figure(
        "matches",
        {"capacity": ""},
        "matches a tuple; windows of 8M, batches of up to 32K",
        "tuples/s a side, two cores",
        by="index",
        log=True,
    ),
    "index_against_scan": Figure(
        "rate",
        {"capacity": ""},
        "tuples/s a side whose 15-minute windows are full",
        "tuples/s a side that are taken, two cores",
        by="index",
        log=True,
        diagonal="what comes",
    ),
    "band_2d": Figure(
        "rate",
        {"capacity": ""},
        "tuples/s a side whose 15-minute windows are full",
        "tuples/s a side that are taken, two cores",
        by="part",
        log=True,
        diagonal="what comes",
    ),
    "scalejoin_throughput": Figure(
        "workers",
        {
            "comparisons_per_s": "ScaleJoin",
            "celljoin_comparisons_per_s": "CellJoin",
            "kernel_comparisons_per_s": "bare kernel on as many cores",
        },
        "workers, on two cores; full windows of 15 minutes",
        "G comparisons/s",
        1e9,
        where={"minutes": 15, "rate": 1_000},
    ),
    "scalejoin_gate": Figure(
        "sources",
        {"tuples_per_s": "readers"},
        "sources",
        "M tuples/s through ScaleGate",
        1e6,
        by="readers",
    ),
    "scalejoin_skew": Figure(
        "second",
        {"deviation_percent": ""},
        "seconds",
        "deviation of comparisons per worker, %",
        by="case",
    ),
    "spark_latency": Figure(
        "rate",
        {"p50": "median", "p95": "95 of 100", "p99": "99 of 100"},
        "rows/s of both sides together",
        "seconds from the making of a row to the sink",
    ),
    "spark_soak-memory": Figure(
        "seconds",
        {
            "jvm_mb": "JVM, resident",
            "heap_live_mb": "JVM, live heap",
            "python_mb": "Python workers, resident",
        },
        "seconds at full rate",
        "MB",
    ),
    "spark_soak-state": Figure(
        "seconds",
        {"state_rows": "rows held"},
        "seconds at full rate",
        "M rows of state, replicas included",
        1e6,
    ),
    "spark_soak-batch": Figure(
        "seconds",
        {"batch_seconds": "a micro-batch"},
        "seconds at full rate",
        "seconds",
    ),
    "handshake_latency": Figure(
        "second",
        {"mean_ms": ""},
        "seconds",
        "mean latency, ms",
        where={
            "join": tuple(
                f"{topology}, 4 s and 4 s, batch {batch}, half load, 2 workers"
                for topology, batch in (
                    ("handshake", 64),
                    ("low_latency_handshake", 64),
                    ("low_latency_handshake", 4),
                )
            )
        },
        by="join",
        log=True,
    ),
    "handshake_throughput": Figure(
        "workers",
        {"comparisons_per_s": ""},
        "workers; two cores, batches of 256, windows of 270,000",
        "G comparisons/s",
        1e9,
        where={"batch": 256, "order": "any", "window": 270_000},
        by="topology",
        ceiling=("kernel_times_cores", "bare kernel on as many cores"),
    ),
    "handshake_simd": Figure(
        "workers",
        {"sustained_rate": ""},
        "workers; two cores, windows of 15 minutes",
        "tuples/s a side",
        where={"topology": "handshake"},
        by="kernel",
    ),
    "handshake_sort_buffer": Figure(
        "workers",
        {
            "low_latency_buffer": "low-latency handshake join",
            "handshake_buffer": "handshake join",
            "window_results": "without punctuations",
        },
        "workers",
        "most results that wait to be sorted",
        log=True,
    ),
    "handshake_index": Figure(
        "join",
        {"tuples_per_s": ""},
        "2 workers, windows of 270,000 tuples, one match a tuple",
        "tuples/s a side",
        where={"window": 270_000},
    ),
    "topologies": Figure(
        "batch",
        {"tuples_per_s": ""},
        "tuples per batch; band, windows of 50,000, two workers",
        "tuples/s a side",
        where={"predicate": "band", "window": 50_000, "order": "any", "workers": 2, "latency": None},
        by="topology",
        log=True,
    ),
    "spark_throughput": Figure(
        "rows_a_batch",
        {"rows_per_second": ""},
        "rows a micro-batch; windows of 1M rows a side, one match a row",
        "rows/s",
        by="pipeline",
    ),
    "spark_scale-window": Figure(
        "rows_of_windows",
        {"seconds_a_batch": "a micro-batch of 100,000 rows"},
        "rows of both windows, one match a row",
        "seconds",
        where={"part": "window"},
    ),
    "spark_scale-cluster": Figure(
        "executors",
        {"rows_per_second": "windows of 500,000 rows a side"},
        "executors of one core each, on two cores",
        "rows/s",
        where={"part": "cluster"},
    ),
    **{
        name: Figure(
            "rows_read",
            {"rows_per_second": ""},
            "rows read, all of them in the windows",
            "rows/s",
            by="join",
            log=True,
        )
        for name in ("spark_equi", "spark_band")
    },
}


def draw(name: str) -> Path:
    """Draw one stored result."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, result = FIGURES[name], json.loads(stored(name).read_text())
    rows = figure.points(result["rows"])
    canvas, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
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
    axes.set_title(
        f"{result['machine']['cpu']}, commit {(result['commit'] or 'unknown')[:10]}", fontsize="small"
    )
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    path = RESULTS / f"{name}.png"
    canvas.savefig(path, dpi=120, metadata={"Software": None})
    pyplot.close(canvas)
    return path


def draw_curves(axes: Any, figure: Figure, rows: list[dict[str, Any]]) -> None:
    """Curves whose legends begin with the same word have one colour, and differ in their strokes."""
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


def stacked_bars(axes: Any, figure: Figure, rows: list[dict[str, Any]]) -> None:
    """One bar per value of x, the medians of the columns on top of each other."""
    import numpy as np

    groups = list(dict.fromkeys(row[figure.x] for row in rows))
    names = [group.replace(", ", "\n").replace("_", " ").replace("latency ", "latency\n") for group in groups]
    bottom = np.zeros(len(groups))
    for column, label in figure.lines.items():
        values = [np.median([row[column] for row in rows if row[figure.x] == group]) for group in groups]
        heights = np.array(values) / figure.unit
        axes.bar(names, heights, bottom=bottom, label=label, width=0.5)
        bottom += heights


def stored(name: str) -> Path:
    """The file with the rows of a figure."""
    return RESULTS / f"{name.partition('-')[0]}.json"


def load(name: str) -> dict[str, Any] | None:
    """A stored result that measured something."""
    path = stored(name)
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
