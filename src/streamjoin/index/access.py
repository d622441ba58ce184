"""What a subwindow is asked: how the key of a stored tuple and the questions of a probe come from the predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamjoin.codegen.programs import COMPOSITE, Intervals, Table, WindowProgram
from streamjoin.index.protocol import Subwindow
from streamjoin.kernels import grid
from streamjoin.kernels.check import band_check
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan import Clauses
from streamjoin.semantics.render import to_sql

# A probe that touches more cells than these is met with the whole subwindow: asking for a cell costs as much as
# checking this many tuples.
FEW_CELLS, TUPLES_WORTH_A_CELL = 64, 16
CELLS_AT_ONCE = 65_536


class Access(Protocol):
    """A way to find candidates in a subwindow. `condition`: the keys it serves, as text. `dtype` is that of its keys,
    `unchecked` the clauses that candidates have still to satisfy and the numbers of their bands, `check` the kernel for
    those (`kernels.check.band_check`)."""

    condition: str
    dtype: np.dtype
    unchecked: tuple[Clauses, list[int]]

    @property
    def check(self) -> Callable[..., int]: ...

    def keys(self, stored: Table) -> np.ndarray:
        """The keys of prepared stored tuples."""

    def questions(self, probing: Table) -> Any:
        """What prepared probes ask, the same for all subwindows with this access."""

    def probe(
        self, subwindow: Subwindow, questions: Any, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        """Candidates for the probes that asked, as `Subwindow.probe` appends them."""


def key_text(program: WindowProgram, band: int) -> str:
    """The key of a band as SQL; of COMPOSITE, all equality keys."""
    if band == COMPOSITE:
        return ", ".join(to_sql(clause.bands[0].key) for clause in program.clauses if clause.is_equality)
    return to_sql(program.bounds.bands[band].key)


class BandAccess:
    """One clause of the predicate, known by its first band, or all its equalities as one."""

    def __init__(self, program: WindowProgram, band: int):
        self.program, self.band = program, band
        self.condition = key_text(program, band)
        self.dtype = program.band_dtype(band)
        self.unchecked = program.other_bands(band)

    @cached_property
    def check(self) -> Callable[..., int]:
        return band_check(self.unchecked[0])

    def keys(self, stored: Table) -> np.ndarray:
        return self.program.key_of_band(stored, self.band)

    def questions(self, probing: Table) -> Intervals:
        return self.program.intervals(probing, self.band)

    def probe(
        self,
        subwindow: Subwindow,
        questions: Intervals,
        start: np.ndarray,
        stop: np.ndarray,
        pairs: PairBuffer,
    ) -> Iterator[int]:
        lows, highs, asking = questions
        if asking is None:
            return subwindow.probe(lows, highs, start, stop, pairs)
        return _ask(subwindow, asking, lows, highs, start, stop, pairs)


def _ask(
    subwindow: Subwindow,
    asking: np.ndarray,
    lows: np.ndarray,
    highs: np.ndarray,
    start: np.ndarray,
    stop: np.ndarray,
    pairs: PairBuffer,
) -> Iterator[int]:
    """Ask for any number of intervals a probe; number i is asked by probe asking[i]."""
    for before in subwindow.probe(lows, highs, start[asking], stop[asking], pairs):
        fresh = slice(before, pairs.count)
        pairs.probe[fresh] = asking[pairs.probe[fresh]]
        yield before


class Cells(NamedTuple):
    """What probes ask a grid: the `cells` that `asking` touch, or None if those are too many at once. `narrow` probes
    touch few, up to each one `ends` in all; `wide` ones too many. `bounds`: of all probes."""

    bounds: list[np.ndarray]
    wide: np.ndarray
    narrow: np.ndarray
    ends: np.ndarray
    asking: np.ndarray | None
    cells: np.ndarray | None


class GridAccess:
    """Two bands as a grid: tuples are found by equality of their cell, probes ask for every cell they touch.

    With cells as wide as the bands usually are, a probe touches four to nine, and meets only tuples near it in
    both dimensions. `capacity` is that of the subwindows it is made for.
    """

    dtype = np.dtype(np.int64)

    def __init__(
        self, program: WindowProgram, bands: tuple[int, int], widths: tuple[float, float], capacity: int
    ):
        self.program, self.bands, self.widths, self.capacity = program, bands, widths, capacity
        self.condition = f"grid over {' and '.join(key_text(program, band) for band in bands)}"
        self.most_cells = max(FEW_CELLS, capacity // TUPLES_WORTH_A_CELL)
        everything = [number for number, _ in enumerate(program.bounds.bands)]
        self.unchecked = (program.shapes, everything)

    @cached_property
    def check(self) -> Callable[..., int]:
        return band_check(self.unchecked[0])

    def keys(self, stored: Table) -> np.ndarray:
        x, y = (self.program.key_of_band(stored, band) for band in self.bands)
        cells = np.empty(len(x), np.int64)
        grid.cells_of(x, y, *self.widths, cells)
        return cells

    def questions(self, probing: Table) -> Cells:
        bounds = [array for band in self.bands for array in self.program.bounds_of_band(probing, band)]
        counts = np.empty((2, len(bounds[0])), np.int64)
        for number in range(2):
            grid.cell_counts(bounds[2 * number], bounds[2 * number + 1], self.widths[number], counts[number])
        # A product of two small counts can not overflow, one of large ones is not needed.
        touches = np.minimum(counts[0], self.most_cells + 1) * np.minimum(counts[1], self.most_cells + 1)
        narrow = np.flatnonzero((touches > 0) & (touches <= self.most_cells))
        wide = np.flatnonzero(touches > self.most_cells)
        ends = np.cumsum(touches[narrow])
        asked: tuple[np.ndarray | None, np.ndarray | None] = (None, None)
        if not len(ends) or ends[-1] <= CELLS_AT_ONCE:
            asked = self._cells(bounds, narrow, int(ends[-1]) if len(ends) else 0)
        return Cells(bounds, wide, narrow, ends, *asked)

    def probe(
        self, subwindow: Subwindow, questions: Cells, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        bounds, wide, narrow, ends, asking, cells = questions
        if len(wide):
            yield from _everything(wide, start, stop, pairs)
        if asking is not None and cells is not None:
            yield from _ask(subwindow, asking, cells, cells, start, stop, pairs)
            return
        at = 0
        while at < len(narrow):
            done = ends[at - 1] if at else 0
            until = max(at + 1, int(np.searchsorted(ends, done + CELLS_AT_ONCE, "right")))
            asking, cells = self._cells(bounds, narrow[at:until], int(ends[until - 1] - done))
            yield from _ask(subwindow, asking, cells, cells, start, stop, pairs)
            at = until

    def _cells(
        self, bounds: list[np.ndarray], probes: np.ndarray, count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The cells that some probes touch, `count` in all, and the probe that touches each."""
        asking, cells = np.empty(count, np.int64), np.empty(count, np.int64)
        grid.touched(*bounds, *self.widths, probes, asking, cells)
        return asking, cells


def _everything(probes: np.ndarray, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer) -> Iterator[int]:
    """Every slot in range as a candidate, for probes that would touch too many cells."""
    for probe in probes:
        before, size = pairs.count, int(stop[probe] - start[probe])
        pairs.reserve(size)
        pairs.probe[before : before + size] = probe
        pairs.pos[before : before + size] = np.arange(start[probe], stop[probe])
        pairs.count = before + size
        yield before
