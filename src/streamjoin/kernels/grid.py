"""Cells of a grid over two keys: which one a tuple lies in, and which ones a probe's rectangle touches.

The cell of a key is floor(key / width), a function that never falls, so a key between two bounds lies in
a cell between theirs, whatever the rounding. A pair of cells is packed into 64 bits, 32 of each: the
cells that one probe touches are all different, which is all that is needed.
"""

import numpy as np

from streamjoin.kernels.jit import inner, jit

LARGEST = 2.0**61  # so that the number of cells between any two fits 64 bits


@inner
def cell(key, width):
    quotient = np.floor(np.float64(key) / width)
    return np.int64(min(max(quotient, -LARGEST), LARGEST))


@inner
def pack(x, y):
    return (x << 32) | (y & 0xFFFF_FFFF)


@jit
def cells_of(x_keys, y_keys, x_width, y_width, out):
    """Fill `out` with the packed cell of each tuple. A NaN gets some cell: it matches nothing anyway."""
    for i in range(len(out)):
        x, y = x_keys[i], y_keys[i]
        out[i] = pack(cell(x if x == x else 0, x_width), cell(y if y == y else 0, y_width))


@jit
def cell_counts(lows, highs, width, out):
    """Fill `out` with how many cells each interval touches; 0 for an empty one."""
    for i in range(len(out)):
        out[i] = 0
        if lows[i] <= highs[i]:
            out[i] = cell(highs[i], width) - cell(lows[i], width) + 1


@jit
def touched(x_lows, x_highs, y_lows, y_highs, x_width, y_width, probes, out_probe, out_cell):
    """The cells that the rectangles of `probes` touch, as (place in `probes`, packed cell). The caller sized the
    output by `cell_counts`; returns how many there are."""
    count = 0
    for place in range(len(probes)):
        i = probes[place]
        y_low, y_high = cell(y_lows[i], y_width), cell(y_highs[i], y_width)
        for x in range(cell(x_lows[i], x_width), cell(x_highs[i], x_width) + 1):
            for y in range(y_low, y_high + 1):
                out_probe[count] = i
                out_cell[count] = pack(x, y)
                count += 1
    return count
