"""Rulers for looking up two bands at once: one key is cut into strips, the other into steps within a strip.

A sorted subwindow then finds a probe's candidates for both bands as one interval in each strip that the probe touches
(`index/strips.py`). The best widths of strips and steps depend on the widths of the bands and on the match rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

Pair = tuple[float, float]
STEPS_OF_A_BAND = 64  # with 64 steps per band, rounding adds one candidate in 64
COARSEST = 8  # widen steps up to this factor to make places fit 32 bits instead of 64
# Looking up an interval costs about as much as checking a candidate, so at one match per probe strips as wide as one
# band are best.
BANDS_OF_A_STRIP, MOST_BANDS_OF_A_STRIP = 1.0, 16.0
SAME_WIDTH = 2.0  # keep rulers whose widths differ from the best by at most this factor
SPARE = 1.25  # make a ruler this much longer than the keys seen so far
NARROW, HUGE = 2.0**-1000, 2.0**1023  # the least and the greatest width
HALF_OF_ALL = 1 << 31  # with 64-bit places, a ruler has this many numbers on either side of its origin


@dataclass(frozen=True)
class Ruler:
    """Numbers a key: by its distance from `origin` in units of `width`, with `half` numbers on either side."""

    origin: float
    width: float
    half: int = HALF_OF_ALL

    def suits(self, other: Ruler, ends: Pair) -> bool:
        """Whether it can replace `other` for keys between these ends: it is about as fine, and reaches the ends if
        `other` does."""
        same = 1 / SAME_WIDTH <= other.width / self.width <= SAME_WIDTH
        away, others = (max(abs(end - origin) for end in ends) for origin in (self.origin, other.origin))
        return same and away <= max(self.half * self.width, SAME_WIDTH * others)


@dataclass(frozen=True)
class Rulers:
    """The ruler of the strips, and the ruler of the steps within a strip."""

    strips: Ruler
    steps: Ruler

    @property
    def dtype(self) -> np.dtype:
        """The type of places."""
        return np.dtype(np.int32 if 4 * self.strips.half * self.steps.half <= 2**32 else np.int64)

    def suit(self, other: Rulers, ends: tuple[Pair, Pair]) -> bool:
        strips, steps = self.strips.suits(other.strips, ends[0]), self.steps.suits(other.steps, ends[1])
        return self.dtype == other.dtype and strips and steps


def strip_widths(bands: Pair, found: float) -> Pair:
    """The widths of a strip and a step, for the usual widths of the `bands` and `found` matches per probe in a
    subwindow.

    With strips k bands wide, a probe looks up 1 + 1/k intervals and checks k + 1 candidates per match. Widths are
    powers of two, so that subwindows with similar bands can share the keys of a probe.
    """
    wide = min(max(1.0, (BANDS_OF_A_STRIP / max(found, 1e-9)) ** 0.5), MOST_BANDS_OF_A_STRIP)
    strip, step = (power_of_two(width) for width in (bands[0] * wide, bands[1] / STEPS_OF_A_BAND))
    return strip, step


def rulers_for(widths: Pair, ends: tuple[Pair, Pair], others: bool) -> Rulers:
    """Rulers of these widths for keys between these ends. Places have 32 bits if that is enough, perhaps with wider
    steps; they have 64 bits otherwise, or if `others`, keys beyond the ends, are likely. Strips and steps share the
    spare numbers."""
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
    """The power of two nearest to a width, within the range of floats."""
    return 2.0 ** round(math.log2(min(max(width, NARROW), HUGE)))
