"""Cores against clock for one throughput (Teubner & Mueller, Tables 1 and 2), by counted toggles instead of watts.

500,000 tuples a second over windows of 100 tuples, with 1, 2, 5 and 10 cores. The clock a configuration needs is the
number of cycles it takes for a tuple times the rate. The activity model: dynamic power is proportional to the
signal transitions a second, counted in simulation (registers and wires; not the cells inside memories), static
power to the lookup tables used. For a total, both are scaled so that one core has the paper's 100 and 68 units:
the shape of the trade-off is measured, the scale is the paper's.
"""

from __future__ import annotations

import random
import re
import tempfile
from pathlib import Path
from typing import Any

from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.implementation import synthesise
from streamjoin.hardware.simulate import Simulator, Stream

SEED = 20110612
RATE, WINDOW, TUPLES, KEYS = 500_000, 100, 400, 1000
CORES = (1, 2, 5, 10)
PAPER_ONE_CORE = {"dynamic": 100.0, "static": 68.0}


def toggles(saif: str) -> int:
    """The transitions of all signals of a SAIF file."""
    return sum(int(count) for count in re.findall(r"\(TC (\d+)\)", saif))


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
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / "toggles.saif"
        run = Simulator(design.build(p), trace=True).run(left, right, trace=trace)
        count = toggles(trace.read_text())
    cycles = run.cycles / (2 * TUPLES)
    return {
        "design": name,
        "cores": cores,
        "cycles_per_tuple": cycles,
        "clock_mhz": cycles * RATE / 1e6,
        "toggles_per_tuple": count / (2 * TUPLES),
        "g_toggles_per_s": count / (2 * TUPLES) * RATE / 1e9,
        "luts": synthesise(design.build(p), "xc6v").luts,
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: design x cores, with units scaled to the paper's single core. Summary: the cores that need least."""
    rows = [measure(name, cores) for name in DESIGNS for cores in (CORES[:2] if quick else CORES)]
    one = next(row for row in rows if row["design"] == "handshake" and row["cores"] == 1)
    for row in rows:
        row["dynamic_units"] = PAPER_ONE_CORE["dynamic"] * row["g_toggles_per_s"] / one["g_toggles_per_s"]
        row["static_units"] = PAPER_ONE_CORE["static"] * row["luts"] / one["luts"]
        row["total_units"] = row["dynamic_units"] + row["static_units"]
    least = {
        name: min((row for row in rows if row["design"] == name), key=lambda row: row["total_units"])["cores"]
        for name in DESIGNS
    }
    return {
        "rows": rows,
        "summary": {f"{name}_cores_with_least_power": cores for name, cores in least.items()},
    }
