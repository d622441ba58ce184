"""The scan window: tuples of one side in the total order, every one compared with every probe in reach."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import WindowProgram, is_done, new_cursor
from streamjoin.index.sliding import SortedTuples
from streamjoin.index.stats import IndexStats, SubwindowStats
from streamjoin.index.times import Reach
from streamjoin.index.tuples import Mark, ProbingTuples, Tuples
from streamjoin.index.window import ALONE, Team, cuts
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan.bands import MIN_ROOM

SHARED_COMPARISONS = (
    1 << 21
)  # that one thread has to make before another is worth waking up: a tenth of a millisecond


class ScanWindow:
    """A `WindowIndex` that is sorted by (ts, source, seq), so that what a probe may meet lies together."""

    def __init__(self, program: WindowProgram):
        self.program = program
        self.comparisons = 0
        self._tuples = SortedTuples()

    def __len__(self) -> int:
        return len(self._tuples)

    @property
    def ts(self) -> np.ndarray:
        return self._tuples.ts

    def mark(self, name: Mark) -> np.ndarray:
        return self._tuples.mark(name)

    def stored(self) -> Stored:
        return self._tuples.stored()

    def ids(self, positions: np.ndarray) -> np.ndarray:
        ids: np.ndarray = self._tuples.id[positions]
        return ids

    def oldest_id(self) -> int:
        return int(self._tuples.id.min())

    @property
    def nbytes(self) -> int:
        return self._tuples.nbytes

    def insert(self, tuples: Tuples, rank: np.ndarray, team: Team = ALONE) -> None:
        """O(tuples + those held that come later)."""
        self._tuples.insert(tuples, rank)

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, team: Team = ALONE
    ) -> Iterator[int]:
        """One comparison per tuple in reach, many at a time. A team shares the tuples, not the probes: even one probe
        can be shared then, and four probes still share what they load."""
        if not len(self) or not len(probes):
            return
        start, stop = reach.positions(self.ts)
        kept = None
        if not probes.probing.all_known():
            kept = np.flatnonzero(probes.probing.known)
            probes, start, stop = probes.pick(kept), start[kept], stop[kept]
            if not len(kept):
                return
        parts = [partial(self._scan, probes, start, stop)]
        if team.workers > 1:
            parts = [partial(self._scan, probes, *ends) for ends in self._shares(start, stop, team.workers)]
        for before in team.share(parts, pairs):
            self.comparisons += pairs.compared
            pairs.compared = 0
            if kept is not None:
                fresh = slice(before, pairs.count)
                pairs.probe[fresh] = kept[pairs.probe[fresh]]
            yield before

    def _shares(
        self, start: np.ndarray, stop: np.ndarray, workers: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """The positions in reach, cut into a part for each worker that is worth it."""
        first, size = int(start[0]), max(0, int(stop[-1] - start[0]))
        parts = cuts(size, SHARED_COMPARISONS // len(start), workers)
        if len(parts) == 1:
            return [(start, stop)]
        ends = [(first + part.start, first + part.stop) for part in parts]
        return [(np.clip(start, *part), np.clip(stop, *part)) for part in ends]

    def _scan(
        self, probes: ProbingTuples, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        """Meet the tuples at some positions."""
        window = self._tuples.stored()
        pairs.compared += int((stop - start).sum())
        scan = self.program.scanner(window, probes.probing, self._tuples.nulls or probes.nulls)
        cursor = new_cursor()
        while not is_done(cursor):
            pairs.reserve(MIN_ROOM)
            before = pairs.count
            pairs.count = scan(start, stop, cursor, pairs)
            if self._tuples.nulls and window.known is not None:
                pairs.keep(before, window.known[pairs.pos[before : pairs.count]])
            yield before

    def tuples(self) -> Tuples:
        """All tuples held, in their stored role; valid until the next change."""
        return self._tuples.between(0, len(self))

    def observe(self, probing: Probing) -> None:
        """Nothing depends on it."""

    @property
    def links(self) -> tuple[()]:
        return ()

    def stats(self) -> IndexStats:
        scanned = SubwindowStats("scan", "every condition", len(self), len(self), "the plan's choice")
        return IndexStats((scanned,))

    def expire(self, reach: Reach) -> None:
        gone = int(reach.positions(self.ts)[0][0])
        if gone:
            self._tuples.drop(gone)

    def clear(self) -> None:
        self._tuples.drop(len(self))
