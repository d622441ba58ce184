"""Floats by rank: IEEE 754 numbers in their order, for exact bisection and neighbours; and rounding.

`rank` maps float64 (float32) to integers so that a < b implies rank(a) < rank(b); -0.0 lies just
below 0.0. NaN has no rank.
"""

import numpy as np

from streamjoin.jit.decorator import jit

MAX_RANK64 = 0x7FF0_0000_0000_0000  # rank of +inf; -MAX_RANK64 - 1 is -inf
MAX_RANK32 = 0x7F80_0000


@jit
def rank64(x):
    bits = np.float64(x).view(np.int64)
    return bits if bits >= 0 else np.int64(-0x8000_0000_0000_0000) - bits - np.int64(1)


@jit
def float64_at(rank):
    # Two returns: Numba cannot take the view of a value that is chosen between two.
    if rank >= 0:
        return np.int64(rank).view(np.float64)
    return np.int64(np.int64(-0x8000_0000_0000_0000) - np.int64(rank) - np.int64(1)).view(np.float64)


@jit
def rank32(x):
    bits = np.int64(np.float32(x).view(np.int32))
    return bits if bits >= 0 else np.int64(-0x8000_0000) - bits - np.int64(1)


@jit
def float32_at(rank):
    if rank >= 0:
        return np.int32(rank).view(np.float32)
    return np.int32(np.int64(-0x8000_0000) - np.int64(rank) - np.int64(1)).view(np.float32)


@jit
def next_up64(x):
    """The next greater float64; NaN for +inf and NaN."""
    if not x < np.inf:
        return np.nan
    return float64_at(rank64(x + 0.0) + 1)


@jit
def next_down64(x):
    return -next_up64(-x)


@jit
def next_up32(x):
    if not x < np.float32(np.inf):
        return np.float32(np.nan)
    return float32_at(rank32(x + np.float32(0.0)) + 1)


@jit
def next_down32(x):
    return -next_up32(-x)


@jit
def round_away(x):
    """The nearest whole number; the one away from zero if two are equally near."""
    whole = np.trunc(x)
    return whole + np.copysign(1.0, x) if abs(x - whole) >= 0.5 else whole
