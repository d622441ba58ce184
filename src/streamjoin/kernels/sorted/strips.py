"""Combines two keys into one: the first key is cut into strips, and the second key orders the tuples within each
strip.

A key's number is floor((key - origin) / width), clamped to a range. This function never decreases, so the number of a
key between two bounds is between their numbers, whatever the rounding and however far from the origin. A *place* has
the number of the first key, its strip, in the upper bits, and the number of the second key in the lower bits. So in
each strip that a probe's rectangle touches, its matches are between two places, and all matches are between the first
and the last of these places.
"""

import numpy as np

from streamjoin.jit.decorator import inner, jit

FEW_STRIPS = 16  # a probe that touches more strips asks for one interval over all of them


@inner
def number_of(key, origin, width, half):
    """A number from -half to half - 1. NaN gets an arbitrary number, because it matches nothing anyway."""
    quotient = np.floor((np.float64(key) - origin) / width)
    return np.int64(min(max(quotient if quotient == quotient else 0.0, -float(half)), float(half - 1)))


@inner
def place(strip, number, half):
    """The place for a strip and a number from -half to half - 1."""
    return (2 * strip + 1) * half + number


@jit
def places_of(x_keys, y_keys, x_origin, x_width, x_half, y_origin, y_width, y_half, out):
    """Fill `out` with the place of each tuple."""
    for i in range(len(out)):
        strip, number = (
            number_of(x_keys[i], x_origin, x_width, x_half),
            number_of(y_keys[i], y_origin, y_width, y_half),
        )
        out[i] = place(strip, number, y_half)


@jit
def intervals_of(
    x_lows,
    x_highs,
    y_lows,
    y_highs,
    x_origin,
    x_width,
    x_half,
    y_origin,
    y_width,
    y_half,
    lows,
    highs,
    asking,
):
    """Fill in the intervals of places that rectangles ask for, and the probe of each; return their number. Intervals
    of one probe do not overlap, and an empty rectangle has none.

    Writes no more than there is room for. If that is too little, the caller makes room and calls again from the
    start.
    """
    count, room = 0, len(lows)
    for i in range(len(x_lows)):
        if not (x_lows[i] <= x_highs[i] and y_lows[i] <= y_highs[i]):
            continue
        first = number_of(x_lows[i], x_origin, x_width, x_half)
        last = number_of(x_highs[i], x_origin, x_width, x_half)
        low, high = (
            number_of(y_lows[i], y_origin, y_width, y_half),
            number_of(y_highs[i], y_origin, y_width, y_half),
        )
        many = last - first + 1 if last - first < FEW_STRIPS else 1
        if count + many <= room:
            for number in range(many):
                lows[count + number] = place(first + number, low, y_half)
                highs[count + number] = place(last if many == 1 else first + number, high, y_half)
                asking[count + number] = i
        count += many
    return count
