"""How sure a median is."""

from __future__ import annotations

import math
from collections.abc import Iterable


def interval_of_median(values: Iterable[float]) -> tuple[float, float]:
    """A 95 % interval of the median of what the values are drawn from, however that is distributed: from the k-th least
    to the k-th greatest, for the largest k beyond which it lies in 2.5 % of all cases or fewer on either side (as many
    values lie below it as coins show heads). Fewer than six values say nothing."""
    ranked = sorted(values)
    count, k, chance = len(ranked), 0, 1 / 2 ** len(ranked)
    while chance <= 0.025:
        k += 1
        chance += math.comb(count, k) / 2**count
    return (float(ranked[k - 1]), float(ranked[-k])) if k else (-math.inf, math.inf)
