"""Cores against clock for one throughput (Teubner & Mueller, Tables 1 and 2), by counted toggles instead of watts.

500,000 tuples a second over windows of 100 tuples, with 1, 2, 5 and 10 cores. The clock a configuration needs is the
number of cycles it takes for a tuple times the rate. The activity model: dynamic power is proportional to the
transitions a second, all of one weight: of every bit of the register-transfer description, counted in simulation,
and two a cycle at the clock pin of every flip-flop. Static power is proportional to the lookup tables used, as the
paper weights it. For a total, both are scaled so that one core of the paper's design has the paper's 100 and 68
units: the shape of the trade-off is measured, the scale is the paper's.
"""

from __future__ import annotations

import random
from typing import Any

from streamjoin.hardware.activity import count_activity
from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.implementation import synthesise
from streamjoin.hardware.simulate import Stream

SEED = 20110612
RATE, WINDOW, TUPLES, KEYS = 500_000, 100, 400, 1000
CORES = (1, 2, 5, 10)
PAPER = {1: (100.0, 68.0), 2: (64.0, 69.0), 5: (62.0, 88.0), 10: (68.0, 120.0)}  # Table 2: dynamic, static


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
    """Rows: design x cores, with units scaled to the paper's single core. Summary: the cores that need least."""
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
