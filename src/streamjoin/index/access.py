"""What a subwindow is asked: how the key of a stored tuple and the questions of a probe come from the predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Protocol

import numpy as np

from streamjoin.codegen.programs import COMPOSITE, Intervals, Table, WindowProgram
from streamjoin.index.protocol import Subwindow
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan.bands import Clauses
from streamjoin.kernels.scan.check import band_check
from streamjoin.semantics.render import to_sql


class Access(Protocol):
    """A way to find candidates in a subwindow. `condition`: the keys it serves, as text. `dtype` is that of its keys,
    `unchecked` the clauses that candidates have still to satisfy and the numbers of their bands, `check` the kernel for
    those (`kernels.check.band_check`)."""

    condition: str
    dtype: np.dtype
    unchecked: tuple[Clauses, list[int]]

    @property
    def check(self) -> Callable[..., int]: ...

    def keys(self, stored: Table) -> np.ndarray:
        """The keys of prepared stored tuples."""

    def questions(self, probing: Table) -> Intervals:
        """What prepared probes ask, the same for all subwindows with this access."""


def key_text(program: WindowProgram, band: int) -> str:
    """The key of a band as SQL; of COMPOSITE, all equality keys."""
    if band == COMPOSITE:
        return ", ".join(to_sql(clause.bands[0].key) for clause in program.clauses if clause.is_equality)
    return to_sql(program.bounds.bands[band].key)


class BandAccess:
    """One clause of the predicate, known by its first band, or all its equalities as one."""

    def __init__(self, program: WindowProgram, band: int):
        self.program, self.band = program, band
        self.condition = key_text(program, band)
        self.dtype = program.band_dtype(band)
        self.unchecked = program.other_bands(band)

    @cached_property
    def check(self) -> Callable[..., int]:
        return band_check(self.unchecked[0])

    def keys(self, stored: Table) -> np.ndarray:
        return self.program.key_of_band(stored, self.band)

    def questions(self, probing: Table) -> Intervals:
        return self.program.intervals(probing, self.band)


def ask(
    subwindow: Subwindow, questions: Intervals, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
) -> Iterator[int]:
    """Candidates for the probes that asked; `start` and `stop` are by probe, and neither falls from one to the next."""
    lows, highs, asking = questions
    if asking is None:
        return subwindow.probe(lows, highs, start, stop, pairs)
    same = len(start) > 0 and start[0] == start[-1] and stop[0] == stop[-1]
    ends = [np.full(len(asking), end[0]) if same else end[asking] for end in (start, stop)]
    return _renamed(subwindow.probe(lows, highs, ends[0], ends[1], pairs), asking, pairs)


def _renamed(stretches: Iterator[int], asking: np.ndarray, pairs: PairBuffer) -> Iterator[int]:
    """Pairs of intervals as pairs of the probes that asked for them."""
    for before in stretches:
        fresh = slice(before, pairs.count)
        pairs.probe[fresh] = asking[pairs.probe[fresh]]
        yield before
