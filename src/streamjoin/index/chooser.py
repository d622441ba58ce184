"""What a window is made of: a cascade over what the predicate offers, a sample of tuples and probes, and the batches.

Every new subwindow is chosen anew, so a window follows its streams. The thresholds are measured: benchmarks/chooser.py
holds each choice against the alternatives, docs/decisions/0010-chooser.md says what they are worth.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from streamjoin.codegen.programs import Table, WindowProgram
from streamjoin.index.access import Access, BandAccess, GridAccess
from streamjoin.index.protocol import Subwindow, Tuples, WindowIndex

Structure = Callable[[int, np.dtype, Subwindow | None], Subwindow]

SAMPLED_TUPLES, SPREAD_TUPLES = 1_024, 256  # of the newest, of all
SAMPLED_BATCHES, PROBES_OF_A_BATCH = 16, 8
BATCHES_BETWEEN = 32  # samples
CHANGES_KEPT = 16
BATCHES_WORTH_HASHING = 16  # to fill a subwindow; fewer are sorted at less cost
MANY_CANDIDATES = 24  # of one band in a subwindow: from here on two bands are worth a grid
SAME_WIDTH = 1.5  # a grid whose cells are this much too wide or too narrow is kept


class Workload:
    """What a window has lately been asked: how many probes come at a time, and some of them. `changes`: what it became
    for their sake."""

    def __init__(self) -> None:
        self.batch = 0.0
        self.changes: deque[str] = deque(maxlen=CHANGES_KEPT)
        self._samples: deque[Table] = deque(maxlen=SAMPLED_BATCHES)
        self._skip = 0

    def observe(self, probes: Tuples) -> None:
        """Take note of every batch at first, then of one in BATCHES_BETWEEN; O(1)."""
        self._skip -= 1
        if self._skip >= 0:
            return
        count, known = len(probes), len(self._samples)
        if not count:
            return
        self._skip = BATCHES_BETWEEN - 1 if known == SAMPLED_BATCHES else 0
        self.batch += (count - self.batch) / min(known + 1, 4)
        step = -(-count // PROBES_OF_A_BATCH)
        # Copies: what a topology hands over may change once it is done.
        self._samples.append({name: array[::step].copy() for name, array in probes.probing.items()})

    def sample(self) -> Table | None:
        """Recent probes, prepared; None if there were none."""
        if not self._samples:
            return None
        return {name: np.concatenate([table[name] for table in self._samples]) for name in self._samples[0]}


@dataclass(frozen=True)
class Choice:
    """How a subwindow finds tuples, and why."""

    structure: str
    make: Structure
    access: Access
    reason: str


class FixedChoice:
    """Always the same structure; of several conditions, the one that leaves the fewest candidates by a sample."""

    def __init__(self, program: WindowProgram, name: str, structure: Structure, bands: Sequence[int]):
        self.program, self.name, self.structure = program, name, structure
        self.accesses = [BandAccess(program, band) for band in bands]

    def __call__(self, capacity: int, held: Table, workload: Workload) -> Choice:
        """The choice for a subwindow of `capacity` tuples, after those held."""
        recent = workload.sample() if len(self.accesses) > 1 else None
        if recent is None:
            return Choice(self.name, self.structure, self.accesses[0], self._only_reason())
        return self._by_shares(self._shares(held, recent))

    @property
    def text(self) -> str:
        """What is chosen, for people."""
        keys = " or ".join(access.condition for access in self.accesses)
        return (
            f"{self.name} on {keys}{', whichever leaves fewer candidates' if len(self.accesses) > 1 else ''}"
        )

    def alternatives(self) -> list[tuple[Structure, Access]]:
        """All that may ever be chosen, as far as compiled code can tell it apart."""
        return [(self.structure, access) for access in self.accesses]

    def selectivity(self, window: WindowIndex, workload: Workload) -> tuple[float, float]:
        """Which part of a window a probe finds, as if conditions were independent, and by the best one alone; nothing
        before any probe. O(1)."""
        recent = workload.sample()
        if recent is None:
            return 0.0, 0.0
        step = -(-len(window) // SPREAD_TUPLES)
        names = ("key_ok", *(f"key{number}" for number in range(len(self.program.keys.keys))))
        spread = {name: window[name][::step].copy() for name in names}
        shares = [share(access, spread, recent) for access in self.accesses]
        return math.prod(shares), min(shares)

    def _only_reason(self) -> str:
        return "the first condition, before any probe" if len(self.accesses) > 1 else "the only condition"

    def _shares(self, held: Table, recent: Table) -> dict[BandAccess, float]:
        latest = {name: rows[-SAMPLED_TUPLES:] for name, rows in held.items()}
        return {access: share(access, latest, recent) for access in self.accesses}

    def _by_shares(self, shares: dict[BandAccess, float]) -> Choice:
        best = min(shares, key=shares.__getitem__)
        others = ", ".join(
            f"{shares[access]:.2g} by {access.condition}" for access in shares if access is not best
        )
        reason = f"leaves {shares[best]:.2g} of the tuples as candidates of a probe, beside {others}"
        return Choice(self.name, self.structure, best, reason)


class EqualityChoice(FixedChoice):
    """A hash table, or a sorted array where batches are so large that sorting them costs less than hashing them."""

    def __init__(
        self,
        program: WindowProgram,
        name: str,
        structure: Structure,
        bands: Sequence[int],
        sorted_: tuple[str, Structure],
    ):
        super().__init__(program, name, structure, bands)
        self.sorted = sorted_

    def __call__(self, capacity: int, held: Table, workload: Workload) -> Choice:
        chosen = super().__call__(capacity, held, workload)
        if workload.batch * BATCHES_WORTH_HASHING < capacity:
            return replace(chosen, reason=f"batches of {workload.batch:,.0f} are small; {chosen.reason}")
        name, structure = self.sorted
        reason = f"batches of {workload.batch:,.0f} are soon sorted into {capacity:,} tuples; {chosen.reason}"
        return Choice(name, structure, chosen.access, reason)

    @property
    def text(self) -> str:
        return f"{super().text}, or {self.sorted[0]} if {BATCHES_WORTH_HASHING} batches or fewer fill a subwindow"

    def alternatives(self) -> list[tuple[Structure, Access]]:
        return [*super().alternatives(), *((self.sorted[1], access) for access in self.accesses)]


class BandChoice(FixedChoice):
    """Sorted subwindows, or a grid where a single band leaves many candidates and there is a second one."""

    def __init__(
        self,
        program: WindowProgram,
        name: str,
        structure: Structure,
        bands: Sequence[int],
        hashed: Structure,
    ):
        super().__init__(program, name, structure, bands)
        self.hashed = hashed
        self._grid: GridAccess | None = None

    def __call__(self, capacity: int, held: Table, workload: Workload) -> Choice:
        recent = workload.sample() if len(self.accesses) > 1 else None
        if recent is None:
            return super().__call__(capacity, held, workload)
        shares = self._shares(held, recent)
        first, second = sorted(shares, key=shares.__getitem__)[:2]
        candidates = shares[first] * capacity
        if candidates >= MANY_CANDIDATES and (grid := self._grid_over(first, second, capacity, recent)):
            reason = f"{first.condition} alone leaves {candidates:,.0f} candidates a probe in a subwindow"
            return Choice("hash", self.hashed, grid, reason)
        return self._by_shares(shares)

    @property
    def text(self) -> str:
        grid = (
            f", or a grid over two from {MANY_CANDIDATES} candidates a probe on"
            if len(self.accesses) > 1
            else ""
        )
        return super().text + grid

    def alternatives(self) -> list[tuple[Structure, Access]]:
        single = [access.band for access in self.accesses if len(self.program.bands_beside(access.band)) == 1]
        grids = [GridAccess(self.program, pair, (1.0, 1.0), 1) for pair in combinations(sorted(single), 2)]
        return [*super().alternatives(), *((self.hashed, grid) for grid in grids)]

    def _grid_over(
        self, first: BandAccess, second: BandAccess, capacity: int, recent: Table
    ) -> GridAccess | None:
        """A grid with cells as wide as the bands usually are; the last one, if it suits."""
        bands = min(first.band, second.band), max(first.band, second.band)
        if any(len(self.program.bands_beside(band)) > 1 for band in bands):
            return None
        widths = self._width(bands[0], recent), self._width(bands[1], recent)
        if not all(0 < width < np.inf for width in widths):
            return None
        last = self._grid
        if last is not None and (last.bands, last.capacity) == (bands, capacity):
            ratios = [new / old for new, old in zip(widths, last.widths, strict=True)]
            if all(1 / SAME_WIDTH <= ratio <= SAME_WIDTH for ratio in ratios):
                return last
        self._grid = GridAccess(self.program, bands, widths, capacity)
        return self._grid

    def _width(self, band: int, recent: Table) -> float:
        lows, highs = (bound.astype(np.float64) for bound in self.program.bounds_of_band(recent, band))
        with np.errstate(invalid="ignore", over="ignore"):  # infinite bounds have no width
            widths = highs - lows
        widths = widths[np.isfinite(widths)]
        return float(np.median(widths)) if len(widths) else np.inf


Chooser = Callable[[int, Table, Workload], Choice]


def share(access: BandAccess, held: Table, recent: Table) -> float:
    """Which part of some tuples is a candidate of recent probes."""
    keys = access.keys(held)
    lows, highs, _ = access.program.intervals(recent, access.band)
    candidates = np.count_nonzero((lows[:, None] <= keys) & (keys <= highs[:, None]))
    return candidates / max(1, len(keys) * len(recent["probe_ok"]))
