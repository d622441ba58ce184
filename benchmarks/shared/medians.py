"""The confidence interval of a median."""

from __future__ import annotations

import math
from collections.abc import Iterable


def interval_of_median(values: Iterable[float]) -> tuple[float, float]:
    """Return a 95 % confidence interval of the median of the distribution the values are drawn from.

    It assumes nothing about that distribution: the number of values below its median follows a binomial distribution
    with p = 1/2. The interval runs from the k-th smallest to the k-th largest value, with the largest k that leaves at
    most 2.5 % on either side. Fewer than six values give an infinite interval.
    """
    ranked = sorted(values)
    count, k, chance = len(ranked), 0, 1 / 2 ** len(ranked)
    while chance <= 0.025:
        k += 1
        chance += math.comb(count, k) / 2**count
    return (float(ranked[k - 1]), float(ranked[-k])) if k else (-math.inf, math.inf)
