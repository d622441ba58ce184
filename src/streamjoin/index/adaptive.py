"""A window that is scanned while scanning is cheaper, and indexed otherwise."""

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
from streamjoin.jit import readiness
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.costs import comparison
from streamjoin.plan.subwindows import FixedRule, Workload
from streamjoin.plan.tuning import DEFAULT_TUNING, Tuning

CLEARLY_CHEAPER = 1.5  # scan an indexed window again only if that is cheaper by this factor
# Change only after half the window is new, so that the cost of changing is shared and the window cannot flap.
PART_BETWEEN_CHANGES = 2
# Compare the costs after `fewest_tuples` tuples, then after LONGER times as many, at most `longest_pause`; a push
# counts as PUSH tuples. One comparison of costs takes a quarter of a millisecond, as long as a dozen pushes of one
# row.
PUSH, LONGER = 256, 4


class AdaptiveWindow:
    """A `WindowIndex` that is either a scan or a chain of subwindows that `rule` chooses, whichever makes a push
    cheaper. The chain does not copy data that is in `rows`."""

    def __init__(
        self,
        program: WindowProgram,
        rule: FixedRule,
        rows: RowColumns | None = None,
        tuning: Tuning = DEFAULT_TUNING,
    ):
        self._tuning = tuning
        self.program, self.rule, self.workload, self._rows = program, rule, Workload(), rows
        self._comparison, self._load = comparison(program)
        self.window: WindowIndex = ScanWindow(program, tuning.window)
        self._indexed = False
        self._done = 0  # tuples and pushes between the last change and the last comparison of costs
        self._left = self._pause = tuning.costs.fewest_tuples  # until the next comparison
        self._looking = False  # a comparison is due, and waits for probes
        self._noting = (
            True  # note the probes of a scan: until the first comparison is over, then while one is due
        )

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
        scanned = [replace(part, reason="few comparisons per push") for part in stats.subwindows]
        return IndexStats(tuple(scanned), changes)

    def expire(self, before: int) -> None:
        self.window.expire(before)

    def expire_first(self, count: int) -> None:
        self.window.expire_first(count)

    def clear(self) -> None:
        self.window.clear()

    def _reconsider(self, size: int, rank: np.ndarray) -> None:
        """Observe the next probes. Once they have come, change if the other way is now cheaper for a window that
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
        self._left = self._pause = min(LONGER * self._pause, self._tuning.window.longest_pause)
        if self._done < len(self) // PART_BETWEEN_CHANGES:
            return
        scanned, worth = self._costs(size)
        limit = worth / CLEARLY_CHEAPER if self._indexed else worth
        indexed = size >= self._tuning.costs.fewest_tuples and scanned > limit
        if (
            indexed and not self._indexed and readiness.pending()
        ):  # the index's kernels may not be compiled yet
            self._left = self._pause = self._tuning.costs.fewest_tuples
        elif indexed != self._indexed:
            self.workload.changes.append(
                f"{'indexed' if indexed else 'scanned'} from {size:,} tuples on, probed by {self.workload.batch:,.0f}"
                f" at a time: a push costs a scan {scanned:,.0f} comparisons, an index as much as {worth:,.0f}"
            )
            self._change(indexed, rank)

    def _costs(self, size: int) -> tuple[float, float]:
        """The costs of a push in comparisons: for a scan, and for an index beyond the scan of an empty window."""
        batch, costs = self.workload.batch, self._tuning.costs
        seen = self.rule.selectivity(self.stored(), self.workload)
        pairs = batch * costs.isolated_pair * seen.found * (1 - seen.together)
        scanned = size * (batch * self._comparison + self._load + pairs)
        checked = 0.0
        if len(self.program.clauses) > 1:
            checked = min(seen.candidates * size / costs.few_candidates, costs.most_candidates)
        return scanned, costs.of_push(batch, checked, 0.0 if seen.rising else checked)

    def _change(self, indexed: bool, rank: np.ndarray) -> None:
        old = self.window
        if indexed:
            self.window = ChainWindow(self.program, self.rule, self.workload, self._rows, self._tuning.window)
            self.window.insert(old.tuples(), rank)
        else:
            self.window = ScanWindow(self.program, self._tuning.window)
            self.window.insert(in_total_order(old.tuples(), rank), rank)
        self.window.comparisons = old.comparisons
        self._indexed, self._done = indexed, 0


def in_total_order(tuples: Tuples, rank: np.ndarray) -> Tuples:
    """Sort tuples that are in order of arrival."""
    ranks = rank[tuples.source]
    order = np.lexsort((ranks, tuples.ts))
    return tuples if (order[1:] > order[:-1]).all() else tuples.pick(order)
