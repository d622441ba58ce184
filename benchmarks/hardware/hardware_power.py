"""Cores against clock at one throughput (Teubner & Mueller, Tables 1 and 2), by counted toggles instead of watts.

500,000 tuples per second over windows of 100 tuples, with 1, 2, 5 and 10 cores. A configuration needs a clock of its
cycles per tuple times the rate. The model: dynamic power is proportional to transitions per second, all weighted
alike: those of every bit of the register-transfer description, counted in simulation, and two per cycle at the clock
pin of every flip-flop. Static power is proportional to the lookup tables used, as in the paper. For a total, both are
scaled so that one core of the paper's design has the paper's 100 and 68 units: the shape of the trade-off is measured,
its scale is the paper's.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.shared.circuits import cell
from benchmarks.shared.figures import Panels, Row
from streamjoin.hardware.activity import count_activity
from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.implementation import synthesise
from streamjoin.hardware.simulate import Stream

SEED = 20110612
RATE, WINDOW, TUPLES, KEYS = 500_000, 100, 400, 1000
CORES = (1, 2, 5, 10)
PAPER = {1: (100.0, 68.0), 2: (64.0, 69.0), 5: (62.0, 88.0), 10: (68.0, 120.0)}  # Table 2: dynamic, static


COLUMNS = {
    "design": "design",
    "cores": "cores",
    "clock_mhz": "MHz needed",
    "net_toggles_per_tuple": "net toggles a tuple",
    "clock_toggles_per_tuple": "clock toggles a tuple",
    "luts": "LUTs",
    "flip_flops": "flip-flops",
    "block_rams": "block RAMs",
    "dynamic_units": "dynamic",
    "static_units": "static",
    "total_units": "total",
    "paper_total": "the paper's total",
}


def measure(name: str, cores: int) -> dict[str, Any]:
    design = DESIGNS[name]
    p = design.parameters(
        cores=cores, left_segment=WINDOW // cores, right_segment=WINDOW // cores, comparators=1, lanes=1
    )
    dice = random.Random(f"{SEED} {cores}")
    left, right = (
        Stream(
            [dice.randrange(KEYS) for _ in range(TUPLES)], [dice.randrange(1 << 32) for _ in range(TUPLES)]
        )
        for _ in range(2)
    )
    activity = count_activity(design.build(p), left, right)
    mapped = synthesise(design.build(p), "xc6v")
    cycles = activity.run.cycles / (2 * TUPLES)
    nets = activity.toggles / (2 * TUPLES)
    clock = 2 * cycles * mapped.flip_flops
    return {
        "design": name,
        "cores": cores,
        "cycles_per_tuple": cycles,
        "clock_mhz": cycles * RATE / 1e6,
        "net_toggles_per_tuple": nets,
        "clock_toggles_per_tuple": clock,
        "g_toggles_per_s": (nets + clock) * RATE / 1e9,
        "luts": mapped.luts,
        "flip_flops": mapped.flip_flops,
        "block_rams": mapped.block_rams,
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: design x cores, with units scaled to the paper's single core. Summary: the cores with least power."""
    rows = [measure(name, cores) for name in DESIGNS for cores in (CORES[:2] if quick else CORES)]
    one = next(row for row in rows if row["design"] == "handshake" and row["cores"] == 1)
    dynamic, static = PAPER[1]
    for row in rows:
        row["dynamic_units"] = dynamic * row["g_toggles_per_s"] / one["g_toggles_per_s"]
        row["static_units"] = static * row["luts"] / one["luts"]
        row["total_units"] = row["dynamic_units"] + row["static_units"]
        row["paper_total"] = sum(PAPER[row["cores"]])
    least = {
        name: min((row for row in rows if row["design"] == name), key=lambda row: row["total_units"])["cores"]
        for name in DESIGNS
    }
    return {
        "rows": rows,
        "summary": {f"{name}_cores_with_least_power": cores for name, cores in least.items()},
    }


def draw(rows: list[Row], canvas: Any) -> None:
    """Dynamic and static units stacked over the number of cores, one panel per design."""
    panels = canvas.subplots(1, 2, sharey=True)
    for axes, name in zip(panels, dict.fromkeys(row["design"] for row in rows), strict=True):
        own = [row for row in rows if row["design"] == name]
        cores = [str(row["cores"]) for row in own]
        dynamic = [row["dynamic_units"] for row in own]
        axes.bar(cores, dynamic, label="dynamic: toggles")
        axes.bar(cores, [row["static_units"] for row in own], bottom=dynamic, label="static: area")
        totals = [row["paper_total"] for row in own]
        axes.plot(cores, totals, "k_", markersize=24, label="total of the paper")
        axes.set(title=name, xlabel="cores", ylabel="units: the paper's single core has 168")
    panels[1].legend()


def tables(result: Row) -> str:
    """Every column by design and cores."""
    title = "### Cores against clock for 500,000 tuples/s, windows of 100 (Teubner & Mueller, Tables 1 and 2)"
    lines = [f"| {' | '.join(COLUMNS.values())} |", "|" + "---|" * len(COLUMNS)]
    for row in result["rows"]:
        lines.append(f"| {' | '.join(cell(row[column]) for column in COLUMNS)} |")
    return "\n".join([title, "", *lines, ""])


FIGURES = {"hardware_power": Panels(draw)}
