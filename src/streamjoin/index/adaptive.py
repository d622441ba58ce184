"""A window that is scanned while that is cheapest, and indexed while that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import WindowProgram
from streamjoin.index.chain import ChainWindow
from streamjoin.index.scan import ScanWindow
from streamjoin.index.sliding import RowColumns
from streamjoin.index.stats import IndexStats
from streamjoin.index.times import Reach
from streamjoin.index.tuples import Mark, ProbingTuples, Tuples
from streamjoin.index.window import ALONE, Team, WindowIndex
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.costs import FEWEST_TUPLES, INDEX, comparison
from streamjoin.plan.subwindows import FixedRule, Workload

CLEARLY_CHEAPER = 1.5  # scan an indexed window again only if that costs this many times less
PART_BETWEEN_CHANGES = (
    2  # change over only after half the window is new, so that its cost is shared and it cannot flap
)
# Compare the costs after FEWEST_TUPLES tuples, then after LONGER times as many, up to LONGEST_PAUSE; a push counts as
# PUSH tuples. One comparison of costs takes a quarter of a millisecond, as long as a dozen pushes of one row.
PUSH, LONGER, LONGEST_PAUSE = 256, 4, 262_144


class AdaptiveWindow:
    """A `WindowIndex` that is a scan, or a chain of what `rule` chooses, as the costs of a push tell. What `rows` hold,
    a chain does not hold again."""

    def __init__(self, program: WindowProgram, rule: FixedRule, rows: RowColumns | None = None):
        self.program, self.rule, self.workload, self._rows = program, rule, Workload(), rows
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

    @property
    def ts(self) -> np.ndarray:
        return self.window.ts

    def mark(self, name: Mark) -> np.ndarray:
        return self.window.mark(name)

    def stored(self) -> Stored:
        return self.window.stored()

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

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, team: Team = ALONE
    ) -> Iterator[int]:
        if self._noting:
            self.workload.observe(probes.probing)
        return self.window.probe(probes, reach, pairs, team)

    def tuples(self) -> Tuples:
        return self.window.tuples()

    def observe(self, probing: Probing) -> None:
        self.workload.observe(probing)

    @property
    def links(self) -> Sequence[Any]:
        return self.window.links

    def stats(self) -> IndexStats:
        stats, changes = self.window.stats(), tuple(self.workload.changes)
        if self._indexed:
            return stats
        scanned = [replace(part, reason="few comparisons a push") for part in stats.subwindows]
        return IndexStats(tuple(scanned), changes)

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
        seen = self.rule.selectivity(self.stored(), self.workload)
        pairs = batch * INDEX.isolated_pair * seen.found * (1 - seen.together)
        scanned = size * (batch * self._comparison + self._load + pairs)
        checked = 0.0
        if len(self.program.clauses) > 1:
            checked = min(seen.candidates * size / INDEX.few_candidates, INDEX.most_candidates)
        return scanned, INDEX.of_push(batch, checked, 0.0 if seen.rising else checked)

    def _change(self, indexed: bool, rank: np.ndarray) -> None:
        old = self.window
        if indexed:
            self.window = ChainWindow(self.program, self.rule, self.workload, self._rows)
            self.window.insert(old.tuples(), rank)
        else:
            self.window = ScanWindow(self.program)
            self.window.insert(in_total_order(old.tuples(), rank), rank)
        self.window.comparisons = old.comparisons
        self._indexed, self._done = indexed, 0


def in_total_order(tuples: Tuples, rank: np.ndarray) -> Tuples:
    """Tuples in the order they came, sorted."""
    ranks = rank[tuples.source]
    order = np.lexsort((ranks, tuples.ts))
    return tuples if (order[1:] > order[:-1]).all() else tuples.pick(order)
