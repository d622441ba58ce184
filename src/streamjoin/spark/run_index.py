"""The index over one run: all its rows at once, for probes that are there already.

The embedded engine's windows grow and shrink, so they are chains of subwindows (`index.chain`). A run never changes: it
is one subwindow, made as large as the run, sealed, and chosen for what it is asked first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamjoin.index.access import Access, ask
from streamjoin.index.adaptive import AdaptiveWindow
from streamjoin.index.chain import ChainWindow
from streamjoin.index.chooser import SAMPLED_BATCHES, Choice, FixedChoice, Workload
from streamjoin.index.protocol import Reach, Tuples
from streamjoin.index.scan import ScanWindow
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.planner import Plan, make_window

ONE_SOURCE = np.zeros(1, np.int32)  # the ranks of a single source
INDEXED_ROWS, INDEXED_PROBES = 4_096, 256  # fewer are scanned sooner than indexed

Questions = dict[Access, Any]  # what the probes of one round ask, for all runs with the same access


class RunIndexer:
    """Makes the indexes of one side's runs."""

    def __init__(self, plan: Plan, side: str):
        self.plan, self.side = plan, side
        window = make_window(plan, side)
        self._choose: FixedChoice | None = None
        if isinstance(window, (AdaptiveWindow, ChainWindow)):
            assert isinstance(window.choose, FixedChoice)
            self._choose = window.choose

    def index(self, tuples: Tuples, probes: Tuples) -> RunIndex | ScannedRun:
        """An index for probes like these; a scan where that is planned, or cheaper."""
        few = len(tuples) < INDEXED_ROWS or len(probes) < INDEXED_PROBES
        if self._choose is None or (self.plan.adaptive and few):
            return ScannedRun(self.plan, self.side, tuples)
        return RunIndex(self._choose(len(tuples), tuples.stored, workload_of(probes)), tuples)


def workload_of(probes: Tuples) -> Workload:
    """A workload of such probes, sampled as if it had lasted for some time."""
    workload, step = Workload(), -(-len(probes) // SAMPLED_BATCHES)
    for begin in range(0, len(probes), step):
        workload.observe(probes.pick(slice(begin, begin + step)))
    workload.batch = float(len(probes))
    return workload


class RunIndex:
    """Rows by the keys of an access. Positions are places in the run, whose rows are in the total order."""

    def __init__(self, choice: Choice, tuples: Tuples):
        self.tuples, self.access, self.comparisons = tuples, choice.access, 0
        keys, ok = self.access.keys(tuples.stored), tuples.stored["key_ok"]
        slots = np.arange(len(keys), dtype=np.int32)
        if not ok.all():
            keys, slots = keys[ok], slots[ok]
        self.subwindow = choice.make(len(tuples), self.access.dtype, None)
        self.subwindow.insert(keys, slots)
        self.subwindow.seal()
        self._keys = tuple([array for name, array in tuples.stored.items() if name != "key_ok"])

    @property
    def nbytes(self) -> int:
        return self.subwindow.nbytes

    def probe(self, probes: Tuples, reach: Reach, pairs: PairBuffer, questions: Questions) -> Iterator[int]:
        """As `WindowIndex.probe`, for probes without NULL. `questions` is kept for these probes."""
        if self.access not in questions:
            questions[self.access] = self.access.questions(probes.probing)
        ts, asked = self.tuples.ts, questions[self.access]
        if reach.covers(int(ts[0]), int(ts[-1])):
            start, stop = np.zeros(len(probes), np.int64), np.full(len(probes), len(ts))
        else:
            start, stop = reach.positions(ts)
        for before in ask(self.subwindow, asked, start, stop, pairs):
            self.comparisons += pairs.count - before
            self._check(probes, pairs, before)
            yield before

    def _check(self, probes: Tuples, pairs: PairBuffer, before: int) -> None:
        """Keep the fresh pairs that satisfy what the access leaves open."""
        shapes, bands = self.access.unchecked
        if not shapes:
            return
        nothing = self._keys[0][:0]
        lows, highs = (
            tuple([probes.probing.get(f"{end}{number}", nothing) for number in bands])
            for end in ("low", "high")
        )
        found = pairs.probe, pairs.pos, before, pairs.count
        pairs.count = self.access.check(*found, self._keys, lows, highs)


class ScannedRun:
    """Rows that are all compared with every probe."""

    def __init__(self, plan: Plan, side: str, tuples: Tuples):
        self._window = ScanWindow(plan.programs[side])
        self._window.insert(tuples, ONE_SOURCE)

    @property
    def comparisons(self) -> int:
        return self._window.comparisons

    @property
    def nbytes(self) -> int:
        return self._window.nbytes

    def probe(self, probes: Tuples, reach: Reach, pairs: PairBuffer, questions: Questions) -> Iterator[int]:
        """As `WindowIndex.probe`."""
        return self._window.probe(probes, reach, pairs)
