"""Strips of a plane: a pair of keys as one number, so that a rectangle is an interval of numbers in each strip it
touches.

The strip of the first key and the step of the second within it are floor(key / width), kept within 32 bits: functions
that never fall, so a key between two bounds lies in a strip between theirs, whatever the rounding. Numbers are ordered
by strip, then by step.
"""

import numpy as np

from streamjoin.kernels.jit import inner, jit

LARGEST_STRIP, LARGEST_STEP = 2.0**30, 2.0**31 - 1
STEPS = 1 << 32  # of a strip
MIDDLE = 1 << 31  # the step of the key 0


@inner
def part(key, width, largest):
    return np.int64(min(max(np.floor(np.float64(key) / width), -largest), largest))


@inner
def number(strip, step):
    return strip * STEPS + step + MIDDLE


@jit
def numbers_of(x_keys, y_keys, x_width, y_width, out):
    """Fill `out` with the number of each tuple. A NaN gets some number: it matches nothing anyway."""
    for i in range(len(out)):
        x, y = x_keys[i], y_keys[i]
        strip = part(x if x == x else 0, x_width, LARGEST_STRIP)
        out[i] = number(strip, part(y if y == y else 0, y_width, LARGEST_STEP))


@jit
def strip_counts(x_lows, x_highs, y_lows, y_highs, x_width, out):
    """Fill `out` with how many strips each rectangle touches; 0 for an empty one."""
    for i in range(len(out)):
        out[i] = 0
        if x_lows[i] <= x_highs[i] and y_lows[i] <= y_highs[i]:
            out[i] = part(x_highs[i], x_width, LARGEST_STRIP) - part(x_lows[i], x_width, LARGEST_STRIP) + 1


@jit
def touched(x_lows, x_highs, y_lows, y_highs, x_width, y_width, counts, most, out_probe, out_low, out_high):
    """The intervals of numbers that rectangles of 1 to `most` strips cover, as (probe, low, high). The caller made
    `counts` by `strip_counts` and sized the output by them; returns how many there are."""
    filled = 0
    for i in range(len(counts)):
        if counts[i] > most:
            continue
        first = part(x_lows[i], x_width, LARGEST_STRIP) if counts[i] else 0
        for strip in range(first, first + counts[i]):
            out_probe[filled] = i
            out_low[filled] = number(strip, part(y_lows[i], y_width, LARGEST_STEP))
            out_high[filled] = number(strip, part(y_highs[i], y_width, LARGEST_STEP))
            filled += 1
    return filled
