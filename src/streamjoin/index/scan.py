"""The scan window: keeps the tuples of one side in the total order and compares every tuple with every probe in
reach."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import WindowProgram
from streamjoin.index.sliding import SortedTuples
from streamjoin.index.stats import IndexStats, SubwindowStats
from streamjoin.index.times import Reach
from streamjoin.index.tuples import Mark, ProbingTuples, Tuples
from streamjoin.index.window import ALONE, Team, cuts
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan.bands import MIN_SCAN_ROOM
from streamjoin.kernels.stamping import total_length
from streamjoin.plan.tuning import DEFAULT_TUNING, WindowTuning

Share = tuple[
    np.ndarray, np.ndarray
]  # for each probe, the positions that are compared with it: from, and before


class ScanWindow:
    """A `WindowIndex` sorted by (ts, source, seq), so that the tuples in a probe's reach are contiguous."""

    def __init__(self, program: WindowProgram, tuning: WindowTuning = DEFAULT_TUNING.window):
        self.program, self._tuning = program, tuning
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
        ids: np.ndarray = self._tuples.id.take(positions)
        return ids

    def oldest_id(self) -> int:
        return int(self._tuples.id.min())

    @property
    def nbytes(self) -> int:
        return self._tuples.nbytes

    def insert(self, tuples: Tuples, rank: np.ndarray, team: Team = ALONE) -> None:
        """Add tuples; O(tuples + held tuples that are later)."""
        self._tuples.insert(tuples, rank)

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, team: Team = ALONE
    ) -> Iterator[int]:
        """One comparison per tuple in reach, many at a time. A team shares the tuples, not the probes: so it can
        share even a single probe, and four probes still share the tuples they load."""
        ts = self._tuples.ts
        if not len(ts) or not len(probes.ts):
            return iter(())
        start, stop = reach.positions(ts)
        known = None
        if probes.nulls and not probes.probing.all_known():
            known = np.flatnonzero(probes.probing.known)
            probes, start, stop = probes.pick(known), start[known], stop[known]
            if not len(known):
                return iter(())
        shares = [(start, stop)] if team.workers == 1 else self._shares(start, stop, team.workers)
        if len(shares) == 1 and known is None:
            compared = total_length(start, stop)
            self.comparisons += compared
            pairs.compared += compared
            return self._scan(probes, start, stop, pairs)
        return self._scan_parts(probes, shares, known, pairs, team)

    def _scan_parts(
        self,
        probes: ProbingTuples,
        shares: list[Share],
        known: np.ndarray | None,
        pairs: PairBuffer,
        team: Team,
    ) -> Iterator[int]:
        """As `probe`, for positions in several shares, and for probes that have the numbers `known`, if these are
        given."""
        compared = pairs.compared
        for before in team.share([partial(self._scan_share, probes, *ends) for ends in shares], pairs):
            self.comparisons += pairs.compared - compared
            compared = pairs.compared
            if known is not None:
                fresh = slice(before, pairs.count)
                pairs.probe[fresh] = known[pairs.probe[fresh]]
            yield before

    def _shares(self, start: np.ndarray, stop: np.ndarray, workers: int) -> list[Share]:
        """The positions in reach, cut into parts that are large enough to be worth a worker each."""
        first, size = int(start[0]), max(0, int(stop[-1] - start[0]))
        parts = cuts(size, self._tuning.shared_comparisons // len(start), workers)
        if len(parts) == 1:
            return [(start, stop)]
        ends = [(first + part.start, first + part.stop) for part in parts]
        return [(np.clip(start, *part), np.clip(stop, *part)) for part in ends]

    def _scan_share(
        self, probes: ProbingTuples, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        pairs.compared += total_length(start, stop)
        return self._scan(probes, start, stop, pairs)

    def _scan(
        self, probes: ProbingTuples, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        """Compare the probes with the tuples at some positions."""
        held = self._tuples
        window = held.stored()
        scan = self.program.scanner(window, probes.probing, held.nulls or probes.nulls)
        cursor = np.zeros(CURSOR_SIZE, np.int64)
        while cursor[0] != DONE:
            if len(pairs.probe) - pairs.count < MIN_SCAN_ROOM:
                pairs.reserve(MIN_SCAN_ROOM)
            before = pairs.count
            pairs.count = scan(start, stop, cursor, pairs)
            if held.nulls and window.known is not None:
                pairs.keep(before, window.known[pairs.pos[before : pairs.count]])
            yield before

    def tuples(self) -> Tuples:
        """All tuples held, in the role of stored tuples; valid until the next change."""
        return self._tuples.between(0, len(self))

    def observe(self, probing: Probing) -> None:
        """Does nothing: a scan does not depend on its workload."""

    @property
    def links(self) -> tuple[()]:
        return ()

    def stats(self) -> IndexStats:
        scanned = SubwindowStats("scan", "every condition", len(self), len(self), "the plan's choice")
        return IndexStats((scanned,))

    def expire(self, before: int) -> None:
        self._tuples.expire(before)

    def expire_first(self, count: int) -> None:
        self._tuples.drop(count)

    def clear(self) -> None:
        self._tuples.drop(len(self))
