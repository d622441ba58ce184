"""Throughput of join circuits over the match rate, 64 cores (Oge et al., Figures 12 and 13), in exact cycles.

512 and 1,024 tuples a stream are offered as fast as the circuit takes them, with back-pressure instead of refusals,
and every result is taken at once; time runs to the last result. The match rate is the chance that two keys are equal:
keys are uniform over 1 / rate values. Circuits: the paper's, the nested-loop circuit it compares with (one core that
holds both windows), and the low-latency one with 1, 4 and 8 lanes. Rates are those of a 100 MHz clock, as in the
paper. The simulator counts cycles, so nothing depends on the machine.

Stored as well: how many records the results of the low-latency circuit would be if a core answered a tuple with one
bitmap of its segment instead of a result for each partner; an upper bound of what bitmaps can bring.
"""

from __future__ import annotations

import random
from typing import Any

from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.implementation import synthesise
from streamjoin.hardware.simulate import Run, Simulator, Stream

SEED = 20110612
CORES, WINDOW = 64, 512
KEYS = (1000, 200, 100, 50, 20, 10, 5, 4, 3, 2, 1)
TUPLES = (512, 1024)
MHZ = 100
TARGET = 2.0
CIRCUITS: dict[str, tuple[str, dict[str, int]]] = {
    "paper": ("handshake", {}),
    "nested loop": ("handshake", {"cores": 1, "left_segment": WINDOW, "right_segment": WINDOW}),
    "low latency, 2 comparators, 1 lane": ("low-latency", {"comparators": 2, "lanes": 1}),
    "low latency, 2 comparators, 4 lanes": ("low-latency", {"comparators": 2, "lanes": 4}),
    "low latency, 2 comparators, 8 lanes": ("low-latency", {"comparators": 2, "lanes": 8}),
}
BEST = "low latency, 2 comparators, 4 lanes"


def bitmap_records(run: Run, cores: int) -> int:
    """Pairs of a tuple and a core in which it finds a partner: a pair is found in the home of its earlier tuple."""
    place = {tuple_: at for at, tuple_ in enumerate(run.accepted)}
    found = set()
    for _, l, _, r in run.results:
        earlier, later = sorted((("left", l), ("right", r)), key=lambda tuple_: place[tuple_])
        found.add((later, earlier[1] % cores))
    return len(found)


def measure(simulator: Simulator, tuples: int, keys: int) -> dict[str, float]:
    """One run: rates in millions per second at 100 MHz."""
    dice = random.Random(f"{SEED} {tuples} {keys}")
    left, right = (Stream([dice.randrange(keys) for _ in range(tuples)], range(tuples)) for _ in range(2))
    run = simulator.run(left, right)
    return {
        "cycles": run.cycles,
        "results": len(run.results),
        "bitmaps": bitmap_records(run, simulator.parameters.cores),
        "input_mtps": 2 * tuples / run.cycles * MHZ,
        "output_mrps": len(run.results) / run.cycles * MHZ,
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: circuit x tuples x match rate. Summary: the improved circuit over the paper's, where it is least."""
    rows, luts = [], {}
    cores = 4 if quick else CORES
    for circuit, (name, settings) in CIRCUITS.items():
        design = DESIGNS[name]
        given = {
            "cores": cores,
            "left_segment": WINDOW // CORES,
            "right_segment": WINDOW // CORES,
            **settings,
        }
        p = design.parameters(**{**given, "lanes": min(given.get("lanes", 1), given["cores"])})
        simulator = Simulator(design.build(p))
        for tuples in TUPLES:
            for keys in KEYS:
                point = {"circuit": circuit, "tuples": tuples, "match_rate": 1 / keys}
                rows.append({**point, **measure(simulator, tuples, keys)})
        if design.immediate:
            luts[f"luts_{p.lanes}_lanes"] = synthesise(design.build(p), "xc6v").luts
    return {"rows": rows, "summary": {**summary(rows), **luts}}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rates = {(row["circuit"], row["tuples"], row["match_rate"]): row["input_mtps"] for row in rows}
    ratios = {
        rate: min(rates[BEST, tuples, rate] / rates["paper", tuples, rate] for tuples in TUPLES)
        for rate in sorted({row["match_rate"] for row in rows})
    }
    best = {row["match_rate"]: row for row in rows if row["circuit"] == BEST}
    return {
        "least_ratio_2_to_50_percent": min(ratio for rate, ratio in ratios.items() if 0.02 <= rate <= 0.5),
        "target": TARGET,
        **{f"ratio_at_{100 * rate:g}_percent": round(ratio, 2) for rate, ratio in ratios.items()},
        **{
            f"results_a_bitmap_at_{100 * rate:g}_percent": round(row["results"] / row["bitmaps"], 2)
            for rate, row in best.items()
        },
    }
