"""What a subwindow is asked: how the key of a stored tuple and the questions of a probe come from the predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from streamjoin.codegen.programs import Table, WindowProgram
from streamjoin.index.protocol import Subwindow, Tuples
from streamjoin.kernels import grid
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan import Clauses

Structure = Callable[[int, np.dtype, Subwindow | None], Subwindow]

SAMPLED_TUPLES = 1024
MANY_CANDIDATES = 24  # of one band in a subwindow: from here on two bands are worth a grid
# A probe that touches more cells than these is met with the whole subwindow: asking for a cell costs as much as
# checking this many tuples.
FEW_CELLS, TUPLES_WORTH_A_CELL = 64, 16
CELLS_AT_ONCE = 65_536


class Access(Protocol):
    """A way to find candidates in a subwindow. `dtype` is that of its keys, `unchecked` the clauses that candidates
    have still to satisfy and the numbers of their bands."""

    dtype: np.dtype
    unchecked: tuple[Clauses, list[int]]

    def keys(self, stored: Table) -> np.ndarray:
        """The keys of prepared stored tuples."""

    def probe(
        self, subwindow: Subwindow, probing: Table, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        """Candidates for prepared probes, as `Subwindow.probe` appends them."""


class BandAccess:
    """One band of the predicate, or all its equalities as one."""

    def __init__(self, program: WindowProgram, band: int):
        self.program, self.band = program, band
        self.dtype = program.band_dtype(band)
        self.unchecked = program.other_bands(band)

    def keys(self, stored: Table) -> np.ndarray:
        return self.program.key_of_band(stored, self.band)

    def probe(
        self, subwindow: Subwindow, probing: Table, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        return subwindow.probe(*self.program.bounds_of_band(probing, self.band), start, stop, pairs)


class GridAccess:
    """Two bands as a grid: tuples are found by equality of their cell, probes ask for every cell they touch.

    With cells as wide as the bands usually are, a probe touches four to nine, and meets only tuples near it in
    both dimensions.
    """

    dtype = np.dtype(np.int64)

    def __init__(self, program: WindowProgram, bands: tuple[int, int], widths: tuple[float, float]):
        self.program, self.bands, self.widths = program, bands, widths
        everything = [number for number, _ in enumerate(program.bounds.bands)]
        self.unchecked = (program.shapes, everything)

    def keys(self, stored: Table) -> np.ndarray:
        x, y = (self.program.key_of_band(stored, band) for band in self.bands)
        cells = np.empty(len(x), np.int64)
        grid.cells_of(x, y, *self.widths, cells)
        return cells

    def probe(
        self, subwindow: Subwindow, probing: Table, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        bounds = [array for band in self.bands for array in self.program.bounds_of_band(probing, band)]
        counts = np.empty((2, len(start)), np.int64)
        for number in range(2):
            grid.cell_counts(bounds[2 * number], bounds[2 * number + 1], self.widths[number], counts[number])
        most = np.maximum(FEW_CELLS, (stop - start) // TUPLES_WORTH_A_CELL)
        touches = np.where(counts.max(axis=0) > most, most + 1, counts.prod(axis=0))
        wide = np.flatnonzero(touches > most)
        if len(wide):
            yield from _everything(wide, start, stop, pairs)
        probes = np.flatnonzero((touches > 0) & (touches <= most))
        ends = np.cumsum(touches[probes])
        at = 0
        while at < len(probes):
            done = ends[at - 1] if at else 0
            until = max(at + 1, int(np.searchsorted(ends, done + CELLS_AT_ONCE, "right")))
            yield from self._ask(
                subwindow, bounds, probes[at:until], int(ends[until - 1] - done), start, stop, pairs
            )
            at = until

    def _ask(
        self,
        subwindow: Subwindow,
        bounds: list[np.ndarray],
        probes: np.ndarray,
        count: int,
        start: np.ndarray,
        stop: np.ndarray,
        pairs: PairBuffer,
    ) -> Iterator[int]:
        """Ask for the cells of some probes, `count` in all."""
        asking, cells = np.empty(count, np.int64), np.empty(count, np.int64)
        grid.touched(*bounds, *self.widths, probes, asking, cells)
        for before in subwindow.probe(cells, cells, start[asking], stop[asking], pairs):
            fresh = slice(before, pairs.count)
            pairs.probe[fresh] = asking[pairs.probe[fresh]]
            yield before


def _everything(probes: np.ndarray, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer) -> Iterator[int]:
    """Every slot in range as a candidate, for probes that would touch too many cells."""
    for probe in probes:
        before, size = pairs.count, int(stop[probe] - start[probe])
        pairs.reserve(size)
        pairs.probe[before : before + size] = probe
        pairs.pos[before : before + size] = np.arange(start[probe], stop[probe])
        pairs.count = before + size
        yield before


class FixedChoice:
    """Always the same structure; of several bands, the one that leaves the fewest candidates by a sample."""

    def __init__(self, program: WindowProgram, structure: Structure, bands: Sequence[int]):
        self.structure = structure
        self.accesses = [BandAccess(program, band) for band in bands]

    def __call__(self, capacity: int, held: Table, recent: Tuples | None) -> tuple[Structure, Access]:
        if recent is None or len(self.accesses) == 1:
            return self.structure, self.accesses[0]
        return self.structure, min(self.accesses, key=lambda access: share(access, held, recent))


class BandChoice(FixedChoice):
    """Sorted subwindows, or a grid where a single band leaves many candidates and there is a second one."""

    def __init__(self, program: WindowProgram, sorted_: Structure, hashed: Structure, bands: Sequence[int]):
        super().__init__(program, sorted_, bands)
        self.program, self.hashed = program, hashed

    def __call__(self, capacity: int, held: Table, recent: Tuples | None) -> tuple[Structure, Access]:
        if recent is None or len(self.accesses) == 1:
            return self.structure, self.accesses[0]
        shares = {access.band: share(access, held, recent) for access in self.accesses}
        first, second = sorted(shares, key=shares.__getitem__)[:2]
        widths = tuple(self._width(band, recent) for band in (first, second))
        if shares[first] * capacity < MANY_CANDIDATES or not all(0 < width < np.inf for width in widths):
            return self.structure, next(access for access in self.accesses if access.band == first)
        return self.hashed, GridAccess(self.program, (first, second), (widths[0], widths[1]))

    def _width(self, band: int, recent: Tuples) -> float:
        lows, highs = (
            bound.astype(np.float64) for bound in self.program.bounds_of_band(recent.probing, band)
        )
        with np.errstate(invalid="ignore", over="ignore"):  # infinite bounds have no width
            widths = highs - lows
        widths = widths[np.isfinite(widths)]
        return float(np.median(widths)) if len(widths) else np.inf


Choice = Callable[[int, Table, Tuples | None], tuple[Structure, Access]]


def share(access: BandAccess, held: Table, recent: Tuples) -> float:
    """Which part of recent tuples is a candidate of recent probes."""
    keys = access.keys({name: rows[-SAMPLED_TUPLES:] for name, rows in held.items()})
    lows, highs = access.program.bounds_of_band(recent.probing, access.band)
    return float(((lows[:, None] <= keys) & (keys <= highs[:, None])).mean()) if len(keys) else 0.0
