"""What happens to a join's rate as workers grow beyond the cores: the 2-D band by scan, over topologies.

Windows of 270,000 tuples (15 minutes of 300 per second and side), batches of 64. With more workers than cores the rate
should stay level: each worker compares less, and messages, wake-ups and the sharing of cores cost what remains.

A run pushes a fixed number of batches to each side in turns, polls, and ends when the workers have compared the last
one. All joins stay open and take turns with the bare kernel, so that a slow minute affects all of them; the best of
five runs counts. The clock is wall time. The kernel runs on one core; its rate is multiplied by the cores that the
workers can use.
"""

from __future__ import annotations

import math
from typing import Any

from benchmarks.shared.band import WINDOW_SECONDS, Kernel
from benchmarks.shared.chain import Chain, Variant
from benchmarks.shared.figures import Figure
from benchmarks.shared.timing import core_count

TOPOLOGIES = ("handshake", "low_latency_handshake", "scalejoin", "celljoin", "panjoin")
WORKERS = (1, 2, 4, 8, 16)
BATCH, RATE, RUNS = 64, 300, 5
COMPARISONS = 4e9  # of a run
# Goals, as parts of a topology's own rate with two workers.
LEVEL = {"handshake": 0.8, "low_latency_handshake": 0.85, "scalejoin": 0.85}
CEILING_GOAL = 0.75  # of kernel x cores: handshake join with two workers
FIGURES = {
    "worker_scaling": Figure(
        "workers",
        {"comparisons_per_s": ""},
        "workers; batches of 64, windows of 270,000",
        "G comparisons/s",
        1e9,
        by="topology",
        ceiling=("kernel_times_cores", "bare kernel on as many cores"),
    ),
}


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per topology and number of workers. Summary: the least rate over that with two workers."""
    rate = RATE // 5 if quick else RATE
    window = rate * WINDOW_SECONDS
    kernel, count = (
        Kernel(window),
        max(4, round((COMPARISONS / 8 if quick else COMPARISONS) / (2 * BATCH * window))),
    )
    chains = {
        (topology, workers): Chain(Variant(topology), workers, rate)
        for topology in TOPOLOGIES
        for workers in WORKERS
    }
    best, bare = dict.fromkeys(chains, 0.0), math.inf
    for _ in range(RUNS + 1):
        for which, chain in chains.items():
            best[which] = max(best[which], chain.measure(count, BATCH))
        bare = min(bare, kernel.measure(count, BATCH))
    for chain in chains.values():
        chain.join.close()
    per_core = 2 * count * BATCH * window / bare
    rows = [row(topology, workers, best, per_core) for topology, workers in chains]
    return {"rows": rows, "summary": summary(rows)}


def row(topology: str, workers: int, best: dict[tuple[str, int], float], per_core: float) -> dict[str, Any]:
    mine, ceiling = best[topology, workers], per_core * min(workers, core_count())
    return {
        "topology": topology,
        "workers": workers,
        "comparisons_per_s": mine,
        "kernel_times_cores": ceiling,
        "ratio": mine / ceiling,
        "over_two_workers": mine / best[topology, 2],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"kernel on one core": rows[0]["kernel_times_cores"]}
    for topology in TOPOLOGIES:
        of_workers = {row["workers"]: row for row in rows if row["topology"] == topology}
        least = min(row["over_two_workers"] for workers, row in of_workers.items() if workers > 1)
        found[f"{topology}, least rate with 2 to 16 workers over that with 2"] = least
        if topology in LEVEL:
            found[f"{topology}, goal"] = LEVEL[topology]
        found[f"{topology}, 2 workers over 1"] = (
            of_workers[2]["over_two_workers"] / of_workers[1]["over_two_workers"]
        )
        found[f"{topology}, 2 workers over kernel x cores"] = of_workers[2]["ratio"]
    return found | {"handshake, goal over kernel x cores": CEILING_GOAL}
