"""Tuples as kernels read them, in their two roles: kept by a window, and probing the other side's window.

A program (`codegen/programs.py`) makes both, once per tuple. Every array has one value per tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

RowChoice = slice | np.ndarray
BandEnds = tuple[np.ndarray | None, ...]


@dataclass(slots=True, eq=False)
class Stored:
    """What a window keeps of its tuples. Treat it as immutable, like `Probing`; frozen classes are slower to create,
    and every push creates some.

    `columns`: the keys of the program's bands, or, where it evaluates a block, the values and the validity of each
    column in turn. `known`: False where a key is NULL; None for a block, whose columns have their own validity.
    """

    columns: tuple[np.ndarray, ...] = ()
    known: np.ndarray | None = None

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.columns if self.known is None else (*self.columns, self.known)

    def with_arrays(self, arrays: Iterable[np.ndarray]) -> Stored:
        """The same columns with other values, given in the order of `arrays`."""
        values = tuple(arrays)
        return Stored(values) if self.known is None else Stored(values[:-1], values[-1])

    def pick(self, rows: RowChoice) -> Stored:
        known = self.known
        return Stored(tuple([a[rows] for a in self.columns]), None if known is None else known[rows])

    def all_known(self) -> bool:
        return self.known is None or int(np.count_nonzero(self.known)) == len(self.known)


@dataclass(slots=True, eq=False)
class Probing:
    """What a probe asks a window.

    `known`: False where the probe can match nothing, because a bound is NULL. `lows` and `highs`: the bounds of each
    band, None where a band has no such end. `columns`: those of a block, as in `Stored`.
    """

    known: np.ndarray
    lows: BandEnds = ()
    highs: BandEnds = ()
    columns: tuple[np.ndarray, ...] = ()

    def __len__(self) -> int:
        return len(self.known)

    def arrays(self) -> tuple[np.ndarray, ...]:
        ends = [end for end in (*self.lows, *self.highs) if end is not None]
        return (self.known, *ends, *self.columns)

    def with_arrays(self, arrays: Iterable[np.ndarray]) -> Probing:
        """The same bounds and columns with other values, given in the order of `arrays`."""
        values = iter(arrays)
        known = next(values)
        lows, highs = _filled(self.lows, values), _filled(self.highs, values)
        return Probing(known, lows, highs, tuple(values))

    def pick(self, rows: RowChoice) -> Probing:
        return self.with_arrays([array[rows] for array in self.arrays()])

    def all_known(self) -> bool:
        return int(np.count_nonzero(self.known)) == len(self.known)


def _filled(bounds: BandEnds, values: Iterator[np.ndarray]) -> BandEnds:
    return tuple([None if bound is None else next(values) for bound in bounds])
