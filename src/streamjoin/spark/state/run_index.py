"""The index over one run, built at once from all its rows, when the probes are known.

The embedded engine's windows grow and shrink, so they are chains of subwindows (`index.chain`). A run never changes, so
it is one sealed subwindow of the run's size, whose structure is chosen by the first probes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamjoin.codegen.prepared import Probing
from streamjoin.codegen.programs import Intervals, WindowProgram
from streamjoin.index.access import ask, check_bands, make_access
from streamjoin.index.scan import ScanWindow
from streamjoin.index.structures import STRUCTURE_CLASSES
from streamjoin.index.times import Reach
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.index.window import ONE_SOURCE
from streamjoin.jit import readiness
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.physical import Plan
from streamjoin.plan.subwindows import (
    SAMPLED_BATCHES,
    Choice,
    FixedRule,
    SubwindowKey,
    Workload,
    make_rule,
)

# Compare at most this many pairs with NumPy forms, in some tenths of a second, instead of compiling an index's kernels.
SCANNED_PAIRS = 1 << 26
FAR_MORE = 16  # build an index again if this many times more probes come than it was built for

# By key, the intervals that some probes ask for; computed once for all runs with that key.
Questions = dict[SubwindowKey, Intervals]


class RunIndexer:
    """Makes the indexes of one side's runs."""

    def __init__(self, plan: Plan, side: str):
        self.program, self._window = plan.programs[side], plan.windows[side]
        self._rule = (
            None if self._window.kind == "scan" else make_rule(self._window, self.program, plan.tuning.choice)
        )

    def index(
        self, tuples: Tuples, probes: ProbingTuples, like: Choice | None = None
    ) -> RunIndex | ScannedRun:
        """An index for probes like these; a scan if the plan says so. `like`: use this choice instead of choosing."""
        runs = self._window.runs
        if self._rule is None or runs is None:
            return ScannedRun(self.program, tuples)
        if len(tuples) < runs.indexed_rows or len(probes) < runs.indexed_probes:
            return ScannedRun(self.program, tuples)
        if readiness.pending() and len(tuples) * len(probes) <= SCANNED_PAIRS:
            return ScannedRun(self.program, tuples)
        return RunIndex(self.program, like or self._chosen(self._rule, tuples, probes), tuples)

    def _chosen(self, rule: FixedRule, tuples: Tuples, probes: ProbingTuples) -> Choice:
        """Choose the structure and the key. For bands we choose as for a large run, so that strips use 32-bit places:
        runs will be merged into layers."""
        rows = max(len(tuples), rule.tuning.worth_narrow) if self._window.rule == "band" else len(tuples)
        return rule.choose(rows, tuples.stored, workload_of(probes.probing))


def workload_of(probing: Probing) -> Workload:
    """A workload with a sample of these probes, as if they had come in many batches."""
    workload, step = Workload(), -(-len(probing) // SAMPLED_BATCHES)
    for begin in range(0, len(probing), step):
        workload.observe(probing.pick(slice(begin, begin + step)))
    workload.batch = float(len(probing))
    return workload


class RunIndex:
    """A run's rows by their keys. Positions are places in the run, whose rows are in the total order."""

    def __init__(self, program: WindowProgram, choice: Choice, tuples: Tuples):
        self.tuples, self.comparisons = tuples, 0
        self.choice: Choice | None = choice
        self.access, self._key = make_access(program, choice.key), choice.key
        keys = self.access.keys(tuples.stored)
        slots = np.arange(len(keys), dtype=np.int32)
        if not tuples.stored.all_known():
            known = tuples.stored.known
            keys, slots = keys[known], slots[known]
        self.subwindow = STRUCTURE_CLASSES[choice.structure](len(tuples), self.access.dtype, None)
        self.subwindow.insert(keys, slots)
        self.subwindow.seal()

    @property
    def nbytes(self) -> int:
        return self.subwindow.nbytes

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, questions: Questions
    ) -> Iterator[int]:
        """As `WindowIndex.probe`, for probes without NULL. Fills `questions`, so that other runs can reuse them for the
        same probes."""
        if self._key not in questions:
            questions[self._key] = self.access.questions(probes.probing)
        start, stop = reach.positions(self.tuples.ts)
        for before in ask(self.subwindow.probe, questions[self._key], start, stop, pairs):
            self.comparisons += pairs.count - before
            check_bands(self.access, lambda: self.tuples.stored.columns, probes.probing, pairs, before)
            yield before


class ScannedRun:
    """A run that is scanned: every probe is compared with all rows that its window reaches."""

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
    """Tuples of one side in the total order, with an index that is built for the first probes."""

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
        """An estimate of the memory held: the index, and the keys that it is built from."""
        prepared = sum(array.nbytes for array in self.tuples.stored.arrays())
        return prepared + (0 if self._index is None else self._index.nbytes)

    def expect(self, probes: ProbingTuples, like: Choice | None = None) -> Choice | None:
        """Build an index for probes like these, unless there is one for about as many. Returns its choice, None for a
        scan. Runs that are built `like` the same choice share the probes' key intervals."""
        if self._index is None or len(probes) > FAR_MORE * self._made_for:
            provisional = readiness.pending()  # until there are compiled kernels for a better one
            self._index = self.indexer.index(self.tuples, probes, like)
            self._made_for = 0 if provisional else max(1, len(probes))
        return self._index.choice

    @property
    def index(self) -> RunIndex | ScannedRun:
        """The index; call `expect` first."""
        assert self._index is not None
        return self._index
