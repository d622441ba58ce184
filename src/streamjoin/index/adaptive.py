"""A window that is scanned while that is cheapest, and indexed while that is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamjoin.codegen.programs import WindowProgram
from streamjoin.index.chain import ChainWindow
from streamjoin.index.chooser import FixedChoice, Workload
from streamjoin.index.protocol import ALONE, Reach, Team, Tuples, WindowIndex
from streamjoin.index.scan import ScanWindow
from streamjoin.index.sliding import RowColumns
from streamjoin.kernels.pairs import PairBuffer

# Measured, in comparisons of one 32-bit band, of which a core makes 25 in a nanosecond; between what two kinds of
# processors took, which differ by a third. A push costs a chain so many more than a scan whatever it brings, up to the
# part SEVERAL more if it is more than a few tuples, and as many again for each SMALL_BATCH of them.
COMPARISONS_WORTH_AN_INDEX, SEVERAL, FEW_TUPLES, SMALL_BATCH = 730_000, 0.33, 12, 235
# Candidates that have to be checked cost as much as COMPARISONS_WORTH_AN_INDEX again for so many a probe; a grid has no
# more than FEW_CANDIDATES times MOST_CANDIDATES worth of them.
FEW_CANDIDATES, MOST_CANDIDATES = 20, 4
COMPARISONS_WORTH_A_PAIR = 45  # a scan finds one that lies alone at that cost, an index copies it
FEWEST_TUPLES = 1_024  # less is always scanned
# A window that was indexed is scanned again if that costs so much less, and none changes before a part of it has: what
# a change costs is shared by the tuples that came since the last one, and a window between the two can not flap.
CLEARLY_CHEAPER = 1.5
PART_BETWEEN_CHANGES = 2
# A push is as much work as so many tuples. Costs are looked at after FEWEST_TUPLES, then LONGER times as many, ..., at
# last after so many each time: a look takes a quarter of a millisecond, as long as a dozen pushes of single tuples.
PUSH, LONGER, LONGEST_PAUSE = 256, 4, 262_144


class AdaptiveWindow:
    """A `WindowIndex` that is a scan, or a chain of what `choose` gives, as the costs of a push tell. What `rows` hold,
    a chain does not hold again."""

    def __init__(self, program: WindowProgram, choose: FixedChoice, rows: RowColumns | None = None):
        self.program, self.choose, self.workload, self._rows = program, choose, Workload(), rows
        self._comparison, self._load = comparison(program)
        self.window: WindowIndex = ScanWindow(program)
        self._indexed = False
        self._done = 0  # tuples and pushes since the last change, up to the last look at the costs
        self._left = self._pause = FEWEST_TUPLES  # until the next one
        self._looking = False  # it is due, and waits for probes
        self._noting = True  # probes of a scan: until the first look is over, then while there is one

    @property
    def comparisons(self) -> int:
        return self.window.comparisons

    @comparisons.setter
    def comparisons(self, count: int) -> None:
        self.window.comparisons = count

    def __len__(self) -> int:
        return len(self.window)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.window[name]

    def ids(self, positions: np.ndarray) -> np.ndarray:
        return self.window.ids(positions)

    def oldest_id(self) -> int:
        return self.window.oldest_id()

    @property
    def nbytes(self) -> int:
        return self.window.nbytes

    def insert(self, tuples: Tuples, rank: np.ndarray, team: Team = ALONE) -> None:
        count = len(tuples.ts)
        if not count:
            return
        self.window.insert(tuples, rank, team)
        if self._rows is not None and self._rows.ended:
            self._rows = None
        self._left -= PUSH + count
        if self._left < 0:
            self._reconsider(len(self) - count, rank)

    def probe(self, probes: Tuples, reach: Reach, pairs: PairBuffer, team: Team = ALONE) -> Iterator[int]:
        if self._noting:
            self.workload.observe(probes)
        return self.window.probe(probes, reach, pairs, team)

    def expire(self, reach: Reach) -> None:
        self.window.expire(reach)

    def clear(self) -> None:
        self.window.clear()

    def _reconsider(self, size: int, rank: np.ndarray) -> None:
        """Look at the next probes and, once they came, change over if the other way is cheaper by now for a window that
        probes met with `size` tuples; O(1) a tuple."""
        if not self._looking:
            self._looking = True
            if not self._indexed and not self._noting:
                self.workload.forget()
                self._noting = True
            self.workload.look()
            return
        if not self.workload.known:
            return
        self._looking = self._noting = False
        self._done += self._pause - self._left
        self._left = self._pause = min(LONGER * self._pause, LONGEST_PAUSE)
        if self._done < len(self) // PART_BETWEEN_CHANGES:
            return
        scanned, worth = self._costs(size)
        indexed = size >= FEWEST_TUPLES and scanned > (worth / CLEARLY_CHEAPER if self._indexed else worth)
        if indexed != self._indexed:
            self.workload.changes.append(
                f"{'indexed' if indexed else 'scanned'} from {size:,} tuples on, probed by {self.workload.batch:,.0f}"
                f" at a time: a push costs a scan {scanned:,.0f} comparisons, an index as much as {worth:,.0f}"
            )
            self._change(indexed, rank)

    def _costs(self, size: int) -> tuple[float, float]:
        """What a push costs a scan, and an index more than a scan of nothing, in comparisons."""
        batch = self.workload.batch
        seen = self.choose.selectivity(self.window, self.workload)
        pairs = batch * COMPARISONS_WORTH_A_PAIR * seen.found * (1 - seen.together)
        scanned = size * (batch * self._comparison + self._load + pairs)
        checked = 0.0
        if len(self.program.clauses) > 1:
            checked = min(seen.candidates * size / FEW_CANDIDATES, MOST_CANDIDATES)
        return scanned, worth_an_index(batch, checked, 0.0 if seen.rising else checked)

    def _change(self, indexed: bool, rank: np.ndarray) -> None:
        old = self.window
        assert isinstance(old, (ScanWindow, ChainWindow))
        if indexed:
            self.window = ChainWindow(self.choose, len(self.program.keys.keys), self.workload, self._rows)
            self.window.insert(old.tuples(), rank)
        else:
            self.window = ScanWindow(self.program)
            self.window.insert(in_total_order(old.tuples(), rank), rank)
        self.window.comparisons = old.comparisons
        self._indexed, self._done = indexed, 0


def comparison(program: WindowProgram) -> tuple[float, float]:
    """What meeting a tuple costs a scan for each probe, where the widest band decides how many it meets at once, and
    once for all of them, when its keys are loaded."""
    bands = [band for clause in program.shapes for band in clause]
    sizes = [int(band.dtype[1:]) / 4 for band in bands]
    keys = {band.key: size for band, size in zip(bands, sizes, strict=True)}
    return 0.75 * max(sizes) + 0.25 * sum(sizes), sum(keys.values())


def worth_an_index(batch: float, checked: float = 0.0, apart: float = 0.0) -> float:
    """What a push of so many costs an index more than a scan of nothing, in comparisons. `checked`: candidates of a
    probe, in FEW_CANDIDATES; `apart`: those that do not lie together, which shows in small pushes."""
    several = SEVERAL * batch / (batch + FEW_TUPLES)
    return COMPARISONS_WORTH_AN_INDEX * (1 + several + apart / 8 + batch / SMALL_BATCH * (1 + checked))


def scanned_up_to(program: WindowProgram, batch: int) -> int:
    """The window, in tuples, from which on an index is cheaper for pushes of so many, if few of them match."""
    each, load = comparison(program)
    tuples = max(FEWEST_TUPLES, round(worth_an_index(batch) / (batch * each + load)))
    unit: int = 10 ** max(0, len(str(tuples)) - 2)  # two digits tell enough
    return round(tuples / unit) * unit


def in_total_order(tuples: Tuples, rank: np.ndarray) -> Tuples:
    """Tuples in the order they came, sorted."""
    ranks = rank[tuples.source]
    order = np.lexsort((ranks, tuples.ts))
    return tuples if (order[1:] > order[:-1]).all() else tuples.pick(order)
