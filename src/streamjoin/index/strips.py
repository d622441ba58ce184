"""Two bands as strips: tuples sorted by strip of one key, then by the other, so that a probe is an interval in each
of the one or two strips that it touches.

Against a grid of hashed cells (`access.GridAccess`) a probe asks for a fifth as many places, and what it finds there
lies together; but all tuples have to be there before they are sorted. That is so with the immutable runs of
a state store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from streamjoin.codegen.programs import Table, WindowProgram
from streamjoin.index.access import key_text
from streamjoin.index.bisort import sort_batch
from streamjoin.index.protocol import Subwindow
from streamjoin.kernels import strips
from streamjoin.kernels.check import band_check
from streamjoin.kernels.pairs import PairBuffer

MOST_STRIPS = 64  # of a probe; one that touches more is met with all tuples
STEPS_OF_A_BAND = 64  # so a sixty-fourth of what is found is found for the rounding
# Looking an interval up costs about as much as checking a candidate, so these bands a strip are best for one match.
BANDS_OF_A_STRIP, WIDEST = 1.0, 16.0
SORTED_FROM = 4_096  # intervals, which then share what they bring into the caches


class Intervals(NamedTuple):
    """What probes ask: for numbers from `lows` to `highs`, by the probes `asking`; `wide` ones ask for everything. Many
    are in the order of `lows`."""

    wide: np.ndarray
    asking: np.ndarray
    lows: np.ndarray
    highs: np.ndarray


class StripAccess:
    """An `index.access.Access` for sorted subwindows. `widths`: of a strip, and of a step within it."""

    dtype = np.dtype(np.int64)

    def __init__(self, program: WindowProgram, bands: tuple[int, int], widths: tuple[float, float]):
        self.program, self.bands, self.widths = program, bands, widths
        self.condition = f"strips over {' and '.join(key_text(program, band) for band in bands)}"
        self.unchecked = (program.shapes, [number for number, _ in enumerate(program.bounds.bands)])

    @cached_property
    def check(self) -> Callable[..., int]:
        return band_check(self.unchecked[0])

    def keys(self, stored: Table) -> np.ndarray:
        x, y = (self.program.key_of_band(stored, band) for band in self.bands)
        numbers = np.empty(len(x), np.int64)
        strips.numbers_of(x, y, *self.widths, numbers)
        return numbers

    def questions(self, probing: Table) -> Intervals:
        bounds = [array for band in self.bands for array in self.program.bounds_of_band(probing, band)]
        counts = np.empty(len(bounds[0]), np.int64)
        strips.strip_counts(*bounds, self.widths[0], counts)
        wide = np.flatnonzero(counts > MOST_STRIPS)
        size = int(counts.sum() - counts[wide].sum())
        asking, lows, highs = (np.empty(size, kind) for kind in (np.int32, np.int64, np.int64))
        strips.touched(*bounds, *self.widths, counts, MOST_STRIPS, asking, lows, highs)
        if size >= SORTED_FROM:
            lows, order = sort_batch(lows, np.arange(size, dtype=np.int32))
            asking, highs = asking[order], highs[order]
        return Intervals(wide, asking, lows, highs)

    def probe(
        self,
        subwindow: Subwindow,
        questions: Intervals,
        start: np.ndarray,
        stop: np.ndarray,
        pairs: PairBuffer,
    ) -> Iterator[int]:
        wide, asking, lows, highs = questions
        if len(wide):
            everything = np.iinfo(np.int64)
            least, most = (np.full(len(wide), end, np.int64) for end in (everything.min, everything.max))
            yield from _ask(subwindow, wide, least, most, start, stop, pairs)
        yield from _ask(subwindow, asking, lows, highs, start, stop, pairs)


def strip_widths(bands: tuple[float, float], found: float) -> tuple[float, float]:
    """For bands that are usually so wide, and probes that usually match so many tuples of a subwindow.

    A strip of k bands' width is touched by 1 + 1/k intervals of a probe, and has k + 1 candidates for a match. Powers
    of two: subwindows with about the same bands then share what probes ask.
    """
    wide = min(max(1.0, (BANDS_OF_A_STRIP / max(found, 1e-9)) ** 0.5), WIDEST)
    strip, step = (2.0 ** round(math.log2(width)) for width in (bands[0] * wide, bands[1] / STEPS_OF_A_BAND))
    return strip, step


def _ask(
    subwindow: Subwindow,
    asking: np.ndarray,
    lows: np.ndarray,
    highs: np.ndarray,
    start: np.ndarray,
    stop: np.ndarray,
    pairs: PairBuffer,
) -> Iterator[int]:
    """Interval i is asked for by probe asking[i]."""
    # Neither end falls from probe to probe.
    same = len(start) > 0 and start[0] == start[-1] and stop[0] == stop[-1]
    ends = [np.full(len(asking), end[0]) if same else end[asking] for end in (start, stop)]
    for before in subwindow.probe(lows, highs, ends[0], ends[1], pairs):
        fresh = slice(before, pairs.count)
        pairs.probe[fresh] = asking[pairs.probe[fresh]]
        yield before
