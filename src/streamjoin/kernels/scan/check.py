"""Checks candidate pairs against closed bands that an index with one key leaves undecided, and whether new ids and
sources continue the run held so far."""

from __future__ import annotations

import functools
from collections.abc import Callable

from streamjoin.jit import source
from streamjoin.jit.decorator import jit
from streamjoin.kernels import numpy_forms
from streamjoin.kernels.scan.bands import Clauses

_CHECK = """\
import numpy as np

from streamjoin.jit.decorator import jit


@jit
def check(probe, pos, first, count, keys, lows, highs):
{passes}    return count
"""
_PASS = """\
    kept = first
    for at in range(first, count):
        i, p = np.uint64(probe[at]), np.uint64(pos[at])
        probe[kept] = probe[at]
        pos[kept] = pos[at]
        kept += np.int64({condition})
    count = kept
"""


@functools.cache
def band_check(clauses: Clauses) -> Callable[..., int]:
    """`check(probe, pos, first, count, keys, lows, highs) -> count`: of the pairs `first` to `count`, none of which
    has a NULL key, keep those for which every clause holds. keys, lows and highs are as in `kernels.scan.band_scan`.

    Checks clause by clause, each without branches: it reads a key, at random, only for pairs that passed the earlier
    clauses.
    """
    numbers = iter(range(sum(len(clause) for clause in clauses)))
    passes = []
    for clause in clauses:
        bands = []
        for band in clause:
            number = next(numbers)
            tests = [f"(lows[{number}][i] <= keys[{band.key}][p])"] if band.lo else []
            tests += [f"(keys[{band.key}][p] <= highs[{number}][i])"] if band.hi else []
            bands.append(" & ".join(tests))
        passes.append(_PASS.format(condition=" | ".join(f"({band})" for band in bands)))
    check: Callable[..., int] = source.load(_CHECK.format(passes="".join(passes)), "band_check").check
    return check


@jit(fallback=numpy_forms.continues)
def goes_on(ids, sources, next_id, source):
    """Whether ids continue consecutively from `next_id`, and whether all tuples come from `source`."""
    counted, same = True, True
    for i in range(len(ids)):
        counted &= ids[i] == next_id + i
        same &= sources[i] == source
    return counted, same
