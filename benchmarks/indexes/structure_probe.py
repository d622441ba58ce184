"""Equality probes of full subwindows, by structure, over batch size, subwindow size and partition count.

PanJoin's Figures 10c, 11c and 12c. A probe matches one tuple on average, and all pairs (probe, slot) are written.
Subwindows are sealed, as all but the newest in a window are. Without a given number of partitions, a structure has as
many as in the engine (about 64 tuples each). The scan is skipped where a batch would take seconds.

One pinned thread, processor time, the best of five runs after one that warms up; every run has new probes.
"""

from __future__ import annotations

from typing import Any

from benchmarks.shared.figures import Figure
from benchmarks.shared.subwindows import (
    PARTITIONED,
    PARTITIONS,
    STRUCTURES,
    best_probe_rate,
    label,
    sealed,
    uniform_keys,
)
from benchmarks.shared.timing import pin
from streamjoin.kernels.pairs import PairBuffer

BATCHES = (1, 16, 256, 4096, 65_536, 1 << 20)
LARGEST, SMALLER = 1 << 23, (1 << 16, 1 << 20)
SECONDS = 0.05  # length of a run
MOST_COMPARISONS = 1 << 32  # skip scans of larger batches
FIGURES = {
    "structure_probe-batch": Figure(
        "batch",
        {"probes_per_s": ""},
        "probes per batch; subwindow of 8M, equality, one match",
        "probes/s, one thread",
        where={"size": 1 << 23},
        by="series",
        log=True,
    ),
    "structure_probe-size": Figure(
        "size",
        {"probes_per_s": ""},
        "tuples of the subwindow; batches of 256, equality, one match",
        "probes/s, one thread",
        where={"batch": 256, "partitions": None},
        by="series",
        log=True,
    ),
}


def rows_of(structure: str, size: int, partitions: int | None) -> list[dict[str, Any]]:
    window, pairs = sealed(structure, partitions, uniform_keys(size, size)), PairBuffer(1 << 17)
    name = {"series": label(structure, partitions), "structure": structure}
    return [
        {
            **name,
            "size": size,
            "partitions": partitions,
            "batch": batch,
            "probes_per_s": best_probe_rate(window, "equi", 1, batch, pairs, SECONDS),
        }
        for batch in BATCHES
        if structure != "scan" or batch * size < MOST_COMPARISONS
    ]


def run(quick: bool) -> dict[str, Any]:
    """Rows: probes per second by structure, sizes and batch. Summary: best rates in the largest subwindow."""
    pin()
    largest = 1 << 20 if quick else LARGEST
    rows = []
    for size in (*(size for size in SMALLER if size < largest), largest):
        for structure in STRUCTURES:
            counts = (None, *PARTITIONS) if structure in PARTITIONED and size == largest else (None,)
            for partitions in counts:
                rows += rows_of(structure, size, partitions)
    summary = {
        f"{structure}: most probes/s": max(
            line["probes_per_s"] for line in rows if (line["structure"], line["size"]) == (structure, largest)
        )
        for structure in STRUCTURES
    }
    return {"rows": rows, "summary": summary}
