"""Rulers for two bands at once: one key is cut into strips, the other into steps within a strip.

A sorted subwindow then finds a probe's candidates for both bands as one interval in each strip that the probe touches
(`index/strips.py`). How wide strips and steps are best follows from how wide the bands are and how much they match.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

Pair = tuple[float, float]
STEPS_OF_A_BAND = 64  # rounding to a step makes a probe find one candidate in 64 too many
COARSEST = 8  # widen steps up to this factor to make places fit 32 bits instead of 64
# Looking up an interval costs about as much as checking a candidate: strips one band wide are best at one match.
BANDS_OF_A_STRIP, WIDEST = 1.0, 16.0
SAME_WIDTH = 2.0  # keep rulers whose widths differ from the best by at most this factor
SPARE = 1.25  # make a ruler this much longer than the keys seen so far
NARROW, HUGE = 2.0**-1000, 2.0**1023  # the least and greatest width
HALF_OF_ALL = 1 << 31  # numbers on either side of a ruler's origin, for places of 64 bits


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
