"""Measured costs of joining, on which every choice of a window or a subwindow is based.

The unit of cost is a comparison of one 32-bit band; a core makes about 25 per nanosecond. The constants lie between the
measurements of two processors, which differ by a third. `benchmarks/indexes/chooser.py` checks each choice against its
alternatives; docs/decisions/0010-chooser.md reports what the choices gain.
"""

from __future__ import annotations

from streamjoin.codegen.programs import WindowProgram
from streamjoin.plan.tuning import IndexCosts

# On Spark, scan a run that has fewer rows than this, or that fewer rows probe.
INDEXED_RUN_ROWS, INDEXED_RUN_PROBES = 4_096, 256
EXPLAINED_BATCHES = (1, 64, 1_024)  # push sizes for which `explain` says when a window is indexed


def comparison(program: WindowProgram) -> tuple[float, float]:
    """The cost of a scan per tuple: first for each probe, then once for all probes, to load the tuple's keys. The
    widest band decides how many tuples one instruction compares."""
    bands = [band for clause in program.shapes for band in clause]
    sizes = [int(band.dtype[1:]) / 4 for band in bands]
    keys = {band.key: size for band, size in zip(bands, sizes, strict=True)}
    return 0.75 * max(sizes) + 0.25 * sum(sizes), sum(keys.values())


def scanned_up_to(program: WindowProgram, batch: int, costs: IndexCosts) -> int:
    """The window size, in tuples, from which an index is cheaper for pushes of `batch` tuples that match rarely."""
    each, load = comparison(program)
    tuples = max(costs.fewest_tuples, round(costs.of_push(batch) / (batch * each + load)))
    unit: int = 10 ** max(0, len(str(tuples)) - 2)  # round to two digits
    return round(tuples / unit) * unit
