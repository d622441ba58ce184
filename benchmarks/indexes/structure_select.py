"""Probes of a full subwindow over selectivity and partition count, equalities and bands, structure by structure.

PanJoin's Figures 10d, 10e, 11d, 11e, 12d, 12e and 13b: 8M tuples, batches of 32K probes, 1 to 16K matches a probe. All
pairs (probe, slot) are written, but for the line `bisort, records`, whose results are <first, last> places in the
sorted slots. Equalities probe as many distinct keys as give the selectivity; a band's width does. The scan takes 64
probes.
One pinned thread, processor time, the best of five runs after one that warms up; every run has other probes.
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
SECONDS = 0.05  # of a run
FIGURES = {
    f"structure_select-{kind}": Figure(
        "matches",
        {"probes_per_s": ""},
        f"matches a probe; {what}, subwindow of 8M, batches of 32K",
        "probes/s, one thread",
        where={"kind": kind},
        by="series",
        log=True,
    )
    for kind, what in (("equi", "equality"), ("band", "band"))
}


def best_record_rate(window: BISortSubwindow, kind: str, matches: int) -> float:
    """Probes per second with records out."""
    best = np.inf
    for number in range(RUNS + 1):
        probes = bounds(kind, len(window), matches, BATCH, SEED + number)
        started = time.process_time()
        window.probe_records(*probes)
        if number:
            best = min(best, (time.process_time() - started) / BATCH)
    return 1 / best


def rows_of(kind: str, size: int, matches: int) -> list[dict[str, Any]]:
    """All structures on one set of keys."""
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
    """Rows: probes per second by kind, structure and selectivity. Summary: how little the rate of records depends
    on the selectivity, and at each the fastest line with pairs out."""
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
