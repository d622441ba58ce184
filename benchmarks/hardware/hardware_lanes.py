"""The gain of a wider output where the output is the limit: 1 to 8 lanes, and bitmaps instead of results.

16 cores of the low-latency circuit with windows of 128 tuples, match rates from 10 % on. As in hardware_throughput,
each stream offers 1,024 tuples as fast as the circuit takes them, in exact cycles. Bitmaps are only counted: the
records that would leave if a core answered a tuple with one bitmap of its segment instead of one result per partner.
Results per bitmap is thus the largest gain that bitmaps can have where the output port is the limit.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.shared.circuits import counted, lines, table
from benchmarks.shared.figures import Panels, Row
from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.implementation import synthesise
from streamjoin.hardware.simulate import JoinSimulator, SimulatedRun, Stream

SEED = 20110612
CORES, TUPLES, MHZ = 16, 1024, 100
KEYS = (10, 5, 4, 2, 1)
LANES = (1, 2, 4, 8)


def bitmap_records(run: SimulatedRun) -> int:
    """Pairs of a tuple and a core in which it finds partners. A pair is found in the home core of its earlier tuple."""
    place = {item: at for at, item in enumerate(run.accepted)}
    found = set()
    for _, l, _, r in run.results:
        earlier, later = sorted((("left", l), ("right", r)), key=lambda item: place[item])
        found.add((later, earlier[1] % CORES))
    return len(found)


def measure(simulator: JoinSimulator, keys: int) -> dict[str, Any]:
    dice = random.Random(f"{SEED} {keys}")
    left, right = (Stream([dice.randrange(keys) for _ in range(TUPLES)], range(TUPLES)) for _ in range(2))
    run = simulator.run(left, right)
    return {
        "lanes": simulator.parameters.lanes,
        "match_rate": 1 / keys,
        "cycles": run.cycles,
        "input_mtps": 2 * TUPLES / run.cycles * MHZ,
        "output_mrps": len(run.results) / run.cycles * MHZ,
        "results_a_bitmap": len(run.results) / bitmap_records(run),
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: lanes x match rate. Summary: lookup tables on a Virtex-6 by lanes."""
    design, rows, luts = DESIGNS["low-latency"], [], {}
    for lanes in LANES[:1] if quick else LANES:
        p = design.parameters(cores=CORES, lanes=lanes)
        simulator = JoinSimulator(design.build(p))
        rows += [measure(simulator, keys) for keys in KEYS]
        luts[f"luts_{lanes}_lanes"] = synthesise(design.build(p), "xc6v").luts
    return {"rows": rows, "summary": luts}


def draw(rows: list[Row], canvas: Any) -> None:
    """Input throughput over the match rate, one line per number of lanes."""
    axes = canvas.subplots()
    lines(axes, counted(rows, "lanes"), "count", "match_rate", "input_mtps")
    axes.set(xlabel="match rate", ylabel="input, M tuples/s at 100 MHz", xscale="log", yscale="log")
    axes.legend()


def tables(result: Row) -> str:
    """Input throughput by match rate and lanes, and the results that a bitmap would hold."""
    rows = counted(result["rows"], "lanes")
    bitmaps = [
        {**row, "count": "results a bitmap", "input_mtps": row["results_a_bitmap"]}
        for row in rows
        if row["lanes"] == rows[0]["lanes"]
    ]
    title = "Input throughput by lanes, M tuples/s at 100 MHz, 16 cores; results that a bitmap would hold"
    cells = [f"{name.split('_')[1]}: {count:,}" for name, count in result["summary"].items()]
    note = f"Lookup tables on a Virtex-6 by lanes: {'; '.join(cells)}."
    return table(title, rows + bitmaps, "match_rate", "count", "input_mtps", note)


FIGURES = {"hardware_lanes": Panels(draw)}
