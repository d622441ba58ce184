"""How a subwindow is asked: derives the keys of stored tuples and the questions of probes from the predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Protocol

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import Intervals, WindowProgram
from streamjoin.index.structures.bisort import sort_batch
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan.bands import BandShape, Clauses
from streamjoin.kernels.scan.check import band_check
from streamjoin.kernels.sorted import strips
from streamjoin.plan.rulers import Rulers
from streamjoin.plan.subwindows import BandKey, SubwindowKey

# Sort the intervals of a batch if there are at least this many, so that neighbours share cache lines.
SORTED_FROM = 4_096
# `Subwindow.probe` of one subwindow, or the same for several.
ProbeIndex = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, PairBuffer], Iterator[int]]
Times = tuple[np.ndarray, np.ndarray]  # the least and the greatest time that each probe reaches


class Access(Protocol):
    """A way to find candidates in a subwindow. `dtype` is the type of its keys. `unchecked` has the clauses that
    candidates must still satisfy, and the numbers of their bands; `check` is the kernel for those clauses
    (`kernels/scan/check.py`)."""

    dtype: np.dtype
    unchecked: tuple[Clauses, list[int]]

    @property
    def check(self) -> Callable[..., int]: ...

    def keys(self, stored: Stored) -> np.ndarray:
        """The keys of prepared stored tuples."""

    def questions(self, probing: Probing) -> Intervals:
        """The intervals that prepared probes ask for, the same for all subwindows with this access."""


class BandAccess:
    """Access by one clause of the predicate, given by its first band, or by all equalities taken as one key."""

    def __init__(self, program: WindowProgram, band: int):
        self.program, self.band = program, band
        self.dtype = program.band_dtype(band)
        self.unchecked = program.other_bands(band)
        self._key = program.key_number(band)

    @cached_property
    def check(self) -> Callable[..., int]:
        return band_check(self.unchecked[0])

    def keys(self, stored: Stored) -> np.ndarray:
        return self.program.key_of_band(stored, self.band) if self._key is None else stored.columns[self._key]

    def questions(self, probing: Probing) -> Intervals:
        return self.program.intervals(probing, self.band)


class StripAccess:
    """Access by two bands as strips, for sorted subwindows. Tuples are sorted by the strip of one key, then by the
    other key. So a probe asks for one interval in each of the strips that it touches, usually one or two."""

    def __init__(self, program: WindowProgram, bands: tuple[int, int], rulers: Rulers):
        self.program, self.bands, self.rulers, self.dtype = program, bands, rulers, rulers.dtype
        self.unchecked = (program.shapes, [number for number, _ in enumerate(program.bounds.bands)])
        self._scale = tuple(
            value
            for ruler in (rulers.strips, rulers.steps)
            for value in (ruler.origin, ruler.width, ruler.half)
        )

    @cached_property
    def check(self) -> Callable[..., int]:
        return band_check(self.unchecked[0])

    def keys(self, stored: Stored) -> np.ndarray:
        x, y = (self.program.key_of_band(stored, band) for band in self.bands)
        places = np.empty(len(x), self.dtype)
        strips.places_of(x, y, *self._scale, places)
        return places

    def questions(self, probing: Probing) -> Intervals:
        """The intervals; large numbers of them are sorted by low end."""
        bounds = [end for band in self.bands for end in self.program.bounds_of_band(probing, band)]
        room = 3 * len(bounds[0])  # a band as wide as one or two strips touches two or three of them
        while True:
            asking, lows, highs = (np.empty(room, kind) for kind in (np.int32, self.dtype, self.dtype))
            count = strips.intervals_of(*bounds, *self._scale, lows, highs, asking)
            if count <= room:
                break
            room = count
        asking, lows, highs = asking[:count], lows[:count], highs[:count]
        if count >= SORTED_FROM:
            lows, order = sort_batch(lows, np.arange(count, dtype=np.int32))
            asking, highs = asking[order], highs[order]
        return Intervals(lows, highs, asking)


def make_access(program: WindowProgram, key: SubwindowKey) -> Access:
    """The access of subwindows with this key."""
    if isinstance(key, BandKey):
        return BandAccess(program, key.band)
    return StripAccess(program, key.bands, key.rulers)


def ask(
    probe: ProbeIndex, questions: Intervals, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
) -> Iterator[int]:
    """Candidates for the probes that asked. `start` and `stop` are by probe; neither decreases from one probe to the
    next."""
    lows, highs, asking = questions
    if asking is None:
        return probe(lows, highs, start, stop, pairs)
    same = len(start) > 0 and start[0] == start[-1] and stop[0] == stop[-1]
    ends = [np.full(len(asking), end[0]) if same else end[asking] for end in (start, stop)]
    return _renamed(probe(lows, highs, ends[0], ends[1], pairs), asking, pairs)


def _renamed(stretches: Iterator[int], asking: np.ndarray, pairs: PairBuffer) -> Iterator[int]:
    """Replace the interval in each pair by the probe that asked for it."""
    for before in stretches:
        fresh = slice(before, pairs.count)
        pairs.probe[fresh] = asking[pairs.probe[fresh]]
        yield before


def check_bands(
    access: Access,
    keys: Callable[[], tuple[np.ndarray, ...]],
    probing: Probing,
    pairs: PairBuffer,
    before: int,
    ts: np.ndarray | None = None,
    timed: Times | None = None,
) -> None:
    """Keep those pairs from `before` on that satisfy the bands which the access leaves unchecked and, if `timed` is
    given, the times that each probe reaches. Calls `keys` only if something is left to check."""
    shapes, bands = access.unchecked
    if not shapes and timed is None:
        return
    held = keys()
    none = held[0][:0] if held else np.empty(0, np.int64)
    lows, highs = (
        [none if b is None else b for b in map(ends.__getitem__, bands)]
        for ends in (probing.lows, probing.highs)
    )
    if timed is None:
        check = access.check
    else:
        check = band_check((*shapes, (BandShape(len(held), "i8"),)))
        assert ts is not None
        held, lows, highs = (*held, ts), [*lows, timed[0]], [*highs, timed[1]]
    pairs.count = check(pairs.probe, pairs.pos, before, pairs.count, held, tuple(lows), tuple(highs))
