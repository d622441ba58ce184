"""What joining costs, measured: the numbers behind every choice of a window or a subwindow.

All costs are in comparisons of one 32-bit band, of which a core makes about 25 in a nanosecond. The constants lie
between the measurements of two processors that differ by a third. `benchmarks/indexes/chooser.py` checks each choice
against its alternatives; docs/decisions/0010-chooser.md says what the choices gain.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamjoin.codegen.programs import WindowProgram

FEWEST_TUPLES = 1_024  # smaller windows are always scanned
EXPLAINED_BATCHES = (1, 64, 1_024)  # push sizes for which `explain` says when a window is indexed


@dataclass(frozen=True)
class IndexCosts:
    """What a push costs an index more than a scan of an empty window.

    `per_push`: for a push of any size; up to `several` of it more once a push has more than a `few_tuples`; and as much
    again for every `batch` tuples. Checking `few_candidates` candidates per probe costs as much again.
    """

    per_push: float = 730_000
    several: float = 0.33
    few_tuples: float = 12
    batch: float = 235
    few_candidates: float = 20
    most_candidates: float = 4  # times `few_candidates`: two bands looked up together leave no more
    isolated_pair: float = 45  # what a scan pays to emit a match that has no matching neighbour

    def of_push(self, batch: float, checked: float = 0.0, scattered: float = 0.0) -> float:
        """For `batch` tuples. `checked`: candidates of a probe, in `few_candidates`; `scattered`: those of them that do
        not lie together, which counts in small pushes."""
        several = self.several * batch / (batch + self.few_tuples)
        return self.per_push * (1 + several + scattered / 8 + batch / self.batch * (1 + checked))


INDEX = IndexCosts()


def comparison(program: WindowProgram) -> tuple[float, float]:
    """What a scan pays per tuple: for each probe, where the widest band decides how many tuples it compares at once;
    and once for all probes, to load the tuple's keys."""
    bands = [band for clause in program.shapes for band in clause]
    sizes = [int(band.dtype[1:]) / 4 for band in bands]
    keys = {band.key: size for band, size in zip(bands, sizes, strict=True)}
    return 0.75 * max(sizes) + 0.25 * sum(sizes), sum(keys.values())


def scanned_up_to(program: WindowProgram, batch: int) -> int:
    """The window size, in tuples, from which an index is cheaper for pushes of `batch` tuples that match rarely."""
    each, load = comparison(program)
    tuples = max(FEWEST_TUPLES, round(INDEX.of_push(batch) / (batch * each + load)))
    unit: int = 10 ** max(0, len(str(tuples)) - 2)  # two digits tell enough
    return round(tuples / unit) * unit
