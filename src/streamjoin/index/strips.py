"""Two bands as strips: tuples sorted by strip of one key, then by the other, so that a probe is an interval in each
of the one or two strips that it touches. All a sorted subwindow can do, it can do with these."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from streamjoin.codegen.programs import Intervals, Table, WindowProgram
from streamjoin.index.access import key_text
from streamjoin.index.bisort import sort_batch
from streamjoin.kernels import strips
from streamjoin.kernels.check import band_check

Pair = tuple[float, float]
STEPS_OF_A_BAND = 64  # so a sixty-fourth of what is found is found for the rounding
# Looking an interval up costs about as much as checking a candidate, so these bands a strip are best for one match.
BANDS_OF_A_STRIP, WIDEST = 1.0, 16.0
SORTED_FROM = 4_096  # intervals, which then share what they bring into the caches
# Widths of which one will do for the other, and a key's distance, in strips or steps.
SAME_WIDTH, FAR = 2.0, 2.0**29
NARROW, HUGE = 2.0**-1000, 2.0**1023  # the ends of widths


class StripAccess:
    """An `index.access.Access` for sorted subwindows. `widths`: of a strip, and of a step within it; `origins`: keys
    near the usual ones, from which both are counted."""

    dtype = np.dtype(np.int64)

    def __init__(
        self, program: WindowProgram, bands: tuple[int, int], widths: Pair, origins: Pair = (0.0, 0.0)
    ):
        self.program, self.bands, self.widths, self.origins = program, bands, widths, origins
        self.condition = f"strips over {' and '.join(key_text(program, band) for band in bands)}"
        self.unchecked = (program.shapes, [number for number, _ in enumerate(program.bounds.bands)])
        numbers = [program.keys.keys.index(program.bounds.bands[band].key) for band in bands]
        self._keys = f"key{numbers[0]}", f"key{numbers[1]}"
        self._scale = origins[0], widths[0], origins[1], widths[1]

    def suits(self, widths: Pair, origins: Pair) -> bool:
        """Whether it does as well as one with these."""
        same = all(
            1 / SAME_WIDTH <= new / old <= SAME_WIDTH for new, old in zip(widths, self.widths, strict=True)
        )
        away = [abs(new - old) for new, old in zip(origins, self.origins, strict=True)]
        return same and all(distance / width < FAR for distance, width in zip(away, self.widths, strict=True))

    @cached_property
    def check(self) -> Callable[..., int]:
        return band_check(self.unchecked[0])

    def keys(self, stored: Table) -> np.ndarray:
        x, y = stored[self._keys[0]], stored[self._keys[1]]
        places = np.empty(len(x), np.int64)
        strips.places_of(x, y, *self._scale, places)
        return places

    def questions(self, probing: Table) -> Intervals:
        """Many are in the order of the lows."""
        bounds = [array for band in self.bands for array in self._bounds(probing, band)]
        room = 2 * len(bounds[0])
        while True:
            asking, lows, highs = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int64)
            count = strips.intervals_of(*bounds, *self._scale, lows, highs, asking)
            if count <= room:
                break
            room = count
        asking, lows, highs = asking[:count], lows[:count], highs[:count]
        if count >= SORTED_FROM:
            lows, order = sort_batch(lows, np.arange(count, dtype=np.int32))
            asking, highs = asking[order], highs[order]
        return Intervals(lows, highs, asking)

    def _bounds(self, probing: Table, band: int) -> tuple[np.ndarray, np.ndarray]:
        low, high = probing.get(f"low{band}"), probing.get(f"high{band}")
        if low is not None and high is not None:
            return low, high
        return self.program.bounds_of_band(probing, band)


def strip_widths(bands: Pair, found: float) -> Pair:
    """For bands that are usually so wide, and probes that usually match so many tuples of a subwindow.

    A strip of k bands' width is touched by 1 + 1/k intervals of a probe, and has k + 1 candidates for a match. Powers
    of two: subwindows with about the same bands then share what probes ask.
    """
    wide = min(max(1.0, (BANDS_OF_A_STRIP / max(found, 1e-9)) ** 0.5), WIDEST)
    strip, step = (power_of_two(width) for width in (bands[0] * wide, bands[1] / STEPS_OF_A_BAND))
    return strip, step


def power_of_two(width: float) -> float:
    """The one next to a width, within what floats have."""
    return 2.0 ** round(math.log2(min(max(width, NARROW), HUGE)))
