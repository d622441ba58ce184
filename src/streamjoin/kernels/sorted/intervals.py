"""Makes several intervals of one key disjoint, so that probing them one after the other finds each tuple once."""

import numpy as np

from streamjoin.jit.decorator import jit


def _make_disjoint(lows, highs, nothing_low, nothing_high):
    """Rewrite the intervals [lows[b, i], highs[b, i]] of each i in place: the same keys, ordered by low end, none
    touching another. Empty intervals (low > high, or NaN) and those no longer needed become [nothing_low,
    nothing_high], after the others.

    Cost: O(k) for k intervals in the same order as those of i - 1, as with constant offsets; at worst O(k * k).
    """
    count, n = lows.shape
    order, low, high = np.arange(count), np.empty(count, lows.dtype), np.empty(count, lows.dtype)
    for i in range(n):
        filled = 0
        for place in range(count):
            # Empty intervals are left out of `low`, but stay in `order`, after the others.
            band, at = order[place], filled
            if lows[band, i] <= highs[band, i]:
                while at > 0 and low[at - 1] > lows[band, i]:
                    low[at], high[at] = low[at - 1], high[at - 1]
                    at -= 1
                low[at], high[at] = lows[band, i], highs[band, i]
                filled += 1
                for moved in range(place, at, -1):
                    order[moved] = order[moved - 1]
                order[at] = band
        kept = 0
        for place in range(filled):
            if kept and low[place] <= highs[kept - 1, i]:
                highs[kept - 1, i] = max(highs[kept - 1, i], high[place])
            else:
                lows[kept, i], highs[kept, i] = low[place], high[place]
                kept += 1
        for place in range(kept, count):
            lows[place, i], highs[place, i] = nothing_low, nothing_high


make_disjoint = jit(_make_disjoint, fallback=_make_disjoint)
