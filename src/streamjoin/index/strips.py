"""Two bands as strips: tuples sorted by strip of one key, then by the other, so that a probe is an interval in each
of the one or two strips that it touches. All a sorted subwindow can do, it can do with these."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streamjoin.codegen.programs import Intervals, Table, WindowProgram
from streamjoin.index.access import key_text
from streamjoin.index.structures.bisort import sort_batch
from streamjoin.kernels.scan.check import band_check
from streamjoin.kernels.sorted import strips

Pair = tuple[float, float]
# So a sixty-fourth of what is found is found for the rounding; places of half the size are worth steps so many times as
# wide.
STEPS_OF_A_BAND, COARSEST = 64, 8
# Looking an interval up costs about as much as checking a candidate, so these bands a strip are best for one match.
BANDS_OF_A_STRIP, WIDEST = 1.0, 16.0
SORTED_FROM = 4_096  # intervals, which then share what they bring into the caches
SAME_WIDTH = 2.0  # times as wide, or less, will do as well
SPARE = 1.25  # a range for keys is larger than that of those seen by so much
NARROW, HUGE = 2.0**-1000, 2.0**1023  # the ends of widths
HALF_OF_ALL = 1 << 31  # numbers of either key, for places of 64 bits


@dataclass(frozen=True)
class Ruler:
    """Numbers of one key: counted from `origin` in `width`s, `half` of them on either side."""

    origin: float
    width: float
    half: int = HALF_OF_ALL

    def suits(self, other: Ruler, ends: Pair) -> bool:
        """Whether it does as well as another for keys between these ends: it is about as fine, and reaches them if that
        one does."""
        same = 1 / SAME_WIDTH <= other.width / self.width <= SAME_WIDTH
        away, others = (max(abs(end - origin) for end in ends) for origin in (self.origin, other.origin))
        return same and away <= max(self.half * self.width, SAME_WIDTH * others)


@dataclass(frozen=True)
class Rulers:
    """Of the strips, and of the steps within one."""

    strips: Ruler
    steps: Ruler

    @property
    def dtype(self) -> np.dtype:
        """Of places."""
        return np.dtype(np.int32 if 4 * self.strips.half * self.steps.half <= 2**32 else np.int64)

    def suit(self, other: Rulers, ends: tuple[Pair, Pair]) -> bool:
        strips, steps = self.strips.suits(other.strips, ends[0]), self.steps.suits(other.steps, ends[1])
        return self.dtype == other.dtype and strips and steps


class StripAccess:
    """An `index.access.Access` for sorted subwindows."""

    def __init__(self, program: WindowProgram, bands: tuple[int, int], rulers: Rulers):
        self.program, self.bands, self.rulers, self.dtype = program, bands, rulers, rulers.dtype
        self.condition = f"strips over {' and '.join(key_text(program, band) for band in bands)}"
        self.unchecked = (program.shapes, [number for number, _ in enumerate(program.bounds.bands)])
        numbers = [program.keys.keys.index(program.bounds.bands[band].key) for band in bands]
        self._keys = f"key{numbers[0]}", f"key{numbers[1]}"
        self._scale = tuple(
            value
            for ruler in (rulers.strips, rulers.steps)
            for value in (ruler.origin, ruler.width, ruler.half)
        )

    @cached_property
    def check(self) -> Callable[..., int]:
        return band_check(self.unchecked[0])

    def keys(self, stored: Table) -> np.ndarray:
        x, y = stored[self._keys[0]], stored[self._keys[1]]
        places = np.empty(len(x), self.dtype)
        strips.places_of(x, y, *self._scale, places)
        return places

    def questions(self, probing: Table) -> Intervals:
        """Many are in the order of the lows."""
        bounds = [array for band in self.bands for array in self._bounds(probing, band)]
        room = 3 * len(bounds[0])  # a band as wide as a strip or two touches two or three
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


def rulers_for(widths: Pair, ends: tuple[Pair, Pair], others: bool) -> Rulers:
    """With such widths, for keys between these ends. Places have 32 bits, unless `others` may well come or those are
    not enough, though steps may have to be wider; strips and steps share what is not needed of them."""
    (strip, step), finest = widths, widths[1]
    middles = [low / 2 + high / 2 for low, high in ends]
    halves = [(high / 2 - low / 2) * SPARE for low, high in ends]
    strips = math.ceil(min(halves[0] / strip, 2.0**30)) + 1
    while halves[1] / step >= 2**30 // strips and step < COARSEST * finest:
        step *= 2
    if others or halves[1] / step >= 2**30 // strips:
        return Rulers(Ruler(middles[0], strip), Ruler(middles[1], finest))
    strips *= math.isqrt(2**30 // (strips * (math.floor(halves[1] / step) + 1)))
    return Rulers(Ruler(middles[0], strip, strips), Ruler(middles[1], step, 2**30 // strips))


def power_of_two(width: float) -> float:
    """The one next to a width, within what floats have."""
    return 2.0 ** round(math.log2(min(max(width, NARROW), HUGE)))
