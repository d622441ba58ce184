"""Checks candidate pairs against closed bands that an index with one key leaves undecided, and whether new ids and
sources continue the run held so far."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from streamjoin.jit import source
from streamjoin.jit.decorator import jit
from streamjoin.kernels import numpy_forms
from streamjoin.kernels.scan.bands import BandShape, Clauses, KeyArrays

_CHECK = """\
import numpy as np

from streamjoin.jit.decorator import jit


@jit
def check(probe, pos, first, count, keys, lows, highs):
    kept = first
    for at in range(first, count):
        i, p = np.uint64(probe[at]), np.uint64(pos[at])
        probe[kept] = probe[at]
        pos[kept] = pos[at]
        kept += np.int64({condition})
    return kept
"""


@functools.cache
def band_check(clauses: Clauses) -> Callable[..., int]:
    """`check(probe, pos, first, count, keys, lows, highs) -> count`: of the pairs `first` to `count`, none of which
    has a NULL key, keep those for which every clause holds. keys, lows and highs are as in `kernels.scan.band_scan`.

    Checks clause by clause, each without branches: it reads a key, at random, only for pairs that passed the earlier
    clauses. A clause has a kernel of its own, which clauses of the same form share: six clauses leave 14 combinations
    to be checked, and compiling a kernel for each would take eight seconds.
    """
    parts: list[tuple[Callable[..., int], list[int], slice]] = []
    for clause in clauses:
        read = list(dict.fromkeys(band.key for band in clause))
        begin = parts[-1][2].stop if parts else 0
        kernel = _clause_check(tuple(replace(band, key=read.index(band.key)) for band in clause))
        parts.append((kernel, read, slice(begin, begin + len(clause))))

    def check(
        probe: np.ndarray, pos: np.ndarray, first: int, count: int, keys: KeyArrays, lows: KeyArrays, highs: KeyArrays
    ) -> int:  # fmt: skip
        for kernel, read, bands in parts:
            count = kernel(
                probe, pos, first, count, tuple([keys[key] for key in read]), lows[bands], highs[bands]
            )
        return count

    return check


@functools.cache
def _clause_check(clause: tuple[BandShape, ...]) -> Callable[..., int]:
    """The kernel for one clause."""
    bands = []
    for number, band in enumerate(clause):
        tests = [f"(lows[{number}][i] <= keys[{band.key}][p])"] if band.lo else []
        tests += [f"(keys[{band.key}][p] <= highs[{number}][i])"] if band.hi else []
        bands.append(" & ".join(tests))
    condition = " | ".join(f"({band})" for band in bands)
    check: Callable[..., int] = source.load(_CHECK.format(condition=condition), "band_check").check
    return check


@jit(fallback=numpy_forms.continues)
def goes_on(ids, sources, next_id, source):
    """Whether ids continue consecutively from `next_id`, and whether all tuples come from `source`."""
    counted, same = True, True
    for i in range(len(ids)):
        counted &= ids[i] == next_id + i
        same &= sources[i] == source
    return counted, same
