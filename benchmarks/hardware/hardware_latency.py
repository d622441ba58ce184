"""Cycles from the arrival of a pair's later tuple to its result, over the number of cores, with 8 tuples per core.

Both streams bring a tuple every 64 cycles, so that nothing queues. In handshake join, a pair waits for later arrivals
that bring its tuples together; in the low-latency circuit it does not.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from benchmarks.shared.circuits import lines, table
from benchmarks.shared.figures import Panels, Row
from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.simulate import JoinSimulator, Stream

SEED = 20110612
CORES = (1, 2, 4, 8, 16)
SPACING = 64
KEYS = 20


def measure(name: str, cores: int) -> dict[str, Any]:
    design = DESIGNS[name]
    p = design.parameters(cores=cores)
    count = 4 * p.left_window + 32
    dice = random.Random(f"{SEED} {cores}")
    sides = [
        Stream(
            [dice.randrange(KEYS) for _ in range(count)],
            range(count),
            None,
            [SPACING * i for i in range(count)],
        )
        for _ in range(2)
    ]
    run = JoinSimulator(design.build(p)).run(sides[0], sides[1])
    came = dict(zip(run.accepted, run.accepted_cycles, strict=True))
    waits = [
        int(cycle) - int(max(came["left", left], came["right", right]))
        for (_, left, _, right), cycle in zip(run.results, run.result_cycles, strict=True)
    ]
    return {
        "design": name,
        "cores": cores,
        "window": p.left_window,
        "results": len(waits),
        "median_cycles": float(np.median(waits)),
        "most_cycles": max(waits),
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: design x cores. Summary: the longest wait of each design at the most cores."""
    counts = CORES[:2] if quick else CORES
    rows = [measure(name, cores) for name in DESIGNS for cores in counts]
    return {
        "rows": rows,
        "summary": {
            f"{row['design']}_most_cycles": row["most_cycles"] for row in rows if row["cores"] == counts[-1]
        },
    }


def draw(rows: list[Row], canvas: Any) -> None:
    """The longest wait over the window, one line per design."""
    axes = canvas.subplots()
    lines(axes, rows, "design", "window", "most_cycles")
    axes.set(xlabel="window, tuples", ylabel="longest wait for a result, cycles", yscale="log")
    axes.set_xscale("log", base=2)
    axes.legend()


def tables(result: Row) -> str:
    """The longest wait by window and design."""
    title = "Longest wait from the later tuple to the result, cycles; a tuple of each stream every 64 cycles"
    return table(title, result["rows"], "window", "design", "most_cycles")


FIGURES = {"hardware_latency": Panels(draw)}
