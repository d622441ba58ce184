"""Probes of a full subwindow by equality and by band, by structure, over selectivity and partition count.

PanJoin's Figures 10d, 10e, 11d, 11e, 12d, 12e and 13b: 8M tuples, batches of 32K probes, 1 to 16K matches per probe.
All pairs (probe, slot) are written. The line `bisort, records` instead returns <first, last> places in the sorted
slots. The number of distinct keys sets the selectivity of equalities, the width that of bands. The scan takes batches
of 64 probes.

One pinned thread, processor time, the best of five runs after one that warms up; every run has new probes.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.shared.figures import Figure
from benchmarks.shared.subwindows import (
    PARTITIONED,
    PARTITIONS,
    RUNS,
    SEED,
    STRUCTURES,
    best_probe_rate,
    bounds,
    label,
    sealed,
    uniform_keys,
)
from benchmarks.shared.timing import pin
from streamjoin.index.structures.bisort import BISortSubwindow
from streamjoin.kernels.pairs import PairBuffer

SIZE, BATCH, SCANNED = 1 << 23, 1 << 15, 64
SELECTIVITIES = (1, 16, 256, 4096, 16_384)
SECONDS = 0.05  # length of a run
FIGURES = {
    f"structure_select-{kind}": Figure(
        "matches",
        {"probes_per_s": ""},
        f"matches per probe; {what}, subwindow of 8M, batches of 32K",
        "probes/s, one thread",
        where={"kind": kind},
        by="series",
        log=True,
    )
    for kind, what in (("equi", "equality"), ("band", "band"))
}


def best_record_rate(window: BISortSubwindow, kind: str, matches: int) -> float:
    """Probes per second if the output is records."""
    best = np.inf
    for number in range(RUNS + 1):
        probes = bounds(kind, len(window), matches, BATCH, SEED + number)
        started = time.process_time()
        window.probe_records(*probes)
        if number:
            best = min(best, (time.process_time() - started) / BATCH)
    return 1 / best


def rows_of(kind: str, size: int, matches: int) -> list[dict[str, Any]]:
    """One row per structure and partition count, all on the same keys."""
    keys, pairs = uniform_keys(size, size // matches if kind == "equi" else None), PairBuffer(1 << 17)
    rates: dict[tuple[str, int | None], float] = {}
    for structure in STRUCTURES:
        if structure == "hash" and kind != "equi":
            continue
        for partitions in PARTITIONS if structure in PARTITIONED else (None,):
            window = sealed(structure, partitions, keys)
            batch = SCANNED if structure == "scan" else BATCH
            rate = best_probe_rate(window, kind, matches, batch, pairs, SECONDS)
            rates[structure, partitions] = rate
            if isinstance(window, BISortSubwindow):
                rates["bisort, records", None] = best_record_rate(window, kind, matches)
    return [
        {
            "kind": kind,
            "series": label(structure, partitions),
            "structure": structure,
            "partitions": partitions,
            "size": size,
            "matches": matches,
            "probes_per_s": rate,
        }
        for (structure, partitions), rate in rates.items()
    ]


def run(quick: bool) -> dict[str, Any]:
    """Rows: probes per second by kind, structure and selectivity.

    Summary: how the rate of records varies with the selectivity, and the fastest structure at each selectivity.
    """
    pin()
    size = 1 << 20 if quick else SIZE
    rows, summary = [], {}
    for kind in ("equi", "band"):
        own = [line for matches in SELECTIVITIES for line in rows_of(kind, size, matches)]
        records = [line["probes_per_s"] for line in own if line["structure"] == "bisort, records"]
        summary[f"{kind}: records, slowest to fastest"] = min(records) / max(records)
        for matches in SELECTIVITIES:
            lines = [
                line for line in own if line["matches"] == matches and "records" not in line["structure"]
            ]
            fastest = max(lines, key=lambda line: line["probes_per_s"])
            summary[f"{kind}, {matches:,} matches: fastest"] = fastest["series"]
        rows += own
    return {"rows": rows, "summary": summary}
