"""Values of some rows at once, as `columnwise` computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from streamjoin.semantics.expressions import Column


class Limbs(NamedTuple):
    """Integers of 128 bits: `low` is uint64, `high` int64."""

    low: Any
    high: Any


class TextSpans(NamedTuple):
    """Strings or binaries: where each begins in the tile's pool, and its length."""

    start: Any
    length: Any


class Vec(NamedTuple):
    """A value for each row, or one scalar for all rows. `null`: True where the value is NULL; None if no value is.
    A boolean is False where it is NULL."""

    data: Any
    null: Any = None


class Tile:
    """The inputs of some rows, and the values that are kept while the rows are evaluated. `pool` has the bytes of all
    texts; texts that are computed are added at its end."""

    def __init__(self, count: int, inputs: Mapping[Column, Vec], pool: np.ndarray):
        self.count, self.inputs, self.pool = count, inputs, pool
        self.kept: dict[int, Vec] = {}

    def array(self, data: Any, dtype: Any) -> np.ndarray:
        """`data` as a contiguous array with a number for each row."""
        return np.ascontiguousarray(np.broadcast_to(np.asarray(data, dtype), (self.count,)))

    def add_texts(self, content: np.ndarray, lengths: np.ndarray) -> TextSpans:
        """New texts, which `content` has one after the other."""
        ends = len(self.pool) + np.cumsum(lengths)
        self.pool = np.concatenate([self.pool, content])
        return TextSpans(ends - lengths, lengths)

    def texts(self, *values: TextSpans) -> list[np.ndarray]:
        """The arguments of text kernels: the bytes, then start and length of each value."""
        ends = [self.array(end, np.int64) for value in values for end in value]
        return [self.pool, *ends]


Evaluate = Callable[[Tile], Vec]  # an expression as a function
