"""The index over one run: all its rows at once, for probes that are there already.

The embedded engine's windows grow and shrink, so they are chains of subwindows (`index.chain`). A run never changes: it
is one subwindow, made as large as the run, sealed, and chosen for what it is asked first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamjoin.codegen.prepared import Probing
from streamjoin.codegen.programs import Intervals, WindowProgram
from streamjoin.index.access import ask, check_bands, make_access
from streamjoin.index.scan import ScanWindow
from streamjoin.index.structures import STRUCTURES
from streamjoin.index.times import Reach
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.physical import Plan
from streamjoin.plan.subwindows import (
    SAMPLED_BATCHES,
    WORTH_NARROW,
    Choice,
    FixedRule,
    SubwindowKey,
    Workload,
    make_rule,
)

ONE_SOURCE = np.zeros(1, np.int32)  # the ranks of a single source
INDEXED_ROWS, INDEXED_PROBES = 4_096, 256  # fewer are scanned sooner than indexed
FAR_MORE = 16  # times as many probes as an index was made for: it is made again

Questions = dict[SubwindowKey, Intervals]  # what the probes of one round ask, for all runs with the same key


class RunIndexer:
    """Makes the indexes of one side's runs."""

    def __init__(self, plan: Plan, side: str):
        self.program, self._window = plan.programs[side], plan.windows[side]
        self._rule = None if self._window.kind == "scan" else make_rule(self._window, self.program)

    def index(
        self, tuples: Tuples, probes: ProbingTuples, like: Choice | None = None
    ) -> RunIndex | ScannedRun:
        """An index for probes like these, chosen unless it is given; a scan where that is planned, or cheaper."""
        few = len(tuples) < INDEXED_ROWS or len(probes) < INDEXED_PROBES
        if self._rule is None or (self._window.kind == "adaptive" and few):
            return ScannedRun(self.program, tuples)
        return RunIndex(self.program, like or self._chosen(self._rule, tuples, probes), tuples)

    def _chosen(self, rule: FixedRule, tuples: Tuples, probes: ProbingTuples) -> Choice:
        """Bands are chosen as for many rows, because runs become layers: strips of places that take 32 bits."""
        rows = max(len(tuples), WORTH_NARROW) if self._window.rule == "band" else len(tuples)
        return rule.choose(rows, tuples.stored, workload_of(probes.probing))


def workload_of(probing: Probing) -> Workload:
    """A workload of such probes, sampled as if it had lasted for some time."""
    workload, step = Workload(), -(-len(probing) // SAMPLED_BATCHES)
    for begin in range(0, len(probing), step):
        workload.observe(probing.pick(slice(begin, begin + step)))
    workload.batch = float(len(probing))
    return workload


class RunIndex:
    """Rows by the keys of an access. Positions are places in the run, whose rows are in the total order."""

    def __init__(self, program: WindowProgram, choice: Choice, tuples: Tuples):
        self.tuples, self.comparisons = tuples, 0
        self.choice: Choice | None = choice
        self.access, self._key = make_access(program, choice.key), choice.key
        keys = self.access.keys(tuples.stored)
        slots = np.arange(len(keys), dtype=np.int32)
        if not tuples.stored.all_known():
            known = tuples.stored.known
            keys, slots = keys[known], slots[known]
        self.subwindow = STRUCTURES[choice.structure](len(tuples), self.access.dtype, None)
        self.subwindow.insert(keys, slots)
        self.subwindow.seal()

    @property
    def nbytes(self) -> int:
        return self.subwindow.nbytes

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, questions: Questions
    ) -> Iterator[int]:
        """As `WindowIndex.probe`, for probes without NULL. `questions` is kept for these probes."""
        if self._key not in questions:
            questions[self._key] = self.access.questions(probes.probing)
        start, stop = reach.positions(self.tuples.ts)
        for before in ask(self.subwindow, questions[self._key], start, stop, pairs):
            self.comparisons += pairs.count - before
            check_bands(self.access, lambda: self.tuples.stored.columns, probes.probing, pairs, before)
            yield before


class ScannedRun:
    """Rows that are all compared with every probe."""

    choice: Choice | None = None

    def __init__(self, program: WindowProgram, tuples: Tuples):
        self._window = ScanWindow(program)
        self._window.insert(tuples, ONE_SOURCE)

    @property
    def comparisons(self) -> int:
        return self._window.comparisons

    @property
    def nbytes(self) -> int:
        return self._window.nbytes

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, questions: Questions
    ) -> Iterator[int]:
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
        prepared = sum(array.nbytes for array in self.tuples.stored.arrays())
        return prepared + (0 if self._index is None else self._index.nbytes)

    def expect(self, probes: ProbingTuples, like: Choice | None = None) -> Choice | None:
        """Make an index for probes like these, unless there is one for about as many. Returns how it was chosen, if it
        was: others that are made `like` it share what probes ask."""
        if self._index is None or len(probes) > FAR_MORE * self._made_for:
            self._index = self.indexer.index(self.tuples, probes, like)
            self._made_for = max(1, len(probes))
        return self._index.choice

    @property
    def index(self) -> RunIndex | ScannedRun:
        """The index; `expect` comes first."""
        assert self._index is not None
        return self._index
