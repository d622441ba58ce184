"""Throughput of join circuits over the match rate, 64 cores (Oge et al., Figures 12 and 13), in exact cycles.

512 and 1,024 tuples a stream are offered as fast as the circuit takes them, with back-pressure instead of refusals,
and every result is taken at once; time runs to the last result. The match rate is the chance that two keys are equal:
keys are uniform over 1 / rate values. Circuits: the paper's, the nested-loop circuit it compares with (one core that
holds both windows), and the low-latency one with fewer and with all of its comparators and lanes. Rates are
those of a 100 MHz clock, as in the paper. The simulator counts cycles, so nothing depends on the machine.
"""

from __future__ import annotations

import random
from typing import Any

from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.simulate import Simulator, Stream

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
}
BEST = "low latency, 2 comparators, 4 lanes"


def measure(simulator: Simulator, tuples: int, keys: int) -> dict[str, float]:
    """One run: rates in millions per second at 100 MHz."""
    dice = random.Random(f"{SEED} {tuples} {keys}")
    left, right = (Stream([dice.randrange(keys) for _ in range(tuples)], range(tuples)) for _ in range(2))
    run = simulator.run(left, right)
    return {
        "cycles": run.cycles,
        "results": len(run.results),
        "input_mtps": 2 * tuples / run.cycles * MHZ,
        "output_mrps": len(run.results) / run.cycles * MHZ,
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: circuit x tuples x match rate. Summary: the improved circuit over the paper's, where it is least."""
    rows = []
    cores = 4 if quick else CORES
    for circuit, (name, settings) in CIRCUITS.items():
        design = DESIGNS[name]
        given = {
            "cores": cores,
            "left_segment": WINDOW // CORES,
            "right_segment": WINDOW // CORES,
            **settings,
        }
        simulator = Simulator(design.build(design.parameters(**given)))
        for tuples in TUPLES:
            for keys in KEYS:
                rows.append(
                    {
                        "circuit": circuit,
                        "tuples": tuples,
                        "match_rate": 1 / keys,
                        **measure(simulator, tuples, keys),
                    }
                )
    return {"rows": rows, "summary": summary(rows)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rates = {(row["circuit"], row["tuples"], row["match_rate"]): row["input_mtps"] for row in rows}
    ratios = {
        rate: min(rates[BEST, tuples, rate] / rates["paper", tuples, rate] for tuples in TUPLES)
        for rate in sorted({row["match_rate"] for row in rows})
    }
    return {
        "least_ratio_2_to_50_percent": min(ratio for rate, ratio in ratios.items() if 0.02 <= rate <= 0.5),
        "target": TARGET,
        **{f"ratio_at_{100 * rate:g}_percent": round(ratio, 2) for rate, ratio in ratios.items()},
    }
