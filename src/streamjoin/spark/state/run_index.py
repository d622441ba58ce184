"""The index over one run: all its rows at once, for probes that are there already.

The embedded engine's windows grow and shrink, so they are chains of subwindows (`index.chain`). A run never changes: it
is one subwindow, made as large as the run, sealed, and chosen for what it is asked first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from streamjoin.index.access import Access, ask
from streamjoin.index.adaptive import AdaptiveWindow
from streamjoin.index.chain import ChainWindow
from streamjoin.index.chooser import SAMPLED_BATCHES, WORTH_NARROW, BandChoice, Choice, FixedChoice, Workload
from streamjoin.index.protocol import Reach, Tuples
from streamjoin.index.scan import ScanWindow
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.sorted.runs import rising_places
from streamjoin.plan.planner import Plan, make_window

ONE_SOURCE = np.zeros(1, np.int32)  # the ranks of a single source
INDEXED_ROWS, INDEXED_PROBES = 4_096, 256  # fewer are scanned sooner than indexed
SPARSE = 16  # times for each sought: fewer are looked for one after the other
FAR_MORE = 16  # times as many probes as an index was made for: it is made again

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

    def index(self, tuples: Tuples, probes: Tuples, like: Choice | None = None) -> RunIndex | ScannedRun:
        """An index for probes like these, chosen unless it is given; a scan where that is planned, or cheaper."""
        few = len(tuples) < INDEXED_ROWS or len(probes) < INDEXED_PROBES
        if self._choose is None or (self.plan.adaptive and few):
            return ScannedRun(self.plan, self.side, tuples)
        return RunIndex(like or self._chosen(tuples, probes), tuples)

    def _chosen(self, tuples: Tuples, probes: Tuples) -> Choice:
        """Bands are chosen as for many rows, because runs become layers: strips of places that take 32 bits."""
        assert self._choose is not None
        rows = max(len(tuples), WORTH_NARROW) if isinstance(self._choose, BandChoice) else len(tuples)
        return self._choose(rows, tuples.stored, workload_of(probes))


def workload_of(probes: Tuples) -> Workload:
    """A workload of such probes, sampled as if it had lasted for some time."""
    workload, step = Workload(), -(-len(probes) // SAMPLED_BATCHES)
    for begin in range(0, len(probes), step):
        workload.observe(probes.pick(slice(begin, begin + step)))
    workload.batch = float(len(probes))
    return workload


def places(ts: np.ndarray, sought: np.ndarray, after: bool) -> np.ndarray:
    """How many of the times `ts` are below each of `sought`, or not above it if `after`. Neither falls."""
    side: Literal["left", "right"] = "right" if after else "left"
    first, last = (int(end) for end in ts.searchsorted(sought[[0, -1]], side))
    if last - first > SPARSE * len(sought):
        found: np.ndarray = ts[first:last].searchsorted(sought, side) + first
        return found
    out = np.empty(len(sought), np.int64)
    rising_places(ts, sought, after, first, out)
    return out


class RunIndex:
    """Rows by the keys of an access. Positions are places in the run, whose rows are in the total order."""

    def __init__(self, choice: Choice, tuples: Tuples):
        self.tuples, self.choice, self.access, self.comparisons = tuples, choice, choice.access, 0
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
        start, stop = self._reached(reach)
        for before in ask(self.subwindow, questions[self.access], start, stop, pairs):
            self.comparisons += pairs.count - before
            self._check(probes, pairs, before)
            yield before

    def _reached(self, reach: Reach) -> tuple[np.ndarray, np.ndarray]:
        """As `reach.positions`, for many probes at a time."""
        ts, count = self.tuples.ts, len(reach.high)
        if reach.low is None:
            return reach.positions(ts)
        start = np.zeros(count, np.int64) if ts[0] >= reach.low[-1] else places(ts, reach.low, False)
        below = ts[-1] < reach.high[0] or (ts[-1] == reach.high[0] and not reach.strict)
        stop = np.full(count, len(ts)) if below else places(ts, reach.high, not reach.strict)
        return start, stop

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


class IndexedTuples:
    """Tuples of one side in the total order, with an index that is made once it is known what probes come."""

    def __init__(self, indexer: RunIndexer, tuples: Tuples):
        self.indexer, self.tuples = indexer, tuples
        self._index: RunIndex | ScannedRun | None = None
        self._made_for = 0

    def __len__(self) -> int:
        return len(self.tuples)

    @property
    def span(self) -> tuple[int, int]:
        """The times of the first and the last tuple."""
        return int(self.tuples.ts[0]), int(self.tuples.ts[-1])

    @property
    def nbytes(self) -> int:
        """Memory held, an estimate: the index, and what it is made from."""
        prepared = sum(array.nbytes for array in self.tuples.stored.values())
        return prepared + (0 if self._index is None else self._index.nbytes)

    def expect(self, probes: Tuples, like: Choice | None = None) -> Choice | None:
        """Make an index for probes like these, unless there is one for about as many. Returns how it was chosen, if it
        was: others that are made `like` it share what probes ask."""
        if self._index is None or len(probes) > FAR_MORE * self._made_for:
            self._index = self.indexer.index(self.tuples, probes, like)
            self._made_for = max(1, len(probes))
        return self._index.choice if isinstance(self._index, RunIndex) else None

    @property
    def index(self) -> RunIndex | ScannedRun:
        """The index; `expect` comes first."""
        assert self._index is not None
        return self._index
