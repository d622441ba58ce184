"""ScaleGate: tuples per second through one gate, over sources and readers (Gulisano et al. 2015, Figure 7a).

Every source adds the same number of tuples, 64 at a time, with random sorted times; every reader takes all of them.
Each source and each reader is one thread in a compiled loop; there is no join behind the gate. The best of five runs
counts.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.shared.figures import Figure
from benchmarks.shared.timing import seconds_together
from streamjoin.jit.decorator import jit
from streamjoin.kernels.concurrent import gate as kernels
from streamjoin.kernels.concurrent.atomics import yield_core
from streamjoin.kernels.concurrent.gate import Gate
from streamjoin.kernels.stamping import INT64_MAX

SEED = 20150302
SOURCES, READERS = (1, 2, 4, 8), (1, 2, 4)
AT_A_TIME = 64
CAPACITY = 16_384
RUNS = 5
PAPER = 150_000  # the highest rate of Figure 7a, in tuples per second
FIGURES = {
    "scalejoin_gate": Figure(
        "sources",
        {"tuples_per_s": "readers"},
        "sources",
        "M tuples/s through ScaleGate",
        1e6,
        by="readers",
    ),
}


@jit
def produce(nodes, table, source, times, seconds, size):  # type: ignore[no-untyped-def]  # compiled
    """Add all tuples; promise after each chunk that no earlier tuple follows."""
    done = 0
    while done < len(times):
        some = min(done + size, len(times))
        added = kernels.insert_nodes(nodes, table, source, times[:some], seconds[:some], times, seconds, done)
        if added < len(times):
            kernels.promise(table, source, times[added], seconds[added])
        if added == done and kernels.reclaim(nodes, table) <= 0:
            yield_core()
        done = added
    kernels.promise(table, source, INT64_MAX, INT64_MAX)


@jit
def consume(nodes, table, reader, count, size):  # type: ignore[no-untyped-def]  # compiled
    """Take all tuples; return how many came out of order."""
    values, extras = np.zeros(size, np.int64), np.zeros(size, np.int64)
    done, last, wrong = 0, np.int64(-1), 0
    while done < count:
        taken = kernels.next_ready(nodes, 0, table, reader, values, extras)
        if taken == 0:
            yield_core()
        for i in range(taken):
            wrong += values[i] < last
            last = values[i]
        done += taken
    return wrong


def seconds_for(sources: int, readers: int, count: int) -> float:
    """Seconds of one run, from the common start of all threads until the last one ends."""
    random = np.random.default_rng(SEED)
    gate = Gate(sources, readers, CAPACITY)
    times = [np.sort(random.integers(0, 10 * count, count)) for _ in range(sources)]
    wrong: list[int] = []

    def source(number: int) -> None:
        produce(gate.current[0], gate.table, number, times[number], np.full(count, number), AT_A_TIME)

    def reader(number: int) -> None:
        wrong.append(consume(gate.current[0], gate.table, number, sources * count, AT_A_TIME))

    works = [*(partial(source, n) for n in range(sources)), *(partial(reader, n) for n in range(readers))]
    seconds = seconds_together(works)
    if any(wrong):
        raise AssertionError(f"{sum(wrong)} tuples came out of order")
    return seconds


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per number of sources and readers. Summary: the lowest and the highest rate."""
    total = 100_000 if quick else 1_000_000
    rows = []
    for readers in READERS:
        for sources in SOURCES:
            best = min(seconds_for(sources, readers, total // sources) for _ in range(RUNS + 1))
            rows.append({"sources": sources, "readers": readers, "tuples_per_s": total / best})
    rates = [row["tuples_per_s"] for row in rows]
    summary = {"least_tuples_per_s": min(rates), "most_tuples_per_s": max(rates), "paper_most": PAPER}
    return {"rows": rows, "summary": summary}
