"""Throughput of join circuits over the match rate, 64 cores (Oge et al., Figures 12 and 13), in exact cycles.

Each stream offers 512 or 1,024 tuples as fast as the circuit takes them; back-pressure stops the input, and no tuple is
refused. Every result is taken at once, and time runs to the last one. The match rate is the probability that two keys
are equal: keys are uniform over 1 / rate values. The circuits are the paper's, the nested-loop circuit that it compares
with (one core that holds both windows), and the low-latency one with 1 and 4 lanes. Rates assume a 100 MHz clock, as in
the paper. The simulator counts cycles, so that nothing depends on the machine.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.shared.circuits import lines, table
from benchmarks.shared.figures import Panels, Row
from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.simulate import JoinSimulator, Stream

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


def measure(simulator: JoinSimulator, tuples: int, keys: int) -> dict[str, float]:
    """Cycles and results of one run; rates in millions per second at 100 MHz."""
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
    """Rows: circuit x tuples x match rate. Summary: ratios of the best circuit to the paper's, and the smallest."""
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
        simulator = JoinSimulator(design.build(design.parameters(**given)))
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


def by_tuples(rows: list[Row]) -> dict[int, list[Row]]:
    """The rows by the length of the streams, the longest first."""
    lengths = sorted({row["tuples"] for row in rows}, reverse=True)
    return {tuples: [row for row in rows if row["tuples"] == tuples] for tuples in lengths}


def draw(rows: list[Row], canvas: Any) -> None:
    """Input and output over the match rate; dashed lines are the shorter streams."""
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


def tables(result: Row) -> str:
    """Input and output throughput by match rate and circuit."""
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


FIGURES = {"hardware_throughput": Panels(draw)}
