"""Scores of pairs: an expression over both sides as numbers whose ascending order puts the best pair first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamjoin.codegen.column_values import as_sort
from streamjoin.codegen.compile_cost import MOST, compile_cost
from streamjoin.codegen.evaluate import DataByColumn, _Loop, key_dtype
from streamjoin.codegen.expressions import Emitter, sort_of
from streamjoin.codegen.vec import Vec
from streamjoin.semantics.expressions import Expr, columns

_SIGN = np.int64(-(2**63))


class Scores(_Loop):
    """Computes the scores of pairs; smaller is better. A score of more than 64 bits has two parts, others one.

    With `largest` the greatest value is the best one. NULL and NaN are not scores.
    """

    def __init__(self, score: Expr, largest: bool):
        self._score, self._largest = score, largest
        self._wide = sort_of(score.type) == 128
        outputs = ["high", "low", "ok"] if self._wide else ["value", "ok"]
        super().__init__(columns(score), outputs, [score], compile_cost([score]) <= MOST)

    @property
    def dtypes(self) -> list[np.dtype]:
        """The array types of the parts."""
        return [np.dtype(np.int64)] * 2 if self._wide else [key_dtype(self._score.type)]

    def body(self, emitter: Emitter) -> None:
        value = emitter.emit(self._score)
        missing = [value.null]
        if self._wide:
            code = emitter.let(emitter.widen(value, 128))
            emitter.line(f"high[i] = wide.high_limb({code})")
            emitter.line(f"low[i] = wide.low_limb({code})")
        else:
            emitter.line(f"value[i] = {value.code}")
            if self._score.type.is_float:
                missing.append(f"({value.code} != {value.code})")
        emitter.line(f"ok[i] = not ({emitter.any_of(missing)})")

    def store(self, values: Sequence[Vec], rows: slice, outputs: Sequence[np.ndarray]) -> None:
        (value,) = values
        if self._wide:
            limbs = as_sort(value.data, 128)
            outputs[0][rows], outputs[1][rows] = limbs.high, np.asarray(limbs.low).astype(np.int64)
        else:
            outputs[0][rows] = as_sort(value.data, sort_of(self._score.type))
        outputs[-1][rows] = True
        if value.null is not None:
            outputs[-1][rows] &= ~value.null
        if self._score.type.is_float:
            outputs[-1][rows] &= value.data == value.data

    def __call__(self, data: DataByColumn, count: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The parts, the most significant first, and which pairs have a score."""
        parts, ok = [np.empty(count, dtype) for dtype in self.dtypes], np.empty(count, np.bool_)
        self.run([data[column] for column in self.columns], count, [*parts, ok])
        if self._wide:
            parts[1] ^= _SIGN  # the lower part is unsigned, but compared as signed
        if self._largest:
            parts = [-part if part.dtype.kind == "f" else ~part for part in parts]
        return parts, ok
